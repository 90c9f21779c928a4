"""The figures of ``docs/theory.md``; ``python -m uulearn.theory.figures docs/images`` draws them again.

All simulate the zero-one loss, for which a set is no more than a binomial number of rows predicted positive.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uulearn.risk.coefficients import uu_coefficients
from uulearn.storage import write_atomically
from uulearn.theory.deviation import bias_bound, negative_bracket_bound
from uulearn.theory.planning import anticipated_spread, guaranteed_spread

Floats = NDArray[np.float64]

COLOURS = ("#2471a3", "#c0392b", "#1e8449")
GREY = "#707070"
DRAWS = 1_000_000
FEWEST = 30
"""Draws with a bracket below zero that a point needs: the mean of fewer says little."""


def simulate_brackets(
    set_priors: tuple[float, float],
    target_prior: float,
    sizes: tuple[int, int],
    accuracy: float,
    draws: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Both brackets of the zero-one risk in many independent draws of the two sets, each of shape (draws,).

    The classifier is right with probability ``accuracy`` on a row of either class.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> positive, negative = simulate_brackets((0.8, 0.2), 0.5, (100, 100), 0.9, 10_000, rng)
    >>> positive.mean().round(2), negative.mean().round(2)  # half of 0.1 each
    (np.float64(0.05), np.float64(0.05))
    """
    a, b, c, d = uu_coefficients(set_priors, target_prior)
    shares = [theta * accuracy + (1 - theta) * (1 - accuracy) for theta in set_priors]
    s, s_prime = (rng.binomial(n, share, draws) / n for n, share in zip(sizes, shares, strict=True))
    return a * (1 - s) - c * (1 - s_prime), d * s_prime - b * s


def draw_bias(path: Path, draws: int = DRAWS) -> None:
    """Bias of the corrected risk against n = n′, simulated, beside both bounds."""
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    rng = np.random.default_rng(0)
    accuracy, pi = 0.8, 0.5
    lost = pi * (1 - accuracy)
    for colour, priors, step in zip(COLOURS, ((0.9, 0.1), (0.8, 0.2), (0.7, 0.3)), (8, 16, 40), strict=True):
        sizes = np.arange(step, 11 * step, step)
        bias = []
        for n in sizes.tolist():
            brackets = simulate_brackets(priors, pi, (n, n), accuracy, draws, rng)
            below = [bracket[bracket < 0] for bracket in brackets]
            rare = sum(map(len, below)) < FEWEST
            bias.append(math.nan if rare else -sum(float(part.sum()) for part in below) / draws)
        bounds = [bias_bound(priors, pi, (n, n), alpha=lost, beta=lost) for n in sizes.tolist()]
        axis.semilogy(sizes, bias, "o", ms=4, color=colour, label=f"θ, θ′ = {priors[0]:g}, {priors[1]:g}")
        axis.semilogy(sizes, [bound.value for bound in bounds], "--", lw=1.2, color=colour)
        axis.semilogy(sizes, [bound.sharp for bound in bounds], "-", lw=1.2, color=colour)
    axis.plot([], [], "--", color=GREY, label="Theorem 3 (Eq. 8)")
    axis.plot([], [], "-", color=GREY, label="sharper bound")
    axis.set(
        xlabel="rows of each set, n = n′",
        ylabel="bias of the error rate",
        ylim=(1e-7, 20),
        title="The bias of the ReLU correction decays exponentially",
    )
    axis.legend(frameon=False, fontsize=9)
    _save(figure, path)


def draw_exponent(path: Path, draws: int = DRAWS) -> None:
    """Probability of a bracket below zero with few rows of set 1, beside the bound as printed and as it should be."""
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(7.2, 4.2), layout="constrained")
    rng = np.random.default_rng(0)
    priors, pi, accuracy, n_prime = (0.8, 0.2), 0.5, 0.8, 40
    part = pi * (1 - accuracy)
    sizes = np.unique(np.geomspace(n_prime, 4000, 13).astype(int))
    below, ours, printed = [], [], []
    for n in sizes.tolist():
        positive, negative = simulate_brackets(priors, pi, (n, n_prime), accuracy, draws, rng)
        below.append(float(((positive < 0) | (negative < 0)).mean()))
        ours.append(negative_bracket_bound(priors, pi, (n, n_prime), alpha=part, beta=part).value)
        printed.append(_printed_bound(priors, pi, (n, n_prime), part))
    axis.loglog(sizes, ours, "-", color=COLOURS[0], label="bound with b²/n + d²/n′")
    axis.loglog(sizes, below, "o", ms=4, color="black", label="simulated")
    axis.loglog(sizes, printed, "--", color=COLOURS[1], label="bound as printed, b²/n′ + d²/n")
    axis.set(
        xlabel=f"rows of set 0, n (set 1: n′ = {n_prime})",
        ylabel="probability",
        ylim=(1e-8, 3),
        title="A bracket falls below zero more often than the printed bound allows",
    )
    axis.legend(frameon=False, fontsize=9)
    _save(figure, path)


def draw_half_width(path: Path) -> None:
    """Half-width of the interval for a held-out accuracy against the distance of the priors."""
    plt = _pyplot()
    figure, axis = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    gaps = np.geomspace(0.02, 1.0, 80)
    for colour, n in zip(COLOURS, (1_000, 10_000, 100_000), strict=True):
        anticipated, guaranteed = [], []
        for gap in gaps.tolist():
            priors = (0.5 + gap / 2, 0.5 - gap / 2)
            anticipated.append(100 * anticipated_spread(priors, 0.5, accuracy=0.9).half_width((n, n)))
            guaranteed.append(100 * guaranteed_spread(priors, 0.5).half_width((n, n)))
        axis.loglog(gaps, anticipated, "-", color=colour, label=f"{n:,} rows of each set")
        axis.loglog(gaps, guaranteed, "--", lw=1.0, color=colour)
    axis.plot([], [], "-", color=GREY, label="95% interval, accuracy 0.9")
    axis.plot([], [], "--", color=GREY, label="guaranteed (Hoeffding)")
    axis.set(
        xlabel="distance of the priors, |θ − θ′| (around ½, π = ½)",
        ylabel="half-width, points of accuracy",
        title="Priors half as far apart: an interval twice as wide",
        xticks=[0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 1.0],
        xticklabels=["0.02", "0.05", "0.1", "0.2", "0.4", "0.6", "1"],
        yticks=[0.1, 1, 10, 100],
        yticklabels=["0.1", "1", "10", "100"],
        ylim=(0.1, 300),
    )
    axis.minorticks_off()
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=9)
    _save(figure, path)


def draw_all(folder: Path, draws: int = DRAWS) -> list[Path]:
    """Draw every figure into a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"theory-{name}.png" for name in ("bias", "exponent", "half-width")]
    draw_bias(paths[0], draws)
    draw_exponent(paths[1], draws)
    draw_half_width(paths[2])
    return paths


def _printed_bound(priors: tuple[float, float], pi: float, sizes: tuple[int, int], part: float) -> float:
    """Δ_g as the paper prints it, for α = β and C_ℓ = 1."""
    a, b, c, d = uu_coefficients(priors, pi)
    n, n_prime = sizes
    return math.exp(-2 * part**2 / (a**2 / n + c**2 / n_prime)) + math.exp(-2 * part**2 / (b**2 / n_prime + d**2 / n))


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _save(figure: Any, path: Path) -> None:
    write_atomically(path, lambda temporary: figure.savefig(temporary, dpi=130, format="png"))
    _pyplot().close(figure)


if __name__ == "__main__":
    for drawn in draw_all(Path(sys.argv[1] if len(sys.argv) > 1 else ".")):
        print(drawn)
