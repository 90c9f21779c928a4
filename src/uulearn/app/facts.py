"""What is known about a trained model without labels, as plain data for the last lines of `fit` and for the report."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from uulearn import defaults
from uulearn.estimator import UUClassifier
from uulearn.metrics import evaluate, uu_accuracy, uu_accuracy_difference
from uulearn.metrics.calibration import shift_log_odds
from uulearn.metrics.ranking import two_sample_auc
from uulearn.selection import prior_sensitivity
from uulearn.selection.figures import LETTERS
from uulearn.selection.sensitivity import BASELINE, Assumption, alter_priors

TARGETS = tuple(round(0.05 * step, 2) for step in range(1, 20))
BINS = 40
SHUFFLED_COLUMNS = 200

Floats = NDArray[np.floating[Any]]


def evaluation_facts(
    scores: Floats, sets: NDArray[np.int64], set_priors: tuple[float, float], target_prior: float
) -> dict[str, Any]:
    """Accuracy, rates, how far apart the sets are, other target priors and histograms, from rows kept for evaluating.

    ``scores`` are log-odds at ``target_prior``.
    """
    evaluation = evaluate(scores, sets, set_priors, target_prior)
    richer = 0 if set_priors[0] > set_priors[1] else 1
    apart = two_sample_auc(np.asarray(scores[sets == richer]), np.asarray(scores[sets != richer]), 0.95)
    return {
        "evaluation": dataclasses.asdict(evaluation),
        "set_auc": {"value": apart.value, "interval": list(apart.interval)},
        "targets": [_target(scores, sets, set_priors, target_prior, other) for other in TARGETS],
        "histogram": _histogram(scores, sets),
    }


def _target(
    scores: Floats, sets: NDArray[np.int64], set_priors: tuple[float, float], own: float, other: float
) -> dict[str, Any]:
    threshold = -float(shift_log_odds(0.0, own, other))
    estimate = uu_accuracy(scores, sets, set_priors, other, threshold=threshold)
    return {
        "target_prior": other,
        "threshold": threshold,
        "accuracy": estimate.value,
        "interval": list(estimate.interval),
    }


def _histogram(scores: Floats, sets: NDArray[np.int64]) -> dict[str, Any]:
    low, high = np.quantile(scores, [0.002, 0.998])
    edges = np.linspace(min(low, -1e-3), max(high, 1e-3), BINS + 1)
    inside = np.clip(scores, edges[0], edges[-1])
    counts = [np.histogram(inside[sets == which], edges)[0].tolist() for which in (0, 1)]
    return {"edges": edges.tolist(), "counts": counts}


def importance_facts(
    score: Callable[[Any, Any], Floats],
    X: NDArray[np.float32],
    sets: NDArray[np.int64],
    folds: NDArray[np.int64],
    groups: Mapping[str, Sequence[int]],
    set_priors: tuple[float, float],
    target_prior: float,
    seed: int,
) -> list[dict[str, Any]]:
    """What the estimated accuracy loses when a column is shuffled among the rows of both sets, largest first.

    Within a fold, since rows of different folds are scored by different models.
    """
    rng = np.random.default_rng([seed, 6])
    plain = score(X, folds)
    found = []
    for column in list(groups)[:SHUFFLED_COLUMNS]:
        own = np.array(groups[column], dtype=np.int64)
        if not len(own):
            continue
        shuffled = X.copy()
        for fold in np.unique(folds):
            rows = np.flatnonzero(folds == fold)
            shuffled[np.ix_(rows, own)] = X[np.ix_(rng.permutation(rows), own)]
        lost = uu_accuracy_difference(plain, score(shuffled, folds), sets, set_priors, target_prior)
        found.append({"column": column, "drop": lost.value, "standard_error": lost.standard_error})
    return sorted(found, key=lambda entry: -entry["drop"])


def sensitivity_facts(classifier: UUClassifier, X: NDArray[np.float32], sets: NDArray[np.int64]) -> dict[str, Any]:
    """How the estimated accuracy moves when a prior is wrong: the classifier, of one member, trained again for each."""
    classifier = clone(classifier).set_params(
        n_estimators=1,
        self_training_rounds=0,
        validation_fraction=defaults.SENSITIVITY_FRACTION,
        training__checkpoint_dir=None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # given before, when the classifier itself was trained
        found = prior_sensitivity(classifier, X, sets, errors=defaults.SENSITIVITY_ERRORS)
    rows = [
        {
            "parameter": LETTERS.get(row.assumption.parameter, row.assumption.name),
            "error": row.assumption.error,
            "accuracy": row.shown.value,
            "interval": list(row.shown.interval),
            "differing": row.differing,
        }
        for row in found.rows
    ]
    return {"rows": rows, "conclusion": found.conclusion}


def sensitivity_models(classifier: UUClassifier) -> int:
    """How many models `sensitivity_facts` trains: one for the priors as they are, and one for each that is wrong.

    Examples
    --------
    >>> sensitivity_models(UUClassifier((0.8, 0.2))), sensitivity_models(UUClassifier((0.95, 0.2)))
    (13, 12)
    """
    assert classifier.set_priors is not None
    guess = Assumption(BASELINE, 0.0, (classifier.set_priors[0], classifier.set_priors[1]), classifier.target_prior)
    return len(alter_priors(guess, defaults.SENSITIVITY_ERRORS)[0])


def finite(data: Any) -> Any:
    """The same data with None, which JSON knows, for what it does not: NaN and the infinities."""
    if isinstance(data, Mapping):
        return {str(key): finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [finite(value) for value in data]
    if isinstance(data, np.generic):
        data = data.item()
    return None if isinstance(data, float) and not math.isfinite(data) else data
