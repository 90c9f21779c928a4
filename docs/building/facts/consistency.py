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

import consistency_errors
import consistency_resnet
import consistency_tables
import noisy_labels
import records
from consistency_settings import ABLATIONS, STORE
from consistency_settings import PRIORS as SETTING_PRIORS
from finals import FIRST_SEED, MODELS, PRIORS, SMALLER, STUDY, SUPERVISED
from study_tables import signed, table

from uulearn.reproduction.experiments import DATASET_NAMES
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.statistics import mean_std
from uulearn.reproduction.store import RunStore

ROOT = Path(__file__).resolve().parents[3]
AUGMENTED = f"{SUPERVISED}-augmented"
CHOSEN = "affine, L2 5e-4, fraction 1"
BASE = "consistency"
LIBRARIES = ("uulearn", "torchvision, whole batch alike", "torchvision, one by one")

Record = dict[str, Any]


def facts() -> dict[str, str]:
    """Return all facts of the pages by name."""
    store = RunStore(ROOT / "results" / "study")
    finals, smaller = (store.records(study=name) for name in (STUDY, SMALLER))
    parts = (_finals(finals), _smaller(smaller), _ablations(), _noisy_labels(finals), _resnet(), _speed(), _settings(),
             _augmentation(), _table_settings(), _measured(), _errors())  # fmt: skip
    return dict(item for part in parts for item in part)


def _finals(found: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield the accuracy in the twelve cells of Table 3, and how much of the gap to training with labels is closed."""
    fits = _by_cell(found)
    paper, rows, above, covered = paper_table("table3"), [], 0, []
    for dataset, model in MODELS.items():
        for priors in PRIORS:
            ours, augmented = (fits[dataset, priors, name] for name in ("consistency", AUGMENTED))
            best = max(cell.accuracy.mean for cell in paper[dataset, priors].values())
            labels = fmean(fits[dataset, priors, SUPERVISED])
            above += fmean(ours) > labels
            if augmented:
                covered.append(100 * (fmean(ours) - best) / (fmean(augmented) - best))
            rows.append(
                [
                    f"{DATASET_NAMES[dataset]}, {'MLP' if model == 'mlp' else 'ResNet-32'}",
                    f"{priors[0]:g}, {priors[1]:g}",
                    f"{best:.1f}",
                    f"{fmean(fits[dataset, priors, 'default']):.1f}",
                    f"**{fmean(ours):.1f}**{_spread(ours)}",
                    str(len(ours)),
                    f"{labels:.1f}",
                    f"{fmean(augmented):.1f}{_spread(augmented)}" if augmented else "–",
                    f"{covered[-1]:.0f}%" if augmented else "–",
                ]
            )
            if priors == (0.6, 0.4):
                yield f"{dataset}-0.6", f"{fmean(ours):.1f}"
                yield f"{dataset}-0.6-default", rows[-1][3]
                yield f"{dataset}-0.6-seeds", str(len(ours))
    head = ["", "θ, θ′", "paper", "default", "consistency training", "seeds", "with labels",
            "with labels, augmented", "gap closed"]  # fmt: skip
    yield "finals", table(head, rows, left=2)
    yield "self-training", f"{fmean(fits['mnist', (0.6, 0.4), 'refined']):.1f}"
    yield "above-labels", f"{above} of {len(rows)}"
    for dataset in ("mnist", "fashion_mnist"):
        yield f"{dataset}-label-seeds", str(len(fits[dataset, PRIORS[0], AUGMENTED]))
    yield "distance-cells", str(len(covered))
    for limit in (75, 90):
        yield f"distance-{limit}", str(sum(value >= limit for value in covered))
    evaluated = [one for one in found if one["configuration"]["fit"] == "consistency" and one["estimate"]]
    for dataset in ("mnist", "fashion_mnist", "kmnist"):
        own = [one for one in evaluated if one["configuration"]["dataset"] == dataset]
        inside = [abs(one["estimate"][0] - one["test_accuracy"]) <= 1.96 * one["estimate"][1] for one in own]
        yield f"{dataset}-covered", f"{sum(inside)} of {len(own)}"


def _by_cell(found: Sequence[Record]) -> dict[tuple[str, tuple[float, ...], str], list[float]]:
    """Return the accuracies of the seeds that chose nothing, by dataset, priors and fit, in percent."""
    fits: dict[tuple[str, tuple[float, ...], str], list[float]] = defaultdict(list)
    for record in found:
        run = record["configuration"]
        if run["seed"] >= FIRST_SEED:
            fits[run["dataset"], tuple(run["set_priors"]), run["fit"]].append(100 * record["test_accuracy"])
    return fits


def _spread(values: Sequence[float]) -> str:
    deviation = mean_std(values)[1]
    return "" if deviation is None else f" ({deviation:.1f})"


def _smaller(found: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield the accuracy with smaller sets, without and with augmentation and consistency training."""
    rows, names = [], {"default": "default", "augmented": "augmented", "consistency": "consistency training"}
    sizes = sorted({record["configuration"]["sizes"][0] for record in found})
    for size in sizes:
        fits = _by_cell([record for record in found if record["configuration"]["sizes"][0] == size])
        for dataset in ("mnist", "fashion_mnist", "kmnist"):
            cells = [[fits[dataset, priors, name] for name in names] for priors in PRIORS]
            texts = [f"{fmean(values):.1f}{_spread(values)}" for cell in cells for values in cell]
            rows.append([DATASET_NAMES[dataset], f"{size:,}", *texts])
    short = ["default", "augm.", "consist."]
    head = ["", "rows", *(f"{name}, ({a:g}, {b:g})" for a, b in PRIORS for name in short)]
    yield "smaller", table(head, rows)
    yield "smaller-seeds", str(len(fits["mnist", PRIORS[0], "default"]))


def _ablations() -> Iterator[tuple[str, str]]:
    """Yield the accuracy of the chosen setting and of its changes, measured with labels."""
    stored = [one for one in records.read([STORE]).fits.values() if one["configuration"]["tasks"] == "paper"]
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in stored:
        for run in one["runs"]:
            values[one["configuration"]["setting"]][run["task"]].append(100 * run["accuracy"])
    tasks, base = list(values["chosen"]), values["chosen"]
    rows = [["chosen setting", *(f"{fmean(base[task]):.1f} ({stdev(base[task]):.1f})" for task in tasks)]]
    for name in ABLATIONS:
        if name != "chosen":
            pairs = [zip(values[name][task], base[task], strict=True) for task in tasks]
            rows.append([name, *(_mean([own - chosen for own, chosen in pair]) for pair in pairs)])
    yield "ablations", table(["", *(DATASET_NAMES[task] for task in tasks)], rows)
    yield "ablation-seeds", str(len(base[tasks[0]]))


def _noisy_labels(found: Sequence[Record]) -> Iterator[tuple[str, str]]:
    """Yield the accuracy of learning with noisy labels beside that of consistency training."""
    fits, rows = _by_cell(found), []
    for one in records.read([noisy_labels.STORE]).fits.values():
        dataset, priors = one["configuration"]["dataset"], tuple(one["configuration"]["set_priors"])
        ours = f"{fmean(fits[dataset, priors, 'consistency']):.1f}"
        default = f"{fmean(fits[dataset, priors, 'default']):.1f}"
        name = f"{DATASET_NAMES[dataset]}, ({priors[0]:g}, {priors[1]:g})"
        rows.append([name, default, f"{100 * one['accuracy']:.1f}", ours])
    yield "noisy-labels", table(["", "default", "noisy labels (DivideMix)", "consistency training"], rows)


def _resnet() -> Iterator[tuple[str, str]]:
    """Yield the label-free comparison of settings for ResNet-32."""
    found: dict[str, list[float]] = defaultdict(list)
    for one in records.read([consistency_resnet.STORE]).fits.values():
        found[one["configuration"]["setting"]].append(100 * one["risk"])
    tasks = [f"classes {', '.join(map(str, task))}" for task in consistency_resnet.TASKS]
    yield "resnet", table(["", *tasks], [[name, *(f"{risk:.1f}" for risk in risks)] for name, risks in found.items()])


def _speed() -> Iterator[tuple[str, str]]:
    """Yield the time of an epoch with consistency training relative to the time without it."""
    stored = json.loads((ROOT / "benchmarks" / "results" / "gpu.json").read_text(encoding="utf-8"))["consistency"]
    for model in ("mlp", "resnet32"):
        without, with_ = (stored["results"][f"{model}{part}_seconds_an_epoch"] for part in ("", "_consistency"))
        yield f"{model}-ratio", f"{with_ / without:.1f}"


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
    on_cpu = json.loads((ROOT / "benchmarks" / "results" / "augmentation_cpu.json").read_text(encoding="utf-8"))
    ratios = [one["speedup"]["uulearn"]["kornia"] for one in on_cpu["results"].values()]
    yield "augmentation-kornia", f"{min(ratios):.1f} to {max(ratios):.1f}"


def _cell(run: Record) -> tuple[Any, ...]:
    return run["task"], *run["set_priors"], run["seed"]


# -------------------------------------------------------------------------------------------------------------- tables

TABLE_CELLS = [(rows, priors) for rows in consistency_tables.SIZES for priors in consistency_tables.PRIORS]
VIEWS = {
    "none": "no consistency training",
    "none, L2 5e-4": "no consistency training, L2 5e-4",
    "none, 120 epochs": "no consistency training, 120 epochs",
    "images, none": "no consistency training",
}
"""Names of settings on the page, if they differ from those in the records."""


def _table_settings() -> Iterator[tuple[str, str]]:
    """Yield the label-free comparison on tables, and that of images of digits."""
    found: dict[str, dict[tuple[Any, ...], float]] = defaultdict(dict)
    for one in records.read([consistency_tables.STORE]).fits.values():
        run = one["configuration"]
        if "setting" in run:
            cell = run["table"], run["rows"], tuple(run["set_priors"]), run["seed"]
            found[run["setting"]][cell] = 100 * one["risk"]
    for fact, prefix in (("table-settings", ""), ("image-settings", "images, ")):
        own = {name: cells for name, cells in found.items() if name.startswith("images, ") == bool(prefix)}
        base, rows = own[f"{prefix}{consistency_tables.NONE}"], list[tuple[float, list[str]]]()
        for name, risks in own.items():
            changes = {cell: risk - base[cell] for cell, risk in risks.items()}
            texts = [_mean([changes[cell] for cell in changes if cell[1:3] == part]) for part in TABLE_CELLS]
            label = VIEWS.get(name, name.removeprefix(prefix))
            if risks is base:
                texts = ["–"] * len(TABLE_CELLS)
            total = _mean(list(changes.values())) if risks is not base else "–"
            rows.append((fmean(changes.values()), [label, str(len(changes)), total, *texts]))
        head = ["setting", "fits", "all", *(f"{rows:,} rows, ({a:g}, {b:g})" for rows, (a, b) in TABLE_CELLS)]
        yield fact, table(head, [row for _, row in sorted(rows, key=lambda row: row[0])])
    yield "tables-count", str(len({cell[0] for cell in found[consistency_tables.NONE]}))
    both = [cell for cell in found["L2 5e-3"] if cell in found[consistency_tables.BASE]]
    changes = [found["L2 5e-3"][cell] - found[consistency_tables.BASE][cell] for cell in both]
    yield "tables-l2", _mean(changes)


def _mean(changes: Sequence[float]) -> str:
    """Return the mean with its standard error, or without it if there are fewer than two values."""
    if not changes:
        return ""
    if len(changes) == 1:
        return signed(changes[0])
    return f"{signed(fmean(changes))} ± {stdev(changes) / len(changes) ** 0.5:.1f}"


def _measured() -> Iterator[tuple[str, str]]:
    """Yield the accuracy on tables without and with consistency training, and with the choice of "auto"."""
    found = defaultdict(list)
    for one in records.read([consistency_tables.STORE]).fits.values():
        run = one["configuration"]
        if "measure" in run:
            found[run["table"], run["rows"]].append(one)
    rows, everything = [], [one for fits in found.values() for one in fits]
    for (name, size), fits in sorted(found.items(), key=lambda item: (item[0][1], item[0][0])):
        rows.append([name, f"{size:,}", *_accuracies(fits)])
    rows.append(["mean", "", *_accuracies(everything)])
    head = ["table", "rows", "without", "with", "`auto`", "`auto` uses it"]
    yield "measured", table(head, rows)
    used = [one["accuracy"] for one in everything if one["used"]]
    yield "measured-used", f"{len(used)} of {len(everything)}"
    yield "measured-used-better", str(sum(one["with"] > one["without"] for one in used))


def _accuracies(fits: Sequence[Record]) -> list[str]:
    without, with_ = ([100 * one["accuracy"][key] for one in fits] for key in ("without", "with"))
    auto = [two if one["used"] else own for one, own, two in zip(fits, without, with_, strict=True)]
    return [*(f"{fmean(values):.1f}" for values in (without, with_, auto)),
            f"{sum(one['used'] for one in fits)} of {len(fits)}"]  # fmt: skip


def _errors() -> Iterator[tuple[str, str]]:
    """Yield the accuracy with wrong priors, and on two moons."""
    found: dict[tuple[str, tuple[float, ...]], list[Record]] = defaultdict(list)
    for one in records.read([consistency_errors.STORE]).fits.values():
        run = one["configuration"]
        found[run["table"], tuple(run["errors"])].append(one)
    names = [name for name in ("mnist", "digits", "spambase", "magic") if (name, (0, 0)) in found]
    cells = [(0, 0), *((error, 0) for error in consistency_errors.ERRORS),
             *((0, error) for error in consistency_errors.ERRORS)]  # fmt: skip
    rows = []
    for errors in cells:
        given = [value + error for value, error in zip(consistency_errors.PRIORS, errors, strict=True)]
        rows.append([", ".join(f"{value:.2f}" for value in given)])
        for name in names:
            fits = found.get((name, errors), [])
            without, with_, _, _ = _accuracies(fits) if fits else [""] * 4
            mark = ", used" if fits and all(one["used"] for one in fits) else ""
            rows[-1].append(f"{without} → {with_}{mark}" if fits else "")
    yield "errors", table(["priors given", *(DATASET_NAMES.get(name, name) for name in names)], rows)
    moons = found["moons", (0, 0)]
    without, with_, _, used = _accuracies(moons)
    yield "moons-without", without
    yield "moons-with", with_
    yield "moons-used", used
    wrong = [one for key, fits in found.items() for one in fits if key[0] != "moons" and any(key[1])]
    hurts = [one for one in wrong if one["accuracy"]["with"] < one["accuracy"]["without"] - 0.005]
    yield "errors-hurt", f"{len(hurts)} of {len(wrong)}"
    yield "errors-hurt-used", f"{sum(one['used'] for one in hurts)}"
