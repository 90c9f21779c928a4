"""Load MNIST if a data folder has it, or create random pixels of the same shape and sparsity.

The folder is set by the environment variable ``UULEARN_DATA``, or is ``shared/data`` next to the repository. It
contains the original IDX files, for example ``mnist/train-images-idx3-ubyte.gz``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common import N_FEATURES, SET_PRIORS
from uulearn.datasets import BinaryTask, load_task, make_sets

Floats = NDArray[np.float32]
NONZERO_SHARE = 0.19
CHUNK = 4096


@dataclass(frozen=True)
class TwoSetsOfPixels:
    """Both sets in one array, with set 0 first, so that all contenders share the memory."""

    X: Floats
    n_first: int
    source: str

    @property
    def first(self) -> Floats:
        """Rows of set 0, a view."""
        return self.X[: self.n_first]

    @property
    def second(self) -> Floats:
        """Rows of set 1, a view."""
        return self.X[self.n_first :]


def data_folder() -> Path | None:
    """Return the folder that contains MNIST, or None."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("UULEARN_DATA", beside))
    return folder if (folder / "mnist" / "train-images-idx3-ubyte.gz").exists() else None


def read_mnist(folder: Path) -> BinaryTask:
    """Read MNIST with one image per row; even digits are positive."""
    return load_task("mnist", data_dir=folder, download=False).flat()


def two_sets(n_each: int) -> TwoSetsOfPixels:
    """Return two sets of ``n_each`` rows: MNIST with 70% and 30% even digits, or random pixels."""
    X = np.empty((2 * n_each, N_FEATURES), dtype=np.float32)
    folder = data_folder()
    if folder is None:
        fill_with_random_pixels(X)
        return TwoSetsOfPixels(X, n_each, "random pixels")
    task = read_mnist(folder)
    drawn = make_sets(task.X_train, task.y_train, SET_PRIORS, (n_each, n_each), random_state=0)
    for rows, out in zip(drawn, (X[:n_each], X[n_each:]), strict=True):
        np.multiply(rows, np.float32(1 / 255), out=out)
    return TwoSetsOfPixels(X, n_each, "MNIST, even against odd")


def many_rows(n_rows: int) -> tuple[Floats, str]:
    """Return rows to predict: MNIST, repeated, or random pixels."""
    X = np.empty((n_rows, N_FEATURES), dtype=np.float32)
    folder = data_folder()
    if folder is None:
        fill_with_random_pixels(X)
        return X, "random pixels"
    images = read_mnist(folder).X_train
    for start in range(0, n_rows, len(images)):
        out = X[start : start + len(images)]
        np.multiply(images[: len(out)], np.float32(1 / 255), out=out)
    return X, "MNIST, repeated"


def fill_with_random_pixels(out: Floats, seed: int = 0) -> None:
    """Fill an array in place with values in [0, 1), most of them zero as in MNIST, without a large temporary array."""
    rng = np.random.default_rng(seed)
    for start in range(0, len(out), CHUNK):
        chunk = out[start : start + CHUNK]
        rng.random(out=chunk, dtype=np.float32)
        chunk -= 1 - NONZERO_SHARE
        np.maximum(chunk, 0, out=chunk)
        chunk /= NONZERO_SHARE
