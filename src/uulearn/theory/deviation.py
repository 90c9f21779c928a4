"""A fixed classifier: how far its corrected risk can be from its true risk (Lemma 2 and Theorem 3).

"Fixed" means chosen without the rows at hand, so these bounds are about held-out rows. Common to all functions:

* ``set_priors`` (θ, θ′), ``target_prior`` π, ``sizes`` (n, n′);
* ``alpha``, ``beta``: known lower bounds of the two parts of the true risk, α ≤ π·R_p⁺(g) and β ≤ (1 − π)·R_n⁻(g). For
  the zero-one loss these are the shares of false negatives and of false positives among all rows;
* ``loss_bound`` C_ℓ: the largest value of the loss, 1 for the zero-one loss;
* ``correction_lipschitz`` L_f: 1 for relu and abs, max(1, |λ|) for leaky_relu;
* ``delta`` δ: the probability with which the bound may fail.

The paper prints the second exponent with b²/n′ + d²/n. A row of set 0 moves the negative bracket by b·C_ℓ/n and a row
of set 1 by d·C_ℓ/n′, so McDiarmid's inequality gives b²/n + d²/n′, which is what stands here; for n = n′ they agree.
The returned numbers are the formulas': a probability above 1, or a risk above C_ℓ, is vacuous but not an error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from uulearn.risk.coefficients import check_target_prior
from uulearn.theory.checks import (
    check_between,
    check_correction_lipschitz,
    check_delta,
    check_loss_bound,
    check_sizes,
    magnitudes,
)


@dataclass(frozen=True)
class NegativeBracketBound:
    """Bounds on the probability that a bracket falls below zero; their sum is Δ_g of Theorem 3."""

    positive: float
    """For a·R̂_u⁺ − c·R̂_u′⁺."""
    negative: float
    """For d·R̂_u′⁻ − b·R̂_u⁻."""

    @property
    def value(self) -> float:
        """Δ_g, by which the probability that either is below zero is bounded; may exceed 1."""
        return self.positive + self.negative


@dataclass(frozen=True)
class BiasBound:
    """Two upper bounds on E[R̂_cc(g)] − R(g), which is never negative."""

    value: float
    """(L_f + 1)(a + b + c + d)·C_ℓ·Δ_g, the paper's (Eq. 8)."""
    sharp: float
    """A smaller one from the same exponents, see `bias_bound`."""


@dataclass(frozen=True)
class DeviationBound:
    """|R̂_cc(g) − R(g)| ≤ bias + spread with probability at least ``confidence``."""

    bias: float
    spread: float
    """C_δ·χ = C_ℓ·L_f·√(ln(2/δ)/2)·((a + b)/√n + (c + d)/√n′)."""
    confidence: float
    """May be below zero, and the bound then says nothing."""
    sharp: float
    """A smaller bound with the same confidence: with `BiasBound.sharp`, and with the root in the proof left whole."""

    @property
    def value(self) -> float:
        """The bound; vacuous above C_ℓ."""
        return self.bias + self.spread


def negative_bracket_bound(
    set_priors: Sequence[float],
    target_prior: float,
    sizes: Sequence[int],
    *,
    alpha: float,
    beta: float,
    loss_bound: float = 1.0,
) -> NegativeBracketBound:
    """Δ_g, a bound on the probability that a correction has anything to correct (Lemma 2, Eq. 7).

        Δ_g = exp(−2(α/C_ℓ)² / (a²/n + c²/n′)) + exp(−2(β/C_ℓ)² / (b²/n + d²/n′))

    Parameters are described at the top of this module.

    Examples
    --------
    >>> bound = negative_bracket_bound((0.8, 0.2), 0.5, (500, 500), alpha=0.05, beta=0.05)
    >>> round(bound.positive, 4), round(bound.value, 4)
    (0.005, 0.01)
    """
    alpha, beta, loss_bound = _check_parts(target_prior, alpha, beta, loss_bound)
    positive, negative = _bracket_scales(set_priors, target_prior, sizes)
    return NegativeBracketBound(
        math.exp(-2 * (alpha / loss_bound / positive) ** 2), math.exp(-2 * (beta / loss_bound / negative) ** 2)
    )


def bias_bound(
    set_priors: Sequence[float],
    target_prior: float,
    sizes: Sequence[int],
    *,
    alpha: float,
    beta: float,
    loss_bound: float = 1.0,
    correction_lipschitz: float = 1.0,
) -> BiasBound:
    """How much too high a corrected risk is on average, at most (Theorem 3, Eq. 8).

    Parameters are described at the top of this module.

    Notes
    -----
    ``sharp`` keeps what the paper's proof gives away. Only a bracket X below zero adds to the bias, and no more than
    (L_f + 1)·|X|. For the positive one |X| ≤ c·C_ℓ (a·C_ℓ if θ < θ′), so E|X|·1[X < 0] is at most c·C_ℓ·Δ⁺; it is also
    the integral of Pr(X ≤ −t) ≤ exp(−2(α + t)²/(C_ℓ²·V)) over t > 0, V = a²/n + c²/n′, which is
    C_ℓ·√(πV/8)·erfc(√2·α/(C_ℓ·√V)) with π = 3.14…. The smaller counts; likewise for the negative bracket, b and β.

    Examples
    --------
    >>> for n in (250, 500, 1000):
    ...     bound = bias_bound((0.8, 0.2), 0.5, (n, n), alpha=0.05, beta=0.05)
    ...     print(n, f"{bound.value:.1e} {bound.sharp:.1e}")
    250 4.7e-01 2.3e-03
    500 3.3e-02 8.8e-05
    1000 1.7e-04 2.3e-07
    """
    lipschitz = check_correction_lipschitz(correction_lipschitz)
    exceed = negative_bracket_bound(set_priors, target_prior, sizes, alpha=alpha, beta=beta, loss_bound=loss_bound)
    a, b, c, d = magnitudes(set_priors, target_prior)
    scales = _bracket_scales(set_priors, target_prior, sizes)
    below_zero = (
        min(min(a, c) * exceed.positive, _mean_below_zero(alpha / loss_bound, scales[0])),
        min(min(b, d) * exceed.negative, _mean_below_zero(beta / loss_bound, scales[1])),
    )
    factor = (lipschitz + 1) * loss_bound
    return BiasBound(value=factor * (a + b + c + d) * exceed.value, sharp=factor * sum(below_zero))


def deviation_bound(
    set_priors: Sequence[float],
    target_prior: float,
    sizes: Sequence[int],
    *,
    alpha: float,
    beta: float,
    loss_bound: float = 1.0,
    correction_lipschitz: float = 1.0,
    delta: float = 0.05,
) -> DeviationBound:
    """How far the corrected risk is from the true one, with probability at least 1 − δ (Theorem 3, Eq. 9).

    Parameters are described at the top of this module.

    Examples
    --------
    >>> bound = deviation_bound((0.8, 0.2), 0.5, (5000, 5000), alpha=0.05, beta=0.05)
    >>> round(bound.value, 4), bound.bias < 1e-15, bound.confidence
    (0.032, True, 0.95)
    >>> round(bound.sharp, 4)
    0.0226
    """
    bias = bias_bound(
        set_priors,
        target_prior,
        sizes,
        alpha=alpha,
        beta=beta,
        loss_bound=loss_bound,
        correction_lipschitz=correction_lipschitz,
    )
    spread = mcdiarmid_spread(set_priors, target_prior, sizes, loss_bound, correction_lipschitz, 2 / check_delta(delta))
    whole = correction_lipschitz * hoeffding_half_width(
        set_priors, target_prior, sizes, loss_bound=loss_bound, delta=delta
    )
    return DeviationBound(bias.value, spread, 1 - delta, sharp=bias.sharp + whole)


def alternative_deviation_bound(
    set_priors: Sequence[float],
    target_prior: float,
    sizes: Sequence[int],
    *,
    alpha: float,
    beta: float,
    loss_bound: float = 1.0,
    correction_lipschitz: float = 1.0,
    delta: float = 0.05,
) -> DeviationBound:
    """The same without the bias, with probability at least 1 − δ − Δ_g (Theorem 3, Eq. 10).

    Unless a bracket is below zero, which has a probability of at most Δ_g, the corrected risk is the unbiased one.
    Parameters are described at the top of this module.

    Examples
    --------
    >>> bound = alternative_deviation_bound((0.8, 0.2), 0.5, (500, 500), alpha=0.05, beta=0.05)
    >>> round(bound.value, 3), round(bound.confidence, 3)
    (0.101, 0.94)
    """
    exceed = negative_bracket_bound(set_priors, target_prior, sizes, alpha=alpha, beta=beta, loss_bound=loss_bound)
    spread = mcdiarmid_spread(set_priors, target_prior, sizes, loss_bound, correction_lipschitz, 2 / check_delta(delta))
    # Where no bracket is below zero it is the unbiased risk that deviates, whatever L_f.
    whole = hoeffding_half_width(set_priors, target_prior, sizes, loss_bound=loss_bound, delta=delta)
    return DeviationBound(0.0, spread, 1 - delta - exceed.value, sharp=whole)


def hoeffding_half_width(
    set_priors: Sequence[float],
    target_prior: float,
    sizes: Sequence[int],
    *,
    loss_bound: float = 1.0,
    delta: float = 0.05,
) -> float:
    """How far the *unbiased* risk (Eq. 4) is from the true one, with probability at least 1 − δ.

        C_ℓ·√(ln(2/δ)/2·((a + b)²/n + (c + d)²/n′))

    This is the inequality of Theorem 3's proof before its square root is split in two. It assumes nothing about the
    classifier but that the rows did not choose it, holds for every n and n′, and has no bias to add.

    Examples
    --------
    >>> round(hoeffding_half_width((0.8, 0.2), 0.5, (5000, 5000)), 4)
    0.0226
    """
    n, n_prime = check_sizes(sizes)
    a, b, c, d = magnitudes(set_priors, target_prior)
    scale = math.hypot((a + b) / math.sqrt(n), (c + d) / math.sqrt(n_prime))
    return check_loss_bound(loss_bound) * math.sqrt(math.log(2 / check_delta(delta)) / 2) * scale


def mcdiarmid_spread(
    set_priors: Sequence[float],
    target_prior: float,
    sizes: Sequence[int],
    loss_bound: float,
    correction_lipschitz: float,
    failures: float,
) -> float:
    """C_ℓ·L_f·√(ln(failures)/2)·χ: C_δ·χ of Theorem 3 with 2/δ, C′_δ·χ of Theorem 4 with 1/δ.

    Examples
    --------
    >>> round(mcdiarmid_spread((0.8, 0.2), 0.5, (5000, 5000), 1.0, 1.0, failures=2 / 0.05), 4)
    0.032
    """
    n, n_prime = check_sizes(sizes)
    a, b, c, d = magnitudes(set_priors, target_prior)
    chi = (a + b) / math.sqrt(n) + (c + d) / math.sqrt(n_prime)
    constant = check_loss_bound(loss_bound) * check_correction_lipschitz(correction_lipschitz)
    return constant * math.sqrt(math.log(failures) / 2) * chi


def _check_parts(target_prior: float, alpha: float, beta: float, loss_bound: float) -> tuple[float, float, float]:
    pi, loss_bound = check_target_prior(target_prior), check_loss_bound(loss_bound)
    remedy = "it is a lower bound of that class's part of the risk, {} times its mean loss."
    alpha = check_between("alpha", alpha, 0, pi * loss_bound, remedy.format("π"))
    beta = check_between("beta", beta, 0, (1 - pi) * loss_bound, remedy.format("1 − π"))
    return alpha, beta, loss_bound


def _bracket_scales(set_priors: Sequence[float], target_prior: float, sizes: Sequence[int]) -> tuple[float, float]:
    """√(a²/n + c²/n′) and √(b²/n + d²/n′): how far single rows can move each bracket, in units of C_ℓ."""
    n, n_prime = check_sizes(sizes)
    a, b, c, d = magnitudes(set_priors, target_prior)
    root, root_prime = math.sqrt(n), math.sqrt(n_prime)
    return math.hypot(a / root, c / root_prime), math.hypot(b / root, d / root_prime)


def _mean_below_zero(mean: float, scale: float) -> float:
    """∫ exp(−2(mean + t)²/scale²) dt over t > 0."""
    return scale * math.sqrt(math.pi / 8) * math.erfc(math.sqrt(2) * mean / scale)
