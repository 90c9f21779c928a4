"""Render the report from the facts of a fit and its training history, with the template ``report.html.jinja``."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from uulearn import defaults, exceptions
from uulearn.app.facts import ColumnFacts, FitFacts, PriorError, RaisedWarning
from uulearn.app.formatting import (
    accuracy_range,
    count,
    duration,
    interval,
    listing,
    percent,
    plural,
    prior,
    sentence,
)
from uulearn.app.summary import describe_shortage, describe_verdict
from uulearn.estimator.learners import ComparedModel
from uulearn.markup.text import name
from uulearn.report import charts
from uulearn.report.html import MESSAGE_WIDTH, HtmlTable, render_page
from uulearn.report.training import TrainingCurves
from uulearn.risk.corrections import METHOD_MEANINGS
from uulearn.storage import write_atomically
from uulearn.training.history import History, StopReason

TITLE = "Report on a classifier trained from two unlabeled sets"
MAX_UNUSED_COLUMNS = 10
"""Maximum number of unused columns listed in the text; the table lists all columns."""
DROPPED = re.compile(r"Columns? .* (?:is|are) dropped: ", re.DOTALL)
"""Start of a note about unused columns, which the page lists separately."""
SHOWN_SETTINGS = {
    "model": "Model",
    "method": "Method",
    "loss": "Loss",
    "lr": "Learning rate",
    "n_estimators": "Models in the ensemble",
    "seed": "Seed",
}
"""Settings shown in the section on training; the table lists all settings."""
COMMAND_HEADINGS = {
    "predict": "Score new rows",
    "evaluate": "Evaluate the model on other rows",
    "report": "Create this page again",
    "repeat": "Train again with the same settings",
}


class ShownWarning(NamedTuple):
    """A warning for display on the page; ``advice`` is None for warnings from other libraries."""

    headline: str
    message: str
    advice: str | None


def render_report(facts: FitFacts, history: History, *, title: str = TITLE) -> str:
    """Render one self-contained HTML page about a fitted model.

    Parameters
    ----------
    facts : `uulearn.app.facts.FitFacts`
        The facts stored by ``uulearn fit``: files, columns, estimates, warnings and commands.
    history : `uulearn.training.History`
        The classifier's ``history_``.
    title : str
        Title and first heading of the page.

    Returns
    -------
    str
        HTML that loads no external resources and runs no scripts. All names, messages and commands are escaped.
    """
    for value, kind in ((facts, FitFacts), (history, History), (title, str)):
        if not isinstance(value, kind):
            raise TypeError(
                f"expected a {kind.__name__}, got {type(value).__name__}; load the model with TableModel.load."
            )
    compared = [entry.model for entry in facts.comparison or () if entry.risk is not None]
    settings = _flatten(facts.configuration)
    main = max(facts.comparison, key=lambda entry: entry.weight).model if facts.comparison else None
    trained = main or dict(settings).get("classifier.model")
    curves = TrainingCurves.from_history(history, "tree" if trained == defaults.BOOSTING else "epoch")
    separate = not facts.out_of_fold
    training = [charts.risk_chart(curves, held_out=False), charts.risk_chart(curves, held_out=True)]
    training.append(charts.accuracy_chart(curves, separate))
    return render_page(
        "report.html.jinja",
        title=title,
        facts=facts,
        right_column=_right_column(facts),
        accuracy=facts.evaluation.accuracy,
        headline=accuracy_range(facts.evaluation.accuracy),
        verdict=describe_verdict(facts),
        shortage=describe_shortage(facts),
        labels_monitored=history.labels_used,
        warnings=[_shown_warning(warning) for warning in facts.warnings],
        metrics=_metrics(facts),
        training_facts=_training_facts(facts, curves, settings),
        settings=HtmlTable("Settings", ["setting", "value"], _resolved_settings(facts, settings), 2),
        comparison=None if facts.comparison is None else _comparison(facts.comparison),
        compared=compared,
        main=main,
        sets=_sets(facts),
        columns=_columns(facts),
        unused=[column for column in facts.columns if not column.used],
        max_unused=MAX_UNUSED_COLUMNS,
        kinds=Counter(column.kind or "unknown" for column in facts.columns if column.used),
        notes=[note for note in facts.notes if not DROPPED.match(note)],
        stop_reason=history.stop_reason,
        all_epochs=history.stop_reason == StopReason.EPOCHS_DONE.format(len(history)),
        curves=curves,
        training_charts=[chart for chart in training if chart is not None],
        targets=charts.target_chart(facts),
        sensitivity=charts.sensitivity_chart(facts.sensitivity.rows),
        largest_change=_largest_change(facts.sensitivity.rows),
        scores=charts.score_chart(facts),
        importance=charts.importance_chart(facts.importance or ()),
        commands=[(text, facts.commands[key]) for key, text in COMMAND_HEADINGS.items() if key in facts.commands],
    )


def write_report(path: str | Path, facts: FitFacts, history: History, *, title: str = TITLE) -> Path:
    """Write the output of `render_report` to a file atomically, and return the path of the file."""
    target, text = Path(path), render_report(facts, history, title=title)
    write_atomically(target, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return target


def _largest_change(rows: Sequence[PriorError]) -> tuple[str, str, str, float] | None:
    """Return the prior that changes the estimated accuracy most, its error, the change, and the rows affected."""
    baseline = next((row.accuracy.unclipped for row in rows if not row.error), math.nan)
    changes = [(abs(row.accuracy.unclipped - baseline), row) for row in rows if row.error]
    if not changes or not all(math.isfinite(change) for change, _ in changes):
        return None
    change, row = max(changes, key=lambda pair: pair[0])
    differing = max(other.differing for _, other in changes)
    return row.parameter, f"{abs(row.error):g}", f"{100 * change:.0f} points", differing


def _shown_warning(warning: RaisedWarning) -> ShownWarning:
    kind = getattr(exceptions, warning.category, None)
    if isinstance(kind, type) and issubclass(kind, exceptions.UUWarning):
        return ShownWarning(kind.headline, warning.message, kind.advice)
    return ShownWarning(f"Warning from another library ({warning.category})", warning.message, None)


def _metrics(facts: FitFacts) -> HtmlTable:
    evaluation = facts.evaluation
    metrics = [
        ("Balanced accuracy", "accuracy if half of the rows are positive", evaluation.balanced_accuracy),
        ("True-positive rate", "fraction of positives that are predicted positive", evaluation.true_positive_rate),
        ("False-positive rate", "fraction of negatives that are predicted positive", evaluation.false_positive_rate),
        ("AUC", "probability that a positive has a higher score than a negative; 50% is chance", evaluation.auc),
    ]
    small = Markup("{}<small>{}</small>")
    rows = [
        [small.format(title, meaning), small.format(percent(estimate.value), interval(estimate.interval))]
        for title, meaning, estimate in metrics
    ]
    caption = f"Estimated from {plural(sum(evaluation.sizes), 'row')}"
    return HtmlTable(caption, ["metric", f"estimate, {percent(evaluation.auc.confidence, 0)} interval"], rows)


def _training_facts(
    facts: FitFacts, curves: TrainingCurves, settings: list[tuple[str, str]]
) -> list[tuple[str, str | Markup]]:
    """Return the labels and values of the section on training."""
    found = {key.rpartition(".")[2]: text for key, text in settings if text != defaults.AUTO}
    if meaning := METHOD_MEANINGS.get(found.get("method", "")):
        found["method"] += f" ({meaning.format(slope=found.get('slope', defaults.SLOPE))})"
    compared = [entry for entry in facts.comparison or () if entry.parameters]
    if used := [entry for entry in compared if entry.used]:
        weights = [f"{entry.model} ({percent(entry.weight, 0)})" for entry in used]
        found["model"] = used[0].model if len(used) == 1 else f"weighted average of {listing(weights)}"
        found["n_estimators"] = f"{found.get('n_estimators', '1')}{' of each kind' if len(used) > 1 else ''}"
    own = [(f"Model {entry.model}", name(_describe_parameters(entry), MESSAGE_WIDTH)) for entry in compared]

    def shown(key: str, title: str) -> list[tuple[str, str | Markup]]:
        return [(title, name(found[key])), *(own if key == "model" else [])]

    last = f"{count(len(curves))}, best epoch {curves.best_epoch}"
    if curves.best_epoch is None:
        last = count(len(curves))
    elif curves.unit == "tree":
        last = f"{count(len(curves))} trained, {count(curves.best_epoch)} used"
    return [
        ("Task", "classify rows as positive or negative, learned from two unlabeled sets"),
        ("Target prior", f"{prior(facts.target_prior)} of the rows are positive where the model is used"),
        ("Set with the higher prior", name(facts.set_names[facts.set_priors[0] < facts.set_priors[1]])),
        ("Created", _moment(facts.created)),
        *(row for key, title in SHOWN_SETTINGS.items() if key in found for row in shown(key, title)),
        *([] if any(entry.best_epochs for entry in compared) else [(f"{curves.unit.capitalize()}s", last)]),
        ("Time", f"{duration(facts.seconds)} on {facts.device}"),
        ("Software", ", ".join(f"{library} {version}" for library, version in facts.versions.items())),
    ]


def _describe_parameters(entry: ComparedModel) -> str:
    """Describe the resolved parameters of a compared model, and the epochs or trees that it uses."""
    own, unit = dict(entry.parameters), "tree" if entry.model == defaults.BOOSTING else "epoch"
    parts = [f"loss {own['loss']}"] if "loss" in own else []
    parts += [f"learning rate {own['lr']:g}"] if isinstance(own.get("lr"), int | float) else []
    options = own.get("model_params")
    for key, value in (options if isinstance(options, Mapping) else {}).items():
        parts.append(f"hidden layers {_as_text(value).replace(', ', '-')}" if key == "hidden" else f"{key} {value}")
    parts += [f"at most {own['epochs']} {unit}s"] if "epochs" in own else []
    best = list(map(str, entry.best_epochs))
    if best and unit == "tree":  # all folds have the same number of trees
        parts.append(f"best number of trees {listing(list(dict.fromkeys(best)))}")
    elif best:
        parts.append(f"best epochs {listing(best)}")
    return ("" if entry.used else "not used; ") + ", ".join(parts)


def _resolved_settings(facts: FitFacts, settings: list[tuple[str, str]]) -> list[tuple[Markup, Markup]]:
    """Return all settings; a value "auto" is followed by the values that were used."""
    rows = []
    for key, text in settings:
        last = key.rpartition(".")[2]
        own = {entry.model: entry.parameters.get(last) for entry in facts.comparison or () if entry.parameters}
        if text == defaults.AUTO and last == "device":
            text += f" ({facts.device})"
        elif text == defaults.AUTO and last == "model" and own:
            text += f" ({', '.join(own)})"
        elif text == defaults.AUTO and any(value is not None for value in own.values()):
            text += f" ({', '.join(f'{model}: {_as_text(value)}' for model, value in own.items())})"
        rows.append((name(key), name(text)))
    return rows


def _right_column(facts: FitFacts) -> str:
    """Return the section with which the right column starts, such that both columns have similar heights."""
    bars = len(facts.importance or ())
    heights = {  # in pixels, in a window 1280 pixels wide
        "metrics": 430,
        "targets": 690,
        "scores": 660,
        "sensitivity": 840 if facts.sensitivity.rows else 130,
        "importance": 450 + 44 * min(bars, charts.MAX_BARS) if bars else 250,
        "data": 640,
    }
    left, names = 450 + 190 * len(facts.warnings), list(heights)
    sums = {
        names[i]: left + sum(list(heights.values())[:i]) - sum(list(heights.values())[i:]) for i in range(len(names))
    }
    return min(sums, key=lambda section: abs(sums[section]))


def _moment(created: str) -> str:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return created
    return f"{moment:%Y-%m-%d %H:%M} {moment.tzname() or ''}".strip()


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Flatten nested settings to pairs of a dotted name and the value as text."""
    found: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found += _flatten(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", _as_text(value)))
    return found


def _as_text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_as_text(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _comparison(compared: Sequence[ComparedModel]) -> HtmlTable:
    rows = []
    for entry in compared:
        spread = "" if not entry.difference else f" ± {100 * (entry.standard_error or 0):.1f}"
        behind = "–" if not entry.difference else f"{100 * entry.difference:+.1f}{spread}"
        weight = percent(entry.weight, 0) if entry.used or entry.skipped is None else f"skipped: {entry.skipped}"
        risk = "–" if entry.risk is None else percent(max(0.0, entry.risk))
        seconds = "–" if entry.seconds is None else duration(entry.seconds)
        rows.append([entry.model, name(weight), risk, behind, seconds])
    head = ["model", "weight", "error", "difference from the lowest, points", "CPU time"]
    return HtmlTable("Models that were compared, without labels", head, rows, text_columns=2)


def _sets(facts: FitFacts) -> HtmlTable:
    use, intervals = facts.row_use, facts.prior_intervals
    head = ["set", "rows", "class prior", "training", "early stopping", "evaluation"]
    rows = [
        [
            name(entry.name),
            count(entry.rows),
            prior(entry.prior),
            *(count(numbers[which]) for numbers in (use.training, use.early_stopping, use.evaluation)),
        ]
        for which, entry in enumerate(facts.sets)
    ]
    if intervals is not None:
        head.insert(3, "95% interval")
        for row, ends in zip(rows, intervals, strict=True):
            row.insert(3, interval(ends))
    source = "estimated from the rows" if intervals is not None else "as given"
    return HtmlTable(f"The two sets, with class priors {source}", head, rows)


def _columns(facts: FitFacts) -> HtmlTable:
    missing = [Markup("missing in {}").format(name(which, 24)) for which in facts.set_names]
    rows = [
        [name(column.name), name(column.kind or "–"), _use(column), *map(percent, column.missing)]
        for column in facts.columns
    ]
    return HtmlTable("Columns of the files", ["column", "kind", "used", *missing], rows, text_columns=3)


def _use(column: ColumnFacts) -> str | Markup:
    if column.used:
        return "yes"
    return Markup("no: {}").format(name(sentence(column.reason))) if column.reason else "no"
