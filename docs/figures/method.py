"""Draw the figures of docs/how-it-works.md and docs/method.md: ``python docs/figures/method.py docs/images``.

The script takes about half a minute. The classes are two Gaussians, so the true decision boundary is known. All figures
are about five inches wide, so their text is legible on a phone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm

from uulearn import UUClassifier
from uulearn.risk import LOSSES, leaky_relu
from uulearn.training import TrainingOptions

Numbers = NDArray[np.float64]

SET0, SET1, POSITIVE, NEGATIVE, GRAY = "#1f6fa8", "#d9790f", "#1e8449", "#8e3b8e", "#777777"
PRIORS = (0.8, 0.2)
STYLE = {
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "lines.linewidth": 1.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
HALF_DISTANCE = 1.1  # half the distance between the class means per column, in standard deviations


# ------------------------------------------------------------------------------------------------------------- two sets


def draw_set(rng: np.random.Generator, n: int, prior: float, columns: int = 2) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return n rows with the given class prior, and their labels."""
    y = rng.permutation(np.arange(n) < round(n * prior))
    return rng.normal(size=(n, columns)) + HALF_DISTANCE * (2 * y[:, None] - 1), y


def draw_two_sets(plt: Any) -> Any:
    """Draw two sets with and without their labels."""
    rng = np.random.default_rng(3)
    figure, axes = plt.subplots(2, 2, figsize=(5, 5.2), sharex=True, sharey=True, layout="constrained")
    for which, prior in enumerate(PRIORS):
        X, y = draw_set(rng, 100, prior)
        axes[0][which].scatter(*X[~y].T, s=22, marker="_", color=NEGATIVE, label="negative")
        axes[0][which].scatter(*X[y].T, s=22, marker="+", color=POSITIVE, label="positive")
        axes[0][which].set_title(f"set {which}: {prior:.0%} positive")
        axes[1][which].scatter(*X.T, s=9, color=(SET0, SET1)[which])
        axes[1][which].set_title(f"set {which}, without labels")
    for axis in axes.flat:
        axis.set(xticks=[], yticks=[])
    figure.legend(*axes[0][1].get_legend_handles_labels(), loc="outside upper center", ncols=2, handletextpad=0.1)
    return figure


# --------------------------------------------------------------------------------------------------------- subtraction


class Unmixed(NamedTuple):
    """Fraction of the positives in each bin of a column, computed by subtracting two histograms."""

    middles: Numbers
    fractions0: Numbers
    fractions1: Numbers
    positives: Numbers


def unmix(n: int, seed: int = 0, bins: int = 24) -> Unmixed:
    """Return the histograms of two sets of n rows, and the histogram of the positives that follows from them."""
    rng = np.random.default_rng(seed)
    edges = np.linspace(-4.5, 4.5, bins + 1)
    scores = [draw_set(rng, n, prior, 1)[0][:, 0] for prior in PRIORS]
    fractions0, fractions1 = (np.histogram(values, edges)[0] / n for values in scores)
    theta, theta_prime = PRIORS
    positives = ((1 - theta_prime) * fractions0 - (1 - theta) * fractions1) / (theta - theta_prime)
    return Unmixed((edges[1:] + edges[:-1]) / 2, fractions0, fractions1, positives)


def draw_subtraction(plt: Any) -> Any:
    """Draw two mixtures, and the positives by subtraction for many and for few rows."""
    figure, axes = plt.subplots(3, 1, figsize=(5, 6.4), sharex=True, layout="constrained")
    z = np.linspace(-4.5, 4.5, 400)
    p, q = norm.pdf(z, HALF_DISTANCE), norm.pdf(z, -HALF_DISTANCE)
    for which, (prior, color) in enumerate(zip(PRIORS, (SET0, SET1), strict=True)):
        axes[0].plot(z, prior * p + (1 - prior) * q, color=color, label=f"set {which}")
    axes[0].plot(z, p, color=POSITIVE, linestyle=":", label="positives alone")
    axes[0].set(title="two mixtures of the same two classes", yticks=[])
    axes[0].legend(loc="upper left")
    width = 9 / 24
    for axis, n in ((axes[1], 20_000), (axes[2], 100)):
        found = unmix(n)
        below = found.positives < 0
        colors = np.where(below, "#c0392b", POSITIVE)
        axis.bar(found.middles, found.positives / width, width * 0.9, color=colors, alpha=0.75)
        axis.plot(z, p, color=POSITIVE, linestyle=":")
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set(title=f"positives by subtraction, {n:,} rows per set", yticks=[])
    axes[2].annotate(
        "negative:\nimpossible", (-2.06, -0.09), (-4.4, 0.2), arrowprops={"arrowstyle": "-", "color": GRAY}
    )
    low = min(axis.get_ylim()[0] for axis in axes)
    high = max(axis.get_ylim()[1] for axis in axes)
    for axis in axes:
        axis.set(ylim=(low, high))
    axes[2].set_xlabel("value of a feature")
    return figure


# --------------------------------------------------------------------------------------------------------- overfitting


class Trained(NamedTuple):
    """Scores on a grid, and the history of the run."""

    scores: Numbers
    history: Any


def train(method: str, epochs: int, grid: Numbers) -> Trained:
    """Train a large network on few rows, without early stopping."""
    rng = np.random.default_rng(3)
    sets = [draw_set(rng, 100, prior)[0] for prior in PRIORS]
    test = draw_set(rng, 4000, 0.5)
    clf = UUClassifier(
        PRIORS, 0.5, method=method, loss="logistic", model_params={"hidden": (200, 200, 200)}, epochs=epochs, lr=3e-3,
        training=TrainingOptions(ema=None), n_estimators=1, random_state=0, progress=False,
    )  # fmt: skip
    clf.fit_sets(*sets, test_data=test)
    return Trained(clf.decision_function(grid).astype(np.float64), clf.history_)


def draw_overfitting(plt: Any) -> Any:
    """Draw the regions predicted positive: early, late, and late with a correction."""
    rng = np.random.default_rng(3)
    sets = [draw_set(rng, 100, prior)[0] for prior in PRIORS]
    ticks = np.linspace(-4.4, 4.4, 220)
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    figure, axes = plt.subplots(2, 2, figsize=(5, 5.6), sharex=True, sharey=True, layout="constrained")
    runs = {
        "no correction, epoch 4": train("unbiased", 4, grid),
        "no correction, epoch 300": train("unbiased", 300, grid),
        "absolute value, epoch 300": train("abs", 300, grid),
    }
    for axis, (name, run) in zip(axes.flat, runs.items(), strict=False):
        regions = (run.scores > 0).reshape(len(ticks), len(ticks))
        axis.contourf(ticks, ticks, regions, levels=[-0.5, 0.5, 1.5], colors=["#f0e2f0", "#dcefe2"])
        for which, (X, color) in enumerate(zip(sets, (SET0, SET1), strict=True)):
            axis.scatter(*X.T, s=8, color=color, label=f"set {which}")
        axis.plot([-4.4, 4.4], [4.4, -4.4], color="black", linestyle=":", linewidth=1.2)
        last = run.history[-1]
        axis.set(title=name, xticks=[], yticks=[], xlim=(-4.4, 4.4), ylim=(-4.4, 4.4))
        risk = f"{last['unbiased']:.2f}".replace("-", "−")
        axis.set_xlabel(f"risk {risk}, test accuracy {last['test_accuracy']:.0%}")
    key = axes[1][1]
    key.axis("off")
    handles, labels = axes[0][0].get_legend_handles_labels()
    handles += [plt.Rectangle((0, 0), 1, 1, color=color) for color in ("#dcefe2", "#f0e2f0")]
    handles.append(plt.Line2D([], [], color="black", linestyle=":", linewidth=1.2))
    labels += ["predicted positive", "predicted negative", "best boundary"]
    key.legend(handles, labels, loc="center")
    return figure


# -------------------------------------------------------------------------------------------- evaluation without labels


def draw_evaluation(plt: Any) -> Any:
    """Draw the line through two sets; its ends are the false- and the true-positive rate."""
    figure, axes = plt.subplots(2, 1, figsize=(5, 6), sharex=True, sharey=True, layout="constrained")
    tpr, fpr, n = 0.9, 0.15, 200
    priors_grid = np.linspace(0, 1, 50)
    rng = np.random.default_rng(0)
    for axis, priors in zip(axes, ((0.8, 0.2), (0.55, 0.45)), strict=True):
        rates = [prior * tpr + (1 - prior) * fpr for prior in priors]
        for _ in range(60):
            noisy = [rng.binomial(n, rate) / n for rate in rates]
            slope = (noisy[0] - noisy[1]) / (priors[0] - priors[1])
            axis.plot(priors_grid, noisy[1] + slope * (priors_grid - priors[1]), color=GRAY, linewidth=0.5, alpha=0.35)
        axis.plot(priors_grid, fpr + (tpr - fpr) * priors_grid, color="black")
        for which, color in enumerate((SET0, SET1)):
            axis.plot(priors[which], rates[which], "o", color=color, markersize=8, label=f"set {which}")
        axis.plot([0, 1], [fpr, tpr], "D", color=POSITIVE, markersize=6, clip_on=False, zorder=3)
        axis.set(ylim=(-0.05, 1.05), xlim=(0, 1), ylabel="fraction predicted positive")
        axis.set_title(f"{priors[0]:.0%} and {priors[1]:.0%} positive, {n} rows per set")
    axes[1].set_xlabel("class prior of the set")
    axes[0].annotate("false-positive rate", (0, fpr), (0.03, 0.02))
    axes[0].annotate("true-positive rate", (1, tpr), (0.98, 0.97), ha="right")
    axes[0].legend(loc="upper left")
    return figure


# ----------------------------------------------------------------------------------------------- corrections and losses


def draw_corrections(plt: Any) -> Any:
    """Draw each correction as a function of a risk term."""
    figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
    x = torch.linspace(-1, 1, 201, dtype=torch.float64)
    axis.axvspan(-1, 0, color="#f6e3e0", linewidth=0)
    axis.axhline(0, color="black", linewidth=0.8)
    slopes = {"unbiased": 1.0, "relu": 0.0, "leaky_relu, λ = −0.3": -0.3, "abs": -1.0}
    colors = ("#c0392b", "black", "#7d3c98", "#e08e0b")
    for (name, slope), color in zip(slopes.items(), colors, strict=True):
        y = x if slope > 0 else leaky_relu(x, slope)
        left = x <= 0
        axis.plot(x[left], y[left], color=color, label=name)
    axis.plot(x[x >= 0], x[x >= 0], color="black")
    axis.set(xlabel="estimated risk term", ylabel="corrected", xlim=(-1, 1), ylim=(-1, 1.05))
    axis.set(xticks=[-1, -0.5, 0, 0.5, 1], yticks=[-1, -0.5, 0, 0.5, 1])
    axis.text(-0.36, -0.93, "impossible", ha="center", color="#a05a50")
    axis.legend(loc="lower right")
    return figure


def draw_losses(plt: Any) -> Any:
    """Draw the losses as functions of the margin."""
    figure, axis = plt.subplots(figsize=(5, 3.2), layout="constrained")
    z = torch.linspace(-3, 3, 601, dtype=torch.float64)
    for name, loss in LOSSES.items():  # dashed, because ramp and double hinge coincide on [−1, 1]
        axis.plot(z, loss(z), label=name, linestyle={"zero_one": ":", "ramp": "--"}.get(name, "-"))
    axis.set(xlabel="margin z", ylabel="ℓ(z)", ylim=(-0.05, 3), xlim=(-3, 3))
    axis.legend(loc="upper right")
    return figure


DRAWINGS = {
    "method-sets.png": draw_two_sets,
    "method-subtraction.png": draw_subtraction,
    "method-overfitting.png": draw_overfitting,
    "method-corrections.png": draw_corrections,
    "method-evaluating.png": draw_evaluation,
    "method-losses.png": draw_losses,
}


def main(folder: Path) -> None:
    """Draw all figures into a folder."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    with plt.rc_context(STYLE):
        for name, draw in DRAWINGS.items():
            figure = draw(plt)
            figure.savefig(folder / name, dpi=130)
            plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
