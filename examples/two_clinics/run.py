"""Two clinics: a tumor classifier without diagnoses, and its accuracy. Run it with --help for options."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from example import Example, parser, run_example

LABEL = "diagnosis"


def write_tables(work: Path) -> None:
    """Write the tables of two clinics and of new patients; a separate file has the diagnoses of the new patients."""
    import numpy as np
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split

    from uulearn.datasets import make_sets

    table, benign = load_breast_cancer(return_X_y=True, as_frame=True)
    malignant = 1 - benign
    table.columns = [name.replace(" ", "_") for name in table.columns]
    table.insert(0, "patient", [f"P{number:03d}" for number in np.random.default_rng(0).permutation(len(table))])
    known, new, malignant, y_new = train_test_split(table, malignant, test_size=0.3, stratify=malignant, random_state=0)
    clinic_a, clinic_b = make_sets(known, malignant, (0.8, 0.2), (140, 140), allow_reuse=False, random_state=0)
    clinic_a.to_csv(work / "clinic_a.csv", index=False)
    clinic_b.to_csv(work / "clinic_b.csv", index=False)
    new.to_csv(work / "new_patients.csv", index=False)
    words = y_new.map({1: "malignant", 0: "benign"})
    new.assign(**{LABEL: words}).to_csv(work / "diagnoses.csv", index=False)


def main() -> None:
    """Run the example."""
    options = parser(__doc__ or "").parse_args()
    example = Example.start(__file__, options)
    write_tables(example.work)
    truth = example.run_all(
        "uulearn fit clinic_a.csv clinic_b.csv --set-priors 0.8 0.2 --target-prior 0.37 --id patient --out model",
        "new_patients.csv",
        f"uulearn evaluate model diagnoses.csv --labels {LABEL} --positive malignant",
    )
    example.finish(truth, "Two clinics", options.write)


if __name__ == "__main__":
    run_example(main)
