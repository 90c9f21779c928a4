"""How often does `uulearn.UUClassifier.check_rows` raise an alarm: on valid new rows, and on rows that are not valid?

Each fit trains a small MLP (few epochs) on two sets and checks many samples of new rows:

* ``valid``: held-back rows of the same source, with class priors from 0.05 to 0.95; every alarm is a false alarm;
* ``column``: one column is moved by half of its standard deviation;
* ``cluster``: a tenth of the rows comes from a new cluster, three standard deviations away in every column;
* ``test``: the test rows of MNIST, Fashion-MNIST and Kuzushiji-MNIST at 14 × 14 pixels.

Both sets have the same size or, with set priors (1, 0.2), 100 and 5,000 rows. Datasets are simulated, embedded in
scikit-learn, or images if their files are found. ``table`` and ``text`` are data
frames with rare categories and missing values; ``text`` also has a column of random words. For images, the label-free
estimate of the accuracy is compared with the accuracy on all held-back and all test rows. Fits are stored when they are
finished; none is run twice. ``--summary`` prints a table of the stored fits.

    python benchmarks/study/new_rows.py [--minutes 8] [--seeds 2] [--summary] [--quick]
"""

from __future__ import annotations

import argparse
import functools
import warnings
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import records
import tables
from coverage import CLOSE, FAR, IMAGES, SIMULATED, Labels
from numpy.typing import NDArray
from records import Record
from resuming import STUDY, add_options, complete, out_of

from uulearn import UUClassifier
from uulearn.datasets import DatasetNotFoundError, load_task, make_sets
from uulearn.metrics import evaluate_labeled
from uulearn.reproduction.store import normalized

STORE = STUDY / "new_rows.jsonl"
SIZES = (100, 500, 2_000, 10_000)
PRIORS = (0.05, 0.3, 0.5, 0.7, 0.95)
IMAGE_PRIORS = (0.1, 0.3, 0.5)
FRAMES = ("table", "text")
UNBALANCED = (1.0, 0.2), 100, 5_000  # set priors and sizes of a small set of positives and a large set
DRAWS = 2  # number of valid samples of each size and prior, except for images
HELD_BACK = 20_000
SEEDS = 2


class Source:
    """Labeled rows of a dataset: ``train`` to draw sets from, ``valid`` to draw new rows from, and test images."""

    def __init__(self, name: str, data_dir: Path | None, rng: np.random.Generator) -> None:
        self.name, self.rng, self.images = name, rng, name in IMAGES
        self.train: tuple[Any, Labels]
        self.valid: tuple[Any, Labels]
        self.test: tuple[Any, Labels] | None = None
        if name in tables.EMBEDDED:
            table = tables.load(name)
            self.train, self.valid = (table.X_train, table.y_train == 1), (table.X_test, table.y_test == 1)
        elif self.images:
            task = load_task(name, data_dir=data_dir, download=False)
            X, y = _halved(task.X_train), task.y_train == 1
            order = rng.permutation(len(X))
            held, rest = order[:HELD_BACK], order[HELD_BACK:]
            self.train, self.valid = (X[rest], y[rest]), (X[held], y[held])
            self.test = _halved(task.X_test), task.y_test == 1
        else:
            labels = np.arange(2 * HELD_BACK) < HELD_BACK
            self.train, self.valid = ((_simulated(name, rng, labels), labels) for _ in range(2))

    def sample(self, part: tuple[Any, Labels], rows: int, prior: float) -> Any:
        """Return rows with this fraction of positives, without repeats, or None if there are too few."""
        X, y = part
        wanted = [(np.flatnonzero(y), round(rows * prior)), (np.flatnonzero(~y), rows - round(rows * prior))]
        if any(len(places) < n for places, n in wanted):
            return None
        chosen = self.rng.permutation(np.concatenate([self.rng.permutation(places)[:n] for places, n in wanted]))
        return X.iloc[chosen] if isinstance(X, pd.DataFrame) else X[chosen]


def _halved(images: NDArray[Any]) -> NDArray[np.float32]:
    return images.reshape(-1, 28, 28)[:, ::2, ::2].reshape(len(images), -1).astype(np.float32) / np.float32(255)


def _simulated(name: str, rng: np.random.Generator, y: Labels) -> Any:
    if name not in FRAMES:
        return SIMULATED[name](rng, y).astype(np.float32)
    frame = pd.DataFrame(
        {
            "amount": rng.lognormal(0.8 * y, 1.0),
            "score": np.where(rng.random(len(y)) < 0.1, np.nan, rng.normal(1.2 * y, 1.0)),
            "kind": rng.choice(list("abcdef"), len(y)),
            "region": [f"r{number}" for number in rng.zipf(1.5, len(y)) % 300],
        }
    )
    if name == "text":
        words = np.array([f"w{number}" for number in range(3_000)])
        frame["note"] = [" ".join(own) for own in words[rng.integers(len(words), size=(len(y), 4))]]
    return frame


def _moved(X: Any, scale: Any, rng: np.random.Generator) -> Any:
    """Move one column by half of its standard deviation."""
    moved, column = X.copy(), int(rng.integers(len(scale)))
    if isinstance(X, pd.DataFrame):
        name = scale.index[column]
        moved[name] = moved[name] + 0.5 * scale[name]
    else:
        moved[:, column] += 0.5 * scale[column]
    return moved


def _with_cluster(X: Any, scale: Any, rng: np.random.Generator) -> Any:
    """Move a tenth of the rows by three standard deviations in every column of numbers."""
    some, signs = rng.random(len(X)) < 0.1, rng.choice([-3.0, 3.0], len(scale))
    moved = X.copy()
    if isinstance(X, pd.DataFrame):
        for name, sign in zip(scale.index, signs, strict=True):
            moved.loc[some, name] += sign * scale[name]
    else:
        moved[some] += (signs * scale).astype(X.dtype)
    return moved


def planned(seeds: int = SEEDS, images: Sequence[str] = IMAGES, quick: bool = False) -> list[Record]:
    """Return the configurations of all fits."""
    if quick:
        return [_configuration(0, "gaussian", FAR, 100)]
    cases: list[tuple[Any, ...]] = [
        (name, priors, size) for name in SIMULATED for priors in (CLOSE, FAR) for size in (300, 3_000)
    ]
    cases += [(name, FAR, 1_000) for name in FRAMES]
    cases += [("digits", FAR, 300), ("breast_cancer", FAR, 100)]
    cases += [(name, *UNBALANCED) for name in (*SIMULATED, *FRAMES)]
    cases += [(name, (0.7, 0.3), 3_000) for name in images]
    every = [_configuration(seed, *case) for seed in range(seeds) for case in cases]
    return every + [_configuration(seeds + n, name, (0.7, 0.3), 3_000) for n in range(seeds) for name in images]


def _configuration(
    seed: int, name: str, set_priors: Sequence[float], size: int, second_size: int | None = None
) -> Record:
    second = {} if second_size is None else {"second_size": second_size}  # otherwise, both sets have the same size
    return dict(normalized({"dataset": name, "set_priors": set_priors, "size": size, "seed": seed, **second}))


def fit(configuration: Record, data_dir: Path | None = None, sizes: Sequence[int] = SIZES) -> Record:
    """Fit once, and check all samples."""
    name, priors, size, seed = (configuration[key] for key in ("dataset", "set_priors", "size", "seed"))
    rng = np.random.default_rng([seed, size, int(100 * priors[0]), zlib.crc32(name.encode())])
    source = Source(name, data_dir, rng)
    X, y = source.train
    both = size, configuration.get("second_size", size)
    drawn = make_sets(X, y.astype(int), priors, both, allow_reuse=False, random_state=seed)
    classifier = UUClassifier(
        tuple(priors), model="mlp", epochs=15 if source.images else 10, random_state=seed, device="cpu", progress=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # close priors and few rows are the subject here
        classifier.fit_sets(drawn.X0, drawn.X1)
        checks = [_checked(classifier, *one) for one in _samples(source, sizes)]
    found: Record = {"checks": checks}
    estimate = classifier.out_of_fold_evaluation_
    if source.test is not None and estimate is not None:
        found["estimate"] = [round(value, 4) for value in (estimate.accuracy.value, *estimate.accuracy.interval)]
        for kind, (rows, labels) in (("valid", source.valid), ("test", source.test)):
            truth = evaluate_labeled(classifier.decision_function(rows), labels, classifier.target_prior)
            found[f"accuracy_{kind}"] = round(truth.accuracy.value, 4)
    return found


def _samples(source: Source, sizes: Sequence[int]) -> Iterator[tuple[str, int, float, Any]]:
    """Yield the kind, the number of rows, the class prior and the rows of all samples."""
    numbers = source.train[0].select_dtypes("number") if source.name in FRAMES else source.train[0]
    scale = numbers.std() if source.name in FRAMES else numbers.std(axis=0)
    for rows in sizes:
        for prior in IMAGE_PRIORS if source.images else DRAWS * PRIORS:
            for kind, part in (("valid", source.valid), ("test", source.test)):
                if part is not None and (X := source.sample(part, rows, prior)) is not None:
                    yield kind, rows, prior, X
        if not source.images and (X := source.sample(source.valid, rows, 0.5)) is not None:
            yield "column", rows, 0.5, _moved(X, scale, source.rng)
            yield "cluster", rows, 0.5, _with_cluster(X, scale, source.rng)


def _checked(classifier: UUClassifier, kind: str, rows: int, prior: float, X: Any) -> Record:
    check = classifier.check_rows(X)
    p_values = [None if p is None else float(f"{p:.2g}") for p in (check.p_scores, check.p_inputs)]
    return {"kind": kind, "rows": rows, "prior": prior, "p_scores": p_values[0], "p_inputs": p_values[1],
            "alarm": check.alarm}  # fmt: skip


def tell(record: Record) -> str:
    """Return a progress line."""
    one = record["configuration"]
    alarms = pd.DataFrame(record["checks"]).groupby("kind").alarm.agg(["sum", "count"])
    counts = ", ".join(f"{kind} {row['sum']} of {row['count']}" for kind, row in alarms.iterrows())
    return f"{one['dataset']} {one['size']} at {tuple(one['set_priors'])}: alarms {counts}"


def summary(fits: Sequence[Record]) -> str:
    """Return a Markdown table of the alarms by kind of rows, dataset and number of rows."""
    frame = pd.DataFrame([{**one["configuration"], **check} for one in fits for check in one["checks"]])
    lines = ["| rows | dataset | " + " | ".join(map(str, SIZES)) + " |", "|---|---|" + "---|" * len(SIZES)]
    for (kind, name), own in frame.groupby(["kind", "dataset"]):
        cells = [own[own.rows == rows].alarm for rows in SIZES]
        lines.append(f"| {kind} | {name} | " + " | ".join(f"{c.sum()} of {len(c)}" for c in cells) + " |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the missing fits, or summarize the stored ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, STORE)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="number of seeds, from 0")
    parser.add_argument("--dataset", action="append", help="only these datasets")
    parser.add_argument("--summary", action="store_true", help="print a table of the stored fits, and run nothing")
    asked = parser.parse_args(arguments)
    path = out_of(asked, STORE)
    if asked.summary:
        print(summary(list(records.read([path]).fits.values())))
        return
    images = []
    for name in () if asked.quick else IMAGES:
        try:
            load_task(name, data_dir=asked.data_dir, download=False)
            images.append(name)
        except DatasetNotFoundError:
            print(f"{name} was not found and is left out; pass its folder as --data-dir")
    wanted = [
        one for one in planned(asked.seeds, images, asked.quick) if not asked.dataset or one["dataset"] in asked.dataset
    ]
    sizes = SIZES[:1] if asked.quick else SIZES
    complete(wanted, functools.partial(fit, data_dir=asked.data_dir, sizes=sizes), tell, path, minutes=asked.minutes)


if __name__ == "__main__":
    main()
