"""Estimate class priors from unlabeled or labeled rows, or compute them from other known quantities.

Unlabeled rows do not reveal which of the two sets has the higher prior, so you must specify it with
``higher_prior_set``. The guide is in docs/priors.md.
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
from uulearn.priors.labels import Interval, LabeledPriors, priors_from_labels
from uulearn.priors.mixture import BestBin, RatioCurve, best_bin, ratio_curve
from uulearn.priors.scoring import out_of_fold_scores
from uulearn.priors.target import TargetPriorEstimate, estimate_target_prior
from uulearn.priors.two_sets import Bounds, SetPriorsEstimate, estimate_set_priors, estimate_set_priors_from_scores

__all__ = [
    "BestBin", "Bounds", "CensoredLabels", "DiagnosticAccuracy", "Interval", "LabeledPriors", "MergedBags",
    "NoiseRates", "PredictiveValues", "RatioCurve", "SetPriorsEstimate", "TargetPriorEstimate", "best_bin",
    "estimate_set_priors", "estimate_set_priors_from_scores", "estimate_target_prior", "from_case_control",
    "from_censoring", "from_mixture_proportions", "from_noise_rates", "from_predictive_values", "from_sensitivity",
    "merge_bags", "out_of_fold_scores", "priors_from_labels", "ratio_curve", "to_censoring", "to_mixture_proportions",
    "to_noise_rates", "to_predictive_values", "to_sensitivity",
]  # fmt: skip
