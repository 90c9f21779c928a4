"""Estimate the class priors of two sets from their unlabeled rows.

The estimate assumes that some rows can only be positive and others only negative (mutual irreducibility, see
`mixture`). Unlabeled rows cannot prove this assumption. The result contains an estimate, an interval that is valid if
the tails of the scores are nearly pure, and bounds that are valid for any classes.
"""

import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from uulearn.exceptions import UnidentifiedPriorsWarning
from uulearn.markup import notebook
from uulearn.metrics.estimates import Floats, check_confidence
from uulearn.priors.labels import Interval
from uulearn.priors.mixture import BestBin, best_bin, resample, solve_proportions
from uulearn.priors.scoring import FOLDS, out_of_fold_scores, read_scores

MIN_ROWS_PER_SET = 100  # with fewer rows, the tails contain too few rows
REPLICATES = 1000  # number of bootstrap resamples
CHANCE_ERRORS = 2.0  # number of standard errors above ½ up to which the AUC between the sets is attributed to chance
MIN_CLASS_AUC = 0.8  # below this AUC between the classes, even the purest tails may be mixed
MAX_INTERVAL_WIDTH = 0.2  # width of an interval above which a warning is raised


class Bounds(NamedTuple):
    """Bounds on the class priors that are valid for any two classes, each with the given confidence."""

    higher_prior_at_least: float  # lower bound on the higher prior: 1 − κ(P₁ | P₀)
    lower_prior_at_most: float  # upper bound on the lower prior: κ(P₀ | P₁)
    gap_at_least: float  # lower bound on the difference of the priors


@dataclass(frozen=True)
class SetPriorsEstimate:
    """Class priors estimated from two unlabeled sets.

    >>> pos, neg = np.linspace(1, 2, 800), np.linspace(-2, -1, 800)
    >>> found = estimate_set_priors_from_scores([*pos, *neg[::4]], [*pos[::4], *neg], random_state=0)
    >>> print("{:.2f} {:.2f}".format(*found.set_priors), found.identified)
    0.80 0.20 True
    """

    set_priors: tuple[float, float]  # (θ, θ′) in the order of the sets; NaN if the sets are identical
    intervals: tuple[Interval, Interval]
    confidence: float
    higher_prior_set: int  # the set with the higher prior, given by the caller, because the rows cannot show it
    bounds: Bounds
    sizes: tuple[int, int]
    set_auc: float  # AUC of the scores between the sets; ½ is chance
    class_auc: float  # AUC between the classes at the estimated priors: ½ + (set_auc − ½)/(θ − θ′)
    class_auc_at_least: float  # AUC between the classes at the largest difference of the priors within the intervals
    bins: tuple[BestBin, BestBin]
    """The tail of negatives, with thresholds for negated scores, and the tail of positives."""
    concern: str | None  # why the data do not identify the priors; None if no problem was found

    @property
    def identified(self) -> bool:
        """True if no problem was found, which does not prove that the assumption is correct."""
        return self.concern is None

    def _repr_html_(self) -> str:
        text = f"{100 * self.confidence:g}% intervals; estimated from {self.sizes[0]:,} + {self.sizes[1]:,} rows"
        found = zip(("θ (set 0)", "θ′ (set 1)"), self.set_priors, self.intervals, strict=True)
        parts = [notebook.bar_table([own.bar(name, value) for name, value, own in found]), notebook.note(text)]
        return notebook.join(*parts, *([] if self.concern is None else [notebook.warning(self.concern)]))


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
    """Estimate the class priors (θ, θ′) of two unlabeled sets from their rows.

    The estimate uses out-of-fold scores of a classifier that is trained to distinguish the sets. If the data do not
    identify the priors, an UnidentifiedPriorsWarning reports the bounds.

    Parameters
    ----------
    X0 : array of shape (n, …)
        At least 100 rows of set 0.
    X1 : array of shape (n′, …)
        At least 100 rows of set 1.
    higher_prior_set : 0 or 1
        The set with the higher prior, which cannot be inferred from unlabeled rows.
    scorer : scikit-learn classifier, optional
        Classifier that distinguishes the sets (default: a random forest). A better classifier reduces the bias.
    folds, random_state
        See `out_of_fold_scores`.
    confidence : float
        Confidence level of the intervals and bounds.
    replicates : int
        Number of bootstrap resamples.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> def draw(n, prior):
    ...     return rng.normal(size=(n, 2)) + np.where(rng.random(n) < prior, 1.5, -1.5)[:, None]
    >>> X0, X1 = draw(2000, 0.8), draw(2000, 0.3)
    >>> estimate = estimate_set_priors(X0, X1, scorer=LogisticRegression(), random_state=0)
    >>> print("{:.2f} {:.2f}".format(*estimate.set_priors))
    0.79 0.30
    """
    _check_arguments(len(X0), len(X1), higher_prior_set, confidence, replicates)
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
    """Estimate the class priors (θ, θ′) from the scores of a classifier on rows that it was not trained on.

    Scores must be higher for rows that look like the set with the higher prior. Scores of training rows would
    exaggerate the difference between the priors. The bootstrap interval extends from the ratio in the tail to an
    extrapolated ratio, which accounts for the bias of impure tails. The page docs/studies/priors.md reports the
    measured coverage. See `estimate_set_priors` for the other parameters.

    >>> rng = np.random.default_rng(0)
    >>> def draw(n, prior):
    ...     return rng.normal(np.where(rng.random(n) < prior, 2, -2), 1)
    >>> estimate = estimate_set_priors_from_scores(draw(5000, 0.7), draw(5000, 0.4), random_state=0)
    >>> print("{:.2f} {:.2f}".format(*estimate.set_priors))
    0.72 0.40
    """
    scores = read_scores(scores0, "scores0"), read_scores(scores1, "scores1")
    _check_arguments(len(scores[0]), len(scores[1]), higher_prior_set, confidence, replicates)
    auc, error = _auc(scores[higher_prior_set], scores[1 - higher_prior_set])
    if auc < 0.5 - 3 * error:
        raise ValueError(
            f"set {higher_prior_set} was given as the set with the higher prior, but its scores are lower than "
            f"in set {1 - higher_prior_set} (AUC {auc:.3f}); negate the scores, or pass "
            f"higher_prior_set={1 - higher_prior_set}."
        )
    return _estimate(*scores, higher_prior_set, confidence, replicates, random_state)


def _check_arguments(n: int, n_prime: int, higher_prior_set: int, confidence: float, replicates: int) -> None:
    if higher_prior_set not in (0, 1):
        raise ValueError(f"higher_prior_set must be 0 or 1, got {higher_prior_set!r}.")
    check_confidence(confidence)
    if replicates < 100:
        raise ValueError(f"replicates must be at least 100, got {replicates!r}.")
    for which, size in enumerate((n, n_prime)):
        if size < MIN_ROWS_PER_SET:
            raise ValueError(
                f"set {which} has {size} rows, but estimating priors from unlabeled rows requires at least "
                f"{MIN_ROWS_PER_SET} rows per set. Label some rows of each set, and use priors_from_labels instead."
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
    negative_end = best_bin(-lower, -higher)  # the tail of negative rows attains κ(P₁ | P₀)
    positive_end = best_bin(higher, lower)
    theta, theta_prime = (float(value) for value in solve_proportions(negative_end.ratio, positive_end.ratio))
    rng = np.random.default_rng(seed)
    negative, positive = resample(higher, lower, negative_end, positive_end, replicates, rng)
    tail = (1 - confidence) / 2
    lowest = solve_proportions(negative.high, positive.low)
    highest = solve_proportions(negative.low, positive.high)
    intervals = (_interval(lowest[0], highest[0], theta, tail), _interval(lowest[1], highest[1], theta_prime, tail))
    bounds = Bounds(
        1 - float(np.quantile(negative.cautious, 1 - tail)),
        float(np.quantile(positive.cautious, 1 - tail)),
        float(np.quantile(_gap(negative.cautious, positive.cautious), tail)),
    )
    auc, error = _auc(higher, lower)
    class_auc_at_least = _class_auc(auc, float(np.quantile(_gap(negative.low, positive.low), 1 - tail)))
    concern = _find_problem(auc, error, class_auc_at_least, intervals, higher_prior_set)
    if concern is not None:
        concern = (
            f"the two sets do not identify their class priors: {concern}. If set {higher_prior_set} has the higher "
            f"prior, these bounds each hold with {100 * confidence:g}% confidence: set {higher_prior_set} is at least "
            f"{100 * bounds.higher_prior_at_least:.0f}% positive, set {1 - higher_prior_set} is at most "
            f"{100 * bounds.lower_prior_at_most:.0f}% positive, and the priors differ by at least "
            f"{100 * bounds.gap_at_least:.0f} points. The ranking of rows does not depend on the priors. Label a small "
            "sample of each set (priors_from_labels), or take the priors from another source."
        )
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
    """Return the interval between quantiles of the resamples, extended to include the estimate."""
    low = np.quantile(np.nan_to_num(lowest, nan=0.0), tail)
    high = np.quantile(np.nan_to_num(highest, nan=1.0), 1 - tail)
    return Interval(0.0, 1.0) if math.isnan(value) else Interval(float(min(low, value)), float(max(high, value)))


def _class_auc(set_auc: float, gap: float) -> float:
    """Convert the AUC between two sets whose priors differ by ``gap`` to the AUC between the classes (at most 1)."""
    return 0.5 + min(0.5, max(0.0, set_auc - 0.5) / gap) if gap > 0 else 1.0


def _gap(kappa_10: Floats, kappa_01: Floats) -> Floats:
    theta, theta_prime = solve_proportions(kappa_10, kappa_01)
    return np.nan_to_num(theta - theta_prime, nan=0.0)


def _find_problem(
    auc: float, error: float, class_auc_at_least: float, intervals: tuple[Interval, Interval], higher_prior_set: int
) -> str | None:
    """Return the reason that the priors are not identified, or None if no problem was found."""
    if auc < 0.5 + CHANCE_ERRORS * error:
        return f"the rows of the two sets cannot be distinguished (AUC {auc:.3f}, chance is 0.5)"
    if class_auc_at_least < MIN_CLASS_AUC:
        return (
            f"the classes overlap so much (the AUC between them may be as low as {class_auc_at_least:.2f}) that even "
            "the purest tail may contain rows of both classes"
        )
    width = max(interval.width for interval in intervals)
    if width > MAX_INTERVAL_WIDTH:
        which = higher_prior_set if intervals[0].width == width else 1 - higher_prior_set
        return f"the interval for set {which} is {100 * width:.0f} points wide (too few rows, or sets too similar)"
    return None
