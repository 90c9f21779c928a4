"""Compute the paper's bounds (Lemma 2, Theorems 3 and 4, Corollary 5) and the number of rows for an evaluation.

`deviation_bound` and similar functions bound the risk of a classifier that is independent of the rows.
`estimation_error_bound` and `network_error_bound` bound the risk of a trained classifier. `plan_rows` computes how many
rows an evaluation needs. Equations and theorems are numbered as in Lu, Zhang, Niu and Sugiyama (AISTATS 2020).

The bounds have these parameters in common:

* ``set_priors`` (θ, θ′), ``target_prior`` π, ``sizes`` (n, n′);
* ``alpha``, ``beta``: lower bounds on the two parts of the true risk, α ≤ π·R_p⁺(g) and β ≤ (1 − π)·R_n⁻(g). For the
  zero-one loss, the parts are the fractions of false negatives and of false positives among all rows;
* ``loss_bound`` C_ℓ: the largest value of the loss (1 for the zero-one loss);
* ``correction_lipschitz`` L_f: 1 for relu and abs, and max(1, |λ|) for leaky_relu;
* ``delta`` δ: the probability that the bound fails.
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
