"""The blocks of a pipeline: columns of one kind to columns of the matrix.

Each row is transformed for itself, so chunks give what the whole gives. What a fitted block holds are arrays of numbers
only: no state of other libraries that their next version would read differently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtr, ndtri
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.utils.extmath import randomized_svd

from uulearn.tabular.schema import OTHER

if TYPE_CHECKING:
    import pandas as pd

KNOTS = 256
"""A column's scores are interpolated between so many of its values."""
CUT = 3.0
"""Largest score: beyond three standard deviations there are only outliers."""
PARTS = 16
"""Columns of the matrix that a column of text becomes."""
HASHED = 4096
"""Letter groups or words are told apart by so many hashes."""
TEXT_ROWS = 20_000
"""So many cells tell which combinations of letters or words matter."""
TEXT_LETTERS = 2000
"""Of longer cells only the beginning is read."""

Matrix = NDArray[np.float32]
Floats = NDArray[np.float64]


class Block(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Columns of one kind to columns of the matrix."""

    def origins(self) -> list[int]:
        """Which of the block's columns each column of the matrix came from."""
        raise NotImplementedError

    def get_feature_names_out(self, input_features: Any) -> NDArray[np.object_]:
        """Names of the columns of the matrix, numbered where one column became several."""
        origins = self.origins()
        names = [f"{input_features[origin]} [{origins[:at].count(origin)}]" for at, origin in enumerate(origins)]
        return np.array(names, dtype=object)

    def probe(self) -> list[Any]:
        """Eight made-up cells for each column, on which a saved pipeline is checked."""
        raise NotImplementedError


class Numbers(Block):
    """Numbers to normal scores."""

    def __init__(self, missing: list[bool]) -> None:
        self.missing = missing

    def fit(self, X: pd.DataFrame, y: None = None) -> Self:
        """Learn each column's values and their scores."""
        self.knots_, self.heights_, self.fills_ = _fit_scores(_floats(X))
        return self

    def transform(self, X: pd.DataFrame) -> Matrix:
        """Scores, and 1 for what is missing."""
        columns = _floats(X)
        scores = _scores(columns, self.knots_, self.heights_, self.fills_)
        return _stacked(scores + _indicators(columns, self.missing), len(X))

    def origins(self) -> list[int]:
        """Scores in the order of the columns, then indicators."""
        return [*range(len(self.missing)), *_positions(self.missing)]

    def probe(self) -> list[Any]:
        """Of all sizes."""
        return [np.array([np.nan, -1e300, -1.0, 0.0, 0.5, 3.0, 1e6, 1e300])] * len(self.missing)


class Booleans(Block):
    """Booleans as they are."""

    def __init__(self, missing: list[bool]) -> None:
        self.missing = missing

    def fit(self, X: pd.DataFrame, y: None = None) -> Self:
        """Learn the share of each column that is true."""
        self.fills_ = np.array(
            [column[~np.isnan(column)].mean() if not np.isnan(column).all() else 0.5 for column in _floats(X)]
        )
        return self

    def transform(self, X: pd.DataFrame) -> Matrix:
        """Truths, and 1 for what is missing."""
        columns = _floats(X)
        truths = [np.where(np.isnan(column), fill, column) for column, fill in zip(columns, self.fills_, strict=True)]
        return _stacked(truths + _indicators(columns, self.missing), len(X))

    def origins(self) -> list[int]:
        """Truths in the order of the columns, then indicators."""
        return [*range(len(self.missing)), *_positions(self.missing)]

    def probe(self) -> list[Any]:
        """True, false and missing."""
        return [np.array([1.0, 0.0, np.nan, 1.0, 0.0, np.nan, 1.0, 0.0])] * len(self.missing)


class Categories(Block):
    """One column of the matrix for each value; what the files of the fit never had is 0 in all of them."""

    def __init__(self, values: list[list[str]], other: list[bool], missing: list[bool]) -> None:
        self.values = values
        self.other = other
        self.missing = missing

    def fit(self, X: pd.DataFrame, y: None = None) -> Self:
        """Nothing is left to learn: the schema knows the values of all rows."""
        self.width_ = len(self.origins())
        return self

    def transform(self, X: pd.DataFrame) -> Matrix:
        """Zeros and ones."""
        import pandas as pd

        out = np.zeros((len(X), self.width_), dtype=np.float32)
        start = 0
        for position, (values, other, missing) in enumerate(zip(self.values, self.other, self.missing, strict=True)):
            codes = np.asarray(pd.Categorical(X.iloc[:, position], categories=[*values, OTHER]).codes)
            shown = (codes >= 0) & ((codes < len(values)) | other)
            out[np.flatnonzero(shown), start + codes[shown]] = 1
            start += len(values) + other
            if missing:
                out[codes < 0, start] = 1
                start += 1
        return out

    def origins(self) -> list[int]:
        """Values of the first column, then of the second, and so on."""
        parts = zip(self.values, self.other, self.missing, strict=True)
        widths = [len(values) + other + missing for values, other, missing in parts]
        return np.repeat(np.arange(len(widths)), widths).tolist()

    def probe(self) -> list[Any]:
        """The first values, a rare and a missing one."""
        return [
            np.array([*[values[at % len(values)] for at in range(6)], OTHER, None], dtype=object)
            for values in self.values
        ]


class Dates(Block):
    """Dates to normal scores of the day and to where they lie in the year, the week and the day."""

    def __init__(self, clock: list[bool], missing: list[bool]) -> None:
        self.clock = clock
        self.missing = missing

    def fit(self, X: pd.DataFrame, y: None = None) -> Self:
        """Learn each column's days and their scores."""
        self.knots_, self.heights_, self.fills_ = _fit_scores([_days(column) for column in _moments(X)])
        return self

    def transform(self, X: pd.DataFrame) -> Matrix:
        """Scores, circles (0 where the date is missing), and 1 for what is missing."""
        moments = _moments(X)
        days = [_days(column) for column in moments]
        parts = _scores(days, self.knots_, self.heights_, self.fills_)
        for column, day, clock in zip(moments, days, self.clock, strict=True):
            into_year = (column - column.astype("datetime64[Y]")) / np.timedelta64(1, "D")
            parts += [*_circle(into_year / 365.2425), *_circle(np.floor(day) / 7)]
            parts += _circle(day) if clock else []
        return _stacked(parts + _indicators(days, self.missing), len(X))

    def origins(self) -> list[int]:
        """Scores, then the circles of each column, then indicators."""
        circles = np.repeat(np.arange(len(self.clock)), [6 if clock else 4 for clock in self.clock]).tolist()
        return [*range(len(self.clock)), *circles, *_positions(self.missing)]

    def probe(self) -> list[Any]:
        """Far and near."""
        days = ["NaT", "0001-01-01", "1970-01-01", "1999-12-31", "2020-02-29", "2024-06-15", "2024-12-31", "9999-12-31"]
        times = np.arange(8) * np.timedelta64(2, "h")
        return [np.array(days, dtype="datetime64[us]") + times] * len(self.clock)


class Text(Block):
    """A column of text to a few numbers: latent semantic analysis (Deerwester et al., 1990) of hashed counts."""

    def __init__(self, long: bool, missing: bool) -> None:
        self.long = long
        self.missing = missing

    def fit(self, X: pd.DataFrame, y: None = None) -> Self:
        """Learn which letter groups or words are rare, and their main combinations, from some of the rows."""
        step = -(-len(X) // TEXT_ROWS)
        counts = count_groups(X.iloc[::step, 0], long=self.long)
        in_cells = np.bincount(counts.indices, minlength=HASHED)
        self.weights_ = np.log((1 + counts.shape[0]) / (1 + in_cells)) + 1
        weighted = self._weighted(counts)
        kept = min(PARTS, *weighted.shape)
        _, _, directions = randomized_svd(weighted, n_components=kept, n_iter=4, random_state=0)
        self.directions_ = np.zeros((HASHED, PARTS), dtype=np.float32)
        self.directions_[:, :kept] = directions.T
        parts = weighted @ self.directions_
        self.centres_, spread = parts.mean(axis=0), parts.std(axis=0)
        self.spreads_ = np.where(spread > 1e-6, spread, np.inf)  # what never varies says nothing
        return self

    def transform(self, X: pd.DataFrame) -> Matrix:
        """Where each cell lies along the main combinations, and 1 for what is missing."""
        import pandas as pd

        codes, values = pd.factorize(X.iloc[:, 0], use_na_sentinel=False)  # many cells may be alike
        parts = (
            self._weighted(count_groups(values, long=self.long)) @ self.directions_ - self.centres_
        ) / self.spreads_
        out = np.clip(parts, -CUT, CUT)[codes].astype(np.float32)
        missing = X.iloc[:, 0].isna().to_numpy(dtype=np.float32)
        return np.column_stack([out, missing]) if self.missing else out

    def _weighted(self, counts: Any) -> Any:
        """Rare groups count more, and every cell the same, long or short."""
        weighted = counts.multiply(self.weights_).tocsr()
        lengths = np.sqrt(weighted.multiply(weighted) @ np.ones(HASHED))
        return sparse.diags_array(1 / np.where(lengths > 0, lengths, 1)) @ weighted

    def origins(self) -> list[int]:
        """All from the one column."""
        return [0] * (PARTS + self.missing)

    def probe(self) -> list[Any]:
        """Letters of several alphabets, words, nothing."""
        cells = [None, "a", "A12-b", "the quick brown fox", "Ärzte für Ελλάδα", "12.5", "日本語 テキスト", "the " * 20]
        return [np.array(cells, dtype=object)]


def count_groups(cells: Iterable[Any], *, long: bool) -> Any:
    """Logarithms of the counts of words and pairs of them (long text), or of two to four letters (short text).

    Returns a sparse matrix with a row for each cell and ``HASHED`` columns; None is an empty cell.
    """
    groups = {"analyzer": "word", "ngram_range": (1, 2)} if long else {"analyzer": "char_wb", "ngram_range": (2, 4)}
    hashing = HashingVectorizer(n_features=HASHED, alternate_sign=False, norm=None, **groups)
    texts = [cell[:TEXT_LETTERS] if isinstance(cell, str) else "" for cell in cells]
    counts = sparse.csr_matrix(hashing.transform(texts)) if texts else sparse.csr_matrix((0, HASHED))
    counts.data = 1 + np.log(counts.data)
    return counts


def _fit_scores(columns: list[Floats]) -> tuple[Floats, Floats, Floats]:
    """Between which values and scores to interpolate, each of shape (columns, KNOTS), and the scores of the medians."""
    knots, heights, fills = (np.zeros((len(columns), width)) for width in (KNOTS, KNOTS, 1))
    for position, column in enumerate(columns):
        known = column[~np.isnan(column)]
        if not len(known):
            continue
        values, counts = np.unique(known, return_counts=True)
        below = np.cumsum(counts)
        scores = ndtri((below - counts / 2) / len(known))  # ties share the middle of their ranks
        centre = scores @ counts / len(known)
        spread = np.sqrt((scores - centre) ** 2 @ counts / len(known))
        scores = np.clip((scores - centre) / (spread or 1), -CUT, CUT)
        # evenly by score, so dense in the tails; the smallest and the largest value among them
        end = ndtri(0.5 / len(known))
        ranks = ndtr(np.linspace(end, -end, KNOTS)) * len(known)
        chosen = np.searchsorted(below, ranks) if len(values) > KNOTS else np.arange(KNOTS)
        chosen = np.unique(np.minimum(chosen, len(values) - 1))
        chosen = np.append(chosen, np.full(KNOTS - len(chosen), len(values) - 1))  # shorter ones repeat the last
        knots[position], heights[position] = values[chosen], scores[chosen]
        fills[position] = np.interp(np.median(known), knots[position], heights[position])
    return knots, heights, fills[:, 0]


def _scores(columns: list[Floats], knots: Floats, heights: Floats, fills: Floats) -> list[Floats]:
    parts = zip(columns, knots, heights, fills, strict=True)
    return [np.where(np.isnan(column), fill, np.interp(column, x, y)) for column, x, y, fill in parts]


def _circle(turns: Floats) -> list[Floats]:
    """Sine and cosine; 0 where nothing is known, the middle of the circle."""
    angle = 2 * np.pi * (turns % 1)
    return [np.nan_to_num(np.sin(angle)), np.nan_to_num(np.cos(angle))]


def _indicators(columns: list[Floats], wanted: list[bool]) -> list[Floats]:
    return [np.isnan(columns[position]).astype(np.float64) for position in _positions(wanted)]


def _positions(wanted: list[bool]) -> list[int]:
    return [position for position, wants in enumerate(wanted) if wants]


def _floats(X: pd.DataFrame) -> list[Floats]:
    return [X.iloc[:, position].to_numpy(dtype=np.float64) for position in range(X.shape[1])]


def _moments(X: pd.DataFrame) -> list[NDArray[np.datetime64]]:
    return [X.iloc[:, position].to_numpy().astype("datetime64[us]") for position in range(X.shape[1])]


def _days(moments: NDArray[np.datetime64]) -> Floats:
    """Days since 1970, NaN for none."""
    return np.asarray((moments - np.datetime64(0, "us")) / np.timedelta64(1, "D"))


def _stacked(columns: list[Floats], rows: int) -> Matrix:
    out = np.empty((rows, len(columns)), dtype=np.float32)
    for position, column in enumerate(columns):
        out[:, position] = column
    return out
