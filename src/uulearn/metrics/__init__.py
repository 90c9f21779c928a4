"""How good is a classifier? Answered from two unlabeled sets, with an interval.

Scores of held-out rows of both sets and the sets' shares of positives are enough: `uu_accuracy`,
`uu_balanced_accuracy`, `uu_rates`, `uu_cost` and `uu_auc` are unbiased estimates of what labels would show, `evaluate`
gives all of them at once, and `uu_gain` compares two classifiers on the same rows. `evaluate_labelled` is for those who
have labels: plain metrics, marked as such.

Rows that were trained on flatter the model: pass rows that it has not seen.
"""

from uulearn.metrics.estimates import Estimate
from uulearn.metrics.evaluation import Evaluation, evaluate, evaluate_labelled
from uulearn.metrics.gain import uu_gain
from uulearn.metrics.ranking import uu_auc
from uulearn.metrics.rates import Rates, uu_accuracy, uu_balanced_accuracy, uu_cost, uu_rates

__all__ = [
    "Estimate",
    "Evaluation",
    "Rates",
    "evaluate",
    "evaluate_labelled",
    "uu_accuracy",
    "uu_auc",
    "uu_balanced_accuracy",
    "uu_cost",
    "uu_gain",
    "uu_rates",
]
