"""Draw the figures of docs/theory.md: ``python docs/figures/theory.py [FOLDER]``, by default into docs/images."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from uulearn.theory import anticipated_spread, bias_bound, guaranteed_spread, negative_term_bound

DOCS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DOCS.parent / "tests"))

from helpers.risk_simulation import printed_bound, simulate_risk_terms  # noqa: E402

matplotlib.use("Agg")

COLORS = ("#2471a3", "#c0392b", "#1e8449")
GRAY = "#707070"
DRAWS = 1_000_000
MIN_EVENTS = 30  # draws with a negative risk term that a point needs; a mean of fewer is too noisy


def draw_bias(path: Path, draws: int = DRAWS) -> None:
    """Draw the simulated bias of the corrected risk over n = n′ with both bounds."""
    figure, axis = plt.subplots(figsize=(5.2, 4.2), layout="constrained")
    rng = np.random.default_rng(0)
    accuracy, pi = 0.8, 0.5
    lost = pi * (1 - accuracy)
    for color, priors, step in zip(COLORS, ((0.9, 0.1), (0.8, 0.2), (0.7, 0.3)), (8, 16, 40), strict=True):
        sizes = np.arange(step, 11 * step, step)
        bias = []
        for n in sizes.tolist():
            terms = simulate_risk_terms(priors, pi, (n, n), accuracy, draws, rng)
            below = [term[term < 0] for term in terms]
            rare = sum(map(len, below)) < MIN_EVENTS
            bias.append(math.nan if rare else -sum(float(part.sum()) for part in below) / draws)
        bounds = [bias_bound(priors, pi, (n, n), alpha=lost, beta=lost) for n in sizes.tolist()]
        axis.semilogy(sizes, bias, "o", ms=4, color=color, label=f"θ, θ′ = {priors[0]:g}, {priors[1]:g}")
        axis.semilogy(sizes, [bound.value for bound in bounds], "--", lw=1.2, color=color)
        axis.semilogy(sizes, [bound.sharp for bound in bounds], "-", lw=1.2, color=color)
    axis.plot([], [], "--", color=GRAY, label="Theorem 3 (Eq. 8)")
    axis.plot([], [], "-", color=GRAY, label="sharper bound")
    axis.set(
        xlabel="rows per set, n = n′",
        ylabel="bias of the error rate",
        ylim=(1e-7, 20),
        title="The bias of the ReLU correction decays exponentially",
    )
    axis.legend(frameon=False, fontsize=9.5)
    _save(figure, path)


def draw_exponent(path: Path, draws: int = DRAWS) -> None:
    """Draw the probability of a negative risk term for few rows of set 1, with the printed and the corrected bound."""
    figure, axis = plt.subplots(figsize=(5.2, 3.9), layout="constrained")
    rng = np.random.default_rng(0)
    priors, pi, accuracy, n_prime = (0.8, 0.2), 0.5, 0.8, 40
    part = pi * (1 - accuracy)
    sizes = np.unique(np.geomspace(n_prime, 4000, 13).astype(int))
    below, ours, printed = [], [], []
    for n in sizes.tolist():
        positive, negative = simulate_risk_terms(priors, pi, (n, n_prime), accuracy, draws, rng)
        below.append(float(((positive < 0) | (negative < 0)).mean()))
        ours.append(negative_term_bound(priors, pi, (n, n_prime), alpha=part, beta=part).value)
        printed.append(printed_bound(priors, pi, (n, n_prime), part, part))
    axis.loglog(sizes, ours, "-", color=COLORS[0], label="bound with b²/n + d²/n′")
    axis.loglog(sizes, below, "o", ms=4, color="black", label="simulated")
    axis.loglog(sizes, printed, "--", color=COLORS[1], label="bound as printed, b²/n′ + d²/n")
    axis.set(
        xlabel=f"rows of set 0, n (set 1: n′ = {n_prime})",
        ylabel="probability",
        ylim=(1e-8, 3),
        title="Probability of a negative risk term",
    )
    axis.legend(frameon=False, fontsize=9.5)
    _save(figure, path)


def draw_half_width(path: Path) -> None:
    """Draw the half-width of the interval for a held-out accuracy as a function of |θ − θ′|."""
    figure, axis = plt.subplots(figsize=(5.2, 4.2), layout="constrained")
    gaps = np.geomspace(0.02, 1.0, 80)
    for color, n in zip(COLORS, (1_000, 10_000, 100_000), strict=True):
        anticipated, guaranteed = [], []
        for gap in gaps.tolist():
            priors = (0.5 + gap / 2, 0.5 - gap / 2)
            anticipated.append(100 * anticipated_spread(priors, 0.5, accuracy=0.9).half_width((n, n)))
            guaranteed.append(100 * guaranteed_spread(priors, 0.5).half_width((n, n)))
        axis.loglog(gaps, anticipated, "-", color=color, label=f"{n:,} rows per set")
        axis.loglog(gaps, guaranteed, "--", lw=1.0, color=color)
    axis.plot([], [], "-", color=GRAY, label="95% interval, accuracy 0.9")
    axis.plot([], [], "--", color=GRAY, label="guaranteed (Hoeffding)")
    axis.set(
        xlabel="|θ − θ′|, priors centered at ½, π = ½",
        ylabel="half-width of the interval, points",
        title="Closer priors give wider intervals",
        xticks=[0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 1.0],
        xticklabels=["0.02", "0.05", "0.1", "0.2", "0.4", "0.6", "1"],
        yticks=[0.1, 1, 10, 100],
        yticklabels=["0.1", "1", "10", "100"],
        ylim=(0.1, 300),
    )
    axis.minorticks_off()
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=9.5)
    _save(figure, path)


def draw_all(folder: Path, draws: int = DRAWS) -> list[Path]:
    """Draw every figure into a folder and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"theory-{name}.png" for name in ("bias", "exponent", "half-width")]
    draw_bias(paths[0], draws)
    draw_exponent(paths[1], draws)
    draw_half_width(paths[2])
    return paths


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=130, format="png")
    plt.close(figure)


if __name__ == "__main__":
    for drawn in draw_all(Path(sys.argv[1] if len(sys.argv) > 1 else DOCS / "images")):
        print(drawn)
