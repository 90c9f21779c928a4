"""Checks of the data that run before training starts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from uulearn.data import Rows, TwoSets
from uulearn.exceptions import (
    IndistinguishableSetsWarning,
    OneSidedPredictionsWarning,
    SuspiciousScoreWarning,
    SwappedPriorsWarning,
)
from uulearn.metrics.calibration import shift_log_odds
from uulearn.risk import estimation_cost

MOST_ROWS = 20_000
CHUNK_VALUES = 2**17
SAMPLED_ROWS = 2_500
SAMPLED_VALUES = 2**20  # of each set: a check should not need memory that training does not
TELLING = 2.0
CONTRADICTING = 0.02
"""Largest p-value (Mann–Whitney, exact for few rows) at which labels are said to contradict the priors."""

Floats = NDArray[np.float64]
Scorer = Callable[[Tensor], Floats]


@dataclass(frozen=True)
class SetComparison:
    """How well a quick classifier tells the two sets apart on rows it has not seen."""

    auc: float
    z: float
    """Distance of the AUC from ½ in its standard errors under no difference (Mann–Whitney)."""
    rows: int
    toward_set1: Scorer
    """Score of float32 rows of shape (n, columns); higher for rows that look like those of set 1."""

    @property
    def distinguishable(self) -> bool:
        """Whether the sets differ beyond chance."""
        return self.z >= TELLING


def compare_sets(data: TwoSets, seed: int) -> SetComparison:
    """Tell the sets apart, two-fold held out: by the difference of their means and, only while that fails, by logistic
    regression and by a small forest.
    """
    best = _by_means(data)
    if best.distinguishable:
        return best
    n_rows = max(200, min(SAMPLED_ROWS, SAMPLED_VALUES // max(1, math.prod(data.row_shape))))
    samples = [data.sample(which, n_rows).flatten(1).numpy() for which in (0, 1)]
    for classifier in (
        make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=50)),
        ExtraTreesClassifier(n_estimators=100, min_samples_leaf=5, random_state=seed % 2**32),
    ):
        tried = _by_classifier(classifier, *samples)
        best = max(best, tried, key=lambda comparison: comparison.z)
        if best.distinguishable:
            break
    return best


def _by_means(data: TwoSets) -> SetComparison:
    """Every column weighted by the difference of its means over its variance; two passes in small chunks."""
    n_columns = max(1, math.prod(data.row_shape))
    positions = [torch.linspace(0, size - 1, min(size, MOST_ROWS), dtype=torch.float64).long() for size in data.sizes]
    step = max(2, CHUNK_VALUES // n_columns)

    def chunks(which: int, fold: int) -> list[Tensor]:
        return list(torch.split(positions[which][fold::2], step))

    means = np.zeros((2, 2, n_columns))
    squares = np.zeros((2, 2, n_columns))
    for which in (0, 1):
        for fold in (0, 1):
            for chunk in chunks(which, fold):
                x = data.take(which, chunk).flatten(1).double()
                means[which, fold] += x.sum(0).numpy()
                squares[which, fold] += x.square().sum(0).numpy()
            n = len(positions[which][fold::2])
            means[which, fold] /= n
            squares[which, fold] /= n
    variance = (squares - means**2).mean(0).clip(0)
    direction = np.divide(means[1] - means[0], variance, out=np.zeros((2, n_columns)), where=variance > 1e-12)
    centre = means.mean((0, 1))

    def scorer(weights: Floats) -> Scorer:
        # Centred first: a column far from zero would otherwise swamp the rest in float32.
        return lambda x: np.asarray((x.flatten(1).double() - torch.from_numpy(centre)) @ torch.from_numpy(weights))

    folds = []
    for held in (0, 1):
        score = scorer(direction[1 - held])
        folds.append([np.concatenate([score(data.take(which, c)) for c in chunks(which, held)]) for which in (0, 1)])
    return _comparison(folds, scorer(direction.mean(0)))


def _by_classifier(classifier: Any, sample0: NDArray[np.float32], sample1: NDArray[np.float32]) -> SetComparison:
    X = np.concatenate([sample0, sample1])
    membership = np.repeat([0, 1], [len(sample0), len(sample1)])
    fold = np.concatenate([np.arange(len(sample)) % 2 for sample in (sample0, sample1)])
    folds = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for held in (0, 1):
            classifier.fit(X[fold != held], membership[fold != held])
            scores = classifier.predict_proba(X[fold == held])[:, 1]
            folds.append([scores[membership[fold == held] == which] for which in (0, 1)])
    return _comparison(folds, lambda x: np.asarray(classifier.predict_proba(x.flatten(1).numpy())[:, 1]))


def _comparison(folds: list[list[Floats]], toward_set1: Scorer) -> SetComparison:
    aucs, variances = zip(*(_auc(*fold) for fold in folds), strict=True)
    auc = float(np.mean(aucs))
    rows = sum(len(scores) for fold in folds for scores in fold)
    return SetComparison(auc, (auc - 0.5) / math.sqrt(sum(variances) / 4), rows, toward_set1)


def _auc(scores0: Floats, scores1: Floats) -> tuple[float, float]:
    """Share of pairs in which the second score is the higher, and the variance of that share if nothing differs."""
    n0, n1 = len(scores0), len(scores1)
    auc = roc_auc_score(np.repeat([0, 1], [n0, n1]), np.concatenate([scores0, scores1]))
    return float(auc), (n0 + n1 + 1) / (12 * n0 * n1)


def warn_if_indistinguishable(comparison: SetComparison) -> None:
    """Warn that there may be nothing to learn from."""
    if not comparison.distinguishable:
        warnings.warn(
            f"the two sets look alike: on {comparison.rows:,} held-out rows a quick classifier tells them apart with "
            f"AUC {comparison.auc:.3f}, no better than chance (0.5); if their shares of positives do differ, collect "
            "more rows or columns that say something about the class.",
            IndistinguishableSetsWarning,
            stacklevel=5,
        )


def warn_if_swapped(comparison: SetComparison, set_priors: tuple[float, float], rows: Rows, labels: Tensor) -> None:
    """Warn when labelled rows say that the set declared richer in positives is the poorer one."""
    if not comparison.distinguishable or labels.min() == labels.max():
        return
    chosen = torch.linspace(0, rows.n_rows - 1, min(rows.n_rows, SAMPLED_ROWS), dtype=torch.float64).long()
    toward_set1 = comparison.toward_set1(TwoSets((rows, rows)).take(0, chosen))
    richer = int(set_priors[1] > set_priors[0])
    toward_richer = toward_set1 if richer == 1 else -toward_set1
    y = labels[chosen].numpy()
    positives, negatives = toward_richer[y == 1], toward_richer[y == 0]
    if mannwhitneyu(positives, negatives, alternative="less").pvalue < CONTRADICTING:
        auc, _ = _auc(negatives, positives)
        warnings.warn(
            f"the labelled rows contradict set_priors={set_priors}: rows like those of set {richer}, declared the "
            f"richer in positives, are mostly negative in test_data (AUC {auc:.3f}); the priors are probably "
            f"swapped, try set_priors={set_priors[::-1]}.",
            SwappedPriorsWarning,
            stacklevel=5,
        )


def warn_if_one_sided(
    decisions: NDArray[Any], sizes: tuple[int, int], set_priors: tuple[float, float], pi: float, *, log_odds: bool
) -> None:
    """Warn when all rows are predicted alike although, by the priors, a tenth of them at least is of each class.

    What is decided for where a share π is positive says little about rows of which another share is: log-odds are moved
    there, and other decisions looked at only where π is not extreme.
    """
    share = (sizes[0] * set_priors[0] + sizes[1] * set_priors[1]) / sum(sizes)
    if not 0.1 <= share <= 0.9 or not (log_odds or 0.1 <= pi <= 0.9):
        return
    positive = (shift_log_odds(decisions, pi, share) if log_odds else decisions) > 0
    if (positive == positive[0]).all():
        side = "positive" if positive[0] else "negative"
        warnings.warn(
            f"the trained model predicts {side} for all of {len(decisions):,} training rows, though about {share:.0%} "
            "are positive; scale the columns, lower lr, train longer, and let the model end without an activation.",
            OneSidedPredictionsWarning,
            stacklevel=5,
        )


def warn_if_suspicious(accuracy: float, set_priors: tuple[float, float], pi: float, sizes: tuple[int, int]) -> None:
    """Warn when an estimated accuracy is so far below chance, or above 1, that something declared cannot be so."""
    noise = 4 * estimation_cost(set_priors, pi, sizes).standard_error
    if accuracy < 0.5 - noise:
        warnings.warn(
            f"the estimated accuracy is {accuracy:.3f}, far below chance: if the second argument holds labels, use "
            "sklearn.metrics.accuracy_score(y, clf.predict(X)); if it holds sets, their priors may be swapped.",
            SuspiciousScoreWarning,
            stacklevel=3,
        )
    if accuracy > 1 + noise:
        warnings.warn(
            f"the estimated accuracy is {accuracy:.3f}, above 1 beyond noise: the sets differ in more than their share "
            f"of positives (look for a column that tells them apart), set_priors={set_priors} are closer than the true "
            "shares, or the rows were trained on.",
            SuspiciousScoreWarning,
            stacklevel=3,
        )
