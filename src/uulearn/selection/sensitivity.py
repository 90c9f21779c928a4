"""What if the priors are wrong? The classifier is trained again for each error, all runs together if possible.

θ, θ′ and π enter twice: in the risk that is minimized, and in the estimate of the accuracy. `prior_sensitivity` changes
one of them at a time, trains as if that were true, and reports both effects.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from uulearn import defaults
from uulearn.data import DenseRows, Rows, TwoSets, hold_out, inputs
from uulearn.data.folds import assign_folds, check_fold_sizes
from uulearn.data.inputs import Columns
from uulearn.estimator import FitPlan, ResolvedParameters, UUClassifier, check_parameters, guards, run_plan
from uulearn.estimator.learners import NetworkLearner, make_learner
from uulearn.estimator.parameters import is_auto
from uulearn.estimator.plan import check_self_training, choose_seed, takes_any_shape, warn_about_data
from uulearn.estimator.resolving import resolve
from uulearn.exceptions import NonFiniteRiskError
from uulearn.metrics import Estimate, evaluate_labelled, uu_accuracy, uu_accuracy_difference
from uulearn.metrics.calibration import decision_values, fit_platt_scaling
from uulearn.risk.coefficients import EQUAL_PRIORS, check_set_priors, check_target_prior
from uulearn.selection import figures
from uulearn.selection.figures import LETTERS
from uulearn.training.batched import BatchedTrainer, Run
from uulearn.training.options import TrainingOptions

BASELINE = "baseline"

Scores = NDArray[np.float32]


class Assumption(NamedTuple):
    """Priors that are assumed to be true, and how they differ from the guess."""

    parameter: str
    error: float
    set_priors: tuple[float, float]
    target_prior: float

    @property
    def name(self) -> str:
        """Such as ``θ + 0.05``."""
        if self.parameter == BASELINE:
            return "your guess"
        return f"{LETTERS[self.parameter]} {'−' if self.error < 0 else '+'} {abs(self.error):g}"


class Skipped(NamedTuple):
    """A change of the priors that was not tried, and why."""

    assumption: Assumption
    reason: str


@dataclass(frozen=True)
class SensitivityRow:
    """The classifier that was trained as if the changed priors were true."""

    assumption: Assumption
    shown: Estimate
    """Accuracy that its user would see: estimated on the held-out rows with the priors it was trained with."""
    if_guess_right: Estimate
    """Accuracy of the same predictions, estimated with the guessed priors."""
    not_retrained: Estimate
    """Accuracy of the predictions of the *baseline*, estimated with the changed priors: the effect on the estimate."""
    gain: Estimate
    """``if_guess_right`` minus that of the baseline; more precise than either, since both use the same rows."""
    differing: float
    """Fraction of the held-out rows whose prediction differs from that of the baseline."""
    true: Estimate | None
    """Accuracy on labeled test rows; None without labels."""
    true_gain: Estimate | None
    """``true`` minus that of the baseline."""


@dataclass(frozen=True)
class Sensitivity:
    """How a classifier and its estimated accuracy depend on θ, θ′ and π; print it, `plot` it or use `to_frame`."""

    rows: tuple[SensitivityRow, ...]
    """The baseline first, then θ, θ′ and π, each sorted by error."""
    skipped: tuple[Skipped, ...]
    held_out_sizes: tuple[int, int]
    test_size: int
    """Number of labeled test rows."""
    test_prior: float | None
    """Fraction of positives among them."""
    batched: bool
    """Whether all runs were trained together."""
    seed: int

    @property
    def labels_used(self) -> bool:
        """Whether labels were passed; they are used for the true accuracy only."""
        return self.test_size > 0

    @property
    def baseline(self) -> SensitivityRow:
        """The row of the guess itself."""
        return self.rows[0]

    def along(self, parameter: str) -> list[SensitivityRow]:
        """The rows of ``"theta"``, ``"theta_prime"`` or ``"pi"`` sorted by error, including the baseline."""
        if parameter not in LETTERS:
            raise ValueError(f"parameter must be one of {', '.join(map(repr, LETTERS))}, got {parameter!r}.")
        chosen = [row for row in self.rows if row.assumption.parameter in (parameter, BASELINE)]
        return sorted(chosen, key=lambda row: row.assumption.error)

    @property
    def moved(self) -> dict[str, float]:
        """For each prior, the largest change of the accuracy shown; sorted, largest first."""
        moves: dict[str, float] = {}
        for row in self.rows[1:]:
            name = row.assumption.parameter
            moves[name] = max(moves.get(name, 0.0), abs(row.shown.value - self.baseline.shown.value))
        return dict(sorted(moves.items(), key=lambda item: -item[1]))

    @property
    def conclusion(self) -> str:
        """One sentence: which prior matters most, and by how much."""
        return figures.conclude(self)

    def __str__(self) -> str:
        return figures.tabulate(self)

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row per run; it has true accuracies if labels were passed."""
        return figures.frame(self)

    def plot(self, path: str | Path | None = None, ax: Sequence[Any] | None = None) -> Any:
        """A matplotlib figure with one panel each for θ, θ′ and π; written to ``path`` (PNG, SVG or PDF) if given.

        ``ax`` are three axes to draw into instead of a new figure.
        """
        return figures.draw(self, path, ax)


def prior_sensitivity(
    classifier: UUClassifier,
    X: Any,
    sets: Any,
    *,
    errors: Sequence[float] = defaults.SENSITIVITY_ERRORS,
    test_data: tuple[Any, Any] | None = None,
) -> Sensitivity:
    """Train the classifier again as if θ, θ′ or π had each of some errors, and compare.

    All runs share the seed and the held-out rows, so they differ in the changed prior only. Linear models and MLPs on
    dense rows are trained together (`uulearn.training.batched`); other models and ensembles one by one. Checkpoints are
    not written. If they are "auto", ``n_estimators`` is 1, ``validation_fraction`` 0.2 and ``early_stopping`` False.

    Parameters
    ----------
    classifier : UUClassifier
        Its ``set_priors`` and ``target_prior`` are the guess. It may be fitted or not, and is not changed.
    X : array, DataFrame, sparse matrix or tensor of shape (n, …)
        Rows of both sets.
    sets : array of shape (n,)
        The set that each row came from, 0 or 1. A ``validation_fraction`` of each set is held out, 0.2 if that is
        "auto" or 0.
    errors : sequence of float
        Added to each prior in turn. Values that cannot be a prior are skipped, and listed in the result.
    test_data : (X, y), optional
        Labeled rows of the target population, used for the true accuracy only.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sets = np.repeat([0, 1], 2000)
    >>> y = rng.random(4000) < np.where(sets == 0, 0.8, 0.2)  # not shown to the classifier
    >>> X = rng.normal(size=(4000, 2)) + 2 * y[:, None] - 1
    >>> clf = UUClassifier((0.8, 0.2), 0.5, model="linear", lr=0.05, epochs=60, random_state=0)
    >>> found = prior_sensitivity(clf, X, sets, errors=(-0.1, 0.1))
    >>> [(row.assumption.name, round(row.shown.value, 2), round(row.differing, 2)) for row in found.along("theta")]
    [('θ − 0.1', 1.02, 0.01), ('your guess', 0.93, 0.0), ('θ + 0.1', 0.87, 0.01)]
    """
    if not isinstance(classifier, UUClassifier):
        raise TypeError(
            f"classifier must be a UUClassifier, got {type(classifier).__name__}; for a pipeline, pass its last step, "
            "and X transformed by the steps before it."
        )
    parameters = _single_run(classifier)
    check_parameters(parameters)
    guess = Assumption(
        BASELINE, 0.0, check_set_priors(parameters["set_priors"]), check_target_prior(parameters["target_prior"])
    )
    assumed, skipped = alter_priors(guess, errors)
    any_shape = takes_any_shape(classifier.model)
    given = inputs.read_joint_table(X, sets, any_shape=any_shape, test_data=test_data)
    data, columns, test = given.data, given.columns, given.test
    assert isinstance(data, TwoSets)
    if test is not None:
        _check_both_classes(test[1])
    seed = _choose_seed(classifier)
    resolved = resolve(parameters, data.sizes, has_validation_data=True)
    check_self_training(resolved, data.sizes)
    if resolved.n_estimators > 1:
        check_fold_sizes(data.sizes, resolved.n_estimators)
    train, held_out = hold_out(data, resolved.validation_fraction or defaults.SENSITIVITY_FRACTION, seed)
    warn_about_data(train, guess.set_priors, guess.target_prior, test, seed, stacklevel=2)

    study = _Study(resolved, columns, seed, train, held_out, test)
    batched = study.can_be_batched()
    results = dict(zip(assumed, study.together(assumed) if batched else study.one_by_one(assumed), strict=True))
    return Sensitivity(
        rows=tuple(_evaluate(results, study)),
        skipped=(*skipped, *(Skipped(what, why) for what, why in results.items() if isinstance(why, str))),
        held_out_sizes=held_out.sizes,
        test_size=0 if test is None else len(test[1]),
        test_prior=None if test is None else float(test[1].double().mean()),
        batched=batched,
        seed=seed,
    )


def _single_run(classifier: UUClassifier) -> dict[str, Any]:
    """The parameters of each run: one model of the last epoch, unless the classifier asks for something else."""
    parameters: dict[str, Any] = classifier.get_params(deep=False)
    usual = {
        "n_estimators": defaults.N_ESTIMATORS if parameters["self_training_rounds"] else 1,
        "validation_fraction": defaults.SENSITIVITY_FRACTION,
        "early_stopping": False,
    }
    parameters |= {name: value for name, value in usual.items() if is_auto(parameters[name])}
    if isinstance(parameters["training"], TrainingOptions):
        parameters["training"] = dataclasses.replace(parameters["training"], checkpoint_dir=None)
    return parameters


def _check_both_classes(labels: Tensor) -> None:
    if bool((labels == labels[0]).all()):
        found = "positive" if labels[0] else "negative"
        raise ValueError(f"all rows of test_data are {found}, so there is no accuracy; pass rows of both classes.")


def _choose_seed(classifier: UUClassifier) -> int:
    """The seed of the last fit if it was random, else of the next fit."""
    if not isinstance(classifier.random_state, int | np.integer) and hasattr(classifier, "seed_"):
        return classifier.seed_
    return choose_seed({"random_state": copy.deepcopy(classifier.random_state), "training": None})


# -------------------------------------------------------------------------------------------------------- assumptions


def alter_priors(guess: Assumption, errors: Sequence[float]) -> tuple[list[Assumption], list[Skipped]]:
    """The guess, then θ, θ′ and π changed by each error; and the changes that cannot be true, with the reason.

    Examples
    --------
    >>> assumed, skipped = alter_priors(Assumption("baseline", 0.0, (0.95, 0.2), 0.5), (-0.1, 0.1))
    >>> [assumption.name for assumption in assumed]
    ['your guess', 'θ − 0.1', 'θ′ − 0.1', 'θ′ + 0.1', 'π − 0.1', 'π + 0.1']
    >>> skipped[0].assumption.name, skipped[0].reason
    ('θ + 0.1', '1.05 is not a fraction')
    """
    steps = check_errors(errors)
    assumed, skipped = [guess], []
    for place, parameter in enumerate(LETTERS):
        for error in steps:
            priors = [*guess.set_priors, guess.target_prior]
            priors[place] = round(priors[place] + error, 12)  # so that 0.9 + 0.1 is 1
            altered = Assumption(parameter, error, (priors[0], priors[1]), priors[2])
            objection = _objection(altered, guess)
            if objection is None:
                assumed.append(altered)
            else:
                skipped.append(Skipped(altered, objection))
    if len(assumed) == 1:
        reasons = "; ".join(f"{altered.name}: {reason}" for altered, reason in skipped)
        raise ValueError(f"errors={errors!r} leave no possible priors ({reasons}); use smaller errors.")
    return assumed, skipped


def _objection(altered: Assumption, guess: Assumption) -> str | None:
    """Why the changed priors cannot be true; None if they can."""
    (theta, theta_prime), pi = altered.set_priors, altered.target_prior
    for value in (theta, theta_prime):
        if not 0 <= value <= 1:
            return f"{value:g} is not a fraction"
    if not 0 < pi < 1:
        return f"π = {pi:g} is not strictly between 0 and 1"
    order = math.copysign(1.0, guess.set_priors[0] - guess.set_priors[1])
    if order * (theta - theta_prime) < EQUAL_PRIORS:
        return f"set {int(order < 0)} would no longer have the higher prior"
    return None


def check_errors(errors: Sequence[float]) -> list[float]:
    """The errors, sorted; a ValueError if they are not usable."""
    values = list(errors) if isinstance(errors, Sequence | np.ndarray) and not isinstance(errors, str) else [errors]
    for value in values:
        if not isinstance(value, Real) or not 0 < abs(float(value)) < 1:
            raise ValueError(
                f"errors must be numbers between -1 and 1 other than 0, got {value!r}; they are added to a class "
                "prior, for example errors=(-0.1, -0.05, 0.05, 0.1)."
            )
    if not values or len(set(values)) < len(values):
        raise ValueError(f"errors must be one number or more, each once, got {errors!r}.")
    return sorted(map(float, values))


# ---------------------------------------------------------------------------------------------------------- training


class _Scored(NamedTuple):
    """Decision values of all rows, and of the test rows."""

    rows: Scores
    test: Scores | None


@dataclass(frozen=True)
class _Study:
    """What all runs share. Both ways to train return, per assumption, scores or why there are none."""

    parameters: ResolvedParameters
    columns: Columns
    seed: int
    train: TwoSets
    held_out: TwoSets
    test: tuple[Rows, Tensor] | None

    @property
    def table(self) -> Rows:
        """All rows, those of set 0 and of set 1 in their original order."""
        return self.train.rows[0]

    def can_be_batched(self) -> bool:
        """Whether all runs can be trained together: a single network per run, on rows that fit a batch."""
        learner = make_learner(self.parameters)
        single = self.parameters.n_estimators == 1 and not self.parameters.self_training_rounds
        return single and isinstance(learner, NetworkLearner) and learner.can_be_batched(self.train)

    def together(self, assumed: Sequence[Assumption]) -> list[_Scored | str]:
        """All runs in one batched training."""
        learner = make_learner(self.parameters)
        assert isinstance(learner, NetworkLearner)
        assert isinstance(learner.model, str)
        table = _all_values(self.table)
        runs = [
            Run(
                _positions(self.train), priors, pi, learner.method, learner.slope, seed=self.seed,
                held_out=_positions(self.held_out),
            )
            for _, _, priors, pi in assumed
        ]  # fmt: skip
        trainer = BatchedTrainer(
            table,
            runs,
            model=learner.model,
            model_params=learner.model_params,
            loss=learner.loss,
            options=learner.run_options(self.seed),
        )
        reasons = [history.stop_reason or "" for history in trainer.run()]
        scores = trainer.scores(table).numpy()
        tests = None if self.test is None else trainer.scores(_all_values(self.test[0])).numpy()
        scored: list[_Scored | str] = []
        for place, (assumption, reason) in enumerate(zip(assumed, reasons, strict=True)):
            found = _Scored(scores[place], None if tests is None else tests[place])
            scored.append(reason if "not finite" in reason else self._calibrated(found, assumption))
        return scored

    def _calibrated(self, scored: _Scored, assumption: Assumption) -> _Scored:
        """Log-odds instead of scores, if the classifier is calibrated."""
        if not self.parameters.calibrated:
            return scored
        held_out, sets = _of_both_sets(scored.rows, self.held_out)
        line = fit_platt_scaling(held_out.astype(float), sets, assumption.set_priors, assumption.target_prior)
        return _Scored(
            decision_values(scored.rows, line), None if scored.test is None else decision_values(scored.test, line)
        )

    def one_by_one(self, assumed: Sequence[Assumption]) -> list[_Scored | str]:
        """One fit per assumption; an ensemble has its folds among the training rows."""
        scored: list[_Scored | str] = []
        for assumption in assumed:
            result = run_plan(self._plan(assumption))
            if isinstance(result.error, NonFiniteRiskError) and scored:  # not for the guess itself
                scored.append(result.history.stop_reason or "")
                continue
            if result.error is not None:
                raise result.error
            rows, test = (
                None if table is None else decision_values(result.model.score(table).numpy(), result.scaling)
                for table in (self.table, None if self.test is None else self.test[0])
            )
            assert rows is not None
            scored.append(_Scored(rows, test))
        return scored

    def _plan(self, assumption: Assumption) -> FitPlan:
        parameters = dataclasses.replace(
            self.parameters, set_priors=assumption.set_priors, target_prior=assumption.target_prior
        )
        learner = make_learner(parameters)
        learner.check(self.train, self.seed)
        if parameters.n_estimators == 1:
            data, validation, folds = self.train, self.held_out, None
        else:
            data, validation = self.train.joined(), None
            folds = assign_folds(data, parameters.n_estimators, self.seed)
        return FitPlan(parameters, {}, learner, data, validation, folds, self.seed, self.columns)


def _positions(data: TwoSets) -> tuple[Tensor, Tensor]:
    """Positions, in the table of all rows, of the rows of set 0 and of set 1."""
    first, second = data.index
    assert first is not None
    assert second is not None
    return first, second


def _all_values(rows: Rows) -> Tensor:
    """All rows as one tensor."""
    return rows.tensor if isinstance(rows, DenseRows) else rows.slice(0, rows.n_rows)


def _of_both_sets(scores: Scores, data: TwoSets) -> tuple[Scores, NDArray[np.int64]]:
    """The scores of these rows of both sets, and the set of each."""
    return scores[torch.cat(_positions(data)).numpy()], np.repeat([0, 1], data.sizes)


# ----------------------------------------------------------------------------------------------------------- evaluation


def _evaluate(results: Mapping[Assumption, _Scored | str], study: _Study) -> list[SensitivityRow]:
    """A row for every run that has scores; the guess, which comes first, must have some."""
    guess, baseline = next(iter(results.items()))
    if isinstance(baseline, str):
        raise NonFiniteRiskError(
            f"with the guessed priors, {baseline}; lower lr (now {study.parameters.lr:g}), scale the columns, or use "
            "another method than 'unbiased'."
        )
    decisions, _ = _of_both_sets(baseline.rows, study.train)
    guards.warn_if_one_sided(
        decisions,
        study.train.sizes,
        guess.set_priors,
        guess.target_prior,
        log_odds=study.parameters.calibrated,
        stacklevel=3,
    )
    found = {assumption: scored for assumption, scored in results.items() if not isinstance(scored, str)}
    return [_row(assumption, scored, guess, baseline, study) for assumption, scored in found.items()]


def _row(
    assumption: Assumption, scored: _Scored, guess: Assumption, baseline: _Scored, study: _Study
) -> SensitivityRow:
    (mine, sets), (usual, _) = (_of_both_sets(scores.rows, study.held_out) for scores in (scored, baseline))
    assumed, guessed = assumption[2:], guess[2:]
    true, true_gain = None, None
    if study.test is not None:
        labels = study.test[1].numpy()
        true = evaluate_labelled(scored.test, labels).accuracy
        # Labels are two sets, one with prior 1 and one with prior 0, at the prior of the test rows.
        true_gain = uu_accuracy_difference(scored.test, baseline.test, 1 - labels, (1.0, 0.0), float(labels.mean()))
    return SensitivityRow(
        assumption,
        shown=uu_accuracy(mine, sets, *assumed),
        if_guess_right=uu_accuracy(mine, sets, *guessed),
        not_retrained=uu_accuracy(usual, sets, *assumed),
        gain=uu_accuracy_difference(mine, usual, sets, *guessed),
        differing=float(((mine > 0) != (usual > 0)).mean()),
        true=true,
        true_gain=true_gain,
    )
