"""The studies of consistency training: views that the library does not have, and the baseline with noisy labels."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "study"))

import consistency_tables
import noisy_labels

from uulearn import UURisk
from uulearn.data.batches import BatchPlan
from uulearn.training import ConsistencyOptions, RunOptions
from uulearn.training.consistency import ConsistencyTerm

COUNTS = (6, 4)


def make_term(kind, teacher=None):
    torch.manual_seed(0)
    options = RunOptions(consistency=ConsistencyOptions(), ema=0.9)
    risk, plan = UURisk((0.7, 0.4), 0.3), BatchPlan((60, 40), 10)
    return kind(options, teacher or nn.Linear(3, 1), risk, plan, torch.zeros(2, 3)), torch.randn(10, 3)


@pytest.mark.parametrize("name", ["mixup", "mixup within sets"])
def test_loss_of_mixed_rows_is_the_mixed_loss_of_both_labels(name):
    term, x = make_term(consistency_tables.TERMS[name])
    view = term.strong(x, COUNTS)
    own, other = term._own, term._other
    torch.testing.assert_close(view, own[:, None] * x + (1 - own[:, None]) * x[other])
    assert own.min() >= 0.5
    if name == "mixup within sets":
        assert ((other < COUNTS[0]) == (torch.arange(10) < COUNTS[0])).all()
    labels, scores = ConsistencyTerm.targets(term, x, COUNTS, COUNTS), torch.randn(10)
    each = F.binary_cross_entropy_with_logits(scores, labels.positive, labels.weights, reduction="none")
    crossed = F.binary_cross_entropy_with_logits(
        scores, labels.positive[other], labels.weights[other], reduction="none"
    )
    expected = (own * each + (1 - own) * crossed).sum()
    torch.testing.assert_close(term.loss(scores, term.targets(x, COUNTS, COUNTS)), expected)


def test_adversarial_rows_move_towards_the_decision_boundary():
    term, x = make_term(consistency_tables.AdversarialTerm, teacher := nn.Linear(3, 1))
    moved = (term.strong(x, COUNTS) - x) / x.std(0, correction=0)
    torch.testing.assert_close(moved.norm(dim=1), torch.full((10,), 0.1 * 3**0.5))
    with torch.no_grad():
        before, after = (teacher(rows)[:, 0] for rows in (x, term.strong(x, COUNTS)))
    assert ((after - before) * before < 0).all()


@pytest.mark.parametrize(("used", "expected"), [(True, (0.75, 0.5)), (False, (0.5, 0.75))])
def test_comparison_fits_only_the_network_that_auto_does_not_use(used, expected):
    asked = []

    def fitted(consistency):
        asked.append(consistency)
        compared = isinstance(consistency, dict) and "compare" in consistency
        right = np.array([1, 1, 1, 0] if compared else [1, 1, 0, 0])
        choice = SimpleNamespace(used=used, risk_with=0.1, risk_without=0.2, standard_error=0.01)
        return SimpleNamespace(consistency_=choice, predict=lambda X: right)

    found = consistency_tables.compare_fits(fitted, np.zeros((4, 1)), np.ones(4), {"weight": 2.0})
    assert asked == [{"compare": True, "weight": 2.0}, None if used else {"weight": 2.0}]
    assert (found["accuracy"]["with"], found["accuracy"]["without"], found["used"]) == (*expected, used)


def test_division_of_rows_equals_a_gaussian_mixture():
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.gamma(2, 0.1, 700), rng.normal(1.5, 0.3, 300)])
    found = noisy_labels.clean_probability(torch.from_numpy(losses).float()[None])[0]
    scaled = ((losses - losses.min()) / np.ptp(losses))[:, None]
    mixture = GaussianMixture(2, reg_covar=5e-4, tol=1e-6, max_iter=500, random_state=0).fit(scaled)
    expected = mixture.predict_proba(scaled)[:, mixture.means_[:, 0].argmin()]
    assert np.abs(found.numpy() - expected).max() < 0.05
    assert 0.5 < expected.mean() < 0.9


def test_both_networks_learn_from_set_membership():
    """Images of two classes at (0.8, 0.2); both networks keep mostly correct labels, divided by the other network."""
    rng = np.random.default_rng(0)
    positive = np.concatenate([rng.random(200) < 0.8, rng.random(200) < 0.2])
    rows = rng.integers(0, 60, (400, 28, 28))
    rows[positive, 8:14] += 150
    rows[~positive, 14:20] += 150
    one = noisy_labels.BASE | noisy_labels.QUICK | {"seed": 0, "epochs": 4, "warm_up": 3, "weak": "shift:1"}
    labels = torch.arange(400) < 200
    pixels = torch.from_numpy(rows.reshape(400, -1).astype(np.uint8))
    training = noisy_labels.DivideMix(pixels, labels, 0.5, one, torch.device("cpu"))
    training.run()
    truth = torch.from_numpy(positive)
    assert ((training.predict(pixels) > 0.5) == truth).float().mean() > 0.9
    for kept, order, count in zip(training.clean > 0.5, training.order, training.labeled, strict=True):
        assert kept[order[:count]].all()
        assert not kept[order[count:]].any()
        assert ((labels == truth)[kept]).float().mean() > 0.88  # 80% of all labels are correct
