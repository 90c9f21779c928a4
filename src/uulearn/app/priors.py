"""Read two files as matrices for the estimation of class priors."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from uulearn.metrics.estimates import Floats
from uulearn.priors.scoring import read_rows
from uulearn.tabular.matrices import prepare
from uulearn.tabular.schema import Schema, apply_schema


def read_sets(
    set0: Path, set1: Path, *, drop: Sequence[str] = (), seed: int = 0, sheet: str | None = None
) -> tuple[Floats, Floats]:
    """Return the rows of two files as numbers; columns are encoded unless all are numeric without missing values."""
    prepared = prepare(set0, set1, None, drop=drop, seed=seed, sheet=sheet)
    if prepared.leaking_columns:
        raise ValueError(f"{prepared.leaking_columns[0].reason} Drop it with --drop.")
    schema = prepared.schema
    assert isinstance(schema, Schema)
    if all(column.kind == "number" and not column.missing for column in schema.columns):
        first, second = (
            np.concatenate([apply_schema(frame, schema, name=source.name).to_numpy() for frame in source.frames()])
            for source in prepared.sources
        )
    else:
        first, second = prepared.matrices(Path(tempfile.gettempdir()))
    return read_rows(first, str(set0)), read_rows(second, str(set1))
