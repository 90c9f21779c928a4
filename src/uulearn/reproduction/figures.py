"""Draw the paper's figures from finished runs. Identical records result in identical SVG files."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure

from uulearn.reproduction.experiments import DATASET_NAMES, FIGURE1_LOSSES, FIGURE1_MODELS, MODEL_NAMES
from uulearn.reproduction.statistics import first_negative_epoch, turning_epoch
from uulearn.reproduction.tables import Record
from uulearn.risk.corrections import get_method, identity
from uulearn.storage import write_atomically

RISK, ERROR, QUIET = "#2471a3", "#1e8449", "#57606a"
MAX_LINEAR_RISK = 10.0
"""Absolute risk above which a panel uses a symmetric logarithmic axis."""
LEGEND = ("training risk", "training risk goes negative", "test error", "test error turns around")
PANELS = {
    f"{dataset}-{model}-{loss}": f"{DATASET_NAMES[dataset]}, {MODEL_NAMES[model]}, {loss} loss"
    for dataset, model in FIGURE1_MODELS
    for loss in FIGURE1_LOSSES
}


def draw_figure1(panels: Mapping[str, Record | None]) -> Figure:
    """Draw Figure 1, which shows training risks and test errors; panels without a run are labeled "not run yet".

    The columns are the losses, and the rows are the datasets and models.
    """
    figure = Figure(figsize=(7.8, 11), layout="constrained")
    axes = figure.subplots(len(PANELS) // 2, 2)
    handles: dict[str, Any] = {}
    for index, (axis, (name, title)) in enumerate(zip(axes.flat, PANELS.items(), strict=True)):
        axis.set_title(title, fontsize=10)
        record = panels.get(name)
        if record is None:
            _mark_not_run(axis)
            continue
        for line in _draw_overfitting(axis, record, left=index % 2 == 0, right=index % 2 == 1):
            handles.setdefault(line.get_label(), line)
    if handles:
        ordered = [handles[label] for label in LEGEND if label in handles]
        figure.legend(handles=ordered, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw_overfitting(axis: Any, record: Record, left: bool, right: bool) -> list[Any]:
    """Plot the training risk (left axis) and the test error (right axis), and mark their turning points."""
    curves = record["curves"]
    lines = axis.plot(range(1, len(curves["unbiased"]) + 1), curves["unbiased"], color=RISK, lw=1.6, label=LEGEND[0])
    axis.axhline(0, color="black", lw=0.6)
    axis.set_xlabel("epoch")
    axis.tick_params(axis="y", colors=RISK)
    other = axis.twinx()
    error = [100 * (1 - accuracy) for accuracy in curves["test_accuracy"]]
    lines += other.plot(range(1, len(error) + 1), error, color=ERROR, lw=1.6, label=LEGEND[2])
    other.tick_params(axis="y", colors=ERROR)
    if (negative := first_negative_epoch(curves["unbiased"])) is not None:
        lines.append(axis.axvline(negative, color=RISK, ls="--", lw=1.3, label=LEGEND[1]))
    if (turn := turning_epoch(curves["test_accuracy"])) is not None:
        # With different dashes, both lines are visible if they are at the same epoch.
        lines.append(other.axvline(turn, color=ERROR, ls=(0, (2, 2)), lw=1.3, label=LEGEND[3]))
    _compress_large_risks(axis, [curves["unbiased"]])
    if left:
        axis.set_ylabel("training risk", color=RISK)
    if right:
        other.set_ylabel("test error (%)", color=ERROR)
    return list(lines)


def draw_figure2(slopes: Sequence[float] = (-0.1, -0.5, -2.0)) -> Figure:
    """Draw Figure 2: the identity (no correction) and several correction functions that satisfy Definition 1."""
    figure = Figure(figsize=(8.2, 4.6), layout="constrained")
    axis = figure.subplots()
    below, above = (torch.linspace(*ends, 201, dtype=torch.float64) for ends in ((-2, 0), (0, 2)))
    shown: list[tuple[str, Callable[[torch.Tensor], torch.Tensor], Any]] = [
        ("identity (no correction)", identity, {"color": QUIET, "ls": ":"}),
        ("absolute value, λ = −1", get_method("abs").corrections[0], {"color": "#e08e0b", "ls": "-"}),
        ("ReLU, λ = 0", get_method("relu").corrections[0], {"color": "#17202a", "ls": "-"}),
    ]
    colors = matplotlib.colormaps["Purples"]
    styles = ["--", "-.", (0, (3, 1, 1, 1, 1, 1))]
    for index, slope in enumerate(slopes):
        label = f"leaky ReLU, λ = {slope:g}".replace("-", "−")
        look = {"color": colors(0.6 + 0.4 * index / max(1, len(slopes) - 1)), "ls": styles[index % len(styles)]}
        shown.append((label, get_method("leaky_relu", slope).corrections[0], look))
    axis.fill_between([-2, 0], 0, 4, color="#d6e4f0", lw=0, label="values allowed by Definition 1")
    axis.axhline(0, color="black", lw=0.6)
    axis.axvline(0, color="black", lw=0.6)
    for label, correction, look in shown:
        # All functions agree for x ≥ 0, so this half is drawn once.
        axis.plot(below.numpy(), correction(below).numpy(), lw=2, label=label, **look)
    axis.plot(above.numpy(), identity(above).numpy(), lw=2, color="#17202a", label="_all")
    axis.annotate("all: f(x) = x", (1.1, 0.75), fontsize=9)
    axis.set(xlabel="x, a term of the empirical risk", ylabel="f(x)", xlim=(-2, 2), ylim=(-2.1, 4))
    figure.legend(loc="outside right upper", fontsize=9, frameon=False)
    return figure


def draw_figure3(dropout_records: Sequence[Record], decay_records: Sequence[Record]) -> Figure:
    """Draw Figure 3: the unbiased method with dropout (top panel) and with weight decay (bottom panel)."""
    figure = Figure(figsize=(6.4, 7.4), layout="constrained")
    top, bottom = figure.subplots(2, 1)
    _draw_settings(top, dropout_records, "dropout", "dropout")
    _draw_settings(bottom, decay_records, "l2", "weight decay")
    figure.suptitle("UU-Unbiased on MNIST, (θ, θ′) = (0.6, 0.4), MLP, logistic loss", fontsize=11)
    return figure


def _draw_settings(axis: Any, records: Sequence[Record], entry: str, title: str) -> None:
    axis.set_title(title.capitalize(), fontsize=11)
    if not records:
        _mark_not_run(axis)
        return
    settings = sorted({float(record["configuration"][entry]) for record in records})
    # The pale end of the color map is not visible on white.
    shades = matplotlib.colormaps["viridis"]
    labels = {setting: f"{setting:g}" for setting in settings}
    for record in sorted(records, key=lambda record: float(record["configuration"][entry])):
        setting = float(record["configuration"][entry])
        color = shades(0.85 * settings.index(setting) / max(1, len(settings) - 1))
        # Labels that start with an underscore are hidden, so the legend lists each setting once.
        for name, style, label in (("test_risk", "-", labels.pop(setting, "_")), ("unbiased", "--", "_")):
            curve = record["curves"][name]
            axis.plot(range(1, len(curve) + 1), curve, color=color, ls=style, lw=1.6, label=label)
    axis.axhline(0, color="black", lw=0.6)
    axis.set(xlabel="epoch", ylabel="risk")
    _compress_large_risks(axis, [record["curves"][name] for record in records for name in ("test_risk", "unbiased")])
    look = {"loc": "center left", "fontsize": 9, "frameon": False}
    axis.add_artist(axis.legend(title=title, bbox_to_anchor=(1.01, 0.6), **look))
    meanings = [axis.plot([], [], color=QUIET, ls=style)[0] for style in ("-", "--")]
    axis.legend(meanings, ["test", "training"], bbox_to_anchor=(1.01, 0.15), **look)


def _compress_large_risks(axis: Any, curves: Sequence[Sequence[float]]) -> None:
    """Use a symmetric logarithmic axis if any risk is outside [−10, 10]."""
    finite = [value for curve in curves for value in curve if math.isfinite(value)]
    if not finite or max(map(abs, finite)) <= MAX_LINEAR_RISK:
        return
    ends = min(*finite, -1.0), max(*finite, 1.0)
    low, high = (4 * end if abs(end) > 1 else math.copysign(1.5, end) for end in ends)
    axis.set_yscale("symlog", linthresh=1.0, linscale=1.5)
    axis.set_ylim(low, high)
    step = math.ceil(math.log10(max(high, -low)) / 5)
    powers = [10.0**exponent for exponent in range(step, 40, step)]
    axis.set_yticks([tick for tick in (*(-power for power in reversed(powers)), 0.0, *powers) if low <= tick <= high])
    axis.minorticks_off()


def _mark_not_run(axis: Any) -> None:
    axis.text(0.5, 0.5, "not run yet", ha="center", va="center", color=QUIET, transform=axis.transAxes)
    axis.set(xticks=[], yticks=[])


def write_figure(path: str | Path, figure: Figure) -> list[Path]:
    """Write ``<path>.png`` and ``<path>.svg`` atomically."""
    written = []
    # With a fixed salt and no date, identical figures result in identical files.
    with matplotlib.rc_context({"svg.hashsalt": "uulearn", "svg.fonttype": "path"}):
        for kind, metadata in (("png", None), ("svg", {"Date": None})):
            written.append(Path(f"{path}.{kind}"))
            write_atomically(written[-1], partial(figure.savefig, format=kind, dpi=130, metadata=metadata))
    return written
