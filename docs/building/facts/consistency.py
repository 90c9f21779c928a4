"""Facts of ``docs/studies/consistency.md`` and ``docs/consistency.md``, from ``results/study``."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks" / "study"))

import records
from consistency_settings import PRIORS as SETTING_PRIORS
from consistency_settings import STORE
from finals import FIRST_SEED, MODELS, PRIORS, SUPERVISED
from study_tables import signed, table

from uulearn.reproduction.experiments import DATASET_NAMES
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.statistics import mean_std
from uulearn.reproduction.store import RunStore

ROOT = Path(__file__).resolve().parents[3]
CHOSEN = "affine, L2 5e-4, fraction 1"
BASE = "consistency"
LIBRARIES = ("uulearn", "torchvision, whole batch alike", "torchvision, one by one")

Record = dict[str, Any]


def facts() -> dict[str, str]:
    """Return all facts of the pages by name."""
    finals = RunStore(ROOT / "results" / "study").records(study="finals")
    return dict(item for part in (_finals(finals), _settings(), _augmentation()) for item in part)


def _finals(found: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield the accuracy in the twelve cells of Table 3, as far as it is measured."""
    fits: dict[tuple[str, tuple[float, ...], str], list[float]] = defaultdict(list)
    for record in found:
        run = record["configuration"]
        if run["seed"] >= FIRST_SEED and run["sizes"] == [30_000, 30_000]:
            fits[run["dataset"], tuple(run["set_priors"]), run["fit"]].append(100 * record["test_accuracy"])
    paper, rows, above = paper_table("table3"), [], 0
    for dataset, model in MODELS.items():
        for priors in PRIORS:
            ours = fits[dataset, priors, "consistency"]
            if not ours:
                continue
            best = max(cell.accuracy.mean for cell in paper[dataset, priors].values())
            labels = fmean(fits[dataset, priors, SUPERVISED])
            mean, deviation = mean_std(ours)
            above += mean > labels
            spread = "" if deviation is None else f" ({deviation:.1f})"
            rows.append(
                [
                    f"{DATASET_NAMES[dataset]}, {'MLP' if model == 'mlp' else 'ResNet-32'}",
                    f"{priors[0]:g}, {priors[1]:g}",
                    f"{best:.1f}",
                    f"{fmean(fits[dataset, priors, 'default']):.1f}",
                    f"**{mean:.1f}**{spread}",
                    str(len(ours)),
                    f"{labels:.1f}",
                ]
            )
            if priors == (0.6, 0.4):
                yield f"{dataset}-0.6", f"{mean:.1f}"
                yield f"{dataset}-0.6-default", rows[-1][3]
    head = ["", "θ, θ′", "paper", "default", "consistency training", "seeds", "with labels, no augmentation"]
    yield "finals", table(head, rows, left=2)
    yield "above-labels", f"{above} of {len(rows)}"


def _settings() -> Iterator[tuple[str, str]]:
    """Yield the label-free comparison of settings."""
    stored = [one for one in records.read([STORE]).fits.values() if one["configuration"]["tasks"] == "other"]
    found = {one["configuration"]["setting"]: {_cell(run): 100 * run["risk"] for run in one["runs"]} for one in stored}
    rows = []
    for name in sorted(found, key=lambda name: fmean(found[name].values())):
        texts = []
        for priors in SETTING_PRIORS["other"]:
            changes = [found[name][cell] - found[BASE][cell] for cell in found[name] if cell[1:3] == priors]
            error = stdev(changes) / len(changes) ** 0.5
            texts.append("–" if name == BASE else f"{signed(fmean(changes))} ± {error:.1f}")
        rows.append([f"**{name}**" if name == CHOSEN else name, f"{fmean(found[name].values()):.1f}", *texts])
    yield "settings", table(["setting", "risk, %", "change at (0.6, 0.4)", "change at (0.8, 0.2)"], rows)
    yield "settings-fits", str(len(found[BASE]))


def _augmentation() -> Iterator[tuple[str, str]]:
    """Yield the time of augmentations relative to those of uulearn."""
    stored = json.loads((ROOT / "benchmarks" / "results" / "augmentation.json").read_text(encoding="utf-8"))
    rows = []
    for name, measured in stored["results"].items():
        own = [f"{1000 * measured['spread'][library]['median']:.2f}" for library in LIBRARIES]
        rows.append([f"`{name}`", *own])
    yield "augmentation", table(["milliseconds per batch", *LIBRARIES], rows)
    yield "augmentation-rows", f"{stored['configuration']['rows']:,}"
    slower = [one["speedup"]["uulearn"]["torchvision, one by one"] for one in stored["results"].values()]
    yield "augmentation-slower", f"{min(slower):,.0f} to {max(slower):,.0f}"


def _cell(run: Record) -> tuple[Any, ...]:
    return run["task"], *run["set_priors"], run["seed"]
