"""Check without labels whether new rows are a mixture of the same positives and negatives as two sets.

An estimate from two sets is valid for new rows with any class prior π, if the rows of each class come from the same
distribution as in the sets. The distribution of the new rows is then α·P₀ + (1 − α)·P₁ with α = (π − θ′)/(θ − θ′),
where P₀ and P₁ are the distributions of the two sets; α can be outside [0, 1]. `RowReference` stores counts of the two
sets, `RowCounts` has the same counts of new rows, and three tests compare them:

* the fractions of rows in bins of the score (χ² test);
* all columns together, by the projections of the rows on principal components (Hotelling's T² test);
* each column alone, by the fractions of rows above several thresholds (the smallest p-value, Bonferroni-corrected).

The p-values of the scores and of the columns (the last two tests, combined at the same class prior) are computed for
all class priors from 0 to 1, and the largest p-value counts. The true class prior is among them, so false alarms are
not more frequent than with a known class prior. Columns are compared only by thresholds that are
quantiles of the sets, or just below the smallest one, so an increasing transformation of a column changes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc, ndtr
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

ALARM_LEVEL = 0.01  # p-value below which an alarm is raised: the maximum rate of false alarms
MAX_ROWS = 50_000  # more new rows count as this number: with more, the steps between class priors would be too large
MIN_ROWS = 50  # minimum number of new rows, and of rows per set; fewer rows show too little
QUANTILES = (0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98)  # quantiles of a column that are its thresholds
QUANTILE_ROWS = 2_000  # maximum number of rows per set that determine the thresholds and the principal components
# Minimum number of rows above and below a threshold of the T² test that are expected in the smaller set.
MIN_TAIL = 10
MIN_BETWEEN = 0.01  # minimum fraction of the rows of the sets between a threshold and the previous one
PROJECTIONS, ROWS_PER_PROJECTION = 32, 20  # maximum number of principal components, and rows of each set for each one
SCORE_BINS = 8
PRIOR_STEPS = 100  # number of steps between class priors 0 and 1; the best step is divided again
MIN_VARIANCE = 0.25  # smallest variance of a mixture outside the sets, as a fraction of the variance in the sets
# Fields of `RowReference` about inputs.
INPUTS = ("sizes", "columns", "thresholds", "above", "directions", "projected", "means", "covariances")

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class RowCounts:
    """Counts of new rows, which can be added over chunks: rows above each threshold, and scores in each bin."""

    rows: int
    above: Counts
    """Number of rows above each threshold of each column."""
    scores: Counts
    """Number of scores in each bin; each row has one score per model of an ensemble."""

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(self.rows + other.rows, self.above + other.above, self.scores + other.scores)


@dataclass(frozen=True)
class RowCheck:
    """Result of checking whether new rows are a mixture of the two sets; `print` shows it as a sentence.

    >>> print(RowCheck(500, p_scores=0.2, p_inputs=0.0004, columns=(("age", 5.1), ("weight", -3.4))))
    500 rows are not a mixture of the two sets (p = 0.0008); columns that differ most: 'age' (higher), 'weight' (lower)
    """

    rows: int
    p_scores: float | None = None
    """p-value of the scores; None if they were not compared."""
    p_inputs: float | None = None
    """p-value of the columns; None if they were not compared."""
    columns: tuple[tuple[str, float], ...] = ()
    """Columns that differ most from the closest mixture, in standard errors; positive if the new values are higher."""
    note: str | None = None
    """Reason why nothing was compared, or only a part."""

    @property
    def p_value(self) -> float | None:
        """p-value of both comparisons together, with Bonferroni's correction; None if nothing was compared."""
        found = [p for p in (self.p_scores, self.p_inputs) if p is not None]
        return min(1.0, len(found) * min(found)) if found else None

    @property
    def alarm(self) -> bool:
        """Whether the rows are not a mixture of the two sets, with a false-alarm rate of at most 1%."""
        return self.p_value is not None and self.p_value < ALARM_LEVEL

    def __str__(self) -> str:
        if self.p_value is None:
            return f"{self.rows:,} rows were not compared with the two sets: {self.note}"
        names = ", ".join(f"{name!r} ({'higher' if z > 0 else 'lower'})" for name, z in self.columns)
        return (
            f"{self.rows:,} rows {'are not' if self.alarm else 'can be'} a mixture of the two sets "
            f"(p = {self.p_value:.2g})"
            + (f"; columns that differ most: {names}" if self.alarm and names else "")
            + (f"; {self.note}" if self.note else "")
        )


@dataclass(frozen=True)
class RowReference:
    """Statistics of two sets with which new rows are compared; they contain no rows.

    >>> rng = np.random.default_rng(0)
    >>> y0, y1, y = (rng.random(n) < prior for n, prior in ((2000, 0.8), (2000, 0.3), (1000, 0.1)))
    >>> X0, X1, X = (rng.normal(own[:, None], 1, (len(own), 3)) for own in (y0, y1, y))
    >>> reference = RowReference.from_rows(X0, X1)
    >>> reference.compare_inputs(reference.count(X), (0.8, 0.3))[0] > 0.01  # another class prior
    True
    >>> reference.compare_inputs(reference.count(1.5 * X), (0.8, 0.3))[0] > 0.01  # another distribution
    False
    """

    sizes: Counts
    """Number of rows of each set, shape (2,)."""
    columns: Counts
    """Positions of the columns that are compared, shape (c,)."""
    thresholds: NDArray[np.float32]
    """Thresholds of each column in increasing order, shape (t, c); the first is just below the smallest quantile."""
    above: Counts
    """Number of rows of each set above each threshold, shape (2, t, c)."""
    directions: NDArray[np.float32]
    """Principal components of the fraction of thresholds that a row exceeds in each column, shape (c, k)."""
    projected: Counts
    """Number of rows of each set that are projected on the principal components, shape (2,)."""
    means: Floats
    """Mean projection of each set, shape (2, k)."""
    covariances: Floats
    """Covariance of the projections of each set, shape (2, k, k)."""
    edges: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    """Edges between the bins of the scores, shape (b − 1,); empty if there are no scores."""
    scores: Counts = field(default_factory=lambda: np.zeros((2, 1), dtype=np.int64))
    """Number of rows of each set in each bin, shape (2, b)."""

    @property
    def has_scores(self) -> bool:
        """Whether scores can be compared."""
        return bool(self.scores.sum())

    @classmethod
    def from_rows(cls, X0: Any, X1: Any, columns: Counts | None = None) -> RowReference:
        """Compute the statistics of two sets with the same columns; ``columns`` are their positions in a wider table.

        The rows should be in random order, or evenly spaced rows of a set.
        """
        sets = [np.asarray(X, dtype=np.float32) for X in (X0, X1)]
        # Directions in which some rows vary most are too favorable for the same rows, so other rows are projected.
        chosen = [np.arange(len(X)) % max(2, -(-len(X) // QUANTILE_ROWS)) == 0 for X in sets]
        few = np.concatenate([X[own] for X, own in zip(sets, chosen, strict=True)])
        quantiles = np.quantile(few, QUANTILES, axis=0, method="lower").astype(np.float32)
        # Below 0, subtract `tiny`, because some processors round smaller numbers to 0.
        limits = np.finfo(np.float32)
        thresholds = np.concatenate([np.nextafter(quantiles[:1] - limits.tiny, limits.min), quantiles])
        sizes, above = np.array([len(X) for X in sets]), np.stack([_above(X, thresholds) for X in sets])
        usable = _usable(above, sizes, MIN_TAIL)
        n_directions = max(1, min(PROJECTIONS, few.shape[1], min(sizes) // ROWS_PER_PROJECTION))
        with threadpool_limits(1, user_api="blas"):  # waiting threads can make it 100 times slower
            codes = _codes(few, thresholds, usable)
            directions = randomized_svd(codes - codes.mean(0), n_directions, random_state=0)[2].T.astype(np.float32)
            projected = [
                (_codes(X[~own], thresholds, usable) @ directions).astype(np.float64)
                for X, own in zip(sets, chosen, strict=True)
            ]
            covariances = np.stack([np.cov(own.T).reshape(n_directions, n_directions) for own in projected])
        return cls(
            sizes,
            np.arange(few.shape[1]) if columns is None else columns,
            thresholds,
            above,
            directions,
            np.array([len(own) for own in projected]),
            np.stack([own.mean(axis=0) for own in projected]),
            covariances,
        )

    def with_scores(self, scores0: Any, scores1: Any) -> RowReference:
        """Return a reference that also has the scores of rows of each set on which the models were not trained."""
        parts = [np.asarray(own, dtype=np.float32) for own in (scores0, scores1)]
        levels = np.arange(1, SCORE_BINS) / SCORE_BINS
        edges = np.unique(np.quantile(np.concatenate(parts), levels, method="lower"))
        return dataclasses.replace(self, edges=edges, scores=np.stack([_binned(own, edges) for own in parts]))

    def without_scores(self) -> RowReference:
        """Return a reference for inputs only."""
        return RowReference(*(getattr(self, name) for name in INPUTS))

    def count(self, X: Any, scores: Sequence[Any] = ()) -> RowCounts:
        """Count the new rows of a chunk; ``scores`` are their scores, one array for each model of an ensemble."""
        values = np.asarray(X, dtype=np.float32)
        if len(self.columns) < values.shape[1]:
            values = values[:, self.columns]
        binned = np.zeros(len(self.edges) + 1, dtype=np.int64)
        for own in scores:
            binned += _binned(own, self.edges)
        return RowCounts(len(values), _above(values, self.thresholds), binned)

    def compare_scores(self, counts: Counts, n_models: int, set_priors: Sequence[float]) -> float:
        """Return the p-value of the hypothesis that the scores are those of a mixture of the two sets."""
        sizes = self.scores.sum(axis=1)
        # The fraction in the last bin follows from the others.
        fractions = (self.scores / sizes[:, None])[:, :-1]
        # As in `_z_scores`, two more rows in each bin: a bin of a small set may be empty.
        smoothed = ((self.scores + 2) / (sizes[:, None] + 2 * self.scores.shape[1]))[:, :-1]
        covariances = np.stack([np.diag(own) - np.outer(own, own) for own in smoothed])
        rows = min(counts.sum() / n_models, MAX_ROWS)
        test = _JointTest(fractions, covariances, sizes, counts[:-1] / counts.sum(), rows)
        return _largest(test.p_values, set_priors)[0]

    def compare_inputs(
        self, counts: RowCounts, set_priors: Sequence[float], excluded: Sequence[int] = ()
    ) -> tuple[float | None, list[tuple[int, float]]]:
        """Return the p-value of the hypothesis that the columns are those of a mixture, and how each column differs.

        The differences from the closest mixture are in standard errors, largest first. If columns are ``excluded``, the
        others are compared one by one only. The p-value is None if all columns are excluded.
        """
        new, rows = counts.above / counts.rows, min(counts.rows, MAX_ROWS)
        used = _usable(self.above, self.sizes) & ~np.isin(self.columns, excluded)
        if not used.any():
            return None, []
        joint = None
        if not len(excluded):
            found = np.where(_usable(self.above, self.sizes, MIN_TAIL), new, 0).mean(axis=0) @ self.directions
            joint = _JointTest(self.means, self.covariances, self.projected, found, rows)

        def z_scores(alphas: Floats) -> Floats:
            return _z_scores(new[used], rows, self.above[:, used], self.sizes, alphas)

        def p_values(alphas: Floats) -> Floats:
            largest = np.abs(z_scores(alphas)).max(axis=1)
            single = np.asarray(2 * int(used.sum()) * ndtr(-largest))
            return single if joint is None else 2 * np.minimum(single, joint.p_values(alphas))

        p, alpha = _largest(p_values, set_priors)
        z = np.zeros((len(used), len(self.columns)))
        z[used] = z_scores(np.array([alpha]))[0]
        largest = z[np.abs(z).argmax(axis=0), np.arange(len(self.columns))]
        order = np.argsort(-np.abs(largest), kind="stable")
        return p, [(int(self.columns[i]), float(largest[i])) for i in order]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all fields by name."""
        return {name: np.ascontiguousarray(value) for name, value in vars(self).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], n_features: int) -> RowReference:
        """Create a reference from the output of `to_arrays`; raise ValueError if an array is not valid."""
        if set(arrays) != {*INPUTS, "edges", "scores"}:
            raise ValueError(f"the reference has unexpected entries: {', '.join(sorted(arrays))}")
        found = cls(**arrays)
        t, c, k, b = *found.thresholds.shape[:2], found.directions.shape[-1], len(found.edges) + 1
        shapes = ((2,), (c,), (t, c), (2, t, c), (c, k), (2,), (2, k), (2, k, k), (b - 1,), (2, b))
        counts = {"sizes", "columns", "above", "projected", "scores"}
        for name, shape in zip((*INPUTS, "edges", "scores"), shapes, strict=True):
            value = arrays[name]
            kind = np.int64 if name in counts else np.float64 if name in ("means", "covariances") else np.float32
            if value.shape != shape or value.dtype != kind or not np.isfinite(value).all():
                raise ValueError(f"{name} of the reference must be finite {np.dtype(kind)} values of shape {shape}")
        if (
            min(found.sizes.min(), found.projected.min()) < 1
            or found.columns.min() < 0
            or found.columns.max() >= n_features
        ):
            raise ValueError("the reference has no rows, or columns that the model does not have")
        if (found.above < 0).any() or (found.above > found.sizes[:, None, None]).any() or (found.scores < 0).any():
            raise ValueError("the reference has counts that are negative or larger than the sets")
        if found.has_scores and not found.scores.sum(axis=1).all():
            raise ValueError("the reference has scores of one set only")
        if (np.diff(found.thresholds, axis=0) < 0).any() or (np.diff(found.edges) <= 0).any():
            raise ValueError("the thresholds of the reference are not sorted")
        return found


def _above(X: NDArray[np.float32], thresholds: NDArray[np.float32]) -> Counts:
    return np.stack([np.count_nonzero(X > own, axis=0) for own in thresholds]).astype(np.int64)  # noqa: SIM300


def _usable(above: Counts, sizes: Counts, tail: int = 0) -> NDArray[np.bool_]:
    """Return which thresholds have enough rows on both sides (see `MIN_TAIL`), and differ from the previous one."""
    share = above.sum(axis=0) / sizes.sum()
    usable = np.asarray(np.minimum(share, 1 - share) * sizes.min() >= tail)
    usable[1:] &= -np.diff(share, axis=0) >= MIN_BETWEEN
    return usable


def _codes(X: NDArray[np.float32], thresholds: NDArray[np.float32], usable: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return the number of usable thresholds that each value exceeds, divided by the number of all thresholds."""
    codes = np.zeros(X.shape, dtype=np.float32)
    for own, used in zip(thresholds, usable, strict=True):
        codes += (X > own) & used  # noqa: SIM300
    return codes / np.float32(len(thresholds))


def _binned(scores: Any, edges: NDArray[np.float32]) -> Counts:
    return np.bincount(np.searchsorted(edges, np.asarray(scores, np.float32)), minlength=len(edges) + 1)


def _largest(p_values: Callable[[Floats], Floats], set_priors: Sequence[float]) -> tuple[float, float]:
    """Return the largest p-value over all class priors of the new rows, and the weight α of set 0 at this prior."""
    theta, theta_prime = set_priors
    priors = np.linspace(0, 1, PRIOR_STEPS + 1)
    best = priors[p_values((priors - theta_prime) / (theta - theta_prime)).argmax()]
    near = np.clip(best + np.linspace(-1, 1, 41) / PRIOR_STEPS, 0, 1)
    alphas = (near - theta_prime) / (theta - theta_prime)
    found = p_values(alphas)
    return min(1.0, float(found.max())), float(alphas[found.argmax()])


def _z_scores(new: Floats, rows: float, above: Counts, sizes: Counts, alphas: Floats) -> Floats:
    """Return how far the fractions of the new rows are above those of mixtures, in standard errors; a row for each α.

    The normal approximation of a fraction is poor in one tail, and its variance-stabilizing transformation in the
    other, so the smaller of both distances counts.
    """
    weights = np.stack([alphas, 1 - alphas], axis=1)
    smallest = 1 / sizes.sum()
    mixed = np.clip(weights @ (above / sizes[:, None]), smallest, 1 - smallest)
    variance = mixed * (1 - mixed)
    # As in the interval of Agresti and Coull: if no row of a small set is above a threshold, some others may be.
    shares = (above + 2) / (sizes[:, None] + 4)
    reference = weights**2 @ (shares * (1 - shares) / sizes[:, None])
    plain = (new - mixed) / np.sqrt(np.maximum(variance, new * (1 - new)) / rows + reference)
    angle = 2 * (np.arcsin(np.sqrt(new)) - np.arcsin(np.sqrt(mixed))) / np.sqrt(1 / rows + reference / variance)
    return np.where(np.abs(plain) < np.abs(angle), plain, angle)


class _JointTest:
    """Hotelling's T² test of whether a mean vector is that of a mixture; the variables are whitened once."""

    def __init__(self, means: Floats, covariances: Floats, sizes: Counts, new: Floats, rows: float) -> None:
        values, vectors = np.linalg.eigh(covariances.mean(0))
        varying = values > 1e-6 * max(values.max(initial=0.0), 1e-12)
        white = vectors[:, varying] / np.sqrt(values[varying])
        self.means, self.new = means @ white, new @ white
        self.covariances = white.T @ covariances @ white
        self.sizes, self.rows = sizes, rows

    def p_values(self, alphas: Floats) -> Floats:
        """Return the p-value at each weight α of set 0."""
        k, weights = len(self.new), np.stack([alphas, 1 - alphas], axis=1)
        if not k:
            return np.ones(len(alphas))
        gap = self.means[0] - self.means[1]
        between = weights.prod(axis=1)[:, None, None] * np.outer(gap, gap)
        # For α outside [0, 1], it is a difference of covariances, which may be too small.
        values, vectors = np.linalg.eigh(np.tensordot(weights, self.covariances, 1) + between)
        mixed = (vectors * np.maximum(values, MIN_VARIANCE)[:, None]) @ vectors.swapaxes(1, 2)
        parts = weights**2 / self.sizes
        covariance = mixed / self.rows + np.tensordot(parts, self.covariances, 1)
        difference = self.new - weights @ self.means
        distance = (difference * np.linalg.solve(covariance, difference[:, :, None])[:, :, 0]).sum(axis=1)
        # Welch–Satterthwaite, and at most the effective number of rows, which is smaller if α is outside [0, 1].
        freedom = np.minimum(parts.sum(axis=1) ** 2 / (parts**2 / self.sizes).sum(axis=1), 1 / parts.sum(axis=1))
        freedom = np.maximum(1.0, freedom - k)
        return np.asarray(fdtrc(k, freedom, distance * freedom / (k * (freedom + k - 1))))
