"""The conclusions of Section 4, from records made by hand."""

import numpy as np
import pytest
from scipy import stats

from uulearn.reproduction import conclusions
from uulearn.reproduction.conclusions import co_occurrence, contests, drops_by_priors, regularized_runs
from uulearn.reproduction.experiments import ResultRow
from uulearn.reproduction.tables import MethodColumn, build_table


def record(method, curve, seed=0, priors=(0.8, 0.2), slope=None, unbiased=None, **others):
    configuration = {"dataset": "mnist", "model": "mlp", "method": method, "slope": slope, "set_priors": list(priors)}
    unbiased = [0.1] * len(curve) if unbiased is None else unbiased
    curves = {"test_accuracy": list(curve), "unbiased": list(unbiased), "test_risk": [1 - a for a in curve]}
    return {"configuration": configuration | {"seed": seed} | others, "curves": curves}


def overfitting(peak, negative_from, n=100):
    """Accuracy climbs to a peak and falls; the risk goes below zero in a given epoch."""
    accuracy = [0.9 - 0.004 * abs(epoch - peak) for epoch in range(1, n + 1)]
    return record("unbiased", accuracy, unbiased=[0.5 if e < negative_from else -0.5 for e in range(1, n + 1)])


def cells(records):
    """The cells of a table with these records."""
    rows = {ResultRow("mnist", tuple(record["configuration"]["set_priors"])) for record in records}

    def runs(row, column):
        method, _, slope = column.name.rstrip(")").partition("(")
        wanted = {"method": method, "slope": float(slope) if slope else None, "set_priors": list(row.set_priors)}
        return [r for r in records if wanted.items() <= r["configuration"].items()]

    return {
        "mlp": list(build_table("", rows, [MethodColumn(name, name) for name in conclusions.COMPARED_METHODS], runs))
    }


def test_contests_are_paired_by_seed_and_decided_by_the_t_test():
    ours, theirs = [0.90, 0.92, 0.91, 0.93, 0.90], [0.70, 0.73, 0.70, 0.72, 0.71]
    records = [record("abs", [a], seed=s) for s, a in enumerate(ours)]
    records += [record("unbiased", [b], seed=s) for s, b in enumerate(theirs)]
    records += [record("biased", [a + 0.001 * (-1) ** s], seed=s) for s, a in enumerate(ours)]
    found = {contest.plain: contest for contest in contests(cells(records))}
    assert found["unbiased"].difference == pytest.approx(100 * np.mean(np.subtract(ours, theirs)))
    assert found["unbiased"].p == pytest.approx(stats.ttest_rel(ours, theirs).pvalue)
    assert found["unbiased"].verdict == "better"
    assert found["biased"].verdict == "even"
    worse = contests(cells([record("relu", [b], s) for s, b in enumerate(theirs)] + records[10:]))
    assert [contest.verdict for contest in worse] == ["worse"]


def test_drops_are_listed_from_far_to_close_priors():
    records = [
        record("unbiased", [0.9, 0.9 - drop], priors=p) for p, drop in {(0.6, 0.4): 0.3, (0.8, 0.2): 0.1}.items()
    ]
    (series,) = drops_by_priors(cells(records)).values()
    assert list(series) == [(0.8, 0.2), (0.6, 0.4)]
    assert list(series.values()) == pytest.approx([10.0, 30.0])


def test_co_occurrence_counts_and_ranks():
    together = [overfitting(peak, negative) for peak, negative in ((20, 15), (40, 30), (60, 55), (30, 28))]
    calm = record("abs", [min(0.9, 0.5 + 0.01 * e) for e in range(100)])
    only_negative = record("abs", calm["curves"]["test_accuracy"], unbiased=[0.5] * 50 + [-0.5] * 50)
    only_turns = overfitting(30, 101)
    found = co_occurrence([*together, calm, only_negative, only_turns])
    assert (found.both, found.only_negative, found.only_turns, found.neither) == (4, 1, 1, 1)
    assert found.together == pytest.approx(5 / 7)
    assert found.spearman == pytest.approx(1.0)
    backwards = co_occurrence([overfitting(20, 60), overfitting(40, 30), overfitting(60, 15)])
    assert backwards.spearman == pytest.approx(-1.0)
    assert co_occurrence([calm]).spearman is None


def test_regularized_runs_are_sorted_by_strength():
    records = [record("unbiased", [0.5, 0.9, 0.6], dropout=rate) for rate in (0.8, 0.0)]
    first, second = regularized_runs(records, "dropout")
    assert (first.name, second.name) == ("dropout 0", "dropout 0.8")
    assert (first.lowest_risk, first.last_risk) == pytest.approx((0.1, 0.4))
    assert (first.best_accuracy, first.last_accuracy) == pytest.approx((90.0, 60.0))


def test_page_has_all_four_conclusions():
    records = [
        record(method, curve, seed, priors, slope)
        for method, slope, curve in (
            ("unbiased", None, [0.9, 0.6]),
            ("biased", None, [0.8, 0.7]),
            ("abs", None, [0.9, 0.9]),
            ("leaky_relu", -0.1, [0.9, 0.91]),
        )
        for seed in (0, 1)
        for priors in ((0.8, 0.2), (0.6, 0.4))
    ]
    figure3 = [record("unbiased", [0.9, 0.5], dropout=0.2, l2=0.5)]
    others = [record("leaky_relu", [0.9, 0.9], seed, slope=-0.3) for seed in (0, 1)]
    page = conclusions.to_markdown(cells(records + others), records + others, figure3, figure3)
    assert "| all methods, all models | 16 |" in page  # other values of λ are ignored here, too
    for words in (
        "beat the unbiased",
        "closer the priors",
        "occur together",
        "do not prevent",
        "UU-LReLU",
        "weight decay 0.5",
    ):
        assert words in page
    widths = [line.count("|") for line in page.splitlines() if line.startswith("|")]
    assert min(widths) > 5
