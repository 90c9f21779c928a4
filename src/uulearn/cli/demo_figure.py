"""Draw the figure of ``uulearn demo``, in the style of the paper's Figure 1."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt

from uulearn.storage import write_atomically
from uulearn.training import History

COLORS = {"biased": "#9a9a9a", "unbiased": "#c0392b", "abs": "#e08e0b", "relu": "#17202a", "leaky_relu": "#7d3c98"}
STYLES = {"abs": (0, (5, 1.5)), "relu": (0, (1.5, 1.2))}  # dashed, to keep overlapping curves visible


def draw(path: Path, histories: dict[str, dict[str, History]]) -> None:
    """Draw one row per dataset: risk and test error of the unbiased method, and the test error of every method."""
    figure, axes = plt.subplots(
        len(histories), 2, figsize=(11, 3.8 * len(histories)), squeeze=False, layout="constrained"
    )
    for (left, right), (name, methods) in zip(axes, histories.items(), strict=True):
        _draw_unbiased(left, methods["unbiased"], name)
        for method, history in methods.items():
            style = {"color": COLORS[method], "ls": STYLES.get(method, "-"), "lw": 1.7}
            right.plot(history.column("epoch"), _error(history), label=method.replace("_", " "), **style)
        right.set(title=f"{name}: every method", xlabel="epoch", ylabel="test error", ylim=(0, None))
        _legend_below(right, right.get_lines())
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130, format="png"))
    plt.close(figure)


def _draw_unbiased(axis: Any, history: History, name: str) -> None:
    epochs = history.column("epoch")
    lines = axis.plot(epochs, history.column("unbiased"), color="#2471a3", lw=1.6, label="training risk")
    axis.axhline(0, color="black", lw=0.6)
    axis.set(title=f"{name}: unbiased", xlabel="epoch")
    axis.set_ylabel("training risk", color="#2471a3")
    if history.first_negative_epoch is not None:
        lines.append(
            axis.axvline(history.first_negative_epoch, color="#2471a3", ls="--", lw=1.2, label="risk becomes negative")
        )
    other = axis.twinx()
    error = _error(history)
    lines += other.plot(epochs, error, color="#1e8449", lw=1.6, label="test error")
    best = epochs[error.index(min(error))]
    lines.append(other.axvline(best, color="#1e8449", ls="--", lw=1.2, label="lowest test error"))
    other.set_ylabel("test error", color="#1e8449")
    other.set_ylim(0, None)
    _legend_below(axis, lines)


def _legend_below(axis: Any, lines: Any) -> None:
    axis.legend(
        handles=list(lines), loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=5, fontsize=8, frameon=False,
        handlelength=1.6, columnspacing=1.2,
    )  # fmt: skip


def _error(history: History) -> list[float]:
    return [1 - accuracy for accuracy in history.column("test_accuracy")]
