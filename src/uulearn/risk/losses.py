"""Margin losses ℓ(z), with z = y·g(x), as pure elementwise functions of a tensor.

Two families of losses are suitable for training on unlabeled sets:

* ℓ(z) + ℓ(−z) = 1 (`sigmoid`, `ramp`): bounded, so that no single row dominates a risk term;
* ℓ(z) − ℓ(−z) = −z (`logistic`, `double_hinge`, `squared`): the unbiased risk is convex for a linear model.

All losses and their gradients are finite for |z| ≤ 1e4 in float32.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

LossFunction = Callable[[Tensor], Tensor]


def logistic(z: Tensor) -> Tensor:
    """Return ln(1 + exp(−z)), the loss used for training in the paper; its minimizer is the log-odds."""
    # Above 50, softplus(x) equals x in double precision; torch's default threshold of 20 would reduce the precision.
    return F.softplus(-z, threshold=50)


def sigmoid(z: Tensor) -> Tensor:
    """Return 1 / (1 + exp(z))."""
    return torch.sigmoid(-z)


def ramp(z: Tensor) -> Tensor:
    """Return (1 − z)/2 clipped to [0, 1]."""
    return ((1 - z) / 2).clamp(0, 1)


def double_hinge(z: Tensor) -> Tensor:
    """Return max(−z, max(0, (1 − z)/2)), a convex loss with ℓ(z) − ℓ(−z) = −z that is fast to compute."""
    return torch.maximum(-z, ((1 - z) / 2).clamp(min=0))


def squared(z: Tensor) -> Tensor:
    """Return (1 − z)²/4; its minimizer is 2·p − 1, where p is the probability of the positive class."""
    return (1 - z).square() / 4


def squared_probability(z: Tensor) -> Tensor:
    """Convert scores of the squared loss to probabilities: (1 + z)/2 clipped to [0, 1]."""
    return ((1 + z) / 2).clamp(0, 1)


def zero_one(z: Tensor) -> Tensor:
    """Return (1 − sign z)/2, which is ½ at z = 0. This loss has no gradient and is for evaluation only."""
    return (1 - torch.sign(z.detach())) / 2


@dataclass(frozen=True)
class MarginLoss:
    """A margin loss; ``probability`` maps a score to the probability of the positive class.

    The probability is calibrated only at the minimizer of a *proper* loss. For other losses, only the value ½ at score
    0 is correct.

    >>> MarginLoss("hinge", lambda z: (1 - z).clamp(min=0))(torch.tensor([0.0, 2.0]))
    tensor([1., 0.])
    """

    name: str
    function: LossFunction
    trainable: bool = True
    proper: bool = False
    probability: Callable[[Tensor], Tensor] = torch.sigmoid

    def __call__(self, z: Tensor) -> Tensor:
        """Return ℓ(z), elementwise."""
        return self.function(z)


LOSSES: dict[str, MarginLoss] = {
    loss.name: loss
    for loss in (
        MarginLoss("logistic", logistic, proper=True),
        MarginLoss("sigmoid", sigmoid),
        MarginLoss("ramp", ramp),
        MarginLoss("double_hinge", double_hinge),
        MarginLoss("squared", squared, proper=True, probability=squared_probability),
        MarginLoss("zero_one", zero_one, trainable=False),
    )
}


def get_loss(loss: str | LossFunction | MarginLoss) -> MarginLoss:
    """Return the loss with the given name, or wrap an elementwise ℓ(z) after checking it on a few margins.

    >>> get_loss("sigmoid")(torch.tensor([0.0])).item()
    0.5
    """
    if isinstance(loss, MarginLoss):
        return loss
    if isinstance(loss, str):
        if loss not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(map(repr, LOSSES))} or a function ℓ(z), got {loss!r}.")
        return LOSSES[loss]
    if not callable(loss):
        raise TypeError(f"loss must be a name or a function of the margin, got {loss!r}; pass loss='logistic'.")
    name = getattr(loss, "__name__", type(loss).__name__)
    margins = torch.tensor([-2.0, -0.5, 0.0, 0.5, 2.0])
    values = loss(margins)
    if not isinstance(values, Tensor) or values.shape != margins.shape:
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        raise ValueError(
            f"loss {name} must return a tensor of the same shape as the margins, but returned {shape} for shape "
            f"{tuple(margins.shape)}; return one loss per margin, without taking the mean."
        )
    below = (~(values >= 0)).nonzero().flatten()
    if len(below):
        at = int(below[0])
        raise ValueError(
            f"loss {name} must be non-negative, but is {values[at].item():g} at margin {margins[at].item():g}; "
            "the risk corrections require this, so add a constant or use another loss."
        )
    return MarginLoss(name, loss)
