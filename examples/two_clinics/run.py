"""Two clinics, no diagnosis: a classifier for tumours, and how good it is. Run it with --help to see its options."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from story import Story, parser, run

MARK = "diagnosis"


def write_tables(work: Path) -> None:
    """Two clinics' tables without diagnoses, new patients, and apart from them what the new patients have."""
    import numpy as np
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    from uulearn.datasets import make_sets

    table, benign = load_breast_cancer(return_X_y=True, as_frame=True)
    malignant = 1 - benign
    table.columns = [name.replace(" ", "_") for name in table.columns]
    table.insert(0, "patient", [f"P{number:03d}" for number in np.random.default_rng(0).permutation(len(table))])
    known, new, malignant, theirs = train_test_split(
        table, malignant, test_size=0.3, stratify=malignant, random_state=0
    )
    clinic_a, clinic_b = make_sets(known, malignant, (0.8, 0.2), (140, 140), allow_reuse=False, random_state=0)
    clinic_a.to_csv(work / "clinic_a.csv", index=False)
    clinic_b.to_csv(work / "clinic_b.csv", index=False)
    new.to_csv(work / "new_patients.csv", index=False)
    words = theirs.map({1: "malignant", 0: "benign"})
    new.assign(**{MARK: words}).to_csv(work / "diagnoses.csv", index=False)


def tell() -> None:
    """Run the example."""
    options = parser(__doc__ or "").parse_args()
    story = Story.begin(__file__, options)
    write_tables(story.work)
    truth = story.run_commands(
        "uulearn fit clinic_a.csv clinic_b.csv --set-priors 0.8 0.2 --target-prior 0.37 --id patient --out model",
        "new_patients.csv",
        f"uulearn evaluate model diagnoses.csv --labels {MARK} --positive malignant",
    )
    story.finish(truth, "Two clinics", options.write)


if __name__ == "__main__":
    run(tell)
