"""Draws the figure of docs/priors.md and prints its tables: ``python docs/figures/priors.py``."""

import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from uulearn.priors import best_bin, ratio_curve
from uulearn.priors.mixture import resample, solve_proportions

DOCS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DOCS.parent / "tests"))

from helpers.prior_simulation import MIXTURES, TARGETS, simulate, simulate_target  # noqa: E402


def plain_coverage(classes, set_priors, size, draws):
    """Coverage of plain percentiles of the same resamples, without the extrapolation of the ratio."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(draws):
        higher, lower = (classes(rng, rng.random(size) < prior) for prior in set_priors)
        ends = best_bin(-lower, -higher), best_bin(higher, lower)
        theta, _ = solve_proportions(*(end.high for end in resample(higher, lower, *ends, 300, rng)))
        low, high = np.quantile(theta, [0.025, 0.975])
        covered += low <= set_priors[0] <= high
    return covered / draws


def print_tables(draws=400):
    """Print the tables of docs/priors.md."""
    print("| classes | (θ, θ′) | rows per set | bias | deviation | coverage | plain | width | bounds | warned |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    cases = [(name, (0.8, 0.2), 5000) for name in MIXTURES]
    cases += [(name, (0.8, 0.2), 1000) for name in list(MIXTURES)[:6]]
    cases += [(name, p, 5000) for p in ((0.6, 0.4), (0.9, 0.5), (1.0, 0.3)) for name in list(MIXTURES)[1:5]]
    for name, set_priors, size in cases:
        found = simulate(MIXTURES[name], set_priors, size, draws)
        plain = plain_coverage(MIXTURES[name], set_priors, size, draws)
        pairs = [
            "{:+.3f} {:+.3f}".format(*found.bias),
            "{:.3f} {:.3f}".format(*found.deviation),
            "{:.0%} {:.0%}".format(*found.covered),
            f"{plain:.0%}",
            "{:.2f} {:.2f}".format(*found.width),
            f"{found.bounded:.0%}",
            f"{found.warned:.0%}",
        ]
        print(f"| {name} | {set_priors} | {size:,} | {' | '.join(pairs)} |", flush=True)
    print("\n| (θ, θ′) | π | rows | σ apart | bias | spread | stated | coverage | false alarms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in TARGETS:
        values = simulate_target(*case, draws=1000)
        print("| {} | {} | {} | {} ".format(*case) + "| {:+.3f} | {:.3f} | {:.3f} | {:.1%} | {:.1%} |".format(*values))


def draw_picture(path, set_priors=(0.8, 0.2), size=5000):
    """Draw the ratio of the tails for classes that separate, overlap, and are reducible."""
    matplotlib.use("Agg")
    panels = [
        ("Gaussians, 3 σ apart", "identified: the ratio levels off at κ"),
        ("Gaussians, 1 σ apart", "not identified: it decreases to the last rows"),
        ("reducible", "not identified: it levels off above κ, undetected"),
    ]
    truth = (1 - set_priors[0]) / (1 - set_priors[1])
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), sharey=True, layout="constrained")
    for axis, (name, title) in zip(axes, panels, strict=True):
        rng = np.random.default_rng(0)
        for draw in range(12):
            higher, lower = (MIXTURES[name](rng, rng.random(size) < prior) for prior in set_priors)
            curve, best = ratio_curve(-lower, -higher), best_bin(-lower, -higher)
            look = {"color": "#2471a3", "lw": 1.8, "zorder": 3} if draw == 0 else {"color": "#b8c4cc", "lw": 0.8}
            axis.plot(curve.rows / size, curve.ratio, label=["one pair of sets", "eleven others"][draw > 0], **look)
            mark = {"color": "#c0392b" if draw == 0 else "#e6b0aa", "zorder": 4 if draw == 0 else 2}
            axis.plot(best.rows / size, best.ratio, "o", ms=7 if draw == 0 else 4, label="best bin", **mark)
        axis.axhline(truth, color="black", ls="--", lw=1, label="κ = (1 − θ)/(1 − θ′)")
        axis.set(xscale="log", ylim=(0, 1.02), xlabel="fraction of the set with the lower prior in the tail")
        axis.set_title(f"{name}\n{title}", fontsize=11)
    axes[0].set_ylabel("ratio of the fractions in the tail (higher / lower prior)")
    handles, labels = axes[0].get_legend_handles_labels()
    chosen = [labels.index(text) for text in ("one pair of sets", "eleven others", "best bin", "κ = (1 − θ)/(1 − θ′)")]
    axes[0].legend([handles[i] for i in chosen], [labels[i] for i in chosen], fontsize=8, frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    draw_picture(DOCS / "images" / "priors-ratio.png")
    print_tables()
