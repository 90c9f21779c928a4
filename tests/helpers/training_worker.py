"""One of several processes that train together, started by `test_workers`. Usage: training_worker.py OUT FIT …"""

import copy
import io
import os
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn

from uulearn import UUClassifier
from uulearn.exceptions import CheckpointError
from uulearn.models.normalization import synchronized
from uulearn.training.workers import FirstWorkerError, join_workers

FITS = {
    "mlp": {"validation_fraction": 0.2},
    "last rows alone": {"batch_size": 10, "epochs": 2},
    "linear": {"model": "linear", "model_params": None, "l2": 0.01, "training__clip_norm": 0.5},
    "biased": {"method": "biased"},
    "n_estimators": {"n_estimators": 2, "epochs": 3},
    "refined": {"n_estimators": 2, "epochs": 3, "self_training_rounds": 1, "model": "linear", "model_params": None},
    "patient": {"validation_fraction": 0.3, "early_stopping": True, "patience": 1, "training__smoothing": 1,
                "epochs": 30},
    "lbfgs": {
        "training__optimizer": torch.optim.LBFGS,
        "training__optimizer_params": {"max_iter": 3},
        "epochs": 1,
        "lr": 0.1,
        "model": "linear",
        "model_params": None,
    },
    "tested": {"epochs": 2},
    "consistency": {"consistency": {"fraction": 0.7, "ramp": (0, 0), "strong": torch.tanh}, "l2": 0.01},
    # Random views differ between processes; at this strength, they change nothing.
    "affine": {"consistency": {"ramp": (0, 0), "strong": "affine:1e-8"}, "training__augment": "affine:1e-8",
               "training__image_shape": (1, 1, 5), "epochs": 2},
    "three sets": {"set_priors": (0.8, 0.2, 0.5), "epochs": 2, "validation_fraction": 0.2},
    "three sets, surrogate": {"set_priors": (0.8, 0.2, 0.5), "epochs": 2, "method": "surrogate", "loss": "logistic"},
}  # fmt: skip


def rows():
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], [401, 300])
    labels = rng.random(len(sets)) < np.where(sets == 0, 0.8, 0.2)
    return (rng.normal(size=(len(sets), 5)) + labels[:, None]).astype(np.float32), sets, labels


def fitted(changes, **more):
    X, sets, labels = rows()
    plain = {
        "epochs": 4, "batch_size": 100, "random_state": 1, "n_estimators": 1, "validation_fraction": 0.0,
        "early_stopping": False, "calibrated": False, "model_params": {"hidden": (16, 16)}, "loss": "sigmoid",
        "training__distributed": "auto", "training__precision": "float32", "lr": 1e-3, "patience": None,
    }  # fmt: skip
    extra = {"test_data": (X[:50], labels[:50].astype(int))} if changes is FITS["tested"] else {}
    if "set_priors" in changes:  # every fourth row belongs to a third set
        sets = np.where(np.arange(len(sets)) % 4 == 0, 2, sets)
    classifier = UUClassifier((0.8, 0.2), 0.5).set_params(**plain | changes | more.pop("parameters", {}))
    return classifier.fit(X, sets, **extra, **more)


def described(clf):
    X, _, _ = rows()
    records = [[v for k, v in record.items() if k != "seconds"] for record in clf.history_]
    return {
        "scores": torch.from_numpy(clf.decision_function(X)),
        "records": torch.tensor(records, dtype=torch.float64),
        "seed": clf.seed_,
        "why": clf.history_.stop_reason,
        "kept": clf.history_.best_epoch or 0,
    }


def own_rows(workers, name):
    """The rows of this worker, of twelve: some batches have no rows for the second, or one row for one of three."""
    ends = [0, 12, 12] if "no rows" in name else [0, 5, 12]
    if workers is not None and workers.count == 3:
        ends = [0, 5, 5, 12] if "no rows" in name else [0, 5, 6, 12]
    return slice(None) if workers is None else slice(*ends[workers.rank : workers.rank + 2])


def normalized(workers):
    """One step through all kinds of batch normalization on this worker's rows: output, gradients, statistics.

    A single process converts narrow types first; results of several processes differ from it by rounding.
    """
    torch.manual_seed(0)
    found = {}
    without_bias = nn.BatchNorm1d(3)
    without_bias.register_parameter("bias", None)
    for name, norm, shape in (
        ("1d", nn.BatchNorm1d(3), (12, 3)),
        ("1d, no rows", nn.BatchNorm1d(3), (12, 3)),
        ("1d long", nn.BatchNorm1d(3, momentum=None), (12, 3, 4)),
        ("2d", nn.BatchNorm2d(3, affine=False), (12, 3, 2, 2)),
        ("2d, no rows", nn.BatchNorm2d(3), (12, 3, 2, 2)),
        ("no statistics", nn.BatchNorm1d(3, track_running_stats=False), (12, 3)),
        ("no bias", without_bias, (12, 3)),
        ("float64", nn.BatchNorm1d(3).double(), (12, 3)),
        ("float64, no rows", nn.BatchNorm2d(3).double(), (12, 3, 2, 2)),
        ("bfloat16", nn.BatchNorm1d(3).bfloat16(), (12, 3)),
        ("bfloat16, no rows", nn.BatchNorm2d(3).bfloat16(), (12, 3, 2, 2)),
        ("bfloat16 rows alone", nn.BatchNorm1d(3), (12, 3)),
        ("float16", nn.BatchNorm1d(3).half(), (12, 3)),
    ):
        kind = getattr(torch, name.split(",")[0].split()[0], torch.float32)
        far = 1e6 if kind == torch.float64 else 5  # their squares are too large to compute the variance from
        x = (far + torch.randn(shape, dtype=torch.float64)).to(kind)
        part, weights = own_rows(workers, name), torch.randn(shape).to(kind)
        with torch.no_grad():
            for parameter in norm.parameters():
                parameter.add_(torch.rand(3))
        if workers is None and kind != torch.float64:
            x, norm = x.float(), norm.float()
        x.requires_grad_()
        with synchronized(norm):
            out = norm(x[part])
            (out * weights[part]).sum().backward()
        whole = torch.zeros_like(x).detach()
        whole[part] = out.detach()
        shares = [whole, x.grad, *(p.grad for p in norm.parameters())]
        assert out.dtype == x.dtype
        assert [share.dtype for share in shares] == [x.dtype, x.dtype, *(p.dtype for p in norm.parameters())]
        shares = [share.double() for share in shares]
        if workers is not None:
            for share in shares:
                torch.distributed.all_reduce(share)
        assert type(norm) in (nn.BatchNorm1d, nn.BatchNorm2d)
        found[name] = [*shares, *(b.double() for b in norm.buffers())]
    return found


def too_few(workers):
    """Errors if all workers together have one row or none; the statistics do not change and can be used."""
    said, norm = [], nn.BatchNorm1d(3)
    with synchronized(norm):
        for rows in (1, 0):
            try:
                norm(torch.ones(rows if workers.first else 0, 3))
            except ValueError as error:
                said.append(str(error))
        evaluated = [norm.eval()(torch.full((1, 3), 2.0)).detach()] if workers.first else []  # in the first worker only
    return {"said": said, "state": norm.state_dict(), "evaluated": evaluated}


def copies():
    """Copies of a synchronized model, used by one worker alone: their classes and their results."""
    rank, model = torch.distributed.get_rank(), nn.Sequential(nn.BatchNorm1d(2), nn.BatchNorm1d(2))
    file, rows = io.BytesIO(), torch.arange(2.0 * (rank + 2)).view(-1, 2).square()
    with synchronized(model, torch.distributed.new_group()):
        torch.save(model, file)
        file.seek(0)
        made = {"copy": copy.deepcopy(model), "file": torch.load(file, weights_only=False)}
        kinds = [type(layer).__name__ for layer in model]
        for each in made.values():
            kinds += [type(layer).__name__ for layer in each]
        used = [made["copy"](rows)] if rank == 0 else []  # in the first worker only
    used += [each(rows) for each in made.values()] if rank == 0 else []
    return {"kinds": kinds, "rows": rows, "used": [out.detach() for out in used]}


def refused(workers, folder):
    """The errors of each worker if the first worker or its checkpoint fails."""
    said = []
    for what in (lambda: workers.run_on_first(lambda: 1 / 0), lambda: fitted({"epochs": 3}, parameters=folder)):
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
    found["norms"] = normalized(workers)
    found["too few"] = too_few(workers)
    found["copies"] = copies()
    if len(names) == len(FITS):
        found |= other_cases(out, workers)
    torch.save(found, out)


def other_cases(out, workers):
    found, calls = {}, []

    def callback(record, model):
        torch.save(model, out.parent / "whole.pt")
        calls.append(1)
        return len(calls) == 2

    stopped = fitted({"epochs": 9}, callback=callback)
    found["stopped"] = described(stopped)
    found["calls"] = len(calls)
    found["seeds"] = described(fitted({"random_state": None, "epochs": 1}))
    folder = {"training__checkpoint_dir": out.parent / "checkpoints", "training__checkpoint_every": 1}
    fitted({"epochs": 2}, parameters=folder)
    found["resumed"] = described(fitted({"epochs": 4}, parameters=folder))
    found["refused"] = refused(workers, folder | {"lr": 0.5})
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1] + os.environ["RANK"]), sys.argv[2:])
