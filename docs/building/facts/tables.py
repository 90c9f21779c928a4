"""Facts of docs/studies/tables.md: accuracy, CPU time and intervals on tables with numbers and categories."""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks" / "study"))

import number_encodings  # noqa: E402
import records  # noqa: E402
from study_tables import Record, signed, table  # noqa: E402

STUDY = ROOT / "results" / "study"
NAMES = {
    "auto": '`model="auto"`',
    "mlp": '`model="mlp"`',
    "boosting": '`model="boosting"`',
    "linear": '`model="linear"`',
    "random forest on sets": "random forest on sets",
    "boosting on sets": "gradient boosting on sets",
    "supervised trees": "gradient boosting with labels",
}
ENCODINGS = {
    "mlp": "`TableEncoder`",
    "mlp, standard scaling": "standard scaling and indicator columns",
    "mlp, QuantileTransformer": "`QuantileTransformer` and indicator columns",
    "mlp, piecewise-linear": "piecewise-linear encoding of numbers",
    "mlp, skrub TableVectorizer": "skrub `TableVectorizer`",
}
MORE_SEEDS = 34
"""First of the seeds that were run only for small sets at (0.6, 0.4)."""
Fits = dict[tuple[Any, ...], dict[str, Record]]


def facts() -> dict[str, str]:
    """Return all facts by name."""
    stored, encodings, auto = (_read(f"tables{name}.jsonl.gz") for name in ("", "_encodings", "_auto"))
    every = [one for cell in _complete(stored, NAMES) for one in cell.values()]
    both = _complete(auto, ("boosting", "mlp", "auto"))
    behind = _behind(both)
    seeds = {cell["auto"]["configuration"]["seed"] for cell in both}
    all_cells = [cell for cell in both if cell["auto"]["configuration"]["seed"] < MORE_SEEDS]
    far = [cell for cell in behind if cell.change < -2]
    clearly = sorted(c for c in far if c.error is not None and c.change + 2 * c.error < -2)
    return {
        "fits": f"{len(every):,}",
        "main": _summary(_complete(stored, NAMES), NAMES),
        "auto": _summary(all_cells, {"auto": '`model="auto"`', "mlp": NAMES["mlp"], "boosting": NAMES["boosting"]}),
        "auto-fits": f"{len(all_cells)}",
        "auto-seeds": f"{sum(seed < MORE_SEEDS for seed in seeds)}",
        "auto-more-seeds": f"{sum(seed >= MORE_SEEDS for seed in seeds)}",
        "auto-cells": f"{len(behind)}",
        "auto-behind": signed(statistics.fmean(c.change for c in behind)),
        "auto-repeated": f"{sum(c.error is not None for c in behind)}",
        "auto-noise": f"{sum(c.error is not None and c.change >= -2 * c.error for c in behind)}",
        "auto-two-points": f"{sum(c.change >= -2 for c in behind)}",
        "auto-far": _range(-c.change for c in far),
        "auto-far-rows": " or ".join(map(str, sorted({c.rows for c in far}))),
        "auto-clearly-far": f"{len(clearly)}",
        "auto-clearly-names": " and ".join(f"{c.dataset} with {c.rows} rows" for c in clearly),
        "auto-clearly-gap": _range((c.gap for c in clearly), 0),
        **_speed(),
        "encodings": _summary(_complete(encodings, ENCODINGS), ENCODINGS),
        **_number_encodings(),
    }


def _number_encodings() -> dict[str, str]:
    """Return the changes of the risk with other encodings of numbers, compared without labels."""
    fits = list(records.read([number_encodings.STORE]).fits.values())
    columns = [(model, draw) for model in ("mlp", "average") for draw in number_encodings.DRAWS]
    changes = {
        (name, *column): number_encodings.compare(fits, column[0], name, [column[1]])
        for name in number_encodings.ENCODINGS
        for column in columns
    }
    head = [f"{'MLP' if model == 'mlp' else 'average'}, ({draw.replace(',', ', ')})" for model, draw in columns]
    lines = [
        [
            name.replace("TableEncoder", "`TableEncoder`"),
            *(
                "–" if name == number_encodings.BASE else f"{signed(own.mean)} ± {own.error:.1f}"
                for own in (changes[name, *column] for column in columns)
            ),
        ]
        for name in number_encodings.ENCODINGS
    ]
    rows = [one["configuration"]["rows"] for one in fits]
    return {
        "number-encodings": table(["encoding of numbers", *head], lines),
        "number-encodings-fits": str(len(fits)),
        "number-encodings-rows": f"{min(rows):,} to {max(rows):,}",
        "number-encodings-tables": str(len({one["configuration"]["table"] for one in fits})),
    }


class Behind(NamedTuple):
    """Accuracy of ``auto`` in a cell, compared with the better single model, in points."""

    dataset: str
    draw: str
    rows: int
    change: float
    """Accuracy of ``auto`` minus that of the better single model."""
    error: float | None
    """Standard error of the change."""
    gap: float
    """Accuracy of the better single model minus that of the other one."""


def _range(values: Iterable[float], decimals: int = 1) -> str:
    found = sorted(values)
    return f"{found[0]:.{decimals}f} to {found[-1]:.{decimals}f}" if found else "–"


def _behind(fits: Sequence[Mapping[str, Record]]) -> list[Behind]:
    """Compare ``auto`` with the better single model in each cell.

    A cell is a table, a draw and a number of rows. The better model is the one with the higher mean over the seeds. The
    standard deviation over the seeds is pooled over all tables with the same draw and number of rows; there is no
    standard error for a cell with one seed.
    """
    cells: dict[tuple[Any, ...], list[Mapping[str, Record]]] = defaultdict(list)
    for fit in fits:
        about = fit["auto"]["configuration"]
        cells[about["draw"], about["rows"], about["dataset"]].append(fit)
    changes: dict[tuple[Any, ...], list[float]] = {}
    gaps: dict[tuple[Any, ...], float] = {}
    for cell, seeds in cells.items():
        means = {name: statistics.fmean(fit[name]["accuracy"] for fit in seeds) for name in ("boosting", "mlp")}
        better = max(means, key=lambda name: means[name])
        gaps[cell] = 100 * (max(means.values()) - min(means.values()))
        changes[cell] = [100 * (fit["auto"]["accuracy"] - fit[better]["accuracy"]) for fit in seeds]
    spread: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for cell, values in changes.items():
        spread[_size_group(cell)] += [statistics.variance(values)] if len(values) > 1 else []
    return [
        Behind(
            cell[2],
            cell[0],
            cell[1],
            statistics.fmean(values),
            math.sqrt(statistics.fmean(spread[_size_group(cell)]) / len(values)) if len(values) > 1 else None,
            gaps[cell],
        )
        for cell, values in changes.items()
    ]


def _size_group(cell: tuple[Any, ...]) -> tuple[str, int]:
    draw, rows, _ = cell
    return draw, 100 if rows <= 150 else 300 if rows <= 500 else 1000


def _speed() -> dict[str, str]:
    """Return the times of the default fit before and after the changes for tables, and under load."""
    fit, rows, load = (
        json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("fit_tables", "boosting_rows", "load")
    )
    medians = fit["results"]["medians"]
    tables = {"2 × 1,000 rows, 40 columns of numbers": "numbers", "2 × 120 rows, 10 columns of numbers": "small",
              "2 × 1,500 rows with categories, dates and missing values": "mixed"}  # fmt: skip
    lines = []
    for label, name in tables.items():
        before = f"{medians[name]['old']['seconds']:.1f}" if "old" in medians[name] else "–"
        lines.append([label, before, f"{medians[name]['new']['seconds']:.1f}"])
    many = statistics.median(one["seconds"] for one in rows["results"]["repetitions"])
    lines.append(["2 × 100,000 rows, 40 columns of numbers, `--model boosting`", "–", f"{many:.0f}"])
    busy = load["results"]["8 busy processes"]["spread"]
    return {
        "speed": table(["tables", "before, seconds", "now, seconds"], lines),
        **{
            name: f"{medians['numbers']['old'][key] / medians['numbers']['new'][key]:.1f}"
            for name, key in {"speed-ratio": "seconds", "speed-cpu-ratio": "cpu_seconds"}.items()
        },
        "load-one": f"{busy['one thread, sleeping']['median']:.0f}",
        "load-two": f"{busy['two threads, spinning']['median']:.0f}",
        "load-idle": f"{load['results']['0 busy processes']['spread']['one thread, sleeping']['median']:.0f}",
    }


def _read(name: str) -> Fits:
    found: Fits = defaultdict(dict)
    for one in records.read([STUDY / name]).fits.values():
        about = one["configuration"]
        place = about["dataset"], about["draw"], about["rows"], about["seed"]
        found[place][about["contender"]] = one
    return found


def _complete(fits: Fits, names: Iterable[str]) -> list[dict[str, Record]]:
    """Return the fits of every combination of table, sets and seed that all contenders have."""
    wanted = set(names)
    return [{name: cell[name] for name in wanted} for cell in fits.values() if wanted <= cell.keys()]


def _summary(cells: list[dict[str, Record]], names: Mapping[str, str]) -> str:
    heads = ["", "fits", "accuracy", "at (0.8, 0.2)", "at (0.6, 0.4)", "CPU seconds (median)",
             "95% interval contains the accuracy"]  # fmt: skip
    lines = []
    for name, title in names.items():
        own = [cell[name] for cell in cells]
        parts = [
            own,
            *([one for one in own if one["configuration"]["draw"] == draw] for draw in ("0.8,0.2", "0.6,0.4")),
        ]
        means = [f"{100 * statistics.fmean(one['accuracy'] for one in part):.1f}%" for part in parts]
        covered = [_covers(one) for one in own if one["estimate"] is not None]
        share = f"{100 * statistics.fmean(covered):.0f}%" if covered else "–"
        seconds = statistics.median(one["cpu_seconds"] for one in own)
        lines.append([title, str(len(own)), *means, f"{seconds:.1f}", share])
    return table(heads, lines)


def _covers(fit: Record) -> bool:
    low, high = fit["estimate"]["accuracy"]["interval"]
    return bool(low <= fit["accuracy"] <= high)
