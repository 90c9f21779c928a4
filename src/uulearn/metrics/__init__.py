"""Evaluation without labels: metrics of a classifier, with intervals, from held-out rows of two unlabeled sets.

The inputs are the scores of held-out rows of both sets and the class priors of the sets. `uu_accuracy`,
`uu_balanced_accuracy`, `uu_rates`, `uu_cost` and `uu_auc` are unbiased estimates of the metrics that labels would give.
`evaluate` returns all of them, and `uu_accuracy_difference` compares two classifiers on the same rows.
`evaluate_labelled` computes the usual metrics from labels, and its result says so. `uulearn.metrics.calibration` turns
scores into probabilities.

Pass rows that the model was not trained on: estimates on training rows are too optimistic.
"""

from uulearn.metrics.estimates import Estimate
from uulearn.metrics.evaluation import Evaluation, evaluate, evaluate_labelled
from uulearn.metrics.ranking import uu_auc
from uulearn.metrics.rates import (
    Rates,
    uu_accuracy,
    uu_accuracy_difference,
    uu_balanced_accuracy,
    uu_cost,
    uu_rates,
)

__all__ = [
    "Estimate",
    "Evaluation",
    "Rates",
    "evaluate",
    "evaluate_labelled",
    "uu_accuracy",
    "uu_accuracy_difference",
    "uu_auc",
    "uu_balanced_accuracy",
    "uu_cost",
    "uu_rates",
]
