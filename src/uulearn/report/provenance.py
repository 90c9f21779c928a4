"""What was trained, and on which data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from uulearn.report.course import Course
from uulearn.report.facts import Column, Facts
from uulearn.report.markup import (
    MESSAGE_UNITS,
    Child,
    Html,
    command,
    element,
    folded,
    join,
    named,
    paragraph,
    shorten,
    table,
)
from uulearn.report.wording import count, duration, interval, percent, plural, prior, sentence, with_interval

SETTINGS = {
    "model": "Model",
    "method": "Method",
    "loss": "Loss",
    "n_estimators": "Models averaged",
    "random_state": "Seed",
    "seed": "Seed",
}
"""Settings that are named where the training is told; the others are in a table."""
MOST_LEFT_OUT = 10


def trained(facts: Facts, course: Course) -> Html:
    """What was trained, when, by what, how long."""
    settings = _flat(facts.configuration)
    found = {SETTINGS[last]: value for name, value in settings if (last := name.split(".")[-1]) in SETTINGS}
    pairs: list[tuple[str, Child]] = []
    if facts.set_priors is not None and facts.target_prior is not None:
        richer = facts.names[int(facts.set_priors[0] < facts.set_priors[1])]
        pairs.append(("Task", "tell positive rows from negative ones, learned from two sets without labels"))
        pairs.append(("Used where", f"{prior(facts.target_prior)} of the rows are positive"))
        pairs.append(("Taken as the richer set", named(richer)))
    if facts.created is not None:
        pairs.append(("Trained", _moment(facts.created)))
    pairs += [(name, element("bdi", found[name])) for name in dict.fromkeys(SETTINGS.values()) if name in found]
    if len(course):
        pairs.append(("Epochs", f"{count(len(course))}, {_kept_briefly(course)}"))
    if facts.seconds is not None:
        pairs.append(("Time", duration(facts.seconds) + (f" on {facts.device}" if facts.device else "")))
    if facts.versions:
        pairs.append(("Software", ", ".join(f"{name} {version}" for name, version in facts.versions)))
    content: list[Child] = [
        element("dl", [[element("dt", name), element("dd", value)] for name, value in pairs], class_="pairs")
        if pairs
        else paragraph("Nothing was stored about the training.")
    ]
    if facts.set_priors is not None:
        content.append(
            paragraph(
                "Which of two unlabeled sets is the richer cannot be read off their rows. If the shares of positives "
                "are the wrong way round, the model is wrong where it should be right and no number on this page shows "
                "it: look at a few rows that it calls positive."
            )
        )
    if facts.command:
        content += [paragraph("The command that trained it:"), command(facts.command)]
    if settings:
        cells = [[element("bdi", name), element("bdi", value)] for name, value in settings]
        content.append(folded("Every setting", table("Settings", ["setting", "value"], cells, plain_columns=2)))
    return join(content)


def _kept_briefly(course: Course) -> str:
    if course.kept_by_members:
        return f"{plural(len(course.kept_by_members), 'model')} averaged"
    return "the last one kept" if course.kept is None else f"epoch {course.kept} kept"


def _moment(created: str) -> Html:
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return element("bdi", created)
    zone = moment.tzname() or ""
    return element("time", f"{moment:%Y-%m-%d %H:%M} {zone}".strip(), datetime=moment.isoformat())


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Nested settings as dotted names and texts."""
    found: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            found.append((f"{prefix}{name}", ", ".join(map(str, value)) or "none"))
        else:
            found.append((f"{prefix}{name}", "none" if value is None else str(value)))
    return found


# ------------------------------------------------------------------------------------------------------------ the data


def data(facts: Facts) -> Html:
    """Sizes, shares, how far apart the sets are, columns, notes."""
    content = [_sets(facts), _apart(facts), _columns(facts)]
    if facts.notes:
        notes = [element("li", element("bdi", sentence(shorten(note, MESSAGE_UNITS)))) for note in facts.notes]
        content += [element("h3", "Notes"), element("ul", notes)]
    return join(content)


def _sets(facts: Facts) -> Html:
    if not facts.files:
        return paragraph("The files were not recorded.")
    purposes = {"train": "training", "choose": "choosing", "evaluate": "evaluating"}
    split = [(purposes[name], sizes) for name, sizes in facts.split]
    intervals = facts.prior_intervals
    cells: list[list[Child]] = []
    for place, file in enumerate(facts.files):
        share = file.prior
        if share is None and facts.set_priors is not None and place < 2:
            share = facts.set_priors[place]
        row: list[Child] = [named(file.name), count(file.rows), prior(share)]
        if intervals is not None:
            row.append(interval(intervals[place]) if place < len(intervals) else "–")
        cells.append([*row, *(count(sizes[place]) if place < 2 else "–" for _, sizes in split)])
    head = ["set", "rows", "positive", *(["interval"] if intervals is not None else []), *(name for name, _ in split)]
    how = "estimated from the rows" if intervals is not None else "as given"
    told = table(f"The two sets, with shares of positives {how}", head, cells)
    return join(told, paragraph(_served(facts)) if facts.rows_for("evaluate") else None)


def _served(facts: Facts) -> str:
    """What the rows were for, and how far the accuracy can be trusted for it."""
    chosen = "Rows for choosing picked the epoch to keep. " if facts.rows_for("choose") else ""
    if facts.judged_apart:
        return f"{chosen}Rows for evaluating served nothing else; the accuracy at the top is from them."
    said = f"{chosen}The accuracy at the top is from the rows for evaluating."
    if facts.shared("train"):
        said = (
            "Several models were trained, each without a part of the rows, so that every row could be evaluated by a "
            "model that was not trained on it."
        )
    if facts.shared("choose"):
        said += " By the same rows the epochs to keep were chosen, which flatters the accuracy at the top a little."
    return said


def _apart(facts: Facts) -> Html:
    """How well the scores tell the sets apart, against what the shares of positives allow."""
    found = facts.set_auc
    if found is None:
        return paragraph("How well the sets can be told apart was not measured.")
    said: list[Child] = [
        f"How distinguishable the sets are: of two rows, one of each set, the model scores the one of the richer set "
        f"higher in {with_interval(found)} of cases. 50% would mean that the sets look the same"
    ]
    if facts.set_priors is None:
        return paragraph(said, ".")
    most = 0.5 + abs(facts.set_priors[0] - facts.set_priors[1]) / 2
    first, second = map(prior, facts.set_priors)
    said.append(f"; with shares of {first} and {second}, a model that never errs would reach {percent(most)}.")
    low, high = found.interval or (found.value, found.value)
    if low > most:
        said.append(
            " This is more than that: the sets differ in more than their share of positives, or the shares are further "
            "apart than given. Look among the columns for one that gives away where a row was collected."
        )
    elif low <= 0.5 <= high:
        said.append(" The interval holds 50%: the sets may be alike, and then there is nothing to learn from them.")
    return paragraph(said)


def _columns(facts: Facts) -> Html:
    if not facts.columns:
        return paragraph("The columns were not recorded.")
    used = [column for column in facts.columns if column.used]
    left_out = [column for column in facts.columns if not column.used]
    kinds: dict[str, int] = {}
    for column in used:
        kinds[column.kind or "unknown"] = kinds.get(column.kind or "unknown", 0) + 1
    by_kind = ", ".join(f"{kind} {number}" for kind, number in kinds.items())
    made = "" if facts.features is None else f"; the model sees them as {plural(facts.features, 'number')} a row"
    content: list[Child] = [
        element("h3", "Columns"),
        paragraph(
            f"{plural(len(facts.columns), 'column')}, {count(len(used))} used",
            f" (by kind: {by_kind})" if used else None,
            f"{made}.",
        ),
    ]
    if left_out:
        items = [element("li", named(column.name), *_reason(column)) for column in left_out[:MOST_LEFT_OUT]]
        if len(left_out) > MOST_LEFT_OUT:
            items.append(element("li", f"and {len(left_out) - MOST_LEFT_OUT} more, in the table below"))
        content += [paragraph("Left out:"), element("ul", items)]
    cells = [_column_cells(column) for column in facts.columns]
    head = ["column", "kind", "used", *(join("missing in ", named(name, 24)) for name in facts.names)]
    content.append(folded("Every column", table("Columns of the files", head, cells, plain_columns=3)))
    return join(content)


def _reason(column: Column) -> list[Child]:
    return [] if not column.why else [": ", element("bdi", sentence(column.why))]


def _column_cells(column: Column) -> list[Child]:
    missing = column.missing or (None, None)
    used: Child = "yes" if column.used else join("no", *_reason(column))
    return [named(column.name), element("bdi", column.kind or "–"), used, *(percent(share) for share in missing)]
