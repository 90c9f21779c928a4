"""Facts of the examples, from ``examples/*/record.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NAMES = ("two_clinics", "fashion_images", "photo_albums", "mixed_table")


def facts() -> dict[str, str]:
    """Return the blocks of each example, its comparison with the labels, and the table of all examples."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        from example import RECORD, comparison, console, contains, interval, percent, verdict
    finally:
        sys.path.remove(str(EXAMPLES))
    found = {}
    lines = ["| example | rows | class priors | accuracy, 95% interval without labels | accuracy with labels |"]
    lines.append("|---|---|---|---|---|")
    for name in NAMES:
        record = json.loads((EXAMPLES / name / RECORD).read_text(encoding="utf-8"))
        for block, text in record["blocks"].items():
            found[f"{name}-{block}"] = console(text)
        found[f"{name}-comparison"] = comparison(record)
        found[f"{name}-verdict"] = verdict(record)
        own, true = record["estimate"]["accuracy"], record["truth"]["accuracy"]
        found[f"{name}-interval"] = interval(own)
        found[f"{name}-true"] = percent(true["value"])
        rows = " + ".join(f"{count:,}" for count in record["rows"])
        priors = " and ".join(f"{100 * prior:g}%" for prior in record["set_priors"])
        where = "inside" if contains(own, true) else "**outside**"
        truth = f"{percent(true['value'])} ({where}; {record['labeled']:,} rows)"
        lines.append(f"| {record['title']} | {rows} | {priors} | {interval(own)} | {truth} |")
    found["summary"] = "\n".join(lines)
    return found
