"""Facts of ``docs/defaults.md``, from ``results/study`` and ``benchmarks/results/defaults-*.json``."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks" / "study"))

import auto_rules
import contenders
import records
from comparison import Comparison, compare
from finals import FIRST_SEED, MODELS, PRIORS, SUPERVISED
from render_images import Setting
from study_tables import signed, table

from uulearn import defaults
from uulearn.reproduction.experiments import DATASET_NAMES
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.statistics import mean_std
from uulearn.reproduction.store import RunStore
from uulearn.training.early_stopping import BestEpoch

ROOT = Path(__file__).resolve().parents[3]
Record = dict[str, Any]


def facts() -> dict[str, str]:
    """Return all facts of the page by name."""
    store = RunStore(ROOT / "results" / "study")
    finals, grid = store.records(study="finals"), store.records(study="grid")
    parts = (
        _finals(finals),
        _trials(finals),
        _grid(grid),
        _patience(grid),
        _with_labels(),
        _tables(),
        _small_mlps(),
        _longer_training(),
        _auto_rules(),
    )
    return dict(item for part in parts for item in part)


# --------------------------------------------------------------------------------------------------- the default itself


def _finals(found: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield the results of the default in the twelve cells of Table 3, with seeds not used to choose the defaults."""
    fits: dict[tuple[str, tuple[float, ...], str], list[Record]] = defaultdict(list)
    for record in found:
        run = record["configuration"]
        if run["seed"] >= FIRST_SEED:
            fits[run["dataset"], tuple(run["set_priors"]), run["fit"]].append(record)
    paper, rows, parts = paper_table("table3"), [], []
    for dataset, model in MODELS.items():
        for priors in PRIORS:
            best = max(cell.accuracy.mean for cell in paper[dataset, priors].values())
            ours = [100 * record["test_accuracy"] for record in fits[dataset, priors, "default"]]
            labels = [100 * record["test_accuracy"] for record in fits[dataset, priors, SUPERVISED]]
            mean, deviation = mean_std(ours)
            part = (mean - best) / (fmean(labels) - best)
            parts.append(part)
            name = f"{DATASET_NAMES[dataset]}, {'MLP' if model == 'mlp' else 'ResNet-32'}"
            numbers = [f"{best:.1f}", f"**{mean:.1f}** ({deviation:.1f})", f"{fmean(labels):.1f}", f"{100 * part:.0f}%"]
            rows.append([name, f"{priors[0]:g}, {priors[1]:g}", *numbers])
    head = ["", "θ, θ′", "paper", "default", "with labels", "gap closed"]
    yield "finals", table(head, rows, left=2)
    yield "finals-half", f"{sum(part >= 0.5 for part in parts)} of {len(parts)}"
    yield "finals-seeds", str(len(fits["mnist", PRIORS[0], "default"]))
    yield "finals-label-seeds-mlp", str(len(fits["mnist", PRIORS[0], SUPERVISED]))
    yield "finals-label-seeds-resnet", str(len(fits["cifar10", PRIORS[0], SUPERVISED]))
    refined = fits["mnist", (0.6, 0.4), "refined"]
    mean, deviation = mean_std([100 * record["test_accuracy"] for record in refined])
    yield "self-training", f"{mean:.1f} ({deviation:.1f})"
    mean, deviation = mean_std([100 * r["test_accuracy"] for r in fits["mnist", (0.6, 0.4), "default"]])
    yield "self-training-without", f"{mean:.1f} ({deviation:.1f})"
    yield from _intervals(fits)


def _intervals(fits: dict[tuple[str, tuple[float, ...], str], list[Record]]) -> Iterator[tuple[str, str]]:
    """Yield the comparison of the accuracy estimated after a fit with the test accuracy."""
    rows = []
    for dataset in MODELS:
        own = [record for priors in PRIORS for record in fits[dataset, priors, "default"]]
        evaluated = [record for record in own if record["estimate"] is not None]
        covered = [abs(r["estimate"][0] - r["test_accuracy"]) <= 1.96 * r["estimate"][1] for r in evaluated]
        bias = [100 * (record["estimate"][0] - record["test_accuracy"]) for record in evaluated]
        seconds = [record["seconds"] for record in own]
        rows.append(
            [
                DATASET_NAMES[dataset],
                f"{sum(covered)} of {len(evaluated)}" if evaluated else "no estimate",
                signed(fmean(bias)) if bias else "–",
                f"{fmean(record['calibration_error'] for record in own):.3f}",
                f"{median(seconds):.0f}",
            ]
        )
        if dataset == "kmnist":
            yield "coverage-kmnist", rows[-1][1]
            yield "bias-kmnist", f"{fmean(bias):.1f}"
    head = [
        "",
        "accuracy inside the 95% interval",
        "estimate − accuracy, points",
        "calibration error",
        "seconds per fit",
    ]
    yield "intervals", table(head, rows)
    labels = [record for priors in PRIORS for record in fits["kmnist", priors, SUPERVISED] if record["estimate"]]
    yield "kmnist-labels-estimate", f"{100 * fmean(record['estimate'][0] for record in labels):.1f}"
    yield "kmnist-labels-accuracy", f"{100 * fmean(record['test_accuracy'] for record in labels):.1f}"


def _trials(found: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield the results of trials with the seeds used to choose the defaults."""
    tried = [record for record in found if record["configuration"]["seed"] < FIRST_SEED]
    accuracy = {}
    for record in tried:
        run = record["configuration"]
        changes = {name: value for name, value in run["changes"].items() if name != "compile"}
        settings = ", ".join(f"{name} {value}" for name, value in sorted(changes.items()))
        accuracy[run["dataset"], settings] = 100 * record["test_accuracy"]
    yield "one-model", f"{accuracy['kmnist', 'n_estimators 1, validation_fraction 0.1']:.1f}"
    yield "five-models", f"{accuracy['kmnist', '']:.1f}"
    yield "resnet-l2", f"{accuracy['cifar10', 'l2 0.005']:.1f}"
    yield "resnet-no-l2", f"{accuracy['cifar10', 'l2 0']:.1f}"


# ---------------------------------------------------------------------------------------------- the grid without labels


BEST = {"loss": "sigmoid", "method": "abs", "slope": None, "l2": 0.005, "lr": 1e-3, "lr_decay": 0, "ema": 0.999}
BEST |= {"batch_size": 3000, "held_out": 0.1}
LEAKY = {"method": "leaky_relu", "slope": -0.1}
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("**sigmoid, ABS, L2 0.005, learning rate 1e-3, moving average 0.999**", {}),
    ("L2 5e-5", {"l2": 5e-5}),
    ("no L2", {"l2": 0}),
    ("no L2, leaky ReLU with λ = −0.1", {"l2": 0, **LEAKY}),
    ("no L2, ReLU", {"l2": 0, "method": "relu"}),
    ("no L2, unbiased", {"l2": 0, "method": "unbiased"}),
    ("no L2, logistic loss", {"l2": 0, "loss": "logistic"}),
    ("no L2, logistic loss, leaky ReLU with λ = −0.1", {"l2": 0, "loss": "logistic", **LEAKY}),
    ("no L2, no moving average", {"l2": 0, "ema": None}),
    ("no L2, learning rate 3e-4", {"l2": 0, "lr": 3e-4}),
    ("no L2, learning rate 3e-3", {"l2": 0, "lr": 3e-3}),
)


def _grid(found: Sequence[Record]) -> Iterator[tuple[str, str]]:
    settings = {label: Setting(_matching(found, BEST | changes), 200) for label, changes in SETTINGS}
    rows = [[label, *setting.row()[:3]] for label, setting in settings.items()]
    yield "grid", table(["", "estimated", "best epoch", "last epoch"], rows)
    yield "grid-runs", str(len(found))
    chosen = {label: fmean(setting.chosen) for label, setting in settings.items()}
    yield "grid-sigmoid", f"{chosen['no L2'] - chosen['no L2, logistic loss']:.1f}"
    yield "grid-average", f"{chosen['no L2'] - chosen['no L2, no moving average']:.1f}"
    logistic = BEST | LEAKY | {"loss": "logistic"}
    for name, l2 in (("l2", 0.005), ("no-l2", 0)):
        yield f"grid-logistic-{name}", f"{fmean(Setting(_matching(found, logistic | {'l2': l2}), 200).last):.1f}"


def _matching(found: Sequence[Record], wanted: dict[str, Any]) -> list[Record]:
    own = [record for record in found if wanted.items() <= record["configuration"].items()]
    if not own:
        raise ValueError(f"no stored run has the settings {wanted}.")
    return own


def _patience(found: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield the comparison of early stopping with patience and selection among all epochs."""
    accuracies, epochs = {True: [], False: []}, []
    for record in _matching(found, {"loss": "sigmoid"}):
        run, curves = record["configuration"], record["curves"]
        steps = -(-sum(run["sizes"]) * (1 - run["held_out"]) // run["batch_size"])
        patience = max(defaults.PATIENCE, -(-defaults.PATIENCE_STEPS // steps))
        for patient in (True, False):
            best = BestEpoch(defaults.SMOOTHING, patience if patient else None)
            for value in curves["validation_zero_one"]:
                best.update(value)
                if best.exhausted:
                    break
            accuracies[patient].append(100 * curves["test_accuracy"][best.epoch - 1])
            epochs += [best.seen] if patient else []
    yield "patience-runs", str(len(epochs))
    yield "patience-accuracy", f"{fmean(accuracies[True]):.2f}"
    yield "patience-all", f"{fmean(accuracies[False]):.2f}"
    yield "patience-epochs", f"{fmean(epochs):.0f}"


# --------------------------------------------------------------------------------------- the earlier study with labels


VARIANTS = {
    "base": "base: leaky ReLU, logistic loss, learning rate 3e-4, no moving average",
    "lr 1e-3": "learning rate 1e-3",
    "lr 5e-5": "learning rate 5e-5",
    "clip 1": "gradients clipped to norm 1",
    "float32": "float32 instead of bfloat16",
    "l2 5e-3": "L2 5e-3",
    "batch 600": "batches of 600",
    "batch norm momentum 0.01": "batch normalization with momentum 0.01",
    "ema 0.995": "moving average 0.995",
    "ema 0.999": "moving average 0.999",
    "ema 0.999, lr 1e-3": "moving average 0.999, learning rate 1e-3",
    "ema 0.999, float32": "moving average 0.999, float32",
    "ema 0.999, abs": "moving average 0.999, ABS",
    "ema 0.999, relu": "moving average 0.999, ReLU",
    "ema 0.999, sigmoid": "moving average 0.999, sigmoid loss",
    "ema 0.999, unbiased": "moving average 0.999, unbiased",
    "ema 0.995, lr 1e-3": "moving average 0.995, learning rate 1e-3",
}


def _with_labels() -> Iterator[tuple[str, str]]:
    by_variant: dict[str, list[float]] = defaultdict(list)
    for path in sorted((ROOT / "benchmarks" / "results").glob("defaults-*.json")):
        for run in json.loads(path.read_text(encoding="utf-8"))["runs"]:
            by_variant[run["variant"]].append(100 * run["last"])
    if by_variant.keys() != VARIANTS.keys():
        raise ValueError(
            f"VARIANTS must list the stored variants; they differ in {sorted(by_variant.keys() ^ VARIANTS.keys())}"
        )
    yield "labels-runs", str(sum(map(len, by_variant.values())))
    yield "labels-settings", str(len(by_variant))
    (each,) = {len(values) for values in by_variant.values()}
    yield "labels-each", str(each)
    order = sorted(VARIANTS, key=lambda name: -fmean(by_variant[name]))
    rows = [[VARIANTS[name], f"{fmean(by_variant[name]):.2f}"] for name in order]
    yield "labels", table(["setting", "mean test accuracy, last epoch"], rows)


# --------------------------------------------------------------------------------------------------------------- tables


def _tables() -> Iterator[tuple[str, str]]:
    stored = records.read([ROOT / "results" / "study" / "tabular.jsonl.gz"])
    found = {model: compare(stored.fits.values(), model) for model in ("linear", "mlp")}
    rows = []
    for model, label in (("linear", "linear"), ("mlp", "MLP")):
        comparison = found[model]
        rows += _summary(comparison, label)
        default = comparison.default
        yield f"tables-{model}-seconds", f"{comparison.seconds[default.key]:.0f}"
        boosting = next(one for one in comparison.columns if one.name == contenders.BOOSTING)
        yield f"tables-{model}-boosting", str(comparison.standing(boosting, default).better)
    head = ["", "best or within noise", "at (0.8, 0.2)", "at (0.6, 0.4)"]
    yield "tables", table(head, rows)
    mlp = found["mlp"]
    paper = "l2 0, loss logistic, {}method leaky_relu, {}calibrated None, {}patience None"
    ensemble = paper.format("", "", "early_stopping None, ")
    single = paper.format("n_estimators 1, ", "", "early_stopping None, ")
    held_out = paper.format("n_estimators 1, ", "validation_fraction 0.1, ", "")
    by_name = {one.name: one for one in mlp.columns}
    for name, (better, worse) in {"ensemble": (ensemble, single), "holding-out": (single, held_out)}.items():
        for priors in ((0.8, 0.2), (0.6, 0.4)):
            where = lambda cell, p=priors: cell.set_priors == p  # noqa: E731
            gain = mlp.mean_difference(by_name[better], by_name[worse], where)
            yield f"tables-{name}-{priors[0]:g}", f"{100 * gain.mean:.1f}"


def _summary(comparison: Comparison, label: str) -> Iterator[list[str]]:
    default = comparison.default
    verdicts = comparison.level_with_best(default, comparison.rivals)
    yield [f"**{label}, default**", f"**{_count(verdicts)}**", "", ""]
    titles = {"abs": "ABS", "relu": "ReLU", "leaky_relu": "leaky ReLU"}
    for one in comparison.columns:
        if one.name in (*contenders.PAPER, contenders.LOGISTIC, contenders.BOOSTING):
            others = [rival for rival in comparison.rivals if rival.key != one.key]
            counted = _count(comparison.level_with_best(one, others)) if one.name != contenders.BOOSTING else "–"
            gains = [
                comparison.mean_difference(one, default, lambda cell, p=priors: cell.set_priors == p).mean
                for priors in ((0.8, 0.2), (0.6, 0.4))
            ]
            yield [titles.get(one.name, one.name), counted, *(signed(100 * gain) for gain in gains)]


def _count(verdicts: dict[Any, bool]) -> str:
    return f"{sum(verdicts.values())} of {len(verdicts)}"


# ------------------------------------------------------------------------------------------------ MLPs for small tables


def _small_mlps() -> Iterator[tuple[str, str]]:
    """Yield the label-free comparison of smaller MLPs with the former default, in percentage points of risk."""
    study = ROOT / "results" / "study"
    found: dict[tuple[str, str], dict[tuple[Any, ...], Record]] = defaultdict(dict)
    for record in records.read([study / "mlp_choice.jsonl.gz"]).fits.values():
        run = record["configuration"]
        cell = run["table"], tuple(run["set_priors"]), run["rows"], run["seed"]
        for rule, values in record["rules"].items():
            found[run["setting"], rule][cell] = values
    former, small = found["base", "epochs 200"], found["128x2 lr 1e-2 dropout 0.25", "epochs 60"]
    yield "small-settings", str(len({setting for setting, _ in found}))
    yield "small-cells", str(len(small))
    yield "small-rows", f"{min(cell[2] for cell in small):,} to {max(cell[2] for cell in small):,}"
    yield "small-seconds", f"{100 * median(small[cell]['seconds'] / former[cell]['seconds'] for cell in small):.0f}"
    large: dict[tuple[Any, ...], dict[str, Record]] = defaultdict(dict)
    for line in (study / "mlp_larger.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        large[record["t"], tuple(record["p"]), record["n"], record["seed"]][record["c"]] = record
    yield "medium-cells", str(len(large))
    yield "medium-rows", f"{min(cell[2] for cell in large):,} to {max(cell[2] for cell in large):,}"
    for priors in ((0.8, 0.2), (0.6, 0.4)):
        differences: dict[str, list[tuple[str, float, float]]] = {"small": [], "medium": []}
        for cell, values in small.items():
            if cell[1] == priors:
                own, base = ((one["risk"] + one["calibrated_risk"]) / 2 for one in (values, former[cell]))
                differences["small"].append((cell[0], cell[2], 100 * (own - base)))
        for cell, runs in large.items():
            if cell[1] == priors:
                differences["medium"].append((cell[0], 1.0, 100 * (runs["wide100"]["risk"] - runs["old"]["risk"])))
        for name, values in differences.items():
            mean, error = _mean_over_tables(values)
            yield f"{name}-{priors[0]:g}", f"{signed(mean)} ± {error:.1f}"


def _longer_training() -> Iterator[tuple[str, str]]:
    """Yield the label-free comparison of the small MLP trained for 100 epochs with the same MLP after 60 epochs."""
    study, ratios = ROOT / "results" / "study", []
    changes: dict[float, list[tuple[str, float, float]]] = defaultdict(list)
    stored = [study / "mlp_choice.jsonl.gz", study / "mlp_longer.jsonl.gz"]
    for record in records.read(stored).fits.values():
        run = record["configuration"]
        if run["setting"] != "128x2 lr 1e-2 dropout 0.25" or run["rows"] < 200:
            continue
        longer, shorter = record["rules"]["epochs 100"], record["rules"]["epochs 60"]
        change = sum(longer[name] - shorter[name] for name in ("risk", "calibrated_risk")) / 2
        changes[run["set_priors"][0]].append((run["table"], 1.0, 100 * change))
        ratios.append(longer["seconds"] / shorter["seconds"])
    yield "longer-cells", str(len(ratios))
    yield "longer-time", f"{median(ratios):.1f}"
    for prior, values in changes.items():
        mean, error = _mean_over_tables(values)
        yield f"longer-{prior:g}", f"{signed(mean)} ± {error:.1f}"


AUTO_RULES = {
    "boosting": "only boosting",
    "mlp": "only the MLP",
    "average": "average with equal weights",
    "fixed 0.7": "weight of the MLP 0.7",
    "threshold 2": "a model is discarded if its zero-one risk is higher by two standard errors",
    "threshold 3": "the same with three standard errors",
    "zero_one": "probability that the MLP is better, by the zero-one risk",
    "log_loss": "probability that the MLP is better, by the likelihood of the sets",
    "likelihood 0.5": "square root of the likelihood of each model",
    "best likelihood": "weights with the highest likelihood",
    "stacking": "**mean of all weights, weighted by their likelihood**",
    "stacking, 2 1": "the same, with a prior weight of the MLP of 2/3",
}
"""Rules of ``benchmarks/study/auto_rules.py`` in words."""


def _auto_rules() -> Iterator[tuple[str, str]]:
    """Yield the label-free comparison of rules that weigh the models."""
    lines, rows = auto_rules.read(), []
    for rule, words in AUTO_RULES.items():
        found = auto_rules.compare(lines, rule)
        change = "–" if rule == "average" else f"{signed(found.change, 2)} ± {found.change_error:.2f}"
        rows.append([words, change, f"{(found.regrets > 2).mean():.1%}", f"{found.regrets.max():.1f}"])
    yield "auto-rules", table(["weights", "risk, points", "more than 2 points behind", "largest, points"], rows)
    yield "auto-fits", f"{len(lines):,}"
    yield "auto-cells", str(len(found.regrets))
    yield "auto-tables", str(len({line["table"] for line in lines}))
    yield "auto-all-rules", str(len(lines[0]["rules"]))


def _mean_over_tables(values: Sequence[tuple[str, float, float]]) -> tuple[float, float]:
    """Return the weighted mean of (table, weight, value), and its standard error over tables."""
    total = sum(weight for _, weight, _ in values)
    mean = sum(weight * value for _, weight, value in values) / total
    sums: dict[str, float] = defaultdict(float)
    for name, weight, value in values:
        sums[name] += weight * (value - mean)
    return mean, float(sum(part**2 for part in sums.values()) ** 0.5) / total
