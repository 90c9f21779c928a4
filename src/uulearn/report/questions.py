"""What users ask next: other shares of positives, wrong ones, scores, columns, what to type, what words mean."""

from __future__ import annotations

from uulearn.report import charts
from uulearn.report.facts import Facts
from uulearn.report.markup import Html, command, element, join, named, paragraph
from uulearn.report.wording import sentence

COMMANDS = {
    "predict": "Score new rows",
    "evaluate": "Evaluate the model on other rows",
    "report": "Make this page again",
    "repeat": "Train it again in the same way",
}


def targets(facts: Facts) -> Html:
    """The accuracy where another share is positive."""
    if not facts.targets:
        return paragraph("The accuracy at other shares of positives was not estimated.")
    return join(
        paragraph(
            "The model was trained for one share of positives, and can be used at another: the cut-off of the score "
            "moves with it. This is the accuracy to expect, estimated without labels from the same rows."
        ),
        charts.targets(facts),
    )


def sensitivity(facts: Facts) -> Html:
    """What wrong shares of positives would do."""
    said = sentence(facts.sensitivity_words or "")
    words = element("bdi", said[0].upper() + said[1:]) if said else None
    if not facts.doubts:
        return paragraph("What wrong shares of positives would do was not tried.", " " if words else None, words)
    first, second = facts.names
    letters = [
        element("li", "θ is the share of positives in ", named(first)),
        element("li", "θ′ is the share of positives in ", named(second)),
        element("li", "π is the share of positives where the model is used"),
    ]
    return join(
        None if words is None else paragraph(words),
        paragraph(
            "Everything here rests on the shares of positives. If one of them is not what was given, the accuracy "
            "shown becomes:"
        ),
        element("ul", letters),
        charts.sensitivity(facts.doubts),
    )


def scores(facts: Facts) -> Html:
    """Scores by set."""
    if facts.histogram is None:
        return paragraph("The scores were not recorded.")
    return join(
        paragraph(
            "Each set holds rows of both classes, so the two overlap however good the model is; the set with more "
            "positives has more of its rows on the right."
        ),
        charts.histogram(facts.histogram, facts.names),
    )


def importance(facts: Facts) -> Html:
    """The most influential columns."""
    if facts.importance is None:
        return paragraph("The influence of the columns was not measured for this model.")
    return join(
        paragraph(
            "Each column was shuffled among the evaluating rows, so that it says nothing any more, and the accuracy was "
            "estimated again. Columns that say the same can stand in for each other and then both look unimportant."
        ),
        charts.importance(sorted(facts.importance, key=lambda entry: -entry.drop)),
    )


def commands(facts: Facts) -> Html:
    """What to type next."""
    given = dict(facts.commands)
    order = [*(name for name in COMMANDS if name in given), *(name for name in given if name not in COMMANDS)]
    if not order:
        return paragraph("No commands were stored.")
    return join(
        [
            [element("p", element("bdi", COMMANDS.get(name, name.replace("_", " "))), ":"), command(given[name])]
            for name in order
        ]
    )


def words() -> Html:
    """What the words on this page mean."""
    meanings = [
        ("Share of positives", "of all rows of a set, the part that is positive. Nobody needs to know which rows."),
        (
            "Interval",
            "made so that, if all were repeated with other rows, it would hold the true value so many times in a "
            "hundred. It takes the shares of positives for true.",
        ),
        ("Epoch", "one pass of the training over all its rows."),
        (
            "Risk",
            "the mean loss of the model where it is to be used, estimated from the two sets. Less is better. The true "
            "risk is never below zero, its estimate can be.",
        ),
        (
            "Brackets",
            "the two parts of the risk: what is lost on positives and what is lost on negatives, each a difference of "
            "means over the two sets, hence with a sign.",
        ),
        (
            "Objective",
            "what training makes small: the risk with brackets below zero corrected, so that noise is not learned.",
        ),
        ("Held-out rows", "rows of both sets that were kept out of training, to evaluate it by."),
    ]
    return element("dl", [[element("dt", element("strong", word)), element("dd", text)] for word, text in meanings])
