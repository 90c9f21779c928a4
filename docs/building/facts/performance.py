"""Facts of ``docs/performance.md``: timings and memory stored by the scripts under ``benchmarks/``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from study_tables import table

from uulearn.reproduction.experiments import Request, table_rows

RECORDS = Path(__file__).resolve().parents[3] / "benchmarks" / "results"
MIB = 2**20

Record = Mapping[str, Any]


def facts() -> dict[str, str]:
    """Return all facts of the page by name."""
    return dict(
        item
        for part in (
            _epochs,
            _prediction,
            _memory,
            _startup,
            _precision,
            _accumulation,
            _gpu,
            _scaling,
            _workers,
            _files,
        )
        for item in part()
    )


def _read(name: str) -> Any:
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def _short(value: float) -> str:
    """Return a number with two significant digits."""
    digits = max(0, 1 - math.floor(math.log10(value)))
    return f"{value:,.{digits}f}"


def _contenders(record: Record, labels: Mapping[str, str], unit: float = 1, digits: int = 3) -> str:
    """Return a table with the median and minimum of each contender and the median ratio within a round."""
    rows = []
    for name, label in labels.items():
        spread, ratio = record["spread"][name], record["speedup"]["uulearn"][name]
        times = f"{unit * spread['median']:.{digits}f} ({unit * spread['min']:.{digits}f})"
        rows.append([label, times, "" if name == "uulearn" else f"{ratio:.2f}"])
    return table(["", "seconds, median (min)", "speedup of uulearn `auto`"], rows)


def _epochs() -> Iterator[tuple[str, str]]:
    section = _read("speed")["sections"]["epoch"]
    results = section["results"]
    labels = {
        "uulearn": 'uulearn, `precision="auto"`',
        "uulearn float32": 'uulearn, `precision="float32"`',
        "tight loop": "hand-written loop, float32",
        "DataLoader loop": "two `DataLoader`s, float32",
        "skorch": "skorch, float32",
    }
    yield "epoch-mlp", _contenders(results["mlp"], labels)
    del labels["uulearn float32"]
    yield "epoch-linear", _contenders(results["linear"], labels)
    yield "epoch-rounds", str(section["configuration"]["rounds"])
    yield "torch", section["versions"]["torch"].partition("+")[0]
    yield "processor", section["machine"]["processor"]
    mlp = results["mlp"]["speedup"]["uulearn"]
    yield "mlp-against-dataloader", f"{mlp['DataLoader loop']:.1f}"
    yield "mlp-against-skorch", f"{mlp['skorch']:.1f}"


def _prediction() -> Iterator[tuple[str, str]]:
    section = _read("speed")["sections"]["predict"]
    labels = {
        "uulearn": 'uulearn, `precision="auto"`',
        "uulearn float32": 'uulearn, `precision="float32"`',
        "direct chunks": "chunks of 1,024 rows, float32",
        "DataLoader": "`DataLoader`, float32",
        "skorch, batches of 1,024": "skorch, batches of 1,024",
        "skorch, batches of 128": "skorch, default batches of 128",
    }
    yield "prediction", _contenders(section["results"], labels, digits=2)
    yield "prediction-rounds", str(section["configuration"]["rounds"])
    agreement = section["results"]["agreement_with_direct_chunks"]["uulearn"]
    yield "prediction-difference", f"{agreement['largest_difference']:.4f}"
    yield "prediction-other-classes", f"{100 * agreement['share_of_other_classes']:.3f}"


def _memory() -> Iterator[tuple[str, str]]:
    results = _read("speed")["sections"]["memory"]["results"]
    fit = sorted(run["times_data_and_model"] for run in results["fit"])
    predict = sorted(run["times_data_and_model"] for run in results["predict"])
    yield "memory-fit", f"{fit[0]:.2f} to {fit[-1]:.2f}"
    yield "memory-predict", f"{predict[-1]:.2f}"
    yield "memory-runs", str(len(fit))


def _startup() -> Iterator[tuple[str, str]]:
    results = _read("speed")["sections"]["startup"]["results"]
    yield "import-risk", f"{results['imports']['speedup']['import torch']['import uulearn.UURisk']:.2f}"
    yield "import-classifier", f"{results['added_to_torch']['import UUClassifier']:.1f}"
    yield "import-skorch", f"{results['added_to_torch']['import skorch.NeuralNet']:.1f}"
    first = results["first_fit"]["spread"]
    yield "first-fit", f"{first['uulearn']['median']:.1f}"
    yield "first-fit-loop", f"{first['DataLoader loop']['median']:.1f}"


def _precision() -> Iterator[tuple[str, str]]:
    runs = _read("precision_accuracy")["runs"]
    last, best = {}, {}
    for run in runs:
        place = run["settings"]["precision"], run["settings"]["seed"]
        last[place], best[place] = 100 * run["last"], 100 * run["best"]
    seeds = sorted({seed for _, seed in last})
    rows = [[name, *(f"{last[name, seed]:.2f}" for seed in seeds)] for name in ("float32", "bfloat16")]
    yield "precision", table(["test accuracy, last epoch", *(f"seed {seed}" for seed in seeds)], rows)
    for name, values in (("last", last), ("best", best)):
        gains = [values["bfloat16", seed] - values["float32", seed] for seed in seeds]
        yield f"precision-{name}", f"{fmean(gains):+.2f} ± {stdev(gains) / math.sqrt(len(gains)):.2f}"
    studied = [run for path in sorted(RECORDS.glob("defaults-*.json")) for run in _read(path.stem)["runs"]]
    for variant, name in (("ema 0.999", "bfloat16"), ("ema 0.999, float32", "float32")):
        own = [100 * run["last"] for run in studied if run["variant"] == variant]
        yield f"precision-study-{name}", f"{fmean(own):.2f}"
    yield "precision-study-runs", str(len(own))


def _accumulation() -> Iterator[tuple[str, str]]:
    section = _read("accumulation")["sections"]["accumulation"]
    labels = {
        "two passes": "two passes, `accumulate`",
        "two gradients": "one pass, two gradients",
        "each corrected": "each micro-batch corrected separately (wrong)",
        "whole": "the whole batch in one pass",
    }
    rows = []
    for name, label in labels.items():
        row = [label]
        for workload in ("mlp", "convolutional"):
            found = section["results"][workload]
            ratio = "" if name == "two passes" else f"{found['speedup']['two passes'][name]:.2f}"
            row += [f"{1000 * found['spread'][name]['median']:.0f}", ratio, f"{found['peak_bytes'][name] / MIB:.1f}"]
        rows.append(row)
    head = ["", "MLP, ms", "relative", "peak, MiB", "convolutional, ms", "relative", "peak, MiB"]
    yield "accumulation", table(head, rows)
    yield "accumulation-rounds", str(section["configuration"]["rounds"])
    usual = section["results"]["mlp"]["speedup"]["two passes"]["each corrected"]
    yield "accumulation-usual", f"{1 / usual:.1f}"


def _gpu() -> Iterator[tuple[str, str]]:
    record = _read("gpu")
    rows = []
    for entry, label in (("stack-linear", "linear, float32"), ("stack-mlp", "MLP, bfloat16")):
        found = record[entry]["results"]
        times = [found[f"seconds_{name}"] for name in ("in_all", "before_the_second_epoch", "an_epoch")]
        step = f"{1000 * found['seconds_a_step']:.2f}"
        rows.append([label, f"{times[0]:.1f}", f"{times[1]:.1f}", f"{times[2]:.3f}", step])
    head = [f"{record['stack-mlp']['configuration']['runs']} runs", "seconds in total", "before the second epoch"]
    yield "gpu-batched", table([*head, "per epoch", "ms per step"], rows)
    mlp, linear, resnet = (record[name] for name in ("stack-mlp", "stack-linear", "resnet32"))
    yield "gpu-device", mlp["device"].removeprefix("NVIDIA ")
    yield "gpu-torch", mlp["versions"]["torch"]
    yield "gpu-runs", str(mlp["configuration"]["runs"])
    yield "gpu-mlp-seconds", f"{mlp['results']['seconds_in_all']:.0f}"
    trials = [row.trial(seed) for row in table_rows("table3", Request(["mnist"])) for seed in row.seeds]
    yield "dataset-runs", str(sum(map(len, trials)))
    yield "selection-runs", str(sum(run["held_out"] > 0 for runs in trials for run in runs))
    yield "gpu-copy", f"{mlp['ceilings']['bytes_a_second'] / 1e12:.2f}"
    roofline = mlp["results"]["roofline_of_a_step"]
    yield "gpu-mlp-bytes", f"{roofline['bytes'] / 1e9:.1f}"
    yield "gpu-mlp-memory-ms", f"{1000 * roofline['seconds_of_memory_at_the_ceiling']:.2f}"
    yield "gpu-mlp-step-ms", f"{1000 * roofline['seconds']:.2f}"
    for name, one in (("mlp", mlp), ("linear", linear)):
        share = one["results"]["roofline_of_a_step"]["share_of_the_higher_ceiling"]
        yield f"gpu-{name}-share", f"{100 * share:.0f}"
    found = resnet["results"]
    yield "gpu-resnet-steps", f"{_round(found['images_a_second_of_training_steps'], 3):,.0f}"
    yield "gpu-resnet-epochs", f"{_round(found['images_a_second_of_whole_epochs'], 3):,.0f}"
    yield "gpu-resnet-first", f"{found['seconds_before_the_second_epoch']:.0f}"
    contenders = record["resnet32-contenders"]["results"]
    for name in ("plain", "compiled", "packed"):
        yield f"gpu-resnet-{name}", f"{_round(contenders[f'images_a_second_{name}'], 3):,.0f}"


def _scaling() -> Iterator[tuple[str, str]]:
    record = _read("scaling")
    by_rows = {(run["model"], run["rows"]): run for run in record["rows"]}
    rows = []
    for size in sorted({size for _, size in by_rows}):
        row = [f"{size:,}"]
        for model in ("linear", "mlp"):
            run = by_rows.get((model, size))
            row += ["–", "–"] if run is None else [_short(run["seconds"]), f"{run['most_mib']:,.0f}"]
        rows.append(row)
    yield "rows", table(["rows", "linear, seconds", "peak MiB", "MLP, seconds", "peak MiB"], rows, left=0)
    most = {model: max(size for name, size in by_rows if name == model) for model in ("linear", "mlp")}
    rates = {model: most[model] / by_rows[model, most[model]]["seconds"] for model in most}
    yield "rows-linear-rate", f"{rates['linear'] / 1e6:.1f}"
    yield "million-linear", _short(by_rows["linear", 10**6]["seconds"])
    yield "million-mlp", _short(by_rows["mlp", 10**6]["seconds"])
    yield "rows-mlp-rate", f"{_round(rates['mlp'], 2):,.0f}"
    by_columns = {(run["model"], run["columns"]): run for run in record["columns"]}
    rows = []
    for number in sorted({number for _, number in by_columns}):
        linear, mlp = by_columns["linear", number], by_columns["mlp", number]
        peak = max(linear["most_mib"], mlp["most_mib"])
        rows.append([f"{number:,}", _short(linear["seconds"]), _short(mlp["seconds"]), f"{peak:,.0f}"])
    yield "columns", table(["columns", "linear, seconds", "MLP, seconds", "peak MiB"], rows, left=0)
    rows = []
    for number in sorted({run["columns"] for run in record["scoring"]}):
        own = {run["model"]: run["rows_a_second"] for run in record["scoring"] if run["columns"] == number}
        rows.append([f"{number:,}", f"{_round(own['linear'], 3):,.0f}", f"{_round(own['mlp'], 3):,.0f}"])
    yield "scoring", table(["columns", "linear, rows per second", "MLP, rows per second"], rows, left=0)


def _round(value: float, digits: int) -> float:
    return round(value, digits - 1 - math.floor(math.log10(value)))


def _workers() -> Iterator[tuple[str, str]]:
    places = [(model, batch) for model in ("linear", "mlp") for batch in (3_000, 48_000)]
    head = ["processes", *(f"{'linear' if model == 'linear' else 'MLP'}, B = {batch:,}" for model, batch in places)]
    for name, runs in (("two-cores", _read("scaling")["workers"]), ("many-cores", _read("scaling_cores")["cores"])):
        trained = [run for run in runs if "model" in run]
        rows = []
        for workers in sorted({run["workers"] for run in trained}):
            row = [str(workers)]
            for model, batch in places:
                place = {"model": model, "batch_size": batch, "workers": workers}
                own = [run["seconds"] for run in trained if place.items() <= run.items()]
                row.append(
                    f"{_short(min(own))} to {_short(max(own))}" if len(own) > 1 else _short(own[0]) if own else "–"
                )
            rows.append(row)
        yield f"workers-{name}", table(head, rows, left=0)
    record = _read("scaling_cores")
    yield "workers-cores", str(record["machine"]["cores"])
    sums = [1000 * run["seconds"] for run in record["cores"] if run.get("values") == 2]
    yield "workers-sum", f"{min(sums):.2f} to {max(sums):.2f}"


def _files() -> Iterator[tuple[str, str]]:
    found = _read("many_rows")["result"]
    yield "predict-rows", f"{found['rows']:,}"
    yield "predict-seconds", f"{found['seconds']:.0f}"
    yield "predict-rate", f"{_round(found['rows'] / found['seconds'], 3):,.0f}"
    yield "predict-memory", f"{found['most_mib']:,.0f}"
    record = _read("larger_than_memory")
    size = record["size"]
    rows = []
    for name, label in (("as they are", "original files"), ("shuffled", "after `shuffled`")):
        run = size[name]
        before = f"{run['seconds_of_shuffling']:.0f}" if run["seconds_of_shuffling"] else "–"
        times = [run["seconds"] - run["seconds_of_the_epoch"], run["seconds_of_the_epoch"]]
        accuracy = f"{100 * run['accuracy']:.1f}"
        rows.append([label, f"{run['most_mib']:,}", before, *(f"{value:.0f}" for value in times), accuracy])
    head = ["", "peak MiB", "shuffling, s", "selecting held-out rows, s", "one epoch, s", "accuracy, %"]
    yield "larger-size", table(head, rows)
    yield "larger-gigabytes", str(size["gigabytes"])
    yield "larger-cap", str(size["cap_gib"])
    yield "larger-rows", " and ".join(f"{n / 1e6:.0f} million" for n in size["as they are"]["rows"])
    yield "larger-best", f"{100 * size['best_accuracy']:.1f}"
    accuracy = record["accuracy"]
    memory = [100 * value for value in accuracy["found"]["memory"]]
    rows = [["in memory", *2 * [_with_error(memory)]]]
    for name, label in (
        ("random", "files in random order"),
        ("sorted", "files sorted by class"),
        ("sorted and shuffled", "the same files after `shuffled`"),
    ):
        row = [label]
        for window in ("4 MiB", "16 MiB"):
            own = [100 * value for value in accuracy["found"][f"{name}, window of {window}"]]
            gains = [ours - theirs for ours, theirs in zip(own, memory, strict=True)]
            row.append(f"{_with_error(own)}; {_with_error(gains, '+')}")
        rows.append(row)
    yield "larger-accuracy", table(["", "buffer of 4 MiB", "buffer of 16 MiB"], rows)
    yield "larger-seeds", str(len(memory))
    yield "larger-sizes", " and ".join(f"{n:,}" for n in accuracy["sizes"])
    yield "larger-epochs", str(accuracy["epochs"])
    losses = [
        100 * (a - b)
        for a, b in zip(accuracy["found"]["memory"], accuracy["found"]["sorted, window of 4 MiB"], strict=True)
    ]
    yield "larger-loss", f"{fmean(losses):.1f}"


def _with_error(values: Sequence[float], sign: str = "") -> str:
    """Return the mean ± the standard error."""
    text = f"{fmean(values):{sign}.2f} ± {stdev(values) / math.sqrt(len(values)):.2f}"
    return text.replace("-", "−")
