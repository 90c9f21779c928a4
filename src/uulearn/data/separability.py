"""Check before training whether a fast classifier can distinguish the two sets."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu, rankdata
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from uulearn.data.rows import Rows, TwoSets
from uulearn.exceptions import IndistinguishableSetsWarning, SwappedPriorsWarning

MEANS_ROWS, CHUNK_VALUES = (
    20_000,
    2**17,
)  # maximum number of rows per set whose means are compared, and of values per chunk
CLASSIFIER_ROWS, SAMPLED_VALUES = 2_500, 2**20  # maximum number of rows and values per set for slower classifiers
MIN_Z = 2.0  # minimum number of standard errors above ½ for the AUC of distinguishable sets
HIGH_AUC = 0.6  # minimum AUC that would clearly differ from chance (0.5) if there were more rows
CONTRADICTION_P_VALUE = 0.02  # maximum p-value (Mann–Whitney) at which labels contradict the priors

Floats = NDArray[np.float64]
Scorer = Callable[[Tensor], Floats]


@dataclass(frozen=True)
class Separability:
    """Measure of how well a fast classifier distinguishes the two sets on held-out rows."""

    auc: float
    z: float
    """Distance of the AUC from ½, in standard errors under the hypothesis of equal distributions (Mann–Whitney)."""
    rows: int
    toward_set1: Scorer
    """Function that scores float32 rows of shape (n, columns); rows that resemble set 1 get higher scores."""

    @property
    def distinguishable(self) -> bool:
        """Whether the sets differ more than expected by chance."""
        return self.z >= MIN_Z


def measure_separability(data: TwoSets, seed: int) -> Separability:
    """Try to distinguish the sets by column means and, if this fails, by logistic regression and a random forest."""
    best = _by_means(data)
    if best.distinguishable:
        return best
    # Rarely needed, and slow to import.
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    n_rows = max(200, min(CLASSIFIER_ROWS, SAMPLED_VALUES // max(1, math.prod(data.row_shape))))
    samples = [data.sample(which, n_rows).flatten(1).numpy() for which in (0, 1)]
    for classifier in (
        make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=50)),
        ExtraTreesClassifier(n_estimators=100, min_samples_leaf=5, random_state=seed % 2**32),
    ):
        best = max(best, _by_classifier(classifier, *samples), key=lambda attempt: attempt.z)
        if best.distinguishable:
            break
    return best


def warn_if_indistinguishable(separability: Separability, stacklevel: int) -> None:
    """Warn if the sets look alike, because there may be nothing to learn, or if few rows cannot show a difference."""
    if separability.distinguishable:
        return
    found = f"on {separability.rows:,} held-out rows a fast classifier separates them with AUC {separability.auc:.3f}"
    if separability.auc >= HIGH_AUC:
        message = (
            f"the two sets have too few rows to show whether they differ: {found}, which can be chance with so few "
            "rows; collect more rows."
        )
    else:
        message = (
            f"the two sets look alike: {found}, no better than chance (0.5); if their class priors differ, collect "
            "more rows or columns that depend on the class."
        )
    warnings.warn(message, IndistinguishableSetsWarning, stacklevel=stacklevel + 1)


def warn_if_swapped(
    separability: Separability, set_priors: tuple[float, float], rows: Rows, labels: Tensor, stacklevel: int
) -> None:
    """Warn if labeled rows show that the set declared to have the higher prior has the lower prior."""
    if not separability.distinguishable or labels.min() == labels.max():
        return
    chosen = torch.linspace(0, rows.n_rows - 1, min(rows.n_rows, CLASSIFIER_ROWS), dtype=torch.float64).long()
    higher = int(set_priors[1] > set_priors[0])
    toward_higher = (2 * higher - 1) * separability.toward_set1(TwoSets((rows, rows)).take(0, chosen))
    y = labels[chosen].numpy()
    positives, negatives = toward_higher[y == 1], toward_higher[y == 0]
    if mannwhitneyu(positives, negatives, alternative="less").pvalue < CONTRADICTION_P_VALUE:
        auc, _ = _auc(negatives, positives)
        warnings.warn(
            f"the labeled rows contradict set_priors={set_priors}: rows that resemble set {higher}, declared to have "
            f"the higher class prior, are mostly negative in test_data (AUC {auc:.3f}); the priors are probably "
            f"swapped, try set_priors={set_priors[::-1]}.",
            SwappedPriorsWarning,
            stacklevel=stacklevel + 1,
        )


def _by_means(data: TwoSets) -> Separability:
    """Score rows by a linear function; each weight is the difference of the set means divided by the variance."""
    n_columns = max(1, math.prod(data.row_shape))
    positions = [torch.linspace(0, size - 1, min(size, MEANS_ROWS), dtype=torch.float64).long() for size in data.sizes]
    step = max(2, CHUNK_VALUES // n_columns)

    def chunks(which: int, fold: int) -> list[Tensor]:
        return list(torch.split(positions[which][fold::2], step))

    means, squares = np.zeros((2, 2, 2, n_columns))
    for which, fold in np.ndindex(2, 2):
        for chunk in chunks(which, fold):
            x = data.take(which, chunk).flatten(1).double()
            means[which, fold] += x.sum(0).numpy()
            squares[which, fold] += x.square().sum(0).numpy()
        n = len(positions[which][fold::2])
        means[which, fold] /= n
        squares[which, fold] /= n
    variance = (squares - means**2).mean(0).clip(0)
    direction = np.divide(means[1] - means[0], variance, out=np.zeros((2, n_columns)), where=variance > 1e-12)
    center = means.mean((0, 1))

    def scorer(weights: Floats) -> Scorer:
        # Center first: in float32, a column far from zero would hide the others.
        return lambda x: np.asarray((x.flatten(1).double() - torch.from_numpy(center)) @ torch.from_numpy(weights))

    folds = []
    for held in (0, 1):
        score = scorer(direction[1 - held])
        folds.append([np.concatenate([score(data.take(which, c)) for c in chunks(which, held)]) for which in (0, 1)])
    return _summarize(folds, scorer(direction.mean(0)))


def _by_classifier(classifier: Any, sample0: NDArray[np.float32], sample1: NDArray[np.float32]) -> Separability:
    X = np.concatenate([sample0, sample1])
    sets = np.repeat([0, 1], [len(sample0), len(sample1)])
    fold = np.concatenate([np.arange(len(sample)) % 2 for sample in (sample0, sample1)])
    folds = []
    # Matrix products of finite numbers sometimes set the flag of invalid operations, although their result is finite.
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", ConvergenceWarning)
        for held in (0, 1):
            classifier.fit(X[fold != held], sets[fold != held])
            scores = classifier.predict_proba(X[fold == held])[:, 1]
            folds.append([scores[sets[fold == held] == which] for which in (0, 1)])
    return _summarize(folds, lambda x: np.asarray(classifier.predict_proba(x.flatten(1).numpy())[:, 1]))


def _summarize(folds: list[list[Floats]], toward_set1: Scorer) -> Separability:
    aucs, variances = zip(*(_auc(*fold) for fold in folds), strict=True)
    auc = float(np.mean(aucs))
    rows = sum(len(scores) for fold in folds for scores in fold)
    return Separability(auc, (auc - 0.5) / math.sqrt(sum(variances) / 4), rows, toward_set1)


def _auc(scores0: Floats, scores1: Floats) -> tuple[float, float]:
    """Return the fraction of pairs whose second score is higher, and its variance if the distributions are equal."""
    n0, n1 = len(scores0), len(scores1)
    ranks = rankdata(np.concatenate([scores0, scores1]))
    auc = (ranks[n0:].mean() - (n1 + 1) / 2) / n0
    return float(auc), (n0 + n1 + 1) / (12 * n0 * n1)
