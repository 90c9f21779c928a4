"""The charts of the report: axes, and curves and marks read back through the axes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from helpers.report_page import checked, drawn_curves, numbers, scale, section, words
from uulearn.app.facts import ColumnImportance
from uulearn.markup.svg import make_axis
from uulearn.report import render_report
from uulearn.training import History

FIGURES = {
    "figure-risk",
    "figure-risk-held-out",
    "figure-accuracy",
    "figure-targets",
    "figure-sensitivity",
    "figure-scores",
    "figure-importance",
}


@pytest.fixture(scope="module")
def page(facts, history):
    return checked(render_report(facts, history))


def record(epoch, positive, negative, **more):
    return {"epoch": epoch, "positive": positive, "negative": negative, "unbiased": positive + negative} | more


def drawing(page, figure):
    return page.one("figure", id=figure).one("svg", role="img")


def test_all_charts_are_present(page):
    assert {figure.attributes["id"] for figure in page.all("figure")} == FIGURES


@pytest.mark.parametrize(("figure", "prefix"), [("figure-risk", ""), ("figure-risk-held-out", "validation_")])
def test_curves_show_the_signed_risk_terms(page, history, figure, prefix):
    curves = drawn_curves(page.one("figure", id=figure))
    styles = {"curve first": "positive", "curve second dashed": "negative", "curve total wide": "unbiased"}
    if not prefix:
        styles["curve quiet thin dotted"] = "objective"
    assert set(curves) == set(styles)
    for style, name in styles.items():
        expected = [(entry["epoch"], entry[prefix + name]) for entry in history]
        np.testing.assert_allclose(curves[style], expected, atol=0.02)


def test_objective_is_drawn_only_if_it_differs_from_the_risk(facts):
    same = [record(epoch, 0.1, 0.2, objective=0.3) for epoch in (1, 2)]
    root = checked(render_report(facts, History(same, "done")))
    assert "objective" not in root.one("figure", id="figure-risk").text


def test_accuracy_is_one_minus_the_held_out_error(page, history):
    curves = drawn_curves(page.one("figure", id="figure-accuracy"))
    expected = [(entry["epoch"], 1 - entry["validation_zero_one"]) for entry in history]
    np.testing.assert_allclose(curves["curve first"], expected, atol=0.02)


def test_labeled_test_rows_have_their_own_curve(facts):
    records = [record(e, 0.1, 0.1, validation_zero_one=0.2, test_accuracy=0.5 + e / 10) for e in (1, 2)]
    figure = checked(render_report(facts, History(records, "done"))).one("figure", id="figure-accuracy")
    np.testing.assert_allclose(drawn_curves(figure)["curve third dashed"], [(1, 0.6), (2, 0.7)], atol=0.01)
    assert figure.one("table").rows()[1:] == [["1", "80.0%", "60.0%"], ["2", "80.0%", "70.0%"]]


def test_markers_are_at_their_epochs(page, history):
    drawn = drawing(page, "figure-risk")
    x = scale(drawn, "x")
    lines = {line.attributes["class"]: [] for line in drawn.all("line", class_="event")}
    for line in drawn.all("line", class_="event"):
        lines[line.attributes["class"]].append(round(x(float(line.attributes["x1"][:-1]))))
    assert lines == {"event": [history.first_negative_epoch], "event quiet": [30, history.best_epoch]}


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        (1, {"epoch 1: best", "epoch 3: last"}),
        (2, {"epoch 2: best", "epoch 3: last"}),
        (3, {"epoch 3: best and last"}),
    ],
)
def test_marker_labels(facts, best, expected):
    history = History([record(1, 0.3, 0.2), record(2, -0.1, 0.0), record(3, -0.2, 0.0)], "done", best_epoch=best)
    drawn = drawing(checked(render_report(facts, history)), "figure-risk")
    assert {node.text for node in drawn.all("text", class_="event-name")} == {"epoch 2: risk below 0"} | expected


def test_labels_of_outer_markers_are_on_top(facts):
    history = History([record(epoch, 0.5 - epoch / 190, 0.0) for epoch in range(1, 101)], "done", best_epoch=90)
    drawn = drawing(checked(render_report(facts, history)), "figure-risk")
    labels = sorted(drawn.all("text", class_="event-name"), key=lambda node: float(node.attributes["y"]))
    assert [node.text for node in labels] == ["epoch 100: last", "epoch 96: risk below 0", "epoch 90: best"]
    assert {node.attributes["text-anchor"] for node in labels} == {"end"}


def test_shading_starts_at_zero(page):
    drawn = drawing(page, "figure-risk")
    shading = drawn.one("rect", class_="ground").attributes
    assert scale(drawn, "y")(float(shading["y"][:-1])) == pytest.approx(0, abs=1e-3)
    assert float(shading["y"][:-1]) + float(shading["height"][:-1]) == pytest.approx(100, abs=0.02)


def test_epoch_table_has_the_recorded_values(page, history):
    rows = numbers(page, "figure-risk")
    assert rows[0] == ["epoch", "positive term", "negative term", "risk", "objective"]
    assert len(rows) == 31
    names = ("positive", "negative", "unbiased", "objective")
    assert rows[-1] == ["30", *(f"{history[-1][name]:+.4f}".replace("-", "−") for name in names)]


def test_long_trainings_have_short_tables_and_full_curves(facts):
    history = History([record(epoch, 0.5 - epoch / 700, 0.1) for epoch in range(1, 502)], "done", best_epoch=100)
    page = checked(render_report(facts, history))
    rows = numbers(page, "figure-risk")
    assert len(rows) < 250
    assert {1, 100, history.first_negative_epoch, 501} <= {int(row[0]) for row in rows[1:]}
    assert len(drawn_curves(page.one("figure", id="figure-risk"))["curve first"]) == 501


def test_missing_epochs_interrupt_the_curve(facts):
    values = [0.5, 0.4, math.nan, 0.2, math.inf, 0.1]
    history = History([{"epoch": e, "positive": v, "negative": 0.1} for e, v in enumerate(values, 1)], "done")
    drawn = drawing(checked(render_report(facts, history)), "figure-risk")
    assert drawn.one("path", class_="first").attributes["d"].count("M") == 1
    assert len(drawn.all("circle", class_="first")) == 2  # epochs 4 and 6 are isolated


@pytest.mark.parametrize("epochs", [1, 2, 500])
@pytest.mark.parametrize("columns", [1, 300])
def test_charts_of_small_and_large_models(facts, epochs, columns):
    facts = replace(facts, columns=facts.columns[1:2] * columns, importance=facts.importance[:1] * columns)
    names = ("validation_positive", "validation_negative", "validation_unbiased", "validation_zero_one")
    records = [record(e, 0.2, 0.1, objective=0.3, **dict.fromkeys(names, 0.1)) for e in range(1, epochs + 1)]
    root = checked(render_report(facts, History(records, "done", best_epoch=1)))
    assert {figure.attributes["id"] for figure in root.all("figure")} == FIGURES
    assert len(root.one("figure", id="figure-importance").all("rect", class_="bar")) == min(columns, 12)
    assert len(section(root, "data").all("table")[1].rows()) == columns + 1
    assert len(drawing(root, "figure-accuracy").all("circle")) == (epochs == 1)


def test_targets_are_drawn_and_listed(page, facts):
    figure = page.one("figure", id="figure-targets")
    curves = drawn_curves(figure)
    expected = [(target.target_prior, target.accuracy.value) for target in facts.targets]
    np.testing.assert_allclose(curves["curve first wide"], expected, atol=0.005)
    np.testing.assert_allclose(curves["curve quiet thin dotted"], [(p, max(p, 1 - p)) for p, _ in expected], atol=0.005)
    rows, first = figure.one("table").rows(), facts.targets[0]
    assert len(rows) == 20
    low, high = first.accuracy.interval
    assert rows[1] == ["5%", f"{expected[0][1]:.1%}", f"{low:.1%} to {high:.1%}", f"+{first.threshold:.3f}", "95.0%"]
    assert figure.one("path", class_="fill").attributes["d"].count("L") == 2 * 19 - 1
    assert [node.text for node in figure.all("text", class_="event-name")] == ["trained for 50%"]


def test_sensitivity_is_drawn_and_listed(page, facts):
    figure, given_rows = page.one("figure", id="figure-sensitivity"), facts.sensitivity.rows
    drawn = figure.one("svg", role="img")
    x = scale(drawn, "x")
    dots = [x(float(dot.attributes["cx"][:-1])) for dot in drawn.all("circle")]
    np.testing.assert_allclose(dots, [row.accuracy.value for row in given_rows], atol=0.002)
    whiskers = [[x(float(w.attributes[end][:-1])) for end in ("x1", "x2")] for w in drawn.all("line", class_="whisker")]
    np.testing.assert_allclose(whiskers, [row.accuracy.interval for row in given_rows], atol=0.002)
    rows = figure.one("table").rows()
    assert [row[0] for row in rows[1:6]] == ["unchanged", "θ − 0.1", "θ − 0.05", "θ + 0.05", "θ + 0.1"]
    assert rows[2][1] == f"{given_rows[1].accuracy.value:.1%}"
    text, (given, *changed) = words(section(page, "sensitivity")), given_rows
    largest = max(changed, key=lambda row: abs(row.accuracy.unclipped - given.accuracy.unclipped))
    which = {"θ": "the class prior of clinic_a.csv", "θ′": "the class prior of clinic_b.csv", "π": "the target prior"}
    points = 100 * abs(largest.accuracy.unclipped - given.accuracy.unclipped)
    assert f"If {which[largest.parameter]} is wrong by {abs(largest.error):g}, the estimated accuracy" in text
    assert f"changes by up to {points:.0f} points." in text
    assert 'these are single models, so "unchanged" can differ from the accuracy at the top of the page' in text
    clipped = any(row.accuracy.unclipped > 1 for row in given_rows)
    assert ("Estimates above 100%, which are impossible, are shown as 100%." in text) == clipped


def test_histogram_shows_fractions_and_its_table_counts(page, facts):
    figure, counts = page.one("figure", id="figure-scores"), np.array(facts.histogram.counts)
    rows = figure.one("table").rows()
    assert rows[0] == ["score", "clinic_a.csv", "clinic_b.csv"]
    assert [[int(cell) for cell in row[1:]] for row in rows[1:]] == counts.T.tolist()
    curves = drawn_curves(figure)
    for style, side in zip(("curve first", "curve second dashed"), counts, strict=True):
        lefts, heights = zip(*curves[style][1:-1:2], strict=True)
        np.testing.assert_allclose(heights, side / 80, atol=0.002)
        np.testing.assert_allclose(lefts, facts.histogram.edges[:-1], atol=0.03)


def test_most_important_columns_come_first(page, facts):
    figure, top = page.one("figure", id="figure-importance"), facts.importance[:12]
    drawn = figure.one("svg", role="img")
    names = [node.text.strip("\u2068\u2069 ▲▼") for node in drawn.all("text", class_="name")]
    assert names == [e.column for e in top]
    x = scale(drawn, "x")
    for bar, entry in zip(drawn.all("rect", class_="bar"), top, strict=True):
        left, width = (float(bar.attributes[name][:-1]) for name in ("x", "width"))
        ends = sorted((0.0, 100 * entry.drop))  # in points
        np.testing.assert_allclose([x(left), x(left + width)], ends, atol=0.05)
    assert len(figure.one("table").rows()) == 31


def test_importance_shows_the_direction_of_columns(facts, history):
    kinds = {"up": (0.4, None), "down": (-0.4, None), "weak": (0.02, None), "kind": (None, "red"), "text": (None, None)}
    entries = tuple(ColumnImportance(name, 0.1, 0.01, *direction) for name, direction in kinds.items())
    figure = checked(render_report(replace(facts, importance=entries), history)).one("figure", id="figure-importance")
    arrows = [node.text.partition("\u2069")[2].strip() for node in figure.all("text", class_="name")]
    assert arrows == ["▲", "▼", "", "", ""]
    directions = [row[1] for row in figure.one("table").rows()[1:]]
    assert directions == ["higher values", "lower values", "–", 'value "red"', "–"]


def test_tooltips_show_the_rows_of_the_table(page):
    for figure in page.all("figure"):
        tips, rows = [node.text for node in figure.all("title")[1:]], figure.one("table").rows()
        assert len(tips) == min(len(rows) - 1, 12) if figure.attributes["id"] == "figure-importance" else len(rows) - 1
        for tip, row in zip(tips, rows[1:], strict=False):
            assert tip == "\n".join(f"{title}: {cell}" for title, cell in zip(rows[0], row, strict=True))
    edges = [tip.attributes for tip in page.one("figure", id="figure-targets").all("rect", class_="tip")]
    assert float(edges[0]["x"][:-1]) == 0
    assert sum(float(edge["width"][:-1]) for edge in edges) == pytest.approx(100, abs=0.2)


def test_unknown_numbers_are_left_out(facts, history):
    unknown = replace(facts.targets[0].accuracy, value=math.nan)
    sparse = replace(
        facts,
        targets=(replace(facts.targets[0], accuracy=unknown), *facts.targets[1:]),
        importance=(replace(facts.importance[0], drop=math.nan),),
        sensitivity=replace(facts.sensitivity, rows=(replace(facts.sensitivity.rows[0], accuracy=unknown),)),
        seconds=math.nan,
        set_auc=unknown,
    )
    root = checked(render_report(sparse, history))
    assert {figure.attributes["id"] for figure in root.all("figure")} == FIGURES - {
        "figure-importance",
        "figure-sensitivity",
    }
    assert len(numbers(root, "figure-targets")) == 19


# -------------------------------------------------------------------------------------------------------------- axes


@given(st.lists(st.floats(-1e9, 1e9) | st.floats(-1e99, 1e99), min_size=1, max_size=5), st.booleans(), st.booleans())
@example([562949953421313.0], True, False)
def test_axis_contains_its_values_and_has_few_round_ticks(values, percents, tight):
    found = make_axis(values, percents=percents, tight=tight)
    room = 1e-6 * (found.high - found.low)
    assert all(found.low - room <= value <= found.high + room for value in values)
    assert all(-1e-6 <= found.place(tick) <= 1 + 1e-6 for tick in found.ticks)
    assert 2 <= len(found.ticks) <= 12
    steps = np.diff(found.ticks)
    assert np.allclose(steps, steps[0])
    mantissa = steps[0] / 10.0 ** math.floor(math.log10(steps[0]) + 1e-6)
    assert min(abs(mantissa - round_one) for round_one in (1, 2, 2.5, 5)) < 1e-3


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_axis_of_epochs_has_whole_ticks(first, length):
    found = make_axis([first, first + length], integers=True, tight=True)
    assert all(tick == round(tick) for tick in found.ticks)
    assert len(set(found.labels)) == len(found.labels)
    if length:
        assert (found.low, found.high) == (first, first + length)


@pytest.mark.parametrize(
    ("values", "options", "labels"),
    [
        ([0.62, 0.97], {"percents": True}, ("60%", "70%", "80%", "90%", "100%")),
        ([-0.13, 0.8], {}, ("−0.2", "0.0", "0.2", "0.4", "0.6", "0.8")),
        ([0.0, 0.11], {}, ("0.000", "0.025", "0.050", "0.075", "0.100", "0.125")),
        ([-2e7, 3e7], {}, ("−2e+07", "−1e+07", "0", "1e+07", "2e+07", "3e+07")),
        ([0.9, 0.9], {"percents": True}, ("84%", "86%", "88%", "90%", "92%", "94%", "96%")),
        ([1, 1], {"integers": True, "tight": True}, ("0", "1", "2")),
        ([], {}, ("0.0", "0.2", "0.4", "0.6", "0.8", "1.0")),
    ],
)
def test_axis_labels(values, options, labels):
    assert make_axis(values, **options).labels == labels
