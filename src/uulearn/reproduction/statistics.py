"""Compute statistics for tables and figures: spread over trials, significance, agreement, turning points."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.05
"""Significance level of the paired t-test that decides which numbers are bold."""
AGREEMENT_POINTS = 1.5
"""Largest difference, in percentage points, that counts as agreement regardless of the standard deviation."""
ROUNDING = 1e-12
"""Relative spread up to which differences are treated as equal, to allow for rounding errors."""
SMOOTHING_WINDOW = 5
"""Window size, in epochs, of the moving median of the test error."""
MIN_RISE = 0.005
"""Minimum increase in the error rate after a turning point."""
NOISE_DEVIATIONS = 4.0
"""Minimum increase, in standard deviations of the noise. By chance, noise exceeds 3 in about 1 of 150 runs."""


def mean_std(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the sample standard deviation (divisor n − 1; None for a single value)."""
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None


def paired_t_test(a: Sequence[float], b: Sequence[float]) -> float | None:
    """Return the two-sided p-value of the paired t-test, or None if there are fewer than two pairs.

    If all differences are equal, the statistic is undefined; p is then 1 if the differences are 0, and 0 otherwise.
    """
    if len(a) != len(b):
        raise ValueError(f"a paired test needs the same number of values in both samples, got {len(a)} and {len(b)}.")
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("a paired test needs finite values; remove NaN and infinite values.")
    if len(first) < 2:
        return None
    differences = first - second
    rounding = ROUNDING * max(np.abs(first).max(), np.abs(second).max())
    if np.ptp(differences) <= rounding:
        return 1.0 if np.abs(differences).max() <= rounding else 0.0
    return float(stats.ttest_rel(first, second).pvalue)


def best_methods(trials: Mapping[str, Mapping[int, float]], level: float = LEVEL) -> set[str]:
    """Return the methods to print in bold: the most accurate method, and all that are not significantly worse.

    Methods that share fewer than two seeds with the best method are not included.

    >>> sorted(best_methods({"a": {0: 0.90, 1: 0.92}, "b": {0: 0.91, 1: 0.90}, "c": {0: 0.5, 1: 0.52}}))
    ['a', 'b']
    """
    known = {name: values for name, values in trials.items() if values}
    if not known:
        return set()
    best = max(known, key=lambda name: float(np.mean(list(known[name].values()))))
    found = {best}
    for name in known.keys() - {best}:
        seeds = sorted(known[best].keys() & known[name].keys())
        ours, theirs = ([known[which][seed] for seed in seeds] for which in (name, best))
        p = paired_t_test(ours, theirs)
        if p is not None and (p >= level or sum(ours) >= sum(theirs)):
            found.add(name)
    return found


def agrees(mean: float, std: float | None, paper_mean: float, paper_std: float | None) -> bool:
    """Return whether two means over trials, in percent, agree within 1.5 points or two pooled standard deviations.

    The pooled deviation is √((s₁² + s₂²)/2); an unknown deviation counts as 0, which makes the rule stricter.
    """
    pooled = math.sqrt(((std or 0.0) ** 2 + (paper_std or 0.0) ** 2) / 2)
    # The tolerance allows for rounding errors: 91.5 − 90.0 and 81.4 − 79.9 both agree.
    return abs(mean - paper_mean) <= max(AGREEMENT_POINTS, 2 * pooled) + 1e-9


def first_negative_epoch(unbiased: Sequence[float]) -> int | None:
    """Return the first epoch (counted from 1) with a negative training risk, or None if the risk is never negative."""
    return next((epoch for epoch, risk in enumerate(unbiased, 1) if risk < 0), None)


def turning_epoch(test_accuracy: Sequence[float]) -> int | None:
    """Return the epoch (counted from 1) after which the test error rises, or None if the error does not rise.

    The error is smoothed by a centered moving median over five epochs. The minimum of the smoothed curve is returned if
    the last value exceeds it by half a percentage point and by four standard deviations of the epoch-to-epoch noise.

    >>> rising, falling = [0.60 + 0.01 * epoch for epoch in range(30)], [0.89 - 0.01 * epoch for epoch in range(30)]
    >>> turning_epoch(rising + falling), turning_epoch(rising)
    (30, None)
    """
    error = 1 - pd.Series(test_accuracy, dtype=float)
    known = np.isfinite(error)
    if not known.any():
        return None
    smooth = error.where(known).rolling(SMOOTHING_WINDOW, center=True, min_periods=1).median().fillna(np.inf).to_numpy()
    # Second differences are not affected by a linear trend. For normal noise, their variance is 6 times that of the
    # noise, and the median of their absolute values, which is robust to outliers, is 1/1.4826 of their deviation.
    seconds = np.abs(np.diff(error[known], n=2))
    noise = 1.4826 / math.sqrt(6) * float(np.median(seconds)) if len(seconds) else 0.0
    start = end = int(smooth.argmin())
    while end + 1 < len(smooth) and smooth[end + 1] == smooth[start]:
        end += 1
    rise = smooth[known][-1] - smooth[start]
    # The moving median is constant around an extremum, so the minimum is in the middle of its lowest interval.
    return (start + end) // 2 + 1 if rise > max(MIN_RISE, NOISE_DEVIATIONS * noise) else None
