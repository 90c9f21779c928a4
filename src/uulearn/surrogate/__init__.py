"""Any classifier, and more than two sets: classify the sets, then convert set probabilities to class probabilities.

=========================  =======================================================================
`SurrogateSetClassifier`   the scikit-learn estimator around any classifier with ``predict_proba``
`set_posterior`            probability of each set from the probability of the positive class
`invert_set_posterior`     the inverse: closed form for two sets, maximum likelihood for more
`shift_prior`              probability of the positive class at another class prior
`accuracy_weights`         weights of the best unbiased estimate of the accuracy from m sets
`estimate_accuracy`        that estimate
=========================  =======================================================================

The method is surrogate set classification (Lu, Lei, Niu, Sato and Sugiyama, ICML 2021), with the inversion after
training instead of a layer within the network, so that any classifier can be used.
"""

from uulearn.surrogate.accuracy import AccuracyWeights, accuracy_weights, estimate_accuracy
from uulearn.surrogate.classifier import SurrogateSetClassifier
from uulearn.surrogate.inversion import Inversion, invert_set_posterior, set_posterior, shift_prior

__all__ = [
    "AccuracyWeights",
    "Inversion",
    "SurrogateSetClassifier",
    "accuracy_weights",
    "estimate_accuracy",
    "invert_set_posterior",
    "set_posterior",
    "shift_prior",
]
