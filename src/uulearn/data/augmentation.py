"""Random augmentation of training rows by a named or custom function; each row is augmented independently.

A name may be followed by the strength of the augmentation: ``"shift:2"`` shifts by up to two pixels. Several names are
joined by ``+`` and applied from left to right. Transforms of torchvision draw random numbers once per call, so they are
called for each image.

Random numbers come from torch's generators. Checkpoints store the state of the generators, so runs can be resumed.
"""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from uulearn import defaults

Augmentation = Callable[[Tensor], Tensor]
AugmentationLike = str | Augmentation
StrongView = Callable[[Tensor, Tensor], Tensor]
"""Function of a batch and of the set of each row (0 or 1)."""

MAX_SHIFT = 4
"""Default maximum shift in pixels, the usual value for 32 × 32 images."""
CUTOUT_SIDE = 0.5
"""Default side of the square that `cutout` hides, as a fraction of the shorter side of the image."""
COLOR_STRENGTH = 0.4
"""Default maximum relative change of brightness, contrast and saturation."""
AFFINE_STRENGTH = 0.15
"""Default maximum entry of the random matrix of `affine`; 0.15 includes rotations by up to 8.6 degrees."""


def flip(x: Tensor) -> Tensor:
    """Mirror each image of a batch (n, channels, height, width) left to right with probability 1/2.

    >>> flip(torch.tensor([1.0, 2.0]).expand(50, 1, 1, 2)).unique(dim=0)[:, 0, 0].tolist()
    [[1.0, 2.0], [2.0, 1.0]]
    """
    mirrored = torch.randint(2, (len(x), 1, 1, 1), device=x.device) == 1
    return torch.where(mirrored, x.flip(3), x)


def shift(x: Tensor, pixels: int = MAX_SHIFT) -> Tensor:
    """Shift each image at random by up to ``pixels`` rows and columns in either direction, and pad with zeros.

    >>> len(shift(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).expand(500, 1, 2, 2), pixels=1).unique(dim=0))
    9
    """
    if not isinstance(pixels, Integral) or isinstance(pixels, bool) or pixels < 0:
        raise ValueError(f"pixels must be an integer of at least 0, got {pixels!r}.")
    n, _, height, width = x.shape
    # A view of all crops, (n, channels, top, left, height, width); a single gather selects one crop per image.
    crops = F.pad(x, [int(pixels)] * 4).unfold(2, height, 1).unfold(3, width, 1)
    top, left = torch.randint(2 * int(pixels) + 1, (2, n), device=x.device)
    return crops[torch.arange(n, device=x.device), :, top, left]


def cutout(x: Tensor, side: float = CUTOUT_SIDE) -> Tensor:
    """Set a square of each image to zero; its center is a random pixel, so a part of it may be outside of the image.

    ``side`` is the length of its sides, as a fraction of the shorter side of the image.

    >>> (cutout(torch.ones(100, 1, 8, 8)) == 0).sum((1, 2, 3)).max()
    tensor(16)
    """
    n, _, height, width = x.shape
    length = max(1, round(side * min(height, width)))
    hidden = []
    for size in (height, width):
        start = torch.randint(size, (n, 1), device=x.device) - length // 2
        offset = torch.arange(size, device=x.device) - start
        hidden.append((offset >= 0) & (offset < length))
    return torch.where(hidden[0][:, None, :, None] & hidden[1][:, None, None, :], 0, x)


def color(x: Tensor, strength: float = COLOR_STRENGTH) -> Tensor:
    """Change the brightness, contrast and saturation of each image by random factors from 1 ± ``strength``.

    The saturation of images with a single channel does not change.

    >>> x = color(torch.full((100, 3, 2, 2), 0.5))
    >>> bool(x.min() >= 0.3), bool(x.max() <= 0.7)
    (True, True)
    """
    factors = 1 + strength * (2 * torch.rand((3, len(x), 1, 1, 1), device=x.device) - 1)
    brightness, contrast, saturation = factors.to(x.dtype)
    x = x * brightness
    x = torch.lerp(x.mean((1, 2, 3), keepdim=True), x, contrast)
    return x if x.shape[1] == 1 else torch.lerp(x.mean(1, keepdim=True), x, saturation)


def affine(x: Tensor, strength: float = AFFINE_STRENGTH) -> Tensor:
    """Rotate, shear and stretch each image around its center by a random matrix, and pad with zeros.

    The matrix is the identity plus independent entries from ± ``strength``.

    >>> x = torch.zeros(200, 1, 9, 9)
    >>> x[:, :, 4, 4], x[:, :, 0, 4] = 1.0, 1.0
    >>> out = affine(x, 0.2)
    >>> bool((out[:, 0, 4, 4] == 1).all()), len(out[:, 0, 0].unique(dim=0))
    (True, 200)
    """
    n, _, height, width = x.shape
    matrix = torch.eye(2, device=x.device) + strength * (2 * torch.rand((n, 1, 1, 2, 2), device=x.device) - 1)
    down, across = (
        ((2 * torch.arange(size, device=x.device) + 1) / size - 1).view(shape)  # centers of the pixels, in [-1, 1]
        for size, shape in ((height, (-1, 1, 1)), (width, (-1, 1)))
    )
    # As F.affine_grid, whose many small matrix products are slow on a GPU.
    grid = torch.addcmul(across * matrix[..., 0], down, matrix[..., 1])
    return torch.empty_like(x).copy_(F.grid_sample(x.float(), grid, align_corners=False))  # same type and layout


def swap_cells(x: Tensor, sets: Tensor, probability: float = defaults.SWAP_PROBABILITY) -> Tensor:
    """Replace each cell, with this probability, by the same cell of another random row of the same set.

    Each column keeps its distribution in each set, except for noise. ``x`` has shape (n, …), and ``sets`` contains
    the set of each row, 0 or 1. The only row of a set does not change.

    >>> x = torch.arange(8.0).reshape(4, 2)
    >>> swap_cells(x, torch.tensor([0, 0, 1, 1]), probability=1.0)
    tensor([[2., 3.],
            [0., 1.],
            [6., 7.],
            [4., 5.]])
    """
    cells, n = x.flatten(1), len(x)
    in1 = sets.reshape(-1, 1) == 1
    n1 = in1.sum()
    size, start = torch.where(in1, n1, n - n1), torch.where(in1, n - n1, 0)
    rows = in1[:, 0].long().argsort(stable=True)  # the rows of set 0, and then those of set 1
    own = torch.empty_like(rows).scatter_(0, rows, torch.arange(n, device=x.device))[:, None] - start
    draws = torch.rand(cells.shape, device=x.device)
    # Below the probability, a draw is uniform, so it also chooses the other row.
    other = (draws / probability * (size - 1)).long()
    other = torch.minimum(other + (other >= own), size - 1)
    return torch.where(draws < probability, cells.gather(0, rows[start + other]), cells).reshape(x.shape)


def add_noise(x: Tensor, scale: float = defaults.NOISE_SCALE) -> Tensor:
    """Add Gaussian noise to each cell; its standard deviation is ``scale`` times that of the column in the batch.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 100.0]]).repeat(500, 1)
    >>> (add_noise(x, 0.1) - x).std(0).round().tolist()
    [0.0, 5.0]
    """
    return x + scale * x.std(0, correction=0) * torch.randn_like(x)


AUGMENTATIONS: dict[str, Callable[..., Tensor]] = {
    "flip": flip, "shift": shift, "affine": affine, "color": color, "cutout": cutout,
}  # fmt: skip
STRENGTHS: dict[str, tuple[Callable[[float], bool], str]] = {
    "shift": (lambda value: 1 <= value <= 100 and value.is_integer(), "'shift:2' (1 to 100 pixels)"),
    "affine": (lambda value: 0 < value < 0.5, "'affine:0.2' (below 0.5)"),
    "color": (lambda value: 0 < value < 1, "'color:0.4' (below 1)"),
    "cutout": (lambda value: 0 < value < 1, "'cutout:0.3' (below 1)"),
}
"""Augmentations whose name can be followed by a strength: whether a strength is allowed, and an example."""
STRONG = "strong"
"""Name of the parameter for the strong view of consistency training."""
DRAWS_FROM_PYTHON = ("RandomChoice", "RandomOrder")
"""Transforms of ``torchvision.transforms`` that use Python's module ``random``; those of version 2 use torch."""
ROW_AUGMENTATIONS = ("swap", "noise")
"""Names of augmentations of rows of numbers, which are used only in strong views."""


def describe_names(others: Sequence[str] = ()) -> str:
    """Describe the names of augmentations and of ``others`` for an error message.

    >>> describe_names()[:31]
    "one of 'flip', 'shift', 'affine"
    """
    examples = ", ".join(example for _, example in STRENGTHS.values())
    names = ", ".join(map(repr, (*AUGMENTATIONS, *others)))
    return f"one of {names}, with a strength as in {examples}, or several of them joined by '+'"


def describe_values(others: Sequence[str] = ()) -> str:
    """Describe the names and the other values of the parameter ``augment`` in Python for an error message.

    >>> describe_values().endswith("joined by '+', a transform of torchvision, or a function of a batch")
    True
    """
    return f"{describe_names(others)}, a transform of torchvision, or a function of a batch"


def is_augmentation(name: str, others: Sequence[str] = ()) -> bool:
    """Return whether this is a name in `AUGMENTATIONS` or ``others``, or several of these names joined by ``+``.

    >>> [is_augmentation(name) for name in ("shift:2+flip", "blur", "shift:0.5", "flip:1")]
    [True, False, False, False]
    """
    try:
        return all(part in others or bool(_parse(part)) for part in name.split("+"))
    except ValueError:
        return False


def _parse(part: str) -> Augmentation:
    """Return the augmentation for a name with an optional strength."""
    name, colon, text = part.partition(":")
    augmentation, (is_allowed, _) = AUGMENTATIONS.get(name), STRENGTHS.get(name, (lambda _: False, ""))
    if augmentation is None or (colon and not is_allowed(float(text))):
        raise ValueError(f"{part!r} is not an augmentation.")
    if not colon:
        return augmentation
    return lambda x: augmentation(x, int(float(text)) if name == "shift" else float(text))


def get_augmentation(augment: AugmentationLike) -> Augmentation:
    """Return the augmentation function for a name, or for several names joined by ``+`` (applied left to right).

    A transform of torchvision is applied to each image of the batch; other functions are returned unchanged. Transforms
    that draw random numbers from Python's generator are rejected.

    >>> get_augmentation("shift:2+flip")(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 1, 8, 8])
    """
    if _is_torchvision_transform(augment):
        assert callable(augment)
        if drawing := next(filter(_draws_from_python, _transforms_in(augment)), None):
            raise ValueError(
                f"{type(drawing).__name__} of torchvision.transforms draws random numbers from Python's generator, so "
                "the seed does not determine the result; use the transform of the same name in "
                "torchvision.transforms.v2."
            )
        return functools.partial(_one_by_one, augment)
    if callable(augment):
        return augment
    if not isinstance(augment, str) or not is_augmentation(augment):
        raise ValueError(f"augment must be {describe_values()}, got {augment!r}.")
    chosen = [_parse(part) for part in augment.split("+")]
    return lambda x: functools.reduce(lambda images, augmentation: augmentation(images), chosen, x)


def _is_torchvision_transform(augment: object) -> bool:
    """Return whether this is a transform of torchvision, a subclass of one, or a torch module that contains one."""
    parts = augment.modules() if isinstance(augment, nn.Module) else [augment]
    names = (base.__module__ for part in parts for base in type(part).__mro__)
    return any(name.startswith("torchvision.transforms") for name in names)


def _transforms_in(augment: object) -> Iterator[object]:
    """Yield a transform and all transforms that it contains, such as those of a ``Compose``."""
    yield augment
    inside = [*augment.children()] if isinstance(augment, nn.Module) else []
    listed = getattr(augment, "transforms", None)
    for part in [*inside, *(listed if isinstance(listed, list | tuple) else [])]:
        yield from _transforms_in(part)


def _draws_from_python(transform: object) -> bool:
    bases = type(transform).__mro__
    return any(
        base.__module__ == "torchvision.transforms.transforms" and base.__name__ in DRAWS_FROM_PYTHON for base in bases
    )


def _one_by_one(transform: Augmentation, x: Tensor) -> Tensor:
    try:
        return torch.stack([transform(image) for image in x])
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).rstrip(".")
        raise ValueError(
            f"{_name(transform)} cannot augment single images of shape {tuple(x.shape[1:])}, without labels: {reason}; "
            "remove it from augment."
        ) from error


def build_augmentation(
    augment: AugmentationLike, rows: Tensor, image_shape: Sequence[int] | None = None, parameter: str = "augment"
) -> Augmentation:
    """Return the augmentation that a trainer applies to its batches, after testing it on a few ``rows``.

    If ``image_shape`` is given, each row contains the pixels of an image of this shape. Error messages name the
    ``parameter``.
    """
    if image_shape is not None and (rows.ndim != 2 or rows.shape[1] != math.prod(image_shape)):
        raise ValueError(
            f"image_shape={tuple(image_shape)} expects rows of {math.prod(image_shape)} numbers, got rows of shape "
            f"{tuple(rows.shape[1:])}; correct image_shape, or set image_shape=None if the rows are images."
        )
    takes_any_rows = parameter == STRONG and callable(augment)
    if image_shape is None and rows.ndim != 4 and not takes_any_rows:
        name = repr(augment) if isinstance(augment, str) else _name(augment)
        raise ValueError(
            f"{parameter}={name} expects images, got rows of shape {tuple(rows.shape[1:])}; reshape X to (n, channels, "
            f"height, width), or set image_shape, or set {parameter}=None."
        )
    augmentation = functools.partial(_apply_checked, get_augmentation(augment), image_shape, parameter)
    with torch.random.fork_rng(devices=[rows.device] if rows.device.type == "cuda" else []):
        augmentation(rows)
    return augmentation


def build_strong_view(
    strong: AugmentationLike,
    weak: AugmentationLike | None,
    rows: Tensor,
    image_shape: Sequence[int] | None = None,
    *,
    swap: float = defaults.SWAP_PROBABILITY,
    noise: float = defaults.NOISE_SCALE,
) -> StrongView:
    """Return the strong view of consistency training, a function of a batch and the set of each row.

    ``strong`` is a function of the batch, or names from `AUGMENTATIONS` and `ROW_AUGMENTATIONS` joined by ``+``. "auto"
    applies the ``weak`` augmentation, changes the colors if there are three channels, and hides a part of the image.
    For rows that are not images, "auto" swaps cells. See `build_augmentation` for the other arguments.

    >>> view = build_strong_view("auto", "shift", torch.zeros(2, 48), (3, 4, 4))
    >>> view(torch.ones(5, 48), torch.zeros(5)).shape
    torch.Size([5, 48])
    """
    parts: Sequence[AugmentationLike] = [strong] if callable(strong) else strong.split("+")
    if parts == [defaults.AUTO]:
        shape = rows.shape[1:] if image_shape is None else image_shape
        colored = ["color"] if shape[0] == 3 else []
        parts = [*([] if weak is None else [weak]), *colored, "cutout"] if len(shape) == 3 else ["swap"]
    steps: list[StrongView] = []
    for part in parts:
        if part == "swap":
            steps.append(functools.partial(swap_cells, probability=swap))
        else:
            noisy = functools.partial(add_noise, scale=noise)
            own = noisy if part == "noise" else build_augmentation(part, rows, image_shape, STRONG)
            steps.append(functools.partial(_ignore_sets, own))
    return lambda x, sets: functools.reduce(lambda view, step: step(view, sets), steps, x)


def _ignore_sets(augmentation: Augmentation, x: Tensor, sets: Tensor) -> Tensor:
    return augmentation(x)


def _apply_checked(augmentation: Augmentation, image_shape: Sequence[int] | None, parameter: str, x: Tensor) -> Tensor:
    """Augment a batch without computing gradients; raise an error if its shape, type or device changes."""
    images = x if image_shape is None else x.reshape(-1, *image_shape)
    with torch.no_grad():
        out = augmentation(images)
    expected, found = (
        f"{tuple(t.shape)} of {t.dtype} on {t.device}" if isinstance(t, Tensor) else f"a {type(t).__name__}"
        for t in (images, out)
    )
    if found != expected:
        raise ValueError(
            f"{parameter}={_name(augmentation)} must return a batch like its input, {expected}, but returned {found}; "
            "make it return one image of the same size and type for each image."
        )
    return out if image_shape is None else out.reshape(x.shape)


def _name(augmentation: Augmentation) -> str:
    if isinstance(augmentation, functools.partial):
        augmentation = augmentation.args[0] if augmentation.func is _one_by_one else augmentation.func
    return str(getattr(augmentation, "__qualname__", type(augmentation).__qualname__))
