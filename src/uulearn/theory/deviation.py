"""Bounds on the distance between the corrected risk and the true risk of a fixed classifier (Lemma 2 and Theorem 3).

The bounds apply to held-out rows: the classifier must not depend on the rows that are used to compute the risk.
`uulearn.theory` describes the parameters.

The second exponent in the paper contains b²/n′ + d²/n. A row of set 0 changes the negative risk term by at most
b·C_ℓ/n, and a row of set 1 by at most d·C_ℓ/n′, so McDiarmid's inequality gives b²/n + d²/n′, which is used here. For
n = n′, the two are equal. A bound on a probability is vacuous if it exceeds 1, and a bound on a risk if it exceeds C_ℓ.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from uulearn.risk.coefficients import check_sizes, check_target_prior
from uulearn.theory.constants import check_number, magnitudes

Pair = Sequence[float]


@dataclass(frozen=True)
class NegativeTermBound:
    """Bounds on the probability that each risk term is negative; their sum is Δ_g in Theorem 3."""

    positive: float  # for a·R̂_u⁺ − c·R̂_u′⁺
    negative: float  # for d·R̂_u′⁻ − b·R̂_u⁻

    @property
    def value(self) -> float:
        """Δ_g, a bound on the probability that either term is negative; the bound may exceed 1."""
        return self.positive + self.negative


@dataclass(frozen=True)
class BiasBound:
    """Two upper bounds on the bias E[R̂_cc(g)] − R(g), which is never negative."""

    value: float  # (L_f + 1)(a + b + c + d)·C_ℓ·Δ_g (Eq. 8)
    sharp: float  # a smaller bound, computed from the same exponents; see `bias_bound`


@dataclass(frozen=True)
class DeviationBound:
    """Upper bound on |R̂_cc(g) − R(g)|: bias + spread, with probability at least ``confidence``."""

    bias: float
    spread: float  # C_δ·χ = C_ℓ·L_f·√(ln(2/δ)/2)·((a + b)/√n + (c + d)/√n′)
    confidence: float  # may be negative; the bound is then vacuous
    sharp: float  # a smaller bound with the same confidence

    @property
    def value(self) -> float:
        """The value of the bound, which is vacuous if it exceeds C_ℓ."""
        return self.bias + self.spread


def negative_term_bound(
    set_priors: Pair, target_prior: float, sizes: Sequence[int], *, alpha: float, beta: float, loss_bound: float = 1.0
) -> NegativeTermBound:
    """Return Δ_g, a bound on the probability that a correction has any effect (Lemma 2, Eq. 7).

        Δ_g = exp(−2(α/C_ℓ)² / (a²/n + c²/n′)) + exp(−2(β/C_ℓ)² / (b²/n + d²/n′))

    >>> bound = negative_term_bound((0.8, 0.2), 0.5, (500, 500), alpha=0.05, beta=0.05)
    >>> round(bound.positive, 4), round(bound.value, 4)
    (0.005, 0.01)
    """
    alpha, beta, loss_bound = _check_parts(target_prior, alpha, beta, loss_bound)
    positive, negative = _term_scales(set_priors, target_prior, sizes)
    ratios = alpha / loss_bound / positive, beta / loss_bound / negative
    return NegativeTermBound(*(math.exp(-2 * ratio**2) for ratio in ratios))


def bias_bound(
    set_priors: Pair,
    target_prior: float,
    sizes: Sequence[int],
    *,
    alpha: float,
    beta: float,
    loss_bound: float = 1.0,
    correction_lipschitz: float = 1.0,
) -> BiasBound:
    """Bound the bias of the corrected risk (Theorem 3, Eq. 8).

    ``sharp`` is tighter than the paper's bound: a risk term X contributes to the bias only if it is negative, and at
    most (L_f + 1)·E|X|·1[X < 0]. For the positive term, this expectation is at most c·C_ℓ·Δ⁺ (a·C_ℓ·Δ⁺ if θ < θ′) and
    at most the integral of Pr(X ≤ −t) over t > 0. The smaller value is used. The negative term is bounded similarly.

    >>> bound = bias_bound((0.8, 0.2), 0.5, (500, 500), alpha=0.05, beta=0.05)
    >>> print(f"{bound.value:.1e} {bound.sharp:.1e}")
    3.3e-02 8.8e-05
    """
    lipschitz = check_number("correction_lipschitz", correction_lipschitz)
    exceed = negative_term_bound(set_priors, target_prior, sizes, alpha=alpha, beta=beta, loss_bound=loss_bound)
    a, b, c, d = magnitudes(set_priors, target_prior)
    scales = _term_scales(set_priors, target_prior, sizes)
    below_zero = (
        min(min(a, c) * exceed.positive, _mean_below_zero(alpha / loss_bound, scales[0])),
        min(min(b, d) * exceed.negative, _mean_below_zero(beta / loss_bound, scales[1])),
    )
    factor = (lipschitz + 1) * loss_bound
    return BiasBound(value=factor * (a + b + c + d) * exceed.value, sharp=factor * sum(below_zero))


def deviation_bound(
    set_priors: Pair,
    target_prior: float,
    sizes: Sequence[int],
    *,
    alpha: float,
    beta: float,
    loss_bound: float = 1.0,
    correction_lipschitz: float = 1.0,
    delta: float = 0.05,
) -> DeviationBound:
    """Bound the distance between the corrected and the true risk, with probability ≥ 1 − δ (Theorem 3, Eq. 9).

    >>> bound = deviation_bound((0.8, 0.2), 0.5, (5000, 5000), alpha=0.05, beta=0.05)
    >>> round(bound.value, 4), round(bound.sharp, 4), bound.confidence
    (0.032, 0.0226, 0.95)
    """
    known = {"alpha": alpha, "beta": beta, "loss_bound": loss_bound, "correction_lipschitz": correction_lipschitz}
    bias = bias_bound(set_priors, target_prior, sizes, **known)
    delta = check_number("delta", delta)
    spread = mcdiarmid_spread(set_priors, target_prior, sizes, loss_bound, correction_lipschitz, 2 / delta)
    unbiased = hoeffding_half_width(set_priors, target_prior, sizes, loss_bound=loss_bound, delta=delta)
    return DeviationBound(bias.value, spread, 1 - delta, sharp=bias.sharp + correction_lipschitz * unbiased)


def alternative_deviation_bound(
    set_priors: Pair,
    target_prior: float,
    sizes: Sequence[int],
    *,
    alpha: float,
    beta: float,
    loss_bound: float = 1.0,
    correction_lipschitz: float = 1.0,
    delta: float = 0.05,
) -> DeviationBound:
    """Bound the same distance as `deviation_bound`, without bias, with probability ≥ 1 − δ − Δ_g (Theorem 3, Eq. 10).

    >>> bound = alternative_deviation_bound((0.8, 0.2), 0.5, (500, 500), alpha=0.05, beta=0.05)
    >>> round(bound.value, 3), round(bound.confidence, 3)
    (0.101, 0.94)
    """
    exceed = negative_term_bound(set_priors, target_prior, sizes, alpha=alpha, beta=beta, loss_bound=loss_bound)
    delta = check_number("delta", delta)
    spread = mcdiarmid_spread(set_priors, target_prior, sizes, loss_bound, correction_lipschitz, 2 / delta)
    # If no term is negative, the corrected risk is the unbiased risk, for any L_f.
    sharp = hoeffding_half_width(set_priors, target_prior, sizes, loss_bound=loss_bound, delta=delta)
    return DeviationBound(0.0, spread, 1 - delta - exceed.value, sharp=sharp)


def hoeffding_half_width(
    set_priors: Pair, target_prior: float, sizes: Sequence[int], *, loss_bound: float = 1.0, delta: float = 0.05
) -> float:
    """Bound the distance between the *unbiased* risk (Eq. 4) and the true risk with probability at least 1 − δ.

        C_ℓ·√(ln(2/δ)/2·((a + b)²/n + (c + d)²/n′))

    The bound holds for every classifier that was chosen without using these rows.

    >>> round(hoeffding_half_width((0.8, 0.2), 0.5, (5000, 5000)), 4)
    0.0226
    """
    n, n_prime = check_sizes(sizes)
    a, b, c, d = magnitudes(set_priors, target_prior)
    scale = math.hypot((a + b) / math.sqrt(n), (c + d) / math.sqrt(n_prime))
    return check_number("loss_bound", loss_bound) * math.sqrt(math.log(2 / check_number("delta", delta)) / 2) * scale


def mcdiarmid_spread(
    set_priors: Pair,
    target_prior: float,
    sizes: Sequence[int],
    loss_bound: float,
    correction_lipschitz: float,
    inverse_failure: float,
) -> float:
    """Return C_ℓ·L_f·√(ln(inverse_failure)/2)·χ: C_δ·χ in Theorem 3 for 2/δ, and C′_δ·χ in Theorem 4 for 1/δ."""
    n, n_prime = check_sizes(sizes)
    a, b, c, d = magnitudes(set_priors, target_prior)
    chi = (a + b) / math.sqrt(n) + (c + d) / math.sqrt(n_prime)
    constant = check_number("loss_bound", loss_bound) * check_number("correction_lipschitz", correction_lipschitz)
    return constant * math.sqrt(math.log(inverse_failure) / 2) * chi


def _check_parts(target_prior: float, alpha: float, beta: float, loss_bound: float) -> tuple[float, float, float]:
    pi, loss_bound = check_target_prior(target_prior), check_number("loss_bound", loss_bound)
    alpha = check_number("alpha", alpha, high=pi * loss_bound)
    return alpha, check_number("beta", beta, high=(1 - pi) * loss_bound), loss_bound


def _term_scales(set_priors: Pair, target_prior: float, sizes: Sequence[int]) -> tuple[float, float]:
    """Return √(a²/n + c²/n′) and √(b²/n + d²/n′), the scales of the two risk terms in units of C_ℓ."""
    n, n_prime = check_sizes(sizes)
    a, b, c, d = magnitudes(set_priors, target_prior)
    root, root_prime = math.sqrt(n), math.sqrt(n_prime)
    return math.hypot(a / root, c / root_prime), math.hypot(b / root, d / root_prime)


def _mean_below_zero(mean: float, scale: float) -> float:
    """Return ∫ exp(−2(mean + t)²/scale²) dt over t > 0."""
    return scale * math.sqrt(math.pi / 8) * math.erfc(math.sqrt(2) * mean / scale)
