"""Facts of ``docs/reproduction.md``: the runs under ``results/packed`` compared with the paper's tables.

Names of single cells are made of model, dataset, first prior and method, such as ``difference-mlp-mnist-0.7-relu`` (our
mean accuracy minus the paper's, in points) or ``no-l2-mlp-mnist-0.7-relu`` (the same under a variant of the settings).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from study_tables import signed, table

from uulearn.reproduction import conclusions, experiments, selection, variants
from uulearn.reproduction.experiments import (
    EXPERIMENTS,
    PAPER_SET_PRIORS,
    PAPER_TRIALS,
    Request,
    TableRow,
    table_rows,
)
from uulearn.reproduction.pages import make_table, rows_shown
from uulearn.reproduction.reference import paper_table
from uulearn.reproduction.statistics import AGREEMENT_POINTS
from uulearn.reproduction.store import RunStore, key
from uulearn.reproduction.tables import PAPER_COLUMNS, ResultCell, ResultTable

RESULTS = Path(__file__).resolve().parents[3] / "results"
FAST_SECONDS = 75
"""Largest duration of a ResNet-32 run that was not slowed down by other work on the device."""
VARIANT_NAMES = {
    "decay": "decay",
    "lr / 3": "third",
    "lr × 3": "triple",
    "lr 5e-3": "appendix-c",
    "shortened": "shortened",
    "independent": "independent",
    "batch 1500": "batch-1500",
    "batch 500": "batch-500",
    "no L2": "no-l2",
    "Glorot": "glorot",
    "as printed": "printed",
    "normalization": "normalization",
}

Record = dict[str, Any]
Find = Callable[[Record], Record | None]


def facts() -> dict[str, str]:
    """Return all facts of the page by name."""
    records = {key(record["configuration"]): record for record in RunStore(RESULTS).records()}

    def find(configuration: Record) -> Record | None:
        return records.get(key(configuration))

    rows = {name: rows_shown(name, Request(), find) for name in ("table2", "table3")}
    tables = {name: make_table(name, own, find) for name, own in rows.items()}
    cells = [cell for table in tables.values() for cell in table.compared]
    parts: list[Iterator[tuple[str, str]]] = [
        _times(rows, find),
        _agreement(cells),
        _weak_evidence(cells),
        _cells(cells),
        _variants(variants.variant_results(Request(), find)),
        _resnet([row for row in rows["table3"] if row.model == "resnet32"], cells, find),
        _slopes(find),
        _conclusions(list(tables.values()), find),
    ]
    return dict(item for part in parts for item in part)


def _model(row: TableRow) -> str:
    return {"resnet32": "resnet"}.get(row.model, row.model)


# ------------------------------------------------------------------------------------------------- runs and their time


def _runs(rows: Iterable[TableRow]) -> list[Record]:
    return [run for row in rows for seed in row.seeds for run in row.trial(seed)]


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def _times(table_rows: Mapping[str, Sequence[TableRow]], find: Find) -> Iterator[tuple[str, str]]:
    """Yield the runs and training time of each command; a run that several commands share is counted once."""
    commands: list[tuple[str, str, Callable[[Record], bool]]] = [
        ("`table2`", "table2", lambda run: True),
        ("`table3`, three MLP datasets", "table3", lambda run: run["model"] == "mlp"),
        ("`table3 --dataset cifar10` (ResNet-32)", "table3", lambda run: run["model"] == "resnet32"),
        ("`figure1`", "figure1", lambda run: True),
        ("`figure3`", "figure3", lambda run: True),
        ("`variants`, linear and MLP", "variants", lambda run: run["model"] != "resnet32"),
        ("`variants`, ResNet-32", "variants", lambda run: run["model"] == "resnet32"),
    ]
    seen: set[str] = set()
    rows = []
    for label, target, wanted in commands:
        trained = _runs(table_rows[target]) if target in table_rows else EXPERIMENTS[target](Request())
        runs = {key(run): run for run in trained if wanted(run) and key(run) not in seen}
        seen |= runs.keys()
        seconds = sum(record["seconds"] for run in runs.values() if (record := find(run)))
        rows.append([label, str(len(runs)), _duration(seconds)])
    yield "times", table(["target", "runs", "training time"], rows)
    resnet = [find(run) for run in _runs(table_rows["table3"]) if run["model"] == "resnet32"]
    seconds = [record["seconds"] for record in resnet if record]
    fast = [value for value in seconds if value < FAST_SECONDS]
    yield "resnet-runs", str(len(seconds))
    yield "resnet-mean-seconds", f"{fmean(seconds):.0f}"
    yield "resnet-fast-runs", str(len(fast))
    yield "resnet-fast-seconds", f"{min(fast):.0f} to {max(fast):.0f}"
    yield "resnet-slowest-seconds", f"{max(seconds):.0f}"


# ------------------------------------------------------------------------------------------------ agreement and cells


def _agreement(cells: Sequence[ResultCell]) -> Iterator[tuple[str, str]]:
    groups = (
        ("linear", "[Table 2](../results/table2.md), linear models"),
        ("mlp", "[Table 3](../results/table3.md), MLP"),
        ("resnet32", "[Table 3](../results/table3.md), ResNet-32 on CIFAR-10"),
    )
    rows = []
    for model, label in groups:
        own = [cell for cell in cells if cell.row.model == model]
        (trials,) = {cell.requested for cell in own}
        agreeing = [cell for cell in own if cell.agrees]
        far = max(abs(cell.difference() or 0) for cell in agreeing)
        rows.append([label, str(trials), str(len(own)), str(len(agreeing)), f"{far:.1f}"])
    head = ["", "trials per cell", "cells", "agree", "largest difference in agreeing cells, points"]
    yield "agreement", table(head, rows)
    yield "agreement-points", f"{AGREEMENT_POINTS:g}"


def _weak_evidence(cells: Sequence[ResultCell]) -> Iterator[tuple[str, str]]:
    """Yield notes on the cells of ResNet-32; they are empty if all cells have as many trials as in the paper."""
    own = [cell for cell in cells if cell.row.model == "resnet32"]
    trials = min(cell.runs for cell in own)
    widest = max((cell for cell in own if cell.agrees), key=lambda cell: abs(cell.difference()))
    note = f"For ResNet-32, agreement is weak evidence, because each cell has only {trials} trials."
    largest = (
        f"The largest difference in a cell that agrees is {abs(widest.difference()):.1f} points "
        f"({widest.column.label} at ({widest.row.priors_label}))."
    )
    few = trials < PAPER_TRIALS
    yield "resnet-trials", str(trials)
    yield "weak-evidence", textwrap.fill(f"{note} {largest}", 119) if few else ""
    yield "weak-evidence-short", note if few else ""


def _cells(cells: Sequence[ResultCell]) -> Iterator[tuple[str, str]]:
    for cell in cells:
        name = f"{_model(cell.row)}-{cell.row.dataset}-{cell.row.set_priors[0]:g}-{cell.column.name}"
        yield f"paper-{name}", f"{cell.paper.accuracy.mean:.1f}"
        yield f"difference-{name}", signed(cell.difference())
        yield f"points-{name}", f"{abs(cell.difference()):.1f}"
        yield f"paper-std-{name}", f"{cell.paper.accuracy.std:.1f}"


def _variants(results: Sequence[variants.VariantResult]) -> Iterator[tuple[str, str]]:
    dense = [result for result in results if result.row.model != "resnet32"]
    for result in results:
        method = {0.0: "relu", -1.0: "abs", -0.01: "leaky-0.01", -0.1: "leaky-0.1"}.get(result.method, result.method)
        name = f"{_model(result.row)}-{result.row.dataset}-{result.row.set_priors[0]:g}-{method}"
        yield f"{VARIANT_NAMES[result.variant]}-{name}", signed(result.difference)
        yield f"{VARIANT_NAMES[result.variant]}-ours-{name}", f"{result.mean:.1f}"
    rows = []
    for variant, label in (
        ("as printed", "as printed"),
        ("no L2", "no L2 penalty"),
        ("lr × 3", "three times the learning rate"),
        ("lr / 3", "a third of the learning rate"),
        ("decay", "decaying learning rate"),
        ("independent", "rows drawn independently, with replacement"),
        ("batch 1500", "batches of 1,500"),
        ("Glorot", "Glorot-uniform initialization (MLP only)"),
        ("shortened", "smaller sets (Kuzushiji-MNIST, CIFAR-10)"),
    ):
        own = [result for result in dense if result.variant == variant]
        same = {(result.row, result.method) for result in own}
        before = [result for result in dense if result.variant == "as printed" and (result.row, result.method) in same]
        distance = [fmean(abs(result.difference) for result in group) for group in (own, before)]
        agree = [sum(result.agrees for result in group) for group in (own, before)]
        rows.append([label, str(len(own)), str(agree[0]), str(agree[1]), *(f"{value:.1f}" for value in distance)])
    head = ["variant", "cells", "agree", "agree as printed", "mean difference", "mean difference as printed"]
    yield "variants", table(head, rows)
    short = [r for r in dense if r.row.dataset == "kmnist" and r.variant in ("shortened", "as printed")]
    for variant, name in (("shortened", "shortened-kmnist-agree"), ("as printed", "printed-kmnist-agree")):
        yield name, str(sum(r.agrees for r in short if r.variant == variant))
    third = [r for r in dense if r.variant == "lr / 3" and r.row.model == "mlp"]
    wrong = [r.difference for r in third if r.method == "unbiased" and not r.agrees]
    yield "third-unbiased", f"{min(wrong):.0f} to {max(wrong):.0f}"
    yield "third-unbiased-rows", str(len(wrong))
    leaky = [r for r in third if r.method == -0.01]
    yield "third-leaky-agree", f"{sum(r.agrees for r in leaky)} of the {len(leaky)}"


def _resnet(rows: Sequence[TableRow], cells: Sequence[ResultCell], find: Find) -> Iterator[tuple[str, str]]:
    """Yield the accuracy of ResNet-32 at the last epoch, the median of the last twenty epochs, and the paper's mean."""
    own = {(cell.row.set_priors, cell.column.name): cell for cell in cells if cell.row.model == "resnet32"}
    columns = [column for column in PAPER_COLUMNS if any(name == column.name for _, name in own)]
    last, late = [], []
    for row in rows:
        shown, medians = [], []
        for column in columns:
            cell = own[row.set_priors, column.name]
            ours = f"{cell.accuracy.mean:.1f} ({cell.accuracy.std:.1f})"
            shown.append(f"{ours if cell.agrees else f'**{ours}**'}, *{cell.paper.accuracy.mean:.1f}*")
            method = {"relu": 0.0, "abs": -1.0, "leaky_relu": -0.1}.get(column.name, column.name)
            runs = [find(row.run(method, seed)) for seed in row.seeds]
            medians.append(f"{fmean(variants.late_accuracy(run) for run in runs):.1f}")
        last.append([f"({row.priors_label})", *shown])
        late.append([f"({row.priors_label})", *medians])
    head = ["", "biased", "unbiased", "ABS", "ReLU", "leaky ReLU, λ = −0.1"]
    yield "resnet", table(head, last)
    yield "resnet-late", table(head, late)
    trials = own[(0.8, 0.2), "leaky_relu"].trials
    yield "resnet-leaky-trials", " and ".join(f"{value:.1f}" for value in trials.values())
    (row,) = (row for row in rows if row.set_priors == (0.6, 0.4))
    run = find(experiments.variant_run(row, "lr 5e-3", -1.0, 0))
    curve = [100 * value for value in run["curves"]["test_accuracy"][-50:]]
    yield "appendix-c-range", f"{min(curve):.0f} and {max(curve):.0f}"
    used = [record["environment"] for run in _runs(rows) if (record := find(run))]
    yield "resnet-float32-runs", str(sum(each["precision"] == "float32" for each in used))


# -------------------------------------------------------------------------------------------------------- choice of λ


def _slopes(find: Find) -> Iterator[tuple[str, str]]:
    ways = {
        "chosen": "λ of each trial, chosen without labels",
        "fixed": "λ = −0.1 in all trials",
        "hindsight_row": "best λ of each row, chosen by test labels",
        "hindsight_trial": "best λ of each trial, chosen by test labels",
    }
    for name in ("table2", "table3"):
        comparisons = selection.compare(selection.trials_of(table_rows(name, Request()), find))
        groups = [comparisons] + [[c for c in comparisons if c.row.set_priors == priors] for priors in PAPER_SET_PRIORS]
        printed = paper_table(name)
        rows = [["the paper, λ “selected from −0.01 to 1”"]]
        for group in groups:
            paper = [printed[c.row.dataset, c.row.set_priors] for c in group]
            rows[0].append(signed(fmean(p["leaky_relu"].accuracy.mean - p["relu"].accuracy.mean for p in paper), 2))
        for way, label in ways.items():
            rows.append([label, *(signed(fmean(getattr(c, way) - c.relu for c in group), 2) for group in groups)])
        head = ["", "all", *(f"({a:g}, {b:g})" for a, b in PAPER_SET_PRIORS)]
        gains = [fmean(getattr(c, way) - c.relu for c in comparisons) for way in ways]
        if name == "table2":
            yield "slopes-linear", f"{signed(min(gains), 2)} to {signed(max(gains), 2)}"
        else:
            yield "slopes", table(head, rows)
            chosen, best = (
                fmean(getattr(c, way) - c.relu for c in comparisons) for way in ("chosen", "hindsight_trial")
            )
            yield "slopes-best", f"{best:.1f}"
            yield "slopes-labels", f"{best - chosen:.1f}"
            gains = [fmean(c.chosen - c.relu for c in group) for group in groups[1:3]]  # (0.8, 0.2) and (0.7, 0.3)
            yield "slopes-real", f"{min(gains):.1f} to {max(gains):.1f}"
            yield "slopes-close", f"{fmean(c.hindsight_trial - c.relu for c in groups[3]):.1f}"


# --------------------------------------------------------------------------------------------- conclusions, Section 4


def _conclusions(tables: Sequence[ResultTable], find: Find) -> Iterator[tuple[str, str]]:
    cells: dict[str, list[ResultCell]] = {}
    for cell in (cell for shown in tables for cell in shown):
        cells.setdefault(cell.row.model, []).append(cell)
    contests = conclusions.contests(cells)
    for model in ("mlp", "resnet32", "linear"):
        for plain in ("biased", "unbiased"):
            gains = [c.difference for c in contests if c.model == model and c.plain == plain]
            ends = min(gains), max(gains)
            texts = (f"{gain:.0f}" if model != "linear" else signed(gain) for gain in ends)
            yield f"gain-{model}-{plain}", " to ".join(texts)
    verdicts = [c.verdict for c in contests if c.model == "linear" and c.plain == "biased"]
    yield "linear-better", f"{verdicts.count('better')} of {len(verdicts)}"
    drops = conclusions.drops_by_priors(cells)
    for model in ("mlp", "resnet32", "linear"):
        series = [list(values.values()) for (name, _, _), values in drops.items() if name == model]
        grows = sum(values == sorted(values) and len(set(values)) == len(values) for values in series)
        yield f"grows-{model}", f"{grows} of {len(series)}"
    trials = [row.trial(seed) for table in tables for row in table.rows for seed in row.seeds]
    runs = [run for trial in trials for run in trial if not run["held_out"] and run["slope"] in (None, -0.1)]
    unbiased = [run for run in runs if run["model"] == "mlp" and run["method"] == "unbiased"]
    for name, some in (("all", runs), ("unbiased-mlp", unbiased)):
        found = conclusions.co_occurrence([record for run in some if (record := find(run))])
        yield f"runs-{name}", str(len(some))
        yield f"both-{name}", f"{found.both} of {len(some)}"
        yield f"together-{name}", f"{100 * found.together:.0f}"
        yield f"correlation-{name}", signed(found.spearman, 2)
    dropout, decay = experiments.figure3_curves(Request())
    regularized = conclusions.regularized_runs(map(find, dropout), "dropout")
    regularized += conclusions.regularized_runs(map(find, decay), "l2")
    best = max(regularized, key=lambda run: run.last_accuracy)
    yield "regularized", str(len(regularized))
    yield "regularized-best", f"{best.last_accuracy:.1f}"
    own = [c for c in cells["mlp"] if c.row.dataset == "mnist" and c.row.set_priors == (0.6, 0.4)]
    means = [c.accuracy.mean for c in own if c.column.name in ("abs", "relu", "leaky_relu")]
    yield "regularized-corrected", f"{min(means):.0f} to {max(means):.0f}"
