"""Facts of a fit: stored as JSON, read back, and shown as text."""

import json
import math
import re
import warnings
from dataclasses import replace
from pathlib import Path

import markdown
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.report_example import facts_and_history
from uulearn import UUClassifier
from uulearn.app.estimates import column_importance, sensitivity_facts
from uulearn.app.facts import FitFacts, RaisedWarning
from uulearn.app.formatting import accuracy_range, count, duration, number, percent, signed
from uulearn.app.summary import describe_verdict, format_model_card, format_summary
from uulearn.app.training import EvaluationRows
from uulearn.exceptions import OneSidedPredictionsWarning
from uulearn.metrics import Estimate
from uulearn.metrics.out_of_fold import SELECTION_ERROR_SCALE
from uulearn.tabular.schema import TableColumn


@pytest.fixture(scope="module")
def facts():
    return facts_and_history()[0]


@pytest.fixture
def data(facts):
    return json.loads(json.dumps(facts.to_dict()))


def test_facts_survive_json(facts, data):
    assert FitFacts.from_dict(data) == facts
    assert FitFacts.from_dict(data).to_dict() == facts.to_dict()


def test_numbers_that_are_not_finite_are_stored_as_null(facts):
    changed = replace(facts, seconds=math.nan, set_auc=Estimate(np.float64(0.7), math.inf, (0.6, 0.8)))
    data = json.loads(json.dumps(changed.to_dict(), allow_nan=False))
    assert data["seconds"] is data["set_auc"]["standard_error"] is None
    assert math.isnan(FitFacts.from_dict(data).seconds)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (["seconds"], "long", "facts.seconds must be a number, got 'long'"),
        (["seconds"], True, "facts.seconds must be a number, got True"),
        (["created"], 5, "facts.created must be a string, got 5"),
        (["n_features"], 1.5, "facts.n_features must be a whole number, got 1.5"),
        (["sets"], "a.csv", "facts.sets must be a list of 2, got 'a.csv'"),
        (["sets"], [1], "facts.sets must be a list of 2, got [1]"),
        (["sets", 0], "a.csv", "facts.sets[0] must be an object, got 'a.csv'"),
        (["columns", 3, "used"], "yes", "facts.columns[3].used must be true or false, got 'yes'"),
        (["evaluation", "accuracy", "value"], "0.9", "facts.evaluation.accuracy.value must be a number, got '0.9'"),
        (["evaluation", "accuracy", "interval"], [1, 2, 3], "facts.evaluation.accuracy.interval must be a list of 2"),
        (["histogram", "edges"], [0, 1], "a histogram needs k + 1 edges and k counts per set, got 2 edges"),
        (["importance"], {"age": 1}, "facts.importance must be a list, got {'age': 1}"),
        (["warnings"], [["a", "b"]], "facts.warnings[0] must be an object"),
        (["commands", "predict"], 1, "facts.commands.predict must be a string, got 1"),
        (["configuration"], "x", "facts.configuration must be an object, got 'x'"),
        (["files"], [], "facts must be an object of this version of uulearn, got the unknown entry files"),
    ],
)
def test_rejects_other_structures_in_one_sentence(data, path, value, expected):
    place = data
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=re.escape(expected)) as caught:
        FitFacts.from_dict(data)
    assert "\n" not in str(caught.value)


def test_rejects_missing_entries(data):
    del data["target_prior"]
    with pytest.raises(ValueError, match="facts must be an object with the entry 'target_prior'"):
        FitFacts.from_dict(data)
    with pytest.raises(ValueError, match=re.escape("facts must be an object, got [];")):
        FitFacts.from_dict([])


# -------------------------------------------------------------------------------------------------------------- text


@pytest.mark.parametrize(
    ("value", "interval", "expected"),
    [
        (0.931, (0.902, 0.949), "between 90% and 95%, best estimate 93%"),
        (0.9661, (0.9622, 0.9694), "between 96.2% and 96.9%, best estimate 96.6%"),
        (0.96614, (0.9655, 0.9669), "between 96.55% and 96.69%, best estimate 96.61%"),
        (1.04, (0.921, 1.0), "between 92% and 100%, best estimate above 99%"),
        (0.996, (0.97, 1.0), "between 97% and 100%, best estimate above 99%"),
        (-0.01, (0.0, 0.1), "between 0% and 10%, best estimate 0%"),
    ],
)
def test_headline_never_claims_perfection(value, interval, expected):
    assert accuracy_range(Estimate(value, 0.01, interval)) == expected


def test_summary_starts_with_a_shortage_of_rows_and_has_a_verdict(facts):
    wide = Estimate(0.858, 0.1, (0.62, 1.0))
    few = replace(facts, evaluation=replace(facts.evaluation, accuracy=wide), target_prior=0.3)
    summary = format_summary(few, Path("model"))
    first = " ".join(summary.partition("model  ")[0].split())
    assert first == (
        "warning There are too few rows to estimate the accuracy precisely (±20 points). For ±5 points, use about 435 "
        "held-out rows per file (uulearn plan --set-priors 0.8 0.2 --target-prior 0.3 --half-width 0.05), or sets "
        "whose class priors differ more."
    )
    stopped = replace(few, out_of_fold=True, error_scale=SELECTION_ERROR_SCALE)  # 435 · 1.69
    assert "use about 734 rows per file" in " ".join(format_summary(stopped, Path("model")).split())
    assert 'The model may be no better than always predicting "negative"' in summary
    card = format_model_card(few)
    assert f"## Accuracy\n\n**{first.removeprefix('warning ')}**\n\nAccuracy between 62% and 100%" in card
    assert 'The model may be no better than always predicting "negative"' in card
    assert format_summary(facts, Path("model")).startswith("model      model\n")
    assert 'This is better than always predicting "negative", which is correct for 50% of the rows.' in " ".join(
        format_summary(facts, Path("model")).split()
    )


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        (Estimate(0.9, 0.02, (0.86, 0.94)), "This is better than always"),
        (Estimate(0.7, 0.02, (0.66, 0.74)), "The model may be no better than always"),
        (Estimate(0.5, 0.02, (0.46, 0.54)), "This is worse than always"),
        (Estimate(1.0, 0.02, (1.0, 1.0), unclipped=1.3), "Do not use this model: the class priors are wrong"),
    ],
)
def test_text_of_each_verdict(facts, accuracy, expected):
    changed = replace(facts, evaluation=replace(facts.evaluation, accuracy=accuracy), target_prior=0.7)
    assert describe_verdict(changed).startswith(expected)


def test_importance_has_directions(monkeypatch):
    rng = np.random.default_rng(0)
    shade = rng.integers(3, size=400)
    features = np.column_stack([rng.normal(size=(400, 2)), np.eye(3)[shade]]).astype(np.float32)
    groups = {"up": [0], "down": [1], "shade": [2, 3, 4]}
    columns = [TableColumn("up", "number"), TableColumn("down", "date")]
    columns.append(TableColumn("shade", "category", values=("red", "green", "blue")))

    def score(X, folds):
        return X @ np.array([1, -1, 0.2, 0.9, 0.5])

    sets, folds = np.repeat([0, 1], 200), np.zeros(400, dtype=np.int64)
    rows = EvaluationRows(score(features, folds), sets, features, sets, folds, score, None, ())
    importance = column_importance(rows, groups, columns, (0.8, 0.2), 0.5, seed=0)
    found = {entry.column: entry for entry in importance}
    assert found["up"].direction > 0.3 > -0.3 > found["down"].direction
    assert (found["shade"].direction, found["shade"].highest) == (None, "green")
    assert {entry.highest for name, entry in found.items() if name != "shade"} == {None}
    for at_once in (400, 800):  # one or two shuffled copies are scored at a time instead of three
        monkeypatch.setattr("uulearn.app.estimates.IMPORTANCE_ROWS", at_once)
        assert column_importance(rows, groups, columns, (0.8, 0.2), 0.5, seed=0) == importance


def test_importance_is_ordered_by_the_unclipped_drop():
    sets = np.repeat([0, 1], 200)
    direction = np.where(sets == 0, 1.0, -1.0)
    features = np.column_stack([direction, direction, np.arange(400) % 4 == 0]).astype(np.float32)
    columns, folds = [TableColumn(name, "number") for name in ("weak", "strong")], np.zeros(400, dtype=np.int64)

    def score(X, folds):
        return np.where(X[:, 2] == 1, X[:, 0], X[:, 1])  # the weak column determines a quarter of the predictions

    rows = EvaluationRows(score(features, folds), sets, features, sets, folds, score, None, ())
    found = column_importance(rows, {"weak": [0], "strong": [1]}, columns, (0.52, 0.48), 0.5, seed=0)
    assert [(entry.column, entry.drop) for entry in found] == [("strong", 1), ("weak", 1)]


def test_summary_of_impossible_estimate_shows_no_accuracy(facts):
    impossible = Estimate(1.0, 0.1, (1.0, 1.0), unclipped=1.6)
    summary = format_summary(replace(facts, evaluation=replace(facts.evaluation, accuracy=impossible)), Path("model"))
    assert "accuracy   unknown, because no accuracy is consistent with these class priors\n" in summary
    assert "Do not use this model: the class priors are wrong" in summary
    assert "100%" not in summary


def test_json_has_the_unclipped_estimate(facts):
    clipped = Estimate(1.0, 0.1, (0.9, 1.0), unclipped=1.04)
    stored = replace(facts, evaluation=replace(facts.evaluation, accuracy=clipped)).to_dict()
    assert (stored["evaluation"]["accuracy"]["value"], stored["evaluation"]["accuracy"]["unclipped"]) == (1.0, 1.04)
    assert FitFacts.from_dict(stored).evaluation.accuracy == clipped


def test_summary_and_card_show_the_same_headline(facts):
    headline = accuracy_range(facts.evaluation.accuracy)
    summary, card = format_summary(facts, Path("model")), format_model_card(facts)
    assert f"accuracy   {headline}\n" in summary
    assert (
        f"Accuracy {headline} (95% interval if 50% of the rows are positive (target prior), no label used: 80 + 80"
        in card
    )
    assert "priors     80% positive in clinic_a.csv, 20% in clinic_b.csv" in summary
    assert facts.commands["predict"] in summary
    assert "| `clinic_b.csv` | 260 | 20% |" in card
    assert "- `patient`: every row has its own value" in card
    assert "No warnings." in card


def test_summary_and_card_show_warnings_and_estimated_priors(facts):
    raised = RaisedWarning("ClosePriorsWarning", "the priors are close")
    changed = replace(facts, warnings=(raised,), prior_intervals=((0.7, 0.85), (0.1, 0.3)), out_of_fold=True)
    summary, card = format_summary(changed, Path("model")), format_model_card(changed)
    assert "warning    the priors are close" in summary
    assert "- the priors are close" in card
    assert "95% intervals 70.0% to 85.0% and 10.0% to 30.0%" in " ".join(summary.split())
    assert "The class priors were estimated from the rows." in card
    assert "each scored by a model not trained on it" in " ".join(summary.split())
    assert "Valid for rows like these; uulearn predict warns if new rows differ." in summary
    assert "warn if new rows are not a mixture of the two files" in card
    assert max(map(len, summary.splitlines())) <= 80


@given(st.floats(-1e5, 1e5))
def test_numbers_keep_their_sign_and_value(value):
    for written, decimals in ((signed(value), 3), (number(value), 3), (percent(value / 100)[:-1], 1)):
        back = float(written.replace("−", "-").replace(",", ""))
        assert abs(back - value) <= 0.5 * 10**-decimals + 1e-6
        assert "-" not in written
        assert "−0.0" not in written or back < 0


def test_large_and_missing_numbers_stay_short():
    assert (count(1e20), signed(-1e9), number(2.5e7), duration(3e6)) == ("1e+20", "−1e+09", "2.5e+07", "833 h 20 min")
    assert percent(None) == percent(math.nan) == signed(None) == count(math.inf) == "–"


HOSTILE = (
    "\x1b[2Jage",
    "`</code><script>alert(1)</script>",
    "a|b<img src=x>",
    "![x](http://evil.example)",
    "\u202eage\n# x",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_files_cannot_add_markup_or_control_the_terminal(facts, name):
    columns = (replace(facts.columns[0], name=name), replace(facts.columns[0], name=name, used=False, reason=name))
    sets = (replace(facts.sets[0], name=name), facts.sets[1])
    commands = {"predict": f"uulearn predict {name}", "report": name}
    changed = replace(
        facts, columns=columns, sets=sets, notes=(name,), warnings=(RaisedWarning("W", name),), commands=commands
    )
    summary, card = format_summary(changed, Path(name)), format_model_card(changed)
    for text in (summary, card):
        assert all(line.isprintable() for line in text.split("\n"))
    page = markdown.markdown(card, extensions=["tables", "fenced_code"])
    assert not set(re.findall(r"<(\w+)", page)) & {"script", "img", "a", "b"}
    assert page.count("<h1") == 1


def test_sensitivity_of_trees_ignores_consistency_training():
    """The analysis trains the model with the highest weight, and trees have no consistency training."""
    pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], 150)
    y = rng.random(300) < np.where(sets == 0, 0.9, 0.1)
    X = np.where(y[:, None], 1.0, -1.0) + rng.normal(size=(300, 3))
    classifier = UUClassifier(
        (0.9, 0.1), model="auto", model_params={"models": ["boosting"]}, epochs=5, n_estimators=2,
        consistency=True, random_state=0, progress=False,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OneSidedPredictionsWarning)
        classifier.fit(X.astype(np.float32), sets)
    assert sensitivity_facts(classifier, X.astype(np.float32), sets).rows
