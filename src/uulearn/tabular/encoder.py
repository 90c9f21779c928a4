"""Encode typed columns as a float32 matrix, with one encoder that is fitted on the rows of both sets.

========  =========================================================================================================
number    Normal score: the standard normal quantile of the rank, standardized and clipped to ±3; missing values get
          the score of the median
boolean   1 or 0; missing values get the mean
category  One feature per frequent value, one for all rare values, one for missing values
date      The day as a normal score; the time of year, day of the week and time of day (if present), as sine and cosine
text      Sixteen features: hashed counts of letter groups (short text) or words (long text), weighted by rarity and
          reduced by a truncated singular value decomposition
========  =========================================================================================================

A number, boolean, date or text column with missing values has an additional feature that marks missing values.

Normal scores depend only on ranks: an increasing transformation does not change them, and outliers have little effect.

The fitted state consists of numeric arrays whose shapes are determined by the schema. A model directory stores the
schema as JSON and the arrays as safetensors, so loading a model executes no code.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from scipy import sparse
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import check_is_fitted

from uulearn.exceptions import ModelFormatError
from uulearn.tabular.schema import KINDS, OTHER, Schema, TableColumn

KNOTS = 256  # number of values of a column between which scores are interpolated
CUT = 3.0  # largest score; values beyond three standard deviations are outliers
TEXT_FEATURES = 16  # number of features of a text column
HASHED = 4096  # number of hashes that distinguish letter groups or words
FITTED_TEXT_ROWS = 20_000  # maximum number of cells used to fit the features of a text column
TEXT_LETTERS = 2000  # maximum length of a cell; longer cells are truncated
PROBE = ("", "a", "A12-b", "the quick brown fox", "Ärzte für Ελλάδα", "12.5", "日本語 テキスト", "the " * 20)
"""Sample texts whose features are stored with the model, to detect a scikit-learn version that hashes differently."""
PROBE_TOLERANCE = 1e-3  # tolerance for the features of `PROBE`, because linear algebra libraries differ

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encoder that converts rows with typed columns to a float32 matrix; each row is encoded independently.

    The number and order of the features depend only on the schema. ``arrays_`` contains the fitted state.

    >>> schema = Schema((TableColumn("age", "number", missing=True), TableColumn("smokes", "boolean")))
    >>> rows = pd.DataFrame({"age": [20.0, 30.0, 40.0, float("nan")], "smokes": [1.0, 0.0, 0.0, 1.0]})
    >>> encoder = TableEncoder(schema).fit(rows)
    >>> encoder.transform(rows).round(2)
    array([[-1.22,  0.  ,  1.  ],
           [ 0.  ,  0.  ,  0.  ],
           [ 1.22,  0.  ,  0.  ],
           [ 0.  ,  1.  ,  1.  ]], dtype=float32)
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def fit(self, X: pd.DataFrame, y: None = None) -> Self:
        """Fit the encoder to rows of both sets that were converted by `uulearn.tabular.schema.apply_schema`."""
        arrays: Arrays = {}
        for kind in ("number", "date"):
            if columns := self.of_kind(kind):
                values = [_floats(X, own) if kind == "number" else _days(_moments(X, own)) for own in columns]
                arrays |= {f"{kind}.{name}": array for name, array in _fit_scores(values).items()}
        if booleans := self.of_kind("boolean"):
            known = [values[~np.isnan(values)] for values in (_floats(X, column) for column in booleans)]
            arrays["boolean.fills"] = np.array([float(own.mean()) if len(own) else 0.5 for own in known])
        for position, column in enumerate(self.of_kind("text")):
            fitted = _fit_text(X[column.name], long=column.long)
            fitted["probe"] = _encode_text(PROBE, fitted, long=column.long)
            arrays |= {f"text.{position}.{name}": array for name, array in fitted.items()}
        self._set_state(arrays)
        return self

    def transform(self, X: pd.DataFrame) -> Matrix:
        """Encode rows that were converted by `uulearn.tabular.schema.apply_schema`, and return their features."""
        check_is_fitted(self)
        out = np.empty((len(X), sum(map(len, self.feature_groups().values()))), dtype=np.float32)
        start = 0
        with np.errstate(over="ignore"):  # only an altered encoder overflows; the classifier rejects infinite features
            for block in self._blocks(X):
                out[:, start : start + block.shape[1]] = block
                start += block.shape[1]
        return out

    def _blocks(self, X: pd.DataFrame) -> Iterable[NDArray[Any]]:
        """Yield the features in blocks, in the order of `feature_groups`."""
        numbers, booleans, dates = (self.of_kind(kind) for kind in ("number", "boolean", "date"))
        for position, column in enumerate(numbers):
            yield self._scores("number", position, _floats(X, column))[:, None]
        yield from _missing_marks(X, numbers)
        for column, fill in zip(booleans, self.arrays_.get("boolean.fills", ()), strict=True):
            values = _floats(X, column)
            yield np.where(np.isnan(values), fill, values)[:, None]
        yield from _missing_marks(X, booleans)
        for column in self.of_kind("category"):
            yield _one_hot(X[column.name], column)
        days = [_days(_moments(X, column)) for column in dates]
        for position, values in enumerate(days):
            yield self._scores("date", position, values)[:, None]
        for column, values in zip(dates, days, strict=True):
            yield _circles(_moments(X, column), values, clock=column.clock)
        yield from _missing_marks(X, dates)
        for position, column in enumerate(self.of_kind("text")):
            codes, values = pd.factorize(X[column.name], use_na_sentinel=False)  # cells may repeat
            yield _encode_text(values, self.text_arrays(position), long=column.long)[codes]
            yield from _missing_marks(X, [column])

    def _scores(self, kind: str, position: int, values: Floats) -> Floats:
        knots, heights, fills = (self.arrays_[f"{kind}.{name}"][position] for name in ("knots", "heights", "fills"))
        return np.asarray(np.where(np.isnan(values), fills, np.interp(values, knots, heights)))

    def of_kind(self, kind: str) -> list[TableColumn]:
        """Return the columns of one kind, in the order of the schema."""
        return [column for column in self.schema.columns if column.kind == kind]

    def text_arrays(self, position: int) -> Arrays:
        """Return the fitted state of one text column."""
        start = f"text.{position}."
        return {name.removeprefix(start): array for name, array in self.arrays_.items() if name.startswith(start)}

    def feature_groups(self) -> dict[str, list[int]]:
        """Return the indices of the features that encode each column of the table."""
        numbers, booleans, categories, dates, texts = map(self.of_kind, KINDS)
        widths = [
            *((column, 1) for column in numbers),
            *((column, column.missing) for column in numbers),
            *((column, 1) for column in booleans),
            *((column, column.missing) for column in booleans),
            *((column, _n_categories(column)) for column in categories),
            *((column, 1) for column in dates),
            *((column, 6 if column.clock else 4) for column in dates),
            *((column, column.missing) for column in dates),
            *((column, TEXT_FEATURES + column.missing) for column in texts),
        ]
        order = [column.name for column, width in widths for _ in range(width)]
        groups: dict[str, list[int]] = {name: [] for name in self.schema.names}
        for feature, name in enumerate(order):
            groups[name].append(feature)
        return groups

    def array_shapes(self) -> dict[str, tuple[tuple[int, ...], type]]:
        """Return the shape and data type of each array in the fitted state."""
        shapes: dict[str, tuple[tuple[int, ...], type]] = {}
        for kind in ("number", "date"):
            if n := len(self.of_kind(kind)):
                shapes |= {f"{kind}.{name}": ((n, KNOTS), np.float64) for name in ("knots", "heights")}
                shapes[f"{kind}.fills"] = ((n,), np.float64)
        if booleans := self.of_kind("boolean"):
            shapes["boolean.fills"] = ((len(booleans),), np.float64)
        text: dict[str, tuple[tuple[int, ...], type]] = {
            "weights": ((HASHED,), np.float64),
            "directions": ((HASHED, TEXT_FEATURES), np.float32),
            "centers": ((TEXT_FEATURES,), np.float64),
            "spreads": ((TEXT_FEATURES,), np.float64),
            "probe": ((len(PROBE), TEXT_FEATURES), np.float32),
        }
        for position in range(len(self.of_kind("text"))):
            shapes |= {f"text.{position}.{name}": shape for name, shape in text.items()}
        return shapes

    def to_bytes(self) -> bytes:
        """Return the fitted state in safetensors format; it contains neither the schema nor any rows."""
        check_is_fitted(self)
        return save_arrays({name: np.ascontiguousarray(array) for name, array in self.arrays_.items()})

    @classmethod
    def from_bytes(cls, schema: Schema, data: bytes) -> Self:
        """Create an encoder from a schema and stored state; raise `ModelFormatError` if the data are invalid."""
        encoder = cls(schema)
        try:
            arrays = load_arrays(data)
        except (SafetensorError, ValueError, TypeError, KeyError) as error:
            raise _damaged(f"{type(error).__name__}: {error}") from error
        encoder._check(arrays)
        encoder._set_state(arrays)
        for position, column in enumerate(encoder.of_kind("text")):
            own = encoder.text_arrays(position)
            if not np.allclose(_encode_text(PROBE, own, long=column.long), own["probe"], rtol=0, atol=PROBE_TOLERANCE):
                raise ModelFormatError(
                    f"column {column.name!r} has different features than when the model was saved; install the "
                    "scikit-learn version that was used to save the model, or train the model again."
                )
        return encoder

    def _check(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        expected = {name: (shape, np.dtype(kind)) for name, (shape, kind) in self.array_shapes().items()}
        found = {name: (array.shape, array.dtype) for name, array in arrays.items()}
        for name in sorted(expected.keys() | found.keys()):
            if expected.get(name) != found.get(name):
                raise _damaged(f"{name} is {found.get(name)}, expected {expected.get(name)}")
            if np.isnan(arrays[name]).any():
                raise _damaged(f"{name} contains NaN")
            if name.endswith("knots") and (np.diff(arrays[name], axis=1) < 0).any():
                raise _damaged(f"{name} is not sorted")
            if not name.endswith("spreads") and not np.isfinite(arrays[name]).all():
                raise _damaged(f"{name} contains an infinite value")

    def _set_state(self, arrays: Arrays) -> None:
        self.arrays_ = arrays
        self.n_features_in_ = len(self.schema.names)
        self.feature_names_in_ = np.array(self.schema.names, dtype=object)


def _damaged(why: str) -> ModelFormatError:
    return ModelFormatError(
        f"the encoder does not match its schema or is damaged ({why}); copy the model again, or train it again."
    )


def _floats(X: pd.DataFrame, column: TableColumn) -> Floats:
    return np.asarray(X[column.name].to_numpy(dtype=np.float64))


def _moments(X: pd.DataFrame, column: TableColumn) -> NDArray[np.datetime64]:
    return np.asarray(X[column.name].to_numpy().astype("datetime64[us]"))


def _days(moments: NDArray[np.datetime64]) -> Floats:
    """Return the number of days since 1970, or NaN for a missing date."""
    return np.asarray((moments - np.datetime64(0, "us")) / np.timedelta64(1, "D"))


def _missing_marks(X: pd.DataFrame, columns: list[TableColumn]) -> Iterable[NDArray[Any]]:
    for column in columns:
        if column.missing:
            yield X[column.name].isna().to_numpy(dtype=np.float32)[:, None]


def _fit_scores(columns: list[Floats]) -> Arrays:
    """Return interpolation points and their scores, of shape (n_columns, KNOTS), and the score of each median."""
    knots, heights, fills = (np.zeros((len(columns), width)) for width in (KNOTS, KNOTS, 1))
    for position, column in enumerate(columns):
        known = column[~np.isnan(column)]
        if not len(known):
            continue
        values, counts = np.unique(known, return_counts=True)
        below = np.cumsum(counts)
        scores = ndtri((below - counts / 2) / len(known))  # ties get the mean of their ranks
        center = scores @ counts / len(known)
        spread = np.sqrt((scores - center) ** 2 @ counts / len(known))
        scores = np.clip((scores - center) / (spread or 1), -CUT, CUT)
        # The scores are evenly spaced, so the values are dense in the tails and include the minimum and the maximum.
        end = ndtri(0.5 / len(known))
        ranks = ndtr(np.linspace(end, -end, KNOTS)) * len(known)
        chosen = np.searchsorted(below, ranks) if len(values) > KNOTS else np.arange(KNOTS)
        chosen = np.unique(np.minimum(chosen, len(values) - 1))
        chosen = np.append(chosen, np.full(KNOTS - len(chosen), len(values) - 1))  # repeat the last value
        knots[position], heights[position] = values[chosen], scores[chosen]
        fills[position] = np.interp(np.median(known), knots[position], heights[position])
    return {"knots": knots, "heights": heights, "fills": fills[:, 0]}


def _circles(moments: NDArray[np.datetime64], days: Floats, *, clock: bool) -> Floats:
    """Return the sine and cosine of the time of year, day of the week and optionally time of day; 0 if missing."""
    into_year = (moments - moments.astype("datetime64[Y]")) / np.timedelta64(1, "D")
    turns = [into_year / 365.2425, np.floor(days) / 7] + ([days] if clock else [])
    angles = [2 * np.pi * (turn % 1) for turn in turns]
    parts = [part for angle in angles for part in (np.sin(angle), np.cos(angle))]
    return np.asarray(np.nan_to_num(np.column_stack(parts)))


def _n_categories(column: TableColumn) -> int:
    return len(column.values) + column.other + column.missing


def _one_hot(cells: pd.Series, column: TableColumn) -> Matrix:
    """One-hot encode a column; a value that is not in the schema becomes `OTHER`, or 0 in all features."""
    out = np.zeros((len(cells), _n_categories(column)), dtype=np.float32)
    codes = np.asarray(pd.Categorical(cells, categories=[*column.values, OTHER]).codes)
    shown = (codes >= 0) & ((codes < len(column.values)) | column.other)
    out[np.flatnonzero(shown), codes[shown]] = 1
    if column.missing:
        out[codes < 0, -1] = 1
    return out


def count_groups(cells: Iterable[Any], *, long: bool) -> Any:
    """Return log-scaled counts of words and word pairs (long text), or of groups of 2 to 4 letters (short text).

    The result is a sparse matrix with one row per cell and `HASHED` columns; None is treated as empty text.
    """
    groups = {"analyzer": "word", "ngram_range": (1, 2)} if long else {"analyzer": "char_wb", "ngram_range": (2, 4)}
    hashing = HashingVectorizer(n_features=HASHED, alternate_sign=False, norm=None, **groups)
    texts = [cell[:TEXT_LETTERS] if isinstance(cell, str) else "" for cell in cells]
    counts = sparse.csr_matrix(hashing.transform(texts)) if texts else sparse.csr_matrix((0, HASHED))
    counts.data = 1 + np.log(counts.data)
    return counts


def _fit_text(cells: pd.Series, *, long: bool) -> Arrays:
    """Fit latent semantic analysis (Deerwester et al., 1990) to the hashed counts of a sample of the cells."""
    counts = count_groups(cells.iloc[:: -(-len(cells) // FITTED_TEXT_ROWS)], long=long)
    weights = np.log((1 + counts.shape[0]) / (1 + np.bincount(counts.indices, minlength=HASHED))) + 1
    weighted = _weighted(counts, weights)
    rank = min(TEXT_FEATURES, *weighted.shape)
    _, _, right = randomized_svd(weighted, n_components=rank, n_iter=4, random_state=0)
    directions = np.zeros((HASHED, TEXT_FEATURES), dtype=np.float32)
    directions[:, :rank] = right.T
    parts = weighted @ directions
    spreads = parts.std(axis=0)
    spreads = np.where(spreads > 1e-6, spreads, np.inf)  # directions without variation become 0
    return {"weights": weights, "directions": directions, "centers": parts.mean(axis=0), "spreads": spreads}


def _weighted(counts: Any, weights: Floats) -> Any:
    """Multiply the counts by the weights of the groups, and scale each cell to unit length."""
    weighted = counts.multiply(weights).tocsr()
    lengths = np.sqrt(weighted.multiply(weighted) @ np.ones(HASHED))
    return sparse.diags_array(1 / np.where(lengths > 0, lengths, 1)) @ weighted


def _encode_text(cells: Iterable[Any], fitted: Arrays, *, long: bool) -> Matrix:
    projected = _weighted(count_groups(cells, long=long), fitted["weights"]) @ fitted["directions"]
    return np.asarray(np.clip((projected - fitted["centers"]) / fitted["spreads"], -CUT, CUT), dtype=np.float32)
