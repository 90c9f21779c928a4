"""Create the tables of ``uulearn demo``: simulated patients of two clinics, as input for the other commands.

Ill and healthy patients have the same distributions in both clinics. The clinics differ only in the fraction of
patients who are ill, which is the assumption of the method.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from uulearn.storage import write_atomically

TABLE_PRIORS = {"clinic_a.csv": 0.8, "clinic_b.csv": 0.2, "new_patients.csv": 0.3, "labeled_patients.csv": 0.3}
"""Maps each file name to the fraction of patients who are ill."""
TABLE_SIZES = {"clinic_a.csv": 1500, "clinic_b.csv": 1500, "new_patients.csv": 500, "labeled_patients.csv": 2000}
LABEL_COLUMN = "ill"


def demo_tables(seed: int) -> dict[str, pd.DataFrame]:
    """Return the tables, keyed by file name; only the table of labeled patients has the column ``ill``."""
    rng = np.random.default_rng(seed)
    tables = {name: draw_patients(rng, size, TABLE_PRIORS[name]) for name, size in TABLE_SIZES.items()}
    return {
        name: table if name.startswith("labeled") else table.drop(columns=LABEL_COLUMN)
        for name, table in tables.items()
    }


def draw_patients(rng: np.random.Generator, n: int, prior: float) -> pd.DataFrame:
    """Simulate n patients; a fraction ``prior`` of them is ill."""
    ill = rng.permutation(n) < round(prior * n)
    habits, frequencies = ("never", "former", "current"), ((0.6, 0.25, 0.15), (0.35, 0.25, 0.4))
    return pd.DataFrame(
        {
            "age": rng.normal(50 + 10 * ill, 12).clip(18, 95).round().astype(int),
            "sex": rng.choice(["f", "m"], n),
            "smoking": [rng.choice(habits, p=frequencies[int(one)]) for one in ill],
            "heart_rate": rng.normal(70 + 9 * ill, 9).round().astype(int),
            "hemoglobin": rng.normal(14.4 - 1.4 * ill, 1.2).round(1),
            "crp": rng.lognormal(0.6 + 1.3 * ill, 0.8).round(1),
            "leukocytes": rng.normal(6.8 + 1.8 * ill, 1.5).clip(2).round(1),
            LABEL_COLUMN: ill.astype(int),
        }
    )


def write_tables(folder: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write the tables as CSV files; raise ValueError if a file exists with other contents."""
    files = {folder / name: table.to_csv(index=False, lineterminator="\n").encode() for name, table in tables.items()}
    if changed := [path.name for path, content in files.items() if path.exists() and path.read_bytes() != content]:
        raise ValueError(
            f"{', '.join(changed)} in {folder} would be overwritten with other rows; pass another folder as --out, or "
            "move the files."
        )
    for path, content in files.items():
        write_atomically(path, partial(Path.write_bytes, data=content))
