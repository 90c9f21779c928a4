"""Simulated risk terms of the zero-one loss, for which a set is a binomial number of rows predicted positive."""

import math

from uulearn.risk import uu_coefficients


def simulate_risk_terms(set_priors, target_prior, sizes, accuracy, draws, rng):
    """Return both risk terms in independent draws of the two sets, each of shape (draws,).

    The classifier is correct with probability ``accuracy`` on a row of either class.
    """
    a, b, c, d = uu_coefficients(set_priors, target_prior)
    fractions = [theta * accuracy + (1 - theta) * (1 - accuracy) for theta in set_priors]
    s, s_prime = (rng.binomial(n, fraction, draws) / n for n, fraction in zip(sizes, fractions, strict=True))
    return a * (1 - s) - c * (1 - s_prime), d * s_prime - b * s


def printed_bound(set_priors, pi, sizes, alpha, beta):
    """Return Δ_g for C_ℓ = 1 with the second exponent as the paper prints it, b²/n′ + d²/n."""
    a, b, c, d = uu_coefficients(set_priors, pi)
    n, n_prime = sizes
    return math.exp(-2 * alpha**2 / (a**2 / n + c**2 / n_prime)) + math.exp(-2 * beta**2 / (b**2 / n_prime + d**2 / n))
