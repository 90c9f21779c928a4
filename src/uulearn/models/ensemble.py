"""A module that combines trained models into an ensemble."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Ensemble(nn.Module):
    """Ensemble that averages the scores of several models; scores are divided by a scale to weight all models equally.

    >>> Ensemble([nn.Identity(), nn.Identity()], scales=[1.0, 2.0])(torch.tensor([4.0]))
    tensor([3.])
    """

    scales: Tensor

    def __init__(self, models: Sequence[nn.Module], scales: Sequence[float]) -> None:
        super().__init__()
        if not models or len(models) != len(scales):
            raise ValueError(f"expected one scale per model, got {len(models)} models and {len(scales)} scales.")
        self.models = nn.ModuleList(models)
        self.register_buffer("scales", torch.tensor(list(scales), dtype=torch.float32))
        self.accepts_bfloat16_rows = all(getattr(model, "accepts_bfloat16_rows", False) for model in models)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of shape (n,)."""
        scores = [model(x).reshape(len(x)).float() for model in self.models]
        return (torch.stack(scores) / self.scales[:, None]).mean(0)

    def for_inference(self, dtype: torch.dtype = torch.float32) -> nn.Module:
        """Return a module for scoring that uses the ``for_inference`` method of each model, if it has one."""
        each: list[Any] = list(self.models)
        models = [m.for_inference(dtype) if hasattr(m, "for_inference") else _Cast(m, dtype) for m in each]
        return Ensemble(models, self.scales.tolist()).to(self.scales.device).eval()


class _Cast(nn.Module):
    """Wrapper for a model without ``for_inference``; it converts rows to float32."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            scores: Tensor = self.model(x.float())
        return scores
