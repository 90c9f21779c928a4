"""Bounds of the paper (Lemma 2, Theorems 3 and 4, Corollary 5), and the number of rows that an evaluation needs.

For a classifier chosen without the rows at hand (held-out rows):

=============================  ===================================================================================
`negative_term_bound`          Δ_g, the probability that a correction has any effect (Lemma 2, Eq. 7)
`bias_bound`                   the bias of a corrected risk (Theorem 3, Eq. 8), and a sharper bound
`deviation_bound`              its distance from the true risk, with probability 1 − δ (Theorem 3, Eq. 9)
`alternative_deviation_bound`  the same without the bias, with probability 1 − δ − Δ_g (Theorem 3, Eq. 10)
`hoeffding_half_width`         the same for the unbiased risk (Eq. 4), for any classifier
=============================  ===================================================================================

For a trained classifier:

=============================  ===================================================================================
`estimation_error_bound`       its risk compared with the best of its class (Theorem 4, Eq. 11)
`network_norms`                Frobenius norms of a trained network
`network_error_bound`          Theorem 4 for such networks (Corollary 5)
`loss_constants`               C_ℓ and L_ℓ of a loss on bounded scores
`correction_lipschitz`         L_f of a correction
=============================  ===================================================================================

For planning an evaluation:

=============================  ===================================================================================
`plan_rows`                    the numbers that the command ``uulearn plan`` prints
`anticipated_spread`           rows and half-widths for a classifier of an anticipated accuracy
`worst_spread`                 … for any classifier
`guaranteed_spread`            … by Hoeffding's inequality
`prior_error_effect`           the effect of a wrong class prior on the estimate
=============================  ===================================================================================

The exponent of Δ_g is corrected, see `uulearn.theory.deviation`. Numbers of equations and theorems are those of Lu,
Zhang, Niu and Sugiyama (AISTATS 2020).
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
    "BiasBound",
    "DeviationBound",
    "EstimationErrorBound",
    "IntervalSpread",
    "LossConstants",
    "NegativeTermBound",
    "NetworkNorms",
    "RowPlan",
    "SetSizes",
    "alternative_deviation_bound",
    "anticipated_spread",
    "bias_bound",
    "correction_lipschitz",
    "deviation_bound",
    "estimation_error_bound",
    "guaranteed_spread",
    "hoeffding_half_width",
    "loss_constants",
    "negative_term_bound",
    "network_error_bound",
    "network_norms",
    "plan_rows",
    "prior_error_effect",
    "worst_spread",
]
