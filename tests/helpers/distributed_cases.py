"""Batches, networks and settings shared by the tests of the distributed risk and their worker processes."""

import torch
from torch import nn

from uulearn.risk import LOSSES

TRAINABLE = [name for name, loss in LOSSES.items() if loss.trainable]


PRIORS = [((0.8, 0.2), 0.5), ((0.3, 0.6), 0.4), ((1.0, 0.3), 0.3), ((1.0, 0.0), 0.7)]


def batch(n, seed, columns=4, double=False):
    generator = torch.Generator().manual_seed(seed)
    x, sets = torch.randn(n, columns, generator=generator), torch.randint(0, 2, (n,), generator=generator)
    return x.double() if double else x, sets


def network(seed=0, columns=4, **kinds):
    torch.manual_seed(seed)
    layers = [nn.Linear(columns, 8), *([nn.BatchNorm1d(8)] if kinds.get("normalized") else []), nn.Tanh()]
    return nn.Sequential(*layers, *([nn.Dropout(0.5)] if kinds.get("dropout") else []), nn.Linear(8, 1))


def stack():
    """Scores of three runs, one per column; the correction is active for the first."""
    scores, sets = batch(48, 0, columns=3)
    scores[sets == 0, 0] += 4
    scores[sets == 1, 0] -= 4
    return scores, sets


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])
