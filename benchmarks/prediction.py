"""Time the prediction of 1,000,000 × 784 float32 rows (MNIST repeated, or random pixels) with the paper's MLP.

Six contenders with the same weights run 3 rounds by default, after one warm-up run each. The results are medians and
quartiles of the seconds, and medians of the ratios within a round:

* ``uulearn``, ``uulearn float32``: `UUClassifier.decision_function`, input checks included
* ``DataLoader``: a `TensorDataset` in batches of 1,024
* ``skorch, batches of 128``: `NeuralNet.predict` with default settings
* ``skorch, batches of 1,024``: the same with larger batches
* ``direct chunks``: slices of 1,024 rows of a tensor in memory
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from baselines import mlp, skorch_net
from common import LEAKY, LR, SET_PRIORS, TARGET_PRIOR, Bar, Section, Settings, interleave, print_table, summarize
from pixels import many_rows, two_sets
from uulearn import UUClassifier
from uulearn.exceptions import UUWarning
from uulearn.training import TrainingOptions

CHUNK = 1024
TIMES_AS_FAST_AS_DATALOADER = 2.0
PRECISIONS = {"uulearn": "auto", "uulearn float32": "float32"}

Floats = NDArray[np.float32]


def fitted(precision: str, n_each: int) -> UUClassifier:
    """Return a briefly trained classifier, so that its normalization statistics are those of real data."""
    data = two_sets(n_each)
    classifier = UUClassifier(
        SET_PRIORS,
        TARGET_PRIOR,
        **LEAKY | {"lr": LR},
        epochs=3,
        training=TrainingOptions(precision=precision),
        device="cpu",
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)  # random pixels have the same distribution in both sets
        return classifier.fit_sets(data.first, data.second)


def same_weights(classifier: UUClassifier) -> nn.Sequential:
    """Return the plain model with the weights of the classifier."""
    plain = mlp()
    weights = classifier.model_.state_dict().values()
    plain.load_state_dict(dict(zip(plain.state_dict(), weights, strict=True)))
    return plain.eval()


def by_dataloader(model: nn.Module, X: Floats) -> Floats:
    """Score rows with a `DataLoader`, as in most tutorials."""
    loader = DataLoader(TensorDataset(torch.from_numpy(X)), batch_size=CHUNK)
    model.eval()
    with torch.no_grad():
        scores: Floats = torch.cat([model(x) for (x,) in loader]).numpy()
    return scores


def by_chunks(model: nn.Module, X: Floats) -> Floats:
    """Score slices of a tensor that shares the memory of the array."""
    model.eval()
    with torch.no_grad():
        scores: Floats = torch.cat([model(x) for x in torch.split(torch.from_numpy(X), CHUNK)]).numpy()
    return scores


def agreement(contenders: dict[str, Callable[[], Any]], reference: Floats) -> dict[str, dict[str, float]]:
    """Return how far the scores of each contender are from the reference, and how often the class differs."""
    found = {}
    for name, score in contenders.items():
        scores = score()
        found[name] = {
            "largest_difference": float(np.abs(scores - reference).max()),
            "share_of_other_classes": float(((scores > 0) != (reference > 0)).mean()),
        }
    return found


def run(settings: Settings) -> Section:
    """Measure, print and return the results."""
    n_rows = 20_000 if settings.quick else 1_000_000
    rounds = settings.repeats(full=3, quick=1)
    automatic, forced = (fitted(precision, 300 if settings.quick else 6_000) for precision in PRECISIONS.values())
    forced.model_.load_state_dict(automatic.model_.state_dict())  # the same weights for all contenders
    plain = same_weights(automatic)
    X, source = many_rows(n_rows)
    contenders: dict[str, Callable[[], Any]] = {
        "uulearn": partial(automatic.decision_function, X),
        "uulearn float32": partial(forced.decision_function, X),
        "DataLoader": partial(by_dataloader, plain, X),
        "skorch, batches of 128": partial(skorch_net(plain).predict, X),
        "skorch, batches of 1,024": partial(skorch_net(plain, batch_size=CHUNK).predict, X),
        "direct chunks": partial(by_chunks, plain, X),
    }
    seconds = interleave(contenders, rounds)
    few = X[:20_000]
    checks = agreement(
        {
            "uulearn": partial(automatic.decision_function, few),
            "uulearn float32": partial(forced.decision_function, few),
            "DataLoader": partial(by_dataloader, plain, few),
            "skorch": partial(skorch_net(plain).predict, few),
        },
        by_chunks(plain, few),
    )
    precision = automatic.precision_
    result = summarize(seconds, list(PRECISIONS)) | {
        "precision": precision,
        "agreement_with_direct_chunks": checks,
    }
    print_table(f"prediction, mlp, {n_rows:,} rows of {source} ('auto' is {precision})", result)
    largest, share = checks["uulearn"].values()
    print(f"  'auto' against direct chunks: scores differ by at most {largest:.2g}, {share:.3%} of the classes")
    value = result["speedup"]["uulearn"]["DataLoader"]
    name = "prediction, times as fast as the DataLoader way"
    return Section(
        {"rows": n_rows, "columns": X.shape[1], "data": source, "rounds": rounds, "chunk": CHUNK},
        result,
        [Bar(name, value, TIMES_AS_FAST_AS_DATALOADER, True, not settings.quick)],
    )
