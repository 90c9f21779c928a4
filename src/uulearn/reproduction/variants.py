"""What was tried where the paper is silent: how each reading of it fares against the printed numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uulearn.reproduction.experiments import (
    CONVOLUTIONAL,
    TABLE_MODELS,
    VARIANT_METHODS,
    VARIANT_TRIALS,
    VARIANTS,
    Request,
    TableRow,
    method_of,
    variant_methods,
    variant_rows,
    variant_run,
    variant_seeds,
)
from uulearn.reproduction.reference import PaperCell, paper_table
from uulearn.reproduction.render import grid, signed
from uulearn.reproduction.selection import Find, last_accuracy
from uulearn.reproduction.statistics import agrees, mean_std
from uulearn.reproduction.tables import Row

LATE = 20
"""Epochs at the end of a run."""
MODEL_LABELS = {"resnet32": "ResNet-32", "mlp": "MLP"}


@dataclass(frozen=True)
class Tried:
    """One method of one row under one reading: mean and deviation over trials in percent, beside the paper's.

    ``late`` is the mean of the trials' `late_accuracy`.
    """

    row: TableRow
    variant: str
    method: str | float
    mean: float
    std: float | None
    late: float
    paper: PaperCell

    @property
    def difference(self) -> float:
        """Ours minus the paper's mean, in points."""
        return self.mean - self.paper.accuracy.mean

    @property
    def agrees(self) -> bool:
        """By the rule of the tables."""
        return agrees(self.mean, self.std, self.paper.accuracy.mean, self.paper.accuracy.std)


def tried(request: Request, find: Find) -> list[Tried]:
    """Every cell of every reading of which all trials are there; of further trials all that are."""
    printed = {table: paper_table(table) for table in TABLE_MODELS}
    out = []
    for variant in VARIANTS:
        for row in variant_rows(variant, request):
            asked, further = variant_seeds(variant, row), row.seeds[:VARIANT_TRIALS]
            for method in variant_methods(variant, row):
                found = {seed: find(variant_run(row, variant, method, seed)) for seed in further}
                known = {seed: value for seed in found if (value := last_accuracy(found[seed])) is not None}
                if set(asked) <= known.keys():
                    name = method if isinstance(method, str) else method_of(method)[0]
                    paper = printed[row.table][row.dataset, row.set_priors][name]
                    late = float(np.mean([late_accuracy(found[seed]) for seed in known]))
                    out.append(Tried(row, variant, method, *mean_std(list(known.values())), late, paper))
    return out


def late_accuracy(record: Mapping[str, Any] | None) -> float:
    """Median test accuracy of the last epochs in percent, which swings less than that of the last one."""
    curve = [] if record is None else record["curves"].get("test_accuracy", ())
    return 100 * float(np.nanmedian(curve[-LATE:]))


def to_markdown(cells: Sequence[Tried], caveat: str = "") -> str:
    """For each reading how near it comes to the paper, and every cell of it; ResNet-32 apart.

    ``caveat`` is added to the title, for runs that are not in the paper's setting.
    """
    dense = [cell for cell in cells if cell.row.model not in CONVOLUTIONAL]
    resnet = [cell for cell in cells if cell.row.model in CONVOLUTIONAL]
    parts = [
        f"### What was tried{caveat}",
        "Rows of the tables under other readings of the paper, as far as run. Numbers are differences to the paper's "
        "mean accuracy at the last epoch, in points, with the standard deviation over trials; ≠ marks those beyond 1.5 "
        "points and two pooled standard deviations. The paper's LReLU, whose λ was selected, stands beside fixed λ.",
        "\n".join(f"- **{variant}**: {VARIANTS[variant]}." for variant in _present(cells)),
    ]
    if dense:
        parts += [
            "#### Table 3 with the MLP, and CIFAR-10 of Table 2",
            f"Trials 0 to {VARIANT_TRIALS - 1}. *Distance* is the mean of the absolute differences.",
            _summary(dense),
            *_tables(dense),
        ]
    if resnet:
        parts += [
            "#### ResNet-32",
            "One trial, of the settings as printed two, and of a third of the learning rate, leaky ReLU, two. Behind "
            f"the stroke the same difference of the median of the last {LATE} epochs, which swings less.",
            *_tables(resnet),
        ]
    return "\n\n".join(parts) + "\n"


def _present(cells: Sequence[Tried]) -> list[str]:
    return [variant for variant in VARIANTS if any(cell.variant == variant for cell in cells)]


def _summary(cells: Sequence[Tried]) -> str:
    lines = [
        ["", "cells", "agree", "as printed on the same", *(f"{_label(method)}: distance" for method in VARIANT_METHODS)]
    ]
    printed = {(cell.row, cell.method): cell for cell in cells if cell.variant == "as printed"}
    for variant in _present(cells):
        mine = [cell for cell in cells if cell.variant == variant]
        same = [printed[cell.row, cell.method] for cell in mine if (cell.row, cell.method) in printed]
        distances = []
        for method in VARIANT_METHODS:
            far = [abs(cell.difference) for cell in mine if cell.method == method]
            distances.append(f"{np.mean(far):.2f}" if far else "–")
        counts = [len(mine), sum(cell.agrees for cell in mine), sum(cell.agrees for cell in same)]
        lines.append([variant, *map(str, counts), *distances])
    return grid(lines, left=1)


def _tables(cells: Sequence[Tried]) -> Iterator[str]:
    """The heading and the cells of every method in turn."""
    for method in VARIANT_METHODS:
        mine = {(cell.row, cell.variant): cell for cell in cells if cell.method == method}
        if not mine:
            continue
        variants = _present(list(mine.values()))
        lines = [["Dataset", "θ, θ′", "paper", *variants]]
        for row in dict.fromkeys(row for row, _ in mine):
            place = Row(row.dataset, row.set_priors)
            paper = next(cell.paper for (own, _), cell in mine.items() if own == row)
            shown = [_shown(mine.get((row, variant))) for variant in variants]
            name = f"{place.dataset_label}, {MODEL_LABELS.get(row.model, row.model)}"
            lines.append([name, place.priors_label, f"{paper.accuracy.mean:.2f}", *shown])
        yield f"**{_label(method)}**"
        yield grid(lines, left=2)


def _shown(cell: Tried | None) -> str:
    if cell is None or not math.isfinite(cell.mean):
        return "–"
    spread = "" if cell.std is None else f" ({cell.std:.2f})"
    late = f" / {signed(cell.late - cell.paper.accuracy.mean)}" if cell.row.model in CONVOLUTIONAL else ""
    return f"{signed(cell.difference)}{spread}{late}{'' if cell.agrees else ' ≠'}"


def _label(method: str | float) -> str:
    if isinstance(method, str):
        return f"UU-{method.capitalize()}"
    name, slope = method_of(method)
    return f"UU-LReLU, λ = −{-slope:g}" if slope is not None else {"relu": "UU-ReLU", "abs": "UU-ABS"}[name]
