"""The settings of a single plain run, for tests that are about something else than the defaults."""

from uulearn import UUClassifier

PLAIN = {
    "method": "leaky_relu",
    "loss": "logistic",
    "lr": 1e-3,
    "l2": 0.0,
    "validation_fraction": 0.0,
    "keep": "last",
    "patience": None,
    "members": 1,
    "calibrated": False,
}
"""One model, trained on all rows for all epochs, and used as it is."""


def plain_classifier(set_priors, target_prior=0.5, **changes):
    return UUClassifier(set_priors, target_prior, **PLAIN | changes)
