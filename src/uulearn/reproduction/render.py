"""A table for readers: Markdown for GitHub, LaTeX in the paper's layout, and one self-contained page of HTML.

Each shows our number, the paper's and the difference, all in percent; marks what is not complete, what did not end well
and what does not agree with the paper; and ends with the list of the cells that do not agree.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from uulearn.reproduction.reference import Spread
from uulearn.reproduction.tables import LEAST_TRIALS, Cell, Column, Row, Table

DIFFERS, NOT_FINITE, SPACE = "≠", "†", "\N{NO-BREAK SPACE}"
QUANTITIES = {"accuracy": "Accuracy", "drop": "Drop of accuracy, best epoch minus last"}


class Line(NamedTuple):
    """One line of a cell: what it is (ours, paper, difference or note), its text, and whether it is bold."""

    kind: str
    text: str
    bold: bool = False


def to_markdown(table: Table) -> str:
    """The table as GitHub shows it: accuracies, drops, each λ, and the cells that differ from the paper."""
    parts = [f"### {_markdown_text(table.title)}"]
    for quantity, caption in QUANTITIES.items():
        if table.paper_columns:
            parts += [f"**{caption}**", _markdown_grid(table, table.paper_columns, quantity)]
    if table.other_columns:
        parts += [
            "**Each λ of the generalized leaky ReLU: accuracy and drop**",
            _markdown_grid(table, table.other_columns, "both"),
        ]
    parts.append("\n".join(_markdown_text(sentence) for sentence in explanation(table)))
    if cells := table.disagreeing:
        parts += ["**Cells that differ from the paper**"]
        parts += ["\n".join(f"- {_markdown_text(describe(cell))}" for cell in cells)]
    if lines := footnotes(table):
        parts += ["\n".join(f"- {_markdown_text(line)}" for line in lines)]
    return "\n\n".join(parts) + "\n"


def to_html(*tables: Table) -> str:
    """One page with all the tables given, without anything to load: light or dark as the reader's system is."""
    heading = html.escape(" · ".join(table.title for table in tables))
    body = "\n".join(_html_section(table, f"t{number}") for number, table in enumerate(tables, 1))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{heading}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def to_latex(table: Table) -> str:
    r"""The table in the paper's layout; the document needs ``\usepackage{booktabs,multirow,graphicx}``."""
    parts = [r"% \usepackage{booktabs,multirow,graphicx}"]
    said = " ".join(map(_latex_text, [*explanation(table), *footnotes(table)]))
    if table.incomplete:
        said += " Superscripts such as 3/5: three of five trials are done."
    if table.paper_columns:
        parts.append(_latex_float(table, table.paper_columns, f"{_latex_text(table.title)}. {said}"))
        said = "Signs as in the table before."
    if table.other_columns:
        caption = f"{_latex_text(table.title)}: each $\\lambda$ of the generalized leaky ReLU. "
        parts.append(_latex_float(table, table.other_columns, caption + said))
    if cells := table.disagreeing:
        parts.append("% Cells that differ from the paper:")
        parts += [f"% {line}" for line in (describe(cell).replace("\n", " ") for cell in cells)]
    return "\n".join(parts) + "\n"


def grid(lines: Sequence[Sequence[str]], left: int) -> str:
    """A Markdown table; the first line is its header, the first ``left`` columns are aligned to the left.

    Examples
    --------
    >>> print(grid([["", "rows"], ["set 0", "12"]], left=1))
    |  | rows |
    | :-- | --: |
    | set 0 | 12 |
    """
    marks = [":--" if column < left else "--:" for column in range(len(lines[0]))]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], marks, *lines[1:]))


def signed(value: float) -> str:
    """Two digits with a sign, the minus as it is printed.

    Examples
    --------
    >>> signed(-0.5), signed(1.234)
    ('−0.50', '+1.23')
    """
    text = f"{value:+.2f}"
    return "±0.00" if text in ("+0.00", "-0.00") else text.replace("-", "−")


def describe(cell: Cell) -> str:
    """One cell in words: where it is, our number, the paper's and the difference."""
    place = f"{cell.row.label}, {cell.column.label}"
    if cell.accuracy is None or cell.paper is None or cell.difference is None:
        return f"{place}: nothing to compare"
    return f"{place}: {_spread(cell.accuracy)}, paper {_spread(cell.paper.accuracy)}, {signed(cell.difference)} points"


def explanation(table: Table) -> list[str]:
    """How to read the table, in sentences: only what occurs in it."""
    sentences = [f"Means (standard deviations) over {_trials(table)}, in percent, at the last epoch."]
    if any(cell.bold or (cell.paper and cell.paper.bold) for cell in table):
        untested = any(cell.asked < LEAST_TRIALS for cell in table)
        sentences.append(
            "Bold: the best method and those not significantly worse (paired t-test, 5%)"
            + (f"; rows with fewer than {LEAST_TRIALS} trials are not tested." if untested else ".")
        )
    if any(cell.paper for cell in table):
        evaluated = len(table.evaluated)
        sentences.append(
            f"{evaluated - len(table.disagreeing)} of {evaluated} complete cells agree with the paper, that is within "
            f"1.5 points or two pooled standard deviations; the others are marked {DIFFERS}."
        )
    if missing := len(table.incomplete):
        sentences.append(f"Not complete: {missing} of {len(table.cells)} cells; our bold numbers wait for whole rows.")
    return [*sentences, *table.notes]


def _trials(table: Table) -> str:
    """How many trials cells have, and which datasets have another number of them."""
    by_dataset = {row.dataset_label: max(table[row, column].asked for column in table.columns) for row in table.rows}
    most = max(by_dataset.values(), default=0)
    fewer = ", ".join(f"{asked} for {label}" for label, asked in by_dataset.items() if asked < most)
    return f"{most} {'trial' if most == 1 else 'trials'}" + (f" ({fewer})" if fewer else "")


def footnotes(table: Table) -> list[str]:
    """One line for each cell in which runs ended because the risk was not finite."""
    return [
        f"{NOT_FINITE} {cell.row.label}, {cell.column.label}: the risk was not finite in {cell.not_finite} of "
        f"{cell.runs} runs, of which the last finite epoch counts."
        for cell in table
        if cell.not_finite
    ]


def cell_lines(cell: Cell, quantity: str) -> Iterator[Line]:
    """The lines of a cell for one quantity, ``accuracy`` or ``drop``."""
    is_accuracy = quantity == "accuracy"
    ours = cell.accuracy if is_accuracy else cell.drop
    text = _spread(ours) if ours else "no number" if cell.runs else "not run" if cell.asked else "–"
    yield Line("ours", text + (NOT_FINITE if cell.not_finite else ""), cell.bold and is_accuracy)
    if cell.paper:
        yield Line("paper", _spread(getattr(cell.paper, quantity)), cell.paper.bold and is_accuracy)
    difference = cell.difference if is_accuracy else cell.drop_difference
    if difference is not None:
        mark = SPACE + DIFFERS if is_accuracy and cell.agrees is False else ""
        yield Line("difference", signed(difference) + mark)
    if cell.runs and not cell.complete:
        yield Line("note", f"{cell.runs} of {cell.asked} trials".replace(" ", SPACE))


def _spread(spread: Spread) -> str:
    return f"{spread.mean:.2f}" + ("" if spread.std is None else f"{SPACE}({spread.std:.2f})")


# Markdown


def _markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|~#$])", r"\\\1", text.replace("\n", " "))


def _markdown_grid(table: Table, columns: Sequence[Column], quantity: str) -> str:
    names = {"both": ["Acc", "Δ"]}.get(quantity, ["ours", "*paper*", "difference"])
    if quantity != "both" and not any(cell.paper for cell in table):
        names = names[:1]
    header = ["Dataset", "θ, θ′", "", *(_markdown_text(column.label) for column in columns)]
    rows = [header, [":--", ":--", ":--", *("--:" for _ in columns)]]
    for row in table.rows:
        cells = [_markdown_cell(table[row, column], quantity) for column in columns]
        priors = row.priors_label.replace(" ", SPACE)
        rows.append([_markdown_text(row.dataset_label), priors, "<br>".join(names), *cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _markdown_cell(cell: Cell, quantity: str) -> str:
    texts = []
    for line in _quantity_lines(cell, quantity):
        # The mean alone is set in bold: bold spreads would only be wider.
        mean, space, rest = line.text.partition(SPACE)
        text = (f"**{mean}**" if line.bold else mean) + space + rest
        texts.append(f"*{text}*" if line.kind in ("paper", "note") else text)
    return "<br>".join(texts)


def _quantity_lines(cell: Cell, quantity: str) -> list[Line]:
    """The lines of one quantity; of both, our accuracy and drop and whatever note there is."""
    if quantity != "both":
        return list(cell_lines(cell, quantity))
    lines = [line for line in cell_lines(cell, "accuracy") if line.kind in ("ours", "note")]
    return [lines[0], next(cell_lines(cell, "drop")), *lines[1:]] if cell.drop else lines


# HTML

STYLE = """
:root { color-scheme: light dark; --text: #1b1f24; --page: #fff; --quiet: #57606a; --line: #d0d7de; --mark: #9a3412;
  --band: #f3f5f7; --warm: #fff1e6; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e9ed; --page: #14171b; --quiet: #a3adb8; --line: #3a424b;
  --mark: #ffb37a; --band: #1e2328; --warm: #3a2415; } }
body { margin: 0; color: var(--text); background: var(--page); font: 16px/1.45 system-ui, sans-serif; }
main { max-width: 72rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: .4rem 0; }
th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); text-align: right; vertical-align: top;
  white-space: nowrap; }
thead th { border-bottom: 2px solid var(--text); vertical-align: bottom; }
th[scope=rowgroup] { background: var(--band); text-align: left; }
th[scope=rowgroup] span { position: sticky; left: .6rem; }
th[scope=row], thead th:first-child { position: sticky; left: 0; background: var(--page); text-align: left; }
td span { display: block; }
.paper, .note, .legend { color: var(--quiet); }
.note { font-style: italic; }
td.differs { position: relative; outline: 2px dashed var(--mark); outline-offset: -3px; background: var(--warm); }
td.differs .difference { color: var(--mark); font-weight: 600; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
"""


def _html_section(table: Table, name: str) -> str:
    parts = [f"<h1>{html.escape(table.title)}</h1>"]
    parts.append(f'<p class="legend">{html.escape(" ".join(explanation(table)))}</p>')
    for quantity, caption in QUANTITIES.items():
        if table.paper_columns:
            parts.append(_html_grid(table, table.paper_columns, quantity, f"{caption} ({table.title})", name))
    if table.other_columns:
        caption = f"Each λ of the generalized leaky ReLU: accuracy, and below it the drop ({table.title})"
        parts.append(_html_grid(table, table.other_columns, "both", caption, name))
    if cells := table.disagreeing:
        items = "\n".join(f"<li>{html.escape(describe(cell))}</li>" for cell in cells)
        parts.append(f"<h2>Cells that differ from the paper</h2>\n<ul>\n{items}\n</ul>")
    parts += [f'<p class="legend">{html.escape(line)}</p>' for line in footnotes(table)]
    return f"<section>\n{chr(10).join(parts)}\n</section>"


def _html_grid(table: Table, columns: Sequence[Column], quantity: str, caption: str, name: str) -> str:
    caption_id = f"{name}-{quantity}"
    heads = "".join(f'<th scope="col">{html.escape(column.label)}</th>' for column in columns)
    # A region that scrolls must be reachable by keyboard, and then needs a name.
    lines = [
        f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{caption_id}">',
        f'<table>\n<caption id="{caption_id}">{html.escape(caption)}</caption>',
        f'<thead><tr><th scope="col">θ, θ′</th>{heads}</tr></thead>',
    ]
    for dataset, rows in itertools.groupby(table.rows, key=lambda row: row.dataset_label):
        span = len(columns) + 1
        lines.append(
            f'<tbody>\n<tr><th scope="rowgroup" colspan="{span}"><span>{html.escape(dataset)}</span></th></tr>'
        )
        for row in rows:
            cells = "".join(_html_cell(table[row, column], quantity) for column in columns)
            lines.append(f'<tr><th scope="row">{html.escape(row.priors_label)}</th>{cells}</tr>')
        lines.append("</tbody>")
    return "\n".join([*lines, "</table>\n</div>"])


def _html_cell(cell: Cell, quantity: str) -> str:
    spans = []
    for line in _quantity_lines(cell, quantity):
        text = html.escape(line.text)
        text = f"<b>{text}</b>" if line.bold else text
        said = "<small>paper</small> " if line.kind == "paper" else ""
        spans.append(f'<span class="{line.kind}">{said}{text}</span>')
    if quantity == "accuracy" and cell.agrees is False:
        return f'<td class="differs">{"".join(spans)}<span class="unseen">differs from the paper</span></td>'
    return f"<td>{''.join(spans)}</td>"


# LaTeX

LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": "$<$", ">": "$>$", "\n": " ", SPACE: "~",
        "λ": r"$\lambda$", "θ": r"$\theta$", "π": r"$\pi$", "Δ": r"$\Delta$", "′": "$'$", "−": "$-$", "±": r"$\pm$",
        DIFFERS: r"$\neq$", NOT_FINITE: r"$\dagger$",
    }
)  # fmt: skip


def _latex_text(text: str) -> str:
    return text.translate(LATEX)


def _latex_float(table: Table, columns: Sequence[Column], caption: str) -> str:
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
    for dataset, group in itertools.groupby(table.rows, key=lambda row: row.dataset_label):
        rows = list(group)
        blocks = [_latex_block(table, row, columns) for row in rows]
        height = sum(map(len, blocks))
        for row, block in zip(rows, blocks, strict=True):
            lines.append(r"\midrule" if row is rows[0] else r"\addlinespace")
            for number, line in enumerate(block):
                left = rf"\multirow{{{height}}}{{*}}{{{_latex_text(dataset)}}}" if line is blocks[0][0] else ""
                priors = rf"\multirow{{{len(block)}}}{{*}}{{{row.priors_label}}}" if number == 0 else ""
                lines.append(rf"{left} & {priors} & {line}\\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{center}", r"\end{table*}"])


def _latex_block(table: Table, row: Row, columns: Sequence[Column]) -> list[str]:
    """The lines of one row: our means and, below, deviations; then the paper's; then the differences."""
    cells = [_latex_cell(table[row, column]) for column in columns]
    names = ["ours", "", "paper", "", "diff."]
    used = range(5) if any(table[row, column].paper for column in columns) else range(2)
    return [" & ".join([names[i], *(cell[i] for cell in cells)]) for i in used]


def _latex_cell(cell: Cell) -> list[str]:
    halves = []
    for quantity in QUANTITIES:
        is_accuracy = quantity == "accuracy"
        marks = "" if cell.complete else f"{cell.runs}/{cell.asked}"
        marks += r"\dagger" if cell.not_finite and is_accuracy else ""
        half = _latex_spread(getattr(cell, quantity), cell.bold and is_accuracy)
        half[0] += f"$^{{{marks}}}$" if marks and is_accuracy else ""
        half += _latex_spread(getattr(cell.paper, quantity, None), bool(cell.paper and cell.paper.bold and is_accuracy))
        difference = cell.difference if is_accuracy else cell.drop_difference
        differs = r"^{\neq}" if is_accuracy and cell.agrees is False else ""
        half.append("" if difference is None else f"${signed(difference).translate(SIGNS)}{differs}$")
        halves.append(half)
    return [f"{accuracy} & {drop}" for accuracy, drop in zip(*halves, strict=True)]


SIGNS = str.maketrans({"−": "-", "±": r"\pm "})


def _latex_spread(spread: Spread | None, bold: bool) -> list[str]:
    texts = ["--", ""] if spread is None else [f"{spread.mean:.2f}", ""]
    if spread and spread.std is not None:
        texts[1] = f"({spread.std:.2f})"
    return [rf"\textbf{{{text}}}" if bold and text else text for text in texts]
