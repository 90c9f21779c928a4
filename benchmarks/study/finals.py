"""Evaluate the defaults of `UUClassifier` in the twelve cells of Table 3, with seeds that were not used to choose them.

The models are the paper's deep models (the MLP, and ResNet-32 on CIFAR-10), on sets of 30,000 rows (``--rows``).
``default`` sets only the priors, the model and the scale of pixels. ``supervised`` is the same estimator trained on the
same rows with their true labels (two sets with class priors 1 and 0), an upper limit. ``--fit`` adds other fits with
changed parameters. Labels of test rows are used only to measure accuracy and calibration. Finished fits are stored in
``results/study`` and are not repeated.

    python benchmarks/study/finals.py [--dataset mnist …] [--fit 'refined={"self_training_rounds": 3}' …] [--quick]
        [--together 5] [--out DIR]

On a GPU, a single ensemble of MLPs is too small to use the device fully. ``--together`` trains the models of several
fits in one batch. Each fit still has its own rows, folds, early stopping, calibration and initial weights.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from shared import Record, environment, split_parameters
from together import fit_together

from uulearn import UUClassifier
from uulearn.datasets import BinaryTask, load_task, make_sets
from uulearn.metrics.calibration import calibration_error
from uulearn.reproduction.store import RunStore
from uulearn.training import TrainingOptions

MODELS = {"mnist": "mlp", "fashion_mnist": "mlp", "kmnist": "mlp", "cifar10": "resnet32"}
PRIORS = ((0.8, 0.2), (0.7, 0.3), (0.6, 0.4))
SUPERVISED = "supervised"
STUDY, SMALLER = "finals", "finals-smaller"
"""Names of this study with sets of the paper's size, and with smaller sets."""
SIZES = [30_000, 30_000]
FIRST_SEED = 10
"""Smaller seeds were used to choose the defaults."""


def runs(dataset: str, fits: dict[str, dict[str, Any]], seeds: range, sizes: list[int]) -> list[dict[str, Any]]:
    """Return the configurations of one dataset."""
    return [
        {
            "study": STUDY if sizes == SIZES else SMALLER, "dataset": dataset, "model": MODELS[dataset], "sizes": sizes,
            "set_priors": list(priors), "seed": seed, "fit": name, "changes": changes,
        }
        for seed in seeds
        for name, changes in fits.items()
        for priors in PRIORS
    ]  # fmt: skip


def fit(group: Sequence[dict[str, Any]], task: BinaryTask, device: str, curves: bool) -> list[Record]:
    """Draw the sets of each run, fit all of them, and measure on labelled test rows."""
    task = task.flat() if group[0]["model"] == "mlp" else task
    started = time.perf_counter()
    prepared = [_prepare(run, task, device) for run in group]
    test = (task.X_test, task.y_test) if curves else None
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if len(group) == 1:
            (classifier, rows, sets), *_ = prepared
            classifier.fit(rows, sets, test_data=test)
        else:
            fit_together(prepared)
    seconds = time.perf_counter() - started
    messages = sorted({f"{w.category.__name__}: {w.message}" for w in warned})
    return [
        _measure(run, classifier, task) | {
            "warnings": messages, "seconds": round(seconds / len(group), 2), "fits_together": len(group),
        }
        for run, (classifier, *_) in zip(group, prepared, strict=True)
    ]  # fmt: skip


def _prepare(run: dict[str, Any], task: BinaryTask, device: str) -> tuple[UUClassifier, Any, Any]:
    """Return the classifier, the rows and the set of each row."""
    drawn = make_sets(
        np.arange(len(task.y_train))[:, None],
        task.y_train,
        tuple(run["set_priors"]),
        tuple(run["sizes"]),
        random_state=run["seed"],
    )
    rows = np.concatenate(drawn.indices)
    sets, priors = np.repeat([0, 1], run["sizes"]), tuple(run["set_priors"])
    changes, training = split_parameters(run["changes"])
    if run["fit"].startswith(SUPERVISED):
        sets, priors = 1 - task.y_train[rows], (1.0, 0.0)
    classifier = UUClassifier(
        priors,
        task.prior,
        model=run["model"],
        training=TrainingOptions(input_scale=1 / 255, **training),
        device=device,
        random_state=run["seed"],
        progress=False,
        **changes,
    )
    return classifier, task.X_train[rows], sets


def _measure(run: dict[str, Any], classifier: UUClassifier, task: BinaryTask) -> Record:
    probabilities = classifier.predict_proba(task.X_test)[:, 1]
    history, evaluated = classifier.history_, classifier.out_of_fold_evaluation_
    recorded = [name for name in ("test_accuracy", "validation_zero_one") if len(history) and name in history[0]]
    parameters = classifier.get_params() | classifier.resolved_params_
    return {
        "configuration": run,
        "curves": {name: history.column(name) for name in recorded},
        "test_accuracy": float((classifier.predict(task.X_test) == task.y_test).mean()),
        "calibration_error": float(calibration_error(probabilities, task.y_test)),
        "brier": float(np.mean((probabilities - task.y_test) ** 2)),
        "best_epoch": history.best_epoch,
        "estimate": None if evaluated is None else [evaluated.accuracy.unclipped, evaluated.accuracy.standard_error],
        "rounds": [
            {
                "set_priors": list(turn.set_priors),
                "estimate": turn.evaluation.accuracy.unclipped,
                "gain": None if turn.gain is None else [turn.gain.unclipped, turn.gain.standard_error],
                "better": turn.better,
            }
            for turn in classifier.self_training_ or []
        ],
        "parameters": {name: _plain(value) for name, value in parameters.items() if name != "training"},
        "stop_reason": history.stop_reason,
        "environment": environment(str(next(classifier.model_.parameters()).device)),
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | type(None)) else str(value)


def read_fits(arguments: list[str]) -> dict[str, dict[str, Any]]:
    """Parse ``name={"parameter": value}`` to a dict; without arguments, return the default and the supervised fit."""
    fits: dict[str, dict[str, Any]] = {}
    for argument in arguments or ["default={}", f"{SUPERVISED}={{}}"]:
        name, _, changes = argument.partition("=")
        try:
            fits[name] = json.loads(changes or "{}")
        except json.JSONDecodeError as error:
            sys.exit(
                f"--fit {argument!r} is not NAME=JSON ({error}); write --fit 'refined={{\"self_training_rounds\": 3}}'."
            )
    return fits


def main() -> None:
    """Run the missing fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", action="append", choices=MODELS)
    parser.add_argument("--fit", action="append", default=[], metavar="NAME=JSON")
    parser.add_argument("--priors", type=float, action="append", help="θ of the pairs wanted; all three by default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=FIRST_SEED)
    parser.add_argument("--rows", type=int, default=SIZES[0], help="rows of each set")
    parser.add_argument("--curves", action="store_true", help="also record the test accuracy of every epoch")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/study"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--together", type=int, default=1, help="maximum number of fits in one batch (MLPs on CUDA)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no fit after this time")
    parser.add_argument("--quick", action="store_true", help="tiny sets, only to check that the script runs")
    arguments = parser.parse_args()
    store, started, slowest = RunStore(arguments.out), time.monotonic(), 0.0
    sizes = 2 * [300 if arguments.quick else arguments.rows]
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    for dataset in arguments.dataset or MODELS:
        wanted = runs(dataset, read_fits(arguments.fit), seeds, sizes)
        missing = [r for r in store.missing(wanted) if not arguments.priors or r["set_priors"][0] in arguments.priors]
        task = load_task(dataset, data_dir=arguments.data_dir) if missing else None
        size = arguments.together if MODELS[dataset] == "mlp" else 1
        by_fit = [list(own) for _, own in itertools.groupby(sorted(missing, key=_fit_name), _fit_name)]
        groups = [own[start : start + size] for own in by_fit for start in range(0, len(own), size)]
        for group in groups:
            if time.monotonic() - started + slowest > arguments.seconds:
                print("the time limit is reached; run the same command again to continue")
                return
            assert task is not None
            begun = time.monotonic()
            records = fit([dict(run) for run in group], task, arguments.device, arguments.curves)
            store.add_all(records)
            slowest = max(slowest, time.monotonic() - begun)
            for record in records:
                print(_describe(record), flush=True)


def _fit_name(run: Mapping[str, Any]) -> str:
    return str(run["fit"])


def _describe(record: Record) -> str:
    run = record["configuration"]
    rounds = "".join("+" if turn["better"] else "-" for turn in record["rounds"])
    return (
        f"{run['dataset']} {run['set_priors']} seed {run['seed']} {run['fit']}: {record['test_accuracy']:.4f}, "
        f"estimate {record['estimate']} {rounds} ECE {record['calibration_error']:.3f}, "
        f"best epoch {record['best_epoch']}, {record['seconds']:.1f} s"
    )


if __name__ == "__main__":
    main()
