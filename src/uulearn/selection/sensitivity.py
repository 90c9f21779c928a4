"""Measure the effect of wrong class priors by training the classifier again for each error.

θ, θ′ and π are used twice: in the risk that is minimized, and in the estimate of the accuracy. `prior_sensitivity`
changes one prior at a time, trains with the changed value, and reports both effects.
"""

import copy
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from uulearn import defaults
from uulearn.data import Rows, TwoSets, hold_out
from uulearn.data.inputs import FitData
from uulearn.estimator import FitPlan, UUClassifier, check_parameters, make_plan, run_plan
from uulearn.estimator.fitting import warn_if_one_sided
from uulearn.estimator.learners import NetworkLearner, make_learner
from uulearn.estimator.parameters import is_auto, without_comparison
from uulearn.estimator.plan import choose_seed
from uulearn.estimator.reading import read_joint_table
from uulearn.exceptions import NonFiniteRiskError, TimeBudgetError
from uulearn.markup import notebook
from uulearn.metrics import Estimate, evaluate_labeled, uu_accuracy, uu_accuracy_difference
from uulearn.metrics.calibration import decision_values, fit_platt_scaling
from uulearn.risk.coefficients import EQUAL_PRIORS, check_set_priors, check_target_prior
from uulearn.selection import figures
from uulearn.selection.figures import LETTERS
from uulearn.training.batched import BatchedTrainer, Run
from uulearn.training.options import TrainingOptions, resolve_device
from uulearn.training.progress import format_duration
from uulearn.training.workers import Workers, join_workers

# Parameter name of the assumption with unchanged priors.
BASELINE = "baseline"
# Minimum number of models within a time budget: the baseline and the two most informative changes.
MIN_MODELS = 3

# Clock of the time budget, in seconds; it never goes back.
read_clock = time.monotonic

Scores = NDArray[np.float32]


class Assumption(NamedTuple):
    """Class priors that a run assumes to be true, and their difference from the guess."""

    parameter: str
    error: float
    set_priors: tuple[float, float]
    target_prior: float

    @property
    def name(self) -> str:
        """Name of the change, such as ``θ + 0.05``."""
        if self.parameter == BASELINE:
            return "your guess"
        return f"{LETTERS[self.parameter]} {'−' if self.error < 0 else '+'} {abs(self.error):g}"


class Skipped(NamedTuple):
    """Change of the priors that was skipped, with the reason."""

    assumption: Assumption
    reason: str


@dataclass(frozen=True)
class SensitivityRow:
    """Results of the classifier that was trained as if the changed priors were true."""

    assumption: Assumption
    shown: Estimate
    """Accuracy on the held-out rows, estimated with the priors used in training. This is the value that a user sees."""
    if_guess_right: Estimate
    """Accuracy of the same predictions, estimated with the guessed priors."""
    not_retrained: Estimate
    """Accuracy of the baseline's predictions, estimated with the changed priors."""
    gain: Estimate
    """``if_guess_right`` minus the baseline's ``if_guess_right``, estimated on the same rows."""
    differing: float
    """Fraction of the held-out rows for which this classifier and the baseline predict different classes."""
    true: Estimate | None
    """Accuracy on labeled test rows; None if no labels were passed."""
    true_gain: Estimate | None
    """``true`` minus the true accuracy of the baseline; None if no labels were passed."""


@dataclass(frozen=True)
class Sensitivity:
    """Dependence of a classifier and its estimated accuracy on θ, θ′ and π; see also `plot` and `to_frame`."""

    rows: tuple[SensitivityRow, ...]
    """The baseline, followed by the changes of θ, θ′ and π, each sorted by error."""
    skipped: tuple[Skipped, ...]
    held_out_sizes: tuple[int, int]
    test_size: int
    test_prior: float | None
    """Fraction of positives among the test rows."""
    batched: bool
    """Whether all runs were trained together."""
    seed: int
    left_out: tuple[Assumption, ...] = ()
    """Changes that did not fit in the time budget."""
    budget_note: str | None = None
    """Number of measured changes and the times, if some changes did not fit in the time budget."""

    @property
    def labels_used(self) -> bool:
        """Whether labels were passed."""
        return self.test_size > 0

    @property
    def baseline(self) -> SensitivityRow:
        """The result for the guessed priors."""
        return self.rows[0]

    def along(self, parameter: str) -> list[SensitivityRow]:
        """Return the rows of ``"theta"``, ``"theta_prime"`` or ``"pi"`` sorted by error, including the baseline."""
        if parameter not in LETTERS:
            raise ValueError(f"parameter must be one of {', '.join(map(repr, LETTERS))}, got {parameter!r}.")
        chosen = [row for row in self.rows if row.assumption.parameter in (parameter, BASELINE)]
        return sorted(chosen, key=lambda row: row.assumption.error)

    @property
    def moved(self) -> dict[str, float]:
        """Largest change of the accuracy ``shown`` for each prior, in decreasing order."""
        changes = {
            name: [abs(row.shown.unclipped - self.baseline.shown.unclipped) for row in self.along(name)]
            for name in LETTERS
        }
        moves = {name: max(values) for name, values in changes.items() if len(values) > 1}
        return dict(sorted(moves.items(), key=lambda item: -item[1]))

    @property
    def conclusion(self) -> str:
        """A sentence that says which prior has the largest effect, and how large the effect is."""
        return figures.conclude(self)

    def __str__(self) -> str:
        return figures.tabulate(self)

    def _repr_html_(self) -> str:
        bars = [row.shown.bar(row.assumption.name) for row in self.rows]
        text = "Accuracy on held-out rows, as it is estimated if each changed prior is used."
        return notebook.join(notebook.bar_table(bars), notebook.note(text), notebook.note(self.conclusion))

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per run; it includes true accuracies if labels were passed."""
        return figures.frame(self)

    def plot(self, path: str | Path | None = None, ax: Sequence[Any] | None = None) -> Any:
        """Draw a matplotlib figure with three panels, in the axes ``ax`` if given, and save it to ``path`` if given."""
        return figures.draw(self, path, ax)


def prior_sensitivity(
    classifier: UUClassifier,
    X: Any,
    sets: Any,
    *,
    errors: Sequence[float] = defaults.SENSITIVITY_ERRORS,
    test_data: tuple[Any, Any] | None = None,
    seconds: float | None = None,
) -> Sensitivity:
    """Train the classifier again with each error added to θ, θ′ or π, and compare the results.

    All runs share the seed and the held-out rows, so they differ only in the changed prior. On dense rows, linear
    models and, on CUDA devices, MLPs are trained together (`uulearn.training.batched`). Other models and ensembles are
    trained one by one, without checkpoints. "auto" means ``n_estimators=1``, ``validation_fraction=0.2`` and
    ``early_stopping=False``.

    Parameters
    ----------
    classifier : UUClassifier
        Classifier to study; it is not changed. Its ``set_priors`` and ``target_prior`` are the guessed priors.
    X : array, DataFrame, sparse matrix or tensor of shape (n, …)
        Rows of both sets.
    sets : array of shape (n,)
        The set of each row, 0 or 1. The fraction ``validation_fraction`` of each set is held out (0.2 if it is 0).
    errors : sequence of float
        Errors that are added to each prior in turn. Impossible priors are skipped and listed in the result.
    test_data : (X, y), optional
        Labeled rows of the target population, used only for the true accuracy.
    seconds : float, optional
        Time budget. Large errors of θ are measured first, then those of θ′ and π, then smaller errors, until the next
        model is expected to end too late. If not even three models fit, a `TimeBudgetError` is raised.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sets = np.repeat([0, 1], 2000)
    >>> y = rng.random(4000) < np.where(sets == 0, 0.8, 0.2)  # not shown to the classifier
    >>> X = rng.normal(size=(4000, 2)) + 2 * y[:, None] - 1
    >>> clf = UUClassifier((0.8, 0.2), 0.5, model="linear", lr=0.05, epochs=60, random_state=0)
    >>> found = prior_sensitivity(clf, X, sets, errors=(-0.1, 0.1))
    >>> [(row.assumption.name, round(row.shown.value, 2)) for row in found.along("theta")]
    [('θ − 0.1', 0.99), ('your guess', 0.93), ('θ + 0.1', 0.87)]
    """
    if not isinstance(classifier, UUClassifier):
        raise TypeError(
            f"classifier must be a UUClassifier, got {type(classifier).__name__}; for a pipeline, pass its last step, "
            "and X transformed by the steps before it."
        )
    if seconds is not None and (not isinstance(seconds, Real) or not float(seconds) > 0):
        raise ValueError(f"seconds must be a positive number or None (no time budget), got {seconds!r}.")
    started = read_clock()
    parameters = _single_run(classifier)
    check_parameters(parameters)
    guess = Assumption(
        BASELINE, 0.0, check_set_priors(parameters["set_priors"]), check_target_prior(parameters["target_prior"])
    )
    assumed, skipped = alter_priors(guess, errors)
    study = _train_all(parameters, assumed, X, sets, test_data, None if seconds is None else (started, float(seconds)))
    labels = None if study.plan.test is None else study.plan.test[1]
    return Sensitivity(
        rows=tuple(_evaluate(study.results, study)),
        skipped=(*skipped, *(Skipped(what, why) for what, why in study.results.items() if isinstance(why, str))),
        held_out_sizes=study.held_out.sizes,
        test_size=0 if labels is None else len(labels),
        test_prior=None if labels is None else float(labels.double().mean()),
        batched=study.batched,
        seed=study.plan.seed,
        left_out=tuple(altered for altered in assumed if altered not in study.results),
        budget_note=study.budget_note,
    )


def _single_run(classifier: UUClassifier) -> dict[str, Any]:
    """Return the parameters of each run; by default, a run trains one model without early stopping."""
    parameters: dict[str, Any] = classifier.get_params(deep=False)
    usual = {
        "n_estimators": defaults.N_ESTIMATORS if parameters["self_training_rounds"] else 1,
        "validation_fraction": defaults.SENSITIVITY_FRACTION,
        "early_stopping": False,
    }
    parameters |= {name: value for name, value in usual.items() if is_auto(parameters[name])}
    parameters["consistency"] = without_comparison(parameters["consistency"], used=False)
    if is_auto(parameters["model"]):
        parameters |= {"model": None, "model_params": defaults.AUTO}
    if parameters["model"] is None:
        parameters["model"] = defaults.MODEL  # a single model cannot be compared with others
    if isinstance(parameters["training"], TrainingOptions):
        parameters["training"] = dataclasses.replace(parameters["training"], checkpoint_dir=None)
    # Use the seed of the last fit if it was random, otherwise the seed of the next fit.
    if not isinstance(classifier.random_state, int | np.integer):
        state = {"random_state": copy.deepcopy(classifier.random_state), "training": None}
        parameters["random_state"] = classifier.seed_ if hasattr(classifier, "seed_") else choose_seed(state)
    return parameters


def alter_priors(guess: Assumption, errors: Sequence[float]) -> tuple[list[Assumption], list[Skipped]]:
    """Return the guess, the guess with each error added to θ, θ′ or π, and the impossible changes with reasons."""
    steps = check_errors(errors)
    assumed, skipped = [guess], []
    for place, parameter in enumerate(LETTERS):
        for error in steps:
            priors = [*guess.set_priors, guess.target_prior]
            priors[place] = round(priors[place] + error, 12)  # 0.9 + 0.1 becomes exactly 1
            altered = Assumption(parameter, error, (priors[0], priors[1]), priors[2])
            if objection := _objection(altered, guess):
                skipped.append(Skipped(altered, objection))
            else:
                assumed.append(altered)
    if len(assumed) == 1:
        reasons = "; ".join(f"{altered.name}: {reason}" for altered, reason in skipped)
        raise ValueError(f"errors={errors!r} give only impossible priors ({reasons}); use smaller errors.")
    return assumed, skipped


def _objection(altered: Assumption, guess: Assumption) -> str | None:
    """Return the reason why the changed priors are impossible, or None if they are possible."""
    (theta, theta_prime), pi = altered.set_priors, altered.target_prior
    if outside := [value for value in (theta, theta_prime) if not 0 <= value <= 1]:
        return f"{outside[0]:g} is not between 0 and 1"
    if not 0 < pi < 1:
        return f"π = {pi:g} is not strictly between 0 and 1"
    order = math.copysign(1.0, guess.set_priors[0] - guess.set_priors[1])
    if order * (theta - theta_prime) < EQUAL_PRIORS:
        return f"set {int(order < 0)} would no longer have the higher prior"
    return None


def check_errors(errors: Sequence[float]) -> list[float]:
    """Return the sorted errors; raise a ValueError if they are invalid."""
    values = list(errors) if isinstance(errors, Sequence | np.ndarray) and not isinstance(errors, str) else [errors]
    if odd := [value for value in values if not isinstance(value, Real) or not 0 < abs(float(value)) < 1]:
        raise ValueError(
            f"errors must be numbers between -1 and 1 other than 0, got {odd[0]!r}; they are added to a class prior, "
            "for example errors=(-0.1, -0.05, 0.05, 0.1)."
        )
    if not values or len(set(values)) < len(values):
        raise ValueError(f"errors must contain at least one number and no duplicates, got {errors!r}.")
    return sorted(map(float, values))


def order_by_information(assumed: Sequence[Assumption]) -> list[Assumption]:
    """Return the guess, followed by the changes in decreasing order of their expected effect on the estimate.

    Larger errors come first. Of equal errors, those of θ come first, then θ′ and π, and set priors that are closer to
    each other before set priors that are further apart. The first changes of a prior have different directions: one
    raises the estimate and the other lowers it.
    """
    guess, *changes = assumed

    def distance(assumption: Assumption) -> float:
        return abs(assumption.set_priors[0] - assumption.set_priors[1])

    def key(altered: Assumption) -> tuple[float, int, bool]:
        return -abs(altered.error), list(LETTERS).index(altered.parameter), distance(altered) > distance(guess)

    return [guess, *sorted(changes, key=key)]


class _Scored(NamedTuple):
    """Decision values of all rows, and of the test rows."""

    rows: Scores
    test: Scores | None = None


Results = dict[Assumption, _Scored | str]


@dataclass(frozen=True)
class _Budget:
    """Time budget of all runs; if several processes train together, the clock and budget of the first one decide."""

    started: float
    seconds: float
    workers: Workers | None

    def elapsed(self) -> float:
        """Return the number of seconds since the start, the same in all processes."""
        passed = read_clock() - self.started
        return passed if self.workers is None else float(self.workers.broadcast(passed))

    def train(
        self, assumed: Sequence[Assumption], train: Callable[[Sequence[Assumption]], Results], batched: bool
    ) -> tuple[Results, str | None]:
        """Train the runs that fit in the budget, the most informative first; return a note if some did not fit."""
        waiting = order_by_information(assumed)
        least = number = min(MIN_MODELS, len(waiting))
        results: Results = {}
        while waiting and number:
            at_once = number if batched else 1
            results |= train(waiting[:at_once])
            waiting = waiting[at_once:]
            passed, done = self.elapsed(), len(results)
            number = int(done * self.seconds / passed) - done if passed > 0 else len(waiting)
            number = max(0, number)  # of models that are expected to end in time, from the mean time so far
            if done < least and done + number < least:
                times = f"{done} took {format_duration(passed)}" if done else "training them took more than that"
                raise TimeBudgetError(
                    f"A time budget of {format_duration(self.seconds)} is too short: the analysis trains at least "
                    f"{least} models, and {times}."
                )
        results = {assumption: results[assumption] for assumption in assumed if assumption in results}
        if len(results) == len(assumed):
            return results, None
        note = (
            f"{len(results) - 1} of {len(assumed) - 1} changes of the priors were measured in "
            f"{format_duration(passed)}; the others did not fit in the time budget of {format_duration(self.seconds)}"
        )
        return results, note


@dataclass(frozen=True)
class _Study:
    """Data shared by all runs, and the scores for each assumption or the reason why they are missing."""

    plan: FitPlan
    """The plan for the guessed priors."""
    train: TwoSets
    held_out: TwoSets
    results: Results
    batched: bool
    budget_note: str | None = None


def _train_all(
    parameters: dict[str, Any],
    assumed: Sequence[Assumption],
    X: Any,
    sets: Any,
    test_data: Any,
    allowed: tuple[float, float] | None,
) -> _Study:
    """Read the rows, hold some out, and train the runs, together if possible.

    ``allowed`` contains the start and the length of the time budget, if there is one.
    """
    given = read_joint_table(parameters, X, sets, test_data=test_data)
    assert isinstance(given.data, TwoSets)
    if given.test is not None and bool((given.test[1] == given.test[1][0]).all()):
        found = "positive" if given.test[1][0] else "negative"
        raise ValueError(f"all rows of test_data are {found}; pass rows of both classes to compute the accuracy.")
    fraction = parameters["validation_fraction"] or defaults.SENSITIVITY_FRACTION
    train, held_out = hold_out(given.data, fraction, parameters["random_state"])
    validation = held_out if parameters["n_estimators"] == 1 else None  # an ensemble is validated out of fold
    plan = make_plan(parameters, FitData(train, given.columns, validation, given.test))
    # All rows in their original order and, if given, the test rows.
    tables = [train.rows[0], *([] if plan.test is None else [plan.test[0]])]
    learner = plan.learner
    batched = (
        plan.folds is None
        and isinstance(learner, NetworkLearner)
        and learner.can_be_batched(train)
        and is_faster_together(learner)
    )
    budget = None
    if allowed is not None:
        started, seconds = allowed
        workers = join_workers(plan.parameters.training.distributed, resolve_device(plan.parameters.device))
        budget = _Budget(started, seconds if workers is None else float(workers.broadcast(seconds)), workers)

    def train_runs(chosen: Sequence[Assumption]) -> Results:
        if batched:
            return _train_together(plan, chosen, train, held_out, tables, budget)
        return _train_one_by_one(plan, chosen, tables)

    results, note = (train_runs(assumed), None) if budget is None else budget.train(assumed, train_runs, batched)
    return _Study(plan, train, held_out, results, batched, note)


def is_faster_together(learner: NetworkLearner) -> bool:
    """Return whether it is faster to train several models together than one by one.

    On a CPU, the matrix products of MLPs take most of the time, and one MLP after the other is faster.
    """
    return learner.model == "linear" or torch.device(learner.options.device).type == "cuda"


def _train_together(
    plan: FitPlan,
    assumed: Sequence[Assumption],
    train: TwoSets,
    held_out: TwoSets,
    tables: Sequence[Rows],
    budget: _Budget | None,
) -> Results:
    """Train all runs together; if the time budget ends before the last epoch, stop and return no results."""
    learner, index, late = cast(NetworkLearner, plan.learner), train.positions, False

    def stop_if_late(epoch: int, _: object) -> bool:
        nonlocal late
        late = budget is not None and epoch < learner.options.epochs and budget.elapsed() > budget.seconds
        return late

    trainer = BatchedTrainer(
        tables[0].slice(0, tables[0].n_rows),
        [
            Run(index, priors, pi, learner.method, learner.slope, seed=plan.seed, held_out=held_out.positions)
            for _, _, priors, pi in assumed
        ],
        model=cast(str, learner.model),
        model_params=learner.model_params,
        loss=learner.loss,
        options=learner.run_options(plan.seed),
        callback=stop_if_late,
    )
    reasons = [history.stop_reason or "" for history in trainer.run()]
    if late:
        return {}
    scores = [trainer.scores(table.slice(0, table.n_rows)).numpy() for table in tables]
    results: Results = {}
    for place, (assumption, reason) in enumerate(zip(assumed, reasons, strict=True)):
        own = [part[place] for part in scores]
        if plan.parameters.calibrated and "not finite" not in reason:
            decided, membership = _of_both_sets(own[0], held_out)
            line = fit_platt_scaling(decided.astype(float), membership, assumption.set_priors, assumption.target_prior)
            own = [decision_values(part, line) for part in own]
        results[assumption] = reason if "not finite" in reason else _Scored(*own)
    return results


def _train_one_by_one(plan: FitPlan, assumed: Sequence[Assumption], tables: Sequence[Rows]) -> Results:
    """Fit one classifier per assumption; an ensemble splits the training rows into folds."""
    results: Results = {}
    for assumption in assumed:
        parameters = dataclasses.replace(
            plan.parameters, set_priors=assumption.set_priors, target_prior=assumption.target_prior
        )
        own = dataclasses.replace(plan, parameters=parameters, learner=make_learner(parameters), test=None)
        result = run_plan(own, with_reference=False)
        if isinstance(result.error, NonFiniteRiskError) and assumption.parameter != BASELINE:
            results[assumption] = result.history.stop_reason or ""
        elif result.error is not None:
            raise result.error
        else:
            found = [decision_values(result.model.score(rows).numpy(), result.scaling) for rows in tables]
            results[assumption] = _Scored(*found)
    return results


def _of_both_sets(scores: Scores, data: TwoSets) -> tuple[Scores, NDArray[np.int64]]:
    """Return the scores of the rows in ``data``, and the set of each row."""
    return scores[torch.cat(data.positions).numpy()], np.repeat([0, 1], data.sizes)


def _evaluate(results: Mapping[Assumption, _Scored | str], study: _Study) -> list[SensitivityRow]:
    """Return one result per run that has scores; raise an error if the run with the guessed priors has no scores."""
    guess, baseline = next(iter(results.items()))
    if isinstance(baseline, str):
        raise NonFiniteRiskError(
            f"with the guessed priors, {baseline}; lower lr (now {study.plan.parameters.lr:g}), scale the columns, or "
            "use a method other than 'unbiased'."
        )
    decisions, _ = _of_both_sets(baseline.rows, study.train)
    guessed, calibrated = guess[2:], study.plan.parameters.calibrated
    warn_if_one_sided(decisions, study.train.sizes, *guessed, log_odds=calibrated, stacklevel=3)
    usual, sets = _of_both_sets(baseline.rows, study.held_out)
    rows = []
    for assumption, scored in results.items():
        if isinstance(scored, str):
            continue
        mine, _ = _of_both_sets(scored.rows, study.held_out)
        assumed, true, true_gain = assumption[2:], None, None
        if study.plan.test is not None:
            labels = study.plan.test[1].numpy()
            true = evaluate_labeled(scored.test, labels).accuracy
            # Labeled rows form two sets with priors 1 and 0; the target prior is the class prior of the test rows.
            true_gain = uu_accuracy_difference(scored.test, baseline.test, 1 - labels, (1.0, 0.0), float(labels.mean()))
        rows.append(
            SensitivityRow(
                assumption,
                shown=uu_accuracy(mine, sets, *assumed),
                if_guess_right=uu_accuracy(mine, sets, *guessed),
                not_retrained=uu_accuracy(usual, sets, *assumed),
                gain=uu_accuracy_difference(mine, usual, sets, *guessed),
                differing=float(((mine > 0) != (usual > 0)).mean()),
                true=true,
                true_gain=true_gain,
            )
        )
    return rows
