"""The plan of a fit: training rows, validation rows, folds and learner.

A plan is made after all inputs are read and before training starts. Making a plan also checks the data and the model,
and raises an error or a warning if there is a problem.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import Tensor

from uulearn import defaults
from uulearn.data import Rows, TwoSets, hold_out, inputs
from uulearn.data.folds import assign_folds
from uulearn.data.groups import pooled_priors, set_sizes
from uulearn.data.holdout import has_few_unique_rows
from uulearn.data.inputs import Columns, FitData
from uulearn.data.separability import measure_separability, warn_if_indistinguishable, warn_if_swapped
from uulearn.data.stream_holdout import hold_out_streams
from uulearn.data.streams import StreamedSets
from uulearn.estimator.learners import Folds, Learner, make_learner
from uulearn.estimator.parameters import is_auto
from uulearn.estimator.resolving import AUTO_PARAMETERS, ResolvedParameters, resolve
from uulearn.models import is_image_model
from uulearn.risk.coefficients import warn_if_close
from uulearn.training.checkpoint import stored_seed
from uulearn.training.loop import Callback
from uulearn.training.options import TrainingOptions
from uulearn.training.workers import Workers


@dataclass(frozen=True)
class FitPlan:
    """All inputs of a fit. Running the same plan again gives the same result."""

    parameters: ResolvedParameters
    resolved: dict[str, Any]
    """Resolved values of the parameters set to "auto"."""
    learner: Learner
    data: TwoSets | StreamedSets
    """The rows to train on; more than two sets form two groups (`uulearn.data.groups`)."""
    validation: TwoSets | None
    """Held-out rows for the validation of a single model."""
    folds: Folds | None
    """The fold of every row of each set; None for a single model."""
    seed: int
    columns: Columns
    test: tuple[Rows, Tensor] | None = None
    callback: Callback | None = None
    workers: Workers | None = None
    """The processes that train the model together."""

    def group_priors(self, data: TwoSets | StreamedSets) -> tuple[float, float]:
        """Return the class priors of the two sets of ``data``, or of the two groups of sets."""
        return pooled_priors(data, self.parameters.training_priors)

    def set_sizes(self, data: TwoSets | StreamedSets | None) -> tuple[int, ...]:
        """Return the number of rows of each set in ``data``."""
        n_sets = len(self.parameters.training_priors)
        return (0,) * n_sets if data is None else set_sizes(data, n_sets)


def takes_any_shape(model: Any) -> bool:
    """Return whether rows may be images or sequences, which is true for image models and custom models."""
    return model is not None and (not isinstance(model, str) or is_image_model(model))


def read_streams(
    X0: Any,
    X1: Any,
    parameters: dict[str, Any],
    workers: Workers | None = None,
    validation_data: Any = None,
    test_data: Any = None,
) -> FitData:
    """Return both sets as streams; if there is no ``validation_data``, hold out rows and load them into memory."""
    streams = inputs.check_streams(X0, X1)
    if parameters["set_priors"] is not None and len(parameters["set_priors"]) > 2:
        raise ValueError(
            f"streamed sets support two sets, but set_priors has {len(parameters['set_priors'])} values; pass rows in "
            "memory, or merge the sets with uulearn.priors.merge_bags."
        )
    n_estimators, rounds, model = (parameters[name] for name in ("n_estimators", "self_training_rounds", "model"))
    if isinstance(model, str) and model == defaults.BOOSTING:
        raise ValueError("model='boosting' needs all rows in memory; use model='mlp' for streamed sets.")
    if rounds or not (is_auto(n_estimators) or n_estimators == 1):
        raise ValueError(
            f"streamed sets support only one model, got n_estimators={n_estimators!r} and "
            f"self_training_rounds={rounds}; set n_estimators=1 and self_training_rounds=0."
        )
    if not (is_auto(parameters["encoder"]) or parameters["encoder"] is None):
        raise ValueError(
            "encoder encodes tables in memory, but the sets are streams; set encoder='auto', fit a TableEncoder to a "
            "sample of the rows, and pass its transform to the streams: ParquetSet(path, transform=encoder.transform)."
        )
    fraction = parameters["validation_fraction"]
    fraction = defaults.VALIDATION_FRACTION if is_auto(fraction) else fraction
    data, numbers = StreamedSets(streams), None
    if validation_data is None and fraction:
        seed = parameters["random_state"] = choose_seed(parameters, workers)  # the plan also uses it
        held_out = hold_out_streams(streams, fraction, seed, workers)
        numbers = held_out.numbers
        data = StreamedSets(streams, held_out.excluded, held_out.rows)
        validation_data = torch.cat(held_out.rows), np.repeat([0, 1], [len(rows) for rows in held_out.rows])
    data.warn_if_poorly_mixed(numbers)
    any_shape = takes_any_shape(parameters["model"])
    _, columns = inputs.read_table(data.sample(0, 2), any_shape=any_shape, name="X0")
    return inputs.read_held_out(data, columns, validation_data, test_data, any_shape=any_shape)


def make_plan(
    parameters: Mapping[str, Any],
    given: FitData,
    *,
    callback: Callback | None = None,
    workers: Workers | None = None,
    stacklevel: int = 2,
) -> FitPlan:
    """Resolve the parameters for the data, choose folds or held-out rows, and check that training can start.

    ``parameters`` are the checked parameters of `uulearn.UUClassifier` (see `check_parameters`). The ``workers`` train
    together and use the same seed. ``stacklevel`` is the stack level of warnings, 1 for the caller.
    """
    _check_consistency(parameters, has_validation_data=given.validation is not None)
    seed = choose_seed(parameters, workers)
    data, validation, folds = given.data, given.validation, None
    resolved = resolve(
        parameters,
        data.sizes,
        has_validation_data=validation is not None,
        single_model=functools.cache(lambda: isinstance(data, StreamedSets) or has_few_unique_rows(data)),
        is_table=given.columns.encoder is not None,
    )
    if resolved.consistency is not None and resolved.consistency.compare and resolved.n_estimators == 1:
        raise ValueError(
            "consistency='auto' compares two ensembles on the same folds, but n_estimators is 1; set n_estimators=5, "
            "or set consistency to True or False (compare=False in its options)."
        )
    if resolved.n_estimators > 1:
        assert isinstance(data, TwoSets)  # streamed sets train one model
        if resolved.self_training_rounds:
            _check_halves(resolved, data.sizes)
        data = data.joined()
        folds = assign_folds(data, resolved.n_estimators, seed)
    elif validation is None and resolved.validation_fraction and isinstance(data, TwoSets):
        data, validation = hold_out(data, resolved.validation_fraction, seed)
    sample = data.sample(0, 2)
    found = measure_separability(data.preview(), seed)
    warn_if_indistinguishable(found, stacklevel + 1)
    if given.test is not None:
        warn_if_swapped(found, pooled_priors(data, resolved.training_priors), *given.test, stacklevel + 1)
    sizes = set_sizes(data, len(resolved.training_priors))
    warn_if_close(resolved.training_priors, resolved.target_prior, sizes, stacklevel=stacklevel + 2)
    learner = make_learner(resolved)
    learner.check(sample, seed)
    autos = {name: getattr(resolved, name) for name in AUTO_PARAMETERS if is_auto(parameters[name])}
    autos = {name: value for name, value in autos.items() if not is_auto(value)}
    if parameters["model"] is None:
        autos["model"] = resolved.model
    return FitPlan(
        resolved, autos, learner, data, validation, folds, seed, given.columns, given.test, callback, workers
    )


def choose_seed(parameters: Mapping[str, Any], workers: Workers | None = None) -> int:
    """Return the seed of a fit; a resumed run without a fixed seed continues with its original seed."""
    state = parameters["random_state"]
    folder = (parameters["training"] or TrainingOptions()).checkpoint_dir
    if _is_seed(state):
        seed = int(state)
    else:
        stored = None if folder is None else stored_seed(folder)
        seed = int(check_random_state(state).randint(2**31 - 1)) if stored is None else stored
    return seed if workers is None else int(workers.broadcast(seed))


def _is_seed(random_state: Any) -> bool:
    return isinstance(random_state, int | np.integer)


def _check_consistency(parameters: Mapping[str, Any], *, has_validation_data: bool) -> None:
    """Raise a ValueError if parameters contradict each other; "auto" never causes a contradiction."""
    n_estimators, rounds = parameters["n_estimators"], parameters["self_training_rounds"]
    single = n_estimators == 1 or is_auto(n_estimators)
    calibrated = not is_auto(parameters["calibrated"]) and parameters["calibrated"]
    if parameters["set_priors"] is None and (calibrated or rounds):
        raise ValueError(
            "calibration and self-training need the class priors of the sets, but set_priors is None; set "
            "calibrated=False and self_training_rounds=0, and call with_priors once you know the priors."
        )
    if rounds and n_estimators == 1:
        raise ValueError(
            f"self_training_rounds={rounds} needs out-of-fold predictions, so n_estimators must be at least 2; set "
            "n_estimators=5, or self_training_rounds=0."
        )
    if has_validation_data and (rounds or not single):
        raise ValueError(
            f"with n_estimators={defaults.N_ESTIMATORS if single else n_estimators} each model is validated on its own "
            "fold; do not pass validation_data, or set n_estimators=1."
        )
    if calibrated and single and not rounds and not has_validation_data and parameters["validation_fraction"] == 0:
        raise ValueError(
            "calibrated=True needs held-out rows of both sets, but there are none; set validation_fraction=0.1 or pass "
            "validation_data."
        )


def _check_halves(parameters: ResolvedParameters, sizes: tuple[int, int]) -> None:
    """Raise a ValueError if there are too few rows for self-training, which splits both sets into halves and folds."""
    n_estimators, rounds = parameters.n_estimators, parameters.self_training_rounds
    if n_estimators <= min(sizes) < 2 * n_estimators:
        raise ValueError(
            f"self_training_rounds={rounds} with n_estimators={n_estimators} splits both sets into halves of "
            f"{n_estimators} folds, which needs {2 * n_estimators} rows per set, but one set has {min(sizes)}; use "
            "fewer models, or self_training_rounds=0."
        )
