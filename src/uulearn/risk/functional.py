"""The risk estimators of the paper as pure functions of scores.

Every estimate is a weighted sum over the rows of a batch: a row of set 0 has weight a/n in the positive risk term and
−b/n in the negative one; a row of set 1 has weights −c/n′ and d/n′. Sums are computed in float32 or float64.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from uulearn import defaults
from uulearn.risk.coefficients import UUCoefficients, check_target_prior, uu_coefficients
from uulearn.risk.corrections import Method, MethodLike, get_method
from uulearn.risk.losses import LossFunction, MarginLoss, get_loss


class UURiskParts(NamedTuple):
    """Parts of the risk estimated from two unlabeled sets; every field is a scalar tensor.

    ``positive`` and ``negative`` are the signed risk terms that estimate π·R_p⁺ and (1 − π)·R_n⁻; ``unbiased`` is
    their sum (Eq. 4); ``corrected`` is f₁(positive) + f₂(negative) (Eq. 6). Training minimizes
    ``objective``: the corrected risk or, for ``"biased"``, the risk of classifying set membership.

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
    """Weights of the rows in a batch: three tensors of shape (n,).

    ``positive`` multiplies ℓ(g) and ``negative`` multiplies ℓ(−g) in the two risk terms. ``membership`` is the signed
    weight of the row if the sets are treated as classes: the sign is the class, and the magnitude is the weight.
    """

    positive: Tensor
    negative: Tensor
    membership: Tensor


def row_weights(
    sets: Tensor, coefficients: UUCoefficients, dtype: torch.dtype = torch.float32, counts: Sequence[int] | None = None
) -> RowWeights:
    """Return the weights of all rows of a batch; ``sets`` contains the set of each row (0 or 1), shape (n,).

    If these rows are only a part of a batch, ``counts`` is the number of rows of each set in the whole batch. If the
    batch has no rows of a set that a risk term depends on, all weights of the term are zero.
    """
    a, b, c, d = coefficients
    in0, in1 = (sets == 0).to(dtype), (sets == 1).to(dtype)
    n0, n1 = (in0.sum(), in1.sum()) if counts is None else torch.tensor(counts, dtype=dtype, device=in0.device)
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
    terms = [_weighted_sum(weights.positive, scores, loss), _weighted_sum(weights.negative, -scores, loss)]
    if method.objective == "membership":
        side = torch.sign(weights.membership)
        terms.append(_weighted_sum(weights.membership.abs(), side * scores, loss))
    if total is not None:
        terms = list(total(torch.stack(terms)).unbind())
    return risk_from_terms(method, *terms)


def risk_from_terms(
    method: Method, positive: Tensor, negative: Tensor, membership: Tensor | None = None
) -> UURiskParts:
    """Return all parts of the risk from its two terms and, for ``"biased"``, the risk of classifying set membership."""
    unbiased = positive + negative
    if membership is not None:
        return UURiskParts(positive, negative, unbiased, unbiased, membership)
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
    """Return the risk of the scores g(x) at class prior π, estimated from two unlabeled sets (Eqs. 4 and 6).

    Parameters
    ----------
    scores : tensor of shape (n,) or (n, 1)
        Score g(x) of each row; the rows of the two sets may be in any order.
    sets : tensor of shape (n,) or (n, 1)
        The set that each row came from, 0 or 1.
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
    coefficients = uu_coefficients(set_priors, target_prior)
    return estimate_risk(scores, sets, coefficients, get_loss(loss), get_method(method, slope))


def estimate_risk(
    scores: Tensor, sets: Tensor, coefficients: UUCoefficients, loss: MarginLoss, method: Method
) -> UURiskParts:
    """Compute `uu_risk` from the coefficients, the loss object and the method object."""
    scores = flat_scores(scores)
    sets, unknown = flat_sets(sets, len(scores))
    weights = row_weights(sets, coefficients, scores.dtype)
    if unknown is not None:
        weights = RowWeights(*(torch.where(unknown, torch.nan, part) for part in weights))
    return weighted_risk(scores, weights, loss, method)


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


def flat_sets(sets: Tensor, n_rows: int) -> tuple[Tensor, Tensor | None]:
    """Return set memberships with shape (n,), or raise a ValueError for values other than 0 and 1.

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
    unknown = (sets != 0) & (sets != 1)
    hidden = torch.compiler.is_compiling() or torch._C._functorch.is_functorch_wrapped_tensor(sets)
    if hidden or sets.device.type != "cpu":
        return sets, unknown
    if unknown.any():
        raise ValueError(f"sets must be 0 or 1, the set that each row came from, got {sets[unknown][0].item():g}.")
    return sets, None


def batch_sums(scores: Tensor, sets: Tensor, loss: MarginLoss) -> Tensor:
    """Return six float64 sums over a batch: of ℓ(g) and ℓ(−g) for set 0, the same for set 1, and the counts n and n′.

    Add the sums of several batches to compute the risk of all their rows. The mean of the corrected risks of the
    batches would be wrong, because the correction is not linear.
    """
    scores = flat_scores(scores)
    sets, unknown = flat_sets(sets, len(scores))
    in0, in1 = (sets == 0).to(scores.dtype), (sets == 1).to(scores.dtype)
    if unknown is not None:
        in0 = torch.where(unknown, torch.nan, in0)
    sums = [
        (inside * loss(torch.where(inside == 0, 0, sign * scores))).double().sum()
        for inside in (in0, in1)
        for sign in (1, -1)
    ]
    return torch.stack([*sums, in0.double().sum(), in1.double().sum()])


def risk_from_sums(sums: Tensor, coefficients: UUCoefficients, method: Method) -> UURiskParts:
    """Return the risk computed from the six sums of `batch_sums`; it equals `uu_risk` up to rounding."""
    a, b, c, d = coefficients
    plus0, minus0, plus1, minus1, n0, n1 = sums.unbind()
    positive = _risk_term((a, plus0, n0), (-c, plus1, n1))
    negative = _risk_term((d, minus1, n1), (-b, minus0, n0))
    if method.objective != "membership":
        return risk_from_terms(method, positive, negative)
    higher, lower = (plus0, minus1) if a + b > 0 else (plus1, minus0)  # set with the higher prior first
    return risk_from_terms(method, positive, negative, (higher + lower) / (n0 + n1).clamp(min=1))


def _risk_term(*terms: tuple[float, Tensor, Tensor]) -> Tensor:
    """Return Σ coefficient·sum/count, or 0 with a zero gradient if a set with a non-zero coefficient has no rows."""
    used = [term for term in terms if term[0]]  # 0·∞ would be NaN
    known = torch.stack([count > 0 for _, _, count in used]).all()
    total = torch.stack([coefficient * (value / count.clamp(min=1)) for coefficient, value, count in used]).sum()
    return torch.where(known, total, torch.zeros_like(total))
