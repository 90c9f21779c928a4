"""Train any classifier on two or more sets: classify the sets, then convert set probabilities to class probabilities.

The method is surrogate set classification (Lu, Lei, Niu, Sato and Sugiyama, ICML 2021). The probabilities are converted
after training and not by a layer of a network, so you can use any classifier.
"""

from uulearn.surrogate.accuracy import AccuracyWeights, accuracy_weights, estimate_accuracy
from uulearn.surrogate.classifier import SurrogateSetClassifier
from uulearn.surrogate.inversion import Inversion, invert_set_posterior, set_posterior, shift_prior

__all__ = [
    "AccuracyWeights", "Inversion", "SurrogateSetClassifier", "accuracy_weights", "estimate_accuracy",
    "invert_set_posterior", "set_posterior", "shift_prior",
]  # fmt: skip
