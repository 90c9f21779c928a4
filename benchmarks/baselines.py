"""Code that users would write without uulearn: models, the corrected risk and training loops, in float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from common import BATCH_SIZE, LR, N_FEATURES, SET_PRIORS, TARGET_PRIOR
from uulearn import uu_risk

SLOPE = -0.1


def mlp(n_features: int = N_FEATURES, width: int = 300, depth: int = 4) -> nn.Sequential:
    """Return the paper's MLP, which returns one score per row, of shape (n,)."""
    layers: list[nn.Module] = []
    for size in [n_features] + [width] * (depth - 1):
        layers += [nn.Linear(size, width, bias=False), nn.BatchNorm1d(width, eps=1e-3), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1), nn.Flatten(0))


def linear(n_features: int = N_FEATURES) -> nn.Sequential:
    """Return the linear model, which returns one score per row, of shape (n,)."""
    return nn.Sequential(nn.Linear(n_features, 1), nn.Flatten(0))


MODELS = {"mlp": mlp, "linear": linear}


def corrected_risk(first: Tensor, second: Tensor) -> Tensor:
    """Return the UU risk with logistic loss and leaky-ReLU correction, from the scores of set 0 and set 1."""
    theta, theta_prime = SET_PRIORS
    gap = theta - theta_prime
    a, b = (1 - theta_prime) * TARGET_PRIOR / gap, theta_prime * (1 - TARGET_PRIOR) / gap
    c, d = (1 - theta) * TARGET_PRIOR / gap, theta * (1 - TARGET_PRIOR) / gap
    positive = a * F.softplus(-first).mean() - c * F.softplus(-second).mean()
    negative = d * F.softplus(second).mean() - b * F.softplus(first).mean()
    return F.leaky_relu(positive, SLOPE) + F.leaky_relu(negative, SLOPE)


class MembershipCriterion(nn.Module):
    """The same risk as a criterion of scores and sets, the form that skorch expects."""

    def forward(self, scores: Tensor, sets: Tensor) -> Tensor:
        return corrected_risk(scores[sets == 0], scores[sets == 1])


def check_risk() -> None:
    """Raise if the hand-written risk differs from the risk of uulearn, on either side of the kink."""
    generator = torch.Generator().manual_seed(0)
    sets = torch.arange(200) % 2
    for shift in (0.0, 4.0, -4.0):
        scores = torch.randn(200, generator=generator) + shift * (1 - 2 * sets)
        ours = uu_risk(
            scores, sets, SET_PRIORS, TARGET_PRIOR, loss="logistic", method="leaky_relu", slope=SLOPE
        ).corrected
        torch.testing.assert_close(MembershipCriterion()(scores, sets), ours, rtol=1e-5, atol=1e-6)


class DataLoaderLoop:
    """A plain loop with two data loaders and one joint forward pass."""

    def __init__(
        self, model: nn.Module, first: NDArray[np.float32], second: NDArray[np.float32], lr: float = LR
    ) -> None:
        self.model = model
        self.loaders = [
            DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=BATCH_SIZE // 2, shuffle=True)
            for X in (first, second)
        ]
        self.optimizer = torch.optim.Adam(model.parameters(), lr=lr)

    def epoch(self) -> None:
        """One epoch."""
        self.model.train()
        for (x0,), (x1,) in zip(*self.loaders, strict=True):
            self.optimizer.zero_grad()
            scores = self.model(torch.cat([x0, x1]))
            loss = corrected_risk(scores[: len(x0)], scores[len(x0) :])
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()


class TightLoop:
    """The reference loop: rows in memory, gathered by a permutation into a reused buffer, and fused Adam."""

    def __init__(self, model: nn.Module, first: NDArray[np.float32], second: NDArray[np.float32]) -> None:
        self.model = model
        self.rows = torch.from_numpy(first), torch.from_numpy(second)
        self.buffer = torch.empty(BATCH_SIZE, first.shape[1])
        self.optimizer = torch.optim.Adam(model.parameters(), lr=LR, fused=True)

    def epoch(self) -> None:
        """One epoch."""
        self.model.train()
        for x, n_first in self._batches():
            self.optimizer.zero_grad()
            scores = self.model(x)
            loss = corrected_risk(scores[:n_first], scores[n_first:])
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()

    def _batches(self) -> Iterator[tuple[Tensor, int]]:
        orders = [torch.split(torch.randperm(len(rows)), BATCH_SIZE // 2) for rows in self.rows]
        for i0, i1 in zip(*orders, strict=True):
            n_first, n = len(i0), len(i0) + len(i1)
            torch.index_select(self.rows[0], 0, i0, out=self.buffer[:n_first])
            torch.index_select(self.rows[1], 0, i1, out=self.buffer[n_first:n])
            yield self.buffer[:n], n_first


def skorch_net(model: nn.Module, **settings: Any) -> Any:
    """Return a skorch net that trains one epoch on each call of ``partial_fit(X, sets)``."""
    from skorch import NeuralNet  # imported here, because not all child processes need it

    return NeuralNet(
        model,
        criterion=MembershipCriterion,
        optimizer=torch.optim.Adam,
        lr=LR,
        max_epochs=1,
        iterator_train__shuffle=True,
        train_split=None,
        verbose=0,
        **settings,
    ).initialize()
