"""The risk estimators of the paper as pure functions of scores.

Every estimate is a weighted sum over the rows of a batch: a row of set 0 has weight a/n in the positive risk term and
−b/n in the negative one; a row of set 1 has weights −c/n′ and d/n′. `uulearn.risk.multiple_sets` has the weights of
more sets. Sums are computed in float32 or float64.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from uulearn import defaults
from uulearn.risk.coefficients import UUCoefficients, check_priors, check_target_prior, uu_coefficients
from uulearn.risk.corrections import Method, MethodLike, get_method
from uulearn.risk.losses import LossFunction, MarginLoss, get_loss
from uulearn.risk.multiple_sets import (
    SurrogateWeights,
    count_rows,
    multi_set_weights,
    set_index,
    surrogate_loss,
    surrogate_weights,
)


class UURiskParts(NamedTuple):
    """Parts of the risk estimated from two or more unlabeled sets; every field is a scalar tensor.

    ``positive`` and ``negative`` are the signed risk terms that estimate π·R_p⁺ and (1 − π)·R_n⁻; ``unbiased`` is
    their sum (Eq. 4); ``corrected`` is f₁(positive) + f₂(negative) (Eq. 6). Training minimizes
    ``objective``: the corrected risk or, for ``"biased"`` and ``"surrogate"``, a risk of classifying the sets.

    >>> uu_risk(torch.tensor([1.0, -1.0]), torch.tensor([0, 1]), (1.0, 0.0), 0.5).positive
    tensor(0.1345)
    """

    positive: Tensor
    negative: Tensor
    unbiased: Tensor
    corrected: Tensor
    objective: Tensor


class PNRiskParts(NamedTuple):
    """The supervised risk (Eq. 2): π·R̂_p⁺, (1 − π)·R̂_n⁻ and their sum.

    >>> pn_risk(torch.tensor([3.0, 1.0]), torch.tensor([1, 0]), 0.5, loss="zero_one").negative.item()
    0.5
    """

    positive: Tensor
    negative: Tensor
    total: Tensor


class RowWeights(NamedTuple):
    """Weights of the rows in a batch: tensors of shape (n,).

    ``positive`` multiplies ℓ(g) and ``negative`` multiplies ℓ(−g) in the two risk terms. ``membership`` is the signed
    weight of the row if the two sets are treated as classes: the sign is the class, and the magnitude is the weight. It
    is zero for more than two sets. ``surrogate`` is given for the method ``"surrogate"``.
    """

    positive: Tensor
    negative: Tensor
    membership: Tensor
    surrogate: SurrogateWeights | None = None


def row_weights(
    sets: Tensor,
    coefficients: UUCoefficients,
    dtype: torch.dtype = torch.float32,
    counts: Sequence[int] | Tensor | None = None,
) -> RowWeights:
    """Return the weights of all rows of a batch; ``sets`` contains the set of each row (0 or 1), shape (n,).

    If these rows are only a part of a batch, ``counts`` is the number of rows of each set in the whole batch. If the
    batch has no rows of a set that a risk term depends on, all weights of the term are zero.
    """
    a, b, c, d = coefficients
    in0, in1 = (sets == 0).to(dtype), (sets == 1).to(dtype)
    n0, n1 = (in0.sum(), in1.sum()) if counts is None else torch.as_tensor(counts, dtype=dtype, device=in0.device)
    mean0, mean1 = in0 / n0.clamp(min=1), in1 / n1.clamp(min=1)
    has0, has1 = (n0 > 0).to(dtype), (n1 > 0).to(dtype)
    known_positive = (has0 if a else 1.0) * (has1 if c else 1.0)
    known_negative = (has0 if b else 1.0) * (has1 if d else 1.0)
    sign = 1.0 if a + b > 0 else -1.0  # the set with the higher prior is treated as positive
    return RowWeights(
        positive=known_positive * (a * mean0 - c * mean1),
        negative=known_negative * (d * mean1 - b * mean0),
        membership=sign * (in0 - in1) / (n0 + n1).clamp(min=1),
    )


def batch_weights(
    sets: Tensor,
    set_priors: Sequence[float],
    target_prior: float,
    method: Method,
    dtype: torch.dtype = torch.float32,
    counts: Sequence[int] | Tensor | None = None,
) -> RowWeights:
    """Return the weights of all rows of a batch of two or more sets; ``sets`` contains the set of each row.

    If these rows are only a part of a batch, ``counts`` is the number of rows of each set in the whole batch.
    """
    if len(set_priors) == 2:
        weights = row_weights(sets, uu_coefficients(set_priors, target_prior), dtype, counts)
        if method.objective != "surrogate":
            return weights
    n = count_rows(sets, len(set_priors)) if counts is None else torch.as_tensor(counts, device=sets.device).double()
    if len(set_priors) > 2:
        check_method(method, len(set_priors))
        positive, negative = (part.to(dtype) for part in multi_set_weights(sets, set_priors, target_prior, n))
        weights = RowWeights(positive, negative, torch.zeros_like(positive))
    if method.objective == "surrogate":
        return weights._replace(surrogate=surrogate_weights(sets, set_priors, target_prior, n, dtype))
    return weights


def check_method(method: Method, n_sets: int) -> None:
    """Raise a ValueError if a method does not support this number of sets."""
    if method.objective == "membership" and n_sets > 2:
        raise ValueError(
            f"method='biased' treats two sets as classes, but there are {n_sets} sets; use another method, or merge "
            "the sets with uulearn.priors.merge_bags."
        )


def weighted_risk(
    scores: Tensor,
    weights: RowWeights,
    loss: MarginLoss,
    method: Method,
    total: Callable[[Tensor], Tensor] | None = None,
) -> UURiskParts:
    """Return all parts of the risk from scores and row weights, both of shape (n,) in float32 or float64.

    ``total`` is a function that maps the risk terms of this worker to their sums over all workers.
    """
    terms = risk_terms(scores, weights, loss, method)
    return risk_from_terms(method, *(terms if total is None else total(torch.stack(terms)).unbind()))


def risk_terms(scores: Tensor, weights: RowWeights, loss: MarginLoss, method: Method) -> list[Tensor]:
    """Return the two risk terms and, for ``"biased"`` and ``"surrogate"``, the risk of classifying the sets.

    Each term is a sum over rows. Add the terms of several parts of a batch to compute the terms of the whole batch.
    """
    terms = [_weighted_sum(weights.positive, scores, loss), _weighted_sum(weights.negative, -scores, loss)]
    if method.objective == "membership":
        side = torch.sign(weights.membership)
        terms.append(_weighted_sum(weights.membership.abs(), side * scores, loss))
    if method.objective == "surrogate":
        assert weights.surrogate is not None
        terms.append(surrogate_loss(scores, weights.surrogate))
    return terms


def risk_from_terms(method: Method, positive: Tensor, negative: Tensor, of_sets: Tensor | None = None) -> UURiskParts:
    """Return all parts of the risk from the terms of `risk_terms`, summed over the whole batch."""
    unbiased = positive + negative
    if of_sets is not None:
        return UURiskParts(positive, negative, unbiased, unbiased, of_sets)
    f1, f2 = method.corrections
    corrected = f1(positive) + f2(negative)
    return UURiskParts(positive, negative, unbiased, corrected, corrected)


def _weighted_sum(weights: Tensor, margins: Tensor, loss: MarginLoss) -> Tensor:
    """Return Σ w·ℓ(z); a row with weight zero contributes zero even if its loss is infinite."""
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
    """Return the risk of the scores g(x) at class prior π, estimated from two or more unlabeled sets (Eqs. 4 and 6).

    Parameters
    ----------
    scores : tensor of shape (n,) or (n, 1)
        Score g(x) of each row; the rows of the sets may be in any order.
    sets : tensor of shape (n,) or (n, 1)
        The set that each row came from, 0 or 1; for m sets, 0 to m − 1.
    set_priors, target_prior, loss, method, slope
        See `UURisk`.

    Notes
    -----
    Special cases: (θ, θ′) = (1, 0) corresponds to supervised learning, and (1, π) to positive-unlabeled learning, where
    ``method="relu"`` gives the non-negative PU risk. If a risk term requires a set that has no rows in this batch, the
    term is 0 and has a zero gradient; it is never NaN.

    Examples
    --------
    >>> scores, sets = torch.tensor([2.0, -1.0, -2.0, 1.0]), torch.tensor([0, 0, 1, 1])
    >>> parts = uu_risk(scores, sets, (0.75, 0.25), 0.5, loss="zero_one", method="abs")
    >>> parts.positive.item(), parts.negative.item(), parts.unbiased.item()
    (0.25, 0.25, 0.5)
    """
    priors, pi = check_priors(set_priors, number="two or more"), check_target_prior(target_prior)
    return estimate_risk(scores, sets, priors, pi, get_loss(loss), get_method(method, slope))


def estimate_risk(
    scores: Tensor,
    sets: Tensor,
    set_priors: Sequence[float],
    target_prior: float,
    loss: MarginLoss,
    method: Method,
    counts: Tensor | None = None,
    total: Callable[[Tensor], Tensor] | None = None,
) -> UURiskParts:
    """Compute `uu_risk` from checked priors, the loss object and the method object.

    If these rows are only a part of a batch, ``counts`` is the number of rows of each set in the whole batch, and
    ``total`` is as in `weighted_risk`.
    """
    scores = flat_scores(scores)
    weights = read_weights(sets, scores, set_priors, target_prior, method, counts)
    return weighted_risk(scores, weights, loss, method, total)


def read_weights(
    sets: Tensor,
    scores: Tensor,
    set_priors: Sequence[float],
    target_prior: float,
    method: Method,
    counts: Tensor | None = None,
) -> RowWeights:
    """Check the sets, and return `batch_weights` for scores of shape (n,); weights of invalid rows are NaN."""
    sets, unknown = flat_sets(sets, len(scores), len(set_priors))
    weights = batch_weights(sets, set_priors, target_prior, method, scores.dtype, counts)
    if unknown is None:
        return weights
    *parts, surrogate = weights
    first, second, third = (torch.where(unknown, torch.nan, part) for part in parts)
    if surrogate is not None:
        surrogate = surrogate._replace(weight=torch.where(unknown, torch.nan, surrogate.weight))
    return RowWeights(first, second, third, surrogate)


def pn_risk(
    scores: Tensor, labels: Tensor, target_prior: float, *, loss: str | LossFunction = "logistic"
) -> PNRiskParts:
    """Return the supervised risk at class prior π from labeled rows (Eq. 2); a class without rows contributes zero.

    Labels must be 1 and 0, or 1 and −1.

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
    """Return scores with shape (n,) in float32 or float64."""
    if scores.ndim == 2 and scores.shape[1] == 1:
        scores = scores.squeeze(1)
    if scores.ndim != 1 or not scores.is_floating_point():
        raise ValueError(
            f"scores must be floating-point numbers of shape (n,) or (n, 1), one per row, got {scores.dtype} of shape "
            f"{tuple(scores.shape)}; use a model with one output."
        )
    return scores if scores.dtype == torch.float64 else scores.float()


def flat_sets(sets: Tensor, n_rows: int, n_sets: int = 2) -> tuple[Tensor, Tensor | None]:
    """Return set memberships with shape (n,), or raise a ValueError for values other than 0 to m − 1.

    Values cannot be read in a compiled graph or a vmap, and reading them on an accelerator would synchronize the
    device. In these cases, the function also returns a mask of the invalid rows, and the caller sets their weights to
    NaN.
    """
    if sets.ndim == 2 and sets.shape[1] == 1:
        sets = sets.squeeze(1)
    if sets.ndim != 1 or len(sets) != n_rows:
        raise ValueError(f"sets must have one value per score, got shape {tuple(sets.shape)} for {n_rows} scores.")
    if sets.dtype == torch.bool:
        return sets, None
    unknown = sets != set_index(sets, n_sets)
    hidden = torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(sets)
    if hidden or sets.device.type != "cpu":
        return sets, unknown
    if unknown.any():
        numbers = "0 or 1" if n_sets == 2 else f"whole numbers from 0 to {n_sets - 1}"
        raise ValueError(f"sets must be {numbers}, the set that each row came from, got {sets[unknown][0].item():g}.")
    return sets, None
