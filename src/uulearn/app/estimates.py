"""Estimates about a fitted classifier without labels, computed from rows it was not trained on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from uulearn import defaults
from uulearn.app.facts import ColumnImportance, PriorError, ScoreHistogram, SensitivityFacts, TargetFacts
from uulearn.estimator import UUClassifier
from uulearn.metrics import evaluate, uu_accuracy, uu_accuracy_difference
from uulearn.metrics.calibration import shift_log_odds
from uulearn.metrics.ranking import two_sample_auc
from uulearn.selection import prior_sensitivity
from uulearn.selection.figures import LETTERS
from uulearn.selection.sensitivity import BASELINE, Assumption, alter_priors

SHOWN_TARGET_PRIORS = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""Target priors at which the accuracy is estimated."""
HISTOGRAM_BINS = 40
HISTOGRAM_TAIL = 0.002
"""Fraction of the scores at each end that goes into the outermost bin, so that outliers do not flatten the rest."""
MAX_SHUFFLED_COLUMNS = 200
"""Columns beyond this number are not shuffled: each one costs a pass over the evaluation rows."""

Floats = NDArray[np.floating[Any]]


def evaluation_facts(
    scores: Floats, sets: NDArray[np.int64], set_priors: tuple[float, float], target_prior: float
) -> dict[str, Any]:
    """Accuracy and rates, separation of the sets, other target priors and the score histogram, by field of `FitFacts`.

    ``scores`` are log-odds at ``target_prior`` of the evaluation rows.
    """
    higher = 0 if set_priors[0] > set_priors[1] else 1
    return {
        "evaluation": evaluate(scores, sets, set_priors, target_prior),
        "set_auc": two_sample_auc(np.asarray(scores[sets == higher]), np.asarray(scores[sets != higher]), 0.95),
        "targets": tuple(_at_target(scores, sets, set_priors, target_prior, other) for other in SHOWN_TARGET_PRIORS),
        "histogram": _histogram(scores, sets),
    }


def _at_target(
    scores: Floats, sets: NDArray[np.int64], set_priors: tuple[float, float], own: float, other: float
) -> TargetFacts:
    threshold = -float(shift_log_odds(0.0, own, other))
    return TargetFacts(other, threshold, uu_accuracy(scores, sets, set_priors, other, threshold=threshold))


def _histogram(scores: Floats, sets: NDArray[np.int64]) -> ScoreHistogram:
    low, high = np.quantile(scores, [HISTOGRAM_TAIL, 1 - HISTOGRAM_TAIL])
    edges = np.linspace(min(low, -1e-3), max(high, 1e-3), HISTOGRAM_BINS + 1)
    inside = np.clip(scores, edges[0], edges[-1])
    first, second = (tuple(np.histogram(inside[sets == which], edges)[0].tolist()) for which in (0, 1))
    return ScoreHistogram(tuple(edges.tolist()), (first, second))


def importance_facts(
    score: Callable[[Any, Any], Floats],
    X: NDArray[np.float32],
    sets: NDArray[np.int64],
    folds: NDArray[np.int64],
    groups: Mapping[str, Sequence[int]],
    set_priors: tuple[float, float],
    target_prior: float,
    seed: int,
) -> tuple[ColumnImportance, ...]:
    """Estimated accuracy that is lost when a column is shuffled among the rows of both sets, largest first.

    Rows are shuffled within a fold, because rows of different folds are scored by different models.
    """
    rng = np.random.default_rng([seed, 6])
    unshuffled = score(X, folds)
    found = []
    for column in list(groups)[:MAX_SHUFFLED_COLUMNS]:
        features = np.array(groups[column], dtype=np.int64)
        if not len(features):
            continue
        shuffled = X.copy()
        for fold in np.unique(folds):
            rows = np.flatnonzero(folds == fold)
            shuffled[np.ix_(rows, features)] = X[np.ix_(rng.permutation(rows), features)]
        lost = uu_accuracy_difference(unshuffled, score(shuffled, folds), sets, set_priors, target_prior)
        found.append(ColumnImportance(column, lost.value, lost.standard_error))
    return tuple(sorted(found, key=lambda entry: -entry.drop))


def sensitivity_facts(classifier: UUClassifier, X: NDArray[np.float32], sets: NDArray[np.int64]) -> SensitivityFacts:
    """How the estimated accuracy changes if a prior is wrong: trains one model per changed prior."""
    classifier = clone(classifier).set_params(
        n_estimators=1,
        self_training_rounds=0,
        validation_fraction=defaults.SENSITIVITY_FRACTION,
        training__checkpoint_dir=None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit of the classifier itself has raised them already
        found = prior_sensitivity(classifier, X, sets, errors=defaults.SENSITIVITY_ERRORS)
    rows = [
        PriorError(
            parameter=LETTERS.get(row.assumption.parameter, row.assumption.name),
            error=row.assumption.error,
            accuracy=row.shown,
            differing=row.differing,
        )
        for row in found.rows
    ]
    return SensitivityFacts(tuple(rows), found.conclusion)


def sensitivity_models(classifier: UUClassifier) -> int:
    """Number of models that `sensitivity_facts` trains: one with the given priors, and one per changed prior.

    Examples
    --------
    >>> sensitivity_models(UUClassifier((0.8, 0.2))), sensitivity_models(UUClassifier((0.95, 0.2)))
    (13, 12)
    """
    assert classifier.set_priors is not None
    guess = Assumption(BASELINE, 0.0, (classifier.set_priors[0], classifier.set_priors[1]), classifier.target_prior)
    return len(alter_priors(guess, defaults.SENSITIVITY_ERRORS)[0])
