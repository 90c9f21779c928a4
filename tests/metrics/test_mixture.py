"""The check of the mixture assumption on scores: false alarms, power, and the rates it reports."""

import numpy as np
import pytest

from uulearn.metrics import check_mixture


def scores_of(rng, distance, priors, sizes, shift=0.0, digits=None):
    parts = [
        rng.normal(np.where(rng.random(n) < p, distance / 2, -distance / 2)) for n, p in zip(sizes, priors, strict=True)
    ]
    parts[0] = parts[0] + shift
    scores = np.concatenate(parts)
    return (scores if digits is None else np.round(scores, digits)), np.repeat([0, 1], sizes)


@pytest.mark.parametrize("distance", [1, 8])
@pytest.mark.parametrize("digits", [None, 0])
@pytest.mark.parametrize(
    ("priors", "sizes"),
    [((0.8, 0.2), (500, 500)), ((0.2, 0.9), (100, 300)), ((0.99, 0.5), (300, 300)), ((1.0, 0.3), (200, 600))],
)
def test_mixture_check_rarely_alarms(distance, digits, priors, sizes):
    rng = np.random.default_rng(12)
    alarms = [check_mixture(*scores_of(rng, distance, priors, sizes, digits=digits), priors).differ for _ in range(100)]
    assert sum(alarms) <= 1  # 1% at most, 0.1% measured: two in 100 would be rare


@pytest.mark.parametrize(
    ("priors", "distance", "power"), [((0.6, 0.4), 1, 0.95), ((0.6, 0.4), 3, 0.95), ((0.8, 0.2), 3, 0.8)]
)
def test_mixture_check_finds_half_a_standard_deviation(priors, distance, power):
    rng = np.random.default_rng(13)
    found = [check_mixture(*scores_of(rng, distance, priors, (1000, 1000), 0.5), priors) for _ in range(40)]
    assert np.mean([one.differ for one in found]) >= power
    assert all((one.reason is not None) == one.differ for one in found)


def test_mixture_check_gives_the_rates_of_the_classes():
    rng = np.random.default_rng(15)
    scores, sets = scores_of(rng, 2, (0.8, 0.3), (20_000, 20_000))
    found = check_mixture(scores, sets, (0.8, 0.3))
    positives, negatives = rng.normal(1, 1, 100_000), rng.normal(-1, 1, 100_000)
    for threshold, tpr, fpr in zip(found.thresholds, found.true_positive, found.false_positive, strict=True):
        assert tpr[0] - 0.01 <= (positives > threshold).mean() <= tpr[1] + 0.01
        assert fpr[0] - 0.01 <= (negatives > threshold).mean() <= fpr[1] + 0.01
    assert len(found.thresholds) == 5
    assert not found.differ
    assert found.reason is None


@pytest.mark.parametrize(
    ("scores", "sets", "priors", "message"),
    [
        ([1.0], [0, 1], (0.8, 0.2), "one value per row"),
        ([1.0, 2.0], [0, 2], (0.8, 0.2), "sets must be 0 or 1"),
        ([1.0, np.nan], [0, 1], (0.8, 0.2), "nan in row 1"),
        ([1.0, 2.0], [0, 0], (0.8, 0.2), "no rows from set 1"),
        ([1.0, 2.0], [0, 1], (0.8, 0.8), "must differ"),
    ],
)
def test_rejects_bad_arguments(scores, sets, priors, message):
    with pytest.raises(ValueError, match=message):
        check_mixture(scores, sets, priors)
