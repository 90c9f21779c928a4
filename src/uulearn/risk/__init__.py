"""Estimate the classification risk from two or more unlabeled sets, with pure functions or with a criterion.

The risk is the sum of two signed *risk terms*, one per class; the paper writes each as a bracket.
Equations, sections and definitions are numbered as in Lu, Zhang, Niu and Sugiyama (AISTATS 2020).
"""

from uulearn.risk.accumulation import accumulate
from uulearn.risk.coefficients import (
    EstimationCost,
    MultiSetCoefficients,
    UUCoefficients,
    estimation_cost,
    multi_set_coefficients,
    uu_coefficients,
)
from uulearn.risk.corrections import check_correction, leaky_relu
from uulearn.risk.criterion import UURisk
from uulearn.risk.functional import PNRiskParts, UURiskParts, pn_risk, uu_risk
from uulearn.risk.losses import LOSSES, MarginLoss, get_loss
from uulearn.risk.pseudo_labeling import pseudo_labels

__all__ = [
    "LOSSES", "EstimationCost", "MarginLoss", "MultiSetCoefficients", "PNRiskParts", "UUCoefficients", "UURisk",
    "UURiskParts", "accumulate", "check_correction", "estimation_cost", "get_loss", "leaky_relu",
    "multi_set_coefficients", "pn_risk", "pseudo_labels", "uu_coefficients", "uu_risk",
]  # fmt: skip
