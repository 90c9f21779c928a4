"""Any classifier, and more than two sets: tell the sets apart, then turn set probabilities into class probabilities.

=========================  =======================================================================
`SurrogateSetClassifier`   the scikit-learn estimator around any classifier with ``predict_proba``
`set_posterior`            probability of each set from the probability of the positive class
`invert_set_posterior`     the way back: closed form for two sets, maximum likelihood for more
`with_target_prior`                 probabilities of the positive class at another class prior
`accuracy_weights`         the best unbiased estimate of the accuracy from m sets, and its error
`estimate_accuracy`        that estimate
=========================  =======================================================================

The method is surrogate set classification (Lu, Lei, Niu, Sato and Sugiyama, ICML 2021), with the inversion after
training instead of a layer within it, so that any classifier will do.
"""

from uulearn.surrogate.accuracy import AccuracyWeights, accuracy_weights, estimate_accuracy
from uulearn.surrogate.classifier import SurrogateSetClassifier
from uulearn.surrogate.inversion import Inversion, invert_set_posterior, set_posterior, with_target_prior

__all__ = [
    "AccuracyWeights",
    "Inversion",
    "SurrogateSetClassifier",
    "accuracy_weights",
    "estimate_accuracy",
    "invert_set_posterior",
    "set_posterior",
    "with_target_prior",
]
