"""Output of classifiers and results in notebooks."""

import math
import re
import xml.etree.ElementTree as ElementTree
from copy import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uulearn import UUClassifier
from uulearn.estimator.html import ResultsBelowDiagram
from uulearn.markup import notebook
from uulearn.metrics import Estimate, Evaluation
from uulearn.priors import SetPriorsEstimate, estimate_target_prior
from uulearn.priors.labels import Interval
from uulearn.selection import UUClassifierCV, prior_sensitivity
from uulearn.training import History

FAST = {"model": "linear", "n_estimators": 2, "epochs": 4, "lr": 0.05, "random_state": 0, "progress": False}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a\u202egpj.exe",
    "</style></svg><b>",
    "x" * 99,
]


def classifier(**changes):
    return UUClassifier((0.8, 0.2), **FAST | changes)


@pytest.fixture(scope="module")
def sets():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(300, 5)) + 1.5 * (2 * (rng.random((300, 1)) < prior) - 1) for prior in (0.8, 0.2)]


@pytest.fixture(scope="module")
def fitted(sets):
    return classifier().fit_sets(*sets)


def parsed(html):
    """The results as a tree of XML; every tag must be closed, and nothing may be loaded, run or named."""
    root = ElementTree.fromstring(html)
    for node in root.iter():
        assert node.tag.rpartition("}")[2] in {
            *("div", "span", "table", "tbody", "tr", "th", "td", "b"),
            *("svg", "title", "line", "circle", "text", "polyline"),
        }
        assert not node.attrib.keys() & {"id", "href", "src"}
        assert not any(name.startswith("on") or "url(" in value for name, value in node.attrib.items())
    return root


def text_of(node):
    return " ".join(" ".join(node.itertext()).split())


def svg(root, name):
    return root.iter(f"{{http://www.w3.org/2000/svg}}{name}")


def facts_in(root):
    """The first two cells of all rows of tables."""
    rows = [[text_of(cell) for cell in row][:2] for row in root.iter("tr")]
    return {row[0]: row[1] for row in rows if row[0]}


# ----------------------------------------------------------------------------------------------------------- classifier


def test_fitted_classifier_shows_diagram_and_results(fitted):
    html = fitted._repr_html_()
    results = fitted.results_html()
    assert html.endswith(results)
    assert html.removesuffix(results).count("sk-top-container") >= 1
    assert fitted._repr_mimebundle_()["text/html"].endswith(results)
    root = parsed(results)
    facts, accuracy = facts_in(root), fitted.out_of_fold_evaluation_.accuracy
    low, high = accuracy.interval
    assert facts["accuracy"] == f"{accuracy.value:.3f} ({low:.3f} to {high:.3f})"
    assert facts["sets"] == "set 0: 300 rows, 80.0% positive; set 1: 300 rows, 20.0% positive"
    assert facts["target prior"] == "50.0% positive"
    assert (facts["model"], facts["labels"]) == ("linear", "none used")
    assert facts["ensemble"].startswith("2 models")
    assert "stopped: all 4 epochs done" in text_of(root)
    assert "Warning" not in text_of(root)


def test_bar_shows_the_interval(fitted):
    accuracy = fitted.out_of_fold_evaluation_.accuracy
    root = parsed(accuracy._repr_html_())
    scale, bar = (next(line for line in svg(root, "line") if line.get("class") == name) for name in (None, "interval"))
    start, width = float(scale.get("x1")), float(scale.get("x2")) - float(scale.get("x1"))
    ends = [(float(bar.get(end)) - start) / width for end in ("x1", "x2")]
    assert ends == pytest.approx(accuracy.interval, abs=0.001)
    dot = next(svg(root, "circle"))
    assert (float(dot.get("cx")) - start) / width == pytest.approx(accuracy.value, abs=0.001)


def test_estimates_outside_zero_and_one_have_no_bar():
    for value, interval in ((-0.33, (-0.4, -0.26)), (1.2, (0.9, 1.5)), (0.02, (-0.01, 0.05))):
        root = parsed(Estimate(value, 0.03, interval)._repr_html_())
        assert f"{value:.3f} ({interval[0]:.3f} to {interval[1]:.3f})" in text_of(root)
        assert not list(svg(root, "svg"))


def test_curves_show_the_risks(fitted):
    root = parsed(fitted.history_._repr_html_())
    curves = [line.get("points").split() for line in svg(root, "polyline")]
    assert [len(points) for points in curves] == [4, 4]
    heights = [[float(point.split(",")[1]) for point in points] for points in curves]
    for shown, name in zip(heights, ("unbiased", "validation_unbiased"), strict=True):
        values = fitted.history_.column(name)
        slope, _ = np.polyfit(values, shown, 1)
        assert slope < 0  # the y axis of SVG points down
        assert np.corrcoef(values, shown)[0, 1] < -0.999


def test_text_display_has_no_html(fitted):
    with sklearn.config_context(display="text"):
        assert not hasattr(fitted, "_repr_html_")
        assert fitted._repr_mimebundle_().keys() == {"text/plain"}
    assert hasattr(fitted, "_repr_html_")


class Diagram:
    """An estimator with only the public protocol of IPython."""

    @property
    def _repr_html_(self):
        return lambda: "diagram"

    def _repr_mimebundle_(self, **known):
        return {"text/html": "diagram"}


class WithResults(ResultsBelowDiagram, Diagram):
    def results_html(self):
        return " and results"


def test_only_the_public_protocol_is_used():
    assert WithResults()._repr_html_() == "diagram and results"
    assert WithResults()._repr_mimebundle_() == {"text/html": "diagram and results"}


@pytest.mark.parametrize("estimator", [UUClassifier, UUClassifierCV])
def test_no_private_name_of_a_base_class_is_overridden(estimator):
    ours = [cls for cls in estimator.__mro__ if cls.__module__.startswith("uulearn")]
    private = {name for cls in ours for name in vars(cls) if name.startswith("_") and not name.endswith("_")}
    others = {name for cls in estimator.__mro__ if cls not in ours for name in vars(cls)}
    assert private & others == set()


def test_unfitted_cloned_and_pipeline(fitted, sets):
    for own in (classifier(), clone(fitted)):
        assert own.results_html() == ""
        assert "sk-top-container" in own._repr_html_()
        assert "Estimated without labels" not in own._repr_html_()
    model = make_pipeline(StandardScaler(), classifier()).fit(np.concatenate(sets), np.repeat([0, 1], 300))
    assert "UUClassifier" in model._repr_html_()
    parsed(model[-1].results_html())


def test_loaded_classifier_shows_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    assert UUClassifier.load(tmp_path / "model").results_html() == fitted.results_html()


def test_two_outputs_share_no_id(fitted):
    html = fitted._repr_html_() + fitted._repr_html_()
    ids = re.findall(r'\bid="([^"]+)"', html)
    containers = [name for name in ids if name.startswith("sk-container-id")]
    assert len(set(containers)) == len(containers) == 2
    assert "id=" not in fitted.results_html()


def test_hostile_column_names_are_text(sets):
    clf = classifier(epochs=1).fit_sets(*(pd.DataFrame(rows, columns=HOSTILE) for rows in sets))
    facts = facts_in(parsed(clf.results_html()))
    assert facts["columns"] == ", ".join(
        [f"5: {HOSTILE[0]}", HOSTILE[1], "a\\u202egpj.exe", HOSTILE[3], "x" * 29 + "…"]
    )
    html = clf._repr_html_()
    assert "<script>alert" not in html
    assert "<img" not in html


def test_many_columns_are_shortened():
    rng = np.random.default_rng(0)
    wide = [
        pd.DataFrame(rng.normal(mean, size=(100, 15)), columns=[f"c{place}" for place in range(15)])
        for mean in (0.5, -0.5)
    ]
    facts = facts_in(parsed(classifier(epochs=1).fit_sets(*wide).results_html()))
    assert facts["columns"] == "15: c0, c1, c2, c3, c4, c5, c6, c7 and 7 more"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"n_estimators": 1, "validation_fraction": 0.0}, "Warning: no rows were held out"),
        ({"n_estimators": 1, "validation_fraction": 0.2}, "Error on the held-out rows in the best epoch: "),
        ({"set_priors": None, "method": "biased"}, "class priors are unknown"),
    ],
)
def test_says_why_there_is_no_interval(sets, changes, expected):
    clf = classifier().set_params(**changes).fit_sets(*sets)
    text = text_of(parsed(clf.results_html()))
    assert expected in text
    assert "accuracy 0." not in text


def test_warns_about_imprecise_estimates(sets):
    few = classifier().fit_sets(*(rows[:30] for rows in sets))
    assert few.out_of_fold_evaluation_.accuracy.is_imprecise
    points = 100 * few.out_of_fold_evaluation_.accuracy.half_width
    assert f"Warning: too few rows to estimate the accuracy precisely (±{points:.0f} points)." in text_of(
        parsed(few.results_html())
    )


@pytest.mark.filterwarnings("ignore::uulearn.exceptions.UUWarning")
def test_warns_if_no_better_than_a_constant(sets):
    text = text_of(parsed(classifier(target_prior=0.97).fit_sets(*sets).results_html()))
    assert "Warning: the model is possibly no better than always predicting the more frequent class (97.0%" in text


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        (Estimate(0.9, 0.02, (0.86, 0.94)), None),
        (Estimate(0.7, 0.02, (0.66, 0.74)), "Warning: the model is possibly no better than always"),
        (Estimate(0.5, 0.02, (0.46, 0.54)), "Warning: the model is worse than always"),
        (Estimate(1.0, 0.02, (1.0, 1.0), unclipped=1.3), "Warning: no accuracy is consistent with these class priors"),
    ],
)
def test_warning_of_each_verdict(fitted, accuracy, expected):
    changed = copy(fitted).set_params(target_prior=0.7)
    changed.out_of_fold_evaluation_ = replace(fitted.out_of_fold_evaluation_, accuracy=accuracy)
    text = text_of(parsed(changed.results_html()))
    assert "Warning" not in text if expected is None else expected in text


def test_compared_models_and_labels_are_named(sets):
    options = {"model": "auto", "model_params": {"models": ("linear", "boosting")}, "n_estimators": 2, "lr": "auto"}
    rows, labels = np.concatenate(sets)[::10], np.repeat([1, 0], 30)
    clf = classifier(**options).fit_sets(*sets, test_data=(rows, labels))
    facts = facts_in(parsed(clf.results_html()))
    assert re.search(r"linear \(error \d+\.\d%\)", facts["model"])
    assert facts["labels"].startswith("passed for evaluation")


def test_search_shows_its_settings(sets):
    base = classifier(n_estimators=2, method="leaky_relu")
    search = UUClassifierCV(base, {"lr": [1e-6, 0.05], "slope": [0.0, -0.1, -0.2, -0.3, -0.4, -1.0]})
    assert search.results_html() == ""
    search.fit_sets(*sets)
    html = search._repr_html_()
    assert "UUClassifierCV" in html
    root = parsed(search.results_html())
    facts = facts_in(root)
    assert "The best 10 of 12 settings." in text_of(root)
    best = min(search.candidates_, key=lambda one: one.rank).evaluation.accuracy
    name = next(name for name in facts if name.startswith("lr=0.05, slope="))
    assert facts[name].startswith(f"{best.value:.3f} (")
    assert facts["accuracy"].startswith(f"{search.best_estimator_.out_of_fold_evaluation_.accuracy.value:.3f}")


# -------------------------------------------------------------------------------------------------------------- results


def test_evaluation_shows_all_metrics_and_its_source(fitted, sets):
    evaluation = fitted.evaluate(np.concatenate(sets), sets=np.repeat([0, 1], 300))
    root = parsed(evaluation._repr_html_())
    assert facts_in(root).keys() == evaluation.by_name.keys()
    assert "no label was used: estimated from 300 + 300 rows of the two sets" in text_of(root)
    for name, estimate in evaluation.by_name.items():
        assert f"{name:<20}{estimate}" in str(evaluation).splitlines()


def test_values_that_are_not_finite_have_no_bar():
    none = Estimate(math.nan, math.nan, (math.nan, math.nan))
    root = parsed(Evaluation(none, none, none, none, none, (3, 3), labels_used=False)._repr_html_())
    assert facts_in(root)["accuracy"] == "nan (nan to nan)"
    assert not list(svg(root, "circle"))


def test_estimated_priors(sets):
    bounds, concern = None, "the two sets do not identify <them>"
    found = SetPriorsEstimate(
        (0.8, 0.25), (Interval(0.7, 0.9), Interval(0.2, 0.3)), 0.95, 0, bounds, (10, 20), 0.8, 0.9, 0.9, (), concern
    )
    root = parsed(found._repr_html_())
    facts = facts_in(root)
    assert facts == {"θ (set 0)": "0.800 (0.700 to 0.900)", "θ′ (set 1)": "0.250 (0.200 to 0.300)"}
    assert "Warning: " + concern in text_of(root)
    assert "estimated from 10 + 20 rows" in text_of(root)
    scores = np.random.default_rng(0).normal([[0.5], [1.0], [0.0]], size=(3, 100))
    target = estimate_target_prior(*scores, (0.8, 0.2))
    low, high = target.interval
    shown = facts_in(parsed(target._repr_html_()))["target prior π"]
    assert shown == f"{target.target_prior:.3f} ({low:.3f} to {high:.3f})"


def test_sensitivity(sets):
    found = prior_sensitivity(classifier(epochs=2), np.concatenate(sets), np.repeat([0, 1], 300), errors=(-0.05, 0.05))
    root = parsed(found._repr_html_())
    assert list(facts_in(root)) == [row.assumption.name for row in found.rows]
    assert " ".join(found.conclusion.split()) in text_of(root)


@pytest.mark.parametrize(
    "records",
    [
        [],
        [{"epoch": 1, "unbiased": 0.3}],
        [{"epoch": 1, "unbiased": 0.3}, {"epoch": 2, "unbiased": math.nan}],
        [{"epoch": 1, "unbiased": -1e30}, {"epoch": 2, "unbiased": 1e30, "validation_unbiased": 0.1}],
    ],
)
def test_short_and_damaged_histories_are_shown(records):
    history = History(records, "stopped by </div> after 0 epochs", best_epoch=1 if records else None)
    root = parsed(history._repr_html_())
    assert "stopped: stopped by </div> after 0 epochs" in text_of(root)
    negative = bool(records) and records[0]["unbiased"] < 0
    assert ("first negative in epoch 1" in text_of(root)) == negative


def test_output_has_the_colors_of_the_page():
    html = notebook.join(notebook.curve_plot("risk", [1, 2], [notebook.Curve("a", [1.0, 2.0])], 2))
    fixed = {notebook.BLUE, notebook.ORANGE, notebook.AMBER, "none", "currentColor", "inherit"}
    used = re.findall(r'(?:fill|stroke)="([^"]+)"', html) + re.findall(r"(?<![-\w])color:([^;\"]+)", html)
    assert set(used) <= fixed
    assert "currentColor" in used
