"""Classification metrics with confidence intervals, estimated from two unlabeled sets without labels.

The inputs are the scores of held-out rows of both sets, and the class priors of the sets. Estimates on training rows
would be too optimistic. `evaluate_labeled` computes the same metrics from labels. `uulearn.metrics.calibration`
converts scores to probabilities.
"""

from uulearn.metrics.estimates import Estimate
from uulearn.metrics.evaluation import Evaluation, Verdict, evaluate, evaluate_labeled
from uulearn.metrics.mixture import MixtureCheck, check_mixture
from uulearn.metrics.rates import (
    Rates,
    uu_accuracy,
    uu_accuracy_difference,
    uu_auc,
    uu_balanced_accuracy,
    uu_cost,
    uu_rates,
)

__all__ = [
    "Estimate", "Evaluation", "MixtureCheck", "Rates", "Verdict", "check_mixture", "evaluate", "evaluate_labeled",
    "uu_accuracy", "uu_accuracy_difference", "uu_auc", "uu_balanced_accuracy", "uu_cost", "uu_rates",
]  # fmt: skip
