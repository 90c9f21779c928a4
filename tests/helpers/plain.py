"""A classifier with a single plain run, for tests that do not concern the defaults."""

import dataclasses

from uulearn import UUClassifier, defaults
from uulearn.training import TrainingOptions

PLAIN = defaults.SINGLE_RUN | {
    "method": "leaky_relu", "model": "mlp", "model_params": None, "epochs": defaults.EPOCHS,
    "batch_size": defaults.BATCH_SIZE,
}  # fmt: skip
"""One network, trained on all rows for all epochs, without calibration."""
TRAINING_NAMES = {field.name for field in dataclasses.fields(TrainingOptions)}


def nested(**parameters):
    """Collect the training options among the parameters into one `TrainingOptions`."""
    options = {name: value for name, value in parameters.items() if name in TRAINING_NAMES}
    own = {name: value for name, value in parameters.items() if name not in TRAINING_NAMES}
    return own | ({"training": TrainingOptions(**options)} if options else {})


def plain_classifier(set_priors, target_prior=0.5, **changes):
    return UUClassifier(set_priors, target_prior, **nested(**PLAIN | changes))


def make_classifier(set_priors, target_prior=0.5, **parameters):
    """Create a `UUClassifier`; training options can be passed by their own names."""
    return UUClassifier(set_priors, target_prior, **nested(**parameters))
