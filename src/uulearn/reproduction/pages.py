"""Write the tables and figures from the runs in a store; the datasets are not needed."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from uulearn.reproduction import conclusions, experiments, selection, tables, variants
from uulearn.reproduction.experiments import TABLE_MODELS, Configuration, Request, TableRow, figure3_curves, table_rows
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.render import to_html, to_latex, to_markdown
from uulearn.reproduction.selection import Find
from uulearn.reproduction.store import RunStore, key
from uulearn.reproduction.tables import PAPER_COLUMNS, MethodColumn, Record, ResultTable, build_table, slope_column
from uulearn.storage import write_atomically

TITLES = {"table2": "Table 2: simple models", "table3": "Table 3: deep models"}
TABLE_FORMATS: dict[str, Callable[[ResultTable], str]] = {"md": to_markdown, "tex": to_latex, "html": to_html}


class Page(NamedTuple):
    """Files written for a target, and the table if the target is a table."""

    target: str
    paths: list[Path]
    table: ResultTable | None = None


def render(targets: Iterable[str], request: Request, store: RunStore, out: str | Path) -> list[Page]:
    """Write tables and figures from the runs in the store.

    A table contains the requested datasets and all other datasets with runs in the store.
    """
    records = {key(record["configuration"]): record for record in store.records()}

    def find(configuration: Configuration) -> Record | None:
        return records.get(key(configuration))

    pages = [_page(target, request, find, Path(out)) for target in targets]
    if any(page.table for page in pages):
        pages += _studies(request, find, Path(out))
    return pages


def _studies(request: Request, find: Find, out: Path) -> list[Page]:
    """Write the pages on the choice of λ and on the conclusions of Section 4, based on the runs of both tables."""
    rows = {table: rows_shown(table, request, find) for table in TABLE_MODELS}
    pages = []
    trials = {table: selection.trials_of(own, find) for table, own in rows.items()}
    if any(trials.values()):
        pages.append(_written(out / "selection.md", selection.to_markdown(trials)))
    every = [row for own in rows.values() for row in own]
    runs = [run for row in every for seed in row.seeds for run in row.trial(seed) if not run["held_out"]]
    if full := _found(runs, find):
        dropout, decay = (_found(curves, find) for curves in figure3_curves(request))
        cells: dict[str, list[tables.ResultCell]] = {}
        for table, own in rows.items():
            for cell in make_table(table, own, find):
                cells.setdefault(TABLE_MODELS[table][cell.row.dataset], []).append(cell)
        text = conclusions.to_markdown(cells, full, dropout, decay, _caveat(every))
        pages.append(_written(out / "conclusions.md", text))
    return pages


def _found(configurations: Iterable[Configuration], find: Find) -> list[Record]:
    return [record for configuration in configurations if (record := find(configuration))]


def check_drawing(targets: Iterable[str]) -> None:
    """Raise ImportError if a figure is requested and matplotlib is not installed; call this before training."""
    figures = [target for target in targets if target.startswith("figure")]
    if figures and find_spec("matplotlib") is None:
        raise ImportError(f"{figures[0]} needs matplotlib, which is not installed; run pip install 'uulearn[plot]'.")


def _page(target: str, request: Request, find: Find, out: Path) -> Page:
    """Write the files of a target; existing files are unchanged if the target has no runs."""
    if target in TABLE_MODELS:
        table = make_table(target, rows_shown(target, request, find), find)
        forms = TABLE_FORMATS if any(cell.runs for cell in table) else {}
        paths = [path for end, form in forms.items() for path in _written(out / f"{target}.{end}", form(table)).paths]
        return Page(target, paths, table)
    if target == "variants":
        results = variants.variant_results(request, find)
        text = variants.to_markdown(results, _caveat([result.row for result in results]))
        return _written(out / "variants.md", text) if results else Page(target, [])
    from uulearn.reproduction import figures  # needs matplotlib, unlike the tables

    if target == "figure1":
        panels = {name: find(run) for name, run in experiments.figure1_panels(request).items()}
        figure = figures.draw_figure1(panels) if any(panels.values()) else None
    elif target == "figure2":
        figure = figures.draw_figure2()
    else:
        dropout, decay = (_found(curves, find) for curves in figure3_curves(request))
        figure = figures.draw_figure3(dropout, decay) if dropout or decay else None
    return Page(target, figures.write_figure(out / target, figure) if figure else [])


def _written(path: Path, text: str) -> Page:
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return Page(path.stem, [path])


def make_table(table: str, rows: Sequence[TableRow], find: Find) -> ResultTable:
    """Build Table 2 or 3 from the available runs."""
    slopes = sorted({slope for row in rows for slope in row.slopes}, reverse=True)
    methods: dict[str, str | float] = {name: name for name in experiments.BASELINES} | {
        "relu": experiments.RELU,
        "abs": experiments.ABS,
    }
    methods |= {slope_column(slope).name: slope for slope in slopes}

    def runs(row: TableRow, column: MethodColumn) -> list[Record] | None:
        method = methods.get(column.name)  # None for the leaky ReLU with the chosen or fixed λ
        if isinstance(method, float) and method not in row.slopes:
            return None
        if method is None and not row.candidates:
            method = experiments.FIXED_SLOPE
        chosen = {seed: selection.chosen_slope(row, seed, find) if method is None else method for seed in row.seeds}
        return _found((row.run(used, seed) for seed, used in chosen.items() if used is not None), find)

    return build_table(
        TITLES[table] + _caveat(rows),
        rows,
        [*PAPER_COLUMNS, *map(slope_column, slopes)],
        runs,
        paper=paper_table(table) if all(row.request.is_the_papers for row in rows) else None,
        trials=lambda row: len(row.seeds),
        notes=_slope_notes(rows) + _precision_notes(rows, find),
    )


def _caveat(rows: Collection[TableRow]) -> str:
    """Return a note for the title if the runs do not use the paper's setting."""
    if all(row.request.is_the_papers for row in rows):
        return ""
    shapes = {(run["sizes"][0], run["epochs"]): None for row in rows for run in [row.run(experiments.BASELINES[0], 0)]}
    text = " or ".join(f"{size:,} + {size:,} rows and {epochs} epochs" for size, epochs in shapes)
    return f", not in the paper's setting: {text}"


def _slope_notes(rows: Collection[TableRow]) -> list[str]:
    """Return notes that explain how λ was chosen for the column UU-LReLU."""
    notes = []
    for slopes in dict.fromkeys(row.candidates for row in rows if row.candidates):
        among = ", ".join(f"{slope:g}".replace("-", "−") for slope in slopes)
        notes.append(f"UU-LReLU: λ was chosen per trial, without labels, among {among}.")
    if fixed := dict.fromkeys(row.dataset_label for row in rows if not row.candidates):
        notes.append(f"UU-LReLU: {slope_column(experiments.FIXED_SLOPE).label} for {', '.join(fixed)}.")
    return notes


def _precision_notes(rows: Collection[TableRow], find: Find) -> list[str]:
    """Return a note for each dataset whose runs used different floating-point precisions."""
    found: dict[str, set[str]] = {}
    for row in rows:
        records = _found((run for seed in row.seeds for run in row.trial(seed)), find)
        used = {str(record.get("environment", {}).get("precision")) for record in records}
        found.setdefault(row.dataset_label, set()).update(used)
    return [f"Runs of {name} are in {' and '.join(sorted(used))}." for name, used in found.items() if len(used) > 1]


def rows_shown(table: str, request: Request, find: Find) -> list[TableRow]:
    """Return the rows of all datasets that are requested or have stored runs, including additional stored trials."""
    shown = []
    for dataset in experiments.DATASETS:
        wanted = dataset in request.datasets
        own = replace(request if wanted else Request(epochs=request.epochs, quick=request.quick), datasets=[dataset])
        rows = table_rows(table, own)
        trials = len(rows[0].seeds)
        while any(find(row.run("unbiased", trials)) for row in rows):
            trials += 1
        rows = table_rows(table, replace(own, trials=trials))
        if wanted or any(find(run) for row in rows for seed in row.seeds for run in row.trial(seed)):
            shown += rows
    return shown
