"""All default values of the package.

The Python API, the command line and the documentation read these constants, so the same data and settings give the same
model everywhere. Parameters that default to ``"auto"`` are derived from these constants by
`uulearn.estimator.resolving.resolve_defaults`; ``docs/defaults.md`` explains how the values were chosen. The defaults
of the following interfaces differ from those of `uulearn.UUClassifier`:

============================  ========================  ==============================================================
where                         default                   why
============================  ========================  ==============================================================
`UURisk`, `uu_risk`           loss "sigmoid"            the model is unknown here; "linear" models use "logistic"
``uulearn fit``, 1 model      10% held out, calibrated  the report needs held-out rows; `predict` needs probabilities
`pn_risk`                     "logistic"                the risk of labeled rows, not a training objective
`RunOptions`                  no early stopping         one training run has no held-out rows unless they are passed
`prior_sensitivity`           one model, 20% held out   twelve models are compared on the same held-out rows
paper reproduction            all explicit              the experiments pass every setting of the paper
============================  ========================  ==============================================================
"""

from typing import Any

# Marks a parameter whose value is derived from the data and the other parameters.
AUTO = "auto"

# Class prior of the population that the classifier is used on.
TARGET_PRIOR = 0.5
# Correction of the two risk terms: the absolute value.
METHOD = "abs"
# Slope λ of "leaky_relu" for x < 0, as in the paper's experiments.
SLOPE = -0.1
# The sigmoid loss is bounded, so rows far on the wrong side of the boundary do not dominate.
LOSS = "sigmoid"
# With the sigmoid loss, a linear model may predict the same class for all rows.
LINEAR_LOSS = "logistic"

MODEL = "mlp"
# Gradient-boosted trees, a model that is not a network.
BOOSTING = "boosting"
# Models for tables, in the order in which `model="auto"` trains them.
COMPARABLE_MODELS = ("linear", BOOSTING, "mlp")
# Models that `model="auto"` compares. A linear model made the average worse on most tables.
AUTO_MODELS = (BOOSTING, "mlp")
# Expected training time in seconds, on one core, that all compared models may need together.
AUTO_SECONDS = 120.0
# Model for folders of images.
IMAGE_MODEL = "resnet32"
# Factor that maps the pixel values 0 to 255 to 0 to 1.
PIXEL_SCALE = 1 / 255
# Models that are trained as an ensemble by default, because training several of them is fast.
ENSEMBLE_MODELS = (AUTO, *COMPARABLE_MODELS)
# Maximum number of epochs; early stopping usually ends training earlier.
EPOCHS = 200
# Smaller MLPs for small tables, with dropout, fewer epochs and a higher learning rate, for the given maximum number of
# rows over both sets.
SMALL_MLPS: dict[int, dict[str, Any]] = {
    3_000: {"model_params": {"hidden": (128, 128), "dropout": 0.25}, "epochs": 60, "lr": 1e-2},
    12_000: {"model_params": {"hidden": (300, 300), "dropout": 0.25}, "epochs": 100, "lr": 3e-3},
}
# Number of rows per batch, over both sets. Corrections act on the risk terms, which are noisy in small batches.
BATCH_SIZE = 3000
# The same for networks of torchvision, because a batch of 3,000 photographs needs about 100 GB of memory.
TORCHVISION_BATCH_SIZE = 256
LEARNING_RATE = 1e-3
LINEAR_LEARNING_RATE = 1e-2
BOOSTING_LEARNING_RATE = 0.1
# L2 penalty of an MLP with the sigmoid loss. It lowers the accuracy of MLPs with the logistic loss and of ResNet-32.
MLP_L2 = 5e-3
# Decay of the moving average of the weights, per batch.
EMA = 0.999
# Number of epochs over which the noisy validation error is averaged before epochs are compared.
SMOOTHING = 5
# Number of epochs without improvement after which training stops.
PATIENCE = 20
# Minimum patience in optimizer steps, because an epoch of a small dataset may be a single step.
PATIENCE_STEPS = 400
# Number of trees without improvement after which boosting stops. A tree takes less time than an epoch of a network.
BOOSTING_PATIENCE = 50
# Number of epochs between two checkpoints.
CHECKPOINT_EVERY = 10

# Fraction of the rows of a batch that get a pseudo-label in consistency training.
PSEUDO_LABEL_FRACTION = 1.0
# L2 penalty of an MLP with the sigmoid loss in consistency training, which also prevents overfitting. The smaller MLPs
# for small tables have the usual penalty.
CONSISTENCY_MLP_L2 = 5e-4
# Weight of the consistency loss, and the fractions of the epochs between which it rises from 0 to this weight.
CONSISTENCY_WEIGHT = 1.0
CONSISTENCY_RAMP = (0.15, 0.35)
# Strong views of rows of numbers: the probability of replacing a cell, and the noise in standard deviations.
SWAP_PROBABILITY = 0.2
NOISE_SCALE = 0.1

# Number of models in an ensemble, and number of folds.
N_ESTIMATORS = 5
# Fraction of each set that a single model holds out for early stopping and calibration.
VALIDATION_FRACTION = 0.1
# Minimum number of held-out rows per set for early stopping. With fewer rows, the validation error is too noisy.
MIN_VALIDATION_ROWS = 500
# Minimum number of unique rows per set for folds. With fewer, a fold may be empty because copies of a row share a fold.
MIN_UNIQUE_ROWS = 100
# Fraction of each file that `uulearn fit` holds out to evaluate models without usable out-of-fold scores: single
# models, and ensembles after self-training.
EVALUATION_FRACTION = 0.1
# Fraction of each set that `prior_sensitivity` holds out to evaluate its runs.
SENSITIVITY_FRACTION = 0.2
# Errors that `prior_sensitivity` adds to each class prior.
SENSITIVITY_ERRORS = (-0.1, -0.05, 0.05, 0.1)
# Time budget of this analysis in `uulearn fit`, as a fraction of the training time, if a few models need no more.
SENSITIVITY_TIME = 0.4

# One model trained on all rows to the last epoch, without calibration: the setting of the paper.
SINGLE_RUN: dict[str, Any] = {
    "loss": "logistic", "lr": LEARNING_RATE, "l2": 0.0, "n_estimators": 1, "validation_fraction": 0.0,
    "early_stopping": False, "patience": None, "calibrated": False,
}  # fmt: skip
