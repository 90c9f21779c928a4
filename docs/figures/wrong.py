"""Draw the figures of docs/what-can-go-wrong.md: ``python docs/figures/wrong.py docs/images``.

The numbers come from ``benchmarks/results/wrong.json``, which ``python benchmarks/wrong.py`` measures and stores. The
panels of a figure are stacked, and the text is large enough for a screen that is 390 pixels wide.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "results" / "wrong.json"
TRUE, ESTIMATE, TRAINING, GRAY = "#1e8449", "#2471a3", "#e08e0b", "#606060"
METHODS = {"unbiased": "#c0392b", "leaky_relu": "#7d3c98", "abs": "#e08e0b"}
SHADES = ("#a8a8a8", "#606060", "#000000")  # colors of pairs of priors, darker for closer priors
STYLE = {
    "font.size": 10,
    "axes.titlesize": 10.5,
    "legend.fontsize": 9,
    "legend.title_fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
IMPOSSIBLE = "impossible: above 1"

Results = dict[str, Any]
Panels = tuple[Any, Any]


def draw_overfitting(results: Results, panels: Panels) -> None:
    """Draw the risk and the accuracy per epoch of both methods."""
    top, bottom = panels
    for (method, run), size in zip(results["overfitting"].items(), (11, 6), strict=True):
        epochs = range(1, len(run["risk"]) + 1)
        color, name = METHODS[method], method
        top.plot(epochs, run["risk"], color=color, label=name)
        bottom.plot(epochs, run["true"], color=color, label=f"{name}, true")
        bottom.plot(epochs, run["held_out"], ":", color=color, lw=1.3, label=f"{name}, estimate")
        best = run["best_epoch"]
        bottom.plot(best, run["true"][best - 1], "o", color=color, ms=size, mfc="none", mew=1.6)
    top.axhline(0, color="black", lw=0.8)
    top.set(title="empirical risk on the training rows")
    bottom.set(xlabel="epoch", title="accuracy (circles: best epoch)", ylim=(0.7, 0.97))
    top.legend(loc="lower left")
    bottom.legend(loc="lower right", ncols=2, handlelength=1.3, columnspacing=1)


def draw_order(results: Results, panels: Panels) -> None:
    """Draw the rows of both files and the regions predicted positive."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    from wrong import draw_plane

    files = draw_plane()
    x = np.linspace(-4, 4, 50)
    for axis, found, below in zip(panels, results["order"], (False, True), strict=True):
        bias, w1, w2 = found["bias_and_weights"]
        line = -(bias + w1 * x) / w2
        axis.fill_between(x, line, -9 if below else 9, color="#d5ecdc", lw=0)
        for X, color, name in zip(files, (ESTIMATE, TRAINING), ("file A", "file B"), strict=True):
            axis.plot(*X[:250].T, ".", ms=3.5, color=color, label=name)
        priors = tuple(found["priors"])
        title = f"priors {priors}: estimate {found['estimate']:.2f}, true {found['true']:.2f}"
        axis.set(title=title, xlim=(-4, 4), ylim=(-4, 4), ylabel="column 2")
    panels[0].text(3.9, 3.5, "predicted positive", ha="right", color=TRUE)
    panels[1].text(-3.9, -3.3, "predicted positive", color=TRUE)
    panels[1].set(xlabel="column 1")
    panels[0].legend(loc="upper left", markerscale=3, handletextpad=0.2, borderpad=0)


def draw_priors(results: Results, panels: Panels) -> None:
    """Draw estimated and true accuracy over the error in θ."""
    shade_impossible(panels[0])
    for (priors, found), color in zip(results["wrong_priors"].items(), SHADES, strict=True):
        errors = [own["error"] for own in found]
        for axis, part in zip(panels, ("estimate", "true"), strict=True):
            axis.plot(errors, [own[part] for own in found], "o-", ms=4, color=color, label=priors)
    panels[0].text(0.06, 1.1, IMPOSSIBLE, ha="right", color=GRAY)
    panels[0].set(title="accuracy estimated without labels", ylim=(0.7, 1.17))
    panels[1].set(title="true accuracy", xlabel="error in the larger prior", ylim=(0.7, 1))
    panels[1].legend(title="true priors", loc="lower right")


def draw_close(results: Results, panels: Panels) -> None:
    """Draw one point per seed as a function of the distance between the priors."""
    shade_impossible(panels[1])
    titles = ("true accuracy of 20 classifiers", "their estimates from 1,000 + 1,000 held-out rows")
    for axis, part, color, title in zip(panels, ("true", "estimate"), (TRUE, ESTIMATE), titles, strict=True):
        for gap, found in results["close_priors"].items():
            axis.plot([float(gap)] * len(found[part]), found[part], "o", ms=5, alpha=0.45, mew=0, color=color)
            axis.plot(float(gap), np.mean(found[part]), "_", ms=14, mew=2, color="black")
        axis.set(xscale="log", title=title, ylim=(0.2, 1.45))
        axis.set_xticks([0.05, 0.1, 0.2, 0.4, 1.0], ["0.05", "0.1", "0.2", "0.4", "1"])
        axis.minorticks_off()
    panels[0].text(1, 0.25, "bar: mean", ha="right", color=GRAY)
    panels[1].set(xlabel="distance of the priors |θ − θ′|")
    panels[1].text(1, 1.32, IMPOSSIBLE, ha="right", color=GRAY)


def draw_device(results: Results, panels: Panels, bound: float = 0.8) -> None:
    """Draw how the accuracy falls while the estimate rises, and how the AUC exceeds the largest possible value."""
    top, bottom = panels
    found = results["leak"]
    strengths = [float(strength) for strength in found]
    shade_impossible(top)
    lines = {
        "estimate": (ESTIMATE, "estimate, leaky_relu"),
        "true": (METHODS["leaky_relu"], "true, leaky_relu"),
        "true_unbiased": (METHODS["unbiased"], "true, unbiased"),
    }
    for part, (color, name) in lines.items():
        top.plot(strengths, [own[part] for own in found.values()], "o-", ms=4, color=color, label=name)
    top.set(title="accuracy", ylim=(0.45, 1.5))
    top.text(3, 1.42, IMPOSSIBLE, ha="right", color=GRAY)
    top.legend(loc="upper left", borderpad=0)
    bottom.axhspan(bound, 1.02, color="#f2f2f2", zorder=0)
    bottom.axhline(bound, color="black", lw=0.8)
    aucs = [own["auc_between_files"] for own in found.values()]
    bottom.plot(strengths, aucs, "o-", ms=4, color=ESTIMATE)
    bottom.text(3, bound - 0.05, "largest AUC that the priors allow", ha="right")
    bottom.set(title="AUC between the two files", xlabel="strength of the column (σ)", ylim=(0.6, 1.02))


def draw_training_rows(results: Results, panels: Panels) -> None:
    """Draw estimates on training rows and on held-out rows with the true accuracy."""
    for axis, (method, run) in zip(panels, results["overfitting"].items(), strict=True):
        epochs = range(1, len(run["risk"]) + 1)
        shade_impossible(axis)
        axis.plot(epochs, run["training_rows"], color=TRAINING, label="estimate on training rows")
        axis.plot(epochs, run["held_out"], color=ESTIMATE, label="estimate on held-out rows")
        axis.plot(epochs, run["true"], color=TRUE, label="true")
        axis.set(title=f"accuracy, {method}", ylim=(0.75, 1.1))
    panels[1].set(xlabel="epoch")
    panels[0].text(3, 1.05, IMPOSSIBLE, color=GRAY)
    panels[1].legend(loc="lower right")


def draw_batches(results: Results, panels: Panels) -> None:
    """Draw the effect of small batches and its cause."""
    for method, found in results["batches"].items():
        accuracies = [own["true"] for own in found.values()]
        panels[0].plot(list(map(int, found)), accuracies, "o-", ms=4, color=METHODS[method], label=method)
    for (priors, found), color in zip(results["noise"].items(), SHADES, strict=True):
        panels[1].plot(list(map(int, found)), list(found.values()), "o-", ms=4, color=color, label=priors)
    sizes = list(map(int, results["batches"]["abs"]))
    panels[0].set(title="true accuracy after 400 steps, priors (0.6, 0.4)", ylim=(0.88, 0.945))
    panels[1].set(title="fraction of batches below zero by noise alone", ylim=(0, 0.55), xlabel="rows per batch")
    for axis in panels:
        axis.set(xscale="log")
        axis.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axis.minorticks_off()
    panels[0].legend(loc="lower right")
    panels[1].legend(title="priors", loc="lower left")


def shade_impossible(axis: Any) -> None:
    """Shade impossible accuracies."""
    axis.axhspan(1, 2, color="#f2f2f2", zorder=0)


FIGURES: dict[str, Callable[[Results, Panels], None]] = {
    "wrong-overfitting.png": draw_overfitting,
    "wrong-order.png": draw_order,
    "wrong-priors.png": draw_priors,
    "wrong-close.png": draw_close,
    "wrong-device.png": draw_device,
    "wrong-training-rows.png": draw_training_rows,
    "wrong-batches.png": draw_batches,
}


def main(folder: Path) -> None:
    """Draw all figures."""
    results = json.loads(RECORD.read_text(encoding="utf-8"))["results"]
    for name, draw in FIGURES.items():
        with rc_context(STYLE):
            figure = Figure(figsize=(5, 5), layout="constrained")
            draw(results, tuple(figure.subplots(2, 1)))
            figure.savefig(folder / name, dpi=120, metadata={"Software": None})


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
