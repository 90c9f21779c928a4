"""Which files each table and figure is written to, from the runs that a store holds; no dataset is needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from uulearn.reproduction import conclusions, selection, variants
from uulearn.reproduction.experiments import (
    ABS,
    BASELINES,
    DATASETS,
    FIXED_SLOPE,
    RELU,
    TABLE_MODELS,
    Configuration,
    Request,
    TableRow,
    figure1_panels,
    figure3_curves,
    table_rows,
)
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.render import to_html, to_latex, to_markdown
from uulearn.reproduction.selection import Find, Record
from uulearn.reproduction.store import RunStore, key
from uulearn.reproduction.tables import PAPER_COLUMNS, Column, Row, Table, build_table, slope_column
from uulearn.storage import write_atomically

TITLES = {"table2": "Table 2: simple models", "table3": "Table 3: deep models"}
FORMATS: dict[str, Callable[[Table], str]] = {"md": to_markdown, "tex": to_latex, "html": to_html}


class Page(NamedTuple):
    """What a target was written to, and its table if it is one."""

    target: str
    paths: list[Path]
    table: Table | None = None


def render(targets: Iterable[str], request: Request, store: RunStore, out: str | Path) -> list[Page]:
    """Write the tables and figures asked for, with what the store holds of them.

    A table shows the datasets of the request and those that have runs in the store.
    """
    records = {key(record["configuration"]): record for record in store.records()}

    def find(configuration: Configuration) -> Record | None:
        return records.get(key(configuration))

    pages = [_page(target, request, find, Path(out)) for target in targets]
    if any(page.table for page in pages):
        pages += _studies(request, find, Path(out))
    return pages


def _studies(request: Request, find: Find, out: Path) -> list[Page]:
    """What the runs of both tables say beside the tables: the choice of λ, and the conclusions of Section 4."""
    rows = {table: _rows_shown(table, request, find) for table in TABLE_MODELS}
    pages = []
    trials = {table: selection.trials_of(mine, find) for table, mine in rows.items()}
    if any(trials.values()):
        pages.append(Page("selection", [out / "selection.md"]))
        _write(out / "selection.md", selection.to_markdown(trials))
    full = [run for mine in rows.values() for row in mine for seed in row.seeds for run in row.trial(seed)]
    dropout, decay = ([record for run in curves if (record := find(run))] for curves in figure3_curves(request))
    found = [record for run in full if not run["held_out"] and (record := find(run))]
    if found:
        pages.append(Page("conclusions", [out / "conclusions.md"]))
        caveat = _caveat([row for mine in rows.values() for row in mine])
        _write(out / "conclusions.md", conclusions.to_markdown(found, dropout, decay, caveat))
    return pages


def check_drawing(targets: Iterable[str]) -> None:
    """Raise ImportError, before hours of work, where a figure is asked for and nothing can draw it."""
    figures = [target for target in targets if target.startswith("figure")]
    if figures and find_spec("matplotlib") is None:
        raise ImportError(f"{figures[0]} needs matplotlib, which is not installed; run pip install 'uulearn[plot]'.")


def _page(target: str, request: Request, find: Find, out: Path) -> Page:
    """Write a target; of one that has runs, but none in the store, nothing is written over what may be there."""
    if target in TABLE_MODELS:
        shown = _rows_shown(target, request, find)
        table = make_table(target, shown, find)
        if not any(cell.runs for cell in table):
            return Page(target, [], table)
        paths = [out / f"{target}.{ending}" for ending in FORMATS]
        for path, form in zip(paths, FORMATS.values(), strict=True):
            _write(path, form(table))
        return Page(target, paths, table)
    if target == "variants":
        tried = variants.tried(request, find)
        if tried:
            _write(out / "variants.md", variants.to_markdown(tried, _caveat([cell.row for cell in tried])))
        return Page(target, [out / "variants.md"] if tried else [])
    from uulearn.reproduction import figures  # matplotlib, which a table does without

    if target == "figure2":
        return Page(target, figures.figure2(out / target))
    if target == "figure1":
        panels = {name: find(run) for name, run in figure1_panels(request).items()}
        return Page(target, figures.figure1(out / target, panels) if any(panels.values()) else [])
    dropout, decay = ([record for c in curves if (record := find(c))] for curves in figure3_curves(request))
    return Page(target, figures.figure3(out / target, dropout, decay) if dropout or decay else [])


def make_table(table: str, shown: Sequence[TableRow], find: Find) -> Table:
    """Table 2 or 3, with the runs that are there."""
    rows = {Row(row.dataset, row.set_priors): row for row in shown}
    slopes = sorted({slope for row in rows.values() for slope in row.slopes}, reverse=True)
    methods: dict[str, str | float] = {name: name for name in BASELINES} | {"relu": RELU, "abs": ABS}
    methods |= {slope_column(slope).name: slope for slope in slopes}

    def runs(place: Row, column: Column) -> list[Record] | None:
        row, method = rows[place], methods.get(column.name)
        if isinstance(method, float) and method not in row.slopes:
            return None
        found = [_run(row, seed, method, find) for seed in row.seeds]
        return [record for record in found if record is not None]

    return build_table(
        TITLES[table] + _caveat(rows.values()),
        rows,
        [*PAPER_COLUMNS, *map(slope_column, slopes)],
        runs,
        paper=paper_table(table) if all(row.request.is_the_papers for row in shown) else None,
        trials=lambda place: len(rows[place].seeds),
        notes=_notes(rows.values()) + _mixtures(rows.values(), find),
    )


def _run(row: TableRow, seed: int, method: str | float | None, find: Find) -> Record | None:
    """The run of a method given by its name or λ, or of the leaky ReLU with whatever λ it is to have."""
    if method is None:
        method = selection.chosen_slope(row, seed, find) if row.candidates else FIXED_SLOPE
    return None if method is None else find(row.run(method, seed))


def _caveat(rows: Collection[TableRow]) -> str:
    """Words for a title that tell that the runs are not the paper's."""
    if all(row.request.is_the_papers for row in rows):
        return ""
    shapes = {(run["sizes"][0], run["epochs"]): None for row in rows for run in [row.run(BASELINES[0], 0)]}
    said = " or ".join(f"{size:,} + {size:,} rows and {epochs} epochs" for size, epochs in shapes)
    return f", not in the paper's setting: {said}"


def _notes(rows: Collection[TableRow]) -> list[str]:
    """How λ of the column UU-LReLU came about."""
    notes = []
    for slopes in dict.fromkeys(row.candidates for row in rows if row.candidates):
        among = ", ".join(f"{slope:g}".replace("-", "−") for slope in slopes)
        notes.append(f"UU-LReLU: λ of each trial was chosen without labels among {among}.")
    fixed = dict.fromkeys(Row(row.dataset, row.set_priors).dataset_label for row in rows if not row.candidates)
    if fixed:
        notes.append(f"UU-LReLU: {slope_column(FIXED_SLOPE).label} for {', '.join(fixed)}.")
    return notes


def _mixtures(rows: Collection[TableRow], find: Find) -> list[str]:
    """Which datasets have runs in more than one precision: a difference between cells might be owed to it."""
    found: dict[str, set[str]] = {}
    for row in rows:
        records = (find(run) for seed in row.seeds for run in row.trial(seed))
        used = {str(record.get("environment", {}).get("precision")) for record in records if record is not None}
        found.setdefault(Row(row.dataset, row.set_priors).dataset_label, set()).update(used)
    return [f"Runs of {name} are in {' and '.join(sorted(used))}." for name, used in found.items() if len(used) > 1]


def _rows_shown(table: str, request: Request, find: Find) -> list[TableRow]:
    """The rows of the datasets asked for, and of others that the store has runs of, with every trial that is there."""
    usual = Request(epochs=request.epochs, quick=request.quick)
    shown = []
    for dataset in DATASETS:
        wanted = dataset in request.datasets
        rows = table_rows(table, replace(usual, datasets=[dataset]))
        if wanted:
            asked = table_rows(table, replace(request, datasets=[dataset]))
            more = len(rows[0].seeds) > len(asked[0].seeds) and any(
                find(row.run("unbiased", len(asked[0].seeds))) for row in asked
            )
            rows = rows if more else asked
        rows = _with_all_trials(table, rows, replace(request if wanted else usual, datasets=[dataset]), find)
        if wanted or any(find(run) for row in rows for seed in row.seeds for run in row.trial(seed)):
            shown += rows
    return shown


def _with_all_trials(table: str, rows: list[TableRow], request: Request, find: Find) -> list[TableRow]:
    """The same rows with as many trials as the store has, if that is more."""
    trials = len(rows[0].seeds)
    while any(find(row.run("unbiased", trials)) for row in rows):
        trials += 1
    return rows if trials == len(rows[0].seeds) else table_rows(table, replace(request, trials=trials))


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
