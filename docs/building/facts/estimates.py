"""Facts of docs/studies/estimates.md: label-free estimates of default fits against labels."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from study_tables import Record, read_study, signed, table

CLOSE, FAR = [0.6, 0.4], [0.8, 0.2]
SIMULATED = ("gaussian", "weak", "rings", "xor", "skewed")
SMALL = range(100, 301)


def facts() -> dict[str, str]:
    """Return all facts by name."""
    fits, environment = read_study("coverage.jsonl")
    before, _ = read_study("coverage_before.jsonl")
    parts = {name: _at(fits, priors) for name, priors in (("close", CLOSE), ("far", FAR))}
    wanted = [one for one in parts["close"] if one["configuration"]["size"] >= 200]
    small = [
        one["calibration_error"]
        for one in parts["close"]
        if one["configuration"]["dataset"] in SIMULATED and one["configuration"]["size"] in SMALL
    ]
    return {
        "environment": environment,
        "close": _by_size(parts["close"]),
        "far": _by_size(parts["far"]),
        "fits": f"{len(fits):,}",
        "wanted-fits": f"{len(wanted)}",
        "wanted-covered": f"{_covered(wanted):.1f}%",
        "wanted-error": signed(_median_error(wanted)),
        "before-fits": f"{len(_at(before, CLOSE))}",
        "before-covered": f"{_covered(_at(before, CLOSE)):.1f}%",
        "before-error": signed(_median_error(_at(before, CLOSE))),
        "small-calibration": f"{statistics.fmean(small):.3f}",
        "small-fits": f"{len(small)}",
        "gain": f"{100 * statistics.fmean(one['accuracy']['truth'] - one['accuracy']['single'] for one in wanted):.1f}",
    }


def _at(fits: Sequence[Record], priors: list[float]) -> list[Record]:
    return [one for one in fits if one["configuration"]["set_priors"] == priors]


def _covered(fits: Sequence[Record], metric: str = "accuracy") -> float:
    return 100 * statistics.fmean(one[metric]["covered"] for one in fits)


def _median_error(fits: Sequence[Record]) -> float:
    return 100 * statistics.median(one["accuracy"]["estimate"] - one["accuracy"]["truth"] for one in fits)


def _by_size(fits: Sequence[Record]) -> str:
    heads = ["rows per set", "fits", "true accuracy", "median error (points)", "accuracy interval contains the truth",
             "AUC interval contains the truth", "calibration error"]  # fmt: skip
    groups: dict[str, list[Record]] = {}
    for one in sorted(fits, key=lambda one: int(one["configuration"]["size"])):
        groups.setdefault(f"{one['configuration']['size']:,}", []).append(one)
    groups["all"] = list(fits)
    return table(
        heads,
        [
            [
                size,
                str(len(own)),
                f"{100 * statistics.fmean(one['accuracy']['truth'] for one in own):.1f}%",
                signed(_median_error(own)),
                f"{_covered(own):.0f}%",
                f"{_covered(own, 'auc'):.0f}%",
                f"{statistics.fmean(one['calibration_error'] for one in own):.3f}",
            ]
            for size, own in groups.items()
        ],
    )
