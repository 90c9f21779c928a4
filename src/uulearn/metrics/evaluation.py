"""Compute all metrics of a classifier at once, with or without labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from markupsafe import Markup

from uulearn.markup import notebook
from uulearn.metrics.estimates import (
    CI_LEVEL,
    Estimate,
    check_confidence,
    combine_proportions,
    split_labeled,
)
from uulearn.metrics.out_of_fold import OutOfFoldCorrection
from uulearn.metrics.rates import PredictedFractions, predicted_fractions, two_sample_auc, uu_auc
from uulearn.risk.coefficients import MAX_LISTED_SETS, check_target_prior


class Verdict(Enum):
    """Comparison of a classifier with always predicting the more frequent class.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> sets = np.repeat([0, 1], 1000)
    >>> y = rng.random(2000) < np.where(sets == 0, 0.8, 0.2)
    >>> scores = np.where(y, 1.0, -1.0) + rng.normal(size=2000)
    >>> evaluate(scores, sets, (0.8, 0.2), target_prior=0.5).verdict(target_prior=0.5)
    <Verdict.BETTER: 'better'>
    """

    BETTER = "better"
    UNCERTAIN = "uncertain"  # the interval of the accuracy contains the accuracy of the constant prediction
    WORSE = "worse"
    INCONSISTENT = "inconsistent"  # no accuracy is consistent with the class priors


@dataclass(frozen=True)
class Evaluation:
    """Accuracy, balanced accuracy, AUC, true- and false-positive rate of a classifier, each with an interval."""

    accuracy: Estimate
    balanced_accuracy: Estimate
    auc: Estimate
    true_positive_rate: Estimate
    false_positive_rate: Estimate
    sizes: tuple[int, ...]  # number of rows of each set or, with labels, of positives and negatives
    labels_used: bool  # whether the metrics were computed from labels

    @property
    def by_name(self) -> dict[str, Estimate]:
        """The five metrics by their name."""
        names = ("accuracy", "balanced accuracy", "AUC", "true-positive rate", "false-positive rate")
        values = (self.accuracy, self.balanced_accuracy, self.auc, self.true_positive_rate, self.false_positive_rate)
        return dict(zip(names, values, strict=True))

    @property
    def source(self) -> str:
        """The rows of the estimates, and whether labels were used."""
        sizes = [f"{size:,}" for size in self.sizes]
        number = "two" if len(sizes) == 2 else len(sizes)
        if len(sizes) > MAX_LISTED_SETS:
            same = min(self.sizes) == max(self.sizes)
            each = sizes[0] if same else f"{min(self.sizes):,} to {max(self.sizes):,}"
            each += " row per set" if each == "1" else " rows per set"
            return f"no label was used: estimated from {sum(self.sizes):,} rows of {number} sets ({each})"
        if self.labels_used:
            return f"labels were used: {sizes[0]} positive and {sizes[1]} negative rows"
        return f"no label was used: estimated from {' + '.join(sizes)} rows of the {number} sets"

    def verdict(self, target_prior: float) -> Verdict:
        """Return whether the classifier is better than always predicting the class that is more frequent at a prior."""
        if self.accuracy.is_out_of_range:
            return Verdict.INCONSISTENT
        low, high = self.accuracy.interval
        constant = max(target_prior, 1 - target_prior)
        if low > constant:
            return Verdict.BETTER
        return Verdict.WORSE if high < constant else Verdict.UNCERTAIN

    def __str__(self) -> str:
        return "\n".join([*(f"{name:<20}{estimate}" for name, estimate in self.by_name.items()), self.source])

    def _repr_html_(self) -> str:
        return notebook.join(*self.html_parts())

    def html_parts(self) -> list[Markup]:
        """Return the table of the metrics with their intervals, the source and, if necessary, a warning."""
        parts = [notebook.bar_table([estimate.bar(name) for name, estimate in self.by_name.items()])]
        parts.append(notebook.note(f"{100 * self.accuracy.confidence:g}% intervals; {self.source}"))
        if self.accuracy.is_imprecise:
            points = 100 * self.accuracy.half_width
            parts.append(notebook.warning(f"too few rows to estimate the accuracy precisely (±{points:.0f} points)."))
        return parts


def evaluate(
    scores: Any,
    sets: Any,
    set_priors: Sequence[float],
    target_prior: float,
    *,
    threshold: float = 0.0,
    confidence: float = CI_LEVEL,
    correction: OutOfFoldCorrection | None = None,
) -> Evaluation:
    """Estimate all metrics from two or more unlabeled sets; see `uu_rates` and `uu_accuracy` for the parameters.

    If the scores are out-of-fold scores of an ensemble, ``correction`` adjusts the metrics to those of the ensemble.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> sets = np.repeat([0, 1], 5000)
    >>> y = rng.random(10_000) < np.where(sets == 0, 0.8, 0.2)  # unknown in practice
    >>> print(evaluate(rng.normal(2.0 * y - 1.0), sets, (0.8, 0.2), 0.5))
    accuracy            0.840 (95% interval 0.825 to 0.854)
    balanced accuracy   0.840 (95% interval 0.825 to 0.854)
    AUC                 0.922 (95% interval 0.906 to 0.938)
    true-positive rate  0.837 (95% interval 0.820 to 0.855)
    false-positive rate 0.158 (95% interval 0.141 to 0.176)
    no label was used: estimated from 5,000 + 5,000 rows of the two sets
    """
    pi = check_target_prior(target_prior)
    predicted = predicted_fractions(scores, sets, set_priors, threshold, confidence, correction)
    auc = uu_auc(scores, sets, set_priors, confidence=confidence, correction=correction)
    return _evaluation(predicted, predicted.combine(pi, pi - 1, 1 - pi), auc, labels_used=False)


def evaluate_labeled(
    scores: Any,
    labels: Any,
    target_prior: float | None = None,
    *,
    threshold: float = 0.0,
    confidence: float = CI_LEVEL,
) -> Evaluation:
    """Compute the metrics of `evaluate` from labeled rows.

    The accuracy is the fraction of correctly classified rows, or the accuracy at ``target_prior`` if it is given.

    >>> print(evaluate_labeled([2.0, 1.0, -1.0, 0.5, -2.0, -1.5], [1, 1, 1, 0, 0, 0]).accuracy)
    0.667 (95% interval 0.300 to 0.903)
    """
    confidence = check_confidence(confidence)
    positive, negative = split_labeled(scores, labels)
    if not len(positive) or not len(negative):
        missing = "negative" if len(positive) else "positive"
        raise ValueError(f"labels contains no {missing} rows; pass labeled rows of both classes.")
    sizes = len(positive), len(negative)
    rates = float((positive > threshold).mean()), float((negative > threshold).mean())

    predicted = PredictedFractions(rates, sizes, (1.0, 0.0), confidence)
    if target_prior is None:
        total = sum(sizes)
        correct = (rates[0] * sizes[0] + (1 - rates[1]) * sizes[1]) / total
        accuracy = combine_proportions((correct,), (total,), (1.0,), 0.0, confidence)
    else:
        pi = check_target_prior(target_prior)
        accuracy = predicted.combine(pi, pi - 1, 1 - pi)
    return _evaluation(predicted, accuracy, two_sample_auc(positive, negative, confidence), labels_used=True)


def _evaluation(predicted: PredictedFractions, accuracy: Estimate, auc: Estimate, labels_used: bool) -> Evaluation:
    return Evaluation(
        accuracy=accuracy,
        balanced_accuracy=predicted.combine(0.5, -0.5, 0.5),
        auc=auc,
        true_positive_rate=predicted.combine(1, 0, 0),
        false_positive_rate=predicted.combine(0, 1, 0),
        sizes=predicted.sizes,
        labels_used=labels_used,
    )
