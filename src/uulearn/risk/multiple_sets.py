"""Row weights of the risk of more than two sets, and the likelihood of the set of each row.

The coefficients a_j and b_j of `uulearn.risk.coefficients.multi_set_coefficients` are computed from the numbers of rows
of each set in the batch. A row of set j has weight a_j/n_j in the positive risk term and b_j/n_j in the negative one.
The terms are unbiased for every composition of the batch, so a batch does not need rows of every set.

Surrogate set classification (Lu, Lei, Niu, Sato and Sugiyama, ICML 2021) does not estimate the risk. If the score g(x)
is the log-odds of the positive class at class prior π, a row x of a batch with fractions ρ_j of the sets and pooled
class prior π̄ = Σ ρ_j·θ_j belongs to set j with probability

    ρ_j·(θ_j/π·eᵍ + (1 − θ_j)/(1 − π)) / (π̄/π·eᵍ + (1 − π̄)/(1 − π)).

Training maximizes the likelihood of the sets of all rows. It is minimized by the log-odds, for any number of sets.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from uulearn.risk.coefficients import EQUAL_PRIORS

# Argument above which softplus(x) is x: e⁻⁴⁰ is smaller than the precision of float64.
SOFTPLUS_THRESHOLD = 40


class SurrogateWeights(NamedTuple):
    """Terms of the log-likelihood of the set of each row, shape (n,), and of the whole batch, scalars."""

    positive: Tensor  # ln(ρ_j·θ_j/π) of the row's set
    negative: Tensor  # ln(ρ_j·(1 − θ_j)/(1 − π))
    pooled_positive: Tensor  # ln(π̄/π)
    pooled_negative: Tensor  # ln((1 − π̄)/(1 − π))
    weight: Tensor  # 1/N, shape (n,)


def count_rows(sets: Tensor, n_sets: int) -> Tensor:
    """Return the number of rows of each set as float64, shape (m,); values that are not a set number are not counted.

    >>> count_rows(torch.tensor([0, 2, 2]), 3)
    tensor([1., 0., 2.], dtype=torch.float64)
    """
    index = set_index(sets, n_sets)
    # `scatter_add` needs one value per set and per row, and `bincount` would wait for the GPU.
    return torch.zeros(n_sets, dtype=torch.float64, device=sets.device).scatter_add(0, index, (sets == index).double())


def set_index(sets: Tensor, n_sets: int) -> Tensor:
    """Return set numbers that can be used as indices; a value that is not a set number is different in the result.

    >>> set_index(torch.tensor([0.0, 2.0, 7.0]), 3)
    tensor([0, 2, 2])
    """
    return sets.long().clamp(0, n_sets - 1)


def multi_set_weights(
    sets: Tensor, set_priors: Sequence[float], target_prior: float, counts: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the weights of each row in the positive and in the negative risk term, in float64; shape (n,) each.

    ``counts`` is the number of rows of each set in the batch, shape (m,), in float64. If all rows of the batch have the
    same class prior (up to `EQUAL_PRIORS`), the weights of a term are zero, except for rows of one class, whose risk
    term is the mean loss.
    """
    theta = torch.tensor(set_priors, dtype=torch.float64, device=sets.device)
    rows, used = counts.sum().clamp(min=1), counts > 0
    mean = (counts * theta).sum() / rows
    centered = theta - mean
    lowest, highest = torch.where(used, theta, 1).min(), torch.where(used, theta, 0).max()
    varies = highest - lowest >= EQUAL_PRIORS
    all_positive, all_negative = 1 - lowest < EQUAL_PRIORS, highest < EQUAL_PRIORS
    variance = (counts * centered.square()).sum() / rows
    slope = torch.where(varies, centered / torch.where(varies, variance, 1), 0)
    positive = torch.where(varies | all_positive, target_prior / rows * (1 + (1 - mean) * slope), 0)
    negative = torch.where(varies | all_negative, (1 - target_prior) / rows * (1 - mean * slope), 0)
    index = set_index(sets, len(theta))
    return positive[index], negative[index]


def surrogate_weights(
    sets: Tensor, set_priors: Sequence[float], target_prior: float, counts: Tensor, dtype: torch.dtype
) -> SurrogateWeights:
    """Return the terms of the log-likelihood of the set of each row; ``counts`` is as in `multi_set_weights`."""
    theta = torch.tensor(set_priors, dtype=torch.float64, device=sets.device)
    rows = counts.sum().clamp(min=1)
    fractions = counts / rows
    pooled, index = (fractions * theta).sum(), set_index(sets, len(theta))
    return SurrogateWeights(
        (fractions * theta / target_prior).log().to(dtype)[index],
        (fractions * (1 - theta) / (1 - target_prior)).log().to(dtype)[index],
        (pooled / target_prior).log().to(dtype),
        ((1 - pooled) / (1 - target_prior)).log().to(dtype),
        (1 / rows).to(dtype).expand(len(index)),
    )


def surrogate_loss(scores: Tensor, weights: SurrogateWeights) -> Tensor:
    """Return the mean negative log-likelihood of the sets, given log-odds at class prior π; a scalar.

    >>> sets, counts = torch.tensor([0, 1]), torch.tensor([1.0, 1.0], dtype=torch.float64)
    >>> weights = surrogate_weights(sets, (1.0, 0.0), 0.5, counts, torch.float32)
    >>> surrogate_loss(torch.tensor([2.0, -2.0]), weights).item()  # with pure sets, the logistic loss
    0.126928...
    """
    positive, negative, pooled_positive, pooled_negative, weight = weights
    own = _log_add_exp(scores + positive, negative)
    pooled = _log_add_exp(scores + pooled_positive, pooled_negative)
    return (weight * (pooled - own)).sum()


def _log_add_exp(x: Tensor, y: Tensor) -> Tensor:
    """Return ln(eˣ + eʸ); x and y may be −∞, and y has no gradient.

    The second derivative of `torch.logaddexp` is NaN if the difference is infinite or large.
    """
    finite = y > -torch.inf
    return torch.where(
        finite,
        torch.where(finite, y, 0) + softplus(torch.where(finite, x - y, 0), threshold=SOFTPLUS_THRESHOLD),
        x,
    )
