"""Six sums that summarize a batch, so that the risk of a union of batches can be computed from the sums of its parts.

The correction is a non-linear function of the risk terms. The mean of corrected risks over parts of a batch (the
workers of a process group, the micro-batches of gradient accumulation) is therefore not the corrected risk of the
batch. The terms are computed from sums over rows, which can be added:

======  ===========================================
Σ₀⁺     ℓ(g) over the rows of set 0
Σ₀⁻     ℓ(−g) over the rows of set 0
Σ₁⁺     ℓ(g) over the rows of set 1
Σ₁⁻     ℓ(−g) over the rows of set 1
n, n′   numbers of rows of set 0 and of set 1
======  ===========================================

The risk terms are a·Σ₀⁺/n − c·Σ₁⁺/n′ and d·Σ₁⁻/n′ − b·Σ₀⁻/n.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uulearn.risk.coefficients import UUCoefficients
from uulearn.risk.corrections import Method
from uulearn.risk.functional import UURiskParts, check_sets, flat_scores, flat_sets, risk_from_terms
from uulearn.risk.losses import MarginLoss


def batch_sums(scores: Tensor, sets: Tensor, loss: MarginLoss) -> Tensor:
    """Return the six sums of a batch, shape (6,); float64, so that adding many keeps precision; zeros without rows.

    Examples
    --------
    >>> from uulearn.risk import get_loss
    >>> batch_sums(torch.tensor([2.0, -1.0, -2.0]), torch.tensor([0, 0, 1]), get_loss("zero_one"))
    tensor([1., 1., 1., 0., 2., 1.], dtype=torch.float64)
    """
    scores = flat_scores(scores)
    sets = flat_sets(sets, len(scores))
    unknown = check_sets(sets)
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
    """Return the risk of the rows that the six sums summarize; see `uulearn.risk.functional.uu_risk`.

    Examples
    --------
    >>> from uulearn.risk import get_loss, uu_coefficients, uu_risk
    >>> from uulearn.risk.corrections import get_method
    >>> scores, sets = torch.tensor([2.0, -1.0, -2.0, 1.0]), torch.tensor([0, 0, 1, 1])
    >>> halves = [batch_sums(scores[part], sets[part], get_loss("logistic")) for part in ([0, 2], [1, 3])]
    >>> whole = risk_from_sums(sum(halves), uu_coefficients((0.8, 0.2), 0.5), get_method("abs"))
    >>> whole.objective.item(), uu_risk(scores, sets, (0.8, 0.2), 0.5, method="abs").objective.item()
    (0.553428..., 0.553428...)
    """
    a, b, c, d = coefficients
    plus0, minus0, plus1, minus1, n0, n1 = sums.unbind()
    positive = _risk_term((a, plus0, n0), (-c, plus1, n1))
    negative = _risk_term((d, minus1, n1), (-b, minus0, n0))
    if method.objective != "membership":
        return risk_from_terms(method, positive, negative)
    higher, lower = (plus0, minus1) if a + b > 0 else (plus1, minus0)  # losses of the sets with higher and lower prior
    return risk_from_terms(method, positive, negative, (higher + lower) / (n0 + n1).clamp(min=1))


def _risk_term(*terms: tuple[float, Tensor, Tensor]) -> Tensor:
    """Return Σ coefficient·sum/count; 0 with zero gradient if a set with a non-zero coefficient has no rows."""
    used = [term for term in terms if term[0]]  # 0·∞ would be NaN
    known = torch.stack([count > 0 for _, _, count in used]).all()
    total = torch.stack([coefficient * (value / count.clamp(min=1)) for coefficient, value, count in used]).sum()
    return torch.where(known, total, torch.zeros_like(total))
