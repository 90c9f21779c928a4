"""Figures of the trained model: other shares of positives, wrong ones, scores by set, influential columns."""

from __future__ import annotations

from collections.abc import Sequence

from uulearn.report import drawing
from uulearn.report.drawing import Event, axis
from uulearn.report.facts import Doubt, Facts, Histogram, Importance, Target
from uulearn.report.figure import ABOVE_ONE, Sample, figure
from uulearn.report.markup import Html, join, named, shorten, table, visible
from uulearn.report.wording import UNKNOWN, count, interval, percent, plain, plural, prior, signed

MOST_COLUMNS = 12
"""How many columns the figure of the most influential ones has; its table has all."""
LABEL_UNITS = 40


def targets(facts: Facts) -> Html:
    """Estimated accuracy against the share of positives where the classifier is used."""
    name, title = "figure-targets", "Estimated accuracy by share of positives in use"
    found = facts.targets
    spans = [(target.prior, *target.accuracy.interval) for target in found if target.accuracy.interval is not None]
    commoner = [(target.prior, max(target.prior, 1 - target.prior)) for target in found]
    heights = [end for span in spans for end in span[1:]]
    heights += [target.accuracy.value for target in found] + [height for _, height in commoner]
    own = [] if facts.target_prior is None else [facts.target_prior]
    x = axis([*(target.prior for target in found), *own], percent=True, tight=True)
    y = axis(heights, percent=True)
    confidence = percent(found[0].accuracy.confidence, 0)
    legend = [
        Sample("estimated accuracy", "first wide"),
        *([Sample(f"{confidence} interval", "first", "fill")] if len(spans) > 1 else []),
        Sample("always answering the commoner class", "quiet thin dotted"),
    ]
    drawn = drawing.plot(
        name,
        title,
        _describe_targets(found),
        x,
        y,
        [
            drawing.band(x, y, spans, "first") if len(spans) > 1 else None,
            drawing.curve(x, y, commoner, "quiet thin dotted"),
            drawing.curve(x, y, [(target.prior, target.accuracy.value) for target in found], "first wide"),
        ],
        x_label="share of positives where the model is used",
        y_label="accuracy",
        events=[Event(share, f"trained for {prior(share)}", quiet=True) for share in own],
    )
    cells = [
        [
            prior(target.prior),
            percent(target.accuracy.value),
            interval(target.accuracy.interval),
            UNKNOWN if target.threshold is None else signed(target.threshold),
            percent(max(target.prior, 1 - target.prior)),
        ]
        for target in found
    ]
    head = ["share of positives", "accuracy", f"{confidence} interval", "cut-off of the score", "commoner class"]
    more = "Where the line is no higher than the dotted one, the model is no use." + _above_one(found)
    return figure(name, drawn, title, more, legend, table(title, head, cells))


def _above_one(found: Sequence[Target | Doubt]) -> str:
    return f" {ABOVE_ONE}" if any(entry.accuracy.value > 1 for entry in found) else ""


def _describe_targets(found: Sequence[Target]) -> str:
    low, high = (pick(found, key=lambda target: target.accuracy.value) for pick in (min, max))
    return (
        f"{plural(len(found), 'share')} of positives from {prior(found[0].prior)} to {prior(found[-1].prior)}. Lowest "
        f"estimated accuracy {percent(low.accuracy.value)} at {prior(low.prior)}, highest "
        f"{percent(high.accuracy.value)} at {prior(high.prior)}."
    )


def sensitivity(doubts: Sequence[Doubt]) -> Html:
    """The accuracy that would be shown if a prior were off, a row for each doubt."""
    name, title = "figure-sensitivity", "Estimated accuracy if a share of positives is off"
    ends = [end for doubt in doubts for end in doubt.accuracy.interval or ()]
    x = axis([*ends, *(doubt.accuracy.value for doubt in doubts)], percent=True)
    rows = [
        (
            _doubted(doubt),
            [
                drawing.whisker(x, *doubt.accuracy.interval, "first") if doubt.accuracy.interval else None,
                drawing.row_dot(x, doubt.accuracy.value, "first"),
            ],
        )
        for doubt in doubts
    ]
    drawn = drawing.rows(
        name,
        title,
        " ".join(f"{_doubted(doubt)}: {percent(doubt.accuracy.value)}." for doubt in doubts),
        x,
        rows,
        x_label="accuracy that would be shown",
        left=96,
        events=[Event(doubt.accuracy.value, "as given", quiet=True) for doubt in doubts if not doubt.error][:1],
    )
    confidence = percent(doubts[0].accuracy.confidence, 0)
    legend = [Sample("estimated accuracy", "first", "dot")]
    legend += [Sample(f"{confidence} interval", "first", "whisker")] * bool(ends)
    cells = [[_doubted(doubt), percent(doubt.accuracy.value), interval(doubt.accuracy.interval)] for doubt in doubts]
    more = "The model was trained and evaluated again as if it were so, all else as given." + _above_one(doubts)
    numbers = table(title, ["if it is", "accuracy", f"{confidence} interval"], cells)
    return figure(name, drawn, title, more, legend, numbers)


def _doubted(doubt: Doubt) -> str:
    if not doubt.error:
        return "as given"
    return f"{shorten(visible(doubt.parameter), 6)} {'−' if doubt.error < 0 else '+'} {abs(doubt.error):.3g}"


def histogram(found: Histogram, names: tuple[str, str]) -> Html:
    """Scores of the evaluating rows by set, as shares of each set."""
    name, title = "figure-scores", "Scores of the evaluating rows, by set"
    totals = [sum(side) for side in found.counts]
    shares = [
        [value / total if total else 0.0 for value in side] for side, total in zip(found.counts, totals, strict=True)
    ]
    x = axis(found.edges, tight=True)
    y = axis([0.0, *shares[0], *shares[1]], percent=True)
    looks = "first", "second dashed"
    described = [
        join(label(which), f": {count(total)} rows, {_above_zero(found, side)} above 0. ")
        for which, total, side in zip(names, totals, found.counts, strict=True)
    ]
    drawn = drawing.plot(
        name,
        title,
        join(described),
        x,
        y,
        [drawing.steps(x, y, found.edges, side, look) for side, look in zip(shares, looks, strict=True)],
        x_label="score",
        y_label="share of the set's rows",
        events=[Event(0.0, "0: the cut-off")] * (found.edges[0] < 0 < found.edges[-1]),
        height=220,
    )
    legend = [Sample(named(which), look) for which, look in zip(names, looks, strict=True)]
    cells = [
        [f"{plain(left, 2)} to {plain(right, 2)}", count(first), count(second)]
        for left, right, first, second in zip(found.edges, found.edges[1:], *found.counts, strict=False)
    ]
    numbers = table("Number of rows by score", ["score", *map(named, names)], cells)
    return figure(name, drawn, title, "To the right of the cut-off a row is called positive.", legend, numbers)


def _above_zero(found: Histogram, counts: Sequence[float]) -> str:
    total = sum(counts)
    above = sum(number for left, number in zip(found.edges, counts, strict=False) if left >= 0)
    return percent(above / total if total else None, 0)


def label(name: str) -> Html:
    """A name in a drawing, where no ``bdi`` can stand: marks keep its direction of writing to itself."""
    return Html(f"\u2068{join(shorten(visible(name).strip() or '(no name)', LABEL_UNITS))}\u2069")


def importance(found: Sequence[Importance]) -> Html:
    """The most influential columns as bars."""
    name, title = "figure-importance", "The most influential columns"
    top = found[:MOST_COLUMNS]
    spans = {entry: _span(entry) for entry in top}
    x = axis(
        [0.0, *(entry.drop for entry in top), *(end for span in spans.values() for end in span or ())], percent=True
    )
    rows = [
        (
            label(entry.column),
            [
                drawing.bar(x, entry.drop),
                drawing.whisker(x, *span, "over") if (span := spans[entry]) is not None else None,
            ],
        )
        for entry in top
    ]
    drawn = drawing.rows(
        name,
        title,
        join(join(label(entry.column), f": {_points(entry.drop)}. ") for entry in top),
        x,
        rows,
        x_label="accuracy lost when the column is shuffled",
        left=0,
    )
    cells = [[named(entry.column), _points(entry.drop), _points(entry.standard_error)] for entry in found]
    numbers = table("All columns that were tried", ["column", "points lost", "standard error"], cells)
    legend = [Sample("one standard error to either side", "over", "whisker")] * any(spans.values())
    of = f"The first {len(top)} of {plural(len(found), 'column')}. " if len(found) > len(top) else ""
    more = f"{of}Shown is how much estimated accuracy is lost when a column is shuffled; no label was used."
    return figure(name, drawn, title, more, legend, numbers)


def _span(entry: Importance) -> tuple[float, float] | None:
    error = entry.standard_error
    return None if error is None else (entry.drop - error, entry.drop + error)


def _points(share: float | None) -> str:
    return UNKNOWN if share is None else f"{plain(100 * share, 1)} points"
