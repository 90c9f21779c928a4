"""A `ResultTable` as Markdown, as LaTeX in the paper's layout, and as an HTML page.

`cell_numbers` gives the numbers and marks of a cell; the three renderers only arrange them. Each shows our number, the
paper's and the difference in percent, and lists the cells that differ from the paper.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

from uulearn.report.html import render_page
from uulearn.reproduction.reference import Spread
from uulearn.reproduction.tables import MIN_TESTED_TRIALS, MethodColumn, ResultCell, ResultRow, ResultTable

DIFFERS, NOT_FINITE, SPACE = "≠", "†", "\N{NO-BREAK SPACE}"
QUANTITIES = {"accuracy": "Accuracy", "drop": "Drop of accuracy, best epoch minus last"}
SLOPES_CAPTION = "Each λ of the generalized leaky ReLU: accuracy and drop"


class CellNumber(NamedTuple):
    """One number of a cell; ``kind`` is ours, paper, difference or note."""

    kind: str
    mean: str
    std: str = ""
    """Standard deviation in parentheses, empty for a single trial."""
    mark: str = ""
    bold: bool = False

    @property
    def text(self) -> str:
        """Mean, deviation and mark on one line."""
        return self.mean + (SPACE + self.std if self.std else "") + self.mark


def cell_numbers(cell: ResultCell, quantity: str) -> list[CellNumber]:
    """The numbers of a cell: ``quantity`` is ``accuracy``, ``drop``, or ``both`` for our accuracy and drop."""
    if quantity == "both":
        accuracy, *rest = (n for n in cell_numbers(cell, "accuracy") if n.kind in ("ours", "note"))
        return [accuracy, *cell_numbers(cell, "drop")[:1], *rest] if cell.drop else [accuracy, *rest]
    is_accuracy = quantity == "accuracy"
    ours, paper = getattr(cell, quantity), getattr(cell.paper, quantity, None)
    difference = cell.difference if is_accuracy else cell.drop_difference
    missing = "no number" if cell.runs else "not run" if cell.requested else "–"
    finite = NOT_FINITE if cell.not_finite else ""
    numbers = [_number("ours", ours, cell.bold and is_accuracy, finite, missing)]
    if cell.paper:
        numbers.append(_number("paper", paper, cell.paper.bold and is_accuracy))
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
    """Two decimals with a sign.

    Examples
    --------
    >>> signed(-0.5), signed(1.234)
    ('−0.50', '+1.23')
    """
    text = f"{value:+.2f}"
    return "±0.00" if text in ("+0.00", "-0.00") else text.replace("-", "−")


# Sentences


def describe(cell: ResultCell) -> str:
    """A cell in words: its place, our number, the paper's and the difference."""
    numbers = {number.kind: number.text for number in cell_numbers(cell, "accuracy")}
    if cell.difference is None:
        return f"{cell.row.label}, {cell.column.label}: nothing to compare"
    ours, difference = numbers["ours"].rstrip(NOT_FINITE), signed(cell.difference)
    return f"{cell.row.label}, {cell.column.label}: {ours}, paper {numbers['paper']}, {difference} points"


def explanation(table: ResultTable) -> list[str]:
    """How to read the table; only sentences that apply to it."""
    sentences = [f"Means (standard deviations) over {_trials(table)}, in percent, at the last epoch."]
    if any(cell.bold or (cell.paper and cell.paper.bold) for cell in table):
        untested = any(cell.requested < MIN_TESTED_TRIALS for cell in table)
        sentences.append(
            "Bold: the best method and those not significantly worse (paired t-test, 5%)"
            + (f"; rows with fewer than {MIN_TESTED_TRIALS} trials are not tested." if untested else ".")
        )
    if any(cell.paper for cell in table):
        compared = len(table.compared)
        sentences.append(
            f"{compared - len(table.disagreeing)} of {compared} complete cells agree with the paper (within 1.5 points "
            f"or two pooled standard deviations); the others are marked {DIFFERS}."
        )
    if missing := len(table.incomplete):
        sentences.append(f"{missing} of {len(table.cells)} cells are incomplete; only complete rows have bold numbers.")
    return [*sentences, *table.notes]


def _trials(table: ResultTable) -> str:
    """The number of trials, and the datasets with fewer."""
    requested = {row.dataset_label: max(table[row, column].requested for column in table.columns) for row in table.rows}
    most = max(requested.values(), default=0)
    fewer = ", ".join(f"{number} for {label}" for label, number in requested.items() if number < most)
    return f"{most} {'trial' if most == 1 else 'trials'}" + (f" ({fewer})" if fewer else "")


def footnotes(table: ResultTable) -> list[str]:
    """One line per cell with runs that ended because the risk was not finite."""
    return [
        f"{NOT_FINITE} {cell.row.label}, {cell.column.label}: the risk was not finite in {cell.not_finite} of "
        f"{cell.runs} runs; their last finite epoch counts."
        for cell in table
        if cell.not_finite
    ]


def _grids(table: ResultTable) -> list[tuple[str, str, Sequence[MethodColumn]]]:
    """Quantity, caption and columns of each grid of a table."""
    grids = [(quantity, caption, table.paper_columns) for quantity, caption in QUANTITIES.items()]
    return [grid for grid in [*grids, ("both", SLOPES_CAPTION, table.slope_columns)] if grid[2]]


def _by_dataset(table: ResultTable) -> list[tuple[str, list[ResultRow]]]:
    return [(name, list(rows)) for name, rows in itertools.groupby(table.rows, key=lambda row: row.dataset_label)]


# Markdown


def to_markdown(table: ResultTable) -> str:
    """The table in GitHub Markdown."""
    parts = [f"### {_markdown_text(table.title)}"]
    for quantity, caption, columns in _grids(table):
        parts += [f"**{caption}**", _markdown_grid(table, columns, quantity)]
    parts.append("\n".join(_markdown_text(sentence) for sentence in explanation(table)))
    if cells := table.disagreeing:
        parts += ["**Cells that differ from the paper**"]
        parts += ["\n".join(f"- {_markdown_text(describe(cell))}" for cell in cells)]
    if lines := footnotes(table):
        parts += ["\n".join(f"- {_markdown_text(line)}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def markdown_grid(lines: Sequence[Sequence[str]], left: int) -> str:
    """A Markdown table; the first line is its header, the first ``left`` columns are left-aligned.

    Examples
    --------
    >>> print(markdown_grid([["", "rows"], ["set 0", "12"]], left=1))
    |  | rows |
    | :-- | --: |
    | set 0 | 12 |
    """
    marks = [":--" if column < left else "--:" for column in range(len(lines[0]))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], marks, *lines[1:]))


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|~#$])", r"\\\1", text.replace("\n", " "))


def _markdown_grid(table: ResultTable, columns: Sequence[MethodColumn], quantity: str) -> str:
    names = ["Acc", "Δ"] if quantity == "both" else ["ours", "*paper*", "difference"]
    if quantity != "both" and not any(cell.paper for cell in table):
        names = names[:1]
    lines = [["Dataset", "θ, θ′", "", *(_markdown_text(column.label) for column in columns)]]
    for row in table.rows:
        cells = [_markdown_cell(table[row, column], quantity) for column in columns]
        priors = row.priors_label.replace(" ", SPACE)
        lines.append([_markdown_text(row.dataset_label), priors, "<br>".join(names), *cells])
    return markdown_grid(lines, left=3)


def _markdown_cell(cell: ResultCell, quantity: str) -> str:
    texts = []
    for number in cell_numbers(cell, quantity):
        text = number._replace(mean=f"**{number.mean}**").text if number.bold else number.text
        texts.append(f"*{text}*" if number.kind in ("paper", "note") else text)
    return "<br>".join(texts)


# HTML


def to_html(*tables: ResultTable) -> str:
    """One self-contained page with all the tables."""
    return render_page(
        "tables.html.jinja",
        package="uulearn.reproduction",
        title=" · ".join(table.title for table in tables),
        tables=[(table, _grids(table), _by_dataset(table), explanation(table), footnotes(table)) for table in tables],
        cell_numbers=cell_numbers,
        describe=describe,
    )


# LaTeX

LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "\n": " ", SPACE: "~",
        "λ": r"$\lambda$", "θ": r"$\theta$", "π": r"$\pi$", "Δ": r"$\Delta$", "′": "$'$", "−": "$-$", "±": r"$\pm$",
        DIFFERS: r"$\neq$", NOT_FINITE: r"$\dagger$",
    }
)  # fmt: skip
LATEX_SIGNS = str.maketrans({"−": "-", "±": r"\pm "})


def to_latex(table: ResultTable) -> str:
    r"""The table in the paper's layout; the document needs ``\usepackage{booktabs,multirow,graphicx}``."""
    parts = [r"% \usepackage{booktabs,multirow,graphicx}"]
    text = " ".join(map(_latex_text, [*explanation(table), *footnotes(table)]))
    if table.incomplete:
        text += " Superscripts such as 3/5: three of five trials are done."
    if table.paper_columns:
        parts.append(_latex_float(table, table.paper_columns, f"{_latex_text(table.title)}. {text}"))
        text = "Marks as in the previous table."
    if table.slope_columns:
        caption = f"{_latex_text(table.title)}: each $\\lambda$ of the generalized leaky ReLU. "
        parts.append(_latex_float(table, table.slope_columns, caption + text))
    if cells := table.disagreeing:
        parts.append("% Cells that differ from the paper:")
        parts += [f"% {line}" for line in (describe(cell).replace("\n", " ") for cell in cells)]
    return "\n".join(parts) + "\n"


def _latex_text(text: str) -> str:
    return text.translate(LATEX)


def _latex_float(table: ResultTable, columns: Sequence[MethodColumn], caption: str) -> str:
    heads = " & ".join(rf"\multicolumn{{2}}{{c}}{{{_latex_text(column.label)}}}" for column in columns)
    rules = " ".join(rf"\cmidrule(r){{{4 + 2 * i}-{5 + 2 * i}}}" for i in range(len(columns)))
    quantities = " & ".join([r"Acc & $\Delta_{A}$"] * len(columns))
    lines = [
        r"\begin{table*}[t]",
        rf"\caption{{{caption}}}",
        r"\begin{center}\scriptsize",
        r"\resizebox{\ifdim\width>\textwidth\textwidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{ccl{'cc' * len(columns)}}}",
        r"\toprule",
        rf"\multirow{{2}}{{*}}{{Dataset}} & \multirow{{2}}{{*}}{{$\theta$, $\theta'$}} & & {heads}\\",
        rules,
        rf" & & & {quantities}\\",
    ]
    for dataset, rows in _by_dataset(table):
        blocks = [_latex_block(table, row, columns) for row in rows]
        height = sum(map(len, blocks))
        for row, block in zip(rows, blocks, strict=True):
            lines.append(r"\midrule" if row is rows[0] else r"\addlinespace")
            for place, line in enumerate(block):
                left = rf"\multirow{{{height}}}{{*}}{{{_latex_text(dataset)}}}" if line is blocks[0][0] else ""
                priors = rf"\multirow{{{len(block)}}}{{*}}{{{row.priors_label}}}" if place == 0 else ""
                lines.append(rf"{left} & {priors} & {line}\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{center}", r"\end{table*}"])


def _latex_block(table: ResultTable, row: ResultRow, columns: Sequence[MethodColumn]) -> list[str]:
    """The lines of one row: our means and, below, deviations; then the paper's; then the differences."""
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
