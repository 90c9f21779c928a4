"""A `uulearn.selection.Sensitivity` for the eye: a table, a sentence, a data frame, a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uulearn.metrics import Estimate
from uulearn.storage import write_atomically

if TYPE_CHECKING:
    from uulearn.selection.sensitivity import Sensitivity, SensitivityRow

SHOWN, GUESS, TRUE = "#2471a3", "#8e5ba6", "#1e8449"
LETTERS = {"theta": "θ", "theta_prime": "θ′", "pi": "π"}
CLEAR = 3.0
"""Standard errors that make a gain clear; not two, since the largest of a dozen is looked at."""
LABELS = ("accuracy shown (95% interval)", "accuracy if the guess is right", "true accuracy (labels)")


# ------------------------------------------------------------------------------------------------------------- words


def tabulate(found: Sensitivity) -> str:
    """All runs as an aligned table, what it rests on, what was skipped, and the conclusion."""
    table = [["assumed", "θ", "θ′", "π", "accuracy shown", "if the guess is right", "differing"]]
    for row in found.rows:
        _, _, (theta, theta_prime), pi = row.assumption
        cells = [row.assumption.name, *(f"{prior:g}" for prior in (theta, theta_prime, pi))]
        table.append([*cells, _interval(row.shown), _interval(row.if_guess_right), f"{row.differing:.1%}"])
    if found.labels_used:
        table[0].append("true accuracy")
        for cells, row in zip(table[1:], found.rows, strict=True):
            cells.append("" if row.true is None else _interval(row.true))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in table
    ]
    n, n_prime = found.held_out_sizes
    lines.append(f"estimated without labels from {n:,} + {n_prime:,} held-out rows, with 95% intervals")
    if found.labels_used:
        lines.append(
            f"labels were used for the true accuracy alone: {found.test_size:,} test rows, {found.test_prior:.1%} of "
            "them positive"
        )
    else:
        lines.append("no label was used")
    lines += [f"skipped: {assumption.name}, as {reason}" for assumption, reason in found.skipped]
    return "\n".join([*lines, conclude(found)])


def conclude(found: Sensitivity) -> str:
    """Which prior matters most, for what is shown and for what is trained."""
    (most, furthest), *others = found.moved.items()
    rest = ", ".join(f"{LETTERS[name]}: {move:.3f}" for name, move in others)
    shown = f"an error in {LETTERS[most]} moves the accuracy shown most, by up to {furthest:.3f}" + f" ({rest})" * bool(
        rest
    )
    itself = "the true accuracy" if found.labels_used else "the accuracy if the guess is right"
    gains = [(row.true_gain or row.gain, row.assumption.name) for row in found.rows[1:]]
    clear = [(gain.value, name) for gain, name in gains if abs(gain.value) > CLEAR * gain.standard_error]
    if not clear:
        return f"{shown}; {itself} does not move beyond noise."
    value, name = max(clear, key=lambda item: abs(item[0]))
    return f"{shown}; {itself} changes most by {value:+.3f}, at {name}.".replace("-", "−")


def _interval(estimate: Estimate) -> str:
    low, high = estimate.interval
    return f"{estimate.value:.3f} ({low:.3f} to {high:.3f})"


def frame(found: Sensitivity) -> Any:
    """One line a run."""
    import pandas as pd

    return pd.DataFrame([_record(row) for row in found.rows])


def _record(row: SensitivityRow) -> dict[str, Any]:
    parameter, error, (theta, theta_prime), pi = row.assumption
    record = {"parameter": parameter, "error": error, "theta": theta, "theta_prime": theta_prime, "pi": pi}
    for name in ("shown", "if_guess_right", "not_retrained", "gain", "true", "true_gain"):
        estimate = getattr(row, name)
        if estimate is not None:
            record |= {name: estimate.value, f"{name}_low": estimate.interval[0], f"{name}_high": estimate.interval[1]}
    record["differing"] = row.differing
    return record


# ----------------------------------------------------------------------------------------------------------- drawing


def draw(found: Sensitivity, path: str | Path | None, ax: Sequence[Any] | None) -> Any:
    """Accuracy against the error, a panel each for θ, θ′ and π.

    Made without ``pyplot``: nothing global is touched, and no window system is asked for.
    """
    from matplotlib.figure import Figure

    if ax is None:
        figure = Figure(figsize=(11, 4.3), layout="constrained")
        axes = list(figure.subplots(1, 3, sharey=True))
    else:
        axes = list(ax)
        if len(axes) != 3:
            raise ValueError(f"ax must be three axes, for θ, θ′ and π, got {len(axes)}; use plt.subplots(1, 3).")
        figure = axes[0].figure
    _, _, (theta, theta_prime), pi = found.baseline.assumption
    for axis, (name, letter), value in zip(axes, LETTERS.items(), (theta, theta_prime, pi), strict=True):
        _draw_panel(axis, found.along(name))
        axis.set_title(f"{letter}, guessed {value:g}", fontsize=11)
        axis.set_xlabel(f"error in {letter}")
    axes[0].set_ylabel("accuracy")
    handles = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    ordered = {label: handles[label] for label in LABELS if label in handles}
    place = {"loc": "outside lower center", "ncols": 3} if ax is None else {"loc": "best"}
    (figure if ax is None else axes[0]).legend(ordered.values(), ordered, frameon=False, fontsize=9, **place)
    if path is not None:
        target = Path(path)
        kind = target.suffix.lstrip(".") or "png"
        write_atomically(target, lambda temporary: figure.savefig(temporary, dpi=130, format=kind))
    return figure


def _draw_panel(axis: Any, rows: Sequence[SensitivityRow]) -> None:
    errors = [row.assumption.error for row in rows]
    ends = [(row.shown.value - row.shown.interval[0], row.shown.interval[1] - row.shown.value) for row in rows]
    # An estimate may lie outside [0, 1], which its interval does not leave.
    spans = [[max(0.0, side) for side in sides] for sides in zip(*ends, strict=True)]
    axis.axvline(0, color="#b0b0b0", lw=0.8, zorder=0)
    shown = {"color": SHOWN, "marker": "o", "ms": 5, "lw": 1.8, "elinewidth": 1, "capsize": 3}
    axis.errorbar(errors, [row.shown.value for row in rows], spans, label=LABELS[0], **shown)
    axis.plot(errors, [row.if_guess_right.value for row in rows], "s--", color=GUESS, ms=4, lw=1.3, label=LABELS[1])
    true = [row.true.value for row in rows if row.true is not None]
    if true:
        axis.plot(errors, true, "^-", color=TRUE, ms=5, lw=1.8, label=LABELS[2])
    axis.set_xticks(errors, [f"{error:+g}".replace("-", "−") if error else "0" for error in errors])
    axis.grid(axis="y", color="#e6e6e6", lw=0.6)
