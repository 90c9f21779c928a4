"""Data to learn from and to test with: two unlabeled sets drawn from labelled data."""

from uulearn.datasets.sets import SCHEMES, UnlabeledSets, make_sets

__all__ = ["SCHEMES", "UnlabeledSets", "make_sets"]
