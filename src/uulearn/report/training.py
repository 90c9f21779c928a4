"""How the training went: words, then curves."""

from __future__ import annotations

from uulearn.report import curves
from uulearn.report.course import HELD_OUT, Course
from uulearn.report.facts import Facts
from uulearn.report.markup import Child, Html, element, join, paragraph
from uulearn.report.wording import count, listed, plural


def training(facts: Facts, course: Course) -> Html:
    """How the training went: words, then curves."""
    if not len(course):
        return paragraph(
            "No epoch was recorded",
            f" ({course.stop_reason})" if course.stop_reason else None,
            ", so there are no curves.",
        )
    reason = f": {course.stop_reason}" if course.stop_reason else ""
    content: list[Child] = [
        paragraph(
            element("bdi", f"Training ran for {plural(len(course), 'epoch')} and stopped{reason}."), " ", _kept(course)
        ),
        paragraph(_below_zero(course)),
        paragraph(
            "What is reported and what was minimised are two things. The risk, the sum of the two brackets, is "
            "reported as it is, with its sign. Training minimised the objective, which may differ from it: most "
            "methods correct a bracket that falls below zero."
        ),
        curves.brackets(course, held_out=False) or paragraph("The brackets were not recorded."),
        curves.brackets(course, held_out=True),
        curves.accuracy(course, judged_apart=facts.judged_apart),
    ]
    if not any(name in course.curves for name in HELD_OUT):
        content.append(
            paragraph("No rows were held out to evaluate the epochs, so there are no curves of held-out rows.")
        )
    return join(content)


def _kept(course: Course) -> str:
    if course.kept_by_members:
        epochs = [str(epoch) for epoch in course.kept_by_members if epoch is not None]
        kept = f" They kept the weights of epochs {listed(epochs)}." if epochs else ""
        return (
            f"{plural(len(course.kept_by_members), 'model was', 'models were')} trained, whose scores are averaged; "
            f"the curves are their means.{kept}"
        )
    if course.kept is None:
        return "The weights of the last epoch were kept."
    return f"The weights of epoch {course.kept} were kept: there the smoothed error on held-out rows was lowest."


def _below_zero(course: Course) -> str:
    """Where the risk went below zero, and where what was kept lies."""
    if "unbiased" not in course.curves:
        return "The risk of the epochs was not recorded."
    first, kept = course.first_below_zero("unbiased"), course.kept
    if first is None:
        times = {which: course.times_below_zero(which) for which in ("positive", "negative")}
        parts = listed(
            [f"the {which} bracket in {plural(number, 'epoch')}" for which, number in times.items() if number]
        )
        aside = f" Of its two parts, {parts} was below zero." if parts else ""
        return f"On the rows trained on, the risk never went below zero.{aside}"
    said = (
        f"On the rows trained on, the risk went below zero in epoch {first}, and was below zero in "
        f"{count(course.times_below_zero('unbiased'))} of {plural(len(course), 'epoch')}. No true risk is: by then the "
        "model was also learning the noise of its rows (overfitting)."
    )
    if kept is not None:
        where = "is that one" if kept == first else "lies before that" if kept < first else "lies after that"
        return f"{said} The epoch that was kept, {kept}, {where}."
    if course.kept_by_members:
        return said
    return f"{said} The last epoch was kept all the same; hold rows out and keep the best to avoid that."
