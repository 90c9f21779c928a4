"""Try an installation of uulearn in a temporary folder: ``python tools/smoke_test.py [--installed]``.

The script uses only the installed package and its command. With ``--installed``, it also checks that the package is
imported from the environment and not from a source tree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path


def run(*arguments: str) -> str:
    """Run the command and return its standard output; an error ends the script."""
    done = subprocess.run([sys.executable, "-m", "uulearn", *arguments], capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"uulearn {' '.join(arguments)} failed with exit code {done.returncode}:\n{done.stderr}")
    return done.stdout


def check(condition: bool, message: str) -> None:
    """End the script with a message if a condition is false; unlike assert, this also works with ``python -O``."""
    if not condition:
        sys.exit(f"smoke test failed: {message}")


def check_origin() -> None:
    """Check that the package is imported from the environment, with the version of its metadata."""
    import uulearn

    place = Path(uulearn.__file__).resolve()
    check(place.is_relative_to(Path(sys.prefix).resolve()), f"uulearn is imported from {place}")
    check(uulearn.__version__ == metadata.version("uulearn"), "the version differs from the metadata")
    check((place.parent / "py.typed").is_file(), "py.typed is missing")


def check_estimator() -> None:
    """Train on arrays, save, load, and compare with the true classes."""
    import numpy as np

    from uulearn import UUClassifier
    from uulearn.datasets import make_sets

    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    X = rng.normal(size=(4000, 3)) + 1.5 * (2 * y[:, None] - 1)
    sets = make_sets(X, y, (0.8, 0.2), (600, 600), random_state=0)
    classifier = UUClassifier((0.8, 0.2), target_prior=0.5, epochs=20, n_estimators=2, random_state=0)
    classifier.fit_sets(*sets)
    accuracy = float((classifier.predict(X) == y).mean())
    check(accuracy > 0.95, f"expected an accuracy above 0.95, found {accuracy}")
    classifier.save("arrays")
    loaded = UUClassifier.load("arrays")
    check(bool((loaded.predict_proba(X) == classifier.predict_proba(X)).all()), "the loaded model predicts differently")


def check_commands() -> None:
    """Run the commands on the example tables."""
    run("demo", "--files-only", "--out", "tables")
    os.chdir("tables")
    sets = ("clinic_a.csv", "clinic_b.csv")
    priors = ("--set-priors", "0.8", "0.2", "--target-prior", "0.3")
    run("fit", *sets, *priors, "--epochs", "20", "--n-estimators", "2", "--no-sensitivity", "--out", "model")
    run("predict", "model", "new_patients.csv", "--out", "scored.csv")
    header, *rows = Path("scored.csv").read_text(encoding="utf-8").splitlines()
    check(header.endswith("score,probability,class") and len(rows) == 500, f"{len(rows)} rows under {header!r}")
    labeled = json.loads(run("evaluate", "model", "labeled_patients.csv", "--labels", "ill", "--json"))
    counts = labeled["confusion"]
    accuracy = (counts["true_positive"] + counts["true_negative"]) / sum(counts.values())
    check(accuracy > 0.85, f"expected an accuracy above 0.85, found {accuracy}")
    run("report", "model")
    check(Path("model/report.html").stat().st_size > 10_000, "the report is too short")
    doctor = json.loads(run("doctor", "--json"))
    check(doctor["torch"]["error"] is None, "uulearn doctor reports a damaged torch")


def main() -> None:
    """Run all checks in a temporary folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        if "--installed" in sys.argv[1:]:
            check_origin()
        check_estimator()
        check_commands()
        os.chdir(before)  # Windows does not remove the current folder
    print("smoke test passed")


if __name__ == "__main__":
    main()
