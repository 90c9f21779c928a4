"""The first screen: what the model is worth, and what speaks against it."""

from __future__ import annotations

import re

from uulearn.report.course import Course
from uulearn.report.facts import Facts, Shown, Warned
from uulearn.report.markup import MESSAGE_UNITS, Child, Html, element, join, named, shorten, table
from uulearn.report.wording import both, interval, percent, plural, prior, sentence

WIDE = 0.1
"""Half-width of an interval that says little."""

ADVICE = {
    "ClosePriorsWarning": (
        "The two sets hold nearly the same share of positives",
        "Use sets whose shares differ more, or many more rows; uulearn plan tells how many.",
    ),
    "IndistinguishableSetsWarning": (
        "The two sets could not be told apart",
        "Check that these are the right files, and that a column has to do with what makes a row positive.",
    ),
    "SwappedPriorsWarning": (
        "Labelled rows contradict the order of the shares of positives",
        "If the first file is not the richer one, exchange the two numbers of --set-priors and train again.",
    ),
    "UnevenSetsWarning": (
        "One set is very small beside the other",
        "Add rows to the smaller set: its size limits how well anything can be known.",
    ),
    "OneSidedPredictionsWarning": (
        "The model gives the same answer for every row",
        "Do not use it as it is. Check the shares of positives, then train with more rows or for other epochs.",
    ),
    "SuspiciousScoreWarning": (
        "The estimated accuracy is one that no classifier has",
        "Check the shares of positives and their order: as given they can hardly be true.",
    ),
    "UnidentifiedPriorsWarning": (
        "The rows leave the shares of positives open",
        "Give the shares with --set-priors if you know them from elsewhere; else read every number with that doubt.",
    ),
    "NotAMixtureWarning": (
        "The rows to be scored are unlike both sets",
        "Look for what differs in how they were collected; estimates for them do not hold.",
    ),
}
"""For each kind of warning its headline and what to do; what happened is in the warning's own words."""


def verdict(facts: Facts, course: Course) -> Html:
    """Estimated accuracy with its interval, what it rests on, and what it compares to."""
    accuracy = facts.evaluated.accuracy
    if accuracy is None:
        content: list[Child] = [
            element("h2", "Estimated accuracy", id_="worth"),
            element("p", "unknown", class_="figure"),
            element("p", "No estimate was stored with this model; uulearn evaluate makes one from rows of both sets."),
        ]
        return element("section", content, class_="verdict", aria_labelledby="worth")
    labelled = facts.evaluated.labels_used
    title = "Accuracy on labelled rows" if labelled else "Estimated accuracy"
    span = "no interval was stored"
    if accuracy.interval is not None:
        span = f"{percent(accuracy.confidence, 0)} interval: {interval(accuracy.interval)}"
    content = [
        element("h2", title, id_="worth"),
        element("p", percent(accuracy.value), " ", element("span", span), class_="figure"),
        element("p", _basis(facts, accuracy)),
        [element("p", text) for text in _judgements(accuracy, facts.target_prior)],
    ]
    if course.labels_used:
        content.append(element("p", "Labels were passed to watch the training; it did not use them."))
    return element("section", content, class_="verdict", aria_labelledby="worth")


def _basis(facts: Facts, accuracy: Shown) -> list[Child]:
    sizes = facts.evaluated.sizes or facts.rows_for("evaluate")
    where = "" if facts.target_prior is None else f" where {prior(facts.target_prior)} of the rows are positive"
    right = f"About {100 * accuracy.value:.0f} of 100 rows are" if 0 <= accuracy.value <= 1 else "So many rows are"
    said: list[Child] = [f"{right} classified right{where}. "]
    if facts.evaluated.labels_used:
        number = "labelled rows" if sizes is None else f"{both(sizes)} labelled rows, positive and negative"
        return [*said, element("strong", "Labels were used"), f" for this figure: it was counted on {number}."]
    rows = "rows" if sizes is None else f"{both(sizes)} rows"
    if facts.evaluated.labels_used is False:
        said += [element("strong", "No label was used"), ": this is an estimate"]
    else:
        said.append("This is an estimate")
    unseen = "each evaluated by a model that was not trained on it" if facts.shared("train") else "kept out of training"
    said.append(f" from {rows} of the two sets, {unseen}")
    if facts.set_priors is not None:
        known = "estimated" if facts.prior_intervals is not None else "given"
        shares = [
            element("span", prior(share), " in ", named(name, 40))
            for share, name in zip(facts.set_priors, facts.names, strict=True)
        ]
        said += [f", and from the shares of positives that were {known}: ", shares[0], " and ", shares[1]]
    return [*said, "."]


def _judgements(accuracy: Shown, target_prior: float | None) -> list[str]:
    """What the number means, in sentences."""
    said = []
    low, high = accuracy.interval or (accuracy.value, accuracy.value)
    if target_prior is not None:
        commoner = max(target_prior, 1 - target_prior)
        answer = f"always giving the commoner answer, which is right for {prior(commoner)}"
        if low > commoner:
            said.append(f"That is better than {answer}.")
        elif high < commoner:
            said.append(
                f"That is worse than {answer}: do not use this model. Check first that the two shares of positives are "
                "not the wrong way round."
            )
        else:
            said.append(
                f"It cannot be told from {answer}: do not rely on this model yet. More rows, or sets whose shares of "
                "positives differ more, would tell."
            )
    if accuracy.value > 1:
        said.append(
            "An estimate above 100% is no mistake of counting: it is right on average, and here it came out high by "
            "chance or because a share of positives is not what was given. Read the interval."
        )
    if high - low > 2 * WIDE:
        said.append(
            "The interval is wide. More rows narrow it, and so do sets whose shares of positives differ more; "
            "uulearn plan tells how many rows are needed."
        )
    return said


def warnings(facts: Facts) -> Html:
    """Every warning in words, with what to do."""
    if not facts.warnings:
        return element("p", "No warnings.")
    return element("div", [_warning(warned) for warned in facts.warnings])


def _warning(warned: Warned) -> Html:
    headline, remedy = ADVICE.get(warned.category, (_spaced(warned.category), None))
    return element(
        "div",
        element("h3", headline),
        element("p", element("bdi", sentence(shorten(warned.message, MESSAGE_UNITS))))
        if warned.message.strip()
        else None,
        None if remedy is None else element("p", element("strong", "What to do: "), remedy),
        class_="warning",
    )


def _spaced(category: str) -> str:
    """The name of an unknown kind of warning as words.

    Examples
    --------
    >>> _spaced("GiveawayColumnWarning")
    'LeakingColumn column'
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", category.removesuffix("Warning")).strip() or "warning"
    return words[0].upper() + words[1:].lower()


def figures(facts: Facts) -> Html:
    """The other figures of merit, each with what it means."""
    rows = [
        ("Balanced accuracy", facts.evaluated.balanced_accuracy, "accuracy where half of the rows are positive"),
        ("Positives found", facts.evaluated.true_positive_rate, "share of the positives that are called positive"),
        ("False alarms", facts.evaluated.false_positive_rate, "share of the negatives that are called positive"),
        ("Ranking (AUC)", facts.evaluated.auc, "how often a positive scores above a negative; 50% is chance"),
    ]
    known = [(name, shown, meaning) for name, shown, meaning in rows if shown is not None]
    if not known:
        return element("p", "No other figure was stored.")
    confidence = percent(known[0][1].confidence, 0)
    cells = [
        [join(name, element("small", meaning)), join(percent(shown.value), element("small", interval(shown.interval)))]
        for name, shown, meaning in known
    ]
    sizes = facts.evaluated.sizes
    caption = "Other figures" if sizes is None else f"Other figures, from {plural(sum(sizes), 'row')}"
    return table(caption, ["figure", f"estimate, {confidence} interval"], cells)
