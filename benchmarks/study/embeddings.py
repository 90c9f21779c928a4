"""Frozen features of images with a linear model or an MLP on top, compared with training on the pixels.

The encoders of `image_encoders` are trained on the unlabeled training images. Their features are frozen, and
`UUClassifier` is trained on the features of two unlabeled sets. There are two parts:

* ``choice``: the scaling of the features and the model on top are compared without labels, on binary tasks with other
  positive classes than those of the paper, by the zero-one risk of the predictions for two other unlabeled sets, drawn
  from the test images at (0.8, 0.2). Labels are used only to draw the sets.
* ``paper``: the chosen settings on the tasks of the paper, with other seeds, evaluated by the accuracy on the test
  images. ``labels`` is the same fit with the true labels of the same rows (two sets with the class priors 1 and 0), an
  upper limit; ``pixels`` is the default MLP on the pixels.

Finished fits are stored and are not repeated. The features are cached in the folder CACHE.

    python benchmarks/study/embeddings.py CACHE [--part choice|paper] [--data-dir DIR] [--minutes 10] [--quick]
    python benchmarks/study/embeddings.py CACHE --choose
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import image_encoders
import numpy as np
import torch
from numpy.typing import NDArray
from records import Record, read
from resuming import STUDY, add_options, complete, out_of
from sklearn.base import TransformerMixin
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from uulearn import UUClassifier
from uulearn.datasets import ImageDataset, load_images, make_sets
from uulearn.datasets.catalog import SOURCES
from uulearn.defaults import PIXEL_SCALE
from uulearn.exceptions import UUWarning
from uulearn.reproduction.store import normalized
from uulearn.risk import uu_risk
from uulearn.tabular import TableEncoder

STORE = STUDY / "embeddings.jsonl"
DATASETS = ("mnist", "fashion_mnist", "kmnist", "cifar10")
K = 400
ENCODERS = [(dataset, kind, K) for kind in image_encoders.KINDS for dataset in DATASETS]
"""Dataset, kind and number of filters of each encoder."""
OTHER: dict[str, tuple[int, ...]] = {
    "mnist": (0, 1, 2, 3, 4), "fashion_mnist": (2, 3, 5, 8, 9), "kmnist": (0, 2, 3, 5, 7), "cifar10": (0, 1, 2, 3, 4),
}  # fmt: skip
"""Positive classes of the tasks on which the settings are chosen."""
EVALUATION_PRIORS = (0.8, 0.2)
PRIORS = ((0.8, 0.2), (0.7, 0.3), (0.6, 0.4))
CHOICE_SEEDS, SEEDS = (0,), (20, 21, 22)

COMPONENTS = 256
LINEAR_L2 = 1e-2
"""L2 penalty of linear models on the tasks of the paper, chosen without labels."""
SCALINGS: dict[str, Callable[[], TransformerMixin]] = {
    "none": FunctionTransformer,
    "standardize": StandardScaler,
    "unit length": lambda: make_pipeline(Normalizer(), StandardScaler()),
    "whiten": lambda: PCA(COMPONENTS, whiten=True, svd_solver="covariance_eigh"),
}
"""Scalings outside the classifier; "normal scores" is the `TableEncoder`."""
NORMAL = "normal scores"
AUTO = f"{NORMAL}, auto"

SETTINGS: dict[str, dict[str, Any]] = {
    f"{scaling}, {model}": {"scaling": scaling, "model": model}
    for model in ("linear", "mlp")
    for scaling in (NORMAL, *SCALINGS)
} | {
    "standardize, linear, L2 1e-2": {"scaling": "standardize", "model": "linear", "l2": 1e-2},
    "standardize, linear, L2 1e-1": {"scaling": "standardize", "model": "linear", "l2": 1e-1},
    "standardize, linear, sigmoid, L2 1e-2": {
        "scaling": "standardize", "model": "linear", "loss": "sigmoid", "l2": 1e-2,
    },
    AUTO: {"scaling": NORMAL, "model": "auto"},
}  # fmt: skip
BASE = f"{NORMAL}, mlp"
"""Setting with which the others are compared."""
SLOW_DATASETS = ("fashion_mnist", "kmnist")
"""Datasets on which the slow setting `AUTO` is compared."""
CHOICE_CELLS = [
    *(("kmeans", 1000, dataset) for dataset in DATASETS),
    ("random", 300, "mnist"),
]
"""Encoder, rows per set and dataset of each cell in which the settings are compared."""


def planned(part: str) -> list[Record]:
    """Return the configurations of a part."""
    return [normalized({"part": part, "k": K, **one}) for one in (_choice() if part == "choice" else _paper())]


def _choice() -> list[Record]:
    return [
        {
            "dataset": dataset, "encoder": kind, "rows": rows, "set_priors": (0.7, 0.3), "seed": seed,
            "setting": name, **setting,
        }
        for seed in CHOICE_SEEDS
        for kind, rows, dataset in CHOICE_CELLS
        for name, setting in SETTINGS.items()
        if name != AUTO or dataset in SLOW_DATASETS
    ]  # fmt: skip


def _paper() -> list[Record]:
    small = {"rows": 1000, "scaling": "standardize"}
    linear = {"setting": "linear", "model": "linear", "l2": LINEAR_L2}
    mlp, labels = {"setting": "mlp", "model": "mlp"}, {**linear, "setting": "linear, labels", "labels": True}
    # With 30,000 rows, a single linear model with a tenth of the rows held out, to limit the time.
    large = {"rows": 30_000, "scaling": "standardize", "n_estimators": 1, "validation_fraction": 0.1}
    pixels = {"setting": "mlp", "model": "mlp", "scaling": "none", "input_scale": PIXEL_SCALE}
    middle, ends = PRIORS[1:2], (PRIORS[0], PRIORS[2])
    groups: list[tuple[str, Sequence[str], Any, list[Record]]] = [
        ("kmeans", DATASETS, middle, [small | mlp, small | linear, small | labels]),
        ("kmeans", DATASETS, ends, [small | mlp]),
        ("random", DATASETS, middle, [small | mlp]),
        ("pixels", ("cifar10",), PRIORS, [{"rows": 1000} | pixels]),  # `finals` has stored those of the other datasets
        ("kmeans", DATASETS, middle, [large | linear]),
        ("kmeans", DATASETS, ends, [large | linear]),
    ]
    return [
        {"dataset": dataset, "encoder": kind, "set_priors": priors, "seed": seed, **setting}
        for kind, datasets, pairs, settings in groups
        for seed, dataset, priors in itertools.product(SEEDS, datasets, pairs)
        for setting in settings
    ]


Rows = NDArray[Any]


@functools.cache
def read_images(dataset: str, data_dir: Path | None) -> ImageDataset:
    """Read the images of a dataset once."""
    return load_images(dataset, data_dir=data_dir, download=False)


def load(one: Record, cache: Path, data_dir: Path | None) -> tuple[Rows, Rows, Rows, Rows]:
    """Return the features of the training and of the test images, and their classes."""
    if one["dataset"] == "digits":  # embedded data, for quick runs
        X, y = load_digits(return_X_y=True)
        return X[:1200].astype(np.float32), X[1200:].astype(np.float32), y[:1200], y[1200:]
    images = read_images(one["dataset"], data_dir)
    parts: Sequence[Rows] = (images.train_images, images.test_images)
    if one["encoder"] != "pixels":
        parts = image_encoders.features(cache, one["dataset"], one["encoder"], one["k"], data_dir)
    return *(part.reshape(len(part), -1) for part in parts), images.train_labels, images.test_labels  # type: ignore[return-value]


def fit(one: Record, cache: Path, data_dir: Path | None) -> Record:
    """Draw the sets, fit the setting, and evaluate it on the test images, without labels for the choice."""
    own = "part", "k", "dataset", "encoder", "rows", "set_priors", "seed", "scaling"
    drawn = prepare(json.dumps({name: one[name] for name in own}), cache, data_dir)
    sets, priors = drawn.sets, tuple(one["set_priors"])
    if one.get("labels"):
        sets, priors = 1 - drawn.labels, (1.0, 0.0)
    given = {name: one[name] for name in ("model", "loss", "l2", "n_estimators", "validation_fraction") if name in one}
    clf = UUClassifier(priors, drawn.prior, random_state=one["seed"], progress=False, **given)
    clf.set_params(training__input_scale=one.get("input_scale", 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UUWarning)
        clf.fit(drawn.X, sets)
    scores, evaluated = clf.decision_function(drawn.X_test), clf.out_of_fold_evaluation_
    found: Record = {"n_features": drawn.X.shape[1], "best_epoch": clf.history_.best_epoch}
    if one["part"] == "choice":
        return found | {"risk": _risk(scores, drawn.y_test, one["seed"])}
    if evaluated is not None and not one.get("labels"):
        found["estimate"] = [round(value, 5) for value in (evaluated.accuracy.value, *evaluated.accuracy.interval)]
    return found | {"accuracy": round(float(((scores > 0) == drawn.y_test).mean()), 5)}


class Drawn(NamedTuple):
    """Scaled rows of two sets and of the test images; labels are for the comparison only."""

    X: Rows
    sets: Rows
    labels: Rows
    X_test: Rows
    y_test: Rows
    prior: float


@functools.lru_cache(maxsize=1)
def prepare(drawn_as: str, cache: Path, data_dir: Path | None) -> Drawn:
    """Draw two sets and scale their features; ``drawn_as`` is the part of a configuration that determines them."""
    one = json.loads(drawn_as)
    X, X_test, classes, test_classes = load(one, cache, data_dir)
    positive = OTHER if one["part"] == "choice" else {name: SOURCES[name].positive_classes for name in DATASETS}
    own = positive.get(one["dataset"], (0, 2, 4, 6, 8))
    y, y_test = (np.isin(part, own).astype(np.int64) for part in (classes, test_classes))
    numbers = np.arange(len(y))[:, None]
    drawn = make_sets(numbers, y, tuple(one["set_priors"]), (one["rows"],) * 2, random_state=one["seed"])
    rows = np.concatenate(drawn.indices)
    order = np.argsort(rows, kind="stable")  # reading a memory map in order is faster
    chosen = np.empty((len(rows), X.shape[1]), np.float32)
    chosen[order] = X[rows[order]]
    if one["scaling"] == NORMAL:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UUWarning)
            scaler = TableEncoder().fit_sets(*np.split(chosen, 2))
    else:
        scaler = SCALINGS[one["scaling"]]().fit(chosen)
    steps = range(0, len(X_test), 5000)
    test = np.concatenate([scaler.transform(X_test[i : i + 5000].astype(np.float32)) for i in steps])
    prior = 0.5 if one["part"] == "choice" else float(y_test.mean())
    return Drawn(scaler.transform(chosen), drawn.sets, y[rows], test, y_test, prior)


def _risk(scores: Rows, y_test: Rows, seed: int) -> float:
    """Return the zero-one risk on two unlabeled sets that are drawn from the test images."""
    size = int(min(y_test.sum(), (1 - y_test).sum()))
    numbers = np.arange(len(y_test))[:, None]
    drawn = make_sets(numbers, y_test, EVALUATION_PRIORS, (size, size), random_state=seed, allow_reuse=False)
    own = torch.from_numpy(scores[np.concatenate(drawn.indices)])
    risk = uu_risk(own, torch.from_numpy(drawn.sets), EVALUATION_PRIORS, 0.5, loss="zero_one", method="unbiased")
    return round(float(risk.unbiased), 5)


def tell(record: Record) -> str:
    """Return a progress line."""
    one = record["configuration"]
    value = f"risk {record['risk']:.3f}" if "risk" in record else f"accuracy {record['accuracy']:.3f}"
    return (
        f"{one['dataset']} {one['encoder']}, {one['rows']} rows, {one['set_priors']}, {one['setting']}, "
        f"seed {one['seed']}: {value}"
    )


def choose(path: Path) -> None:
    """Print the risk of each setting minus that of `BASE`, in points."""
    found: dict[str, dict[tuple[Any, ...], float]] = defaultdict(dict)
    for record in read([path]).fits.values():
        one = record["configuration"]
        if one["part"] == "choice":
            found[one["setting"]][one["encoder"], one["rows"], one["dataset"], one["seed"]] = 100 * record["risk"]
    base = found[BASE]
    for name, risks in found.items():
        texts = []
        for encoder, rows in dict.fromkeys(cell[:2] for cell in CHOICE_CELLS):
            changes = [risks[cell] - base[cell] for cell in risks if cell[:2] == (encoder, rows)]
            error = statistics.stdev(changes) / len(changes) ** 0.5 if len(changes) > 1 else 0
            texts.append(
                f"{encoder} {rows}: {statistics.fmean(changes):+5.1f} ± {error:.1f} ({len(changes)})" if changes else ""
            )
        print(f"{name:40}", *texts)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the missing fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, help="folder for the features of the images")
    parser.add_argument("--part", choices=("choice", "paper"), default="paper")
    parser.add_argument("--dataset", action="append", choices=DATASETS, help="default: all")
    parser.add_argument("--choose", action="store_true", help="print the comparison without labels")
    add_options(parser, STORE)
    asked = parser.parse_args(arguments)
    path = out_of(asked, STORE)
    if asked.choose:
        return choose(path)
    wanted = [one for one in planned(asked.part) if not asked.dataset or one["dataset"] in asked.dataset]
    if asked.quick:
        wanted = [one | {"dataset": "digits", "rows": 200} for one in wanted[:2]]
    complete(wanted, lambda one: fit(one, asked.cache, asked.data_dir), tell, path, asked.minutes)


if __name__ == "__main__":
    main()
