"""Encode the columns of a table as a float32 matrix, with one encoder that is fitted on the rows of both sets.

========  =========================================================================================================
number    Normal score: the standard normal quantile of the rank, standardized and clipped to ±3; missing values get
          the score of the median
boolean   1 or 0; missing values get the mean
category  One feature per frequent value, one for all rare values, one for missing values
date      The day as a normal score; the time of year, day of the week and time of day (if present), as sine and cosine
list      A list of numbers, such as an embedding, is replaced by one number column per position
text      Sixteen features: hashed counts of letter groups (short text) or words (long text), weighted by rarity and
          reduced by a truncated singular value decomposition
========  =========================================================================================================

A number, boolean, date or text column with missing values has an additional feature that marks missing values.

Normal scores depend only on ranks: an increasing transformation does not change them, and outliers have little effect.

The fitted state consists of numeric arrays whose shapes are determined by the schema. A model directory stores the
schema as JSON and the arrays as safetensors, so loading a model executes no code.
"""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays
from scipy import sparse
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import check_is_fitted

from uulearn.exceptions import ColumnWarning, LeakingColumnWarning, ModelFormatError, TableError
from uulearn.io.embeddings import ARRAY, list_lengths
from uulearn.storage import write_atomically
from uulearn.tabular.frames import FrameSource, to_frame
from uulearn.tabular.leakage import LeakingColumn, find_label_columns, find_leaking_columns
from uulearn.tabular.schema import KINDS, OTHER, Schema, TableColumn, apply_schema, join_names, read_new_rows
from uulearn.tabular.survey import PYTHON_SETS, PYTHON_TABLE, Survey, Terms
from uulearn.tabular.text import HASHED, count_groups
from uulearn.tabular.unreadable import UnreadableCounter

ENCODER_ROWS = 100_000  # maximum number of rows of each table used to fit the encoder and to check for leakage
KNOTS = 256  # number of values of a column between which scores are interpolated
CUT = 3.0  # largest score; values beyond three standard deviations are outliers
TEXT_FEATURES = 16  # number of features of a text column
MARK = "__missing"  # end of the name of a feature that marks missing values
CIRCLES = tuple(f"__{turn}_{part}" for turn in ("year", "week", "day") for part in ("sin", "cos"))
FITTED_TEXT_ROWS = 20_000  # maximum number of cells used to fit the features of a text column
PROBE = ("", "a", "A12-b", "the quick brown fox", "Ärzte für Ελλάδα", "12.5", "日本語 テキスト", "the " * 20)
"""Sample texts whose features are stored with the model, to detect a scikit-learn version that hashes differently."""
PROBE_TOLERANCE = 1e-3  # tolerance for the features of `PROBE`, because linear algebra libraries differ

SET_NAMES = ("set 0", "set 1")  # names of two tables in messages
FILES = ("schema.json", "encoder.safetensors")  # in the folder that `TableEncoder.save` writes

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]


class Source(Protocol):
    """A table that can be read more than once, in memory or in a file."""

    @property
    def name(self) -> str:
        """Name of the table in messages."""
        ...

    @property
    def rows(self) -> int:
        """Number of rows; known after the first read."""
        ...

    def frames(self) -> Iterator[pd.DataFrame]:
        """Yield the rows in chunks."""
        ...

    def apply(self, schema: Schema) -> None:
        """Prepare for reading the table again, once the kinds of its columns are known."""
        ...


class TableFacts(NamedTuple):
    """What an encoder found out about the tables that it was fitted to."""

    leaking_columns: list[LeakingColumn]
    missing: dict[str, tuple[float, float]]
    """Fractions of missing values in each column of two tables."""


class TableEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Transformer that converts the rows of a table to a float32 matrix; each row is encoded independently.

    `fit` infers the kind of each column (number, boolean, category, date or text) from all rows, by the rules that
    ``uulearn fit`` applies to files. Empty and constant columns, copies of other columns and identifiers are dropped,
    with a `uulearn.exceptions.ColumnWarning`. Tables can be pandas, polars or Arrow tables, lists of dicts, or 2-D
    arrays. `transform` selects columns by name, so their order does not matter, and ignores other columns.

    Parameters
    ----------
    drop : sequence of str
        Columns to drop. The name of a column of lists means all of its positions, also in ``only``.
    only : sequence of str
        Columns to use; by default, all columns.
    kinds : dict, optional
        Kinds of columns that replace the inferred kinds, such as ``{"region": "category"}`` for a column of numbers
        that are names of regions. The kinds are "number", "boolean", "category", "date" and "text".

    Attributes
    ----------
    schema_ : `uulearn.tabular.schema.Schema`
        Name and kind of each column, and the reason why other columns were dropped.
    notes_ : list of str
        Messages about columns that were dropped or may be misread.
    n_features_in_, feature_names_in_
        Number and names of the columns that `transform` uses.
    arrays_ : dict
        Fitted state of the columns; see `save`.

    Examples
    --------
    >>> rows = pd.DataFrame({"age": [20, 30, 40, None], "smokes": ["yes", "no", "no", "yes"], "site": "Ulm"})
    >>> encoder = TableEncoder(drop=["site"]).set_output(transform="pandas").fit(rows)
    >>> print(encoder.transform(rows).round(2))
        age  age__missing  smokes
    0 -1.22           0.0     1.0
    1  0.00           0.0     0.0
    2  1.22           0.0     0.0
    3  0.00           1.0     1.0
    """

    schema_: Schema
    notes_: list[str]
    arrays_: Arrays

    def __init__(
        self, *, drop: Sequence[str] = (), only: Sequence[str] = (), kinds: Mapping[str, str] | None = None
    ) -> None:
        self.drop = drop
        self.only = only
        self.kinds = kinds

    def fit(self, X: Any, y: Any = None) -> Self:
        """Infer the columns of a table and fit the encoder to its rows; ``y`` is ignored."""
        self.fit_sources([FrameSource(to_frame(X, "X"), "X")], terms=PYTHON_TABLE)
        self._warn()
        return self

    def fit_sets(
        self, X0: Any, X1: Any, *, set_priors: Sequence[float] | None = None, seed: int = 0, stacklevel: int = 2
    ) -> Self:
        """Fit the encoder to the tables of two sets, in which each column must have the same kind.

        A `uulearn.exceptions.LeakingColumnWarning` names the columns that differ between the sets by more than the
        class priors ``set_priors`` allow. ``seed`` chooses the rows of a table with more than 100,000 rows.
        """
        tables = [FrameSource(to_frame(X, name), name) for X, name in zip((X0, X1), SET_NAMES, strict=True)]
        priors = None if set_priors is None else (float(set_priors[0]), float(set_priors[1]))
        found = self.fit_sources(tables, set_priors=priors, terms=PYTHON_SETS, seed=seed).leaking_columns
        self._warn(stacklevel + 1)
        if found:
            reasons = " ".join(leak.reason for leak in found)
            remedy = f"drop the columns: TableEncoder({PYTHON_SETS.option('drop', [leak.column for leak in found])})"
            warnings.warn(f"{reasons} If this is not intended, {remedy}.", LeakingColumnWarning, stacklevel=stacklevel)
        return self

    def _warn(self, stacklevel: int = 3) -> None:
        if self.notes_:
            warnings.warn(" ".join(self.notes_), ColumnWarning, stacklevel=stacklevel)

    def fit_sources(
        self,
        sources: Sequence[Source],
        *,
        terms: Terms,
        set_priors: tuple[float, float] | None = None,
        ids: Sequence[str] = (),
        seed: int = 0,
    ) -> TableFacts:
        """Fit the encoder to one or two tables that are read in chunks; ``ids`` are columns to copy to the output."""
        self._check_parameters()
        names = [source.name for source in sources]
        survey = Survey(drop=self.drop, ids=ids, only=self.only, kinds=self.kinds, files=names, terms=terms)
        for which, source in enumerate(sources):
            for frame in source.frames():
                survey.add(frame, which)
            if source.rows < 2 and len(sources) == 2:
                raise TableError(f"{source.name} has {source.rows} rows; each {terms.table} needs at least two.")
        schema, notes = survey.finish()
        for source in sources:
            source.apply(schema)
        samples = [_sample(source, schema, [seed, which]) for which, source in enumerate(sources)]
        self.fit_rows(schema, pd.concat(samples, ignore_index=True))
        self.notes_ = notes
        if len(sources) == 1:
            return TableFacts([], {})
        first, second = (source.rows for source in sources)
        missing = {
            name: (int(summary.missing[0]) / first, int(summary.missing[1]) / second)
            for name, summary in survey.summaries.items()
        }
        return TableFacts(_find_leaks(samples, schema, set_priors, names, terms.table), missing)

    def _check_parameters(self) -> None:
        for name in ("drop", "only"):
            columns = getattr(self, name)
            if isinstance(columns, str) or not all(isinstance(column, str) for column in columns):
                raise ValueError(f"{name} must be a list of column names, got {columns!r}.")
        kinds = {} if self.kinds is None else self.kinds
        if not isinstance(kinds, Mapping) or not all(kind in KINDS for kind in kinds.values()):
            raise ValueError(f"kinds must map column names to {', '.join(map(repr, KINDS))}, got {self.kinds!r}.")

    def fit_rows(self, schema: Schema, rows: pd.DataFrame) -> Self:
        """Fit the encoder to typed rows, which `uulearn.tabular.schema.apply_schema` converted to this schema."""
        of_kind = schema.of_kind
        arrays: Arrays = {}
        for kind in ("number", "date"):
            if columns := of_kind(kind):
                values = [_floats(rows, own) if kind == "number" else _days(_moments(rows, own)) for own in columns]
                arrays |= {f"{kind}.{name}": array for name, array in _fit_scores(values).items()}
        if booleans := of_kind("boolean"):
            known = [values[~np.isnan(values)] for values in (_floats(rows, column) for column in booleans)]
            arrays["boolean.fills"] = np.array([float(own.mean()) if len(own) else 0.5 for own in known])
        for position, column in enumerate(of_kind("text")):
            fitted = _fit_text(rows[column.name], long=column.long)
            fitted["probe"] = _encode_text(PROBE, fitted, long=column.long)
            arrays |= {f"text.{position}.{name}": array for name, array in fitted.items()}
        self._set_state(schema, arrays)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Matrix:
        """Fit the encoder to the rows of a table, and return their features; ``y`` is ignored."""
        return self.fit(X).encode_table(X, "X")

    def transform(self, X: Any) -> Matrix:
        """Return the features of each row of a table, of shape (n, features), or a frame after `set_output`.

        Cells that cannot be read as the kind of their column are treated as missing values, with a
        `uulearn.exceptions.UnreadableCellsWarning`. If these are most values of a column, `TableError` is raised.
        """
        return self.encode_new_table(X, "X")

    def encode_new_table(self, X: Any, name: str) -> Matrix:
        """Return the features of new rows as `transform` does, but always as an array."""
        rows, unreadable = read_new_rows(self._read_frame(X, name), self.schema_, name=name)
        counter = UnreadableCounter()
        counter.add(unreadable)
        counter.check()
        counter.warn(name)
        return self.encode_rows(rows)

    def encode_table(self, X: Any, name: str) -> Matrix:
        """Return the features of training rows as an array; ``name`` is the name of the table in error messages.

        Raise `TableError` if columns are missing or cells cannot be read.
        """
        return self.encode_rows(apply_schema(self._read_frame(X, name), self.schema_, name=name))

    def _read_frame(self, X: Any, name: str) -> pd.DataFrame:
        """Convert a table to a frame, and check that it has column names if the encoder needs them."""
        check_is_fitted(self)
        frame = to_frame(X, name)
        unnamed = ARRAY in list_lengths(frame) and ARRAY not in self.schema_.lists
        if unnamed and not {*self.schema_.names} <= {*frame.columns}:
            raise TableError(
                f"{name} has no column names, but the encoder was fitted to the columns "
                f"{join_names(self.schema_.names)}; pass a table with these columns."
            )
        return frame

    def encode_rows(self, rows: pd.DataFrame) -> Matrix:
        """Return the features of typed rows."""
        check_is_fitted(self)
        out = np.empty((len(rows), sum(map(len, self.feature_groups().values()))), dtype=np.float32)
        start = 0
        with np.errstate(over="ignore"):  # only an altered encoder overflows; the classifier rejects infinite features
            for block in self._blocks(rows):
                out[:, start : start + block.shape[1]] = block
                start += block.shape[1]
        return out

    def _blocks(self, X: pd.DataFrame) -> Iterable[NDArray[Any]]:
        """Yield the features in blocks, in the order of `_features`."""
        numbers, booleans, dates = (self.schema_.of_kind(kind) for kind in ("number", "boolean", "date"))
        for position, column in enumerate(numbers):
            yield self._scores("number", position, _floats(X, column))[:, None]
        yield from _missing_marks(X, numbers)
        for column, fill in zip(booleans, self.arrays_.get("boolean.fills", ()), strict=True):
            values = _floats(X, column)
            yield np.where(np.isnan(values), fill, values)[:, None]
        yield from _missing_marks(X, booleans)
        for column in self.schema_.of_kind("category"):
            yield _one_hot(X[column.name], column)
        days = [_days(_moments(X, column)) for column in dates]
        for position, values in enumerate(days):
            yield self._scores("date", position, values)[:, None]
        for column, values in zip(dates, days, strict=True):
            yield _circles(_moments(X, column), values, clock=column.clock)
        yield from _missing_marks(X, dates)
        for position, column in enumerate(self.schema_.of_kind("text")):
            codes, values = pd.factorize(X[column.name], use_na_sentinel=False)  # cells may repeat
            yield _encode_text(values, self.text_arrays(position), long=column.long)[codes]
            yield from _missing_marks(X, [column])

    def _scores(self, kind: str, position: int, values: Floats) -> Floats:
        knots, heights, fills = (self.arrays_[f"{kind}.{name}"][position] for name in ("knots", "heights", "fills"))
        return np.asarray(np.where(np.isnan(values), fills, np.interp(values, knots, heights)))

    def text_arrays(self, position: int) -> Arrays:
        """Return the fitted state of one text column."""
        start = f"text.{position}."
        return {name.removeprefix(start): array for name, array in self.arrays_.items() if name.startswith(start)}

    def _features(self) -> list[tuple[str, str]]:
        """Return the column and the name of each feature."""
        numbers, booleans, categories, dates, texts = map(self.schema_.of_kind, KINDS)
        found: list[tuple[TableColumn, str]] = [(column, "") for column in numbers]
        found += [(column, MARK) for column in numbers if column.missing]
        found += [(column, "") for column in booleans]
        found += [(column, MARK) for column in booleans if column.missing]
        for column in categories:
            found += [(column, f"_{value}") for value in (*column.values, *[OTHER] * column.other)]
            found += [(column, MARK)] * column.missing
        found += [(column, "") for column in dates]
        found += [(column, circle) for column in dates for circle in CIRCLES[: 6 if column.clock else 4]]
        found += [(column, MARK) for column in dates if column.missing]
        for column in texts:
            found += [(column, f"__{number}") for number in range(TEXT_FEATURES)] + [(column, MARK)] * column.missing
        return [(column.name, f"{column.name}{suffix}") for column, suffix in found]

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the features, such as ``age``, ``age__missing`` and ``color_red``."""
        check_is_fitted(self)
        if input_features is not None and [*input_features] != [*self.feature_names_in_]:
            raise ValueError(f"input_features must be feature_names_in_, got {list(input_features)[:5]}.")
        return np.array([name for _, name in self._features()], dtype=object)

    def feature_groups(self) -> dict[str, list[int]]:
        """Return the indices of the features that encode each column of the table."""
        groups: dict[str, list[int]] = {name: [] for name in self.schema_.names}
        for feature, (column, _) in enumerate(self._features()):
            groups[column].append(feature)
        return groups

    def array_shapes(self) -> dict[str, tuple[tuple[int, ...], type]]:
        """Return the shape and data type of each array in the fitted state."""
        shapes: dict[str, tuple[tuple[int, ...], type]] = {}
        for kind in ("number", "date"):
            if n := len(self.schema_.of_kind(kind)):
                shapes |= {f"{kind}.{name}": ((n, KNOTS), np.float64) for name in ("knots", "heights")}
                shapes[f"{kind}.fills"] = ((n,), np.float64)
        if booleans := self.schema_.of_kind("boolean"):
            shapes["boolean.fills"] = ((len(booleans),), np.float64)
        text: dict[str, tuple[tuple[int, ...], type]] = {
            "weights": ((HASHED,), np.float64),
            "directions": ((HASHED, TEXT_FEATURES), np.float32),
            "centers": ((TEXT_FEATURES,), np.float64),
            "spreads": ((TEXT_FEATURES,), np.float64),
            "probe": ((len(PROBE), TEXT_FEATURES), np.float32),
        }
        for position in range(len(self.schema_.of_kind("text"))):
            shapes |= {f"text.{position}.{name}": shape for name, shape in text.items()}
        return shapes

    def save(self, folder: str | Path) -> None:
        """Write the fitted encoder to a folder: the columns as JSON, and the fitted state as safetensors.

        The only cell values that are stored are frequent values of categories.
        """
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, content in zip(FILES, self.to_bytes(), strict=True):
            write_atomically(Path(folder) / name, partial(Path.write_bytes, data=content))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a folder written by `save`; no code from the folder is executed."""
        try:
            schema, arrays = ((Path(folder) / name).read_bytes() for name in FILES)
        except OSError as error:
            raise ModelFormatError(f"{folder} contains no encoder ({error}); pass a folder written by save.") from error
        return cls.from_bytes(schema, arrays)

    def to_bytes(self) -> tuple[bytes, bytes]:
        """Return the schema as JSON and the fitted state in safetensors format; they contain no rows."""
        check_is_fitted(self)
        schema = json.dumps(self.schema_.to_dict(), indent=1, ensure_ascii=False, allow_nan=False).encode()
        return schema, save_arrays({name: np.ascontiguousarray(array) for name, array in self.arrays_.items()})

    @classmethod
    def from_bytes(cls, schema: bytes, data: bytes) -> Self:
        """Create an encoder from the output of `to_bytes`; raise `ModelFormatError` if the data are invalid."""
        try:
            columns = Schema.from_dict(json.loads(schema))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelFormatError(f"the schema cannot be read ({error}); fit the model again.") from error
        try:
            arrays = load_arrays(data)
        except (SafetensorError, ValueError, TypeError, KeyError) as error:
            raise _damaged(f"{type(error).__name__}: {error}") from error
        encoder = cls()
        encoder.schema_ = columns
        encoder._check(arrays)
        encoder._set_state(columns, arrays)
        for position, column in enumerate(columns.of_kind("text")):
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

    def _set_state(self, schema: Schema, arrays: Arrays) -> None:
        self.schema_, self.arrays_, self.notes_ = schema, arrays, []
        self.n_features_in_ = len(schema.names)
        self.feature_names_in_ = np.array(schema.names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _find_leaks(
    samples: list[pd.DataFrame], schema: Schema, priors: tuple[float, float] | None, files: list[str], noun: str
) -> list[LeakingColumn]:
    """Return the columns that differ by more than the class priors allow, and those that are probably the label."""
    first, second = samples
    found = find_leaking_columns(first, second, schema, priors or (1.0, 0.0), files=files, noun=noun)
    labels = [] if priors is None else find_label_columns(first, second, schema, priors, files=files)
    known = {leak.column for leak in found}
    return found + [leak for leak in labels if leak.column not in known]


def _sample(source: Source, schema: Schema, seed: Sequence[int]) -> pd.DataFrame:
    rng = np.random.default_rng([*seed, 5])
    wanted = np.arange(source.rows)
    if source.rows > ENCODER_ROWS:
        wanted = np.sort(rng.choice(source.rows, ENCODER_ROWS, replace=False))
    parts, start = [], 0
    for frame in source.frames():
        own = wanted[(wanted >= start) & (wanted < start + len(frame))] - start
        if len(own):
            parts.append(apply_schema(frame.iloc[own], schema, name=source.name))
        start += len(frame)
    return pd.concat(parts, ignore_index=True)


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
