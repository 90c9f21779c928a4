"""Facts of the check of new rows: false alarms, alarms on rows that are not a mixture, and accuracy on such rows."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from study_tables import Record, read_study, table

SIZES = (100, 500, 2_000, 10_000)
IMAGES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "kmnist": "Kuzushiji-MNIST"}
FEW = 300  # rows per set at which the check finds little
UNBALANCED = [1.0, 0.2]  # set priors of the fits with 100 and 5,000 rows per set


def facts() -> dict[str, str]:
    """Return all facts by name."""
    fits, environment = read_study("new_rows.jsonl")
    valid = _checks(fits, "valid")
    shifted = [one for one in _checks(_of(fits, "kmnist"), "test") if one["rows"] >= SIZES[1]]
    held_back = _checks(_of(fits, "kmnist"), "valid")
    small = [
        one
        for fit in fits
        if fit["configuration"]["set_priors"] == [0.6, 0.4] and fit["configuration"]["size"] == FEW
        for one in fit["checks"]
        if one["kind"] in ("column", "cluster")
    ]
    return {
        "environment": environment,
        "fits": f"{len(fits)}",
        "valid": f"{len(valid):,}",
        "false-alarms": f"{sum(one['alarm'] for one in valid)}",
        "kmnist-alarms": _share(shifted),
        "mnist-alarms": _share(_checks(_of(fits, "mnist"), "test")),
        "kmnist-held-back": _share(held_back),
        "few-rows": _share(small),
        "alarms": _alarms(fits),
        "accuracy": _accuracy(fits),
    }


def _of(fits: Sequence[Record], dataset: str) -> list[Record]:
    return [one for one in fits if one["configuration"]["dataset"] == dataset]


def _checks(fits: Sequence[Record], kind: str) -> list[Record]:
    return [one for fit in fits for one in fit["checks"] if one["kind"] == kind]


def _share(checks: Sequence[Record]) -> str:
    return f"{sum(one['alarm'] for one in checks)} of {len(checks)}"


def _alarms(fits: Sequence[Record]) -> str:
    unbalanced = [one for one in fits if one["configuration"]["set_priors"] == UNBALANCED]
    balanced = [one for one in fits if one["configuration"]["set_priors"] != UNBALANCED]
    large = [one for one in balanced if one["configuration"]["size"] > FEW]
    few = [one for one in balanced if one["configuration"]["size"] <= FEW]
    lines = {
        "held-back rows: simulations and tables": _checks(
            [one for one in fits if one["configuration"]["dataset"] not in IMAGES], "valid"
        ),
        "held-back rows: images": _checks([one for one in fits if one["configuration"]["dataset"] in IMAGES], "valid"),
        "one column moved, sets of 1,000 or 3,000 rows": _checks(large, "column"),
        "one column moved, sets of at most 300 rows": _checks(few, "column"),
        "one column moved, sets of 100 and 5,000 rows": _checks(unbalanced, "column"),
        "a new cluster, sets of 1,000 or 3,000 rows": _checks(large, "cluster"),
        "a new cluster, sets of at most 300 rows": _checks(few, "cluster"),
        "a new cluster, sets of 100 and 5,000 rows": _checks(unbalanced, "cluster"),
        **{f"test rows of {title}": _checks(_of(fits, name), "test") for name, title in IMAGES.items()},
    }
    cells = [
        [name, *(_share([one for one in checks if one["rows"] == rows]) for rows in SIZES)]
        for name, checks in lines.items()
    ]
    return table(["alarms", *(f"{rows:,} new rows" for rows in SIZES)], cells).replace("0 of 0", "–")


def _accuracy(fits: Sequence[Record]) -> str:
    lines = []
    for name, title in IMAGES.items():
        own = _of(fits, name)
        cells = [f"{100 * statistics.fmean(one['estimate'][0] for one in own):.1f}%"]
        for kind in ("valid", "test"):
            truth = [one[f"accuracy_{kind}"] for one in own]
            pairs = zip((one["estimate"] for one in own), truth, strict=True)
            inside = sum(low <= value <= high for (_, low, high), value in pairs)
            cells.append(f"{100 * statistics.fmean(truth):.1f}% ({inside} of {len(own)})")
        lines.append([title, *cells])
    return table(
        ["", "estimated", "held-back training rows (inside the interval)", "test rows (inside the interval)"], lines
    )
