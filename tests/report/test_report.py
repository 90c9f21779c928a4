"""The report as text: every number where it belongs, every name escaped, every figure with its words."""

import ast
import copy
import itertools
import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.report_example import facts_and_history
from uulearn import report
from uulearn.report import render_report, write_report
from uulearn.report.course import read_course
from uulearn.report.drawing import axis
from uulearn.report.facts import read_facts
from uulearn.report.markup import Html, element, join, named, shorten, visible
from uulearn.report.style import READ_ON
from uulearn.report.verdict import ADVICE
from uulearn.report.wording import count, duration, percent, plain, signed
from uulearn.training import History

VOID = {"br", "hr", "link", "meta"}
FIGURES = {
    "figure-brackets",
    "figure-brackets-held-out",
    "figure-accuracy",
    "figure-targets",
    "figure-sensitivity",
    "figure-scores",
    "figure-importance",
}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'single' & \"double\"",
    "</style></title></svg><b>",
    "&lt;already&gt; &amp;amp;",
    "مريض",
    "🧪 👩‍⚕️",
    "javascript:alert(1)",
    "{{7*7}} ${x} %s",
]


class Node:
    def __init__(self, tag, attributes):
        self.tag, self.attributes, self.children = tag, attributes, []

    @property
    def text(self):
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def walk(self):
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.walk()

    def all(self, tag, **wanted):
        found = [node for node in self.walk() if node.tag == tag]
        return [
            node
            for node in found
            if all(
                value in (node.attributes.get(key.rstrip("_").replace("_", "-")) or "").split()
                for key, value in wanted.items()
            )
        ]

    def one(self, tag, **wanted):
        (found,) = self.all(tag, **wanted)
        return found

    def rows(self):
        """The cells of a table, its head first."""
        return [[cell.text for cell in row.all("th") + row.all("td")] for row in self.all("tr")]


class Tree(HTMLParser):
    """A tree of the page; any end tag that does not fit is a failure."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.root = Node("document", {})
        self.stack = [self.root]

    def handle_starttag(self, tag, attrs):
        assert len(attrs) == len(dict(attrs)), f"an attribute twice in <{tag}>"
        node = Node(tag, dict(attrs))
        self.stack[-1].children.append(node)
        if tag not in VOID:
            self.stack.append(node)

    def handle_endtag(self, tag):
        assert self.stack[-1].tag == tag, f"</{tag}> closes <{self.stack[-1].tag}>"
        self.stack.pop()

    def handle_data(self, data):
        self.stack[-1].children.append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")


def parse(page):
    tree = Tree()
    tree.feed(page)
    tree.close()
    assert tree.stack == [tree.root]
    return tree.root


def checked(page):
    """The page's tree, after every check that holds for any page."""
    root = parse(page)
    ids = [node.attributes["id"] for node in root.walk() if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for node in root.walk():
        assert node.tag not in {"script", "iframe", "object", "embed", "img", "form", "base", "b"}, node.tag
        assert not any(name.startswith("on") for name in node.attributes), node.attributes
        for name in ("aria-labelledby", "aria-describedby"):
            assert set((node.attributes.get(name) or "").split()) <= set(ids)
        for name in ("href", "src", "xlink:href"):
            target = node.attributes.get(name)
            assert target is None or target == "data:," or target.removeprefix("#") in ids, target
    assert root.one("html").attributes["lang"] == "en"
    assert root.all("body")[0].all("a")[0].attributes == {"href": "#report", "class": "skip"}
    assert len(root.all("main")) == 1
    levels = [int(node.tag[1]) for node in root.walk() if re.fullmatch("h[1-6]", node.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    for figure in root.all("figure"):
        check_figure(figure)
    for table in root.all("table"):
        assert table.one("caption").text.strip()
        assert all(cell.attributes.get("scope") in ("row", "col") for cell in table.all("th"))
        assert len({len(row) for row in table.rows()}) == 1
    for box in root.all("div", class_="scroll"):
        assert box.attributes["tabindex"] == "0"
        assert box.attributes["aria-label"].strip()
    for node in root.one("main").walk():
        if node.tag != "code":
            own = "".join(child for child in node.children if isinstance(child, str))
            assert not re.search(r"\b(nan|inf|None)\b", own), own
    return root


def check_figure(figure):
    drawn = figure.one("svg", role="img")
    title, description = (figure.one(tag) for tag in ("title", "desc"))
    assert drawn.attributes["aria-labelledby"].split() == [title.attributes["id"], description.attributes["id"]]
    assert title.text.strip()
    assert description.text.strip()
    assert figure.one("figcaption").text.strip()
    assert len(figure.one("details").one("table").all("tr")) > 1
    for node in drawn.walk():
        for name, value in node.attributes.items():
            if name in {"x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "dx", "dy"}:
                assert re.fullmatch(r"-?\d+(\.\d+)?%?", value), (name, value)
            if name == "d":
                assert re.fullmatch(r"(M[-\d. ]+|L[-\d. ]+|[HZ][-\d. ]*)+", value), value
            if name in {"cx", "x1", "x2", "width"} and value.endswith("%"):
                assert -0.01 <= float(value[:-1]) <= 100.01, (name, value)


@pytest.fixture(scope="module")
def stored():
    return facts_and_history()


@pytest.fixture
def facts(stored):
    return copy.deepcopy(stored[0])


@pytest.fixture(scope="module")
def history(stored):
    return stored[1]


@pytest.fixture(scope="module")
def page(stored):
    return checked(render_report(*stored))


def section(root, name):
    return root.one("section", aria_labelledby=name)


def words(node):
    return " ".join(node.text.split())


def numbers(page, figure):
    return page.one("figure", id=figure).one("table").rows()


# ------------------------------------------------------------------------------------------------------- first screen


def test_the_first_screen_says_what_the_model_is_worth(page, facts):
    first = page.one("main").all("section")[0]
    accuracy = facts["evaluation"]["accuracy"]
    low, high = accuracy["interval"]
    said = words(first)
    assert first.one("p", class_="figure").text == f"{accuracy['value']:.1%} 95% interval: {low:.1%} to {high:.1%}"
    assert (
        f"About {100 * accuracy['value']:.0f} of 100 rows are classified right where 50% of the rows are positive."
        in said
    )
    assert "No label was used" in first.one("strong").text
    assert "an estimate from 80 + 80 rows of the two sets, kept out of training, and from" in said
    assert "the shares of positives that were given: 80% in clinic_a.csv and 20% in clinic_b.csv." in said
    assert "That is better than always giving the commoner answer, which is right for 50%." in said


@pytest.mark.parametrize(
    ("value", "interval", "target", "expected"),
    [
        (0.93, [0.88, 0.97], 0.5, "That is better than always giving the commoner answer, which is right for 50%."),
        (0.93, [0.88, 0.97], 0.1, "It cannot be told from always giving the commoner answer, which is right for 90%"),
        (0.93, [0.88, 0.97], 0.99, "That is worse than always giving the commoner answer, which is right for 99%"),
        (0.70, [0.49, 0.91], 0.3, "The interval is wide."),
        (1.04, [0.9, 1.0], 0.5, "An estimate above 100% is no mistake of counting"),
        (0.93, None, 0.5, "93.0% no interval was stored"),
    ],
)
def test_the_verdict_follows_the_interval(facts, history, value, interval, target, expected):
    facts["evaluation"]["accuracy"] |= {"value": value, "interval": interval}
    facts["target_prior"] = target
    said = words(section(checked(render_report(facts, history)), "worth"))
    assert expected in said
    assert ("The interval is wide" in said) == (interval is not None and interval[1] - interval[0] > 0.2)
    assert ("above 100%" in said) == (value > 1)
    assert ("About 93 of 100 rows" in said) == (value == 0.93)


def test_labels_are_owned_up_to(facts, history):
    facts["evaluation"]["labels_used"] = True
    labelled = History(history.epochs, "done", labels_used=True)
    said = words(section(checked(render_report(facts, labelled)), "worth"))
    assert "No label was used" not in said
    assert "Labels were used for this figure: it was counted on 80 + 80 labelled rows" in said
    assert "Labels were passed to watch the training; it did not use them." in said
    del facts["evaluation"]["labels_used"]
    said = words(section(checked(render_report(facts, history)), "worth"))
    assert "No label was used" not in said  # nobody said so
    assert "This is an estimate from 80 + 80 rows" in said


def test_estimated_shares_are_called_so(facts, history):
    facts["priors_estimated"] = {"intervals": [[0.7, 0.85], [0.1, 0.3]]}
    root = checked(render_report(facts, history))
    assert "the shares of positives that were estimated: 80%" in words(section(root, "worth"))
    head, first, second = section(root, "data").all("table")[0].rows()
    assert head[3] == "interval"
    assert (first[3], second[3]) == ("70.0% to 85.0%", "10.0% to 30.0%")


def test_every_warning_has_words_and_a_remedy(facts, history):
    facts["warnings"] = [{"category": name, "message": f"message of {name}"} for name in ADVICE]
    facts["warnings"].append({"category": "GiveawayColumnWarning", "message": "the column age gives away the set."})
    warned = section(checked(render_report(facts, history)), "warnings").all("div", class_="warning")
    assert len(warned) == len(ADVICE) + 1
    for box, (name, (headline, remedy)) in zip(warned, ADVICE.items(), strict=False):
        assert words(box) == f"{headline}message of {name}.What to do: {remedy}"
    assert words(warned[-1]) == "LeakingColumn columnthe column age gives away the set."


def test_every_category_of_warning_is_known():
    from uulearn import exceptions

    categories = {
        name for name, kind in vars(exceptions).items() if isinstance(kind, type) and issubclass(kind, Warning)
    }
    assert set(ADVICE) <= categories


def test_no_warning_is_said(page):
    assert words(section(page, "warnings")) == "WarningsNo warnings."


def test_other_figures_are_those_of_the_judgement(page, facts):
    rows = section(page, "figures").one("table").rows()
    names = ["balanced_accuracy", "true_positive_rate", "false_positive_rate", "auc"]
    for (_, cell), name in zip(rows[1:], names, strict=True):
        low, high = facts["evaluation"][name]["interval"]
        assert cell == f"{facts['evaluation'][name]['value']:.1%}{low:.1%} to {high:.1%}"


# ------------------------------------------------------------------------------------------------- training and data


def test_what_was_trained(page, facts):
    part = section(page, "trained")
    pairs = dict(zip((node.text for node in part.all("dt")), (node.text for node in part.all("dd")), strict=True))
    assert pairs["Trained"] == "2026-11-16 01:02 UTC"
    assert pairs["Time"] == "12 seconds on cpu"
    assert pairs["Software"] == "uulearn 0.1.0, torch 2.13.0"
    assert pairs["Epochs"] == "30, epoch 18 kept"
    assert pairs["Taken as the richer set"] == "clinic_a.csv"
    assert (pairs["Model"], pairs["Method"]) == ("mlp", "leaky_relu")
    assert list(pairs).index("Model") < list(pairs).index("Method")
    assert part.one("code").text == facts["command"]
    assert ["training.epochs", "30"] in part.one("table").rows()
    assert "cannot be read off their rows" in words(part)


def test_the_richer_set_is_the_one_with_more_positives(facts, history):
    facts["set_priors"] = [0.2, 0.8]
    part = section(checked(render_report(facts, history)), "trained")
    pairs = dict(zip((node.text for node in part.all("dt")), (node.text for node in part.all("dd")), strict=True))
    assert pairs["Taken as the richer set"] == "clinic_b.csv"


def test_the_data_in_brief(page, facts):
    part = section(page, "data")
    head, first, second = part.all("table")[0].rows()
    assert head == ["set", "rows", "positive", "training", "choosing", "evaluating"]
    assert first == [
        "clinic_a.csv",
        "255",
        "80%",
        *(str(facts["split"][name][0]) for name in ("train", "choose", "evaluate")),
    ]
    assert second == [
        "clinic_b.csv",
        "260",
        "20%",
        *(str(facts["split"][name][1]) for name in ("train", "choose", "evaluate")),
    ]
    low, high = facts["set_auc"]["interval"]
    assert f"higher in {facts['set_auc']['value']:.1%} (95% interval {low:.1%} to {high:.1%}) of cases" in words(part)
    assert "a model that never errs would reach 80.0%" in words(part)
    assert "31 columns, 30 used (by kind: number 30); the model sees them as 30 numbers a row." in words(part)
    assert "patient: every row has a value of its own." in words(part)
    assert len(part.all("table")[1].rows()) == 32
    assert part.all("table")[1].rows()[2] == ["mean radius", "number", "yes", "1.0%", "0.0%"]


def test_rows_that_serve_twice_are_owned_up_to(facts, history, page):
    rows = [file["rows"] for file in facts["files"]]
    kept_apart = "Rows for evaluating served nothing else; the accuracy at the top is from them."
    assert kept_apart in words(section(page, "data"))
    assert "the accuracy at the top is from other rows" in words(section(page, "training"))
    facts["split"] = {"train": rows, "choose": rows, "evaluate": rows}
    for totals in (rows, [None, None]):
        for file, total in zip(facts["files"], totals, strict=True):
            file["rows"] = total
        root = checked(render_report(facts, history))
        assert "each evaluated by a model that was not trained on it" in words(section(root, "worth"))
        said = words(section(root, "data"))
        assert kept_apart not in said
        assert "every row could be evaluated by a model that was not trained on it. By the same rows the epochs" in said
        assert "from other rows" not in words(section(root, "training"))


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ([0.81, 0.9], "the sets differ in more than their share of positives"),
        ([0.45, 0.6], "the sets may be alike"),
    ],
)
def test_sets_too_far_apart_or_too_alike_are_pointed_out(facts, history, page, interval, expected):
    facts["set_auc"] = {"value": sum(interval) / 2, "interval": interval}
    assert expected in words(section(checked(render_report(facts, history)), "data"))
    assert expected not in words(section(page, "data"))


def test_the_course_is_told_in_words(page, history):
    said = words(section(page, "training"))
    below = sum(record["unbiased"] < 0 for record in history)
    assert "Training ran for 30 epochs and stopped: all 30 epochs done. The weights of epoch 18 were kept" in said
    assert (
        f"the risk went below zero in epoch {history.first_negative_epoch}, and was below zero in {below} of 30" in said
    )
    assert "The epoch that was kept, 18, lies after that." in said
    assert "Training minimised the objective, which may differ" in said


def record(epoch, positive, negative, **more):
    return {"epoch": epoch, "positive": positive, "negative": negative, "unbiased": positive + negative} | more


def test_a_risk_that_never_went_below_zero_is_said_to_be_so(facts):
    course = History([record(1, 0.3, 0.2), record(2, -0.1, 0.3)], "all 2 epochs done")
    root = checked(render_report(facts, course))
    said = words(section(root, "training"))
    assert "the risk never went below zero. Of its two parts, the positive bracket in 1 epoch was below zero." in said
    assert "The weights of the last epoch were kept." in said
    assert "no curves of held-out rows" in said
    assert "risk below 0" not in root.one("figure", id="figure-brackets").text
    assert not root.all("figure", id="figure-accuracy")


@pytest.mark.parametrize(("kept", "where"), [(1, "lies before that"), (2, "is that one"), (3, "lies after that")])
def test_where_the_kept_epoch_lies(facts, kept, where):
    course = History([record(1, 0.3, 0.2), record(2, -0.1, 0.0), record(3, -0.2, 0.0)], "done", best_epoch=kept)
    root = checked(render_report(facts, course))
    assert f"The epoch that was kept, {kept}, {where}." in words(section(root, "training"))
    events = [node.text for node in root.one("figure", id="figure-brackets").all("text", class_="event-name")]
    assert set(events) == {
        "epoch 2: risk below 0",
        *([f"epoch {kept}: kept", "epoch 3: stopped"] if kept < 3 else ["epoch 3: kept, stopped"]),
    }


def test_the_last_epoch_kept_after_the_risk_went_negative_is_pointed_out(facts):
    course = History([record(1, 0.3, 0.2), record(2, -0.1, 0.0)], "done")
    assert "The last epoch was kept all the same" in words(section(checked(render_report(facts, course)), "training"))


def test_several_models_are_told(facts):
    members = [History([record(1, 0.3, 0.2), record(2, -0.1, 0.0)], "done", best_epoch=kept) for kept in (1, 2)]
    said = words(section(checked(render_report(facts, History.mean(members))), "training"))
    assert "2 models were trained, whose scores are averaged; the curves are their means." in said
    assert "They kept the weights of epochs 1 and 2." in said


def test_commands_come_as_they_are(page, facts):
    part = section(page, "commands")
    assert [code.text for code in part.all("code")] == list(facts["commands"].values())
    assert "Score new rows:" in words(part)


# ----------------------------------------------------------------------------------------------------------- figures


def test_every_figure_is_there(page):
    assert {figure.attributes["id"] for figure in page.all("figure")} == FIGURES


def scale(drawn, which):
    """The line from percent of the drawing to the value, fitted to ticks of the axis and their labels."""
    at, values = [], []
    for node in drawn.all("text"):
        number = re.fullmatch(r"(−?[\d,.]+)(%?)", node.text)
        on_axis = node.attributes.get("text-anchor") == ("end" if which == "y" else "middle")
        if number and on_axis and node.attributes[which].endswith("%"):
            at.append(float(node.attributes[which][:-1]))
            values.append(float(number[1].replace("−", "-").replace(",", "")) / (100 if number[2] else 1))
    slope, start = np.polyfit(at, values, 1)
    assert np.allclose(np.polyval([slope, start], at), values, atol=1e-3 * np.ptp(values))
    return lambda place: slope * place + start


def drawn_curves(figure):
    """The points of each curve, read back through the axes."""
    x, y = scale(figure.one("svg", role="img"), "x"), scale(figure.one("svg", role="img"), "y")
    found = {}
    for path in figure.one("svg", role="img").all("path", class_="curve"):
        places = [pair.split() for pair in re.findall(r"[ML]([-\d.]+ [-\d.]+)", path.attributes["d"])]
        found[path.attributes["class"]] = [(x(float(right) / 10), y(float(down) / 10)) for right, down in places]
    return found


@pytest.mark.parametrize(("figure", "prefix"), [("figure-brackets", ""), ("figure-brackets-held-out", "validation_")])
def test_curves_show_the_signed_brackets_and_the_risk(page, history, figure, prefix):
    curves = drawn_curves(page.one("figure", id=figure))
    looks = {"curve first": "positive", "curve second dashed": "negative", "curve total wide": "unbiased"}
    if not prefix:
        looks["curve quiet thin dotted"] = "objective"
    assert set(curves) == set(looks)
    for look, name in looks.items():
        expected = [(entry["epoch"], entry[prefix + name]) for entry in history]
        np.testing.assert_allclose(curves[look], expected, atol=0.02)


def test_the_objective_is_drawn_only_where_it_is_not_the_risk(facts):
    same = [record(epoch, 0.1, 0.2, objective=0.3) for epoch in (1, 2)]
    root = checked(render_report(facts, History(same, "done")))
    assert "objective" not in root.one("figure", id="figure-brackets").text


def test_the_accuracy_curve_is_one_minus_the_held_out_error(page, history):
    curves = drawn_curves(page.one("figure", id="figure-accuracy"))
    expected = [(entry["epoch"], 1 - entry["validation_zero_one"]) for entry in history]
    np.testing.assert_allclose(curves["curve first"], expected, atol=0.02)


def test_labelled_test_rows_have_a_curve_of_their_own(facts):
    course = History([record(e, 0.1, 0.1, validation_zero_one=0.2, test_accuracy=0.5 + e / 10) for e in (1, 2)], "done")
    figure = checked(render_report(facts, course)).one("figure", id="figure-accuracy")
    np.testing.assert_allclose(drawn_curves(figure)["curve third dashed"], [(1, 0.6), (2, 0.7)], atol=0.01)
    assert figure.one("table").rows()[1:] == [["1", "80.0%", "60.0%"], ["2", "80.0%", "70.0%"]]


def test_events_stand_at_their_epochs(page, history):
    drawn = page.one("figure", id="figure-brackets").one("svg", role="img")
    x = scale(drawn, "x")
    lines = [x(float(line.attributes["x1"][:-1])) for line in drawn.all("line", class_="event")]
    assert sorted(round(place) for place in lines) == sorted([history.first_negative_epoch, history.best_epoch, 30])
    (below,) = [line for line in drawn.all("line", class_="event") if line.attributes["class"] == "event"]
    assert round(x(float(below.attributes["x1"][:-1]))) == history.first_negative_epoch


def test_names_of_outer_events_stand_above_those_further_in(facts):
    course = History([record(epoch, 0.5 - epoch / 190, 0.0) for epoch in range(1, 101)], "done", best_epoch=90)
    drawn = checked(render_report(facts, course)).one("figure", id="figure-brackets").one("svg", role="img")
    names = sorted(drawn.all("text", class_="event-name"), key=lambda node: float(node.attributes["y"]))
    assert [node.text for node in names] == ["epoch 100: stopped", "epoch 96: risk below 0", "epoch 90: kept"]
    assert {node.attributes["text-anchor"] for node in names} == {"end"}


def test_the_ground_below_zero_ends_at_zero(page):
    drawn = page.one("figure", id="figure-brackets").one("svg", role="img")
    y = scale(drawn, "y")
    ground = drawn.one("rect", class_="ground").attributes
    assert y(float(ground["y"][:-1])) == pytest.approx(0, abs=1e-3)
    assert float(ground["y"][:-1]) + float(ground["height"][:-1]) == pytest.approx(100, abs=0.02)


def test_tables_of_epochs_hold_what_was_recorded(page, history):
    rows = numbers(page, "figure-brackets")
    assert rows[0] == ["epoch", "positive bracket", "negative bracket", "risk", "objective"]
    assert len(rows) == 31
    last = history[-1]
    expected = [f"{last[name]:+.4f}".replace("-", "−") for name in ("positive", "negative", "unbiased", "objective")]
    assert rows[-1] == ["30", *expected]


def test_long_courses_have_short_tables_with_all_that_matters(facts):
    records = [record(epoch, 0.5 - epoch / 700, 0.1) for epoch in range(1, 502)]
    course = History(records, "done", best_epoch=100)
    rows = numbers(checked(render_report(facts, course)), "figure-brackets")
    shown = {int(row[0]) for row in rows[1:]}
    assert len(rows) < 250
    assert {1, 100, course.first_negative_epoch, 501} <= shown
    assert (
        len(drawn_curves(checked(render_report(facts, course)).one("figure", id="figure-brackets"))["curve first"])
        == 501
    )


def test_missing_epochs_break_the_curve(facts):
    values = [0.5, 0.4, math.nan, 0.2, math.nan, 0.1]
    course = History([{"epoch": e, "positive": v, "negative": 0.1} for e, v in enumerate(values, 1)], "done")
    drawn = checked(render_report(facts, course)).one("figure", id="figure-brackets").one("svg", role="img")
    assert drawn.one("path", class_="first").attributes["d"].count("M") == 1
    assert len(drawn.all("circle", class_="first")) == 2  # epochs 4 and 6 stand alone


def test_targets_are_drawn_and_listed(page, facts):
    figure = page.one("figure", id="figure-targets")
    curves = drawn_curves(figure)
    expected = [(target["target_prior"], target["accuracy"]) for target in facts["targets"]]
    np.testing.assert_allclose(curves["curve first wide"], expected, atol=0.005)
    np.testing.assert_allclose(curves["curve quiet thin dotted"], [(p, max(p, 1 - p)) for p, _ in expected], atol=0.005)
    rows = figure.one("table").rows()
    assert len(rows) == 20
    low, high = facts["targets"][0]["interval"]
    threshold = facts["targets"][0]["threshold"]
    assert rows[1] == ["5%", f"{expected[0][1]:.1%}", f"{low:.1%} to {high:.1%}", f"+{threshold:.3f}", "95.0%"]
    band = figure.one("path", class_="fill").attributes["d"]
    assert band.count("L") == 2 * 19 - 1
    assert [node.text for node in figure.all("text", class_="event-name")] == ["trained for 50%"]


def test_sensitivity_rows_are_drawn_and_listed(page, facts):
    figure = page.one("figure", id="figure-sensitivity")
    given = facts["sensitivity"]["rows"]
    drawn = figure.one("svg", role="img")
    x = scale(drawn, "x")
    dots = [x(float(dot.attributes["cx"][:-1])) for dot in drawn.all("circle")]
    np.testing.assert_allclose(dots, [row["accuracy"] for row in given], atol=0.002)
    whiskers = [
        [x(float(line.attributes[end][:-1])) for end in ("x1", "x2")] for line in drawn.all("line", class_="whisker")
    ]
    np.testing.assert_allclose(whiskers, [row["interval"] for row in given], atol=0.002)
    rows = figure.one("table").rows()
    assert [row[0] for row in rows[1:6]] == ["as given", "θ − 0.1", "θ − 0.05", "θ + 0.05", "θ + 0.1"]
    assert rows[2][1] == f"{given[1]['accuracy']:.1%}"
    conclusion = facts["sensitivity"]["conclusion"]
    assert conclusion[0].upper() + conclusion[1:] in words(section(page, "sensitivity"))


def test_names_of_parameters_become_letters(facts, history):
    facts["sensitivity"]["rows"] = [{"parameter": "theta_prime", "error": 0.1, "accuracy": 0.8, "interval": [0.7, 0.9]}]
    assert numbers(checked(render_report(facts, history)), "figure-sensitivity")[1][0] == "θ′ + 0.1"


def test_the_histogram_shows_shares_and_its_table_counts(page, facts):
    figure = page.one("figure", id="figure-scores")
    counts = np.array(facts["histogram"]["counts"])
    rows = figure.one("table").rows()
    assert rows[0] == ["score", "clinic_a.csv", "clinic_b.csv"]
    assert [[int(cell) for cell in row[1:]] for row in rows[1:]] == counts.T.tolist()
    assert counts.sum(axis=1).tolist() == [80, 80]
    curves = drawn_curves(figure)
    for look, side in zip(("curve first", "curve second dashed"), counts, strict=True):
        heights = [height for _, height in curves[look][1:-1:2]]
        np.testing.assert_allclose(heights, side / 80, atol=0.002)
        lefts = [left for left, _ in curves[look][1:-1:2]]
        np.testing.assert_allclose(lefts, facts["histogram"]["edges"][:-1], atol=0.03)


def test_the_most_influential_columns_come_first(page, facts, history):
    figure = page.one("figure", id="figure-importance")
    top = facts["importance"][:12]
    drawn = figure.one("svg", role="img")
    assert [node.text.strip("\u2068\u2069") for node in drawn.all("text", class_="name")] == [
        entry["column"] for entry in top
    ]
    x = scale(drawn, "x")
    ends = [x(float(bar.attributes["x"][:-1]) + float(bar.attributes["width"][:-1])) for bar in drawn.all("rect")]
    np.testing.assert_allclose(ends, [entry["drop"] for entry in top], atol=5e-4)
    assert len(figure.one("table").rows()) == 31
    first = facts["importance"].pop(0)
    facts["importance"].append(first)
    again = checked(render_report(facts, history)).one("figure", id="figure-importance")
    assert again.all("text", class_="name")[0].text.strip("\u2068\u2069") == first["column"]


# ------------------------------------------------------------------------------------------- what is missing or wrong


@pytest.fixture(scope="module")
def brief(stored):
    """The same facts with little in each list, for tests that make many pages."""
    facts = copy.deepcopy(stored[0])
    for name in ("columns", "importance", "targets"):
        del facts[name][2:]
    return facts, History(stored[1].epochs[:3], "done", best_epoch=2)


@pytest.mark.parametrize("how", ["removed", "null"])
def test_any_missing_fact_leaves_a_sound_page(brief, how):
    for name in brief[0]:
        facts = copy.deepcopy(brief[0])
        if how == "removed":
            del facts[name]
        else:
            facts[name] = None
        checked(render_report(facts, brief[1]))


def test_parts_within_may_be_missing(brief):
    """Every key of every mapping inside the facts, one at a time."""
    for name, value in brief[0].items():
        inner = value if isinstance(value, dict) else value[0] if isinstance(value, list) and value else None
        for key in inner if isinstance(inner, dict) else ():
            facts = copy.deepcopy(brief[0])
            place = facts[name] if isinstance(value, dict) else facts[name][0]
            del place[key]
            checked(render_report(facts, brief[1]))


def test_a_page_of_nothing_says_so():
    root = checked(render_report({}, History()))
    assert not root.all("figure")
    for name, sentence in {
        "worth": "No estimate was stored with this model",
        "figures": "No other figure was stored.",
        "trained": "Nothing was stored about the training.",
        "data": "The files were not recorded.",
        "training": "No epoch was recorded, so there are no curves.",
        "targets": "The accuracy at other shares of positives was not estimated.",
        "sensitivity": "What wrong shares of positives would do was not tried.",
        "scores": "The scores were not recorded.",
        "importance": "The influence of the columns was not measured for this model.",
        "commands": "No commands were stored.",
    }.items():
        assert sentence in words(section(root, name))


def test_a_skipped_sensitivity_says_why(facts, history):
    facts["sensitivity"] = {"skipped": "there were too few rows to train again"}
    part = section(checked(render_report(facts, history)), "sensitivity")
    assert words(part).endswith("would do was not tried. There were too few rows to train again.")
    assert not part.all("figure")


def test_unknown_facts_are_ignored(facts, history):
    before = render_report(facts, history)
    facts["from_the_future"] = {"anything": object()}
    facts["evaluation"]["f_score"] = {"value": 0.1}
    facts["targets"][0]["cost"] = [[]]
    assert render_report(facts, history) == before


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (["seconds"], "long", "facts['seconds'] must be a number, got 'long'"),
        (["seconds"], True, "facts['seconds'] must be a number, got True"),
        (["created"], 5, "facts['created'] must be a text, got 5"),
        (["files"], "a.csv", "facts['files'] must be a list, got 'a.csv'"),
        (["files", 0], "a.csv", "facts['files'][0] must be a mapping"),
        (["columns", 3, "used"], "yes", "facts['columns'][3]['used'] must be true or false, got 'yes'"),
        (["set_priors"], [0.8], "facts['set_priors'] must be two numbers, got [0.8]"),
        (["set_priors"], ["a", "b"], "facts['set_priors'] must be a number, got 'a'"),
        (["evaluation"], [1], "facts['evaluation'] must be a mapping"),
        (
            ["evaluation", "accuracy", "value"],
            "0.9",
            "facts['evaluation']['accuracy']['value'] must be a number, got '0.9'",
        ),
        (
            ["evaluation", "accuracy", "interval"],
            [1, 2, 3],
            "facts['evaluation']['accuracy']['interval'] must be two numbers",
        ),
        (["histogram", "edges"], [0, 1], "facts['histogram'] must have k + 1 edges and k counts"),
        (["histogram", "counts"], 7, "facts['histogram']['counts'] must be a list, got 7"),
        (["histogram", "counts", 0], 7, "facts['histogram']['counts'][0] must be a list, got 7"),
        (["importance"], {"age": 1}, "facts['importance'] must be a list"),
        (["sensitivity"], "none", "facts['sensitivity'] must be a mapping"),
        (["notes"], [1], "facts['notes'] must be a text, got 1"),
        (["warnings"], [["a", "b"]], "facts['warnings'][0] must be a mapping"),
        (["commands", "predict"], 1, "facts['commands']['predict'] must be a text, got 1"),
        (
            ["priors_estimated"],
            {"intervals": [[1, 2, 3]]},
            "facts['priors_estimated']['intervals'][0] must be two numbers",
        ),
        (["configuration"], "x", "facts['configuration'] must be a mapping"),
    ],
)
def test_a_wrong_type_is_named(facts, history, path, value, expected):
    place = facts
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=re.escape(expected)) as caught:
        render_report(facts, history)
    assert str(caught.value).endswith("which writes it.")
    assert "\n" not in str(caught.value)


def test_wrong_arguments_are_refused(facts, history):
    with pytest.raises(ValueError, match="facts must be a mapping from names to values, got list"):
        render_report([], history)
    with pytest.raises(TypeError, match="history must be a uulearn.training.History, got dict"):
        render_report(facts, history.to_dict())
    with pytest.raises(TypeError, match="title must be a text, got 3"):
        render_report(facts, history, title=3)
    with pytest.raises(ValueError, match=re.escape("history[0]['positive'] must be a number, got 'x'")):
        render_report(facts, History([{"epoch": 1, "positive": "x"}]))
    with pytest.raises(ValueError, match=re.escape("history['stop_reason'] must be a text, got 3")):
        render_report(facts, History([], stop_reason=3))


def test_not_a_number_is_missing(facts, history):
    without = copy.deepcopy(facts)
    for where, key in [("evaluation", "auc"), ("evaluation", "accuracy")]:
        facts[where][key]["interval"] = [math.nan, 1.0]
        without[where][key]["interval"] = None
    facts["seconds"], without["seconds"] = math.inf, None
    facts["targets"][3]["accuracy"] = math.nan
    del without["targets"][3]
    facts["importance"][2]["standard_error"] = math.nan
    without["importance"][2]["standard_error"] = None
    facts["set_auc"]["value"], without["set_auc"] = math.nan, None
    facts["features"], without["features"] = 10**400, None
    assert render_report(facts, history) == render_report(without, history)


# ---------------------------------------------------------------------------------------------------------- escaping


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(facts, history, name):
    honest = [node.tag for node in checked(render_report(facts, history, title="title")).walk()]
    facts["files"][0]["name"] = facts["command"] = facts["notes"][0] = name
    facts["columns"][0] |= {"name": name, "why": name}
    facts["columns"][1]["kind"] = name
    facts["importance"][0]["column"] = name
    facts["sensitivity"]["conclusion"] = name
    facts["commands"]["predict"] = name
    facts["device"] = facts["created"] = name
    facts["configuration"]["training"]["model"] = name
    changed = History(history.epochs, name, best_epoch=history.best_epoch)
    root = checked(render_report(facts, changed, title=name))
    assert sorted(node.tag for node in root.walk() if node.tag not in {"time", "bdi"}) == sorted(
        tag for tag in honest if tag not in {"time", "bdi"}
    )
    assert root.one("h1").text == root.one("head").one("title").text == name
    assert section(root, "trained").one("code").text == name
    assert section(root, "commands").all("code")[0].text == name
    assert section(root, "data").all("table")[0].rows()[1][0] == name
    assert root.one("figure", id="figure-importance").one("table").rows()[1][0] == name
    assert name in root.one("figure", id="figure-importance").one("desc").text
    assert any(node.text == f"\u2068{name}\u2069" for node in root.all("text"))


def test_warnings_are_escaped(facts, history):
    facts["warnings"] = [{"category": "<script>", "message": name} for name in HOSTILE]
    warned = section(checked(render_report(facts, history)), "warnings").all("div", class_="warning")
    assert [box.one("bdi").text.rstrip(".") for box in warned] == HOSTILE


def test_very_long_names_are_cut(facts, history):
    facts["columns"][1]["name"] = facts["importance"][0]["column"] = facts["files"][0]["name"] = "x" * 5000
    facts["notes"] = ["y" * 5000]
    page = render_report(facts, history)
    assert "x" * 121 not in page
    assert "x" * 119 + "…" in page
    assert "y" * 1001 not in page
    label = checked(page).one("figure", id="figure-importance").all("text", class_="name")[0].text
    assert label == f"\u2068{'x' * 39}…\u2069"


def test_what_cannot_be_seen_is_spelled_out(facts, history, tmp_path):
    facts["columns"][1]["name"] = "age\x00\u202egpj\ud800\u2069\uffff\x85"
    path = write_report(tmp_path / "report.html", facts, history)  # a lone surrogate could not be written
    cell = section(checked(path.read_text("utf-8")), "data").all("table")[1].rows()[2][0]
    assert cell == r"age\x00\u202egpj\ud800\u2069\uffff\x85"


@given(st.text(max_size=30))
def test_any_text_comes_back_from_the_page(text):
    root = parse(f"<p>{join(text)}</p>{element('p', title=text)}")
    paragraph, titled = root.all("p")
    assert paragraph.text == titled.attributes["title"] == visible(text)
    assert visible(visible(text)) == visible(text)
    visible(text).encode("utf-8")  # which a lone surrogate would refuse


@given(st.text(max_size=60), st.integers(2, 40))
def test_shortened_text_is_a_beginning(text, units):
    short = shorten(text, units)
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))
    assert len(short.encode("utf-16-le", "surrogatepass")) >= 0
    assert named(text, units).startswith("<bdi>")


def test_html_joined_to_text_is_text_again():
    assert join(Html("<b>") + "x") == "&lt;b&gt;x"
    assert join([Html("<i>"), None, 3, "&"]) == "<i>3&amp;"


# -------------------------------------------------------------------------------------------------- the page's promises


def test_nothing_is_loaded_and_nothing_runs(stored):
    page = render_report(*stored)
    policy = parse(page).one("meta", http_equiv="Content-Security-Policy").attributes["content"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["style-src"] == "'unsafe-inline'"
    assert rules["img-src"] == "data:"
    assert "script-src" not in rules
    assert "url(" not in page
    assert "@import" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_the_page_is_the_same_every_time(stored):
    assert render_report(*stored) == render_report(*stored)


def colours(page):
    """The colours of the light and of the dark theme, from the style sheet."""
    light, dark = re.findall(r":root \{([^}]*)\}", page)
    assert re.search(r"@media screen and \(prefers-color-scheme: dark\) \{ :root", page)
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", theme)) for theme in (light, dark)]


def luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_the_contrast_is_measured_right():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_can_be_told_apart(stored, theme):
    page = render_report(*stored)
    found = colours(page)[theme]
    used = set(re.findall(r"var\(--([\w-]+)\)", page))
    assert used == set(found)
    for ground, inks in READ_ON.items():
        for ink in inks:
            assert contrast(found[ink], found[ground]) >= 4.5, (ink, ground)
    assert {ink for inks in READ_ON.values() for ink in inks} | set(READ_ON) | {"line"} == used


def test_classes_of_the_page_are_those_of_the_style_sheet(page, stored):
    style = page.one("style").text
    used = {name for node in page.walk() for name in (node.attributes.get("class") or "").split()}
    assert {name for name in used if f".{name}" not in style} == set()


def test_a_report_is_written_whole_or_not_at_all(tmp_path, stored, monkeypatch):
    path = tmp_path / "new" / "report.html"
    assert write_report(path, *stored, title="mine") == path
    assert path.read_text("utf-8") == render_report(*stored, title="mine")
    with pytest.raises(ValueError):
        write_report(path, {"seconds": "x"}, stored[1])
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(str(path), {}, History())
    assert path.read_text("utf-8") == render_report(*stored, title="mine")
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


def test_the_core_install_suffices():
    """No module of the room imports anything but the standard library and what the package itself needs."""
    allowed = {*sys.stdlib_module_names, "uulearn"}
    modules = sorted(Path(report.__file__).parent.glob("*.py"))
    assert len(modules) > 5
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for imported in names:
                assert imported.split(".")[0] in allowed
                if imported.startswith("uulearn."):
                    assert imported.split(".")[1] in {"report", "training"}


# ---------------------------------------------------------------------------------------------------------- extremes

number = st.one_of(
    st.floats(-3, 3), st.floats(allow_nan=True, allow_infinity=True), st.integers(-(10**30), 10**30), st.none()
)
share = st.floats(0, 1)
name = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=12))
pair = st.one_of(st.none(), st.tuples(share, share).map(sorted))
estimate = st.fixed_dictionaries(
    {"value": number}, optional={"interval": pair, "confidence": st.sampled_from([0.9, 0.95])}
)
extreme_facts = st.fixed_dictionaries(
    {},
    optional={
        "created": name,
        "seconds": number,
        "device": name,
        "command": name,
        "files": st.lists(
            st.fixed_dictionaries({"name": name}, optional={"rows": number, "prior": number}), max_size=3
        ),
        "columns": st.lists(
            st.fixed_dictionaries(
                {"name": name}, optional={"kind": name, "used": st.booleans(), "why": name, "missing": pair}
            ),
            max_size=4,
        ),
        "features": number,
        "set_priors": st.tuples(number, number),
        "target_prior": number,
        "priors_estimated": st.fixed_dictionaries({}, optional={"intervals": st.lists(pair.filter(bool), max_size=3)}),
        "split": st.dictionaries(st.sampled_from(["train", "choose", "evaluate", "else"]), st.tuples(number, number)),
        "set_auc": estimate,
        "evaluation": st.fixed_dictionaries(
            {},
            optional={
                "accuracy": estimate,
                "auc": estimate,
                "sizes": st.tuples(number, number),
                "labels_used": st.booleans(),
            },
        ),
        "targets": st.lists(
            st.fixed_dictionaries(
                {"target_prior": number, "accuracy": number}, optional={"interval": pair, "threshold": number}
            ),
            max_size=4,
        ),
        "histogram": st.lists(number, min_size=2, max_size=5).flatmap(
            lambda edges: st.fixed_dictionaries(
                {
                    "edges": st.just(edges),
                    "counts": st.lists(
                        st.lists(st.integers(0, 9), min_size=len(edges) - 1, max_size=len(edges) - 1),
                        min_size=2,
                        max_size=2,
                    ),
                }
            )
        ),
        "importance": st.lists(
            st.fixed_dictionaries({"column": name, "drop": number}, optional={"standard_error": number}), max_size=3
        ),
        "sensitivity": st.fixed_dictionaries(
            {},
            optional={
                "rows": st.lists(
                    st.fixed_dictionaries({"parameter": name, "error": number, "accuracy": number, "interval": pair}),
                    max_size=3,
                ),
                "conclusion": name,
            },
        ),
        "notes": st.lists(name, max_size=2),
        "warnings": st.lists(st.fixed_dictionaries({}, optional={"category": name, "message": name}), max_size=2),
        "commands": st.dictionaries(name, name, max_size=2),
        "configuration": st.dictionaries(
            name, st.one_of(number.filter(lambda n: n is not None and math.isfinite(n)), name), max_size=2
        ),
    },
)
columns = st.sampled_from(
    ["positive", "negative", "unbiased", "objective", "validation_zero_one", "validation_unbiased", "test_accuracy"]
)
extreme_history = st.builds(
    lambda records, kept: History(
        [{"epoch": e} | record for e, record in enumerate(records, 1)], "done", best_epoch=kept
    ),
    st.lists(st.dictionaries(columns, number, max_size=5), max_size=4),
    st.one_of(st.none(), st.integers(1, 5)),
)


@settings(max_examples=80)
@given(extreme_facts, extreme_history)
def test_no_facts_break_the_page(facts, history):
    # HTML allows every text as a name, but these words are also what a forgotten number would look like.
    page = render_report(facts, history)
    checked(page)
    assert parse(render_report(json.loads(json.dumps(facts)), history)).text == parse(page).text


@pytest.mark.parametrize("epochs", [1, 2, 500])
@pytest.mark.parametrize("columns", [1, 300])
def test_small_and_large_models(facts, epochs, columns):
    facts["columns"] = facts["columns"][1:2] * columns
    facts["importance"] = facts["importance"][:1] * columns
    held_out = {
        "validation_positive": 0.2,
        "validation_negative": 0.1,
        "validation_unbiased": 0.3,
        "validation_zero_one": 0.1,
    }
    course = History(
        [record(e, 0.2, 0.1, objective=0.3, **held_out) for e in range(1, epochs + 1)], "done", best_epoch=1
    )
    root = checked(render_report(facts, course))
    assert {figure.attributes["id"] for figure in root.all("figure")} == FIGURES
    assert len(root.one("figure", id="figure-importance").all("rect")) == min(columns, 12)
    assert len(section(root, "data").all("table")[1].rows()) == columns + 1
    drawn = root.one("figure", id="figure-accuracy").one("svg", role="img")
    assert len(drawn.all("circle")) == (epochs == 1)


# --------------------------------------------------------------------------------------------------------- small parts


@given(
    st.lists(st.floats(-1e9, 1e9) | st.floats(-1e99, 1e99), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
)
@example([562949953421313.0], True, False)
def test_an_axis_holds_its_values_and_has_few_round_ticks(values, percents, tight):
    found = axis(values, percent=percents, tight=tight)
    room = 1e-6 * (found.high - found.low)
    assert all(found.low - room <= value <= found.high + room for value in values)
    assert all(-1e-6 <= found.place(tick) <= 1 + 1e-6 for tick in found.ticks)
    assert 2 <= len(found.ticks) <= 12
    steps = np.diff(found.ticks)
    assert np.allclose(steps, steps[0])
    mantissa = steps[0] / 10.0 ** math.floor(math.log10(steps[0]) + 1e-6)
    assert min(abs(mantissa - round_one) for round_one in (1, 2, 2.5, 5)) < 1e-3


@given(st.integers(1, 10**6), st.integers(0, 10**6))
def test_an_axis_of_epochs_has_whole_ticks(first, length):
    found = axis([first, first + length], whole=True, tight=True)
    assert all(tick == round(tick) for tick in found.ticks)
    assert len(set(found.labels)) == len(found.labels)
    if length:
        assert (found.low, found.high) == (first, first + length)


@pytest.mark.parametrize(
    ("values", "options", "labels"),
    [
        ([0.62, 0.97], {"percent": True}, ("60%", "70%", "80%", "90%", "100%")),
        ([-0.13, 0.8], {}, ("−0.2", "0.0", "0.2", "0.4", "0.6", "0.8")),
        ([0.0, 0.11], {}, ("0.000", "0.025", "0.050", "0.075", "0.100", "0.125")),
        ([-2e7, 3e7], {}, ("−2e+07", "−1e+07", "0", "1e+07", "2e+07", "3e+07")),
        ([0.9, 0.9], {"percent": True}, ("84%", "86%", "88%", "90%", "92%", "94%", "96%")),
        ([1, 1], {"whole": True, "tight": True}, ("0", "1", "2")),
        ([], {}, ("0.0", "0.2", "0.4", "0.6", "0.8", "1.0")),
    ],
)
def test_labels_of_an_axis(values, options, labels):
    assert axis(values, **options).labels == labels


@given(st.floats(-1e5, 1e5))
def test_numbers_keep_their_sign_and_value(value):
    for written, decimals in ((signed(value), 3), (plain(value), 3), (percent(value / 100)[:-1], 1)):
        back = float(written.replace("−", "-").replace(",", ""))
        assert abs(back - value) <= 0.5 * 10**-decimals + 1e-6
        assert "-" not in written
        assert "−0.0" not in written or back < 0


def test_large_numbers_stay_short():
    assert (count(1e20), signed(-1e9), plain(2.5e7), duration(3e6)) == ("1e+20", "−1e+09", "2.5e+07", "833 h 20 min")


def test_reading_leaves_the_facts_alone(stored):
    before = copy.deepcopy(stored[0])
    read_facts(stored[0])
    read_course(stored[1])
    assert stored[0] == before
