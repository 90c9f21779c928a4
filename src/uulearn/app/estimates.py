"""Estimate facts about a fitted classifier without labels, from rows that it was not trained on."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from uulearn import defaults
from uulearn.app.facts import ColumnImportance, PriorError, ScoreHistogram, SensitivityFacts, TargetFacts
from uulearn.app.formatting import sentence
from uulearn.app.training import IMPORTANCE_ROWS, EvaluationRows
from uulearn.estimator import UUClassifier
from uulearn.estimator.fitting import warn_if_beyond_priors
from uulearn.estimator.parameters import without_comparison
from uulearn.exceptions import TimeBudgetError
from uulearn.metrics import evaluate, uu_accuracy_difference
from uulearn.metrics.calibration import shift_log_odds
from uulearn.metrics.rates import two_sample_auc
from uulearn.selection import prior_sensitivity
from uulearn.selection.figures import LETTERS
from uulearn.tabular.schema import TableColumn

SHOWN_TARGET_PRIORS = tuple(round(0.05 * step, 2) for step in range(1, 20))
"""Target priors at which the accuracy is estimated."""
HISTOGRAM_BINS = 40
HISTOGRAM_TAIL = 0.002
"""Fraction of the scores at each end that is counted in the outermost bin, so that outliers do not widen the bins."""
MAX_SHUFFLED_COLUMNS = 200
"""Maximum number of columns that are shuffled; each one requires scoring the evaluation rows again."""

MEASURE_ALL = "By default, the time budget depends on the training time; --sensitivity measures all changes."

Priors = tuple[float, float]


def evaluation_facts(
    rows: EvaluationRows,
    groups: Mapping[str, Sequence[int]] | None,
    columns: Sequence[TableColumn],
    set_priors: Priors,
    target_prior: float,
    seed: int,
) -> dict[str, Any]:
    """Estimate facts about the classifier from the evaluation rows, as fields of `FitFacts`.

    The facts are column importance (``groups`` maps columns to features), accuracy and rates, separation of the sets,
    accuracy at other target priors and the score histogram. A violated mixture assumption raises a warning.
    """
    importance = None if groups is None else column_importance(rows, groups, columns, set_priors, target_prior, seed)
    scores, sets = rows.scores, rows.sets
    warn_if_beyond_priors(scores, sets, set_priors, stacklevel=3)
    higher = 0 if set_priors[0] > set_priors[1] else 1
    targets = []
    for other in SHOWN_TARGET_PRIORS:
        threshold = -float(shift_log_odds(0.0, target_prior, other))
        accuracy = evaluate(scores, sets, set_priors, other, threshold=threshold, correction=rows.correction).accuracy
        targets.append(TargetFacts(other, threshold, accuracy))
    low, high = np.quantile(scores, [HISTOGRAM_TAIL, 1 - HISTOGRAM_TAIL])
    edges = np.linspace(min(low, -1e-3), max(high, 1e-3), HISTOGRAM_BINS + 1)
    inside = np.clip(scores, edges[0], edges[-1])
    first, second = (tuple(np.histogram(inside[sets == which], edges)[0].tolist()) for which in (0, 1))
    return {
        "importance": importance,
        "evaluation": evaluate(scores, sets, set_priors, target_prior, correction=rows.correction),
        "set_auc": two_sample_auc(np.asarray(scores[sets == higher]), np.asarray(scores[sets != higher]), 0.95),
        "targets": tuple(targets),
        "histogram": ScoreHistogram(tuple(edges.tolist()), (first, second)),
    }


def column_importance(
    rows: EvaluationRows,
    groups: Mapping[str, Sequence[int]],
    columns: Sequence[TableColumn],
    set_priors: Priors,
    target_prior: float,
    seed: int,
) -> tuple[ColumnImportance, ...]:
    """Return the estimated loss of accuracy if a column is shuffled across both sets, largest loss first.

    ``groups`` maps each column, or each embedding, to its features. Rows are shuffled within a fold, because rows of
    different folds are scored by different models. The direction of a number, boolean or date is its correlation with
    the score; of a category, the value with the highest mean score is returned.
    """
    described = {column.name: column for column in columns}
    X = rows.sample
    unshuffled = rows.score(X, rows.sample_folds)
    shuffled = list(groups)[:MAX_SHUFFLED_COLUMNS]
    used = {column: np.array(groups[column], dtype=np.int64) for column in shuffled if len(groups[column])}
    found, drops = [], []
    for (column, features), score in zip(used.items(), _score_shuffled(rows, list(used.values()), seed), strict=True):
        lost = uu_accuracy_difference(unshuffled, score, rows.sample_sets, set_priors, target_prior)
        direction, highest = None, None
        kind, values = (described[column].kind, described[column].values) if column in described else (None, ())
        if kind in ("number", "boolean", "date"):
            main = X[:, features[0]]  # increases with the value; other features mark missing values or times
            direction = float(np.corrcoef(main, unshuffled)[0, 1]) if main.std() * unshuffled.std() > 0 else 0.0
        elif values:
            chosen = [unshuffled[X[:, feature] > 0] for feature in features[: len(values)]]
            highest = values[int(np.argmax([own.mean() if len(own) else -np.inf for own in chosen]))]
        found.append(ColumnImportance(column, lost.value, lost.standard_error, direction, highest))
        drops.append(lost.unclipped)
    return tuple(found[place] for place in np.argsort(-np.array(drops), kind="stable"))


def _score_shuffled(
    rows: EvaluationRows, groups: Sequence[NDArray[np.int64]], seed: int
) -> Iterator[NDArray[np.float32]]:
    """Yield the scores of the sampled rows after the values of each group of features were shuffled within the folds.

    Several copies of a small sample are scored at a time, which is faster.
    """
    rng, X, folds = np.random.default_rng([seed, 6]), rows.sample, rows.sample_folds
    within = [np.flatnonzero(folds == fold) for fold in np.unique(folds)]
    at_once = max(1, IMPORTANCE_ROWS // len(X))
    for start in range(0, len(groups), at_once):
        chosen = groups[start : start + at_once]
        copies = np.tile(X, (len(chosen), 1, 1))
        for shuffled, features in zip(copies, chosen, strict=True):
            for own in within:
                shuffled[np.ix_(own, features)] = X[np.ix_(rng.permutation(own), features)]
        scores = rows.score(copies.reshape(-1, X.shape[1]), np.tile(folds, len(chosen)))
        yield from scores.reshape(len(chosen), -1)


def sensitivity_facts(
    classifier: UUClassifier, X: NDArray[np.float32], sets: NDArray[np.int64], seconds: float | None = None
) -> SensitivityFacts:
    """Measure how a wrong prior changes the estimated accuracy, by training one model per changed prior.

    If several models were compared, the one with the highest weight is trained. ``seconds`` is the time budget.
    """
    compared = [entry for entry in classifier.comparison_ or () if entry.risk is not None]
    model: dict[str, Any] = {}
    if compared:
        model = {"model": max(compared, key=lambda entry: entry.weight).model, "model_params": defaults.AUTO}
    n_trees = [history.best_epoch for history in classifier.history_.models or () if history.best_epoch is not None]
    if model.get("model", classifier.model) == defaults.BOOSTING and n_trees:
        model |= {"epochs": max(n_trees), "early_stopping": False, "patience": None}
    choice = classifier.consistency_
    options = without_comparison(classifier.consistency, used=choice is not None and choice.used)
    model["consistency"] = None if model.get("model", classifier.model) == defaults.BOOSTING else options
    classifier = clone(classifier).set_params(
        **model,
        n_estimators=1,
        self_training_rounds=0,
        validation_fraction=defaults.SENSITIVITY_FRACTION,
        training__checkpoint_dir=None,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit of the classifier has already raised them
        try:
            found = prior_sensitivity(classifier, X, sets, errors=defaults.SENSITIVITY_ERRORS, seconds=seconds)
        except TimeBudgetError as error:
            return SensitivityFacts(skipped=f"{sentence(str(error))} {MEASURE_ALL}")
    rows = [(row, row.assumption) for row in found.rows]
    errors = [PriorError(LETTERS.get(a.parameter, a.name), a.error, row.shown, row.differing) for row, a in rows]
    note = None if found.budget_note is None else f"{sentence(found.budget_note)} {MEASURE_ALL}"
    return SensitivityFacts(tuple(errors), found.conclusion, budget_note=note)
