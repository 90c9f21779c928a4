"""Render a `ResultTable` as Markdown, as LaTeX in the paper's layout, and as an HTML page.

`cell_numbers` returns the numbers and marks of a cell; the templates ``tables.*.jinja`` contain the layout and the
text. A cell shows our number, the paper's number and the difference, in percent.
"""

import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from uulearn.report.html import render_page
from uulearn.reproduction.experiments import ResultRow
from uulearn.reproduction.reference import Spread
from uulearn.reproduction.tables import MIN_TESTED_TRIALS, MethodColumn, ResultCell, ResultTable

DIFFERS, NOT_FINITE, SPACE = "≠", "†", "\N{NO-BREAK SPACE}"
QUANTITIES = {"accuracy": "Accuracy", "drop": "Drop in accuracy from the best to the last epoch"}
SLOPES_CAPTION = "Generalized leaky ReLU with each λ: accuracy and drop"
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "\n": " ", SPACE: "~",
        "λ": r"$\lambda$", "θ": r"$\theta$", "π": r"$\pi$", "Δ": r"$\Delta$", "′": "$'$", "−": "$-$", "±": r"$\pm$",
        DIFFERS: r"$\neq$", NOT_FINITE: r"$\dagger$",
    }
)  # fmt: skip
MARKDOWN_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#$])")
LATEX_SIGNS = str.maketrans({"−": "-", "±": r"\pm "})


class CellNumber(NamedTuple):
    """A formatted number in a cell; ``kind`` is ``ours``, ``paper``, ``difference`` or ``note``."""

    kind: str
    mean: str
    std: str = ""
    """Standard deviation in parentheses, empty for a single trial."""
    mark: str = ""
    bold: bool = False

    @property
    def rest(self) -> str:
        """The text after the mean: the standard deviation and the mark."""
        return (SPACE + self.std if self.std else "") + self.mark

    @property
    def text(self) -> str:
        """The mean, the standard deviation and the mark as one string."""
        return self.mean + self.rest


def cell_numbers(cell: ResultCell, quantity: str) -> list[CellNumber]:
    """Return the formatted numbers of a cell; ``quantity`` is ``accuracy``, ``drop`` or ``both``."""
    if quantity == "both":
        accuracy, *rest = (n for n in cell_numbers(cell, "accuracy") if n.kind in ("ours", "note"))
        return [accuracy, *cell_numbers(cell, "drop")[:1], *rest] if cell.drop else [accuracy, *rest]
    is_accuracy = quantity == "accuracy"
    difference = cell.difference(quantity)
    missing = "no number" if cell.runs else "not run" if cell.requested else "–"
    finite = NOT_FINITE if cell.not_finite else ""
    numbers = [_number("ours", getattr(cell, quantity), cell.bold and is_accuracy, finite, missing)]
    if cell.paper:
        numbers.append(_number("paper", getattr(cell.paper, quantity), cell.paper.bold and is_accuracy))
    if difference is not None:
        mark = SPACE + DIFFERS if is_accuracy and cell.agrees is False else ""
        numbers.append(CellNumber("difference", signed(difference), mark=mark))
    if cell.runs and not cell.complete:
        numbers.append(CellNumber("note", f"{cell.runs} of {cell.requested} trials".replace(" ", SPACE)))
    return numbers


def _number(kind: str, spread: Spread | None, bold: bool, mark: str = "", missing: str = "") -> CellNumber:
    if spread is None:
        return CellNumber(kind, missing, mark=mark)
    return CellNumber(kind, f"{spread.mean:.2f}", "" if spread.std is None else f"({spread.std:.2f})", mark, bold)


def signed(value: float) -> str:
    """Format a number with two decimals and a sign, such as ``−0.50``."""
    text = f"{value:+.2f}"
    return "±0.00" if text in ("+0.00", "-0.00") else text.replace("-", "−")


def _render(template: str, *tables: ResultTable, **functions: Any) -> str:
    return render_page(
        template,
        "uulearn.reproduction",
        tables=[(table, _grids(table), _by_dataset(table)) for table in tables],
        cell_numbers=cell_numbers,
        min_trials=MIN_TESTED_TRIALS,
        **functions,
    )


def _grids(table: ResultTable) -> list[tuple[str, str, Sequence[MethodColumn]]]:
    """Return the quantity, the caption and the columns of each grid in a table."""
    paper, slopes = ([column for column in table.columns if bool(column.paper) is which] for which in (True, False))
    grids = [(quantity, caption, paper) for quantity, caption in QUANTITIES.items()]
    return [grid for grid in [*grids, ("both", SLOPES_CAPTION, slopes)] if grid[2]]


def _by_dataset(table: ResultTable) -> list[tuple[str, list[ResultRow]]]:
    return [(name, list(rows)) for name, rows in itertools.groupby(table.rows, key=lambda row: row.dataset_label)]


def to_html(*tables: ResultTable) -> str:
    """Render all tables as one self-contained HTML page."""
    return _render("tables.html.jinja", *tables, title=" · ".join(table.title for table in tables))


def to_markdown(table: ResultTable) -> str:
    """Render the table as GitHub Markdown."""
    return _render("tables.md.jinja", table, escape=lambda text: MARKDOWN_SPECIAL.sub(r"\\\1", text), space=SPACE)


def to_latex(table: ResultTable) -> str:
    r"""Render the table as LaTeX in the paper's layout, which requires booktabs, multirow and graphicx."""
    return _render("tables.tex.jinja", table, escape=lambda text: text.translate(LATEX), latex_block=_latex_block)


def _latex_block(table: ResultTable, row: ResultRow, columns: Sequence[MethodColumn]) -> list[str]:
    """Return the LaTeX lines of one row: our means and deviations, those of the paper, and the differences."""
    cells = [_latex_cell(table[row, column]) for column in columns]
    used = range(5) if any(table[row, column].paper for column in columns) else range(2)
    return [" & ".join([["ours", "", "paper", "", "diff."][i], *(cell[i] for cell in cells)]) for i in used]


def _latex_cell(cell: ResultCell) -> list[str]:
    halves = []
    for quantity in QUANTITIES:
        numbers = {number.kind: number for number in cell_numbers(cell, quantity)}
        half = _latex_spread(numbers["ours"] if getattr(cell, quantity) else None)
        if quantity == "accuracy":
            marks = ("" if cell.complete else f"{cell.runs}/{cell.requested}") + (r"\dagger" if cell.not_finite else "")
            half[0] += f"$^{{{marks}}}$" if marks else ""
        half += _latex_spread(numbers.get("paper"))
        difference = numbers.get("difference")
        differs = r"^{\neq}" if difference and difference.mark else ""
        half.append(f"${difference.mean.translate(LATEX_SIGNS)}{differs}$" if difference else "")
        halves.append(half)
    return [f"{accuracy} & {drop}" for accuracy, drop in zip(*halves, strict=True)]


def _latex_spread(number: CellNumber | None) -> list[str]:
    texts = ["--", ""] if number is None else [number.mean, number.std]
    return [rf"\textbf{{{text}}}" if number and number.bold and text else text for text in texts]
