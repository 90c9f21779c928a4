"""Check the four conclusions of Section 4 of the paper (see ``conclusions.md.jinja``) against the stored runs."""

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from uulearn.report.html import render_page
from uulearn.reproduction.experiments import DATASETS, FIXED_SLOPE
from uulearn.reproduction.render import signed
from uulearn.reproduction.statistics import LEVEL, first_negative_epoch, paired_t_test, turning_epoch
from uulearn.reproduction.tables import METHOD_NAMES, MIN_TESTED_TRIALS, Record, ResultCell, slope_column

CellsByModel = Mapping[str, Sequence[ResultCell]]
Lines = list[list[str]]

COMPARED_METHODS = {
    slope_column(FIXED_SLOPE).name if name == "leaky_relu" else name: label for name, label in METHOD_NAMES.items()
}
"""Names of the compared methods, by table column; the leaky ReLU uses λ = −0.1."""
UNCORRECTED, CORRECTED = tuple(COMPARED_METHODS)[:2], tuple(COMPARED_METHODS)[2:]
MODEL_GROUPS = {"linear": "linear models (Table 2)", "mlp": "MLP (Table 3)", "resnet32": "ResNet-32 (Table 3)"}


class Contest(NamedTuple):
    """Comparison of two methods on one table row: the difference in mean accuracy, and a paired t-test."""

    model: str
    corrected: str
    plain: str
    difference: float
    p: float | None
    verdict: str
    """Result of the t-test at the 5% level, or ``not tested`` if there are fewer than three trials."""


def contests(cells: CellsByModel) -> list[Contest]:
    """Compare every corrected method with every uncorrected method on each row that has runs of both methods."""
    found = []
    for model, own in cells.items():
        trials = {(cell.row, cell.column.name): cell.trials for cell in own}
        rows = dict.fromkeys(cell.row for cell in own)
        for row, corrected, plain in itertools.product(rows, CORRECTED, UNCORRECTED):
            ours, theirs = trials.get((row, corrected), {}), trials.get((row, plain), {})
            if seeds := sorted(ours.keys() & theirs.keys()):
                a, b = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
                gain, p = float(np.mean(a) - np.mean(b)), paired_t_test(a, b)
                verdict = "even" if p is None or p >= LEVEL else "better" if gain > 0 else "worse"
                verdict = verdict if len(seeds) >= MIN_TESTED_TRIALS else "not tested"
                found.append(Contest(model, corrected, plain, gain, p, verdict))
    return found


def drops_by_priors(cells: CellsByModel) -> dict[tuple[str, str, str], dict[tuple[float, float], float]]:
    """Return the mean accuracy drop per pair of priors (largest gap first), keyed by (model, dataset, method)."""
    found: dict[tuple[str, str, str], dict[tuple[float, float], float]] = {}
    for model, own in cells.items():
        for cell in sorted((cell for cell in own if cell.column.name in COMPARED_METHODS), key=_reading_order):
            if cell.drop:
                place = model, cell.row.dataset_label, COMPARED_METHODS[cell.column.name]
                found.setdefault(place, {})[cell.row.set_priors] = cell.drop.mean
    return found


def _reading_order(cell: ResultCell) -> tuple[int, int, float]:
    theta, theta_prime = cell.row.set_priors
    return DATASETS.index(cell.row.dataset), [*COMPARED_METHODS].index(cell.column.name), -abs(theta - theta_prime)


class CoOccurrence(NamedTuple):
    """Co-occurrence of negative training risks and rising test errors, and the rank correlation of their epochs."""

    both: int
    only_negative: int
    only_turns: int
    neither: int
    together: float
    """Fraction of runs in which either both events or neither event occurred."""
    spearman: float | None


def co_occurrence(records: Sequence[Record]) -> CoOccurrence:
    """Count the runs with a negative risk and a rising test error, and correlate the epochs of these two events."""
    curves = [record["curves"] for record in records]
    events = [(first_negative_epoch(curve["unbiased"]), turning_epoch(curve["test_accuracy"])) for curve in curves]
    tally = Counter((negative is not None, turn is not None) for negative, turn in events)
    pairs = [event for event in events if None not in event]
    spearman = None
    if len(pairs) > 2 and all(len(set(side)) > 1 for side in zip(*pairs, strict=True)):
        spearman = float(stats.spearmanr(*zip(*pairs, strict=True)).statistic)
    both, neither = tally[True, True], tally[False, False]
    together = (both + neither) / len(records)
    return CoOccurrence(both, tally[True, False], tally[False, True], neither, together, spearman)


class RegularizedRun(NamedTuple):
    """One run in Figure 3: its lowest and last test risk, and its best and last test accuracy in percent."""

    name: str
    lowest_risk: float
    last_risk: float
    best_accuracy: float
    last_accuracy: float


def regularized_runs(records: Iterable[Record], entry: str) -> list[RegularizedRun]:
    """Return the runs in a panel of Figure 3, sorted by regularization; ``entry`` is ``dropout`` or ``l2``."""
    found = []
    for record in sorted(records, key=lambda record: record["configuration"][entry]):
        curves = {n: [v for v in values if math.isfinite(v)] for n, values in record["curves"].items()}
        risk, accuracy = curves["test_risk"], curves["test_accuracy"]
        if risk:  # empty if the run failed in its first epoch
            name = f"{'dropout' if entry == 'dropout' else 'weight decay'} {record['configuration'][entry]:g}"
            found.append(RegularizedRun(name, min(risk), risk[-1], 100 * max(accuracy), 100 * accuracy[-1]))
    return found


def to_markdown(
    cells: CellsByModel,
    records: Sequence[Record],
    dropout: Sequence[Record] = (),
    decay: Sequence[Record] = (),
    caveat: str = "",
) -> str:
    """Render the page from the runs of the tables (``cells``, ``records``) and of Figure 3 (``dropout``, ``decay``).

    ``caveat`` is added to the title if the runs do not use the paper's setting.
    """
    return render_page(
        "conclusions.md.jinja",
        "uulearn.reproduction",
        caveat=caveat,
        contests=_contest_lines(contests(cells)),
        drops=_drop_lines(drops_by_priors(cells)),
        together=[(label, len(some), co_occurrence(some)) for label, some in _groups(records) if some],
        regularized=[*regularized_runs(dropout, "dropout"), *regularized_runs(decay, "l2")],
        signed=signed,
    )


def _contest_lines(found: Sequence[Contest]) -> Lines:
    verdicts = ["better", "even", "worse", "not tested"]
    lines = [["", "against", "rows", *verdicts, "mean gain", "smallest gain"]]
    for model, corrected, plain in itertools.product(MODEL_GROUPS, CORRECTED, UNCORRECTED):
        if own := [contest for contest in found if contest[:3] == (model, corrected, plain)]:
            tally, gains = Counter(contest.verdict for contest in own), [contest.difference for contest in own]
            name = f"{COMPARED_METHODS[corrected]}, {MODEL_GROUPS[model]}"
            counts = [str(len(own)), *(str(tally[verdict]) for verdict in verdicts)]
            lines.append([name, COMPARED_METHODS[plain], *counts, signed(float(np.mean(gains))), signed(min(gains))])
    return lines


def _drop_lines(drops: Mapping[tuple[str, str, str], Mapping[tuple[float, float], float]]) -> Lines:
    columns = list(dict.fromkeys(priors for series in drops.values() for priors in series))
    lines = [["", "dataset", "method", *(f"{a:g}, {b:g}" for a, b in columns), "grows"]]
    for place, series in drops.items():
        shown = [f"{series[priors]:.2f}" if priors in series else "–" for priors in columns]
        grows = "yes" if all(a < b for a, b in itertools.pairwise(series.values())) else "no"
        lines.append([*place, *shown, grows if len(series) > 1 else "–"])
    return lines


def _groups(records: Iterable[Record]) -> Iterator[tuple[str, list[Record]]]:
    """Yield the runs grouped by method and by model; the leaky ReLU is included with only one λ."""
    records = [r for r in records if r["configuration"]["slope"] in (None, FIXED_SLOPE)]
    yield "all methods, all models", records
    for method, name in METHOD_NAMES.items():
        yield name, [r for r in records if r["configuration"]["method"] == method]
    for model, label in MODEL_GROUPS.items():
        own = [r for r in records if r["configuration"]["model"] == model]
        yield f"all methods, {label}", own
        yield f"UU-Unbiased, {label}", [r for r in own if r["configuration"]["method"] == "unbiased"]
