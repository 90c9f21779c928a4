"""What was tried where the paper is silent: how each reading of it fares against the printed numbers of Table 3."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from uulearn.paper.experiments import (
    TABLE_MODELS,
    VARIANT_METHODS,
    VARIANT_TRIALS,
    VARIANTS,
    Request,
    TableRow,
    method_of,
    variant_rows,
    variant_run,
)
from uulearn.paper.reference import PaperCell, paper_table
from uulearn.paper.render import grid, signed
from uulearn.paper.selection import Find, last_accuracy
from uulearn.paper.statistics import agrees, mean_std
from uulearn.paper.tables import Row


@dataclass(frozen=True)
class Tried:
    """One method of one row under one reading: mean and deviation over trials in percent, beside the paper's."""

    row: TableRow
    variant: str
    method: str | float
    mean: float
    std: float | None
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
    """Every cell of every reading of which all trials are there."""
    printed = {table: paper_table(table) for table in TABLE_MODELS}
    out = []
    for variant in VARIANTS:
        for row in variant_rows(variant, request):
            for method in VARIANT_METHODS:
                found = [
                    last_accuracy(find(variant_run(row, variant, method, seed))) for seed in row.seeds[:VARIANT_TRIALS]
                ]
                known = [value for value in found if value is not None]
                if len(known) == len(found):
                    name = method if isinstance(method, str) else method_of(method)[0]
                    paper = printed[row.table][row.dataset, row.set_priors][name]
                    out.append(Tried(row, variant, method, *mean_std(known), paper))
    return out


def to_markdown(cells: Sequence[Tried], caveat: str = "") -> str:
    """For each reading how near it comes to the paper, and every cell of it.

    ``caveat`` is added to the title, for runs that are not in the paper's setting.
    """
    present = [variant for variant in VARIANTS if any(cell.variant == variant for cell in cells)]
    parts = [
        f"### What was tried{caveat}",
        "Rows of Table 3 (MLP) and of Table 2 (CIFAR-10) under other readings of the paper, as far as run, trials 0 to "
        f"{VARIANT_TRIALS - 1}. Numbers are differences to the paper's mean accuracy at the last epoch, in points; ≠ "
        "marks those beyond 1.5 points and two pooled standard deviations. The paper's LReLU, whose λ was selected, "
        "stands beside two fixed λ. *Distance* is the mean of the absolute differences.",
        "\n".join(f"- **{variant}**: {VARIANTS[variant]}." for variant in present),
        _summary(cells, present),
    ]
    for method in VARIANT_METHODS:
        parts += [f"**{_label(method)}**", _cells(cells, present, method)]
    return "\n\n".join(parts) + "\n"


def _summary(cells: Sequence[Tried], variants: Sequence[str]) -> str:
    lines = [
        ["", "cells", "agree", "as printed on the same", *(f"{_label(method)}: distance" for method in VARIANT_METHODS)]
    ]
    printed = {(cell.row, cell.method): cell for cell in cells if cell.variant == "as printed"}
    for variant in variants:
        mine = [cell for cell in cells if cell.variant == variant]
        same = [printed[cell.row, cell.method] for cell in mine if (cell.row, cell.method) in printed]
        distances = []
        for method in VARIANT_METHODS:
            far = [abs(cell.difference) for cell in mine if cell.method == method]
            distances.append(f"{np.mean(far):.2f}" if far else "–")
        counts = [len(mine), sum(cell.agrees for cell in mine), sum(cell.agrees for cell in same)]
        lines.append([variant, *map(str, counts), *distances])
    return grid(lines, left=1)


def _cells(cells: Sequence[Tried], variants: Sequence[str], method: str | float) -> str:
    mine: Mapping[tuple[TableRow, str], Tried] = {(c.row, c.variant): c for c in cells if c.method == method}
    rows = list(dict.fromkeys(row for row, _ in mine))
    lines = [["Dataset", "θ, θ′", "paper", *variants]]
    for row in rows:
        place = Row(row.dataset, row.set_priors)
        paper = next(cell.paper for (own, _), cell in mine.items() if own == row)
        shown = [_shown(mine.get((row, variant))) for variant in variants]
        lines.append([f"{place.dataset_label}, {row.model}", place.priors_label, f"{paper.accuracy.mean:.2f}", *shown])
    return grid(lines, left=2)


def _shown(cell: Tried | None) -> str:
    if cell is None or not math.isfinite(cell.mean):
        return "–"
    spread = "" if cell.std is None else f" ({cell.std:.2f})"
    return f"{signed(cell.difference)}{spread}{'' if cell.agrees else ' ≠'}"


def _label(method: str | float) -> str:
    if isinstance(method, str):
        return f"UU-{method.capitalize()}"
    name, slope = method_of(method)
    return f"UU-LReLU, λ = −{-slope:g}" if slope is not None else {"relu": "UU-ReLU", "abs": "UU-ABS"}[name]
