"""Columns that distinguish two sets by more than their class priors: false alarms and power, by simulation."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from uulearn.metrics import check_mixture
from uulearn.priors import out_of_fold_scores
from uulearn.tabular import leakage
from uulearn.tabular.leakage import find_label_columns, find_leaking_columns
from uulearn.tabular.schema import OTHER, Schema, TableColumn

LETTERS = tuple("abcdef")
MIXED = Schema(
    (
        TableColumn("x", "number", missing=True),
        TableColumn("count", "number"),
        TableColumn("flag", "boolean"),
        TableColumn("letter", "category", values=LETTERS, missing=True),
        TableColumn("class", "category", values=("neg", "pos")),
        TableColumn("day", "date"),
    )
)


def categories(values, known):
    return pd.Categorical(values, categories=[*known, OTHER])


def mixture(rng, n, prior):
    """Return rows of both classes in columns of many kinds, as different as possible; one column is the class."""
    y = rng.random(n) < prior
    x = rng.normal(np.where(y, 1, -1))
    x[rng.random(n) < np.where(y, 0.3, 0)] = np.nan
    letters = np.where(y, rng.choice(LETTERS[:3], n, p=[0.98, 0.01, 0.01]), rng.choice(LETTERS[2:], n))
    day = np.datetime64("2020-01-01", "us") + rng.integers(0, np.where(y, 900, 100)) * np.timedelta64(1, "D")
    return pd.DataFrame(
        {
            "x": x,
            "count": rng.poisson(np.where(y, 3, 30)).astype(float),
            "flag": (rng.random(n) < np.where(y, 0.99, 0.01)).astype(float),
            "letter": categories(letters, LETTERS),
            "class": categories(np.where(y, "pos", "neg"), ("neg", "pos")),
            "day": day,
        }
    )


def two(column, first, second, priors=(0.8, 0.2), **options):
    """Return what is found in one column."""
    frames = [pd.DataFrame({column.name: values}) for values in (first, second)]
    found = find_leaking_columns(*frames, Schema((column,)), priors, **options)
    return found[0] if found else None


# ----------------------------------------------------------------------------------------------- perfect predictors

SITES = {
    "category": (TableColumn("site", "category", values=("A", "B")), "A", "B", "'A'", "'B'"),
    "number": (TableColumn("site", "number"), 1.0, 2.0, "1", "2"),
    "boolean": (TableColumn("site", "boolean"), 1.0, 0.0, "true", "false"),
    "date": (
        TableColumn("site", "date"),
        np.datetime64("2024-01-01", "us"),
        np.datetime64("2024-02-01", "us"),
        "2024-01-01",
        "2024-02-01",
    ),
    "text": (TableColumn("site", "text"), "clinic A", "clinic B", "'clinic A'", "'clinic B'"),
}


@pytest.mark.parametrize("kind", SITES)
@pytest.mark.parametrize("priors", [(0.8, 0.2), (1.0, 0.0), (0.1, 0.9)])
def test_finds_one_value_per_file(kind, priors):
    column, first, second, shown_first, shown_second = SITES[kind]
    found = two(column, [first] * 20, [second] * 15, priors, files=("a.csv", "b.csv"))
    assert found.auc == 1.0
    assert found.reason == (
        f"Column 'site' identifies the file of a row ({shown_first} in every row of a.csv, {shown_second} in every row "
        "of b.csv), so a classifier would learn to distinguish the files instead of the classes."
    )
    assert two(column, [first] * 20, [first] * 15, priors) is None
    assert two(column, [first] * 9, [second] * 15, priors) is None


def test_finds_column_that_is_empty_in_one_file():
    found = two(TableColumn("x", "number", missing=True), [5.0] * 20, [np.nan] * 20)
    assert "5 in every row of the first file, no value in any row of the second file" in found.reason
    rng = np.random.default_rng(0)
    found = two(TableColumn("x", "number", missing=True), rng.normal(size=300), [np.nan] * 300)
    assert found.auc > 0.99
    assert "identifies the file of a row" in found.reason


@pytest.mark.parametrize("priors", [(0.8, 0.2), (0.3, 0.6), (1.0, 0.4)])
def test_finds_disjoint_values(priors):
    rng = np.random.default_rng(1)
    batches = two(
        TableColumn("batch", "number"), 2.0 * rng.integers(0, 40, 1500), 2.0 * rng.integers(0, 40, 1500) + 1, priors
    )
    assert batches.auc > 0.99
    assert "identifies the file of a row" in batches.reason
    ranges = two(TableColumn("x", "number"), rng.normal(0, 1, 600), rng.normal(20, 1, 600), priors)
    assert ranges.auc > 0.99
    assert ("values below" if priors[0] > priors[1] else "values") in ranges.reason
    texts = [[f"{clinic} ward {n}" for n in rng.integers(0, 900, 800)] for clinic in ("north", "south")]
    found = two(TableColumn("t", "text"), *(pd.Series(own, dtype=object) for own in texts), priors)
    assert found.auc > 0.99


def test_perfect_column_needs_no_margin():
    """At priors of 0.99 and 0.01 even a perfect predictor implies a rate of only −0.01."""
    rng = np.random.default_rng(17)
    values = [categories(rng.choice(list(own), 5000), "abcd") for own in ("ab", "cd")]
    found = two(TableColumn("ward", "category", values=tuple("abcd")), *values, (0.99, 0.01))
    assert re.search(r"identifies the file of a row \('[a-d]' and '[a-d]' occur in 100% of", found.reason)


def test_clearest_column_comes_first():
    rng = np.random.default_rng(2)
    schema = Schema(
        (TableColumn("some", "category", values=("a", "b")), TableColumn("x", "number"), TableColumn("all", "boolean"))
    )
    frames = [
        pd.DataFrame(
            {"some": categories(rng.choice(["a", "b"], 900, p=p), ("a", "b")), "x": rng.normal(size=900), "all": which}
        )
        for which, p in ((1.0, [0.99, 0.01]), (0.0, [0.02, 0.98]))
    ]
    assert [found.column for found in find_leaking_columns(*frames, schema, (0.7, 0.3))] == ["all", "some"]


# ------------------------------------------------------------------------------------------------------ the bounds


@pytest.mark.parametrize(
    ("priors", "shares", "found"),
    [
        ((0.8, 0.2), (0.30, 0.02), True),  # fifteen times as frequent; at most four are possible
        ((0.8, 0.2), (0.30, 0.08), False),
        ((0.8, 0.2), (0.02, 0.30), True),
        ((0.2, 0.8), (0.02, 0.30), True),
        ((0.2, 0.8), (0.08, 0.30), False),
        ((0.5, 0.4), (0.50, 0.30), True),  # although sets may differ more at (0.8, 0.2)
        ((1.0, 0.3), (0.30, 0.02), True),
        ((1.0, 0.3), (0.02, 0.60), False),  # a set without negatives may lack values that only negatives have
        ((1.0, 0.0), (0.01, 0.99), False),
        ((0.8, 0.2), (0.05, 0.00), False),  # beyond the bound, but within the margin
    ],
)
def test_ratio_of_frequencies_is_bounded_by_the_priors(priors, shares, found):
    rng = np.random.default_rng(3)
    values = [categories(np.where(rng.random(5000) < share, "a", "b"), ("a", "b")) for share in shares]
    result = two(TableColumn("x", "category", values=("a", "b")), *values, priors)
    assert (result is not None) == found


def test_reason_names_value_and_frequencies():
    rng = np.random.default_rng(4)
    values = [categories(rng.choice(list("abc"), 4000, p=p), "abc") for p in ([0.5, 0.3, 0.2], [0.5, 0.5, 0])]
    found = two(TableColumn("ward", "category", values=tuple("abc")), *values, files=("a.csv", "b.csv"))
    assert re.fullmatch(
        "Column 'ward' differs between the files by more than the class priors allow: 'c' occurs in (19|20|21)% of the "
        "rows of a.csv and 0% of those of b.csv, but at priors of 0.8 and 0.2 no value can be more than 4 times as "
        "frequent.",
        found.reason,
    )
    assert 0.5 < found.auc < 0.7


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (lambda rng: rng.normal(3, 1, 2000), lambda rng: rng.normal(0, 1, 2000), "values below 0."),
        (lambda rng: rng.normal(-3, 1, 2000), lambda rng: rng.normal(0, 1, 2000), "values from -0."),
        (lambda rng: rng.normal(0, 0.1, 2000), lambda rng: rng.normal(0, 3, 2000), "certain ranges of values"),
        (
            lambda rng: np.where(rng.random(2000) < 0.5, np.nan, 1.5),
            lambda rng: rng.normal(1, 1, 2000),
            "certain ranges",
        ),
        (lambda rng: rng.integers(0, 4, 2000) * 1.0, lambda rng: rng.integers(2, 6, 2000) * 1.0, "0 and 1 occur"),
    ],
)
def test_reason_describes_numbers(first, second, words):
    rng = np.random.default_rng(5)
    found = two(TableColumn("x", "number", missing=True), first(rng), second(rng))
    assert words in found.reason


def test_reason_describes_missing_cells():
    rng = np.random.default_rng(6)
    x = [rng.normal(size=3000) for _ in range(2)]
    x[1][rng.random(3000) < 0.4] = np.nan
    found = two(TableColumn("x", "number", missing=True), *x)
    assert re.search("missing cells occur in (39|40|41)% of the rows of the second file and 0% of those", found.reason)


def test_reason_describes_dates_and_texts():
    rng = np.random.default_rng(7)
    days = [
        np.datetime64("2024-01-01", "us") + rng.integers(low, low + 300, 2000) * np.timedelta64(1, "D")
        for low in (0, 200)
    ]
    assert re.search(
        "values (below|from) 202[45]-[0-9]{2}-[0-9]{2} ", two(TableColumn("d", "date"), *days, (0.7, 0.3)).reason
    )
    words = [
        pd.Series(
            [f"note {n} {word}" for n, word in zip(rng.integers(0, 99, 900), rng.choice(own, 900), strict=True)],
            dtype=object,
        )
        for own in (["same", "ward"], ["same", "station"])
    ]
    assert "certain words or letters occur" in two(TableColumn("t", "text"), *words, (0.7, 0.3)).reason


# ------------------------------------------------------------------------------------------------------- simulations


@pytest.mark.parametrize(
    ("priors", "sizes"),
    [((0.8, 0.2), (300, 300)), ((0.99, 0.5), (150, 500)), ((0.3, 0.4), (80, 80)), ((1.0, 0.02), (300, 300))],
)
def test_no_false_alarms_under_true_mixtures(priors, sizes):
    """At 99.9%, no alarm is expected in 25 tables."""
    rng = np.random.default_rng(8)
    for seed in range(25):
        tables = [mixture(rng, size, prior) for size, prior in zip(sizes, priors, strict=True)]
        assert find_leaking_columns(*tables, MIXED, priors, seed=seed) == []


@pytest.mark.parametrize("priors", [(0.8, 0.2), (0.99, 0.5), (0.05, 0.6)])
def test_confidence_level_holds_on_the_bound(priors, monkeypatch):
    """A column that is the class itself is on the bound; without a margin and at 80% some alarms occur."""
    monkeypatch.setattr(leakage, "LEAKAGE_CONFIDENCE", 0.8)
    monkeypatch.setattr(leakage, "MARGIN", 0.0)
    rng = np.random.default_rng(9)
    schema = Schema((MIXED.columns[4],))
    tables = [[mixture(rng, 300, prior)[["class"]] for prior in priors] for _ in range(80)]
    alarms = sum(bool(find_leaking_columns(*pair, schema, priors, seed=seed)) for seed, pair in enumerate(tables))
    assert alarms <= 80 * 0.2


@pytest.mark.parametrize("priors", [(0.8, 0.2), (0.99, 0.6), (0.1, 0.3)])
@pytest.mark.parametrize("rate", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("many", [60, 3000, 5940])
def test_event_on_a_bound_gives_alarms_as_rarely_as_stated(priors, rate, many):
    """Only one class has the event, so its rate in the other class is 0."""
    rng, level, draws = np.random.default_rng(16), 0.1, 400
    higher, lower = leakage._sides(priors)
    for side, shares in ((higher, [rate * p for p in priors]), (lower, [rate * (1 - p) for p in priors])):
        sizes = [many if which == side.own else 6000 - many for which in (0, 1)]
        beyond = 0
        for inside in zip(
            *(rng.binomial(n, share, draws) for n, share in zip(sizes, shares, strict=True)), strict=True
        ):
            counts = [np.array([n - own, own]) for n, own in zip(sizes, inside, strict=True)]
            beyond += leakage._excess(counts, np.array([False, True]), side, level)[0] > 0
        assert beyond <= 2 * level * draws + 3 * np.sqrt(2 * level * draws)


@pytest.mark.parametrize(("priors", "n"), [((0.8, 0.2), 400), ((0.6, 0.4), 400), ((0.3, 0.9), 1000)])
def test_finds_site_among_other_columns(priors, n):
    """The site is right in 97% of the rows."""
    rng = np.random.default_rng(10)
    schema = Schema((*MIXED.columns, TableColumn("site", "category", values=("A", "B"))))
    for seed in range(8):
        tables = [mixture(rng, n, prior) for prior in priors]
        for table, share in zip(tables, (0.97, 0.03), strict=True):
            table["site"] = categories(np.where(rng.random(n) < share, "A", "B"), ("A", "B"))
        found = find_leaking_columns(*tables, schema, priors, seed=seed)
        assert [one.column for one in found] == ["site"]
        assert found[0].auc > 0.9


@settings(max_examples=25)
@given(
    st.lists(st.one_of(st.none(), st.integers(0, 3), st.floats(allow_nan=False, allow_infinity=False)), max_size=40),
    st.lists(st.one_of(st.none(), st.integers(0, 3)), max_size=40),
    st.sampled_from([(0.8, 0.2), (0.0, 1.0), (0.4, 0.5)]),
)
def test_accepts_small_and_unusual_tables(first, second, priors):
    frames = [
        pd.DataFrame(
            {
                "n": pd.array(own, dtype="Float64").to_numpy(dtype=float, na_value=np.nan),
                "t": pd.Series([None if v is None else str(v) for v in own], dtype=object),
            }
        )
        for own in (first, second)
    ]
    schema = Schema((TableColumn("n", "number", missing=True), TableColumn("t", "text", missing=True)))
    for found in find_leaking_columns(*frames, schema, priors):
        assert 0 <= found.auc <= 1
        assert found.reason.endswith(".")


def test_time_is_bounded_for_many_columns_and_rows():
    rng = np.random.default_rng(11)
    schema = Schema(tuple(TableColumn(f"x{number}", "number") for number in range(200)))
    frames = [pd.DataFrame(rng.normal(size=(300, 200)), columns=schema.names) for _ in range(2)]
    assert find_leaking_columns(*frames, schema, (0.6, 0.4)) == []
    long = [pd.DataFrame({"x0": rng.normal(shift, 1, 3 * leakage.MAX_COMPARED_ROWS)}) for shift in (0, 3)]
    assert len(find_leaking_columns(*long, Schema((TableColumn("x0", "number"),)), (0.6, 0.4))) == 1


def test_joint_check_finds_what_no_column_shows():
    """Two columns are equal in one set and opposite in the other."""
    rng = np.random.default_rng(14)
    rows = []
    for which, prior in enumerate((0.7, 0.3)):
        a = rng.normal(np.where(rng.random(1500) < prior, 0.5, -0.5))
        rows.append(np.column_stack([a, (1 - 2 * which) * a + rng.normal(0, 0.3, 1500), a * ((1 - 2 * which) * a)]))
    frames = [pd.DataFrame(own[:, :2], columns=["a", "b"]) for own in rows]
    schema = Schema((TableColumn("a", "number"), TableColumn("b", "number")))
    assert find_leaking_columns(*frames, schema, (0.7, 0.3)) == []
    scores = np.concatenate(out_of_fold_scores(rows[0], rows[1], scorer=LogisticRegression(), random_state=0))
    found = check_mixture(scores, np.repeat([0, 1], 1500), (0.7, 0.3))
    assert found.differ
    assert found.reason.startswith("The sets differ by more than the class priors allow: ")
    assert found.reason.endswith("tives would score high, which is impossible.")


LABELS = {
    "number": (TableColumn("sick", "number"), (1.0, 0.0)),
    "other numbers": (TableColumn("sick", "number"), (2.0, 7.0)),
    "boolean": (TableColumn("sick", "boolean"), (1.0, 0.0)),
    "category": (TableColumn("sick", "category", values=("benign", "malignant", "unknown")), ("malignant", "benign")),
}


def labeled(rng, n, prior, values):
    return [values[0] if positive else values[1] for positive in rng.random(n) < prior]


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("priors", [(0.8, 0.2), (0.3, 0.7), (0.9, 0.5)])
def test_finds_the_label(kind, priors):
    column, values = LABELS[kind]
    rng = np.random.default_rng(0)
    frames = [pd.DataFrame({"sick": labeled(rng, 500, prior, values)}) for prior in priors]
    [found] = find_label_columns(*frames, Schema((column,)), priors, files=("a.csv", "b.csv"))
    assert found.reason.startswith("Column 'sick' is probably the label: ")
    assert found.reason.endswith(f" of the rows of b.csv, which matches the priors {priors[0]:g} and {priors[1]:g}.")
    assert not find_label_columns(*frames, Schema((column,)), (priors[0], priors[0] / 2 + priors[1] / 2))
    # the order of the files, missing cells and a rare third value do not matter
    frames[0].iloc[:300] = None
    frames[0].iloc[-1] = "unknown" if kind == "category" else 5.0
    assert find_label_columns(*frames[::-1], Schema((column,)), priors[::-1])


def test_a_good_feature_is_not_a_label():
    rng = np.random.default_rng(0)
    for n in (20, 60, 200, 2000):
        for rates in ((0.9, 0.1), (0.75, 0.0), (1.0, 0.25), (0.6, 0.4)):
            frames = []
            for prior in (0.8, 0.2):
                y = rng.random(n) < prior
                frames.append(pd.DataFrame({"flag": (rng.random(n) < np.where(y, *rates)).astype(float)}))
            assert not find_label_columns(*frames, Schema((TableColumn("flag", "boolean"),)), (0.8, 0.2)), (n, rates)


def test_few_rows_are_enough_for_a_column_named_label():
    frames = [pd.DataFrame({"flag": [1.0] * k + [0.0] * (20 - k)}) for k in (14, 7)]
    assert not find_label_columns(*frames, Schema((TableColumn("flag", "boolean"),)), (0.6, 0.4))
    named = [frame.rename(columns={"flag": "Label"}) for frame in frames]
    assert find_label_columns(*named, Schema((TableColumn("Label", "boolean"),)), (0.6, 0.4))


@pytest.mark.parametrize(("counts", "n"), [((6, 7), 12), ((7, 6), 12), ((50, 51), 100), ((13, 8), 20)])
def test_a_label_name_is_not_enough_without_a_significant_difference(counts, n):
    frames = [pd.DataFrame({"outcome": [1.0] * k + [0.0] * (n - k)}) for k in counts]
    assert not find_label_columns(*frames, Schema((TableColumn("outcome", "boolean"),)), (0.6, 0.4))
