"""Pseudo-labels in proportions that the class priors of the sets determine.

A batch contains about θ·n positives among its n rows of a set with class prior θ. The scores of these rows are ranked;
the rows with the highest scores get the label 1 and those with the lowest scores the label 0, in the proportion θ to
1 − θ. Unlike a fixed threshold, the proportions stay correct if the scores are not calibrated.
"""

from collections.abc import Sequence
from numbers import Real

import torch
from torch import Tensor

from uulearn import defaults
from uulearn.risk.coefficients import check_set_priors
from uulearn.risk.functional import flat_scores, flat_sets


def pseudo_labels(
    scores: Tensor, sets: Tensor, set_priors: Sequence[float], fraction: float = defaults.PSEUDO_LABEL_FRACTION
) -> Tensor:
    """Return a label for the most confident rows of a batch: 1, 0, or −1 for rows without a label; shape (n,).

    Of the n rows of a set with class prior θ, the q·θ·n rows with the highest scores get the label 1 and the q·(1 −
    θ)·n rows with the lowest scores the label 0, where q is the ``fraction``. Numbers of rows are rounded. The result
    has no gradient, and computing it does not synchronize a GPU with the host.

    Parameters
    ----------
    scores : tensor of shape (n,) or (n, 1)
        Scores of the rows, which are only ranked. If scores are equal, earlier rows rank higher.
    sets : tensor of shape (n,) or (n, 1)
        The set that each row came from, 0 or 1.
    set_priors : (θ, θ′)
        Class priors of set 0 and set 1, which must differ.
    fraction : float
        Fraction q of the rows that get a label, above 0 and at most 1.

    Examples
    --------
    >>> scores = torch.tensor([4.0, 3.0, 2.0, 1.0, 0.0, 0.0, -1.0, -2.0, -3.0, -4.0])
    >>> sets = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    >>> pseudo_labels(scores, sets, (0.8, 0.2), 1.0)
    tensor([1., 1., 1., 1., 0., 1., 0., 0., 0., 0.])
    >>> labels = pseudo_labels(scores, sets, (0.8, 0.2), 0.6)
    >>> labels
    tensor([ 1.,  1., -1., -1.,  0.,  1., -1., -1.,  0.,  0.])

    The loss of another view of the rows, with its own scores:

    >>> from uulearn import pn_risk
    >>> labeled = labels >= 0
    >>> pn_risk(2 * scores[labeled], labels[labeled], target_prior=0.5).total
    tensor(0.2321)
    """
    if not isinstance(fraction, Real) or isinstance(fraction, bool) or not 0 < float(fraction) <= 1:
        raise ValueError(f"fraction must be a number above 0 and at most 1, got {fraction!r}; 0.8 labels 80% of rows.")
    first, second = check_set_priors(set_priors)
    scores = flat_scores(scores.detach())
    sets, unknown = flat_sets(sets, len(scores))
    in1 = sets == 1
    labels = label_by_rank(scores, in1, torch.where(in1, second, first), float(fraction))
    return labels if unknown is None else torch.where(unknown, torch.nan, labels)


def label_by_rank(scores: Tensor, in_set_1: Tensor, priors: Tensor, fraction: float) -> Tensor:
    """Return pseudo-labels for scores of shape (…, n); ``in_set_1`` and the ``priors`` of the rows' sets have (n,) too.

    The leading dimensions are separate batches, such as the batches of several runs.
    """
    order = scores.argsort(dim=-1, descending=True, stable=True)
    in1 = in_set_1.expand_as(scores).gather(-1, order)
    priors = priors.expand_as(scores).gather(-1, order).float()
    n1 = in1.sum(-1, keepdim=True)
    size = torch.where(in1, n1, scores.shape[-1] - n1)
    rank = torch.where(in1, in1.cumsum(-1), (~in1).cumsum(-1))  # within the set; 1 is the highest score
    labeled = (fraction * size + 0.5).floor()
    positive = (fraction * priors * size + 0.5).floor()
    negative = labeled - positive
    labels = (rank <= positive).float() - ((rank > positive) & (rank <= size - negative)).float()
    return torch.empty_like(labels).scatter_(-1, order, labels)
