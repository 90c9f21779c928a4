"""The settings of a single plain run, for tests that are about something else than the defaults."""

from uulearn import UUClassifier
from uulearn.estimator import resolving as settling

PLAIN = settling.PLAIN | {"method": "leaky_relu"}
"""One model, trained on all rows for all epochs, and used as it is."""


def plain_classifier(set_priors, target_prior=0.5, **changes):
    return UUClassifier(set_priors, target_prior, **PLAIN | changes)
