"""Bounds on the estimation error of a trained classifier: Theorem 4 and, for fully connected networks, Corollary 5.

The bounds compare ĝ, an exact minimizer of the corrected risk over a function class 𝒢 that is closed under negation,
with g*, the best classifier in 𝒢. They hold for every distribution, so they are far larger than typical errors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from uulearn.risk.coefficients import check_sizes, check_target_prior
from uulearn.risk.corrections import DEFAULT_SLOPE
from uulearn.theory.constants import check_number, loss_constants, magnitudes
from uulearn.theory.constants import correction_lipschitz as lipschitz_of
from uulearn.theory.deviation import bias_bound, mcdiarmid_spread
from uulearn.theory.network import NetworkNorms


@dataclass(frozen=True)
class EstimationErrorBound:
    """Upper bound on R(ĝ) − R(g*): complexity + bias + spread, with probability at least ``confidence``.

    >>> EstimationErrorBound(complexity=0.5, bias=0.25, spread=0.125, confidence=0.95).value
    0.875
    """

    complexity: float  # 8·L_f·L_ℓ·((a + b)·ℜ_n + (c + d)·ℜ_n′)
    bias: float  # 2(L_f + 1)(a + b + c + d)·C_ℓ·Δ
    spread: float  # 2C′_δ·χ, with C′_δ = C_ℓ·L_f·√(ln(1/δ)/2)
    confidence: float

    @property
    def value(self) -> float:
        """The value of the bound, which is vacuous if it exceeds C_ℓ."""
        return self.complexity + self.bias + self.spread


def estimation_error_bound(
    set_priors: Sequence[float],
    target_prior: float,
    sizes: Sequence[int],
    *,
    rademacher: Sequence[float],
    alpha: float,
    beta: float,
    loss_bound: float,
    loss_lipschitz: float,
    correction_lipschitz: float = 1.0,
    delta: float = 0.05,
) -> EstimationErrorBound:
    """Bound the estimation error of the minimizer of the corrected risk (Theorem 4, Eq. 11).

    The description of ``uulearn.theory`` explains the parameters that are not listed here.

    Parameters
    ----------
    rademacher : (ℜ_n, ℜ_n′)
        Rademacher complexities of the function class for n rows of set 0 and for n′ rows of set 1. For linear models
        with ‖w‖ ≤ C_w and rows with ‖x‖ ≤ C_x, they are at most C_x·C_w/√n and C_x·C_w/√n′.
    loss_bound : float
        C_ℓ, the largest value of the loss; see `loss_constants`.
    loss_lipschitz : float
        L_ℓ, the Lipschitz constant of the loss; see `loss_constants`.
    correction_lipschitz : float
        L_f, the Lipschitz constant of the correction; see `correction_lipschitz`.

    Examples
    --------
    >>> n = 1_000_000
    >>> bound = estimation_error_bound(
    ...     (0.9, 0.1), 0.5, (n, n), rademacher=(n**-0.5, n**-0.5),
    ...     alpha=0.05, beta=0.05, loss_bound=1.0, loss_lipschitz=0.25,
    ... )
    >>> round(bound.complexity, 4), round(bound.spread, 4), bound.bias < 1e-9
    (0.0025, 0.0031, True)
    """
    delta = check_number("delta", delta)
    loss_lipschitz = check_number("loss_lipschitz", loss_lipschitz)
    complexities = [check_number("rademacher", value) for value in rademacher]
    if len(complexities) != 2:
        raise ValueError(f"rademacher must be two numbers, (ℜ_n, ℜ_n′), got {rademacher!r}; pass one per set.")
    a, b, c, d = magnitudes(set_priors, target_prior)
    known = {"alpha": alpha, "beta": beta, "loss_bound": loss_bound, "correction_lipschitz": correction_lipschitz}
    bias = bias_bound(set_priors, target_prior, sizes, **known)
    spread = mcdiarmid_spread(set_priors, target_prior, sizes, loss_bound, correction_lipschitz, 1 / delta)
    complexity = (a + b) * complexities[0] + (c + d) * complexities[1]
    scale = 8 * correction_lipschitz * loss_lipschitz
    return EstimationErrorBound(scale * complexity, 2 * bias.value, 2 * spread, 1 - delta)


def network_error_bound(
    norms: NetworkNorms,
    set_priors: Sequence[float],
    target_prior: float,
    sizes: Sequence[int],
    *,
    loss: str = "logistic",
    method: str = "leaky_relu",
    slope: float = DEFAULT_SLOPE,
    alpha: float | None = None,
    beta: float | None = None,
    delta: float = 0.05,
) -> EstimationErrorBound:
    """Bound the estimation error of fully connected networks with the given norms (Corollary 5).

    The description of ``uulearn.theory`` explains the parameters that are not listed here.

    Parameters
    ----------
    norms : NetworkNorms
        Result of `network_norms` for a trained network, or norms that were chosen before training.
    loss : str
        The training loss. C_ℓ and L_ℓ are computed for scores |z| ≤ C_g.
    method : str
        The correction method.
    slope : float
        The slope λ of the correction.
    alpha : float, optional
        Same as in `estimation_error_bound`. Default: the smallest loss for |z| ≤ C_g, times π.
    beta : float, optional
        Same as in `estimation_error_bound`. Default: the smallest loss for |z| ≤ C_g, times 1 − π.

    Examples
    --------
    >>> norms = NetworkNorms(frobenius=(1.0, 1.0), input_bound=1.0)
    >>> sizes = (10**6, 10**6)
    >>> bound = network_error_bound(norms, (0.9, 0.1), 0.5, sizes, loss="sigmoid", method="relu")
    >>> round(bound.value, 4)
    0.0089
    """
    n, n_prime = check_sizes(sizes)
    pi = check_target_prior(target_prior)
    constants = loss_constants(loss, norms.score_bound)
    return estimation_error_bound(
        set_priors,
        target_prior,
        sizes,
        rademacher=(norms.complexity / math.sqrt(n), norms.complexity / math.sqrt(n_prime)),
        alpha=pi * constants.least if alpha is None else alpha,
        beta=(1 - pi) * constants.least if beta is None else beta,
        loss_bound=constants.bound,
        loss_lipschitz=constants.lipschitz,
        correction_lipschitz=lipschitz_of(method, slope),
        delta=delta,
    )
