"""Checks of the data that run before training starts."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from uulearn.exceptions import IndistinguishableSetsWarning, SwappedPriorsWarning
from uulearn.training import Rows, TwoSets

SAMPLED_ROWS = 2500
SAMPLED_VALUES = 2**20  # of each set: a check should not need memory that training does not
TELLING = 2.0
CONTRADICTING = -3.0


@dataclass(frozen=True)
class SetComparison:
    """How well a quick classifier tells the two sets apart on rows it has not seen."""

    auc: float
    z: float
    rows: int
    classifier: Any

    @property
    def distinguishable(self) -> bool:
        """Whether the sets differ beyond chance."""
        return self.z >= TELLING


def compare_sets(data: TwoSets, seed: int) -> SetComparison:
    """Tell the sets apart by logistic regression and, only if that fails, by a small forest; two-fold held out."""
    n_columns = max(1, math.prod(data.row_shape))
    n_rows = max(200, min(SAMPLED_ROWS, SAMPLED_VALUES // n_columns))
    samples = [data.sample(which, n_rows).flatten(1).numpy() for which in (0, 1)]
    X = np.concatenate(samples)
    membership = np.repeat([0, 1], [len(sample) for sample in samples])
    fold = np.concatenate([np.arange(len(sample)) % 2 for sample in samples])
    candidates = (
        make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=50)),
        ExtraTreesClassifier(n_estimators=100, min_samples_leaf=5, random_state=seed % 2**32),
    )
    comparison: SetComparison | None = None
    for classifier in candidates:
        tried = _held_out(classifier, X, membership, fold)
        comparison = tried if comparison is None or tried.z > comparison.z else comparison
        if comparison.distinguishable:
            break
    assert comparison is not None
    return comparison


def _held_out(classifier: Any, X: Any, membership: Any, fold: Any) -> SetComparison:
    """Mean AUC over the two folds, and its distance from ½ in standard errors under no difference (Mann–Whitney)."""
    aucs, variances = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for held in (0, 1):
            classifier.fit(X[fold != held], membership[fold != held])
            scores = classifier.predict_proba(X[fold == held])[:, 1]
            n1 = int(membership[fold == held].sum())
            n0 = int((fold == held).sum()) - n1
            aucs.append(roc_auc_score(membership[fold == held], scores))
            variances.append((n0 + n1 + 1) / (12 * n0 * n1))
    auc = float(np.mean(aucs))
    return SetComparison(auc, (auc - 0.5) / math.sqrt(sum(variances) / 4), len(X), classifier)


def warn_if_indistinguishable(comparison: SetComparison) -> None:
    """Warn that there may be nothing to learn from."""
    if not comparison.distinguishable:
        warnings.warn(
            f"the two sets look alike: on {comparison.rows:,} held-out rows a quick classifier tells them apart with "
            f"AUC {comparison.auc:.3f}, no better than chance (0.5); if their shares of positives do differ, collect "
            "more rows or columns that say something about the class.",
            IndistinguishableSetsWarning,
            stacklevel=4,
        )


def warn_if_swapped(comparison: SetComparison, set_priors: tuple[float, float], rows: Rows, labels: Tensor) -> None:
    """Warn when labelled rows say that the set declared richer in positives is the poorer one."""
    n = len(labels)
    n_positive = int(labels.sum())
    if not comparison.distinguishable or n_positive in (0, n):
        return
    X = TwoSets((rows, rows)).sample(0, SAMPLED_ROWS).flatten(1).numpy()
    positions = np.linspace(0, n - 1, len(X)).astype(int)
    y = labels.numpy()[positions]
    toward_set1 = comparison.classifier.predict_proba(X)[:, 1]
    richer = int(set_priors[1] > set_priors[0])
    auc = roc_auc_score(y, toward_set1 if richer == 1 else -toward_set1)
    n1 = int(y.sum())
    n0 = len(y) - n1
    z = (auc - 0.5) / math.sqrt((n0 + n1 + 1) / (12 * n0 * n1))
    if z <= CONTRADICTING:
        warnings.warn(
            f"the labelled rows contradict set_priors={set_priors}: rows like those of set {richer}, declared the "
            f"richer in positives, are mostly negative in test_data (AUC {auc:.3f}); the priors are probably "
            f"swapped, try set_priors={set_priors[::-1]}.",
            SwappedPriorsWarning,
            stacklevel=4,
        )
