"""Format the facts of a fit: the last lines of ``uulearn fit``, and the model card (README.md)."""

from pathlib import Path
from textwrap import fill

from uulearn.app.facts import FitFacts
from uulearn.app.formatting import accuracy_range, interval, prior
from uulearn.estimator.auto import describe_comparison
from uulearn.io.formats import printable
from uulearn.metrics import Verdict
from uulearn.theory.planning import anticipated_spread

TERMINAL_WIDTH = 80
"""Width in characters at which sentences are wrapped; many terminals have this width."""
LABEL_WIDTH = 11
PLANNED_HALF_WIDTH = 0.05
"""Half-width of the interval for which the required number of rows is shown."""
CARD_COLUMNS = 50
"""Maximum number of column names in a model card, because a table may have thousands of columns."""
CARD_UNUSED_COLUMNS = 100
CARD_NAME_WIDTH = 200
"""Maximum length of a name in a model card, in characters."""
VALID_FOR = "Valid for rows like these; uulearn predict warns if new rows differ."
MARKUP = frozenset("&<>`[]|!*\\")
"""Characters that are replaced in a text of the model card, because they can start markup or a link."""


def format_summary(facts: FitFacts, out: Path) -> str:
    """Format the last lines of ``uulearn fit``: path, accuracy, warnings and next commands."""
    higher, lower = facts.sets_by_prior
    shortage = describe_shortage(facts)
    lines = [
        *([] if shortage is None else [_wrapped("warning", shortage)]),
        _line("model", str(out)),
        _line("priors", f"{prior(higher.prior)} positive in {higher.name}, {prior(lower.prior)} in {lower.name}"),
        *([] if facts.comparison is None else [_wrapped("trained", describe_comparison(facts.comparison))]),
        _line("accuracy", accuracy_range(facts.evaluation.accuracy)),
        _wrapped("", _basis(facts)),
        _wrapped("", describe_verdict(facts)),
        _line("", VALID_FOR),
        _line("AUC", f"{facts.evaluation.auc.value:.3f} (0.5 is chance, 1 is perfect)"),
    ]
    if facts.prior_intervals is not None:
        ends = " and ".join(map(interval, facts.prior_intervals))
        lines.insert(2, _wrapped("", f"estimated from the rows (95% intervals {ends}); all results depend on them"))
    lines += [_wrapped("warning", warning.message) for warning in facts.warnings]
    lines += [_wrapped("note", note) for note in facts.notes]
    if facts.commands:
        lines += [_line("next", facts.commands["predict"]), _line("", facts.commands["report"])]
    return "\n".join(lines)


def describe_shortage(facts: FitFacts) -> str | None:
    """Return a warning with the number of rows needed if the interval is too wide, otherwise None."""
    accuracy = facts.evaluation.accuracy
    if not accuracy.is_imprecise:
        return None
    pi = facts.target_prior
    needed = anticipated_spread(facts.set_priors, pi).rows(PLANNED_HALF_WIDTH / facts.error_scale, 0.5).set0
    which = "rows" if facts.out_of_fold else "held-out rows"
    priors = " ".join(f"{share:g}" for share in facts.set_priors)
    return (
        f"There are too few rows to estimate the accuracy precisely (±{100 * accuracy.half_width:.0f} points). For "
        f"±{100 * PLANNED_HALF_WIDTH:.0f} points, use about {needed:,} {which} per file (uulearn plan --set-priors "
        f"{priors} --target-prior {pi:g} --half-width {PLANNED_HALF_WIDTH:g}), or sets whose class priors differ more."
    )


def describe_verdict(facts: FitFacts) -> str:
    """Return text that says whether the model is better than always predicting the more frequent class."""
    verdict, majority = facts.evaluation.verdict(facts.target_prior), max(facts.target_prior, 1 - facts.target_prior)
    answer = "positive" if facts.target_prior > 0.5 else "negative"
    constant = f'always predicting "{answer}", which is correct for {prior(majority)} of the rows'
    if verdict is Verdict.INCONSISTENT:
        return "Do not use this model: the class priors are wrong, or the files differ in more than their class priors."
    if verdict is Verdict.BETTER:
        return f"This is better than {constant}."
    if verdict is Verdict.WORSE:
        return (
            f"This is worse than {constant}. Do not use this model. First check that the two class priors are not "
            "swapped."
        )
    return (
        f"The model may be no better than {constant}. Do not rely on it yet: add rows, or use sets whose class priors "
        "differ more."
    )


def _basis(facts: FitFacts) -> str:
    """Describe the target prior of the accuracy estimate and the rows used for it."""
    rows = " + ".join(f"{n:,}" for n in facts.row_use.evaluation)
    unseen = ", each scored by a model not trained on it" if facts.out_of_fold else " held out of training"
    confidence = f"{100 * facts.evaluation.accuracy.confidence:g}%"
    target = f"{confidence} interval if {prior(facts.target_prior)} of the rows are positive (target prior)"
    return f"{target}, no label used: {rows} rows{unseen}"


def format_model_card(facts: FitFacts) -> str:
    """Format the model card as Markdown: data, accuracy, columns, warnings and commands."""
    used = [column.name for column in facts.columns if column.used]
    unused = [f"- {_code(column.name)}: {_plain(column.reason or '')}" for column in facts.columns if not column.used]
    names = ", ".join(map(_code, used[:CARD_COLUMNS])) + (" …" if len(used) > CARD_COLUMNS else "")
    source = "estimated from the rows" if facts.prior_intervals is not None else "given by the user"
    parts = [
        "# Classifier trained from two unlabeled files",
        f"Created with uulearn {facts.versions['uulearn']} on {facts.created}.",
        _rows(
            "| file | rows | class prior (fraction of positives) |",
            "|---|---|---|",
            *(f"| {_code(entry.name)} | {entry.rows:,} | {prior(entry.prior)} |" for entry in facts.sets),
        ),
        f"The class priors were {source}. The model is intended for a population in which {prior(facts.target_prior)} "
        "of the rows are positive (the target prior).",
        "## Accuracy",
        *([] if (shortage := describe_shortage(facts)) is None else [f"**{shortage}**"]),
        f"Accuracy {accuracy_range(facts.evaluation.accuracy)} ({_basis(facts)}). The estimate holds if the class "
        "priors are correct, the two files differ only in their class priors, and the positives and negatives of new "
        "rows come from the same distributions. `uulearn predict` and `uulearn evaluate` warn if new rows are not a "
        f"mixture of the two files. {describe_verdict(facts)}",
        *([] if facts.comparison is None else ["## Model", f"Model: {describe_comparison(facts.comparison)}."]),
        "## Columns",
        f"{len(used)} used: {names}.",
        *(["Not used:", _rows(*unused[:CARD_UNUSED_COLUMNS])] if unused else []),
        "## Warnings",
        _rows(*(f"- {_plain(warning.message)}" for warning in facts.warnings)) or "No warnings.",
        "## Use",
        _rows("```console", *(f"$ {printable(command)}" for command in facts.commands.values()), "```"),
    ]
    return "\n\n".join(parts) + "\n"


def _rows(*lines: str) -> str:
    return "\n".join(lines)


def _code(name: str) -> str:
    """Format a name from a file as code; a name that would end the code or the cell of a table is escaped."""
    shown = printable(name).strip()
    if len(shown) > CARD_NAME_WIDTH:
        shown = f"{shown[:CARD_NAME_WIDTH]}…"
    return _plain(shown) if not shown or "`" in shown or "|" in shown else f"`{shown}`"


def _plain(text: str) -> str:
    """Escape a text that may quote names from files, so that Markdown and HTML show it as it is."""
    return "".join(f"&#{ord(letter)};" if letter in MARKUP else letter for letter in printable(text))


def _line(label: str, text: str) -> str:
    return f"{label:<{LABEL_WIDTH}}{printable(text)}"


def _wrapped(label: str, text: str) -> str:
    return fill(
        printable(" ".join(text.splitlines())),
        TERMINAL_WIDTH,
        initial_indent=_line(label, ""),
        subsequent_indent=" " * LABEL_WIDTH,
    )
