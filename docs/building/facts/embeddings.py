"""Facts of the guide and the study of embeddings: frozen features of images compared with training on the pixels."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks" / "study"))

from embeddings import BASE, CHOICE_CELLS, DATASETS, PRIORS, STORE
from finals import FIRST_SEED, MODELS, SMALLER, STUDY
from study_tables import read_study, signed, table

from uulearn.reproduction.experiments import DATASET_NAMES
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.store import RunStore

ROOT = Path(__file__).resolve().parents[3]
MIDDLE = PRIORS[1]
NETWORKS = {"mlp": "MLP", "resnet32": "ResNet-32"}
ENCODERS = {"kmeans": "k-means", "random": "random"}

Record = dict[str, Any]
Cell = tuple[str, str, int, tuple[float, ...], str]


def facts() -> dict[str, str]:
    """Return all facts by name."""
    stored, environment = read_study(STORE.name)
    fits = fits_by_cell(stored)
    paper = [one for one in stored if one["configuration"]["part"] == "paper"]
    estimated = [one for one in paper if "estimate" in one]
    gains = [fmean(fits[name, "kmeans", 1000, p, "mlp"]) - fmean(pixels(fits, name, p)) for name, p in cells()]
    return {
        "choice": choice_table(stored),
        "small": small_table(fits),
        "middle": middle_table(fits),
        "large": large_table(fits),
        "better": f"{sum(gain > 0 for gain in gains)} of {len(gains)}",
        "gains": f"{signed(min(gains))} to {signed(max(gains))}",
        **{f"covered-{which}": covered(estimated, which == "kmnist") for which in ("kmnist", "others")},
        "seeds": str(len({one["configuration"]["seed"] for one in paper})),
        "minutes": f"{sum(one['seconds'] for one in stored) / 60:.0f}",
        "environment": environment,
    }


def covered(estimated: list[Record], kmnist: bool) -> str:
    """Return how many intervals contain the accuracy, on Kuzushiji-MNIST or on the other datasets."""
    own = [one for one in estimated if (one["configuration"]["dataset"] == "kmnist") == kmnist]
    inside = [one["estimate"][1] <= one["accuracy"] <= one["estimate"][2] for one in own]
    return f"{sum(inside)} of {len(inside)}"


def cells() -> list[tuple[str, tuple[float, float]]]:
    """Return each dataset with each pair of priors."""
    return [(name, priors) for name in DATASETS for priors in PRIORS]


def fits_by_cell(stored: list[Record]) -> dict[Cell, list[float]]:
    """Return the accuracies of all seeds in percent, with those of the pixels from the study `finals`."""
    fits: dict[Cell, list[float]] = defaultdict(list)
    for one in stored:
        run = one["configuration"]
        if run["part"] == "paper":
            cell = run["dataset"], run["encoder"], run["rows"], tuple(run["set_priors"]), run["setting"]
            fits[cell].append(100 * one["accuracy"])
    store = RunStore(ROOT / "results" / "study")
    for one in (*store.records(study=STUDY), *store.records(study=SMALLER)):
        run = one["configuration"]
        if run["fit"] == "default" and run["seed"] >= FIRST_SEED:
            cell = run["dataset"], "pixels", run["sizes"][0], tuple(run["set_priors"]), MODELS[run["dataset"]]
            fits[cell].append(100 * one["test_accuracy"])
    return fits


def pixels(fits: dict[Cell, list[float]], dataset: str, priors: tuple[float, float]) -> list[float]:
    """Return the accuracies of the default MLP on the pixels of 1,000 images per set."""
    return fits[dataset, "pixels", 1000, priors, "mlp"]


def shown(values: list[float]) -> str:
    """Return the mean and, in parentheses, the standard deviation."""
    return f"{fmean(values):.1f} ({stdev(values):.1f})" if len(values) > 1 else f"{fmean(values):.1f}"


def choice_table(stored: list[Record]) -> str:
    """Return the risk without labels of each setting minus that of the present default, in points."""
    found: dict[str, dict[tuple[str, int, str], float]] = defaultdict(dict)
    for one in stored:
        run = one["configuration"]
        if run["part"] == "choice":
            found[run["setting"]][run["encoder"], run["rows"], run["dataset"]] = 100 * one["risk"]
    groups = list(dict.fromkeys(cell[:2] for cell in CHOICE_CELLS))
    lines = []
    for name, risks in found.items():
        texts = []
        for group in groups:
            own = [risks[cell] - found[BASE][cell] for cell in risks if cell[:2] == group]
            texts.append("–" if name == BASE else mean_change(own))
        lines.append((fmean(risks[cell] - found[BASE][cell] for cell in risks), [name, *texts]))
    count = {group: sum(cell[:2] == group for cell in CHOICE_CELLS) for group in groups}
    heads = [f"{ENCODERS[kind]}, {rows:,} rows ({count[kind, rows]})" for kind, rows in groups]
    return table(["scaling, model", *heads], [line for _, line in sorted(lines)])


def mean_change(values: list[float]) -> str:
    """Return the mean with its standard error, if there are several values."""
    if not values:
        return ""
    error = f" ± {stdev(values) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
    return f"{signed(fmean(values))}{error}"


def small_table(fits: dict[Cell, list[float]]) -> str:
    """Return the accuracy with 1,000 rows per set, on the pixels and on the features of k-means."""
    lines = []
    for name in DATASETS:
        texts = []
        for priors in PRIORS:
            texts += [shown(pixels(fits, name, priors)), shown(fits[name, "kmeans", 1000, priors, "mlp"])]
        lines.append([DATASET_NAMES[name], *texts])
    heads = [f"{what}, ({a:g}, {b:g})" for a, b in PRIORS for what in ("pixels", "k-means")]
    return table(["", *heads], lines)


def middle_table(fits: dict[Cell, list[float]]) -> str:
    """Return the accuracy of encoders and models with 1,000 rows per set at (0.7, 0.3)."""
    lines = []
    for name in DATASETS:
        own = [("kmeans", "mlp"), ("kmeans", "linear"), ("random", "mlp"), ("kmeans", "linear, labels")]
        texts = [shown(fits[name, kind, 1000, MIDDLE, setting]) for kind, setting in own]
        lines.append([DATASET_NAMES[name], shown(pixels(fits, name, MIDDLE)), *texts])
    heads = ["pixels, MLP", "k-means, MLP", "k-means, linear", "random, MLP", "k-means, linear with labels"]
    return table(["", *heads], lines)


def large_table(fits: dict[Cell, list[float]]) -> str:
    """Return the accuracy with 30,000 rows per set, beside that of end-to-end training."""
    reference = paper_table("table3")
    lines = []
    for name, priors in cells():
        best = max(cell.accuracy.mean for cell in reference[name, priors].values())
        network = MODELS[name]
        own, end_to_end = (
            fits[name, kind, 30_000, priors, model] for kind, model in (("kmeans", "linear"), ("pixels", network))
        )
        first = [f"{DATASET_NAMES[name]}, {NETWORKS[network]}", f"{priors[0]:g}, {priors[1]:g}"]
        lines.append([*first, f"{best:.1f}", shown(end_to_end), shown(own)])
    return table(["", "θ, θ′", "paper", "end-to-end", "k-means, linear"], lines, left=2)
