"""Run the benchmarks of uulearn and store the measurements.

    python benchmarks/run.py                      everything, about 10 minutes on two cores
    python benchmarks/run.py --only epoch memory some sections; stored results of the others are kept python
    benchmarks/run.py --quick tiny sizes, only to check that everything runs

Results are stored in ``benchmarks/results/speed.json`` (``quick.json`` for quick runs) after every section. Each
section of the file contains the machine, the versions and the time of the measurement.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import epoch
import memory
import prediction
import startup
from common import FORMAT, RESULTS, Bar, Section, Settings, machine, read_json, versions, write_json

# Memory and start-up run first, in child processes, while this process is still small.
SECTIONS: dict[str, Callable[[Settings], Section]] = {
    "memory": memory.run,
    "startup": startup.run,
    "epoch": epoch.run,
    "predict": prediction.run,
}


def positive(text: str) -> int:
    """Parse a positive whole number."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be above zero, got {number}")
    return number


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), help="sections to run")
    parser.add_argument("--rounds", type=positive, help="rounds per section (default: 7 epochs, 3 predictions, …)")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, no verdicts")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    asked = parser.parse_args()
    settings = Settings(asked.rounds, asked.quick)
    out = asked.out or RESULTS / ("quick.json" if asked.quick else "speed.json")

    print(", ".join(f"{name} {version}" for name, version in versions().items()))
    print(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in machine().items()))
    stored = read_json(out)
    sections = stored.get("sections", {}) if stored.get("format") == FORMAT else {}
    bars: list[Bar] = []
    for name, run in SECTIONS.items():
        if name not in asked.only:
            continue
        section = run(settings)
        bars += section.bars
        sections[name] = section.as_json()
        write_json(out, {"format": FORMAT, "sections": sections})
    print("\nbars")
    for bar in bars:
        print(f"  {bar}")
    print(f"\nstored in {out}")


if __name__ == "__main__":
    main()
