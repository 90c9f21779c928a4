"""Draw the figure of docs/studies/priors.md: ``python docs/figures/priors.py``."""

import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from uulearn.priors import best_bin, ratio_curve

DOCS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(DOCS.parent / "tests"))

from helpers.prior_simulation import MIXTURES  # noqa: E402


def draw_picture(path, set_priors=(0.8, 0.2), size=5000):
    """Draw the ratio of the tails for classes that separate, overlap, and are reducible."""
    matplotlib.use("Agg")
    panels = [
        ("Gaussians, 3 σ apart", "the ratio reaches κ"),
        ("Gaussians, 1 σ apart", "it falls to the last rows"),
        ("reducible", "it levels off above κ"),
    ]
    truth = (1 - set_priors[0]) / (1 - set_priors[1])
    figure, axes = plt.subplots(3, 1, figsize=(5.2, 8.4), sharex=True, sharey=True, layout="constrained")
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
        axis.set(xscale="log", ylim=(0, 1.02), ylabel="ratio of the tails")
        axis.set_title(f"{name}: {title}", fontsize=10)
    axes[2].set_xlabel("fraction of the set with the lower prior in the tail")
    handles, labels = axes[0].get_legend_handles_labels()
    chosen = [labels.index(text) for text in ("one pair of sets", "eleven others", "best bin", "κ = (1 − θ)/(1 − θ′)")]
    axes[0].legend([handles[i] for i in chosen], [labels[i] for i in chosen], fontsize=9.5, frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    draw_picture(DOCS / "images" / "priors-ratio.png")
