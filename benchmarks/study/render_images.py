"""Render the pages of the study of images: the settings chosen without labels, and the accuracy of the defaults.

    python benchmarks/study/render_images.py [--out DIR] [--pack]

writes ``grid.md`` and ``finals.md`` into the folder of the records.
"""

from __future__ import annotations

import argparse
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from finals import FIRST_SEED, MODELS, PRIORS, SUPERVISED
from grid import BASE
from numpy.typing import NDArray
from shared import Record

from uulearn.reproduction.experiments import DATASET_NAMES
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.statistics import mean_std
from uulearn.reproduction.store import RunStore
from uulearn.training.early_stopping import BestEpoch

AXES = ("loss", "method", "slope", "lr", "lr_decay", "l2", "ema", "batch_size", "held_out", "epochs")
CELL = ("dataset", "set_priors", "seed")
HORIZONS = (50, 100, 200)
TITLES = {
    "refined": "self-training", SUPERVISED: "with labels", f"{SUPERVISED}-augmented": "with labels, augmented",
}  # fmt: skip
"""Names of fits on the page; other fits have the name of the record."""


def best_epoch(record: Record, epochs: int, smoothing: int = 5) -> int:
    """Return the epoch, counted from 1, that early stopping would choose among the first ``epochs``."""
    best = BestEpoch(smoothing, None)
    for value in record["curves"]["validation_zero_one"][:epochs]:
        best.update(value)
    return best.epoch or 1


class Setting:
    """All runs of one setting: the estimated and the true accuracy."""

    def __init__(self, records: Iterable[Record], epochs: int) -> None:
        self.estimated, self.chosen, self.last, self.best = [], [], [], []
        for record in records:
            truth = 100 * np.array(record["curves"]["test_accuracy"][:epochs])
            errors = np.array(record["curves"]["validation_zero_one"][:epochs])
            epoch = best_epoch(record, epochs)
            self.estimated.append(100 * (1 - errors[max(0, epoch - 5) : epoch].mean()))
            self.chosen.append(truth[epoch - 1])
            self.last.append(truth[-1])
            self.best.append(truth.max())

    def row(self) -> list[str]:
        """Return the means as cells of a table."""
        return [f"{np.mean(values):.2f}" for values in (self.estimated, self.chosen, self.last, self.best)]


def grid_page(records: Sequence[Record]) -> str:
    """Return a page with the best settings and one table per varied setting."""
    by_setting: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        by_setting[tuple(record["configuration"][name] for name in AXES)].append(record)
    most = max(len({tuple(map(str, _cell(r))) for r in group}) for group in by_setting.values())
    full = {key: group for key, group in by_setting.items() if len(group) == most}
    horizons = [epochs for epochs in HORIZONS if epochs <= max(key[AXES.index("epochs")] for key in full)]
    settings = {(key, epochs): Setting(group, epochs) for key, group in full.items() for epochs in horizons}
    ranked = sorted(settings, key=lambda which: -float(np.mean(settings[which].estimated)))
    head = ["estimated accuracy", "at the chosen epoch", "at the last epoch", "at the best epoch, by labels"]
    names = ["loss", "method", "λ", "learning rate", "decay", "L2", "moving average", "batch", "held out", "epochs"]
    present = [name for key, name in DATASET_NAMES.items() if key in {_cell(record)[0] for record in records}]
    lines = [
        "# Settings compared on images",
        "",
        f"{len(records)} runs of the MLP on {' and '.join(present)}. Each number is a mean over {most} runs "
        "(datasets, priors, seeds), in percent. Settings are compared by the estimated accuracy, which uses no labels. "
        "It is slightly too high, because it is the best of all epochs. The other columns show the accuracy on "
        "labeled test rows, for information only.",
        "",
        "## Best settings by estimated accuracy",
        "",
        *_table([*names, *head], [[*_shown(key, epochs), *settings[key, epochs].row()] for key, epochs in ranked[:25]]),
    ]
    base = tuple(BASE[name] for name in AXES)
    for axis, name in enumerate(names[1:-1], start=1):
        rows = []
        for key, epochs in ranked:
            around = all(
                k == b or i in (0, axis) or _follows(i, axis, key)
                for i, (k, b) in enumerate(zip(key, base, strict=True))
            )
            if around and epochs == horizons[-1]:
                rows.append([key[0], str(key[axis]), *settings[key, epochs].row()])
        if len({row[1] for row in rows}) > 1:
            lines += ["", f"## {name}", "", *_table(["loss", name, *head], sorted(rows))]
    return "\n".join(lines) + "\n"


def _follows(place: int, axis: int, key: tuple[Any, ...]) -> bool:
    """Return whether λ differs only because the method differs."""
    return AXES[axis] == "method" and AXES[place] == "slope" and (key[1] != "leaky_relu" or key[2] == BASE["slope"])


def _cell(record: Record) -> list[Any]:
    return [record["configuration"][name] for name in CELL]


def _shown(key: tuple[Any, ...], epochs: int) -> list[str]:
    return ["–" if value is None else str(value) for value in (*key[:-1], epochs)]


def finals_page(records: Sequence[Record]) -> str:
    """Return the page of the twelve cells: the paper's best, each fit, and the gap to supervised training."""
    paper = paper_table("table3")
    tried = [record for record in records if record["configuration"]["seed"] < FIRST_SEED]
    records = [record for record in records if record["configuration"]["seed"] >= FIRST_SEED]
    fits = list(dict.fromkeys(record["configuration"]["fit"] for record in records))
    fits = sorted(fits, key=lambda name: (name.startswith(SUPERVISED), name != "default", name))
    rows, shares = [], []
    for dataset in MODELS:
        for priors in PRIORS:
            best = max(cell.accuracy.mean for cell in paper[dataset, priors].values())
            found = {name: _values(records, dataset, priors, name, "test_accuracy") for name in fits}
            means = {name: 100 * float(np.mean(values)) for name, values in found.items() if len(values)}
            # Sets with other priors have the same number of rows, so training with labels is comparable.
            ceiling = means.get(SUPERVISED) or _anywhere(records, dataset)
            cells = [f"{100 * np.mean(v):.1f}{_spread(v)}" if len(v) else "" for v in found.values()]
            rows.append([DATASET_NAMES[dataset], str(priors), f"{best:.1f}", *cells])
            shares.append(
                [DATASET_NAMES[dataset], str(priors)]
                + [f"{(means[n] - best) / (ceiling - best):.2f}" if n in means and ceiling else "" for n in fits]
            )
    titles = [TITLES.get(name, name) for name in fits]
    lines = [
        "# The defaults on images",
        "",
        "Test accuracy in percent: mean (standard deviation) over seeds that were not used to choose the defaults. "
        "Labels are used for training only in the columns “with labels”.",
        "",
        *_table(["", "priors", "paper's best", *titles], rows),
        "",
        "Fraction of the gap between the paper's best and training with labels that is closed:",
        "",
        *_table(["", "priors", *titles], shares),
        "",
        "## Estimated accuracy and calibration",
        "",
        *_honesty(records, [name for name in fits if not name.startswith(SUPERVISED)]),
        *(["", "## Trials that chose the defaults", "", *_trials(tried)] if tried else []),
    ]
    return "\n".join(lines) + "\n"


def _honesty(records: Sequence[Record], fits: Sequence[str]) -> list[str]:
    """Compare the label-free estimate with the true accuracy, and show the calibration, for each fit and dataset."""
    rows = []
    for name, dataset in itertools.product(fits, MODELS):
        wanted = {"fit": name, "dataset": dataset}
        own = [r for r in records if all(r["configuration"][key] == value for key, value in wanted.items())]
        if not own:
            continue
        evaluated = [r for r in own if r["estimate"] is not None]
        covered = [abs(r["estimate"][0] - r["test_accuracy"]) <= 1.96 * r["estimate"][1] for r in evaluated]
        differences = [100 * (r["estimate"][0] - r["test_accuracy"]) for r in evaluated]
        rows.append(
            [
                TITLES.get(name, name),
                DATASET_NAMES[dataset],
                str(len(own)),
                f"{np.mean(differences):+.2f}" if evaluated else "–",
                f"{sum(covered)} of {len(evaluated)}" if evaluated else "–",
                f"{np.mean([r['calibration_error'] for r in own]):.3f}",
                f"{np.mean([r['brier'] for r in own]):.3f}",
                f"{np.median([r['seconds'] for r in own]):.0f}",
            ]
        )
    return _table(
        [
            "",
            "",
            "fits",
            "estimate − accuracy",
            "within its 95% interval",
            "calibration error",
            "Brier",
            "seconds per fit",
        ],
        rows,
    )


def _anywhere(records: Sequence[Record], dataset: str) -> float | None:
    """Return the mean accuracy of all supervised fits on a dataset."""
    found = [values for priors in PRIORS for values in _values(records, dataset, priors, SUPERVISED, "test_accuracy")]
    return 100 * float(np.mean(found)) if found else None


def _trials(records: Sequence[Record]) -> list[str]:
    """Return the fits with the seeds that were used to choose the defaults."""
    rows = [
        [
            DATASET_NAMES[run["dataset"]],
            str(tuple(run["set_priors"])),
            ", ".join(f"`{name}={value!r}`" for name, value in run["changes"].items() if name != "compile")
            or "default",
            f"{100 * (1 - record['curves']['validation_zero_one'][record['best_epoch'] - 1]):.1f}"
            if record["best_epoch"] and record["curves"]
            else "",
            f"{100 * record['test_accuracy']:.1f}",
            str(record["best_epoch"] or ""),
        ]
        for record in records
        for run in [record["configuration"]]
    ]
    head = ["", "priors", "settings", "estimated accuracy", "test accuracy", "chosen epoch"]
    return _table(head, sorted(rows))


def _values(
    records: Sequence[Record], dataset: str, priors: tuple[float, float], fit: str, name: str
) -> NDArray[np.float64]:
    wanted = {"dataset": dataset, "set_priors": list(priors), "fit": fit}
    own = [r for r in records if all(r["configuration"][key] == value for key, value in wanted.items())]
    return np.array([record[name] for record in own])


def _spread(values: Sequence[float] | NDArray[np.float64]) -> str:
    _, deviation = mean_std([100 * value for value in values])
    return "" if deviation is None else f" ({deviation:.1f})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows)]


def main() -> None:
    """Write the pages for which there are records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/study"))
    parser.add_argument("--pack", action="store_true", help="pack the records into a few compressed files")
    asked = parser.parse_args()
    out, store = asked.out, RunStore(asked.out)
    if asked.pack:
        print(*store.pack(), sep="\n")
    pages: dict[str, Callable[[Sequence[Record]], str]] = {"grid": grid_page, "finals": finals_page}
    for name, page in pages.items():
        if records := store.records(study=name):
            (out / f"{name}.md").write_text(page(records), encoding="utf-8")
            print(out / f"{name}.md")


if __name__ == "__main__":
    main()
