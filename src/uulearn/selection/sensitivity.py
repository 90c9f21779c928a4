"""What if the priors are wrong? The classifier trained again under each doubt, all of them in one stack.

θ, θ′ and π enter twice: in the risk that is minimised, and in the estimate that tells how good the result is.
`prior_sensitivity` alters one of them at a time, trains as if that were true, and lays both effects side by side.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from uulearn.data import DenseRows, Rows, SparseRows, TwoSets, hold_out
from uulearn.estimator import UUClassifier, guards, inputs
from uulearn.estimator.resolving import is_auto
from uulearn.exceptions import (
    ClosePriorsWarning,
    IndistinguishableSetsWarning,
    NonFiniteRiskError,
    OneSidedPredictionsWarning,
)
from uulearn.metrics import Estimate, evaluate_labelled, uu_accuracy, uu_accuracy_difference
from uulearn.metrics.calibration import fit_platt_scaling
from uulearn.risk.coefficients import EQUAL_PRIORS, check_set_priors, check_target_prior, warn_if_close
from uulearn.selection import figures
from uulearn.selection.figures import LETTERS
from uulearn.training.batched import BatchedTrainer, Run
from uulearn.training.batched.out_of_fold import can_be_batched

ERRORS = (-0.1, -0.05, 0.05, 0.1)
BASELINE = "baseline"
HELD_OUT = 0.2
"""Share of rows held out where the classifier holds out none."""
TOLD_ONCE = (ClosePriorsWarning, IndistinguishableSetsWarning, OneSidedPredictionsWarning)
"""What is said of the guess and its rows, and not again of every run."""

Scores = NDArray[np.float32]


class Assumption(NamedTuple):
    """Priors that are taken as true, and in what they differ from the guess."""

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
    """An alteration that has no row, and why."""

    assumption: Assumption
    reason: str


@dataclass(frozen=True)
class SensitivityRow:
    """What became of the classifier that was trained as if the altered priors were true."""

    assumption: Assumption
    shown: Estimate
    """Accuracy that its user would be shown: estimated on the held-out rows under the priors it was trained with."""
    if_guess_right: Estimate
    """Accuracy of the same predictions, estimated under the guess."""
    not_retrained: Estimate
    """Accuracy of the *baseline's* predictions under the altered priors: the effect on the estimate alone."""
    gain: Estimate
    """``if_guess_right`` minus the baseline's, which is known better than either: both were evaluated on the same rows."""
    differing: float
    """Share of the held-out rows that are predicted otherwise than by the baseline."""
    true: Estimate | None
    """Share of labelled test rows that are predicted right; None without labels."""
    true_gain: Estimate | None
    """``true`` minus the baseline's."""


@dataclass(frozen=True)
class Sensitivity:
    """How a classifier and its estimated accuracy depend on θ, θ′ and π: ``print`` it, `plot` it, or `to_frame`."""

    rows: tuple[SensitivityRow, ...]
    """The baseline first, then θ, θ′ and π, each by rising error."""
    skipped: tuple[Skipped, ...]
    held_out_sizes: tuple[int, int]
    test_size: int
    """Number of labelled test rows."""
    test_prior: float | None
    """Share of positives among them."""
    stacked: bool
    """Whether all runs were trained together."""
    seed: int

    @property
    def labels_used(self) -> bool:
        """Whether labels were passed; the true accuracy is all that they are used for."""
        return self.test_size > 0

    @property
    def baseline(self) -> SensitivityRow:
        """The row of the guess itself."""
        return self.rows[0]

    def along(self, parameter: str) -> list[SensitivityRow]:
        """The rows of ``"theta"``, ``"theta_prime"`` or ``"pi"`` by rising error, the baseline among them."""
        if parameter not in LETTERS:
            raise ValueError(f"parameter must be one of {', '.join(map(repr, LETTERS))}, got {parameter!r}.")
        chosen = [row for row in self.rows if row.assumption.parameter in (parameter, BASELINE)]
        return sorted(chosen, key=lambda row: row.assumption.error)

    @property
    def moved(self) -> dict[str, float]:
        """For each prior that was altered, how far the accuracy shown moves at most; the largest first."""
        moves: dict[str, float] = {}
        for row in self.rows[1:]:
            name = row.assumption.parameter
            moves[name] = max(moves.get(name, 0.0), abs(row.shown.value - self.baseline.shown.value))
        return dict(sorted(moves.items(), key=lambda item: -item[1]))

    @property
    def conclusion(self) -> str:
        """Which prior matters most here, and by how much, in a sentence."""
        return figures.conclude(self)

    def __str__(self) -> str:
        return figures.tabulate(self)

    def to_frame(self) -> Any:
        """A pandas DataFrame with one line a run; true accuracies are among its columns where labels were passed."""
        return figures.frame(self)

    def plot(self, path: str | Path | None = None, ax: Sequence[Any] | None = None) -> Any:
        """One matplotlib figure, a panel each for θ, θ′ and π; written to ``path`` (PNG, SVG or PDF) if one is given.

        ``ax`` are three axes to draw into, in place of a figure of its own.
        """
        return figures.draw(self, path, ax)


def prior_sensitivity(
    classifier: UUClassifier,
    X: Any,
    sets: Any,
    *,
    errors: Sequence[float] = ERRORS,
    test_data: tuple[Any, Any] | None = None,
) -> Sensitivity:
    """Train the classifier again as if θ, θ′ or π were off by each of some errors, and compare.

    All runs share the seed and the held-out rows, so that they differ by the altered prior and nothing else. Linear
    models and MLPs on dense rows are trained together (`uulearn.training.batched`); other models, and classifiers of
    several members, one by one. Checkpoints are not written. Where ``members``, ``validation_fraction`` or ``keep`` is
    "auto", each run is one model, a fifth of the rows evaluates it, and the last epoch is kept.

    Parameters
    ----------
    classifier : UUClassifier
        Its ``set_priors`` and ``target_prior`` are the guess. It may be fitted or not, and is left as it is.
    X : array, DataFrame, sparse matrix or tensor of shape (n, …)
        Rows of both sets.
    sets : array of shape (n,)
        The set that each row came from, 0 or 1. Of each set a ``validation_fraction`` is held out, a fifth where that
        is "auto" or 0.
    errors : sequence of float
        Added to each prior in turn. What cannot be a prior is skipped, and named in the result.
    test_data : (X, y), optional
        Labelled rows from where the classifier will be used, to see the true accuracy; they serve nothing else.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> sets = np.repeat([0, 1], 2000)
    >>> y = rng.random(4000) < np.where(sets == 0, 0.8, 0.2)  # what nobody knows
    >>> X = rng.normal(size=(4000, 2)) + 2 * y[:, None] - 1
    >>> clf = UUClassifier((0.8, 0.2), 0.5, model="linear", lr=0.05, epochs=60, random_state=0)
    >>> found = prior_sensitivity(clf, X, sets, errors=(-0.1, 0.1))
    >>> [(row.assumption.name, round(row.shown.value, 2), round(row.differing, 2)) for row in found.along("theta")]
    [('θ − 0.1', 1.02, 0.01), ('your guess', 0.93, 0.0), ('θ + 0.1', 0.87, 0.01)]
    """
    if not isinstance(classifier, UUClassifier):
        raise TypeError(
            f"classifier must be a UUClassifier, got {type(classifier).__name__}; of a pipeline pass the last step, "
            "with X as the steps before it leave it."
        )
    plain = clone(classifier).set_params(checkpoint_dir=None)
    columns = plain._unfitted()  # which checks the parameters
    guess = Assumption(BASELINE, 0.0, check_set_priors(plain.set_priors), check_target_prior(plain.target_prior))
    assumed, skipped = alter_priors(guess, errors)
    rows = columns._read(X, "X", reset=True)
    data = TwoSets.from_membership(rows, inputs.read_sets(sets, rows.n_rows))
    inputs.check_set_sizes(data.sizes)
    test = columns._read_held_out(test_data, "test_data", inputs.read_labels)
    if test is not None:
        _check_both_classes(test[1])
    seed = _seed(classifier, plain)
    plain = _settled(plain, data.sizes)
    kept, held_out = hold_out(data, plain.validation_fraction or HELD_OUT, seed)
    _warn_of_data(kept, guess, test, seed)

    study = _Study(plain.set_params(random_state=seed), rows, _numbers(kept), _numbers(held_out), test)
    # A single member has no rounds of refinement: `fit` refuses them.
    stacked = plain.members == 1 and not plain.rounds and can_be_batched(plain.model, data, plain._options(seed))
    results = dict(zip(assumed, study.together(assumed) if stacked else study.one_by_one(assumed), strict=True))
    return Sensitivity(
        rows=tuple(_is_evaluated(results, study)),
        skipped=(*skipped, *(Skipped(what, why) for what, why in results.items() if isinstance(why, str))),
        held_out_sizes=held_out.sizes,
        test_size=0 if test is None else len(test[1]),
        test_prior=None if test is None else float(test[1].double().mean()),
        stacked=stacked,
        seed=seed,
    )


def _settled(classifier: UUClassifier, sizes: tuple[int, int]) -> UUClassifier:
    """What is "auto", settled: one model, so that all can be a stack, of the last epoch, since held-out rows evaluate."""
    usual = {"members": 5 if classifier.rounds else 1, "validation_fraction": HELD_OUT, "keep": "last"}
    chosen = {name: value for name, value in usual.items() if is_auto(getattr(classifier, name))}
    settled: UUClassifier = classifier.set_params(**chosen)._settled(sizes, held_out=True)
    return settled


def _check_both_classes(labels: Tensor) -> None:
    if bool((labels == labels[0]).all()):
        found = "positive" if labels[0] else "negative"
        raise ValueError(f"all rows of test_data are {found}, which tells no accuracy; pass rows of both classes.")


def _seed(classifier: UUClassifier, plain: UUClassifier) -> int:
    """The seed of the fit that was made, else of the one that would be."""
    if not isinstance(classifier.random_state, int | np.integer) and hasattr(classifier, "seed_"):
        return classifier.seed_
    return plain._choose_seed()


def _warn_of_data(kept: TwoSets, guess: Assumption, test: tuple[Rows, Tensor] | None, seed: int) -> None:
    """What `UUClassifier.fit` would say of these rows and the guess, once for all runs."""
    warn_if_close(guess.set_priors, guess.target_prior, kept.sizes, stacklevel=4)
    comparison = guards.compare_sets(kept, seed)
    guards.warn_if_indistinguishable(comparison)
    if test is not None:
        guards.warn_if_swapped(comparison, guess.set_priors, *test)


# --------------------------------------------------------------------------------------------------- what is assumed


def alter_priors(guess: Assumption, errors: Sequence[float]) -> tuple[list[Assumption], list[Skipped]]:
    """The guess, then θ, θ′ and π altered by each error; apart from them what cannot be true, with the reason.

    Examples
    --------
    >>> assumed, skipped = alter_priors(Assumption("baseline", 0.0, (0.95, 0.2), 0.5), (-0.1, 0.1))
    >>> [assumption.name for assumption in assumed]
    ['your guess', 'θ − 0.1', 'θ′ − 0.1', 'θ′ + 0.1', 'π − 0.1', 'π + 0.1']
    >>> skipped[0].assumption.name, skipped[0].reason
    ('θ + 0.1', '1.05 is no share of positives')
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
        raise ValueError(f"errors={errors!r} leave nothing that could be true ({reasons}); use smaller errors.")
    return assumed, skipped


def _objection(altered: Assumption, guess: Assumption) -> str | None:
    """Why the altered priors cannot be true, None where they can."""
    (theta, theta_prime), pi = altered.set_priors, altered.target_prior
    for value in (theta, theta_prime):
        if not 0 <= value <= 1:
            return f"{value:g} is no share of positives"
    if not 0 < pi < 1:
        return f"π = {pi:g} is not strictly between 0 and 1"
    order = math.copysign(1.0, guess.set_priors[0] - guess.set_priors[1])
    if order * (theta - theta_prime) < EQUAL_PRIORS:
        return "set 1 would no longer be the poorer one" if order > 0 else "set 1 would no longer be the richer one"
    return None


def check_errors(errors: Sequence[float]) -> list[float]:
    """The errors in rising order, or a ValueError that names what is wrong with them."""
    values = list(errors) if isinstance(errors, Sequence | np.ndarray) and not isinstance(errors, str) else [errors]
    for value in values:
        if not isinstance(value, Real) or not 0 < abs(float(value)) < 1:
            raise ValueError(
                f"errors must be numbers between -1 and 1 other than 0, got {value!r}; they are added to a share of "
                "positives, for example errors=(-0.1, -0.05, 0.05, 0.1)."
            )
    if not values or len(set(values)) < len(values):
        raise ValueError(f"errors must be one number or more, each once, got {errors!r}.")
    return sorted(map(float, values))


# ---------------------------------------------------------------------------------------------------------- training


class _Scored(NamedTuple):
    """Decision values of all rows, and of the test rows."""

    rows: Scores
    test: Scores | None


class _Study(NamedTuple):
    """What all runs share. Both ways to train give, for each assumption, scores or why there are none."""

    classifier: UUClassifier
    rows: Rows
    kept: tuple[Tensor, Tensor]
    """Numbers of the rows to train on, of set 0 and of set 1."""
    held_out: tuple[Tensor, Tensor]
    test: tuple[Rows, Tensor] | None

    def together(self, assumed: Sequence[Assumption]) -> list[_Scored | str]:
        """All in one stack."""
        own, table = self.classifier, _table(self.rows)
        assert isinstance(own.model, str)
        assert isinstance(own.random_state, int)
        runs = [
            Run(self.kept, priors, pi, own.method, own.slope, seed=own.random_state, held_out=self.held_out)
            for _, _, priors, pi in assumed
        ]
        stack = BatchedTrainer(
            table,
            runs,
            model=own.model,
            model_params=own.model_params,
            loss=own.loss,
            options=own._options(own.random_state),
        )
        reasons = [history.stop_reason or "" for history in stack.run()]
        scores = stack.scores(table).numpy()
        tests = None if self.test is None else stack.scores(self.test[0].slice(0, self.test[0].n_rows)).numpy()
        scored: list[_Scored | str] = []
        for place, (assumption, reason) in enumerate(zip(assumed, reasons, strict=True)):
            found = _Scored(scores[place], None if tests is None else tests[place])
            scored.append(reason if "not finite" in reason else self._scaled(found, assumption))
        return scored

    def _scaled(self, scored: _Scored, assumption: Assumption) -> _Scored:
        """Log-odds in place of scores, for a classifier that is to be calibrated."""
        if not self.classifier.calibrated:
            return scored
        held_out, sets = _both(scored.rows, self.held_out)
        line = fit_platt_scaling(held_out.astype(float), sets, assumption.set_priors, assumption.target_prior)
        rows, test = scored
        return _Scored(
            line.log_odds(rows).astype(np.float32), None if test is None else line.log_odds(test).astype(np.float32)
        )

    def one_by_one(self, assumed: Sequence[Assumption]) -> list[_Scored | str]:
        """Each by a classifier of its own; several members have their folds among the rows that are kept."""
        table, test = _table(self.rows), None if self.test is None else _table(self.test[0])
        X, sets = _both(table, self.kept)
        held_out = _both(table, self.held_out) if self.classifier.members == 1 else None
        scored: list[_Scored | str] = []
        for _, _, priors, pi in assumed:
            own = clone(self.classifier).set_params(set_priors=priors, target_prior=pi)
            with warnings.catch_warnings():
                for category in TOLD_ONCE:
                    warnings.simplefilter("ignore", category)
                try:
                    own.fit(X, sets, validation_data=held_out)
                except NonFiniteRiskError:
                    if not scored:  # the guess itself
                        raise
                    scored.append(own.history_.stop_reason)
                    continue
            scored.append(_Scored(own.decision_function(table), None if test is None else own.decision_function(test)))
        return scored


def _numbers(data: TwoSets) -> tuple[Tensor, Tensor]:
    """Numbers, in the table of all rows, of the rows of set 0 and of set 1."""
    first, second = data.index
    assert first is not None
    assert second is not None
    return first, second


def _table(rows: Rows) -> Any:
    """The tensor or matrix that holds the rows."""
    assert isinstance(rows, DenseRows | SparseRows)
    return rows.tensor if isinstance(rows, DenseRows) else rows.matrix


def _both(table: Any, numbers: tuple[Tensor, Tensor]) -> tuple[Any, NDArray[np.int64]]:
    """The rows of both sets with these numbers, and the set of each."""
    return table[torch.cat(numbers).numpy()], np.repeat([0, 1], [len(part) for part in numbers])


# ----------------------------------------------------------------------------------------------------------- evaluating


def _is_evaluated(results: dict[Assumption, _Scored | str], study: _Study) -> list[SensitivityRow]:
    """A row for every run that has scores; the guess, which comes first, must have."""
    guess, baseline = next(iter(results.items()))
    if isinstance(baseline, str):
        raise NonFiniteRiskError(
            f"under the guess itself, {baseline}; lower lr (now {study.classifier.lr:g}), scale the columns, or use "
            "another method than 'unbiased'."
        )
    trained_on, _ = _both(baseline.rows, study.kept)
    sizes = (len(study.kept[0]), len(study.kept[1]))
    calibrated = bool(study.classifier.calibrated)
    guards.warn_if_one_sided(trained_on, sizes, guess.set_priors, guess.target_prior, log_odds=calibrated)
    found = {assumption: scored for assumption, scored in results.items() if not isinstance(scored, str)}
    return [_row(assumption, scored, guess, baseline, study) for assumption, scored in found.items()]


def _row(
    assumption: Assumption, scored: _Scored, guess: Assumption, baseline: _Scored, study: _Study
) -> SensitivityRow:
    (mine, sets), (usual, _) = (_both(scores.rows, study.held_out) for scores in (scored, baseline))
    assumed, guessed = assumption[2:], guess[2:]
    true, true_gain = None, None
    if study.test is not None:
        labels = study.test[1].numpy()
        true = evaluate_labelled(scored.test, labels).accuracy
        # Labels are two sets, one all positive and one all negative, in the shares that the test rows have.
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
