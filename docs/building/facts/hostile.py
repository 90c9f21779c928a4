"""Facts of the hostile suite, from ``benchmarks/results/hostile.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "benchmarks" / "results" / "hostile.json"
AREAS = ("kills", "damage", "tampering", "inputs", "disk", "signals", "names", "stores", "numbers")
DETAILS = {
    "kills": "{kills} kills: {kills_fit} of fit, {kills_search} of a search, {kills_reproduce} of reproduce, "
    "{kills_predict} of predict",
    "damage": "{flips} flips, {truncations} truncations, {other_damage} other changes",
    "inputs": "{files} files through {commands} commands; {ids_checked} ids compared in order",
    "signals": "{interrupted} commands interrupted",
    "names": "{payloads} combinations of a name and a place",
}
"""Further counts of an area; each name in braces is an entry of the record."""


def facts() -> dict[str, str]:
    """Return the table of all areas, the totals, and how the suite ran."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    areas: dict[str, dict[str, Any]] = record["areas"]
    lines = ["| area | cases | refused with a sentence | right result | failures |", "|---|---|---|---|---|"]
    for name, area in areas.items():
        counts = {key: f"{value:,}" for key, value in area.items() if isinstance(value, int)}
        detail = f" ({DETAILS[name].format_map(counts)})" if name in DETAILS else ""
        title = f"**{name}**: {area['title']}{detail}"
        numbers = " | ".join(counts[key] for key in ("cases", "refused", "right", "failures"))
        lines.append(f"| {title} | {numbers} |")
    total = {key: sum(area[key] for area in areas.values()) for key in ("cases", "refused", "right", "failures")}
    seeds = dict.fromkeys(str(area["configuration"]["seed"]) for area in areas.values())
    days = sorted({area["finished"][:10] for area in areas.values()})
    missing = [name for name in AREAS if name not in areas]
    return {
        "coverage": f"Not recorded yet: {', '.join(missing)}." if missing else "All areas are recorded.",
        "table": "\n".join(lines),
        "cases": f"{total['cases']:,}",
        "failures": f"{total['failures']:,}",
        "seed": " and ".join(seeds),
        "finished": " to ".join(dict.fromkeys((days[0], days[-1]))),
        "minutes": f"{sum(area['wall_seconds'] for area in areas.values()) / 60:.0f}",
        "cpu-minutes": f"{sum(area['cpu_seconds'] for area in areas.values()) / 60:.0f}",
        "cores": str(max(area["machine"]["cores"] for area in areas.values())),
    }
