"""Coverage of every interval of `uulearn.priors`, by simulation.

``python tests/test_priors_coverage.py`` draws the picture of docs/priors.md and prints its tables, with more draws than
the tests take.
"""

import warnings
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

from uulearn.exceptions import UUWarning
from uulearn.priors import (
    best_bin,
    estimate_set_priors,
    estimate_set_priors_from_scores,
    estimate_target_prior,
    priors_from_labels,
    ratio_curve,
)
from uulearn.priors.intervals import clopper_pearson, hypergeometric_interval
from uulearn.priors.mixture import solve_proportions
from uulearn.priors.resampling import resample


def gaussians(distance):
    return lambda rng, y: rng.normal(np.where(y, distance / 2, -distance / 2))


def half_shared(rng, y):
    """Half of each class lies in a region of its own, half in a common one: irreducible, though the classes overlap."""
    return rng.normal(np.where(rng.random(len(y)) < 0.5, 0, np.where(y, 4, -4)))


def triangles(rng, y):
    """Densities 2x and 2(1 − x) on [0, 1]: pure only at the two ends."""
    far = np.sqrt(rng.random(len(y)))
    return np.where(y, far, 1 - far)


def reducible(rng, y):
    """A seventh of each class looks like the other: not identified, and nothing shows it."""
    return gaussians(4)(rng, np.where(rng.random(len(y)) < 0.15, ~y, y))


MIXTURES = {
    "Gaussians, 4 σ apart": gaussians(4),
    "Gaussians, 3 σ apart": gaussians(3),
    "Gaussians, 2 σ apart": gaussians(2),
    "Gaussians, 1.5 σ apart": gaussians(1.5),
    "Gaussians, 1 σ apart": gaussians(1),
    "half of each class shared": half_shared,
    "triangles": triangles,
    "reducible": reducible,
}

Simulated = namedtuple("Simulated", "bias spread covered width bounded warned")


def simulate(classes, set_priors, size, draws, seed=0):
    """Estimates of many pairs of sets: bias, spread, coverage and width for either set, bounds that hold, warnings."""
    rng = np.random.default_rng(seed)
    estimates, covered, widths, bounded, warned = [], [], [], 0, 0
    for draw in range(draws):
        scores = [classes(rng, rng.random(size) < prior) for prior in set_priors]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UUWarning)
            found = estimate_set_priors_from_scores(*scores, replicates=300, random_state=draw)
        estimates.append(found.set_priors)
        covered.append([i.covers(prior) for i, prior in zip(found.intervals, set_priors, strict=True)])
        widths.append([i.width for i in found.intervals])
        theta, theta_prime = set_priors
        bounded += (
            found.bounds.richer_at_least <= theta
            and found.bounds.poorer_at_most >= theta_prime
            and found.bounds.gap_at_least <= theta - theta_prime
        )
        warned += not found.identified
    return Simulated(
        np.nanmean(estimates, axis=0) - set_priors,
        np.nanstd(estimates, axis=0),
        np.mean(covered, axis=0),
        np.mean(widths, axis=0),
        bounded / draws,
        warned / draws,
    )


IDENTIFIED = [
    ("Gaussians, 4 σ apart", (0.8, 0.2), 1000),
    ("Gaussians, 3 σ apart", (0.8, 0.2), 2000),
    ("Gaussians, 2 σ apart", (0.8, 0.2), 2000),
    ("Gaussians, 3 σ apart", (0.6, 0.4), 2000),
    ("Gaussians, 3 σ apart", (0.9, 0.5), 2000),
    ("Gaussians, 3 σ apart", (1.0, 0.3), 1000),
    ("half of each class shared", (0.8, 0.2), 2000),
    ("triangles", (0.8, 0.2), 2000),
]


@pytest.mark.parametrize(("mixture", "set_priors", "size"), IDENTIFIED)
def test_intervals_cover_where_the_classes_separate_in_the_tails(mixture, set_priors, size):
    found = simulate(MIXTURES[mixture], set_priors, size, draws=300)
    assert (found.covered >= 0.9).all(), found
    assert found.bounded >= 0.93
    assert (np.abs(found.bias) <= 0.04).all()


def test_estimates_are_nearly_unbiased_where_the_tails_are_pure():
    found = simulate(gaussians(4), (0.8, 0.2), 5000, draws=100)
    assert (np.abs(found.bias) < 0.005).all()
    assert (found.spread < 0.015).all()
    assert found.warned == 0


def test_overlapping_classes_are_warned_of_and_the_bounds_hold():
    """Irreducible in the limit only: biased towards each other, intervals too short, and it says so."""
    found = simulate(gaussians(1), (0.8, 0.2), 5000, draws=100)
    assert found.bias[0] < -0.03 < 0.03 < found.bias[1]
    assert found.warned >= 0.85
    assert found.bounded >= 0.99


def test_reducible_classes_deceive_the_estimate_but_not_the_bounds():
    """What docs/priors.md says no data can show: wrong, narrow, unwarned; the bounds hold all the same."""
    found = simulate(reducible, (0.8, 0.2), 5000, draws=60)
    assert found.bias == pytest.approx((-0.09, 0.09), abs=0.02)
    assert (found.covered < 0.2).all()
    assert found.warned <= 0.1
    assert found.bounded == 1


def crossfitted_coverage(draws, size, scorer=None):
    """Coverage and bias from rows of five columns, scored by models that have not seen them."""
    rng = np.random.default_rng(0)
    set_priors, errors, covered = (0.8, 0.2), [], []
    for draw in range(draws):
        rows = []
        for prior in set_priors:
            y = rng.random(size) < prior
            rows.append(rng.normal(size=(size, 5)) + np.where(y, 1.5, -1.5)[:, None] / np.sqrt(5))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UUWarning)
            found = estimate_set_priors(*rows, scorer=scorer, replicates=300, random_state=draw)
        errors.append(np.subtract(found.set_priors, set_priors))
        covered.append([i.covers(prior) for i, prior in zip(found.intervals, set_priors, strict=True)])
    return np.mean(covered, axis=0), np.mean(errors, axis=0)


def test_intervals_cover_with_out_of_fold_evaluation_scores():
    covered, bias = crossfitted_coverage(draws=60, size=600, scorer=LogisticRegression())
    assert (covered >= 0.88).all()
    assert (np.abs(bias) < 0.02).all()


# ------------------------------------------------------------------------------------------------------------ labels


@pytest.mark.parametrize("rows", [10, 50])
def test_exact_intervals_never_cover_less_than_they_say(rows):
    """Every outcome weighted by its probability: no simulation is needed."""
    ends = np.array([clopper_pearson(k, rows) for k in range(rows + 1)])
    shares = np.linspace(0.01, 0.99, 197)
    probability = stats.binom.pmf(np.arange(rows + 1), rows, shares[:, None])
    covered = (probability * ((ends[:, 0] <= shares[:, None]) & (shares[:, None] <= ends[:, 1]))).sum(axis=1)
    assert covered.min() >= 0.95
    assert covered.mean() < 0.99


@pytest.mark.parametrize(("rows", "size"), [(10, 15), (40, 200)])
def test_finite_intervals_never_cover_less_than_they_say(rows, size):
    ends = np.array([hypergeometric_interval(k, rows, size) for k in range(rows + 1)])
    totals = np.arange(size + 1)
    probability = stats.hypergeom.pmf(np.arange(rows + 1), size, totals[:, None], rows)
    shares = totals[:, None] / size
    covered = (probability * ((ends[:, 0] <= shares + 1e-12) & (shares <= ends[:, 1] + 1e-12))).sum(axis=1)
    assert covered.min() >= 0.95 - 1e-9
    assert covered.mean() < 0.995


def test_the_intervals_of_priors_from_labels_cover_by_simulation():
    """Labels drawn without replacement from a set: its own share of positives is covered by the finite interval."""
    rng = np.random.default_rng(0)
    population = np.repeat([1, 0], [240, 60])
    covered = []
    for _ in range(400):
        labels = rng.permutation(population)[:60], rng.permutation(1 - population)[:60]
        found = priors_from_labels(*labels, sizes=(300, 300))
        covered.append([i.covers(share) for i, share in zip(found.intervals, (0.8, 0.2), strict=True)])
    assert (np.mean(covered, axis=0) >= 0.94).all()
    assert (np.mean(covered, axis=0) <= 0.99).all()


# ------------------------------------------------------------------------------------------------------ target prior

TARGETS = [
    ((0.8, 0.2), 0.5, (1000, 1000, 1000), 2),
    ((0.8, 0.2), 0.02, (300, 1000, 1000), 2),
    ((0.3, 0.7), 0.4, (200, 800, 3000), 1),
    ((0.6, 0.4), 0.1, (1000, 2000, 2000), 2),
    ((0.55, 0.45), 0.1, (500, 2000, 2000), 1),
    ((1.0, 0.3), 0.3, (500, 300, 3000), 6),
    ((0.8, 0.2), 0.5, (50, 60, 60), 2),
]


def simulate_target(set_priors, pi, sizes, distance, draws):
    """Bias, spread, standard error, coverage and false alarms of the target prior."""
    rng = np.random.default_rng(0)
    errors, stated, covered, alarms = [], [], 0, 0
    for _ in range(draws):
        scores = [gaussians(distance)(rng, rng.random(n) < p) for n, p in zip(sizes, (pi, *set_priors), strict=True)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UUWarning)
            found = estimate_target_prior(*scores, set_priors)
        errors.append(found.target_prior - pi)
        stated.append(found.standard_error)
        covered += found.interval.covers(pi)
        alarms += found.misfit_p_value < 0.01
    spread = stats.median_abs_deviation(errors, scale="normal")  # a ratio has no variance
    return np.median(errors), spread, np.median(stated), covered / draws, alarms / draws


@pytest.mark.parametrize(("set_priors", "pi", "sizes", "distance"), TARGETS)
def test_the_interval_of_the_target_prior_covers(set_priors, pi, sizes, distance):
    bias, _, error, covered, alarms = simulate_target(set_priors, pi, sizes, distance, draws=300)
    assert 0.92 <= covered <= 0.99
    assert abs(bias) < 0.25 * error
    assert alarms <= 0.03


# ------------------------------------------------------------------------------------------- the tables of the guide


def plain_coverage(classes, set_priors, size, draws):
    """Coverage of plain percentiles of the same resamples, without the allowance for a ratio that is still falling."""
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(draws):
        rich, poor = (classes(rng, rng.random(size) < prior) for prior in set_priors)
        ends = best_bin(-poor, -rich), best_bin(rich, poor)
        theta, _ = solve_proportions(*(end.high for end in resample(rich, poor, *ends, 300, rng)))
        low, high = np.quantile(theta, [0.025, 0.975])
        covered += low <= set_priors[0] <= high
    return covered / draws


def print_tables(draws=400):
    print("| classes | (θ, θ′) | rows of each | bias | spread | coverage | plain | width | bounds | warned |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    cases = [(name, (0.8, 0.2), 5000) for name in MIXTURES]
    cases += [(name, (0.8, 0.2), 1000) for name in list(MIXTURES)[:6]]
    cases += [(name, p, 5000) for p in ((0.6, 0.4), (0.9, 0.5), (1.0, 0.3)) for name in list(MIXTURES)[1:5]]
    for name, set_priors, size in cases:
        found = simulate(MIXTURES[name], set_priors, size, draws)
        plain = plain_coverage(MIXTURES[name], set_priors, size, draws)
        pairs = [
            "{:+.3f} {:+.3f}".format(*found.bias),
            "{:.3f} {:.3f}".format(*found.spread),
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
        figures = simulate_target(*case, draws=1000)
        print("| {} | {} | {} | {} ".format(*case) + "| {:+.3f} | {:.3f} | {:.3f} | {:.1%} | {:.1%} |".format(*figures))


def draw_picture(path, set_priors=(0.8, 0.2), size=5000):
    """The ratio of the tails for classes that separate, that overlap, and that are reducible."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [
        ("Gaussians, 3 σ apart", "identified: the ratio levels out at κ"),
        ("Gaussians, 1 σ apart", "not identified: it falls to the last rows"),
        ("reducible", "not identified: it levels out too high, unseen"),
    ]
    truth = (1 - set_priors[0]) / (1 - set_priors[1])
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), sharey=True, layout="constrained")
    for axis, (name, title) in zip(axes, panels, strict=True):
        rng = np.random.default_rng(0)
        for draw in range(12):
            rich, poor = (MIXTURES[name](rng, rng.random(size) < prior) for prior in set_priors)
            curve, best = ratio_curve(-poor, -rich), best_bin(-poor, -rich)
            look = {"color": "#2471a3", "lw": 1.8, "zorder": 3} if draw == 0 else {"color": "#b8c4cc", "lw": 0.8}
            axis.plot(curve.rows / size, curve.ratio, label=["one pair of sets", "eleven others"][draw > 0], **look)
            mark = {"color": "#c0392b" if draw == 0 else "#e6b0aa", "zorder": 4 if draw == 0 else 2}
            axis.plot(best.rows / size, best.ratio, "o", ms=7 if draw == 0 else 4, label="best bin", **mark)
        axis.axhline(truth, color="black", ls="--", lw=1, label="κ = (1 − θ)/(1 − θ′)")
        axis.set(xscale="log", ylim=(0, 1.02), xlabel="share of the poorer set in the tail")
        axis.set_title(f"{name}\n{title}", fontsize=11)
    axes[0].set_ylabel("share of the richer set / share of the poorer")
    handles, labels = axes[0].get_legend_handles_labels()
    chosen = [labels.index(text) for text in ("one pair of sets", "eleven others", "best bin", "κ = (1 − θ)/(1 − θ′)")]
    axes[0].legend([handles[i] for i in chosen], [labels[i] for i in chosen], fontsize=8, frameon=False)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    draw_picture(Path(__file__).resolve().parents[2] / "docs" / "images" / "priors-ratio.png")
    print_tables()
