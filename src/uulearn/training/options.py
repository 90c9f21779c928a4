"""Everything that shapes a run except the data, the model and the risk."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from uulearn.data.augmentation import AugmentationLike

OptimizerLike = str | Callable[..., torch.optim.Optimizer]
SchedulerLike = Callable[[torch.optim.Optimizer], LRScheduler]

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}
FUSED = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)


@dataclass(frozen=True)
class TrainingOptions:
    """Options of `Trainer`; `uulearn.UUClassifier` documents each, but for ``graph``.

    ``graph`` captures the step as a CUDA graph, so that the device does not wait for Python: for models whose forward
    pass asks nothing of the host, without a scheduler.
    """

    epochs: int = 200
    batch_size: int = 3000
    lr: float = 1e-3
    optimizer: OptimizerLike = "adam"
    optimizer_params: Mapping[str, Any] | None = None
    scheduler: SchedulerLike | None = None
    scheduler_interval: str = "epoch"
    weight_decay: float = 0.0
    l2: float = 0.0
    clip_norm: float | None = None
    ema: float | None = 0.999
    precision: str = "auto"
    compile: bool = False
    graph: bool = False
    device: str | torch.device = "cpu"
    input_scale: float = 1.0
    augment: AugmentationLike | None = None
    seed: int = 0
    keep: str = "last"
    smoothing: int = 5
    patience: int | None = None
    checkpoint_dir: str | Path | None = None
    checkpoint_every: int = 10
    distributed: bool | str = False
    progress: bool = True


def build_optimizer(options: TrainingOptions, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer asked for, by name, class or factory; the fused kernel of torch where there is one."""
    parameters = list(parameters)
    optimizer = options.optimizer
    if isinstance(optimizer, str):
        optimizer = OPTIMIZERS[optimizer]
    arguments = dict(options.optimizer_params or {})
    if isinstance(optimizer, type):
        arguments.setdefault("lr", options.lr)
        if "weight_decay" in inspect.signature(optimizer).parameters:
            # Always, since some optimizers (AdamW) would decay by a default of their own.
            arguments.setdefault("weight_decay", options.weight_decay)
        elif options.weight_decay:
            raise ValueError(f"optimizer {optimizer.__name__} has no weight_decay; set weight_decay=0.")
        if optimizer in FUSED and not {"fused", "foreach", "differentiable"} & arguments.keys():
            arguments["fused"] = all(p.device.type in ("cpu", "cuda") for p in parameters)
        if options.graph and (optimizer is torch.optim.LBFGS or arguments.get("dampening")):
            raise ValueError("graph=True serves optimizers of one pass without dampening; set graph=False.")
        if options.graph and "capturable" in inspect.signature(optimizer).parameters:
            arguments.setdefault("capturable", all(p.device.type == "cuda" for p in parameters))
    elif options.weight_decay:
        raise ValueError(
            f"weight_decay={options.weight_decay:g} cannot reach an optimizer made by a factory; set it in the factory."
        )
    try:
        built = optimizer(parameters, **arguments)
    except TypeError as error:
        name = getattr(optimizer, "__name__", str(optimizer))
        raise ValueError(
            f"optimizer {name} cannot be built with {arguments}: {error}; correct optimizer_params."
        ) from error
    if not isinstance(built, torch.optim.Optimizer):
        raise TypeError(f"the optimizer factory must return a torch optimizer, got {type(built).__name__}.")
    return built


def build_scheduler(options: TrainingOptions, optimizer: torch.optim.Optimizer) -> LRScheduler | None:
    """The scheduler that the factory makes, checked."""
    if options.scheduler is None:
        return None
    if options.graph:
        raise ValueError("graph=True keeps the learning rate it was captured with; train with a scheduler without it.")
    scheduler = options.scheduler(optimizer)
    if not isinstance(scheduler, LRScheduler):
        raise TypeError(f"the scheduler factory must return a torch learning-rate scheduler, got {scheduler!r}.")
    if isinstance(scheduler, ReduceLROnPlateau) and options.scheduler_interval == "batch":
        raise ValueError("ReduceLROnPlateau follows a figure of the epoch; use scheduler_interval='epoch' with it.")
    return scheduler


def kernel_parameters(model: nn.Module) -> list[Tensor]:
    """The weights that Keras-style L2 acts on: what ``model.kernels()`` names, else all products and convolutions."""
    named = getattr(model, "kernels", None)
    if callable(named) and not isinstance(named, nn.Module):
        return list(named())
    products = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)
    return [module.weight for module in model.modules() if isinstance(module, products)]
