"""A batch as six numbers: sums and counts, from which the risk of any union of batches follows.

The correction is a non-linear function of the brackets, so that the mean of corrected risks over parts of a batch (the
workers of a process group, the micro-batches of gradient accumulation) is not the corrected risk of the batch. But the
brackets are made of sums over rows, and sums add up:

======  ===========================================
Σ₀⁺     ℓ(g) over the rows of set 0
Σ₀⁻     ℓ(−g) over the rows of set 0
Σ₁⁺     ℓ(g) over the rows of set 1
Σ₁⁻     ℓ(−g) over the rows of set 1
n, n′   rows of set 0 and of set 1
======  ===========================================

The brackets are a·Σ₀⁺/n − c·Σ₁⁺/n′ and d·Σ₁⁻/n′ − b·Σ₀⁻/n.
"""

from __future__ import annotations

import torch
from torch import Tensor

from uulearn.risk.coefficients import UUCoefficients
from uulearn.risk.corrections import Method
from uulearn.risk.functional import UURiskParts, check_sets, flat_scores, flat_sets, risk_of_terms
from uulearn.risk.losses import MarginLoss

N_SUMS = 6


def batch_sums(scores: Tensor, sets: Tensor, loss: MarginLoss) -> Tensor:
    """The six numbers of a batch, shape (6,), in float64 so that adding many loses nothing; an empty batch has zeros.

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


def risk_of_sums(sums: Tensor, coefficients: UUCoefficients, method: Method) -> UURiskParts:
    """The risk of the rows behind the six numbers; see `uulearn.risk.functional.uu_risk`.

    Examples
    --------
    >>> from uulearn.risk import get_loss, uu_coefficients, uu_risk
    >>> from uulearn.risk.corrections import get_method
    >>> scores, sets = torch.tensor([2.0, -1.0, -2.0, 1.0]), torch.tensor([0, 0, 1, 1])
    >>> halves = [batch_sums(scores[part], sets[part], get_loss("logistic")) for part in ([0, 2], [1, 3])]
    >>> whole = risk_of_sums(sum(halves), uu_coefficients((0.8, 0.2), 0.5), get_method("abs"))
    >>> whole.objective.item(), uu_risk(scores, sets, (0.8, 0.2), 0.5, method="abs").objective.item()
    (0.553428..., 0.553428...)
    """
    a, b, c, d = coefficients
    plus0, minus0, plus1, minus1, n0, n1 = sums.unbind()
    positive = _bracket((a, plus0, n0), (-c, plus1, n1))
    negative = _bracket((d, minus1, n1), (-b, minus0, n0))
    if method.objective != "membership":
        return risk_of_terms(method, positive, negative)
    right, wrong = (plus0, minus1) if a + b > 0 else (plus1, minus0)
    return risk_of_terms(method, positive, negative, (right + wrong) / (n0 + n1).clamp(min=1))


def _bracket(*terms: tuple[float, Tensor, Tensor]) -> Tensor:
    """Σ coefficient·sum/count; 0 without a gradient where a set that counts is missing."""
    used = [term for term in terms if term[0]]  # 0·∞ must not be
    known = torch.stack([count > 0 for _, _, count in used]).all()
    total = torch.stack([coefficient * (value / count.clamp(min=1)) for coefficient, value, count in used]).sum()
    return torch.where(known, total, torch.zeros_like(total))
