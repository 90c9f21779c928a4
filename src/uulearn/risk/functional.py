"""The risk estimators of the paper as pure functions of scores.

Every estimate is a weighted sum over the rows of a batch: row i of set 0 carries a/n in the positive bracket and −b/n
in the negative one, row j of set 1 carries −c/n′ and d/n′. Sums run in float32 or wider whatever the precision of
the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from uulearn import defaults
from uulearn.risk.coefficients import UUCoefficients, check_target_prior, uu_coefficients
from uulearn.risk.corrections import Method, MethodLike, get_method
from uulearn.risk.losses import LossFunction, MarginLoss, get_loss


class UURiskParts(NamedTuple):
    """The risk from two unlabeled sets, taken apart; every field is a scalar tensor.

    ``positive`` and ``negative`` are the signed brackets that estimate π·R_p⁺ and (1 − π)·R_n⁻; ``unbiased`` is
    their sum (Eq. 4); ``corrected`` is f₁(positive) + f₂(negative) (Eq. 6). ``objective`` is what the method
    minimises: the corrected risk, except for ``"biased"``, which minimises the risk of telling the sets apart.
    """

    positive: Tensor
    negative: Tensor
    unbiased: Tensor
    corrected: Tensor
    objective: Tensor


class PNRiskParts(NamedTuple):
    """The supervised risk (Eq. 2): π·R̂_p⁺, (1 − π)·R̂_n⁻ and their sum."""

    positive: Tensor
    negative: Tensor
    total: Tensor


class RowWeights(NamedTuple):
    """What each row of a batch contributes; three tensors of shape (n,).

    ``positive`` multiplies ℓ(g) and ``negative`` multiplies ℓ(−g) in the two brackets. ``membership`` is the signed
    weight of the row when the sets are taken for classes: its sign is the side, its magnitude the weight.
    """

    positive: Tensor
    negative: Tensor
    membership: Tensor


def row_weights(
    sets: Tensor,
    coefficients: UUCoefficients,
    dtype: torch.dtype = torch.float32,
    counts: tuple[int, int] | None = None,
) -> RowWeights:
    """Weights of every row of a batch with the given set memberships (0 or 1), shape (n,).

    ``counts`` are the rows of each set in the whole batch, where these are a part of it. A bracket that lacks a set it
    needs cannot be estimated from this batch: its weights are all zero, so it and its gradient vanish. A set whose
    coefficient is zero is not needed.
    """
    a, b, c, d = coefficients
    in0, in1 = (sets == 0).to(dtype), (sets == 1).to(dtype)
    n0, n1 = (in0.sum(), in1.sum()) if counts is None else torch.tensor(counts, dtype=dtype, device=in0.device)
    mean0, mean1 = in0 / n0.clamp(min=1), in1 / n1.clamp(min=1)
    has0, has1 = (n0 > 0).to(dtype), (n1 > 0).to(dtype)
    known_positive = (has0 if a else 1.0) * (has1 if c else 1.0)
    known_negative = (has0 if b else 1.0) * (has1 if d else 1.0)
    richer = 1.0 if a + b > 0 else -1.0
    return RowWeights(
        positive=known_positive * (a * mean0 - c * mean1),
        negative=known_negative * (d * mean1 - b * mean0),
        membership=richer * (in0 - in1) / (n0 + n1).clamp(min=1),
    )


def weighted_risk(
    scores: Tensor,
    weights: RowWeights,
    loss: MarginLoss,
    method: Method,
    total: Callable[[Tensor], Tensor] | None = None,
) -> UURiskParts:
    """All parts of the risk from scores and row weights, both of shape (n,) and in float32 or wider.

    ``total`` adds up what several workers have: from this worker's share of the brackets to the whole of them.
    """
    terms = [_weighted_sum(weights.positive, scores, loss), _weighted_sum(weights.negative, -scores, loss)]
    if method.objective == "membership":
        side = torch.sign(weights.membership)
        terms.append(_weighted_sum(weights.membership.abs(), side * scores, loss))
    if total is not None:
        terms = list(total(torch.stack(terms)).unbind())
    return risk_of_terms(method, *terms)


def risk_of_terms(method: Method, positive: Tensor, negative: Tensor, membership: Tensor | None = None) -> UURiskParts:
    """All parts of the risk from its two brackets, and the loss of telling the sets apart where that is minimised."""
    unbiased = positive + negative
    if membership is not None:
        return UURiskParts(positive, negative, unbiased, unbiased, membership)
    f1, f2 = method.corrections
    corrected = f1(positive) + f2(negative)
    return UURiskParts(positive, negative, unbiased, corrected, corrected)


def _weighted_sum(weights: Tensor, margins: Tensor, loss: MarginLoss) -> Tensor:
    """Σ w·ℓ(z), where rows of weight zero count nothing even if their loss is infinite."""
    return (weights * loss(torch.where(weights == 0, 0, margins))).sum()


def uu_risk(
    scores: Tensor,
    sets: Tensor,
    set_priors: Sequence[float],
    target_prior: float,
    *,
    loss: str | LossFunction = defaults.LOSS,
    method: MethodLike = defaults.METHOD,
    slope: float = defaults.SLOPE,
) -> UURiskParts:
    """Risk of the scores g(x) at class prior π, estimated from two unlabeled sets (Eqs. 4 and 6).

    Parameters
    ----------
    scores : tensor of shape (n,) or (n, 1)
        g(x) of each row; rows of both sets in any order.
    sets : tensor of shape (n,) or (n, 1)
        The set that each row came from, 0 or 1.
    set_priors, target_prior
        (θ, θ′) and π.
    loss, method, slope
        See `UURisk`.

    Notes
    -----
    * (θ, θ′) = (1, 0) is supervised learning: `pn_risk` with set 0 as positives.
    * (θ, θ′) = (1, π) is positive-unlabeled learning: ``unbiased`` is the unbiased PU risk and, since the positive
      bracket is never below zero, ``method="relu"`` is the non-negative PU risk.
    * Swapping the two sets together with their priors changes nothing.
    * A bracket that lacks a set it needs in this batch is 0 with zero gradient, never a NaN.

    Examples
    --------
    >>> scores, sets = torch.tensor([2.0, -1.0, -2.0, 1.0]), torch.tensor([0, 0, 1, 1])
    >>> parts = uu_risk(scores, sets, (0.75, 0.25), 0.5, loss="zero_one", method="abs")
    >>> parts.positive.item(), parts.negative.item(), parts.unbiased.item()
    (0.25, 0.25, 0.5)
    """
    return estimate(scores, sets, uu_coefficients(set_priors, target_prior), get_loss(loss), get_method(method, slope))


def estimate(
    scores: Tensor, sets: Tensor, coefficients: UUCoefficients, loss: MarginLoss, method: Method
) -> UURiskParts:
    """`uu_risk` with its arguments already resolved."""
    scores = flat_scores(scores)
    sets = flat_sets(sets, len(scores))
    weights = row_weights(sets, coefficients, scores.dtype)
    unknown = check_sets(sets)
    if unknown is not None:
        weights = RowWeights(*(torch.where(unknown, torch.nan, part) for part in weights))
    return weighted_risk(scores, weights, loss, method)


def pn_risk(
    scores: Tensor, labels: Tensor, target_prior: float, *, loss: str | LossFunction = "logistic"
) -> PNRiskParts:
    """Supervised risk at class prior π from labelled rows (Eq. 2); labels are 1 and 0, or 1 and −1.

    A class that is absent contributes zero, never a NaN.

    Examples
    --------
    >>> pn_risk(torch.tensor([3.0, -1.0]), torch.tensor([1, 0]), 0.5, loss="zero_one").total.item()
    0.0
    """
    pi = check_target_prior(target_prior)
    margin_loss = get_loss(loss)
    scores = flat_scores(scores)
    if labels.numel() != len(scores):
        raise ValueError(f"labels must have one value per score, got {labels.numel()} for {len(scores)} scores.")
    found = set(torch.unique(labels).tolist())
    if not (found <= {0, 1} or found <= {-1, 1}):
        raise ValueError(f"labels must be 1 and 0, or 1 and -1, got {sorted(found)[:5]}.")
    is_positive = (labels.reshape(-1) == 1).to(scores.dtype)
    is_negative = 1 - is_positive
    positive = pi * _weighted_sum(is_positive, scores, margin_loss) / is_positive.sum().clamp(min=1)
    negative = (1 - pi) * _weighted_sum(is_negative, -scores, margin_loss) / is_negative.sum().clamp(min=1)
    return PNRiskParts(positive, negative, positive + negative)


def flat_scores(scores: Tensor) -> Tensor:
    """Scores as shape (n,) in float32 or wider."""
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores.squeeze(1)
    if scores.ndim != 1 or not scores.is_floating_point():
        raise ValueError(
            f"scores must be floating-point numbers of shape (n,) or (n, 1), one per row, got {scores.dtype} of shape "
            f"{tuple(scores.shape)}; a model for uulearn ends in one output."
        )
    return scores if scores.dtype == torch.float64 else scores.float()


def flat_sets(sets: Tensor, n_rows: int) -> Tensor:
    """Set memberships as shape (n,)."""
    if sets.ndim == 2 and sets.shape[1] == 1:
        sets = sets.squeeze(1)
    if sets.ndim != 1 or len(sets) != n_rows:
        raise ValueError(f"sets must have one value per score, got shape {tuple(sets.shape)} for {n_rows} scores.")
    return sets


def check_sets(sets: Tensor) -> Tensor | None:
    """Refuse memberships other than 0 and 1.

    Inside a compiled graph or a vmap values cannot be read, and on an accelerator a look would stall the queue: there
    the rows of unknown sets are returned, to be made NaN, so that the mistake is loud all the same.
    """
    if sets.dtype == torch.bool:
        return None
    unknown = (sets != 0) & (sets != 1)
    hidden = torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(sets)
    if hidden or sets.device.type != "cpu":
        return unknown
    if unknown.any():
        raise ValueError(f"sets must be 0 or 1, the set that each row came from, got {sets[unknown][0].item():g}.")
    return None
