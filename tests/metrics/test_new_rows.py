"""The check of new rows: invariances, false alarms on mixtures, alarms on other rows, and damaged statistics."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from uulearn.metrics.new_rows import ALARM_LEVEL, RowCheck, RowCounts, RowReference

PRIORS = (0.8, 0.3)


def draw(rng, n, prior, columns=4):
    """Draw rows whose columns are normal, skewed, rare and constant; the first two depend on the class."""
    y = rng.random(n) < prior
    X = rng.normal(size=(n, columns))
    X[:, 0] += 1.5 * y
    X[:, 1] = np.exp(X[:, 1] + y)
    X[:, 2] = rng.random(n) < 0.02
    X[:, 3] = 7
    return X.astype(np.float32)


def score(X):
    return X[:, 0] + 0.5 * np.log(X[:, 1])


def p_values(reference, X, priors=PRIORS):
    counts = reference.count(X, [score(X)])
    return reference.compare_scores(counts.scores, 1, priors), reference.compare_inputs(counts, priors)[0]


@pytest.fixture(scope="module")
def reference():
    X0, X1 = (draw(np.random.default_rng(n), 2_000, prior) for n, prior in enumerate(PRIORS))
    return RowReference.from_rows(X0, X1).with_scores(score(X0), score(X1))


@given(st.lists(st.integers(0, 300), max_size=4), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_chunks_and_order_of_rows_do_not_matter(reference, cuts, seed):
    rng = np.random.default_rng(seed)
    X = draw(rng, 300, 0.5)
    whole = reference.count(X, [score(X), 2 * score(X)])
    X = rng.permutation(X)
    total = RowCounts(0, np.zeros_like(whole.above), np.zeros_like(whole.scores))
    for part in np.split(X, sorted(cuts)):
        total += reference.count(part, [score(part), 2 * score(part)])
    assert total.rows == whole.rows == 300
    np.testing.assert_array_equal(total.above, whole.above)
    np.testing.assert_array_equal(total.scores, whole.scores)
    assert whole.scores.sum() == 600


def test_increasing_transformations_and_swapped_sets_change_nothing(reference):
    rng = np.random.default_rng(5)
    X0, X1, X = draw(rng, 500, 0.8), draw(rng, 500, 0.3), draw(rng, 400, 0.5) + np.float32(0.2)
    plain = RowReference.from_rows(X0, X1)
    p, differences = plain.compare_inputs(plain.count(X), PRIORS)
    bent = RowReference.from_rows(4 * X0 - 8, 4 * X1 - 8)  # exact in float32
    assert bent.compare_inputs(bent.count(4 * X - 8), PRIORS) == (p, differences)
    swapped = RowReference.from_rows(X1, X0)
    assert swapped.compare_inputs(swapped.count(X), PRIORS[::-1])[0] == pytest.approx(p, rel=0.2)
    assert 0 < p < ALARM_LEVEL


@pytest.mark.parametrize("ones", [0, 300, 500, 800, 1_000])
def test_class_priors_from_0_to_1_are_allowed(ones):
    """80% and 30% ones in the sets: if the sets are pure, new rows have 30% to 80%; at these priors, 0% to 100%."""
    reference = RowReference.from_rows(*(np.repeat([[0.0], [1.0]], [100 - n, n], axis=0) for n in (80, 30)))
    counts = reference.count(np.repeat([[0.0], [1.0]], [1_000 - ones, ones], axis=0))
    assert (reference.compare_inputs(counts, (1.0, 0.0))[0] < ALARM_LEVEL) == (ones in (0, 1_000))
    assert reference.compare_inputs(counts, PRIORS)[0] > ALARM_LEVEL


def test_mixtures_with_any_class_prior_raise_no_more_alarms_than_promised():
    """At a level of 1%, one alarm is expected in 108 checks; the tests are conservative."""
    rng = np.random.default_rng(0)
    alarms = 0
    for set_priors in ((0.8, 0.3), (0.55, 0.45), (0.0, 1.0)):
        for size in (60, 400, 2_000):
            X0, X1 = (draw(rng, size, prior, columns=12) for prior in set_priors)
            reference = RowReference.from_rows(X0, X1).with_scores(score(X0), score(X1))
            for prior, rows in [(prior, rows) for prior in (0.0, 0.05, 0.5, 1.0) for rows in (50, 300, 3_000)]:
                p = p_values(reference, draw(rng, rows, prior, columns=12), set_priors)
                alarms += RowCheck(rows, *p).alarm
    assert alarms <= 1


def draw_rare(rng, n, prior):
    """Draw rows whose columns are rare counts, heavy-tailed, mostly 0, mostly 1 and rounded."""
    y = rng.random(n) < prior
    X = rng.poisson(0.01 * (1 + 3 * y)[:, None], (n, 15)).astype(np.float32)
    X[:, 3:6] = rng.standard_cauchy((n, 3)) + y[:, None]
    X[:, 6:9] = (rng.random((n, 3)) < 0.02) * rng.pareto(0.7, (n, 3))
    X[:, 9:12] = rng.random((n, 3)) > 0.005
    X[:, 12:] = np.round(rng.normal(1.5 * y[:, None], 1, (n, 3)))
    return X, (y + rng.normal(size=n) / 2).astype(np.float32)


@pytest.mark.parametrize(
    ("set_priors", "sizes"), [((1.0, 0.0), (60, 3_000)), ((0.2, 1.0), (5_000, 100)), ((0.8, 0.2), (1_000, 1_000))]
)
def test_sets_of_different_sizes_and_rare_values_raise_no_more_alarms(set_priors, sizes):
    """A small set has no rows in some tails, which does not mean that its class has none."""
    alarms = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        sets = [draw_rare(rng, size, prior) for size, prior in zip(sizes, set_priors, strict=True)]
        reference = RowReference.from_rows(sets[0][0], sets[1][0]).with_scores(sets[0][1], sets[1][1])
        for prior in (0.1, 0.5, 1.0):
            X, scores = draw_rare(rng, 3_000, prior)
            counts = reference.count(X, [scores])
            p_inputs, _ = reference.compare_inputs(counts, set_priors)
            alarms += RowCheck(3_000, reference.compare_scores(counts.scores, 1, set_priors), p_inputs).alarm
    assert alarms == 0


@pytest.mark.parametrize("ones", [0.0, 0.003, 0.997, 1.0])
def test_constant_and_rare_values_that_become_frequent_raise_alarms(ones):
    rng = np.random.default_rng(6)

    def draw_with(n, prior, ones):
        X = draw(rng, n, prior)
        X[:, 3] = rng.random(n) < ones
        return X

    reference = RowReference.from_rows(*(draw_with(2_000, prior, ones) for prior in PRIORS))
    assert reference.compare_inputs(reference.count(draw_with(1_000, 0.5, ones)), PRIORS)[0] > ALARM_LEVEL
    p, differences = reference.compare_inputs(reference.count(draw_with(1_000, 0.5, 0.3)), PRIORS)
    assert p < 1e-6
    assert differences[0][0] == 3


def test_moved_column_new_cluster_and_wider_column_raise_alarms(reference):
    rng = np.random.default_rng(3)
    moved, cluster, wide = (draw(rng, 1_000, 0.5) for _ in range(3))
    moved[:, 1] *= 1.6
    cluster[:150, :2] = [-4, 20]
    wide[:, 0] = 0.6 + 2 * (wide[:, 0] - 0.6)
    assert p_values(reference, draw(rng, 1_000, 0.5))[1] > ALARM_LEVEL
    for X in (moved, cluster, wide):
        assert p_values(reference, X)[1] < 1e-6
    assert p_values(reference, wide)[0] < 1e-6
    # A class prior that no mixture with these priors reaches.
    assert p_values(reference, draw(rng, 1_000, 0.5), (0.45, 0.4))[1] > ALARM_LEVEL
    assert p_values(reference, draw(rng, 3_000, 0.0), (1.0, 0.0))[1] < ALARM_LEVEL
    found = reference.compare_inputs(reference.count(moved), PRIORS)[1]
    assert found[0][0] in (0, 1)  # another class prior explains a part of the difference
    assert dict(found)[1] > 5 > 1 > abs(dict(found)[3])


def test_many_rows_of_separable_classes_raise_no_alarm():
    """With a million rows, the class prior is known more precisely than the steps between class priors."""
    reference = RowReference.from_rows(np.ones((10_000, 1)), np.zeros((10_000, 1)))
    for prior in (0.0, 0.0123, 0.50777):
        ones = round(prior * 1_000_000)
        counts = reference.count(np.repeat([[0.0], [1.0]], [1_000_000 - ones, ones], axis=0))
        assert reference.compare_inputs(counts, (1.0, 0.0))[0] > ALARM_LEVEL


def test_excluded_columns_are_not_compared(reference):
    X = draw(np.random.default_rng(4), 1_000, 0.5)
    X[:, 1] *= 3
    counts = reference.count(X)
    p, found = reference.compare_inputs(counts, PRIORS, excluded=[1])
    assert p > ALARM_LEVEL
    assert dict(found)[1] == 0
    assert reference.compare_inputs(counts, PRIORS, excluded=range(4)) == (None, [])


def test_result_is_a_sentence():
    assert str(RowCheck(30, note="at least 50 rows are needed")) == (
        "30 rows were not compared with the two sets: at least 50 rows are needed"
    )
    fine = RowCheck(1_000, 0.4, 0.3)
    assert (fine.p_value, fine.alarm) == (0.6, False)
    assert str(fine) == "1,000 rows can be a mixture of the two sets (p = 0.6)"
    assert RowCheck(100, None, 0.009).alarm
    assert not RowCheck(100, 0.009, 0.5).alarm  # two comparisons
    assert str(RowCheck(100, None, 0.001, note="no scores")).endswith("(p = 0.001); no scores")


DAMAGE = {
    "missing": lambda arrays: arrays.pop("means"),
    "unknown": lambda arrays: arrays.update(code=np.zeros(1)),
    "shape": lambda arrays: arrays.update(above=arrays["above"][:, :3]),
    "flat": lambda arrays: arrays.update(thresholds=arrays["thresholds"][0]),
    "type": lambda arrays: arrays.update(sizes=arrays["sizes"].astype(float)),
    "infinite": lambda arrays: arrays.update(covariances=arrays["covariances"] * np.inf),
    "negative": lambda arrays: arrays.update(above=-arrays["above"]),
    "too many": lambda arrays: arrays.update(above=arrays["above"] + 2_000),
    "no rows": lambda arrays: arrays.update(sizes=np.zeros(2, dtype=np.int64)),
    "other columns": lambda arrays: arrays.update(columns=arrays["columns"] + 1),
    "unsorted": lambda arrays: arrays.update(thresholds=arrays["thresholds"][::-1].copy()),
    "equal edges": lambda arrays: arrays.update(edges=arrays["edges"] * 0),
    "one set": lambda arrays: arrays.update(scores=arrays["scores"] * np.array([[1], [0]])),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_statistics_are_refused(reference, damage):
    arrays = reference.to_arrays()
    assert RowReference.from_arrays(arrays, 4).sizes.tolist() == [2_000, 2_000]
    with np.errstate(invalid="ignore"):
        damage(arrays)
    with pytest.raises(ValueError, match=r"reference|unpack"):
        RowReference.from_arrays(arrays, 4)


def test_reference_does_not_depend_on_the_number_of_threads():
    rows = np.random.default_rng(0).normal(size=(2, 1000, 40))
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.append(RowReference.from_rows(*rows).to_arrays())
    for name, value in found[0].items():
        np.testing.assert_array_equal(value, found[1][name])
