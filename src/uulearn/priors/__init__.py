"""Class priors of the two sets and of the target population: estimated from rows or labels, or converted.

====================================  ==========================================================================
`estimate_set_priors`                 (θ, θ′) from two unlabeled sets, with intervals, bounds and warnings
`estimate_set_priors_from_scores`     the same from scores of your own model
`priors_from_labels`                  (θ, θ′) from a small labelled sample of each set, with exact intervals
`estimate_target_prior`               π from unlabeled target rows, with an interval and a test of fit
`from_noise_rates`, `to_noise_rates`  class-conditional label noise ↔ (θ, θ′)
`from_sensitivity`, `to_sensitivity`  sensitivity, specificity and prevalence of a test ↔ (θ, θ′)
`from_predictive_values`, `to_…`      precision and negative predictive value of a labelling rule ↔ (θ, θ′)
`from_case_control`                   positive-unlabeled data drawn as two samples → (θ, θ′)
`from_censoring`, `to_censoring`      positive-unlabeled data drawn as one sample, partly labelled ↔ (θ, θ′)
`from_mixture_proportions`, `to_…`    κ(P₁ | P₀) and κ(P₀ | P₁) of irreducible classes ↔ (θ, θ′)
`merge_bags`                          bags with known label proportions → two sets
`out_of_fold_scores`, `ratio_curve`   intermediate results of `estimate_set_priors`, for inspection
====================================  ==========================================================================

Unlabeled rows cannot show which of two sets has the higher prior; you name it with ``higher_prior_set``. The guide is
docs/priors.md.
"""

from uulearn.priors.bags import MergedBags, merge_bags
from uulearn.priors.convert import (
    CensoredLabels,
    DiagnosticAccuracy,
    NoiseRates,
    PredictiveValues,
    from_case_control,
    from_censoring,
    from_mixture_proportions,
    from_noise_rates,
    from_predictive_values,
    from_sensitivity,
    to_censoring,
    to_mixture_proportions,
    to_noise_rates,
    to_predictive_values,
    to_sensitivity,
)
from uulearn.priors.intervals import Interval
from uulearn.priors.labels import LabelledPriors, priors_from_labels
from uulearn.priors.mixture import BestBin, RatioCurve, best_bin, ratio_curve
from uulearn.priors.scoring import out_of_fold_scores
from uulearn.priors.target import TargetPriorEstimate, estimate_target_prior
from uulearn.priors.two_sets import Bounds, SetPriorsEstimate, estimate_set_priors, estimate_set_priors_from_scores

__all__ = [
    "BestBin",
    "Bounds",
    "CensoredLabels",
    "DiagnosticAccuracy",
    "Interval",
    "LabelledPriors",
    "MergedBags",
    "NoiseRates",
    "PredictiveValues",
    "RatioCurve",
    "SetPriorsEstimate",
    "TargetPriorEstimate",
    "best_bin",
    "estimate_set_priors",
    "estimate_set_priors_from_scores",
    "estimate_target_prior",
    "from_case_control",
    "from_censoring",
    "from_mixture_proportions",
    "from_noise_rates",
    "from_predictive_values",
    "from_sensitivity",
    "merge_bags",
    "out_of_fold_scores",
    "priors_from_labels",
    "ratio_curve",
    "to_censoring",
    "to_mixture_proportions",
    "to_noise_rates",
    "to_predictive_values",
    "to_sensitivity",
]
