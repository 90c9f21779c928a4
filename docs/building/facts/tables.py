"""Facts of docs/studies/tables.md: accuracy, CPU time and intervals on tables with numbers and categories."""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks" / "study"))

import records  # noqa: E402
from study_tables import Record, signed, table  # noqa: E402

STUDY = ROOT / "results" / "study"
NAMES = {
    "auto, with linear": "average of linear, boosting and MLP",
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
Fits = dict[tuple[Any, ...], dict[str, Record]]


def facts() -> dict[str, str]:
    """Return all facts by name."""
    stored, auto = (_read(name) for name in ("tables.jsonl.gz", "tables_auto.jsonl.gz"))
    every = [one for cell in _complete(stored, NAMES) for one in cell.values()]
    risks = [json.loads(line) for line in (STUDY / "auto_rules.jsonl").read_text().splitlines()]
    changes = [100 * (line["mlp+boost"] - line["best"]) for line in risks]
    both = _complete(auto, ("boosting", "mlp", "auto"))
    behind = [
        100 * (cell["auto"]["accuracy"] - max(cell[name]["accuracy"] for name in ("boosting", "mlp"))) for cell in both
    ]
    return {
        "fits": f"{len(every):,}",
        "main": _summary(_complete(stored, NAMES), NAMES),
        "auto": _summary(both, {"auto": '`model="auto"`', "mlp": NAMES["mlp"], "boosting": NAMES["boosting"]}),
        "auto-cells": f"{len(both)}",
        "auto-behind": signed(statistics.fmean(behind)),
        "auto-two-points": f"{sum(change >= -2 for change in behind)}",
        "encodings": _summary(_complete(stored, ENCODINGS), ENCODINGS),
        "rule-cells": f"{len(risks)}",
        "rule-change": signed(statistics.fmean(changes)),
        **_chosen_setting(),
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


def _chosen_setting() -> dict[str, str]:
    """Return the change of the risk and the CPU time of the MLPs for small tables, against that for large tables."""
    small: dict[tuple[Any, ...], dict[str, Any]] = defaultdict(dict)
    for one in records.read([STUDY / "mlp_choice.jsonl.gz"]).fits.values():
        about = one["configuration"]
        place = about["table"], tuple(about["set_priors"]), about["rows"], about["seed"]
        small[place][about["setting"]] = one["rules"]
    pairs = [
        (cell["128x2 lr 1e-2 dropout 0.25"]["epochs 60"], cell["base"]["epochs 200"])
        for cell in small.values()
        if {"128x2 lr 1e-2 dropout 0.25", "base"} <= cell.keys()
    ]
    larger: dict[tuple[Any, ...], dict[str, float]] = defaultdict(dict)
    for line in map(json.loads, (STUDY / "mlp_larger.jsonl").read_text().splitlines()):
        larger[line["t"], line["n"], tuple(line["p"]), line["seed"]][line["c"]] = line["risk"]
    return {
        "small-cells": f"{len(pairs)}",
        "small-change": signed(100 * statistics.fmean(new["risk"] - old["risk"] for new, old in pairs)),
        "small-time": f"{100 * statistics.median(new['seconds'] / old['seconds'] for new, old in pairs):.0f}%",
        "larger-cells": f"{len(larger)}",
        "larger-change": signed(100 * statistics.fmean(cell["wide100"] - cell["old"] for cell in larger.values())),
    }
