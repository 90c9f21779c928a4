"""Options of a training run: all settings except the data, the model and the risk."""

import contextlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from uulearn import defaults
from uulearn.data.augmentation import AugmentationLike
from uulearn.training.adam import CPUAdam
from uulearn.training.workers import local_device

SMALL_CELLS, SMALL_MODEL = 500_000, 1_000_000  # below these sizes, one thread is faster than several

OptimizerLike = str | Callable[..., torch.optim.Optimizer]
SchedulerLike = Callable[[torch.optim.Optimizer], LRScheduler]

OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@dataclass(frozen=True)
class ConsistencyOptions:
    """Options of consistency training, passed to `uulearn.UUClassifier` as the parameter ``consistency``.

    In each step, the moving average of the weights (the teacher) scores the batch, and its most confident rows get
    `uulearn.pseudo_labels` in the proportions that the class priors determine. The model then learns to predict these
    labels from a strong view of the same rows, in addition to minimizing the risk of the weak view, which is the
    batch after ``TrainingOptions.augment``.

    Parameters
    ----------
    fraction : float
        Fraction of the rows of each set that get a pseudo-label, above 0 and at most 1.
    weight : float
        Weight of the consistency loss, the logistic loss of the pseudo-labels at the target prior.
    ramp : (float, float)
        The weight is 0 up to the first fraction of the epochs and rises linearly to ``weight`` at the second. Training
        does not stop early before the end of the ramp.
    strong : str or callable
        Strong view of the rows. For images, names from `uulearn.data.augmentation.AUGMENTATIONS` joined by ``+``, or a
        function of a batch. For rows of numbers, ``"swap"`` replaces cells by cells of other rows of the same set,
        ``"noise"`` adds Gaussian noise, and ``"swap+noise"`` does both. "auto" is ``"swap"`` for rows of numbers. For
        images, it repeats the weak augmentation with other random numbers, followed by ``"color"`` if there are three
        channels, and by ``"cutout"``.
    swap : float
        Probability that ``"swap"`` replaces a cell.
    noise : float
        Standard deviation of ``"noise"``, in standard deviations of the column.
    compare : bool
        Whether to train the ensemble also without consistency training, which is then used only if it lowers the error,
        estimated without labels, by more than two standard errors. ``consistency="auto"`` is the same as
        ``ConsistencyOptions(compare=True)``.

    Examples
    --------
    >>> options = ConsistencyOptions(weight=2.0, ramp=(0.1, 0.5))
    >>> [options.weight_at(epoch, epochs=10) for epoch in (1, 2, 4, 6, 10)]
    [0.0, 0.0, 1.0, 2.0, 2.0]
    """

    fraction: float = defaults.PSEUDO_LABEL_FRACTION
    weight: float = defaults.CONSISTENCY_WEIGHT
    ramp: Sequence[float] = defaults.CONSISTENCY_RAMP
    strong: AugmentationLike = defaults.AUTO
    swap: float = defaults.SWAP_PROBABILITY
    noise: float = defaults.NOISE_SCALE
    compare: bool = False

    def weight_at(self, epoch: int, epochs: int) -> float:
        """Return the weight of the consistency loss in an epoch, counted from 1."""
        start, end = self.ramp
        done = (epoch - 1) / epochs
        if done >= end:
            return self.weight
        return 0.0 if done <= start else self.weight * (done - start) / (end - start)

    def ramp_end(self, epochs: int) -> int:
        """Return the first epoch with the full weight, or the last epoch if there is none."""
        return next((epoch for epoch in range(1, epochs) if self.weight_at(epoch, epochs) >= self.weight), epochs)


@dataclass(frozen=True)
class TrainingOptions:
    """Less common training options, passed to `uulearn.UUClassifier` as the parameter ``training``.

    Parameters
    ----------
    optimizer : str, class or callable
        ``"adam"``, ``"adamw"``, ``"sgd"``, a torch optimizer class, or a function that creates an optimizer for a list
        of parameters.
    optimizer_params : dict, optional
        Arguments of the optimizer.
    scheduler : callable, optional
        Function that creates a learning-rate scheduler for an optimizer.
    scheduler_interval : str
        When the scheduler makes a step: after every ``"epoch"`` or after every ``"batch"``.
    weight_decay : float
        Weight decay of the optimizer.
    clip_norm : float, optional
        Maximum norm of the gradient.
    ema : float, optional
        Decay per batch of the moving average of the weights, which is used for prediction. If None, no average is
        computed and the current weights are used.
    precision : str
        Type of the matrix products: ``"float32"``, ``"bfloat16"`` or ``"auto"``. "auto" uses bfloat16 if the device
        supports it natively, the model is wide enough to benefit, and rounding the columns loses little information.
    compile : bool
        Whether to compile the model with ``torch.compile``; useful only for long runs of large models.
    input_scale : float
        Factor by which every value of X is multiplied (1/255 for images stored as uint8).
    augment : str or callable, optional
        Random augmentation of training images; validation and prediction use the original images. ``"flip"`` mirrors
        left to right (unsuitable for digits and letters), ``"shift"`` shifts by up to four pixels and pads with zeros,
        ``"affine"`` rotates, shears and stretches, ``"color"`` changes brightness, contrast and saturation,
        ``"cutout"`` hides a square, and ``"shift+flip"`` applies two of them. A number after a colon sets the strength,
        such as ``"shift:2"``. A transform of torchvision is applied to each image. A function maps a scaled batch (n,
        channels, height, width) to a new batch.
    image_shape : (int, int, int), optional
        Channels, height and width of the images, if each row of X contains the pixels of an image as numbers, as for
        ``model="mlp"``. Only augmentations and strong views use it.
    smoothing : int
        Number of epochs over which the validation error is averaged before epochs are compared.
    checkpoint_dir : path, optional
        Folder for checkpoints. Calling `fit` again with the same arguments resumes from the last checkpoint and gives
        the same result as an uninterrupted run.
    checkpoint_every : int
        Number of epochs between two checkpoints.
    distributed : bool or "auto"
        "auto" trains with all processes that torchrun started or that joined a ``torch.distributed`` group. Each
        process computes a part of every batch, and the result is the same as with one process. True raises an error if
        there is only one process. Every process must call `fit` with the same rows and arguments.

    Examples
    --------
    >>> TrainingOptions(ema=None).optimizer
    'adam'
    """

    optimizer: OptimizerLike = "adam"
    optimizer_params: Mapping[str, Any] | None = None
    scheduler: SchedulerLike | None = None
    scheduler_interval: str = "epoch"
    weight_decay: float = 0.0
    clip_norm: float | None = None
    ema: float | None = defaults.EMA
    precision: str = "auto"
    compile: bool = False
    input_scale: float = 1.0
    augment: AugmentationLike | None = None
    image_shape: Sequence[int] | None = None
    smoothing: int = defaults.SMOOTHING
    checkpoint_dir: str | Path | None = None
    checkpoint_every: int = defaults.CHECKPOINT_EVERY
    distributed: bool | str = False


@dataclass(frozen=True)
class RunOptions(TrainingOptions):
    """All options of one `Trainer` run; see `uulearn.UUClassifier` for options that are not in `TrainingOptions`.

    ``graph`` captures the training step as a CUDA graph, so the device does not wait for Python. The forward pass must
    not synchronize with the host, and schedulers are not supported. ``fit_seed`` is the seed from which ``seed`` is
    derived, if any; checkpoints store it, so a fit without a fixed seed can be resumed. ``consistency`` enables
    consistency training, which needs a moving average of the weights.
    """

    epochs: int = defaults.EPOCHS
    batch_size: int = defaults.BATCH_SIZE
    lr: float = defaults.LEARNING_RATE
    l2: float = 0.0
    early_stopping: bool = False
    patience: int | None = None
    seed: int = 0
    fit_seed: int | None = None
    device: str | torch.device = "cpu"
    graph: bool = False
    progress: bool = True
    consistency: ConsistencyOptions | None = None


def build_optimizer(options: RunOptions, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer | CPUAdam:
    """Return the optimizer for a name, class or factory, with torch's fused kernel if available."""
    parameters = list(parameters)
    optimizer = OPTIMIZERS[options.optimizer] if isinstance(options.optimizer, str) else options.optimizer
    arguments = dict(options.optimizer_params or {})
    on_cpu = all(p.device.type == "cpu" and p.dtype == torch.float32 for p in parameters)
    if options.optimizer == "adam" and on_cpu and not arguments and options.scheduler is None:
        return CPUAdam(parameters, lr=options.lr, weight_decay=options.weight_decay)
    if isinstance(optimizer, type):
        arguments.setdefault("lr", options.lr)
        if "weight_decay" in inspect.signature(optimizer).parameters:
            # Always pass it, because some optimizers (AdamW) have a non-zero default.
            arguments.setdefault("weight_decay", options.weight_decay)
        elif options.weight_decay:
            raise ValueError(f"optimizer {optimizer.__name__} has no parameter weight_decay; set weight_decay=0.")
        if optimizer in OPTIMIZERS.values() and not {"fused", "foreach", "differentiable"} & arguments.keys():
            arguments["fused"] = all(p.device.type in ("cpu", "cuda") for p in parameters)
        if options.graph and (optimizer is torch.optim.LBFGS or arguments.get("dampening")):
            raise ValueError("graph=True supports neither LBFGS nor dampening; set graph=False.")
        if options.graph and "capturable" in inspect.signature(optimizer).parameters:
            arguments.setdefault("capturable", all(p.device.type == "cuda" for p in parameters))
    elif options.weight_decay:
        raise ValueError(
            f"weight_decay={options.weight_decay:g} does not affect an optimizer created by a function; set it there."
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


def build_scheduler(options: RunOptions, optimizer: torch.optim.Optimizer | CPUAdam) -> LRScheduler | None:
    """Return the scheduler that the factory creates, or None if there is no factory."""
    if options.scheduler is None:
        return None
    if options.graph:
        raise ValueError("graph=True fixes the learning rate, so it does not support a scheduler; set graph=False.")
    assert isinstance(optimizer, torch.optim.Optimizer)  # see build_optimizer
    scheduler = options.scheduler(optimizer)
    if not isinstance(scheduler, LRScheduler):
        raise TypeError(f"the scheduler factory must return a torch learning-rate scheduler, got {scheduler!r}.")
    if isinstance(scheduler, ReduceLROnPlateau) and options.scheduler_interval == "batch":
        raise ValueError("ReduceLROnPlateau needs a metric that is computed per epoch; set scheduler_interval='epoch'.")
    return scheduler


def resolve_device(device: str) -> str:
    """Return the device of this process; "auto" is the first CUDA device, or the CPU if there is none."""
    if device == "auto":
        return local_device("cuda" if torch.cuda.is_available() else "cpu")
    if torch.device(device).type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={device!r} requires a CUDA device, but torch found none; use device='auto'.")
    return local_device(device)


def kernel_parameters(model: nn.Module) -> list[Tensor]:
    """Return the weights that are L2-regularized: all linear and convolutional layers except ``model.without_l2``."""
    excluded = [model.get_submodule(name) for name in getattr(model, "without_l2", ())]
    products = (nn.Linear, nn.Bilinear, nn.modules.conv._ConvNd)
    layers = [layer for layer in model.modules() if isinstance(layer, products)]
    return [layer.weight for layer in layers if not any(layer is other for other in excluded)]


def few_threads(
    n_rows: int, row_shape: tuple[int, ...], model: nn.Module | None = None
) -> contextlib.AbstractContextManager[None]:
    """Use one thread if the table and the model are small; the result then does not depend on the number of cores."""
    small = torch.get_num_threads() > 1 and is_small(n_rows, row_shape, model)
    return one_thread() if small else contextlib.nullcontext()


def is_small(n_rows: int, row_shape: tuple[int, ...], model: nn.Module | None = None) -> bool:
    """Return whether the table and the model are so small that one thread is faster than several."""
    if len(row_shape) != 1 or n_rows * row_shape[0] >= SMALL_CELLS:
        return False
    return model is None or sum(weight.numel() for weight in model.parameters()) < SMALL_MODEL


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread for small computations, which threads that wait for each other make slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
