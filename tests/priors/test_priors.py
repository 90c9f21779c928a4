"""Estimates of class priors: closed forms, independent references, warnings and errors."""

import math
import re
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from uulearn.exceptions import NotAMixtureWarning, UnidentifiedPriorsWarning
from uulearn.priors import (
    best_bin,
    estimate_set_priors,
    estimate_set_priors_from_scores,
    estimate_target_prior,
    out_of_fold_scores,
    priors_from_labels,
    ratio_curve,
)
from uulearn.priors.labels import clopper_pearson, hypergeometric_interval
from uulearn.priors.mixture import DELTA, GAMMA, NOISE_FACTOR, resample, solve_proportions
from uulearn.priors.scoring import assign_folds


def draw(rng, n, prior, distance=4.0):
    """Scores of a mixture of two Gaussians."""
    return rng.normal(np.where(rng.random(n) < prior, distance / 2, -distance / 2))


def rows(rng, n, prior, distance=3.0, columns=3):
    y = rng.random(n) < prior
    return rng.normal(size=(n, columns)) + np.where(y, 0.5, -0.5)[:, None] * distance / math.sqrt(columns)


# ------------------------------------------------------------------------------------------------ mixture proportions


@given(st.floats(0.02, 0.98), st.floats(0.02, 0.98))
def test_solving_inverts_the_proportions(first, second):
    theta, theta_prime = max(first, second), min(first, second)
    if theta - theta_prime < 1e-3:
        return
    found = solve_proportions((1 - theta) / (1 - theta_prime), theta_prime / theta)
    np.testing.assert_allclose(found, (theta, theta_prime), rtol=1e-9)


def test_solving_gives_nan_for_identical_sets():
    assert np.isnan(solve_proportions(1.0, 1.0)).all()


def test_ratio_curve_equals_quotient_of_tails():
    rng = np.random.default_rng(0)
    component, mixture = rng.integers(0, 200, 900) / 10, rng.integers(0, 150, 700) / 10  # ties within and across
    curve = ratio_curve(component, mixture)
    for threshold, count, ratio in zip(*curve, strict=True):
        assert count == (component >= threshold).sum()
        assert ratio == pytest.approx((mixture >= threshold).mean() / (component >= threshold).mean())
    assert (np.diff(curve.thresholds) < 0).all()
    assert curve.rows[0] >= 30 > (component > curve.thresholds[0]).sum()
    assert curve.rows[-1] == 900


@pytest.mark.parametrize(("n", "m"), [(800, 1300), (400, 20_000), (20_000, 400)])
@pytest.mark.parametrize("seed", range(4))
def test_best_bin_follows_both_rules(n, m, seed):
    """The reference evaluates both rules for each threshold."""
    rng = np.random.default_rng(seed)
    component, mixture = draw(rng, n, 0.9, 2.0), draw(rng, m, 0.4, 2.0)
    curve = ratio_curve(component, mixture)
    fraction = [(component >= t).mean() for t in curve.thresholds]
    dkw = sum(math.sqrt(math.log(4 / DELTA) / (2 * size)) for size in (n, m))
    cautious = min(range(len(fraction)), key=lambda i: curve.ratio[i] + (1 + GAMMA) * dkw / fraction[i])
    level = curve.ratio[cautious]
    chosen = min(
        range(len(fraction)),
        key=lambda i: curve.ratio[i] + NOISE_FACTOR * math.sqrt(level / m / fraction[i] + level**2 / n / fraction[i]),
    )
    found = best_bin(component, mixture)
    assert found.cautious_threshold == curve.thresholds[cautious]
    assert found.threshold == curve.thresholds[chosen]
    assert found.ratio == curve.ratio[chosen]
    assert found.rows == (component >= found.threshold).sum()
    assert found.half_rows == (component >= found.half_threshold).sum() == found.rows // 2
    assert found.threshold >= found.cautious_threshold


def test_half_tail_skips_ties():
    component = np.repeat([0.0, 1.0, 2.0], [500, 400, 100])
    mixture = np.repeat([0.0, 1.0, 2.0], [820, 160, 20])
    found = best_bin(component, mixture)
    assert (found.threshold, found.half_threshold, found.half_rows) == (1.0, 2.0, 100)
    flat = best_bin(np.repeat([0.0, 1.0], [500, 500]), np.repeat([0.0, 1.0], [900, 100]))
    assert (flat.threshold, flat.half_threshold, flat.rows, flat.half_rows) == (1.0, 1.0, 500, 500)


@pytest.mark.parametrize("decimals", [12, 0], ids=["distinct", "ties"])
def test_resampling_counts_equals_resampling_rows(decimals):
    """Mean and standard deviation of every ratio match a bootstrap that draws single rows."""
    rng = np.random.default_rng(2)
    higher, lower = (draw(rng, n, prior, 2.5).round(decimals) for n, prior in ((700, 0.8), (500, 0.3)))
    ends = best_bin(-lower, -higher), best_bin(higher, lower)
    found = resample(higher, lower, *ends, 4000, np.random.default_rng(3))
    drawn = []
    for _ in range(2000):
        some, others = rng.choice(higher, 700), rng.choice(lower, 500)
        drawn.append(
            [
                [(some <= -t).mean() / (others <= -t).mean() for t in ends[0][:3]],
                [(others >= t).mean() / (some >= t).mean() for t in ends[1][:3]],
            ]
        )
    for end, proportion, slow in zip(ends, found, np.moveaxis(drawn, 1, 0), strict=True):
        tail, deeper, cautious = slow.T
        low = tail - np.maximum(tail - deeper, 0) / (1 - end.half_rows / end.rows)
        for fast, reference in ((proportion.high, tail), (proportion.cautious, cautious), (proportion.low, low)):
            assert fast.mean() == pytest.approx(np.clip(reference, 0, 1).mean(), abs=0.006)
            assert fast.std() == pytest.approx(np.clip(reference, 0, 1).std(), rel=0.08)


# ------------------------------------------------------------------------------------------ from two unlabeled sets


def test_priors_are_recovered_for_separated_classes():
    rng = np.random.default_rng(0)
    found = estimate_set_priors_from_scores(draw(rng, 20_000, 0.9), draw(rng, 20_000, 0.4), random_state=0)
    np.testing.assert_allclose(found.set_priors, (0.9, 0.4), atol=0.02)
    assert found.identified
    assert [interval.covers(prior) for interval, prior in zip(found.intervals, (0.9, 0.4), strict=True)] == [True] * 2
    assert max(interval.width for interval in found.intervals) < 0.08
    assert 0.81 < found.bounds.higher_prior_at_least < 1 - (1 - 0.9) / (1 - 0.4)
    assert 0.4 / 0.9 < found.bounds.lower_prior_at_most < 0.47
    assert 0.47 < found.bounds.gap_at_least < 0.9 - 0.4
    assert found.class_auc == pytest.approx(stats.norm.cdf(4 / math.sqrt(2)), abs=0.02)
    assert found.sizes == (20_000, 20_000)


def test_positive_unlabeled_data():
    """θ = 1 is on the boundary, and the interval includes it."""
    rng = np.random.default_rng(1)
    found = estimate_set_priors_from_scores(draw(rng, 3000, 1.0), draw(rng, 6000, 0.3), random_state=0)
    assert found.set_priors == pytest.approx((1.0, 0.3), abs=0.03)
    assert found.intervals[0].high == 1.0
    assert 0.98 < found.intervals[0].low < 1.0  # an empty tail does not prove θ = 1


def test_other_higher_prior_set_gives_the_complement():
    rng = np.random.default_rng(2)
    scores0, scores1 = draw(rng, 3000, 0.8, 3.0), draw(rng, 4000, 0.3, 3.0)
    found = estimate_set_priors_from_scores(scores0, scores1, random_state=0)
    other = estimate_set_priors_from_scores(-scores0, -scores1, higher_prior_set=1, random_state=0)
    np.testing.assert_allclose(other.set_priors, 1 - np.array(found.set_priors), atol=1e-12)
    for mine, theirs in zip(found.intervals, other.intervals, strict=True):
        np.testing.assert_allclose((1 - theirs.high, 1 - theirs.low), mine, atol=0.01)  # other random numbers
    assert other.bounds.higher_prior_at_least == pytest.approx(1 - found.bounds.lower_prior_at_most, abs=0.01)
    assert other.bounds.gap_at_least == pytest.approx(found.bounds.gap_at_least, abs=0.01)


@given(st.sampled_from([np.tanh, np.cbrt, lambda s: 3 * s - 7, lambda s: np.exp(s / 4)]))
def test_only_the_order_of_the_scores_matters(transform):
    rng = np.random.default_rng(3)
    scores = draw(rng, 600, 0.9), draw(rng, 500, 0.2)
    plain = estimate_set_priors_from_scores(*scores, random_state=0)
    moved = estimate_set_priors_from_scores(*map(transform, scores), random_state=0)
    np.testing.assert_allclose(moved.set_priors, plain.set_priors, rtol=1e-12)
    np.testing.assert_allclose(moved.intervals, plain.intervals, rtol=1e-12)


def test_same_seed_gives_same_interval():
    rng = np.random.default_rng(4)
    scores = draw(rng, 400, 0.9), draw(rng, 400, 0.2)
    first, second, other = (estimate_set_priors_from_scores(*scores, random_state=seed) for seed in (0, 0, 1))
    assert first == second
    assert first.intervals != other.intervals
    assert first.set_priors == other.set_priors


def test_lower_confidence_gives_narrower_interval():
    rng = np.random.default_rng(5)
    scores = draw(rng, 2000, 0.8), draw(rng, 2000, 0.2)
    wide, narrow = (estimate_set_priors_from_scores(*scores, confidence=c, random_state=0) for c in (0.95, 0.5))
    for outer, inner in zip(wide.intervals, narrow.intervals, strict=True):
        assert outer.low < inner.low < inner.high < outer.high
    assert narrow.bounds.gap_at_least > wide.bounds.gap_at_least


def test_similar_sets_warn():
    rng = np.random.default_rng(6)
    with pytest.warns(UnidentifiedPriorsWarning, match="cannot be distinguished") as caught:
        found = estimate_set_priors_from_scores(draw(rng, 500, 0.5), draw(rng, 500, 0.5), random_state=0)
    assert caught[0].filename == __file__
    assert not found.identified
    assert found.concern == str(caught[0].message)


def test_identical_sets_give_nan_and_full_intervals():
    scores = np.arange(500.0)
    with pytest.warns(UnidentifiedPriorsWarning, match="differ by at least 0 points"):
        found = estimate_set_priors_from_scores(scores, scores, random_state=0)
    assert np.isnan(found.set_priors).all()
    assert found.intervals == ((0.0, 1.0), (0.0, 1.0))


def test_overlapping_classes_warn_with_bounds_and_advice():
    rng = np.random.default_rng(7)
    text = (
        r"AUC between them may be as low as 0\.7\d.*set 1 is at least (\d+)% positive, set 0 is at most (\d+)% "
        r"positive, and the priors differ by at least (\d+) points.*Label a small sample"
    )
    scores0, scores1 = draw(rng, 8000, 0.2, 1.0), draw(rng, 8000, 0.8, 1.0)
    with pytest.warns(UnidentifiedPriorsWarning, match=text) as caught:
        found = estimate_set_priors_from_scores(scores0, scores1, higher_prior_set=1, random_state=0)
    shown = [int(number) for number in re.search(text, str(caught[0].message)).groups()]
    assert shown == [round(100 * bound) for bound in found.bounds]


def test_wide_intervals_warn():
    rng = np.random.default_rng(8)
    with pytest.warns(UnidentifiedPriorsWarning, match=r"interval for set [01] is \d\d points wide"):
        estimate_set_priors_from_scores(draw(rng, 700, 0.6, 6.0), draw(rng, 700, 0.35, 6.0), random_state=0)


def test_rejects_reversed_scores():
    rng = np.random.default_rng(9)
    scores = draw(rng, 1500, 0.2), draw(rng, 1500, 0.8)
    with pytest.raises(ValueError, match=r"set 0 was given as .*negate the scores, or pass higher_prior_set=1"):
        estimate_set_priors_from_scores(*scores)
    assert estimate_set_priors_from_scores(*scores, higher_prior_set=1, random_state=0).set_priors[1] > 0.5


GOOD = np.linspace(0, 1, 120)


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((GOOD[:99], GOOD), {}, r"set 0 has 99 rows.*at least 100.*priors_from_labels"),
        ((GOOD, GOOD[:20]), {}, "set 1 has 20 rows"),
        (
            (GOOD, np.ones((120, 2))),
            {},
            r"scores1 must be numbers of shape \(n,\), got .* shape \(120, 2\)",
        ),
        ((np.append(GOOD, np.nan), GOOD), {}, "scores0 must be numbers, got nan in row 120"),
        ((GOOD, GOOD), {"higher_prior_set": 2}, "higher_prior_set must be 0 or 1.*got 2"),
        ((GOOD, GOOD), {"confidence": 95}, "confidence must lie strictly between 0 and 1, got 95"),
        ((GOOD, GOOD), {"replicates": 10}, "replicates must be at least 100.*got 10"),
    ],
)
def test_rejects_bad_scores_and_options(arguments, options, text):
    with pytest.raises(ValueError, match=text):
        estimate_set_priors_from_scores(*arguments, **options)


# ------------------------------------------------------------------------------------------------- rows and scorers


def test_priors_from_rows_with_the_default_forest():
    rng = np.random.default_rng(0)
    X0, X1 = rows(rng, 1200, 0.2), rows(rng, 1200, 0.8)
    found = estimate_set_priors(X0, X1, higher_prior_set=1, random_state=0)
    assert found.set_priors == pytest.approx((0.2, 0.8), abs=0.05)
    assert found.set_auc > 0.7
    swapped = estimate_set_priors(X0, X1, higher_prior_set=0, random_state=0)
    np.testing.assert_allclose(swapped.set_priors, 1 - np.array(found.set_priors), atol=1e-12)
    assert estimate_set_priors(X0, X1, higher_prior_set=1, random_state=0) == found


def test_accepts_decision_function_and_predict_proba():
    rng = np.random.default_rng(1)
    X0, X1 = rows(rng, 300, 0.9), rows(rng, 300, 0.1)
    for scorer in (LinearSVC(), LogisticRegression(), KNeighborsClassifier(25)):
        scores0, scores1 = out_of_fold_scores(X0, X1, scorer=scorer, random_state=0)
        assert scores0.mean() > scores1.mean()
        assert not hasattr(scorer, "classes_")  # a clone was fitted


def test_images_are_flattened():
    rng = np.random.default_rng(2)
    X0, X1 = rows(rng, 150, 0.9, columns=4), rows(rng, 150, 0.1, columns=4)
    flat = out_of_fold_scores(X0, X1, scorer=LogisticRegression(), random_state=0)
    images = out_of_fold_scores(X0.reshape(-1, 2, 2), X1.reshape(-1, 2, 2), scorer=LogisticRegression(), random_state=0)
    np.testing.assert_array_equal(flat[0], images[0])


@pytest.mark.parametrize("copies", [1, 2])
def test_no_row_is_scored_by_a_model_trained_on_it_or_its_copy(copies):
    """A nearest-neighbor model knows the set of each training row; on noise it must not beat chance."""
    rng = np.random.default_rng(3)
    X0, X1 = (np.repeat(rng.normal(size=(400 // copies, 5)), copies, axis=0) for _ in range(2))
    scores0, scores1 = out_of_fold_scores(X0, X1, scorer=KNeighborsClassifier(1), random_state=0)
    assert abs(scores0.mean() - scores1.mean()) < 0.15


def test_rows_that_differ_in_the_sign_of_zero_count_as_copies():
    X = np.random.default_rng(5).normal(size=(200, 2))
    X[20:40], X[40:60] = [0.0, 1.0], [-0.0, 1.0]
    for seed in range(8):
        part = assign_folds(X, np.repeat([1, 0], 100), 5, np.random.default_rng(seed))
        assert len(set(part[20:60])) == 1
        assert len(set(part)) == 5


def test_rows_of_few_distinct_values_are_assigned_separately():
    """If whole values were held out, such a table could not be learned."""
    rng = np.random.default_rng(4)
    X0, X1 = rng.choice([0.0, 1.0], (300, 1), p=[0.2, 0.8]), rng.choice([0.0, 1.0], (300, 1), p=[0.8, 0.2])
    scores0, scores1 = out_of_fold_scores(X0, X1, random_state=0)
    assert scores0.mean() - scores1.mean() > 0.2


def test_folds_are_stratified_by_set():
    rng = np.random.default_rng(5)
    seen = []

    class Recording(LogisticRegression):
        def fit(self, X, y):
            seen.append((np.sum(y == 1), np.sum(y == 0)))
            return super().fit(X, y)

    out_of_fold_scores(
        rng.normal(size=(200, 2)), rng.normal(size=(100, 2)), scorer=Recording(), folds=4, random_state=0
    )
    assert seen == [(150, 75)] * 4


class WrongShape(LogisticRegression):
    def decision_function(self, X):
        return np.zeros((len(X), 2))


@pytest.mark.parametrize(
    ("arguments", "options", "error", "text"),
    [
        ((np.ones((9, 2)), np.ones((9, 3))), {}, ValueError, "X0 has 2 columns, but X1 has 3"),
        ((np.ones(9), np.ones((9, 3))), {}, ValueError, r"X0 must have shape \(n, columns\), got \(9,\)"),
        ((np.ones((9, 1)), [["a"]] * 9), {}, ValueError, "X1 must contain numbers"),
        (([[1.0], [math.inf]], [[1.0]]), {}, ValueError, "X0 has inf in row 1, column 0"),
        ((np.ones((9, 2)), np.ones((9, 2))), {"folds": 1}, ValueError, "folds must lie between 2 and 9, .* got 1"),
        ((np.eye(9), np.eye(9)), {"scorer": "forest"}, TypeError, "scorer must be a classifier .* got 'forest'"),
        ((np.eye(9), 2 + np.eye(9)), {"scorer": WrongShape()}, ValueError, r"got shape \(4, 2\) for 4 rows"),
        ((np.eye(9), np.ones((7, 9))), {}, ValueError, "all rows of one set are identical"),
    ],
)
def test_rejects_bad_rows(arguments, options, error, text):
    with pytest.raises(error, match=text):
        out_of_fold_scores(*arguments, random_state=0, **options)


def test_rejects_too_few_rows_before_training():
    with pytest.raises(ValueError, match="set 1 has 50 rows"):
        estimate_set_priors(np.ones((200, 2)), np.ones((50, 2)))


# ------------------------------------------------------------------------------------------------------- from labels


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([0.8, 0.95]))
def test_interval_equals_clopper_pearson_from_beta_quantiles(counts, confidence):
    positives, labeled = counts
    tail = (1 - confidence) / 2
    low = stats.beta.ppf(tail, positives, labeled - positives + 1) if positives else 0.0
    high = stats.beta.ppf(1 - tail, positives + 1, labeled - positives) if positives < labeled else 1.0
    np.testing.assert_allclose(clopper_pearson(positives, labeled, confidence), (low, high), atol=1e-9)


@given(st.integers(2, 60).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size))), st.data())
def test_finite_interval_contains_the_fractions_that_no_tail_excludes(size_and_rows, data):
    """The reference checks every possible number of positives."""
    size, labeled = size_and_rows
    positives, tail = data.draw(st.integers(0, labeled)), (1 - 0.95) / 2
    possible = [
        total
        for total in range(positives, size - labeled + positives + 1)
        if stats.hypergeom.sf(positives - 1, size, total, labeled) > tail
        and stats.hypergeom.cdf(positives, size, total, labeled) > tail
    ]
    expected = min(possible) / size, max(possible) / size
    assert hypergeometric_interval(positives, labeled, size) == pytest.approx(expected)


def test_interval_of_a_large_set_equals_that_of_the_population():
    y0, y1 = [1] * 30 + [0] * 10, [-1] * 30 + [1] * 10
    found, large = priors_from_labels(y0, y1), priors_from_labels(y0, y1, sizes=(10**9, 10**9))
    assert found.set_priors == large.set_priors == (0.75, 0.25)
    np.testing.assert_allclose(found.intervals, large.intervals, atol=1e-6)
    assert (found.positives, found.rows) == ((30, 10), (40, 40))
    everything = priors_from_labels(y0, y1, sizes=(40, np.int64(40)))
    assert everything.intervals == ((0.75, 0.75), (0.25, 0.25))
    assert found.order_p_value == pytest.approx(stats.fisher_exact([[30, 10], [10, 30]]).pvalue)


def test_labels_with_unclear_order_warn():
    with pytest.warns(
        UnidentifiedPriorsWarning, match=r"6 of 10 labeled rows in set 0 and 4 of 10 in set 1.*p = 0\.66"
    ):
        priors_from_labels([1] * 6 + [0] * 4, [True] * 4 + [False] * 6)


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (([], [1]), {}, "y0 has no labels"),
        (([1, 0], [1, 2]), {}, r"y1 must contain only 1 and 0, or 1 and -1, got \[1, 2\]"),
        (([-1, 0, 1], [1]), {}, r"y0 must contain only"),
        (([1, 0], [1]), {"sizes": (1, 5)}, "set 0 has 1 rows, but y0 has 2 labels"),
        (([1, 0], [1]), {"sizes": 5}, "sizes must be two whole numbers.* got 5"),
        (([1, 0], [1]), {"sizes": (2.5, 5)}, "sizes must be two whole numbers"),
        (([1, 0], [1]), {"confidence": 1.0}, "confidence must lie"),
    ],
)
def test_rejects_bad_labels(arguments, options, text):
    with pytest.raises(ValueError, match=text):
        priors_from_labels(*arguments, **options)


# ------------------------------------------------------------------------------------------------------ target prior


@given(st.integers(0, 4), st.integers(0, 4), st.booleans())
def test_target_made_of_the_sets_gives_its_prior_exactly(copies0, copies1, lower_first):
    if copies0 + copies1 == 0:
        return
    rng = np.random.default_rng(0)
    scores0, scores1 = draw(rng, 150, 0.8), draw(rng, 100, 0.3)
    priors = (0.3, 0.8) if lower_first else (0.8, 0.3)
    target = np.concatenate([np.tile(scores0, copies0), np.tile(scores1, copies1)])
    prior = (copies0 * 150 * priors[0] + copies1 * 100 * priors[1]) / (copies0 * 150 + copies1 * 100)
    found = estimate_target_prior(target, scores0, scores1, priors)
    assert found.target_prior == pytest.approx(prior, abs=1e-12)
    assert found.interval.low < prior < found.interval.high
    assert found.misfit_p_value > 0.99


def mean_ranks(scores):
    ranks = np.split(stats.rankdata(np.concatenate(scores)), np.cumsum([len(s) for s in scores])[:2])
    return [r.mean() for r in ranks], [r.var(ddof=1) / len(r) for r in ranks]


def test_interval_equals_grid_search():
    """The reference is the set of priors for which the mean rank deviates by less than t standard errors."""
    rng = np.random.default_rng(1)
    scores = draw(rng, 150, 0.5, 2.0), draw(rng, 200, 0.7, 2.0), draw(rng, 180, 0.4, 2.0)
    found = estimate_target_prior(*scores, (0.7, 0.4))
    means, variances = mean_ranks(scores)
    priors = np.linspace(-1, 2, 300_001)
    weights = np.stack([np.ones_like(priors), (0.4 - priors) / 0.3, (priors - 0.7) / 0.3])
    inside = np.abs(means @ weights) <= stats.t.ppf(0.975, 149) * np.sqrt(variances @ weights**2)
    expected = np.clip([priors[inside].min(), priors[inside].max()], 0, 1)
    np.testing.assert_allclose(found.interval, expected, atol=1e-4)
    assert found.interval.low > 0


def test_standard_error_equals_bootstrap():
    rng = np.random.default_rng(2)
    scores = draw(rng, 300, 0.3, 2.0), draw(rng, 800, 0.8, 2.0), draw(rng, 500, 0.2, 2.0)
    drawn = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotAMixtureWarning)  # draws with replacement repeat rows
        for _ in range(400):
            again = [rng.choice(s, len(s)) for s in scores]
            drawn.append(estimate_target_prior(*again, (0.8, 0.2)).target_prior)
    found = estimate_target_prior(*scores, (0.8, 0.2))
    assert np.std(drawn) == pytest.approx(found.standard_error, rel=0.12)


def test_prior_below_zero_is_reported_and_its_interval_clipped():
    rng = np.random.default_rng(5)
    found = estimate_target_prior(draw(rng, 100, 0.0), draw(rng, 1000, 0.8), draw(rng, 1000, 0.3), (0.8, 0.3))
    assert found.target_prior < 0 == found.interval.low < found.interval.high < 0.1


def test_target_rows_of_other_classes_warn():
    rng = np.random.default_rng(3)
    sets = draw(rng, 2000, 0.8), draw(rng, 2000, 0.3)
    with pytest.warns(NotAMixtureWarning, match="no class prior is consistent") as caught:
        found = estimate_target_prior(rng.normal(0, 0.5, 500), *sets, (0.8, 0.3))  # between the classes
    assert found.misfit_p_value < 1e-6
    assert caught[0].filename == __file__
    with pytest.warns(NotAMixtureWarning, match=r"estimated class prior is 1\.\d+ with a standard error"):
        estimate_target_prior(draw(rng, 2000, 1.0), *sets, (0.95, 0.3))


def test_target_prior_with_similar_sets_warns():
    rng = np.random.default_rng(4)
    with pytest.warns(UnidentifiedPriorsWarning, match="any class prior"):
        found = estimate_target_prior(*(draw(rng, 100, 0.5) for _ in range(3)), (0.51, 0.5))
    assert found.interval == (0.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((GOOD[:19], GOOD, GOOD, (0.8, 0.2)), "scores_target has 19 scores; pass at least 20"),
        ((GOOD, GOOD, GOOD, (0.8, 0.2)), "equal mean ranks"),
        ((GOOD, np.ones(30), np.ones(30), (0.8, 0.2)), "equal mean ranks"),
        ((GOOD, GOOD, np.append(GOOD, math.inf), (0.8, 0.2)), "scores1 must be finite .* got inf"),
        ((GOOD, GOOD, GOOD, (0.8, 0.8)), "set_priors must differ"),
    ],
)
def test_rejects_bad_target_scores(arguments, text):
    with pytest.raises(ValueError, match=text):
        estimate_target_prior(*arguments)
