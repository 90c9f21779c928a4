"""`UUClassifier`: the scikit-learn estimator."""

from uulearn.estimator.classifier import UUClassifier

__all__ = ["UUClassifier"]
