"""Run all examples and update the pages that show their results: ``make examples``.

Fashion-MNIST is read from the folder in UULEARN_DATA; the survey of the third example is downloaded by pip. An example
whose data is missing keeps its stored figures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from story import FIGURES, fill_in, holds, percent, shown

HERE = Path(__file__).resolve().parent
STORIES = ("two_clinics", "fashion_images", "mixed_table")


def summary(stories: Mapping[str, Mapping[str, Any]], prefix: str = "") -> str:
    """A Markdown table with one line per example; links start with the prefix."""
    lines = [
        "| example | rows | class priors | accuracy, estimated without labels | held-back labels | in the interval |",
        "|---|---|---|---|---|---|",
    ]
    for name, figures in stories.items():
        mine, true = figures["estimate"]["accuracy"], figures["truth"]["accuracy"]
        rows = " + ".join(f"{count:,}" for count in figures["rows"])
        priors = " and ".join(f"{100 * prior:g}%" for prior in figures["set_priors"])
        held = "yes" if holds(mine, true) else "**no**"
        where = f"[{figures['title']}]({prefix}{name}/README.md)"
        truth = f"{percent(true['value'])} of {figures['labelled']:,}"
        lines.append(f"| {where} | {rows} | {priors} | {shown(mine)} | {truth} | {held} |")
    return "\n".join(lines)


def main() -> None:
    """Run the examples, then write the tables."""
    failed = []
    for name in STORIES:
        print(f"--- {name}", flush=True)
        if subprocess.run([sys.executable, str(HERE / name / "run.py"), "--write"]).returncode:
            failed.append(name)
    found = {name: json.loads((HERE / name / FIGURES).read_text(encoding="utf-8")) for name in STORIES}
    fill_in(HERE / "README.md", {"summary": summary(found)})
    page = HERE.parent / "docs" / "examples.md"
    if page.exists():
        fill_in(page, {"summary": summary(found, "../examples/")})
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
