"""One of several processes that train together; run by `test_workers`. usage: training_worker.py OUT FIT …"""

import os
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

from uulearn import UUClassifier
from uulearn.exceptions import CheckpointError
from uulearn.models.normalisation import synchronised
from uulearn.training.workers import FirstWorkerError, join_workers

FITS = {
    "mlp": {"validation_fraction": 0.2},
    "last rows alone": {"batch_size": 10, "epochs": 2},
    "linear": {"model": "linear", "model_params": None, "l2": 0.01, "clip_norm": 0.5},
    "biased": {"method": "biased"},
    "members": {"members": 2, "epochs": 3},
    "refined": {"members": 2, "epochs": 3, "rounds": 1, "model": "linear", "model_params": None},
    "patient": {"validation_fraction": 0.3, "keep": "best", "patience": 1, "smoothing": 1, "epochs": 30},
    "lbfgs": {
        "optimizer": torch.optim.LBFGS,
        "optimizer_params": {"max_iter": 3},
        "epochs": 1,
        "lr": 0.1,
        "model": "linear",
        "model_params": None,
    },
    "tested": {"epochs": 2},
}  # fmt: skip


def rows():
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], [401, 300])
    labels = rng.random(len(sets)) < np.where(sets == 0, 0.8, 0.2)
    return (rng.normal(size=(len(sets), 5)) + labels[:, None]).astype(np.float32), sets, labels


def fitted(changes, **more):
    X, sets, labels = rows()
    plain = {
        "epochs": 4, "batch_size": 100, "random_state": 1, "members": 1, "validation_fraction": 0.0, "keep": "last",
        "calibrated": False, "model_params": {"hidden": (16, 16)}, "distributed": "auto", "precision": "float32",
        "loss": "sigmoid", "lr": 1e-3, "patience": None,
    }  # fmt: skip
    heard = {"test_data": (X[:50], labels[:50].astype(int))} if changes is FITS["tested"] else {}
    return UUClassifier((0.8, 0.2), 0.5, **plain | changes | more.pop("parameters", {})).fit(X, sets, **heard, **more)


def described(clf):
    X, _, _ = rows()
    records = [[v for k, v in record.items() if k != "seconds"] for record in clf.history_]
    return {
        "scores": torch.from_numpy(clf.decision_function(X)),
        "records": torch.tensor(records, dtype=torch.float64),
        "seed": clf.seed_,
        "why": clf.history_.stop_reason,
        "kept": clf.history_.kept_epoch or 0,
    }


def normalised(workers):
    """One step through batch normalisation of three kinds, on this worker's rows."""
    torch.manual_seed(0)
    found = {}
    for name, norm, shape in (
        ("1d", nn.BatchNorm1d(3), (12, 3)),
        ("1d long", nn.BatchNorm1d(3, momentum=None), (12, 3, 4)),
        ("2d", nn.BatchNorm2d(3, affine=False), (12, 3, 2, 2)),
        ("no statistics", nn.BatchNorm1d(3, track_running_stats=False), (12, 3)),
    ):
        x = (5 + torch.randn(shape)).requires_grad_()
        part = slice(None) if workers is None else (slice(0, 5) if workers.first else slice(5, 12))
        if workers is not None and workers.count == 3:
            part = [slice(0, 5), slice(5, 6), slice(6, 12)][workers.rank]
        weights = torch.randn(shape)
        with synchronised(norm):
            out = norm(x[part])
            (out * weights[part]).sum().backward()
        gradients = [p.grad for p in norm.parameters()]
        if workers is not None:
            for gradient in [*gradients, x.grad]:
                torch.distributed.all_reduce(gradient)
        assert type(norm) in (nn.BatchNorm1d, nn.BatchNorm2d)
        found[name] = [x.grad, *gradients, *(b.double() for b in norm.buffers())]
    return found


def refused(workers, folder):
    """What a failure in the first worker, or of its checkpoint, is in each."""
    said = []
    for what in (lambda: workers.by_first(lambda: 1 / 0), lambda: fitted({"epochs": 3}, parameters=folder)):
        try:
            what()
        except (FirstWorkerError, ZeroDivisionError, CheckpointError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def main(out, names):
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", message="the priors")
    torch.set_num_threads(1)
    found = {name: described(fitted(FITS[name])) for name in names}
    workers = join_workers("auto")
    found["norms"] = normalised(workers)
    if len(names) == len(FITS):
        found |= other_roads(out, workers)
    torch.save(found, out)


def other_roads(out, workers):
    found, calls = {}, []
    stopped = fitted({"epochs": 9}, callback=lambda record, model: calls.append(1) or len(calls) == 2)
    found["stopped"] = described(stopped)
    found["calls"] = len(calls)
    found["seeds"] = described(fitted({"random_state": None, "epochs": 1}))
    folder = {"checkpoint_dir": out.parent / "checkpoints", "checkpoint_every": 1}
    fitted({"epochs": 2}, parameters=folder)
    found["resumed"] = described(fitted({"epochs": 4}, parameters=folder))
    found["refused"] = refused(workers, folder | {"lr": 0.5})
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1] + os.environ["RANK"]), sys.argv[2:])
