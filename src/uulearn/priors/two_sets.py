"""Class priors of two sets, estimated from their unlabeled rows.

The estimate assumes that some rows can only be positive and some only negative (mutual irreducibility, see `mixture`),
which unlabeled rows cannot prove. The result has three parts: the estimate; its interval, which covers sampling noise
if the classes separate in the tails; and bounds, which hold for any classes.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from uulearn.exceptions import UnidentifiedPriorsWarning
from uulearn.metrics.estimates import Floats, check_confidence
from uulearn.priors.intervals import Interval
from uulearn.priors.mixture import BestBin, best_bin, solve_proportions
from uulearn.priors.resampling import resample
from uulearn.priors.scoring import FOLDS, out_of_fold_scores, read_scores

MIN_ROWS_PER_SET = 100  # smaller sets have too few rows in their tails
REPLICATES = 1000  # bootstrap resamples
CHANCE_ERRORS = 2.0  # standard errors above ½ up to which the AUC between the sets is attributed to chance
MIN_CLASS_AUC = 0.8  # below this AUC between the classes, even the purest tails may be mixed
MAX_INTERVAL_WIDTH = 0.2  # wider intervals raise a warning


class Bounds(NamedTuple):
    """Bounds that hold with the given confidence each, for any classes.

    Mixture proportions can only be overestimated, and each bound is monotone in them.
    """

    higher_prior_at_least: float
    """Lower bound on the higher prior: 1 − κ(P₁ | P₀)."""
    lower_prior_at_most: float
    """Upper bound on the lower prior: κ(P₀ | P₁)."""
    gap_at_least: float
    """Lower bound on the difference of the priors."""


@dataclass(frozen=True)
class SetPriorsEstimate:
    """Class priors estimated from two unlabeled sets."""

    set_priors: tuple[float, float]
    """(θ, θ′) in the order of the sets; NaN if the sets are identical."""
    intervals: tuple[Interval, Interval]
    confidence: float
    higher_prior_set: int
    """The set with the higher prior, as named by the caller; the rows cannot show it."""
    bounds: Bounds
    sizes: tuple[int, int]
    set_auc: float
    """AUC of the scores between the sets; ½ is chance."""
    class_auc: float
    """AUC between the classes at the estimated priors: ½ + (set_auc − ½)/(θ − θ′)."""
    class_auc_at_least: float
    """AUC between the classes at the largest difference of the priors within the intervals."""
    bins: tuple[BestBin, BestBin]
    """The most negative and the most positive tail; thresholds of the first are on negated scores."""
    concern: str | None
    """Why the data do not identify the priors; None if no problem was found."""

    @property
    def identified(self) -> bool:
        """Whether no problem was found; this does not prove the assumption."""
        return self.concern is None


def estimate_set_priors(
    X0: Any,
    X1: Any,
    *,
    higher_prior_set: int = 0,
    scorer: Any = None,
    folds: int = FOLDS,
    confidence: float = 0.95,
    replicates: int = REPLICATES,
    random_state: int | None = None,
) -> SetPriorsEstimate:
    """Estimate (θ, θ′) from the rows of two unlabeled sets.

    The rows get out-of-fold scores of a classifier that distinguishes the sets (`out_of_fold_scores`), and the priors
    are estimated from these scores (`estimate_set_priors_from_scores`).

    Parameters
    ----------
    X0, X1 : arrays of shape (n, …) and (n′, …)
        Rows of the two sets, at least 100 per set.
    higher_prior_set : 0 or 1
        The set with the higher prior. The rows cannot show it: swapping the names of the classes does not change them.
        The estimates for ``higher_prior_set=1`` are 1 minus those for ``higher_prior_set=0``.
    scorer : scikit-learn classifier, optional
        Distinguishes the sets; default: a forest. A better classifier gives a smaller bias.
    folds, random_state
        See `out_of_fold_scores`.
    confidence : float
        Confidence level of intervals and bounds.
    replicates : int
        Number of bootstrap resamples.

    Warns
    -----
    UnidentifiedPriorsWarning
        If the data do not identify the priors; the message contains the bounds.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> def draw(n, prior):
    ...     return rng.normal(size=(n, 2)) + np.where(rng.random(n) < prior, 1.5, -1.5)[:, None]
    >>> estimate = estimate_set_priors(draw(2000, 0.8), draw(2000, 0.3), scorer=LogisticRegression(), random_state=0)
    >>> print("{:.2f} {:.2f}".format(*estimate.set_priors))
    0.79 0.30
    >>> print("from {:.2f} to {:.2f}".format(*estimate.intervals[0]))
    from 0.77 to 0.83
    """
    _check_options(higher_prior_set, confidence, replicates)
    _check_enough(len(X0), len(X1))
    scores = out_of_fold_scores(X0, X1, scorer=scorer, folds=folds, random_state=random_state)
    oriented = scores if higher_prior_set == 0 else (-scores[0], -scores[1])
    return _estimate(*oriented, higher_prior_set, confidence, replicates, random_state)


def estimate_set_priors_from_scores(
    scores0: Any,
    scores1: Any,
    *,
    higher_prior_set: int = 0,
    confidence: float = 0.95,
    replicates: int = REPLICATES,
    random_state: int | None = None,
) -> SetPriorsEstimate:
    """Estimate (θ, θ′) from scores of any classifier on rows that it was not trained on.

    Parameters
    ----------
    scores0, scores1 : arrays of shape (n,) and (n′,)
        Scores of the rows of each set, higher for rows that look like the set with the higher prior. Scores of training
        rows exaggerate the difference of the sets and therefore of the priors.
    higher_prior_set, confidence, replicates, random_state
        See `estimate_set_priors`.

    Notes
    -----
    The interval comes from a bootstrap of the rows with fixed thresholds. Plain percentiles would cover the noise but
    not the bias: the ratio on a mixed tail is above κ. Each resample therefore gives two values of κ: the ratio, and
    its extrapolation, which continues the decrease from the tail to its upper half. The interval extends from the
    lowest to the highest combination. docs/priors.md shows its measured coverage.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def draw(n, prior):
    ...     return rng.normal(np.where(rng.random(n) < prior, 2, -2), 1)
    >>> estimate = estimate_set_priors_from_scores(draw(5000, 0.7), draw(5000, 0.4), random_state=0)
    >>> print("{:.2f} {:.2f}".format(*estimate.set_priors))
    0.72 0.40
    >>> print("differ by at least {:.2f}".format(estimate.bounds.gap_at_least))
    differ by at least 0.30
    """
    _check_options(higher_prior_set, confidence, replicates)
    scores = read_scores(scores0, "scores0"), read_scores(scores1, "scores1")
    _check_enough(len(scores[0]), len(scores[1]))
    auc, error = _auc(scores[higher_prior_set], scores[1 - higher_prior_set])
    if auc < 0.5 - 3 * error:
        raise ValueError(
            f"the scores are lower in set {higher_prior_set}, named as the set with the higher prior, than in set "
            f"{1 - higher_prior_set} (AUC {auc:.3f}); pass the negated scores, or "
            f"higher_prior_set={1 - higher_prior_set}."
        )
    return _estimate(*scores, higher_prior_set, confidence, replicates, random_state)


def _check_options(higher_prior_set: int, confidence: float, replicates: int) -> None:
    if higher_prior_set not in (0, 1):
        raise ValueError(f"higher_prior_set must be 0 or 1, got {higher_prior_set!r}.")
    check_confidence(confidence)
    if replicates < 100:
        raise ValueError(f"replicates must be at least 100 for an interval, got {replicates!r}.")


def _check_enough(*sizes: int) -> None:
    for which, size in enumerate(sizes):
        if size < MIN_ROWS_PER_SET:
            raise ValueError(
                f"set {which} has {size} rows; an estimate from unlabeled rows needs at least {MIN_ROWS_PER_SET} per "
                "set. Label some rows of each set instead and use priors_from_labels."
            )


def _auc(higher: Floats, lower: Floats) -> tuple[float, float]:
    """Return the AUC and its standard error under the null hypothesis (Mann–Whitney)."""
    n, m = len(higher), len(lower)
    ranks = rankdata(np.concatenate([higher, lower]))[:n]
    return float((ranks.sum() - n * (n + 1) / 2) / (n * m)), math.sqrt((n + m + 1) / (12 * n * m))


def _estimate(
    scores0: Floats, scores1: Floats, higher_prior_set: int, confidence: float, replicates: int, seed: int | None
) -> SetPriorsEstimate:
    higher, lower = (scores0, scores1) if higher_prior_set == 0 else (scores1, scores0)
    negative_end = best_bin(-lower, -higher)  # κ(P₁ | P₀) is attained among negative rows
    positive_end = best_bin(higher, lower)
    theta, theta_prime = (float(value) for value in solve_proportions(negative_end.ratio, positive_end.ratio))
    rng = np.random.default_rng(seed)
    negative, positive = resample(higher, lower, negative_end, positive_end, replicates, rng)

    tail = (1 - confidence) / 2
    lowest = solve_proportions(negative.high, positive.low)
    highest = solve_proportions(negative.low, positive.high)
    intervals = (
        _interval(lowest[0], highest[0], theta, tail),
        _interval(lowest[1], highest[1], theta_prime, tail),
    )
    bounds = Bounds(
        1 - float(np.quantile(negative.cautious, 1 - tail)),
        float(np.quantile(positive.cautious, 1 - tail)),
        float(np.quantile(_gap(negative.cautious, positive.cautious), tail)),
    )
    auc, error = _auc(higher, lower)
    widest_gap = float(np.quantile(_gap(negative.low, positive.low), 1 - tail))
    class_auc_at_least = _class_auc(auc, widest_gap)
    reason = _find_problem(auc, error, class_auc_at_least, intervals, higher_prior_set)
    concern = None if reason is None else _describe(reason, bounds, higher_prior_set, confidence)
    if concern is not None:
        warnings.warn(concern, UnidentifiedPriorsWarning, stacklevel=3)
    return SetPriorsEstimate(
        set_priors=(theta, theta_prime) if higher_prior_set == 0 else (theta_prime, theta),
        intervals=intervals if higher_prior_set == 0 else intervals[::-1],
        confidence=confidence,
        higher_prior_set=higher_prior_set,
        bounds=bounds,
        sizes=(len(scores0), len(scores1)),
        set_auc=auc,
        class_auc=_class_auc(auc, theta - theta_prime),
        class_auc_at_least=class_auc_at_least,
        bins=(negative_end, positive_end),
        concern=concern,
    )


def _interval(lowest: Floats, highest: Floats, value: float, tail: float) -> Interval:
    """Return the interval between quantiles of the resamples, extended to include the estimate.

    A resample with identical sets has no estimate (NaN); it counts as 0 for the lower and as 1 for the upper end.
    """
    low = np.quantile(np.nan_to_num(lowest, nan=0.0), tail)
    high = np.quantile(np.nan_to_num(highest, nan=1.0), 1 - tail)
    return Interval(0.0, 1.0) if math.isnan(value) else Interval(float(min(low, value)), float(max(high, value)))


def _class_auc(set_auc: float, gap: float) -> float:
    """Return the AUC between the classes for an AUC between sets whose priors differ by ``gap``; at most 1."""
    return 0.5 + min(0.5, max(0.0, set_auc - 0.5) / gap) if gap > 0 else 1.0


def _gap(kappa_10: Floats, kappa_01: Floats) -> Floats:
    theta, theta_prime = solve_proportions(kappa_10, kappa_01)
    return np.nan_to_num(theta - theta_prime, nan=0.0)


def _find_problem(
    auc: float, error: float, class_auc_at_least: float, intervals: tuple[Interval, Interval], higher_prior_set: int
) -> str | None:
    """Return why the priors are not identified, or None if no problem was found."""
    if auc < 0.5 + CHANCE_ERRORS * error:
        return f"the rows of the two sets cannot be distinguished (AUC {auc:.3f}, chance is 0.5)"
    if class_auc_at_least < MIN_CLASS_AUC:
        return (
            f"the classes overlap so much (the AUC between them may be as low as {class_auc_at_least:.2f}) that even "
            "the purest rows may be mixed"
        )
    width = max(interval.width for interval in intervals)
    if width > MAX_INTERVAL_WIDTH:
        which = higher_prior_set if intervals[0].width == width else 1 - higher_prior_set
        return f"too few rows or too similar sets: the interval for set {which} spans {100 * width:.0f} points"
    return None


def _describe(reason: str, bounds: Bounds, higher: int, confidence: float) -> str:
    at_least, at_most, gap = bounds
    return (
        f"the two sets do not identify their class priors: {reason}. Bounds with {100 * confidence:g}% confidence "
        f"each, if set {higher} has the higher prior: set {higher} is at least {100 * at_least:.0f}% positive, set "
        f"{1 - higher} at most {100 * at_most:.0f}%, the difference at least {100 * gap:.0f} points. The ranking "
        "of rows does not depend on the priors. Label a small sample of each set (priors_from_labels), or take the "
        "priors from records."
    )
