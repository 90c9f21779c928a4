"""Facts of docs/priors.md and docs/studies/priors.md: simulated coverage, and estimates on real data."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from study_tables import read_study, table

STUDY = Path(__file__).resolve().parents[3] / "results" / "study"
Record = dict[str, Any]
NAMES = {
    "mnist": "MNIST, even digits positive",
    "fashion_mnist": "Fashion-MNIST, the paper's classes",
    "kmnist": "Kuzushiji-MNIST, the paper's classes",
    "digits": "digits, even digits positive",
    "breast_cancer": "breast cancer, malignant positive",
    "gaussians_5": "Gaussians, 5 columns",
    "gaussians_20": "Gaussians, 20 columns",
    "xor": "four clusters (XOR)",
}
SCORERS = ("forest (default)", "gradient boosting", "logistic regression")


def facts() -> dict[str, str]:
    """Return all facts by name."""
    coverage, environment = read_study("prior_coverage.jsonl")
    real, real_environment = read_study("unknown_priors.jsonl")
    parts: dict[str, list[Record]] = {}
    for one in coverage:
        parts.setdefault(one["configuration"]["part"], []).append(one)
    (rows,) = parts["rows"]
    plain = {
        one["configuration"]["classes"]: one["plain_covered"] for one in parts["set priors"] if "plain_covered" in one
    }
    return {
        "coverage": coverage_table(parts["set priors"]),
        "target": target_table(parts["target prior"]),
        "real": real_table([one for one in real if one["configuration"]["part"] == "estimate"]),
        "scorers": scorer_table([one for one in real if one["configuration"]["part"] == "scorer"]),
        "environment": environment,
        "real-environment": real_environment,
        "draws": str(parts["set priors"][0]["configuration"]["draws"]),
        "target-draws": f"{parts['target prior'][0]['configuration']['draws']:,}",
        "rows-draws": str(rows["configuration"]["draws"]),
        "rows-coverage": " and ".join(f"{value:.0%}" for value in rows["covered"]),
        "plain-3": f"{plain['Gaussians, 3 σ apart']:.0%}",
        "plain-1.5": f"{plain['Gaussians, 1.5 σ apart']:.0%}",
        "calls": call_table(parts["set priors"]),
        "target-coverage": span([one["covered"] for one in parts["target prior"]], ".0%"),
        "inside": inside(real),
    }


def pair(values: list[float], style: str) -> str:
    """Return two formatted numbers, for θ and θ′."""
    return " ".join(format(value, style) for value in values).replace("-", "−")


def priors(configuration: Record) -> str:
    """Return the priors of both sets as text."""
    return "({:g}, {:g})".format(*configuration["set_priors"])


def coverage_table(records: list[Record]) -> str:
    """Return a table with one row per simulated case."""
    heads = ["classes", "(θ, θ′)", "rows per set", "bias", "standard deviation", "coverage", "width", "bounds hold",
             "warned"]  # fmt: skip
    lines = []
    for one in records:
        configuration = one["configuration"]
        lines.append(
            [
                configuration["classes"],
                priors(configuration),
                f"{configuration['rows']:,}",
                pair(one["bias"], "+.3f"),
                pair(one["deviation"], ".3f"),
                pair(one["covered"], ".0%"),
                pair(one["width"], ".2f"),
                f"{one['bounded']:.0%}",
                f"{one['warned']:.0%}",
            ]
        )
    return table(heads, lines)


def call_table(records: list[Record]) -> str:
    """Return the lowest coverage, the largest bias and the warnings by the distance of the classes."""
    lines = []
    for distance in (4, 3, 2, 1.5, 1):
        own = [one for one in records if one["configuration"]["classes"] == f"Gaussians, {distance:g} σ apart"]
        auc = statistics.NormalDist().cdf(distance / math.sqrt(2))
        lines.append([f"{distance:g} σ apart", f"{auc:.2f}", *summary(own)])
    lines.append(["reducible", "", *summary([r for r in records if r["configuration"]["classes"] == "reducible"])])
    return table(["classes", "AUC between them", "lowest coverage", "largest bias", "warned"], lines)


def summary(records: list[Record]) -> list[str]:
    """Return the lowest coverage, the largest absolute bias and the range of the warning rates."""
    return [
        f"{min(min(one['covered']) for one in records):.0%}",
        f"{max(max(map(abs, one['bias'])) for one in records):.3f}",
        span([one["warned"] for one in records], ".0%"),
    ]


def span(values: list[float], style: str) -> str:
    """Return the range of the values as text."""
    low, high = format(min(values), style), format(max(values), style)
    return low if low == high else f"{low} to {high}"


def target_table(records: list[Record]) -> str:
    """Return a table with one row per simulated target population."""
    heads = ["(θ, θ′)", "π", "rows of target, set 0, set 1", "classes apart", "bias", "standard deviation",
             "reported standard error", "coverage", "false alarms"]  # fmt: skip
    lines = []
    for one in records:
        configuration = one["configuration"]
        lines.append(
            [
                priors(configuration),
                f"{configuration['target_prior']:g}",
                "; ".join(f"{size:,}" for size in configuration["sizes"]),
                f"{configuration['distance']} σ",
                f"{one['bias']:+.3f}".replace("-", "−"),
                f"{one['deviation']:.3f}",
                f"{one['standard_error']:.3f}",
                f"{one['covered']:.1%}",
                f"{one['false_alarms']:.1%}",
            ]
        )
    return table(heads, lines)


def real_table(records: list[Record]) -> str:
    """Return a table with one row per pair of sets drawn from real data."""
    lines = []
    for one in map(with_malignant_positive, records):
        configuration = one["configuration"]
        shown = [
            f"{value:.2f} ({low:.2f} to {high:.2f})"
            for value, (low, high) in zip(one["set_priors"], one["intervals"], strict=True)
        ]
        name, rows = NAMES[configuration["dataset"]], f"{configuration['rows']:,}"
        lines.append([name, rows, priors(configuration), *shown, "yes" if one["warned"] else "no"])
    return table(["data", "rows per set", "(θ, θ′)", "estimate of θ", "estimate of θ′", "warned"], lines)


def with_malignant_positive(record: Record) -> Record:
    """Return the record of breast cancer with the classes and the sets exchanged; return other records unchanged."""
    configuration = record["configuration"]
    if configuration["dataset"] != "breast_cancer":
        return record
    return {
        "configuration": {**configuration, "set_priors": [1 - prior for prior in configuration["set_priors"][::-1]]},
        "set_priors": [1 - prior for prior in record["set_priors"][::-1]],
        "intervals": [[1 - high, 1 - low] for low, high in record["intervals"][::-1]],
        "warned": record["warned"],
    }


def inside(records: list[Record]) -> str:
    """Return how many intervals on real data contain the true prior."""
    found = [
        low <= true <= high
        for one in records
        if one["configuration"]["part"] == "estimate"
        for true, (low, high) in zip(one["configuration"]["set_priors"], one["intervals"], strict=True)
    ]
    return f"{sum(found)} of {len(found)}"


def scorer_table(records: list[Record]) -> str:
    """Return the mean AUC between the sets over seeds for each classifier."""
    aucs: dict[tuple[str, str, str], dict[str, list[float]]] = {}
    for one in records:
        configuration = one["configuration"]
        case = NAMES[configuration["dataset"]], f"{configuration['rows']:,}", priors(configuration)
        aucs.setdefault(case, {}).setdefault(configuration["scorer"], []).append(one["auc"])
    lines = [[*case, *(f"{statistics.fmean(own[name]):.3f}" for name in SCORERS)] for case, own in aucs.items()]
    return table(["data", "rows per set", "(θ, θ′)", *SCORERS], lines)
