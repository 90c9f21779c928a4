"""Run all examples, store their records and update the pages that show them: ``make examples``.

Fashion-MNIST and CIFAR-10 are read from the folder in UULEARN_DATA; the survey of the last example is downloaded by
pip. If the data of an example is missing, its stored record does not change.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
EXAMPLES = ("two_clinics", "fashion_images", "photo_albums", "mixed_table")


def main() -> None:
    """Run the examples one after the other, then fill the pages."""
    failed = []
    for name in EXAMPLES:
        print(f"--- {name}", flush=True)
        if subprocess.run([sys.executable, str(HERE / name / "run.py"), "--write"]).returncode:
            failed.append(name)
    subprocess.run([sys.executable, str(HERE.parent / "docs" / "building" / "fill_facts.py")], check=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
