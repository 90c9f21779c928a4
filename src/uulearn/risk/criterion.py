"""`UURisk`: the corrected risk as a criterion for any PyTorch training loop."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from uulearn import defaults
from uulearn.risk.coefficients import (
    MultiSetCoefficients,
    UUCoefficients,
    check_priors,
    check_target_prior,
    uu_coefficients,
    warn_if_close,
)
from uulearn.risk.corrections import MethodLike, get_method
from uulearn.risk.distributed import sum_over_workers, world_size
from uulearn.risk.functional import (
    RowWeights,
    UURiskParts,
    batch_weights,
    check_method,
    estimate_risk,
    flat_scores,
    flat_sets,
)
from uulearn.risk.losses import LossFunction, get_loss
from uulearn.risk.multiple_sets import count_rows, multi_set_weights


class UURisk(nn.Module):
    """Training objective for a batch of scores from two or more unlabeled sets (Algorithm 1, lines 8 to 10).

    A batch may contain any number of rows of each set, in any order; scores have shape (n,) or (n, 1). The criterion
    has no state and supports autocast, ``torch.compile``, ``torch.func.vmap`` and double backward. If the batch has no
    rows of a set that a risk term depends on, the term and its gradient are zero. With more than two sets, a batch
    needs rows of two sets with different priors (see `multi_set_coefficients`).

    In a process group, the risk terms are computed from the rows of all workers. Every worker must call the criterion,
    even if it has no rows. The mean of the gradients of all workers (DDP, FSDP) is the gradient of the global risk. For
    gradient accumulation, use `accumulate`, because separate calls would correct each part of the batch separately.

    Parameters
    ----------
    set_priors : (θ, θ′), or m > 2 numbers
        Class priors of set 0 and set 1, which must differ; either one may be higher. For more sets, one class prior per
        set; not all of them may be equal.
    target_prior : float
        π, the class prior of the population that the classifier will be used on.
    loss : str or callable
        ``"logistic"``, ``"sigmoid"``, ``"ramp"``, ``"double_hinge"``, ``"squared"``, ``"zero_one"`` (evaluation
        only), or an elementwise, non-negative ℓ(z) of the margin.
    method : str or pair
        ``"unbiased"`` (Eq. 4); ``"abs"``, ``"relu"``, ``"leaky_relu"`` (Eq. 6); a pair (f₁, f₂) of corrections, each a
        name or a function; or ``"biased"``, a baseline that treats all rows of the set with the higher prior as
        positives and all other rows as negatives (two sets only). ``"surrogate"`` maximizes the likelihood of the set
        of each row (`uulearn.risk.multiple_sets`); scores are then log-odds, and ``loss`` only affects the reported
        risk terms.
    slope : float
        Slope λ ≤ 0 of ``"leaky_relu"`` for negative values.
    distributed : bool
        Whether the risk terms include the rows of all workers if there is a process group. Pass False if each worker
        evaluates its rows separately.
    process_group : torch.distributed.ProcessGroup, optional
        The workers that share a batch; None means all workers.

    Examples
    --------
    >>> import torch
    >>> criterion = UURisk(set_priors=(0.8, 0.2), target_prior=0.5, loss="logistic", method="relu")
    >>> scores = torch.zeros(4, requires_grad=True)
    >>> loss = criterion(scores, torch.tensor([0, 0, 1, 1]))
    >>> round(loss.item(), 4)
    0.6931
    >>> loss.backward()
    """

    def __init__(
        self,
        set_priors: Sequence[float],
        target_prior: float,
        loss: str | LossFunction = defaults.LOSS,
        method: MethodLike = defaults.METHOD,
        slope: float = defaults.SLOPE,
        *,
        distributed: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__()
        self.distributed = distributed
        self.process_group = process_group
        self.set_priors = tuple(check_priors(set_priors, number="two or more"))
        self.target_prior = check_target_prior(target_prior)
        self.loss = get_loss(loss)
        self.method = get_method(method, slope)
        check_method(self.method, len(self.set_priors))
        self.slope = float(slope)
        warn_if_close(set_priors, target_prior)

    @property
    def coefficients(self) -> UUCoefficients:
        """The coefficients of two sets; for more sets, they depend on the numbers of rows (see `coefficients_of`)."""
        if len(self.set_priors) > 2:
            raise ValueError(
                f"with {len(self.set_priors)} sets, the coefficients depend on the numbers of rows; call "
                "coefficients_of(sets)."
            )
        return uu_coefficients(self.set_priors, self.target_prior)

    def coefficients_of(self, sets: Tensor) -> MultiSetCoefficients:
        """Return the coefficients of the risk of these rows.

        With more than two sets, sets without rows have the coefficient 0. If all rows have the same class prior, the
        coefficients of a risk term are 0, except for rows of one class, whose risk term is the mean loss.
        """
        n_sets = len(self.set_priors)
        if n_sets == 2:
            return self.coefficients.of_sets
        counts = count_rows(flat_sets(sets, len(sets), n_sets)[0], n_sets)
        each_set = torch.arange(n_sets, device=counts.device)
        weights = multi_set_weights(each_set, self.set_priors, self.target_prior, counts)
        positive, negative = (tuple((counts * own).tolist()) for own in weights)
        return MultiSetCoefficients(positive, negative)

    def forward(self, scores: Tensor, sets: Tensor) -> Tensor:
        """Return the training objective, a scalar."""
        return self.parts(scores, sets).objective

    def parts(self, scores: Tensor, sets: Tensor) -> UURiskParts:
        """Return both signed risk terms, the unbiased risk, the corrected risk and the objective."""
        about = scores, sets, self.set_priors, self.target_prior, self.loss, self.method
        if not self.distributed or world_size(self.process_group) == 1:
            return estimate_risk(*about)
        counts = sum_over_workers(self.count_rows(scores, sets), self.process_group)
        return estimate_risk(*about, counts, lambda terms: sum_over_workers(terms, self.process_group))

    def count_rows(self, scores: Tensor, sets: Tensor) -> Tensor:
        """Return the number of rows of each set as float64, shape (m,)."""
        checked, _ = flat_sets(sets, len(flat_scores(scores)), len(self.set_priors))
        return count_rows(checked, len(self.set_priors))

    def row_weights(self, sets: Tensor, counts: Sequence[int] | Tensor | None = None) -> RowWeights:
        """Return the float32 weights of all rows of a batch; see `uulearn.risk.functional.batch_weights`."""
        return batch_weights(sets, self.set_priors, self.target_prior, self.method, counts=counts)

    def extra_repr(self) -> str:
        """Return the arguments shown by ``repr``."""
        slope = f", slope={self.slope:g}" if "leaky_relu" in self.method.name else ""
        return (
            f"set_priors={self.set_priors}, target_prior={self.target_prior:g}, loss={self.loss.name!r}, "
            f"method={self.method.name!r}{slope}"
        )
