"""Facts of the README and the start pages, from ``results/study/packed``, ``results/table2.md`` and ``table3.md``."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

from uulearn.reproduction.experiments import DATASET_NAMES
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.store import RunStore

RESULTS = Path(__file__).resolve().parents[3] / "results"
DATASETS = ("mnist", "fashion_mnist", "kmnist", "cifar10")
PRIORS = ((0.8, 0.2), (0.7, 0.3), (0.6, 0.4))
FIRST_SEED = 10  # runs with smaller seeds were used to choose the defaults


class Cell(NamedTuple):
    """The accuracies in percent of one dataset and pair of priors."""

    dataset: str
    priors: tuple[float, float]
    paper: float
    default: float
    supervised: float


def read_runs() -> list[dict[str, Any]]:
    """Return the records of the study of the defaults, except those used to choose the defaults."""
    records = RunStore(RESULTS / "study").records(study="finals")
    return [record for record in records if record["configuration"]["seed"] >= FIRST_SEED]


def read_cells() -> list[Cell]:
    """Return the best accuracy of the paper, of the defaults and of supervised training for all twelve cells."""
    runs, paper = read_runs(), paper_table("table3")

    def accuracy(dataset: str, priors: tuple[float, float], fit: str) -> float:
        wanted = {"dataset": dataset, "set_priors": list(priors), "fit": fit}
        found = [r["test_accuracy"] for r in runs if all(r["configuration"][k] == v for k, v in wanted.items())]
        return 100 * mean(found)

    return [
        Cell(
            dataset,
            priors,
            max(cell.accuracy.mean for cell in paper[dataset, priors].values()),
            accuracy(dataset, priors, "default"),
            accuracy(dataset, priors, "supervised"),
        )
        for dataset in DATASETS
        for priors in PRIORS
    ]


def facts() -> dict[str, str]:
    """Return the accuracies, the coverage of the label-free interval, and the number of agreeing cells."""
    found = {}
    cells = read_cells()
    for cell in cells:
        for source in ("paper", "default", "supervised"):
            found[f"{cell.dataset}-{cell.priors[0]}-{source}"] = f"{getattr(cell, source):.1f}"
    gains = [cell.default - cell.paper for cell in cells]
    found["gain"] = f"{min(gains):.1f} to {max(gains):.1f}"
    gaps = [cell.supervised - cell.default for cell in cells]
    found["gap"] = f"{min(gaps):.1f} to {max(gaps):.1f}"
    lines = [
        "| (θ, θ′) | " + " | ".join(DATASET_NAMES[dataset] for dataset in DATASETS) + " |",
        "|---|---|---|---|---|",
    ]
    for priors in PRIORS:
        own = [cell for cell in cells if cell.priors == priors]
        shown = " | ".join(f"{cell.paper:.1f}, **{cell.default:.1f}**, {cell.supervised:.1f}" for cell in own)
        lines.append(f"| {priors} | {shown} |")
    found["accuracies"] = "\n".join(lines)
    for dataset in DATASETS:
        runs = [r for r in read_runs() if r["configuration"]["dataset"] == dataset and r["estimate"]]
        runs = [r for r in runs if r["configuration"]["fit"] == "default"]
        inside = [abs(r["estimate"][0] - r["test_accuracy"]) <= 1.96 * r["estimate"][1] for r in runs]
        if inside:
            found[f"coverage-{dataset}"] = f"{sum(inside)} of {len(inside)}"
    return found | _agreement()


def _agreement() -> dict[str, str]:
    """Read the number of cells that agree with the paper, and the largest difference that counts as agreement."""
    found = {}
    for table in ("table2", "table3"):
        text = (RESULTS / f"{table}.md").read_text(encoding="utf-8")
        counts = re.search(r"^(\d+ of \d+) complete cells agree", text, re.MULTILINE)
        assert counts is not None
        found[f"{table}-agree"] = counts[1]
        accuracies = text.split("**Drop")[0]
        differences = re.findall(r"<br>([+−]\d+\.\d+)(?! ≠)(?= )", accuracies)
        found[f"{table}-widest"] = f"{max(float(each.replace('−', '-').strip('+-')) for each in differences):.1f}"
    return found
