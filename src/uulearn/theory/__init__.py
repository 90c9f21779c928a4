"""Compute the paper's bounds (Lemma 2, Theorems 3 and 4, Corollary 5) and the number of rows for an evaluation.

`uulearn.theory.deviation` bounds the risk of a classifier that is independent of the rows. `uulearn.theory.estimation`
bounds the risk of a trained classifier. `uulearn.theory.planning` computes how many rows an evaluation needs.
Equations and theorems are numbered as in Lu, Zhang, Niu and Sugiyama (AISTATS 2020).
"""

from uulearn.theory.constants import LossConstants, correction_lipschitz, loss_constants
from uulearn.theory.deviation import (
    BiasBound,
    DeviationBound,
    NegativeTermBound,
    alternative_deviation_bound,
    bias_bound,
    deviation_bound,
    hoeffding_half_width,
    negative_term_bound,
)
from uulearn.theory.estimation import EstimationErrorBound, estimation_error_bound, network_error_bound
from uulearn.theory.network import NetworkNorms, network_norms
from uulearn.theory.planning import (
    IntervalSpread,
    RowPlan,
    SetSizes,
    anticipated_spread,
    guaranteed_spread,
    plan_rows,
    prior_error_effect,
    worst_spread,
)

__all__ = [
    "BiasBound", "DeviationBound", "EstimationErrorBound", "IntervalSpread", "LossConstants", "NegativeTermBound",
    "NetworkNorms", "RowPlan", "SetSizes", "alternative_deviation_bound", "anticipated_spread", "bias_bound",
    "correction_lipschitz", "deviation_bound", "estimation_error_bound", "guaranteed_spread", "hoeffding_half_width",
    "loss_constants", "negative_term_bound", "network_error_bound", "network_norms", "plan_rows", "prior_error_effect",
    "worst_spread",
]  # fmt: skip
