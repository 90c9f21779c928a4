"""The text of the report: accuracy, warnings, training, data, commands, and the promises of the page."""

import re
from dataclasses import replace

import pytest

from helpers.report_page import checked, parse, section, words
from uulearn import exceptions
from uulearn.app.facts import ColumnFacts, FitFacts, RaisedWarning, SensitivityFacts
from uulearn.estimator.fitting import average_histories
from uulearn.estimator.learners import ComparedModel
from uulearn.metrics import Estimate
from uulearn.report import render_report, write_report
from uulearn.training import History

WARNINGS = [
    kind
    for kind in vars(exceptions).values()
    if isinstance(kind, type) and issubclass(kind, Warning) and kind is not exceptions.UUWarning
]
# Colors that carry text or marks on each background: they need a contrast of 4.5 to 1 (WCAG 2.2).
READ_ON = {
    "page": ("ink", "muted", "link", "first", "second", "total", "third", "mark"),
    "box": ("ink", "muted", "link"),
    "alert": ("ink", "alert-ink"),
    "below": ("muted", "first", "second", "total", "third", "mark"),
}


@pytest.fixture(scope="module")
def page(facts, history):
    return checked(render_report(facts, history))


def with_accuracy(facts, value, interval, **options):
    return replace(facts, evaluation=replace(facts.evaluation, accuracy=Estimate(value, 0.02, interval, **options)))


def pairs(part):
    return dict(zip((node.text for node in part.all("dt")), (node.text for node in part.all("dd")), strict=True))


# ----------------------------------------------------------------------------------------------- accuracy and warnings


def test_headline_is_the_interval_then_the_estimate(facts, history):
    root = checked(render_report(with_accuracy(facts, 0.931, (0.902, 0.949)), history))
    first = root.one("main").all("section")[0]
    assert words(first.one("p", class_="headline")) == "Accuracy between 90% and 95%, best estimate 93%"
    text = words(first)
    assert "95% confidence interval for a population in which 50% of the rows are positive" in text
    assert (
        "No label was used: the accuracy is estimated from 80 + 80 rows of the two sets, held out of training" in text
    )
    assert "that were given: 80% in clinic_a.csv and 20% in clinic_b.csv." in text
    assert 'This is better than always predicting "negative", which is correct for 50% of the rows.' in text


@pytest.mark.parametrize(
    ("value", "interval", "target", "expected"),
    [
        (0.93, (0.88, 0.97), 0.5, 'This is better than always predicting "negative", which is correct for 50% of'),
        (
            0.93,
            (0.88, 0.97),
            0.1,
            'The model may be no better than always predicting "negative", which is correct for 90%',
        ),
        (0.93, (0.88, 0.97), 0.99, 'This is worse than always predicting "positive", which is correct for 99% of'),
        (0.70, (0.49, 0.91), 0.3, "There are too few rows to estimate the accuracy precisely (±21 points)."),
        (1.0, (0.9, 1.0), 0.5, "Accuracy between 90% and 100%, best estimate above 99%"),
        (1.0, (1.0, 1.0), 0.5, "Accuracy unknown, because no accuracy is consistent with these class priors"),
        (1.0, (1.0, 1.0), 0.5, "Do not use this model: the class priors are wrong, or the files differ in more than"),
    ],
)
def test_assessment_follows_the_interval(facts, history, value, interval, target, expected):
    facts = replace(with_accuracy(facts, value, interval, unclipped=1.04 if value == 1 else value), target_prior=target)
    text = words(section(checked(render_report(facts, history)), "accuracy"))
    assert expected in text
    assert ("too few rows to estimate" in text) == (interval[1] - interval[0] > 0.3)
    assert "104" not in text


def test_labels_are_mentioned_if_used(facts, history):
    labeled = replace(facts, evaluation=replace(facts.evaluation, labels_used=True))
    monitored = History(history.epochs, "done", labels_used=True)
    text = words(section(checked(render_report(labeled, monitored)), "accuracy"))
    assert "No label was used" not in text
    assert "Labels were used: the accuracy was computed from 80 + 80 labeled rows." in text
    assert "Labels were passed to monitor the training, but the model was not trained on them." in text


def test_estimated_priors_are_shown_with_intervals(facts, history):
    root = checked(render_report(replace(facts, prior_intervals=((0.7, 0.85), (0.1, 0.3))), history))
    assert "that were estimated: 80%" in words(section(root, "accuracy"))
    head, first, second = section(root, "data").all("table")[0].rows()
    assert head[3] == "95% interval"
    assert (first[3], second[3]) == ("70.0% to 85.0%", "10.0% to 30.0%")


@pytest.mark.parametrize("kind", WARNINGS, ids=lambda kind: kind.__name__)
def test_every_warning_class_has_a_headline_and_advice(facts, history, kind):
    own = vars(kind)  # inherited text would describe another problem
    assert own["headline"].strip()
    assert own["advice"].strip().endswith(".")
    raised = RaisedWarning(kind.__name__, "message")
    box = section(checked(render_report(replace(facts, warnings=(raised,)), history)), "warnings")
    assert words(box) == f"Warning {kind.headline} message. What to do: {kind.advice}"


def test_warnings_of_other_libraries_are_shown_without_advice(facts, history):
    raised = RaisedWarning("ConvergenceWarning", "lbfgs failed.")
    box = section(checked(render_report(replace(facts, warnings=(raised,)), history)), "warnings")
    assert words(box) == "Warning Warning from another library (ConvergenceWarning) lbfgs failed."


def test_absence_of_warnings_is_stated(facts, history, page):
    assert words(section(page, "warnings")) == "Warnings No warnings."
    imprecise = replace(facts.evaluation, accuracy=Estimate(0.7, 0.1, (0.49, 0.91)))
    root = checked(render_report(replace(facts, evaluation=imprecise), history))
    assert words(section(root, "warnings")) == "Warnings No other warnings."


def test_other_metrics_are_those_of_the_evaluation(page, facts):
    rows = section(page, "metrics").one("table").rows()
    names = ["balanced_accuracy", "true_positive_rate", "false_positive_rate", "auc"]
    for (_, cell), name in zip(rows[1:], names, strict=True):
        estimate = getattr(facts.evaluation, name)
        low, high = estimate.interval
        assert cell == f"{estimate.value:.1%}{low:.1%} to {high:.1%}"


# -------------------------------------------------------------------------------------------------- training and data


def test_training_facts(page, facts):
    part = section(page, "trained")
    found = pairs(part)
    assert found["Created"] == "2026-11-16 01:02 UTC"
    assert found["Time"] == "12 s on cpu"
    assert found["Software"] == "uulearn 0.1.0, torch 2.13.0"
    assert found["Epochs"] == "30, best epoch 18"
    assert found["Set with the higher prior"] == "clinic_a.csv"
    assert (found["Model"], found["Seed"]) == ("mlp", "0")
    meaning = "risk correction: a negative term is multiplied by the slope λ = -0.1"
    assert found["Method"] == f"leaky_relu ({meaning})"
    assert part.one("code").text == facts.command
    assert ["classifier.epochs", "30"] in part.one("table").rows()


COMPARED = (
    ComparedModel(
        *("boosting", True, 0.7, 0.1, 0.0, 0.0, 1.0),
        parameters={"loss": "sigmoid", "lr": 0.1, "epochs": 200, "l2": 0.0, "model_params": None},
        best_epochs=(20, 20),
    ),
    ComparedModel(
        *("mlp", True, 0.3, 0.11, 0.01, 0.02, 3.0),
        parameters={"loss": "sigmoid", "lr": 0.01, "epochs": 60, "l2": 0.005, "model_params": {"hidden": [128, 128]}},
        best_epochs=(8, 12),
    ),
)


@pytest.fixture(scope="module")
def compared(facts, history):
    """The page of a fit that compared two models; the history is that of the trees."""
    own = {"model": "auto", "method": "abs", "loss": "auto", "lr": "auto", "l2": "auto", "n_estimators": 2}
    changed = replace(facts, comparison=COMPARED, configuration={"classifier": own | {"device": "auto"}})
    models = [History(history.epochs, "all 30 epochs done", best_epoch=20) for _ in range(2)]
    return checked(render_report(changed, average_histories(models)))


def test_resolved_parameters_of_compared_models_are_shown(compared, facts):
    found = pairs(section(compared, "trained"))
    assert found["Model"] == "weighted average of boosting (70%) and mlp (30%)"
    assert found["Model boosting"] == "loss sigmoid, learning rate 0.1, at most 200 trees, best number of trees 20"
    assert found["Model mlp"] == (
        "loss sigmoid, learning rate 0.01, hidden layers 128-128, at most 60 epochs, best epochs 8 and 12"
    )
    assert "auto" not in found.values()
    settings = dict(section(compared, "trained").one("table").rows())
    assert settings["classifier.model"] == "auto (boosting, mlp)"
    assert settings["classifier.lr"] == "auto (boosting: 0.1, mlp: 0.01)"
    assert settings["classifier.device"] == f"auto ({facts.device})"


def test_trees_are_not_called_epochs(compared, history):
    text = words(section(compared, "training"))
    assert "Training added all 30 trees." in text
    assert "Each model uses only its first 20 trees" in text
    assert f"the risk was first negative after {history.first_negative_epoch} trees" in text
    assert "Risk on the training rows by number of trees." in text
    drawn = [node.text for node in compared.one("figure", id="figure-risk").all("text")]
    assert {"number of trees", "20 trees: best", "30 trees: last"} <= set(drawn)
    assert "epoch" not in text


def test_single_boosting_model_has_trees(facts, history):
    boosting = replace(facts, configuration={"classifier": {"model": "boosting", "lr": 0.1}})
    root = checked(render_report(boosting, history))
    found = pairs(section(root, "trained"))
    assert (found["Trees"], found["Learning rate"]) == ("30 trained, 18 used", "0.1")
    assert "The model uses only its first 18 trees" in words(section(root, "training"))


def test_terms_of_the_page_are_explained(page):
    terms = {node.text for node in section(page, "terms").all("dt")}
    assert {"Risk correction (method)", "Calibration", "Objective", "Risk terms"} <= terms


def test_size_of_the_ensemble_is_shown(facts, history):
    ensemble = replace(facts, configuration={"classifier": {"n_estimators": 5}})
    assert pairs(section(checked(render_report(ensemble, history)), "trained"))["Models in the ensemble"] == "5"


def test_set_with_the_higher_prior_may_be_the_second(facts, history):
    swapped = replace(facts, sets=(replace(facts.sets[0], prior=0.2), replace(facts.sets[1], prior=0.8)))
    found = pairs(section(checked(render_report(swapped, history)), "trained"))
    assert found["Set with the higher prior"] == "clinic_b.csv"


def test_data_section(page, facts):
    part = section(page, "data")
    head, first, second = part.all("table")[0].rows()
    assert head == ["set", "rows", "class prior", "training", "early stopping", "evaluation"]
    use = facts.row_use
    for which, row, start in ((0, first, ["clinic_a.csv", "255", "80%"]), (1, second, ["clinic_b.csv", "260", "20%"])):
        assert row == [*start, *(str(counts[which]) for counts in (use.training, use.early_stopping, use.evaluation))]
    text, (low, high) = words(part), facts.set_auc.interval
    assert f"has the higher score in {facts.set_auc.value:.1%} of all cases" in text
    assert f"of all cases (95% interval {low:.1%} to {high:.1%})" in text
    assert "a perfect classifier would reach 80.0%" in text
    assert "31 columns, 30 used (number: 30); the model receives 30 features per row." in text
    assert "patient: every row has its own value." in text
    assert part.all("table")[1].rows()[2] == ["mean radius", "number", "yes", "1.0%", "0.0%"]
    assert len(part.all("table")[1].rows()) == 32
    assert "The evaluation rows were used only to estimate" in text


def test_out_of_fold_evaluation_is_explained(facts, history):
    root = checked(render_report(replace(facts, out_of_fold=True), history))
    assert "each scored by a model that was not trained on it" in words(section(root, "accuracy"))
    text = words(section(root, "data"))
    assert "every row is evaluated by a model that was not trained on it. Early stopping used the same rows" in text
    assert "each row is therefore scored by a model whose stopping point other rows chose" in text
    assert "standard errors" not in text
    wider = checked(render_report(replace(facts, out_of_fold=True, error_scale=1.3), history))
    assert "stopping point other rows chose, and the standard errors are multiplied by 1.3." in words(
        section(wider, "data")
    )
    assert "used only to estimate" not in text
    assert "from other rows" not in words(section(root, "training"))


@pytest.mark.parametrize(
    ("interval", "expected"),
    [((0.81, 0.9), "(distribution shift)"), ((0.45, 0.6), "may have the same distribution")],
)
def test_separation_of_the_sets_is_compared_with_the_priors(facts, history, page, interval, expected):
    changed = replace(facts, set_auc=Estimate(sum(interval) / 2, 0.02, interval))
    assert expected in words(section(checked(render_report(changed, history)), "data"))
    assert expected not in words(section(page, "data"))


def test_long_lists_of_unused_columns_are_cut(facts, history):
    columns = tuple(ColumnFacts(f"c{number}", None, used=False) for number in range(13))
    text = words(section(checked(render_report(replace(facts, columns=columns), history)), "data"))
    assert "13 columns, 0 used;" in text
    assert "c9and 3 more, see the table" in text


def test_notes_do_not_repeat_the_unused_columns(facts, history):
    notes = ("Columns 'a' and 'b' are dropped: no row has a value.", "Column 'c' is dropped: a copy of 'd'.", "Other.")
    text = words(section(checked(render_report(replace(facts, notes=notes), history)), "data"))
    assert text.endswith("Notes Other.")
    assert "dropped" not in text


def test_reason_for_stopping_early(facts, history):
    stopped = History(history.epochs, "no better epoch in 20 (the best is epoch 10)")
    text = words(section(checked(render_report(facts, stopped)), "training"))
    assert "Training ran for 30 epochs and stopped: no better epoch in 20 (the best is epoch 10)." in text


def test_training_section(page, history):
    text = words(section(page, "training"))
    negative = sum(record["unbiased"] < 0 for record in history)
    assert "Training ran for all 30 epochs. The best epoch, with the" in text
    first = history.first_negative_epoch
    assert f"the risk was first negative in epoch {first} and was negative in {negative} of 30 epochs" in text
    assert "The best epoch, 18, is after that." in text


def record(epoch, positive, negative, **more):
    return {"epoch": epoch, "positive": positive, "negative": negative, "unbiased": positive + negative} | more


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        (1, "The best epoch, 1, is before that."),
        (2, "The best epoch, 2, is that epoch."),
        (3, "The best epoch, 3, is after that."),
        (None, "The model has the weights of the last epoch; hold out rows and use early stopping"),
    ],
)
def test_best_epoch_is_related_to_the_negative_risk(facts, best, expected):
    history = History([record(1, 0.3, 0.2), record(2, -0.1, 0.0), record(3, -0.2, 0.0)], "done", best_epoch=best)
    assert expected in words(section(checked(render_report(facts, history)), "training"))


def test_risk_that_is_never_negative(facts):
    history = History([record(1, 0.3, 0.2), record(2, -0.1, 0.3)], "all 2 epochs done")
    root = checked(render_report(facts, history))
    text = words(section(root, "training"))
    assert "the risk was never negative. One of its terms was negative: the positive term in 1 of 2 epochs." in text
    assert "The model has the weights of the last epoch." in text
    assert "No rows were held out during training" in text
    assert not root.all("figure", id="figure-accuracy")


def test_ensembles_are_described(facts):
    models = [History([record(1, 0.3, 0.2), record(2, -0.1, 0.0)], "done", best_epoch=best) for best in (1, 2)]
    text = words(section(checked(render_report(facts, average_histories(models))), "training"))
    assert "The ensemble has 2 models, whose scores are averaged; the curves show the mean over the models." in text
    assert "Their best epochs are 1 and 2." in text


def test_changes_that_did_not_fit_in_the_time_budget_are_counted(facts, history, page):
    note = "4 of 12 changes of the priors were measured in 9.0 s. --sensitivity measures all changes."
    measured = replace(facts, sensitivity=replace(facts.sensitivity, rows=facts.sensitivity.rows[:5], budget_note=note))
    root = checked(render_report(FitFacts.from_dict(measured.to_dict()), history))
    assert note in words(section(root, "sensitivity"))
    assert len(root.one("figure", id="figure-sensitivity").one("table").rows()) == 1 + 5
    assert "changes of the priors were measured" not in words(section(page, "sensitivity"))


def test_optional_parts_may_be_missing(facts, history):
    skipped = SensitivityFacts(skipped="There were too few rows")
    missing = replace(facts, importance=None, sensitivity=skipped, commands={}, command="", notes=())
    root = checked(render_report(missing, History()))
    assert "was not measured. There were too few rows." in words(section(root, "sensitivity"))
    assert "not measured for this model" in words(section(root, "importance"))
    assert "No commands were stored." in words(section(root, "commands"))
    assert "No epoch was recorded" in words(section(root, "training"))
    assert {figure.attributes["id"] for figure in root.all("figure")} == {"figure-targets", "figure-scores"}


def test_commands_are_shown_unchanged(page, facts):
    part = section(page, "commands")
    assert [code.text for code in part.all("code")] == list(facts.commands.values())
    assert "Score new rows:" in words(part)


# ------------------------------------------------------------------------------------------------ promises of the page


def test_nothing_is_loaded_and_nothing_runs(facts, history):
    page = render_report(facts, history)
    policy = parse(page).one("meta", http_equiv="Content-Security-Policy").attributes["content"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert (rules["default-src"], rules["style-src"], rules["img-src"]) == ("'none'", "'unsafe-inline'", "data:")
    assert "script-src" not in rules
    assert not re.search(r"url\(|@import|https?://", page)
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_same_facts_give_the_same_page(facts, history):
    assert render_report(facts, history) == render_report(facts, history)


def test_sections_are_in_the_order_of_the_navigation(page):
    links = [node.attributes["href"][1:] for node in page.one("nav").all("a")]
    assert links == [node.attributes["aria-labelledby"] for node in page.one("main").all("section")][2:]


def luminance(color):
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colors_have_enough_contrast(facts, history, theme):
    page = render_report(facts, history)
    themes = re.findall(r":root \{([^}]*)\}", page)
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", themes[theme]))
    used = set(re.findall(r"var\(--([\w-]+)\)", page))
    assert used == set(found) == {ink for inks in READ_ON.values() for ink in inks} | set(READ_ON) | {"line", "shade"}
    for ground, inks in READ_ON.items():
        for ink in inks:
            low, high = sorted((luminance(found[ink]), luminance(found[ground])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


def test_every_class_has_a_rule_in_the_style_sheet(page):
    style = page.one("style").text
    used = {name for node in page.walk() for name in (node.attributes.get("class") or "").split()}
    assert {name for name in used if f".{name}" not in style} == set()


def test_report_is_written_atomically(tmp_path, facts, history, monkeypatch):
    path = tmp_path / "new" / "report.html"
    assert write_report(path, facts, history, title="mine") == path
    assert path.read_text("utf-8") == render_report(facts, history, title="mine")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_report(str(path), facts, History())
    assert path.read_text("utf-8") == render_report(facts, history, title="mine")
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]


@pytest.mark.parametrize(
    "history",
    [
        History([{"epoch": None}]),
        History([{"epoch": 2}, {"epoch": 1}]),
        History(["x"]),
        History([{"epoch": 1, "positive": "x"}]),
        History([], stop_reason=3),
    ],
)
def test_rejects_damaged_histories(facts, history):
    with pytest.raises(ValueError, match="the training history is damaged: .*; train the model again"):
        render_report(facts, history)


def test_rejects_other_types(facts, history):
    with pytest.raises(TypeError, match="expected a FitFacts, got dict"):
        render_report(facts.to_dict(), history)
    with pytest.raises(TypeError, match="expected a History, got dict"):
        render_report(facts, history.to_dict())
