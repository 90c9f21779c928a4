"""Two files as matrices for the estimation of their class priors."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from uulearn.app.scoring import table_blocks
from uulearn.exceptions import TableError
from uulearn.io.reading import open_table
from uulearn.metrics.estimates import Floats
from uulearn.priors.scoring import read_rows
from uulearn.tabular.matrices import prepare


def read_sets(set0: Path, set1: Path, drop: Sequence[str] = (), seed: int = 0) -> tuple[Floats, Floats]:
    """The rows of two files as numbers.

    Files that hold only numbers are used as they are, so that the estimate equals that of Python for the same arrays.
    All others are encoded as for training.
    """
    if not drop:
        try:
            return _read_numbers(set0, set1)
        except TableError:
            pass  # text, missing values, different columns: the encoder below handles or reports them
    prepared = prepare(set0, set1, None, drop=drop, seed=seed)
    if prepared.leaking_columns:
        raise ValueError(f"{prepared.leaking_columns[0].reason} Leave it out with --drop.")
    first, second = prepared.matrices(Path(tempfile.gettempdir()))
    return read_rows(first, str(set0)), read_rows(second, str(set1))


def _read_numbers(set0: Path, set1: Path) -> tuple[Floats, Floats]:
    with open_table(set0) as reader:
        columns = reader.columns
    numbered = columns == [str(position) for position in range(len(columns))]  # a file without a header
    names = [] if numbered else columns
    first, second = (np.concatenate(list(table_blocks(str(path), None, names, len(columns)))) for path in (set0, set1))
    return read_rows(first, str(set0)), read_rows(second, str(set1))
