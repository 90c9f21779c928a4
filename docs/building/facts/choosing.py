"""Facts of docs/choosing.md and docs/studies/choosing.md: early stopping and self-training."""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks" / "study"))

import records  # noqa: E402
from refinement import IMAGES, ROWS, SET_PRIORS, STORE  # noqa: E402
from render_refinement import estimated_gain, gain, gain_of_halves, kept, mean, signed, spread  # noqa: E402
from study_tables import table  # noqa: E402

WAYS = {"pure": "as if pure (`self_training_rounds`)", "estimated": "with their estimated priors"}
NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "kmnist": "Kuzushiji-MNIST"}
WINDOW = 5  # number of epochs over which the held-out error is averaged, the default of `smoothing`
Record = dict[str, Any]


def facts() -> dict[str, str]:
    """Return all facts by name."""
    stored = records.read([STORE])
    pairs = list(stored.fits.values())
    (environment,) = stored.environments.values()
    versions = ", ".join(f"{package} {version}" for package, version in environment["versions"].items())
    pure = [pair["ways"]["pure"] for pair in pairs]
    chosen = [gain(way, kept(way)) or 0.0 for way in pure]
    clearly = sum(value < -200 * way["test_error"][kept(way)] for value, way in zip(chosen, pure, strict=True))
    without = [pair["ways"]["pure"] for pair in pairs if pair["configuration"]["dataset"] != "kmnist"]
    return {
        **stopping(),
        "self-training": gains_table(pairs),
        "self-training-data": data_table(pairs),
        "fairness": fairness_table(pairs),
        "environment": f"{versions}; {environment['machine']['processor']}",
        "pairs": str(len(pairs)),
        "gain": spread(chosen),
        "used": f"{sum(kept(way) > 0 for way in pure)} of {len(pure)}",
        "worse": str(sum(value < 0 for value in chosen)),
        "clearly-worse": str(clearly),
        "worst": signed(min(chosen)),
        "level": spread([level(way, number) for way in without for number in range(1, len(way["accuracy"]))]),
        "level-used": spread([level(way, kept(way)) for way in without if kept(way)]),
    }


def stopping() -> dict[str, str]:
    """Return the test accuracy at the last epoch, at the early-stopping epoch, and at the best epoch in hindsight."""
    found: dict[float, list[tuple[float, float, float]]] = {}
    for dataset in NAMES:
        with gzip.open(ROOT / "results" / "packed" / f"runs-{dataset}-mlp.jsonl.gz", "rt") as file:
            for line in file:
                record = json.loads(line)
                configuration, curves = record["configuration"], record["curves"]
                if configuration["held_out"]:
                    accuracy, error = np.array(curves["test_accuracy"]), np.array(curves["validation_zero_one"])
                    smoothed = np.convolve(error, np.full(WINDOW, 1 / WINDOW), "valid")
                    best = accuracy[smoothed.argmin() + WINDOW - 1]
                    found.setdefault(configuration["set_priors"][0], []).append(
                        (100 * accuracy[-1], 100 * best, 100 * accuracy.max())
                    )
    lines = [
        [f"({theta:g}, {1 - theta:g})", *(f"{statistics.fmean(values):.1f}" for values in zip(*own, strict=True))]
        for theta, own in sorted(found.items(), reverse=True)
    ]
    heads = ["(θ, θ′)", "last epoch", "early stopping", "best epoch in hindsight"]
    gains = [statistics.fmean(best - last for last, best, _ in own) for own in found.values()]
    missed = [statistics.fmean(most - best for _, best, most in own) for own in found.values()]
    return {
        "stopping": table(heads, lines),
        "stopping-runs": str(sum(map(len, found.values()))),
        "stopping-gain": f"{min(gains):.1f} to {max(gains):.1f}",
        "stopping-missed": f"{max(missed):.1f}",
    }


def level(way: Record, number: int) -> float:
    """Return the accuracy estimated on the halves minus the test accuracy of the final ensemble, in points."""
    return 100 * float(way["estimates"][number][0] - way["accuracy"][number])


def gains_table(pairs: list[Record]) -> str:
    """Return the gains in test accuracy for each way to use the pseudo-labeled sets."""
    lines = []
    for name, title in WAYS.items():
        ways = [pair["ways"][name] for pair in pairs]
        pictures = [pair["configuration"]["dataset"] in IMAGES for pair in pairs]
        chosen = [gain(way, kept(way)) or 0.0 for way in ways]
        lines.append(
            [
                title,
                *(spread([gain(way, number) for way in ways]) for number in (1, 2)),
                spread(chosen),
                *(spread([v for v, p in zip(chosen, pictures, strict=True) if p == which]) for which in (True, False)),
                f"{sum(kept(way) > 0 for way in ways)} of {len(ways)}",
                str(sum(value < 0 for value in chosen)),
                signed(min(chosen)),
            ]
        )
    heads = ["pseudo-labeled sets used", "one round", "two rounds", "selected", "selected, images", "selected, tables",
             "pairs with rounds", "worse", "worst change"]  # fmt: skip
    return table(heads, lines)


def data_table(pairs: list[Record]) -> str:
    """Return the gains for each dataset, with the sets treated as pure."""
    lines = []
    for name in ROWS:
        for priors in SET_PRIORS:
            own = [pair for pair in pairs if _case(pair) == (name, priors)]
            ways = [pair["ways"]["pure"] for pair in own]
            first = f"{100 * statistics.fmean(way['accuracy'][0] for way in ways):.1f}"
            rounds = [mean([gain(way, number) for way in ways]) for number in (1, 2)]
            chosen = mean([gain(way, kept(way)) for way in ways])
            used = f"{sum(kept(way) > 0 for way in ways)} of {len(ways)}"
            lines.append([NAMES.get(name, name), "({:g}, {:g})".format(*priors), first, *rounds, chosen, used])
    heads = ["data", "(θ, θ′)", "no round", "one round", "two rounds", "selected", "pairs with rounds"]
    return table(heads, lines)


def _case(pair: Record) -> tuple[str, tuple[float, ...]]:
    return pair["configuration"]["dataset"], tuple(pair["configuration"]["set_priors"])


def fairness_table(pairs: list[Record]) -> str:
    """Return the gain estimated without labels on the two halves, and the true gain."""
    lines = []
    for number in (1, 2):
        ways = [pair["ways"]["pure"] for pair in pairs if number < len(pair["ways"]["pure"]["accuracy"])]
        estimated, true = ([which(way, number) or 0.0 for way in ways] for which in (estimated_gain, gain_of_halves))
        off = [a - b for a, b in zip(estimated, true, strict=True)]
        lines.append(
            [str(number), spread(estimated), spread(true), spread(off), spread([gain(way, number) for way in ways])]
        )
    heads = ["round", "estimated gain (halves)", "true gain (halves)", "difference", "true gain (all rows)"]
    return table(heads, lines)
