"""An ensemble of trained models as one module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class Ensemble(nn.Module):
    """The mean of the scores of several models, each divided by its scale.

    Parameters
    ----------
    members : sequence of nn.Module
        Each maps rows to scores of shape (n,) or (n, 1).
    scales : sequence of float
        Divisor of each model's scores, so that all models have the same weight.

    Examples
    --------
    >>> members = [nn.Linear(2, 1), nn.Linear(2, 1)]
    >>> Ensemble(members, [1.0, 2.0])(torch.zeros(5, 2)).shape
    torch.Size([5])
    """

    scales: Tensor

    def __init__(self, members: Sequence[nn.Module], scales: Sequence[float]) -> None:
        super().__init__()
        if not members or len(members) != len(scales):
            raise ValueError(f"an ensemble needs one scale a member, got {len(members)} members, {len(scales)} scales.")
        self.members = nn.ModuleList(members)
        self.register_buffer("scales", torch.tensor(list(scales), dtype=torch.float32))
        self.accepts_bfloat16_rows = all(getattr(member, "accepts_bfloat16_rows", False) for member in members)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of shape (n,)."""
        scores = [member(x).reshape(len(x)).float() for member in self.members]
        return (torch.stack(scores) / self.scales[:, None]).mean(0)

    def for_inference(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """A module for scoring that uses the models' own ``for_inference`` if they have one."""
        return Ensemble([_folded(m, dtype) for m in self.members], self.scales.tolist()).to(self.scales.device).eval()


def _folded(member: nn.Module, dtype: torch.dtype) -> nn.Module:
    fold: Callable[[torch.dtype], nn.Module] | None = getattr(member, "for_inference", None)
    return _Cast(member, dtype) if fold is None else fold(dtype)


class _Cast(nn.Module):
    """Wraps a model without ``for_inference``: converts rows from the type of the other models to float32."""

    def __init__(self, member: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.member, self.dtype = member, dtype

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            scores: Tensor = self.member(x.float())
        return scores
