"""The shares of positives of two sets from nothing but their rows.

It works where some rows are surely positive and some surely negative (mutual irreducibility, see `mixture`), which
rows alone cannot prove. Three things are therefore reported: the estimate; its interval, which covers the noise of
the sample and supposes that the classes separate in the tails; and bounds, which hold whatever the classes look like.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from uulearn.exceptions import UnidentifiedPriorsWarning
from uulearn.priors.intervals import Interval, check_confidence
from uulearn.priors.mixture import BestBin, Floats, best_bin, solve_proportions
from uulearn.priors.resampling import resample
from uulearn.priors.scoring import FOLDS, cross_fitted_scores

FEWEST_ROWS = 100
REPLICATES = 1000
TELLING = 2.0
"""Standard errors from ½ below which the AUC between the sets counts as chance."""
WIDE = 0.2
OVERLAPPING = 0.8


class Bounds(NamedTuple):
    """What holds with the given confidence each, whether the classes are irreducible or not."""

    richer_at_least: float
    """Share of positives in the richer set, at least: 1 − κ(P₁ | P₀)."""
    poorer_at_most: float
    """Share of positives in the poorer set, at most: κ(P₀ | P₁)."""
    gap_at_least: float
    """Difference of the shares, at least: both mixture proportions can only be overestimated, and it falls in both."""


@dataclass(frozen=True)
class SetPriorsEstimate:
    """Shares of positives estimated from two unlabeled sets."""

    set_priors: tuple[float, float]
    """(θ, θ′) in the order of the sets; not numbers where the sets cannot be told apart at all."""
    intervals: tuple[Interval, Interval]
    confidence: float
    richer: int
    """The set that the caller named as the richer in positives; the rows cannot tell."""
    bounds: Bounds
    sizes: tuple[int, int]
    set_auc: float
    """How well the scores tell the sets apart on rows not trained on; ½ is chance."""
    class_auc: float
    """How well they would tell the classes apart if the shares were as estimated: ½ + (set_auc − ½)/(θ − θ′)."""
    class_auc_at_least: float
    """The same at the largest difference of the shares within the intervals."""
    bins: tuple[BestBin, BestBin]
    """The tails used: purest in negatives, purest in positives; thresholds of the first are on negated scores."""
    concern: str | None
    """Why the data do not identify the shares; None where nothing speaks against it."""

    @property
    def identified(self) -> bool:
        """Whether nothing in the data speaks against the estimate; it is not proof."""
        return self.concern is None


def estimate_set_priors(
    X0: Any,
    X1: Any,
    *,
    richer: int = 0,
    scorer: Any = None,
    folds: int = FOLDS,
    confidence: float = 0.95,
    replicates: int = REPLICATES,
    random_state: int | None = None,
) -> SetPriorsEstimate:
    """Estimate (θ, θ′) from the rows of two unlabeled sets.

    Every row is scored by a classifier that has not seen it (`cross_fitted_scores`), and the shares are estimated from
    the scores (`estimate_set_priors_from_scores`).

    Parameters
    ----------
    X0, X1 : arrays of shape (n, …) and (n′, …)
        Rows of the two sets, at least 100 of each.
    richer : 0 or 1
        Which set holds the larger share of positives. The rows cannot tell: exchange the names of the classes and both
        sets look as before. The estimates for ``richer=1`` are 1 minus those for ``richer=0``.
    scorer : scikit-learn classifier, optional
        What tells the sets apart; a forest if not given. The better it is, the less the estimate is biased.
    folds, random_state
        See `cross_fitted_scores`.
    confidence : float
        Of intervals and bounds.
    replicates : int
        Resamples of the bootstrap.

    Warns
    -----
    UnidentifiedPriorsWarning
        Where the data do not identify the shares, with what is known all the same.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> def draw(n, share):
    ...     return rng.normal(size=(n, 2)) + np.where(rng.random(n) < share, 1.5, -1.5)[:, None]
    >>> estimate = estimate_set_priors(draw(2000, 0.8), draw(2000, 0.3), scorer=LogisticRegression(), random_state=0)
    >>> print("{:.2f} {:.2f}".format(*estimate.set_priors))
    0.79 0.30
    >>> print("from {:.2f} to {:.2f}".format(*estimate.intervals[0]))
    from 0.77 to 0.83
    """
    _check_options(richer, confidence, replicates)
    _check_enough(len(X0), len(X1))
    scores = cross_fitted_scores(X0, X1, scorer=scorer, folds=folds, random_state=random_state)
    toward_richer = scores if richer == 0 else (-scores[0], -scores[1])
    return _estimate(*toward_richer, richer, confidence, replicates, random_state)


def estimate_set_priors_from_scores(
    scores0: Any,
    scores1: Any,
    *,
    richer: int = 0,
    confidence: float = 0.95,
    replicates: int = REPLICATES,
    random_state: int | None = None,
) -> SetPriorsEstimate:
    """`estimate_set_priors` from scores that you have: of any classifier, on rows that it was not trained on.

    Parameters
    ----------
    scores0, scores1 : arrays of shape (n,) and (n′,)
        Scores of the rows of each set, higher for rows that look positive, that is like those of the richer set. Scores
        of rows that the model was trained on exaggerate the difference of the sets, and with it that of the shares.
    richer, confidence, replicates, random_state
        See `estimate_set_priors`.

    Notes
    -----
    The interval comes from resampling the rows, the thresholds held fixed. Its plain percentiles would cover the
    noise but not the bias: the ratio on a tail is above κ while the tail is mixed. Each resample therefore gives two
    values of κ, the ratio and what is left of it if it went on falling at the rate at which it falls from the tail to
    its deeper half; the interval reaches from the lowest to the highest combination. docs/priors.md has its measured
    coverage.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def draw(n, share):
    ...     return rng.normal(np.where(rng.random(n) < share, 2, -2), 1)
    >>> estimate = estimate_set_priors_from_scores(draw(5000, 0.7), draw(5000, 0.4), random_state=0)
    >>> print("{:.2f} {:.2f}".format(*estimate.set_priors))
    0.72 0.40
    >>> print("differ by at least {:.2f}".format(estimate.bounds.gap_at_least))
    differ by at least 0.30
    """
    _check_options(richer, confidence, replicates)
    read = read_scores(scores0, "scores0"), read_scores(scores1, "scores1")
    _check_enough(len(read[0]), len(read[1]))
    auc, error = _auc(read[richer], read[1 - richer])
    if auc < 0.5 - 3 * error:
        raise ValueError(
            f"the scores are lower in set {richer}, named the richer, than in set {1 - richer} (AUC {auc:.3f}); scores "
            f"must be higher for rows that look positive: pass the negated scores, or richer={1 - richer}."
        )
    return _estimate(*read, richer, confidence, replicates, random_state)


def read_scores(scores: Any, name: str) -> Floats:
    """Scores as a finite array of shape (n,)."""
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(f"{name} must be one number a row, got an array of shape {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"{name} holds {values[~np.isfinite(values)][0]}; scores must be finite.")
    return values


def _check_options(richer: int, confidence: float, replicates: int) -> None:
    if richer not in (0, 1):
        raise ValueError(f"richer must be 0 or 1, the set that holds the larger share of positives, got {richer!r}.")
    check_confidence(confidence)
    if replicates < 100:
        raise ValueError(f"replicates must be at least 100 for an interval, got {replicates!r}.")


def _check_enough(*sizes: int) -> None:
    for which, size in enumerate(sizes):
        if size < FEWEST_ROWS:
            raise ValueError(
                f"set {which} has {size} rows; an estimate from unlabeled rows needs at least {FEWEST_ROWS} of each. "
                "Label some rows of each set instead and use priors_from_labels."
            )


def _auc(higher: Floats, lower: Floats) -> tuple[float, float]:
    """Share of pairs in the expected order, and its standard error if nothing differs (Mann–Whitney)."""
    n, m = len(higher), len(lower)
    ranks = rankdata(np.concatenate([higher, lower]))[:n]
    return float((ranks.sum() - n * (n + 1) / 2) / (n * m)), math.sqrt((n + m + 1) / (12 * n * m))


def _estimate(
    scores0: Floats, scores1: Floats, richer: int, confidence: float, replicates: int, random_state: int | None
) -> SetPriorsEstimate:
    rich, poor = (scores0, scores1) if richer == 0 else (scores1, scores0)
    negative_end = best_bin(-poor, -rich)  # κ of the poorer set in the richer one shows where rows are negative
    positive_end = best_bin(rich, poor)
    theta, theta_prime = (float(value) for value in solve_proportions(negative_end.ratio, positive_end.ratio))
    rng = np.random.default_rng(random_state)
    negative, positive = resample(rich, poor, negative_end, positive_end, replicates, rng)

    tail = (1 - confidence) / 2
    lowest = solve_proportions(negative.high, positive.low)
    highest = solve_proportions(negative.low, positive.high)
    of_rich = _interval(lowest[0], highest[0], theta, tail)
    of_poor = _interval(lowest[1], highest[1], theta_prime, tail)
    bounds = Bounds(
        1 - float(np.quantile(negative.cautious, 1 - tail)),
        float(np.quantile(positive.cautious, 1 - tail)),
        float(np.quantile(_gap(negative.cautious, positive.cautious), tail)),
    )
    auc, error = _auc(rich, poor)
    widest_gap = float(np.quantile(_gap(negative.low, positive.low), 1 - tail))
    class_auc_at_least = _between_classes(auc, widest_gap)
    reason = _doubt(auc, error, class_auc_at_least, (of_rich, of_poor), richer)
    concern = None if reason is None else _sentence(reason, bounds, richer, confidence)
    if concern is not None:
        warnings.warn(concern, UnidentifiedPriorsWarning, stacklevel=3)
    return SetPriorsEstimate(
        set_priors=(theta, theta_prime) if richer == 0 else (theta_prime, theta),
        intervals=(of_rich, of_poor) if richer == 0 else (of_poor, of_rich),
        confidence=confidence,
        richer=richer,
        bounds=bounds,
        sizes=(len(scores0), len(scores1)),
        set_auc=auc,
        class_auc=_between_classes(auc, theta - theta_prime),
        class_auc_at_least=class_auc_at_least,
        bins=(negative_end, positive_end),
        concern=concern,
    )


def _interval(lowest: Floats, highest: Floats, value: float, tail: float) -> Interval:
    """From the lowest to the highest values in the resamples, the estimate included.

    A resample in which the sets are alike says nothing: it counts for whichever end is asked about.
    """
    low = np.quantile(np.nan_to_num(lowest, nan=0.0), tail)
    high = np.quantile(np.nan_to_num(highest, nan=1.0), 1 - tail)
    return Interval(0.0, 1.0) if math.isnan(value) else Interval(float(min(low, value)), float(max(high, value)))


def _between_classes(set_auc: float, gap: float) -> float:
    """AUC between the classes that goes with an AUC between sets whose shares differ by ``gap``; at most 1."""
    return 0.5 + min(0.5, max(0.0, set_auc - 0.5) / gap) if gap > 0 else 1.0


def _gap(kappa_10: Floats, kappa_01: Floats) -> Floats:
    theta, theta_prime = solve_proportions(kappa_10, kappa_01)
    return np.nan_to_num(theta - theta_prime, nan=0.0)


def _doubt(
    auc: float, error: float, class_auc_at_least: float, intervals: tuple[Interval, Interval], richer: int
) -> str | None:
    """Why the shares are not identified, None where nothing speaks against it."""
    if auc < 0.5 + TELLING * error:
        return f"rows of the two sets cannot be told apart (AUC {auc:.3f}, chance is 0.5)"
    if class_auc_at_least < OVERLAPPING:
        return (
            f"the classes overlap so much (AUC between them as low as {class_auc_at_least:.2f}) that even the purest "
            "rows may be mixed, and the ratio of the sets may go on falling beyond the last rows"
        )
    width = max(interval.width for interval in intervals)
    if width > WIDE:
        which = richer if intervals[0].width == width else 1 - richer
        return f"too few rows, or sets too much alike: the interval for set {which} spans {100 * width:.0f} points"
    return None


def _sentence(reason: str, bounds: Bounds, richer: int, confidence: float) -> str:
    at_least, at_most, gap = bounds
    return (
        f"the two sets do not fix their shares of positives: {reason}. Known with {100 * confidence:g}% confidence "
        f"each, if set {richer} is the richer: set {richer} is at least {100 * at_least:.0f}% positive, set "
        f"{1 - richer} at most {100 * at_most:.0f}%, the difference at least {100 * gap:.0f} points; the order in "
        "which scores rank rows does not depend on the shares. Label a small sample of each set (priors_from_labels), "
        "or take the shares from records."
    )
