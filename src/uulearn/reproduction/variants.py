"""Compare the paper's numbers with results under other interpretations of details that the paper does not specify."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from uulearn.report.html import render_page
from uulearn.reproduction import experiments
from uulearn.reproduction.experiments import CONVOLUTIONAL, VARIANT_METHODS, VARIANT_TRIALS, VARIANTS, Request, TableRow
from uulearn.reproduction.reference import PaperCell, paper_table
from uulearn.reproduction.render import signed
from uulearn.reproduction.selection import Find, last_accuracy
from uulearn.reproduction.statistics import agrees, mean_std
from uulearn.reproduction.tables import METHOD_NAMES, Record

LATE_EPOCHS = 20
"""Number of final epochs over which the median accuracy of ResNet-32 is computed."""


@dataclass(frozen=True)
class VariantResult:
    """Result of a variant for one method and row: mean and standard deviation in percent, and the paper's numbers."""

    row: TableRow
    variant: str
    method: str | float
    mean: float
    std: float | None
    late: float
    """Mean of `late_accuracy` over the trials."""
    paper: PaperCell

    @property
    def difference(self) -> float:
        """Our mean minus the paper's mean, in percentage points."""
        return self.mean - self.paper.accuracy.mean

    @property
    def agrees(self) -> bool:
        """Whether our mean agrees with the paper, by the same rule as in the tables."""
        return agrees(self.mean, self.std, *self.paper.accuracy)


def variant_results(request: Request, find: Find) -> list[VariantResult]:
    """Return the results for which all required trials are available; additional trials are included."""
    results = []
    cases = [
        (variant, row, method)
        for variant in VARIANTS
        for row in experiments.variant_rows(variant, request)
        for method in experiments.variant_methods(variant, row)
    ]
    for variant, row, method in cases:
        seeds = row.seeds[:VARIANT_TRIALS]
        found = {seed: find(experiments.variant_run(row, variant, method, seed)) for seed in seeds}
        known = {seed: value for seed, record in found.items() if (value := last_accuracy(record)) is not None}
        if set(experiments.variant_seeds(variant, row)) <= known.keys():
            name = method if isinstance(method, str) else experiments.method_of(method)[0]
            paper = paper_table(row.table)[row.dataset, row.set_priors][name]
            late = float(np.mean([late_accuracy(found[seed]) for seed in known]))
            results.append(VariantResult(row, variant, method, *mean_std(list(known.values())), late, paper))
    return results


def late_accuracy(record: Record | None) -> float:
    """Return the median test accuracy over the final epochs in percent; it is less noisy than the last accuracy."""
    curve = [] if record is None else record["curves"].get("test_accuracy", ())
    return 100 * float(np.nanmedian(curve[-LATE_EPOCHS:]))


def to_markdown(results: Sequence[VariantResult], caveat: str = "") -> str:
    """Render the page on the variants; ``caveat`` is added to the title if the runs do not use the paper's setting."""
    dense = [result for result in results if result.row.model not in CONVOLUTIONAL]
    resnet = [result for result in results if result.row.model in CONVOLUTIONAL]
    return render_page(
        "variants.md.jinja",
        "uulearn.reproduction",
        caveat=caveat,
        variants=_present(results),
        last_trial=VARIANT_TRIALS - 1,
        late_epochs=LATE_EPOCHS,
        summary=_summary(dense),
        dense=_method_grids(dense),
        resnet=_method_grids(resnet),
    )


def _present(results: Sequence[VariantResult]) -> list[str]:
    return [variant for variant in VARIANTS if any(result.variant == variant for result in results)]


def _summary(results: Sequence[VariantResult]) -> list[list[object]]:
    """Return one line per variant: the number of cells, how many of them agree with the paper, and mean distances."""
    lines: list[list[object]] = [["", "cells", "agree", "as printed, same cells"]]
    lines[0] += [f"{_label(method)}: distance" for method in VARIANT_METHODS]
    printed = {(result.row, result.method): result for result in results if result.variant == "as printed"}
    for variant in _present(results):
        own = [result for result in results if result.variant == variant]
        same = [printed[result.row, result.method] for result in own if (result.row, result.method) in printed]
        far = [[abs(result.difference) for result in own if result.method == method] for method in VARIANT_METHODS]
        counts = [len(own), sum(result.agrees for result in own), sum(result.agrees for result in same)]
        lines.append([variant, *counts, *(f"{np.mean(one):.2f}" if one else "–" for one in far)])
    return lines


def _method_grids(results: Sequence[VariantResult]) -> list[tuple[str, list[list[str]]]]:
    """Return the name of each method and its table of results."""
    grids = []
    for method in VARIANT_METHODS:
        own = {(result.row, result.variant): result for result in results if result.method == method}
        variants = _present(list(own.values()))
        lines = [["Dataset", "θ, θ′", "paper", *variants]]
        for row, paper in {row: result.paper for (row, _), result in own.items()}.items():
            name = f"{row.dataset_label}, {experiments.MODEL_NAMES[row.model]}"
            shown = [_shown(own.get((row, variant))) for variant in variants]
            lines.append([name, row.priors_label, f"{paper.accuracy.mean:.2f}", *shown])
        if own:
            grids.append((_label(method), lines))
    return grids


def _shown(result: VariantResult | None) -> str:
    if result is None or not math.isfinite(result.mean):
        return "–"
    spread = "" if result.std is None else f" ({result.std:.2f})"
    late = f" / {signed(result.late - result.paper.accuracy.mean)}" if result.row.model in CONVOLUTIONAL else ""
    return f"{signed(result.difference)}{spread}{late}{'' if result.agrees else ' ≠'}"


def _label(method: str | float) -> str:
    name, slope = (method, None) if isinstance(method, str) else experiments.method_of(method)
    return METHOD_NAMES[name] + ("" if slope is None else f", λ = −{-slope:g}")
