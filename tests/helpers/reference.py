"""An independent NumPy implementation of the paper's estimators, one row at a time where that is clearest."""

from __future__ import annotations

import math

import numpy as np


def coefficients(theta, theta_prime, pi):
    """Solve the two linear equations behind Section 2.2, instead of using its closed form.

    p_u = θ·P + (1 − θ)·N and p_u′ = θ′·P + (1 − θ′)·N give P and N as combinations of p_u and p_u′.
    """
    mixing = np.array([[theta, 1 - theta], [theta_prime, 1 - theta_prime]])
    positive_class, negative_class = np.linalg.inv(mixing)
    return (
        pi * positive_class[0],
        -(1 - pi) * negative_class[0],
        -pi * positive_class[1],
        (1 - pi) * negative_class[1],
    )


def loss(name, z):
    if name == "logistic":
        return math.log1p(math.exp(-abs(z))) + max(-z, 0.0)
    if name == "sigmoid":
        return 1 / (1 + math.exp(z)) if z < 500 else 0.0
    if name == "ramp":
        return min(1.0, max(0.0, 0.5 - 0.5 * z))
    if name == "double_hinge":
        return max(-z, 0.0, 0.5 - 0.5 * z)
    if name == "squared":
        return 0.25 * (z - 1) ** 2
    assert name == "zero_one"
    return 0.5 if z == 0 else float(z < 0)


def correct(name, x, slope):
    if x >= 0 or name in ("unbiased", "biased"):
        return x
    return {"abs": -x, "relu": 0.0, "leaky_relu": slope * x}[name]


def uu_risk(scores, sets, set_priors, pi, loss_name, method, slope):
    a, b, c, d = coefficients(*set_priors, pi)
    means = {}
    for which in (0, 1):
        own = [g for g, s in zip(scores, sets, strict=True) if s == which]
        means[which, +1] = sum(loss(loss_name, g) for g in own) / len(own)
        means[which, -1] = sum(loss(loss_name, -g) for g in own) / len(own)
    positive = a * means[0, +1] - c * means[1, +1]
    negative = d * means[1, -1] - b * means[0, -1]
    if method == "biased":
        higher = 0 if set_priors[0] > set_priors[1] else 1
        objective = np.mean([loss(loss_name, g if s == higher else -g) for g, s in zip(scores, sets, strict=True)])
    else:
        objective = correct(method, positive, slope) + correct(method, negative, slope)
    return {
        "positive": positive,
        "negative": negative,
        "unbiased": positive + negative,
        "corrected": correct(method, positive, slope) + correct(method, negative, slope),
        "objective": objective,
    }
