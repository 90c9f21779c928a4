"""Simulated mixtures with known class priors: bias, coverage and warnings of the estimates of `uulearn.priors`."""

import warnings
from collections import namedtuple

import numpy as np
from scipy import stats

from uulearn.exceptions import UUWarning
from uulearn.priors import estimate_set_priors, estimate_set_priors_from_scores, estimate_target_prior


def gaussians(distance):
    return lambda rng, y: rng.normal(np.where(y, distance / 2, -distance / 2))


def half_shared(rng, y):
    """Half of each class lies in its own region, half in a common one: irreducible, although the classes overlap."""
    return rng.normal(np.where(rng.random(len(y)) < 0.5, 0, np.where(y, 4, -4)))


def triangles(rng, y):
    """Densities 2x and 2(1 − x) on [0, 1]: pure only at the two ends."""
    far = np.sqrt(rng.random(len(y)))
    return np.where(y, far, 1 - far)


def reducible(rng, y):
    """15% of each class look like the other class: not identified, and the data cannot show it."""
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

Simulated = namedtuple("Simulated", "bias deviation covered width bounded warned")


def simulate(classes, set_priors, size, draws, seed=0):
    """Return bias, deviation, coverage and width per set, and the rates of valid bounds and of warnings."""
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
            found.bounds.higher_prior_at_least <= theta
            and found.bounds.lower_prior_at_most >= theta_prime
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


def out_of_fold_coverage(draws, size, scorer=None):
    """Return coverage and bias for rows with five columns and out-of-fold scores."""
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
    """Return bias, deviation, standard error, coverage and false-alarm rate of the target prior."""
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
    deviation = stats.median_abs_deviation(errors, scale="normal")  # a ratio has no finite variance
    return np.median(errors), deviation, np.median(stated), covered / draws, alarms / draws
