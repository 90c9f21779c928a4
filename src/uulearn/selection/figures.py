"""Show a `uulearn.selection.Sensitivity` as a table, a sentence, a data frame or a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uulearn.metrics import Estimate
from uulearn.storage import write_atomically

if TYPE_CHECKING:
    from uulearn.selection.sensitivity import Sensitivity, SensitivityRow

LETTERS = {"theta": "θ", "theta_prime": "θ′", "pi": "π"}
# Minimum gain in standard errors. It is above 2 because only the largest of about twelve gains is reported.
CLEAR_GAIN = 3.0
# Legend text and color of the three curves in a figure.
LABELS = ("accuracy shown (95% interval)", "accuracy if the guess is right", "true accuracy (labels)")
CURVE_COLORS = ("#2471a3", "#8e5ba6", "#1e8449")


def tabulate(found: Sensitivity) -> str:
    """Return all runs as an aligned table, with the number of rows, the skipped runs and the conclusion."""
    table = [["assumed", "θ", "θ′", "π", "accuracy shown", "if the guess is right", "differing"]]
    table[0] += ["true accuracy"] * found.labels_used
    for row in found.rows:
        _, _, (theta, theta_prime), pi = row.assumption
        cells = [row.assumption.name, *(f"{prior:g}" for prior in (theta, theta_prime, pi))]
        cells += [_interval(row.shown), _interval(row.if_guess_right), f"{row.differing:.1%}"]
        table.append(cells + ([_interval(row.true)] if row.true else [""] * found.labels_used))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(str.ljust, cells, widths)).rstrip() for cells in table]
    n, n_prime = found.held_out_sizes
    lines.append(f"estimated without labels from {n:,} + {n_prime:,} held-out rows, with 95% intervals")
    positive = f"{found.test_size:,} test rows, {found.test_prior or 0:.1%} of them positive"
    used = f"labels were used only for the true accuracy: {positive}" if found.labels_used else "no label was used"
    lines.append(used)
    lines += [f"skipped: {assumption.name}, as {reason}" for assumption, reason in found.skipped]
    lines += [found.budget_note] if found.budget_note else []
    return "\n".join([*lines, conclude(found)])


def conclude(found: Sensitivity) -> str:
    """Return a sentence that says which prior matters most for the accuracy shown and for the classifier."""
    (most, furthest), *others = found.moved.items()
    rest = ", ".join(f"{LETTERS[name]}: {move:.3f}" for name, move in others)
    shown = f"an error in {LETTERS[most]} has the largest effect on the accuracy shown, up to {furthest:.3f}"
    shown += f" ({rest})" if rest else ""
    itself = "the true accuracy" if found.labels_used else "the accuracy if the guess is right"
    gains = [(row.true_gain or row.gain, row.assumption.name) for row in found.rows[1:]]
    clear = [(gain, name) for gain, name in gains if abs(gain.unclipped) > CLEAR_GAIN * gain.standard_error]
    if not clear:
        return f"{shown}; {itself} does not change significantly."
    largest, name = max(clear, key=lambda item: abs(item[0].unclipped))
    return f"{shown}; {itself} changes by up to {largest.value:+.3f}, at {name}.".replace("-", "−")


def _interval(estimate: Estimate) -> str:
    low, high = estimate.interval
    return f"{estimate.value:.3f} ({low:.3f} to {high:.3f})"


def frame(found: Sensitivity) -> Any:
    """Return a data frame with one row per run."""
    import pandas as pd

    records = []
    for row in found.rows:
        parameter, error, (theta, theta_prime), pi = row.assumption
        record = {"parameter": parameter, "error": error, "theta": theta, "theta_prime": theta_prime, "pi": pi}
        for name in ("shown", "if_guess_right", "not_retrained", "gain", "true", "true_gain"):
            if (estimate := getattr(row, name)) is not None:
                low, high = estimate.interval
                record |= {name: estimate.value, f"{name}_low": low, f"{name}_high": high}
        records.append(record | {"differing": row.differing})
    return pd.DataFrame(records)


def draw(found: Sensitivity, path: str | Path | None, ax: Sequence[Any] | None) -> Any:
    """Plot accuracy against error in three panels (θ, θ′ and π), without using the global state of ``pyplot``."""
    from matplotlib.figure import Figure

    axes = list(Figure(figsize=(11, 4.3), layout="constrained").subplots(1, 3, sharey=True) if ax is None else ax)
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
    if ax is None:
        figure.legend(ordered.values(), ordered, frameon=False, fontsize=9, loc="outside lower center", ncols=3)
    else:  # above the title of the first panel, because intervals may fill a panel
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "borderaxespad": 2.2}
        axes[0].legend(ordered.values(), ordered, frameon=False, fontsize=9, **above)
    if path is not None:
        kind = Path(path).suffix.lstrip(".") or "png"
        write_atomically(Path(path), lambda temporary: figure.savefig(temporary, dpi=130, format=kind))
    return figure


def _draw_panel(axis: Any, rows: Sequence[SensitivityRow]) -> None:
    errors = [row.assumption.error for row in rows]
    ends = [(row.shown.value - row.shown.interval[0], row.shown.interval[1] - row.shown.value) for row in rows]
    # The interval lies within [0, 1], but the estimate may lie outside.
    spans = [[max(0.0, side) for side in sides] for sides in zip(*ends, strict=True)]
    axis.axvline(0, color="#b0b0b0", lw=0.8, zorder=0)
    bars = {"marker": "o", "ms": 5, "lw": 1.8, "elinewidth": 1, "capsize": 3}
    axis.errorbar(errors, [row.shown.value for row in rows], spans, color=CURVE_COLORS[0], label=LABELS[0], **bars)
    guessed = [row.if_guess_right.value for row in rows]
    axis.plot(errors, guessed, "s--", color=CURVE_COLORS[1], ms=4, lw=1.3, label=LABELS[1])
    if true := [row.true.value for row in rows if row.true is not None]:
        axis.plot(errors, true, "^-", color=CURVE_COLORS[2], ms=5, lw=1.8, label=LABELS[2])
    axis.set_xticks(errors, [f"{error:+g}".replace("-", "−") if error else "0" for error in errors])
    axis.grid(axis="y", color="#e6e6e6", lw=0.6)
