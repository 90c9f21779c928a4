"""Any classifier, and more than two sets: classify the sets, then convert set probabilities to class probabilities.

The method is surrogate set classification (Lu, Lei, Niu, Sato and Sugiyama, ICML 2021), with the inversion after
training instead of a layer within the network, so you can use any classifier.
"""

from uulearn.surrogate.accuracy import AccuracyWeights, accuracy_weights, estimate_accuracy
from uulearn.surrogate.classifier import SurrogateSetClassifier
from uulearn.surrogate.inversion import Inversion, invert_set_posterior, set_posterior, shift_prior

__all__ = [
    "AccuracyWeights", "Inversion", "SurrogateSetClassifier", "accuracy_weights", "estimate_accuracy",
    "invert_set_posterior", "set_posterior", "shift_prior",
]  # fmt: skip
