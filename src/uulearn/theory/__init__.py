"""What can be known beforehand: bounds of Lemma 2, Theorems 3 and 4 and Corollary 5, and how many rows to collect.

A classifier that the rows did not choose (held-out rows):

=============================  ===================================================================================
`negative_bracket_bound`       Δ_g, the probability that a correction has anything to correct (Lemma 2, Eq. 7)
`bias_bound`                   how much too high a corrected risk is on average (Theorem 3, Eq. 8), and a sharper bound
`deviation_bound`              how far it is from the true risk, with probability 1 − δ (Theorem 3, Eq. 9)
`alternative_deviation_bound`  the same without the bias, with probability 1 − δ − Δ_g (Theorem 3, Eq. 10)
`hoeffding_half_width`         the same for the unbiased risk (Eq. 4), which needs to know nothing of the classifier
=============================  ===================================================================================

A classifier that was trained:

=============================  ===================================================================================
`estimation_error_bound`       its risk against the best of its class (Theorem 4, Eq. 11)
`network_norms`                Frobenius norms of a trained network, batch normalisation folded in
`network_error_bound`          Theorem 4 for such networks (Corollary 5)
`loss_constants`               C_ℓ and L_ℓ of a loss on bounded scores
`correction_lipschitz`         L_f of a correction
=============================  ===================================================================================

How many rows to hold out so that the accuracy is known well enough:

=============================  ===================================================================================
`plan_rows`                    everything at once; the command ``uulearn plan`` prints it
`anticipated_spread`           rows and half-widths for a classifier of an anticipated accuracy
`worst_spread`                 … for any classifier
`guaranteed_spread`            … by Hoeffding's inequality
`prior_error_effect`           what a wrong prior does to the estimate
=============================  ===================================================================================

``python -m uulearn.theory.figures DIR`` draws the figures of ``docs/theory.md``. The exponent of Δ_g is corrected, see
`uulearn.theory.deviation`. Numbers are those of Lu, Zhang, Niu and Sugiyama (AISTATS 2020).
"""

from uulearn.theory.constants import LossConstants, correction_lipschitz, loss_constants
from uulearn.theory.deviation import (
    BiasBound,
    DeviationBound,
    NegativeBracketBound,
    alternative_deviation_bound,
    bias_bound,
    deviation_bound,
    hoeffding_half_width,
    negative_bracket_bound,
)
from uulearn.theory.estimation import EstimationErrorBound, estimation_error_bound, network_error_bound
from uulearn.theory.network import NetworkNorms, network_norms
from uulearn.theory.plan import Plan, plan_rows
from uulearn.theory.planning import (
    Rows,
    RowSpread,
    anticipated_spread,
    guaranteed_spread,
    prior_error_effect,
    worst_spread,
)

__all__ = [
    "BiasBound",
    "DeviationBound",
    "EstimationErrorBound",
    "LossConstants",
    "NegativeBracketBound",
    "NetworkNorms",
    "Plan",
    "RowSpread",
    "Rows",
    "alternative_deviation_bound",
    "anticipated_spread",
    "bias_bound",
    "correction_lipschitz",
    "deviation_bound",
    "estimation_error_bound",
    "guaranteed_spread",
    "hoeffding_half_width",
    "loss_constants",
    "negative_bracket_bound",
    "network_error_bound",
    "network_norms",
    "plan_rows",
    "prior_error_effect",
    "worst_spread",
]
