"""Images changed at random while a model is trained, each by a draw of its own.

=====================  ==========================================================================
`flip`                 left and right exchanged, or not
`shift`                moved by a few pixels up or down and left or right, zeros moving in
`AUGMENTATIONS`        these by name; ``"shift+flip"`` is one after the other
`get_augmentation`     the function that a name stands for
`build_augmentation`   the same for a trainer: tried on a few rows, then watched
=====================  ==========================================================================

All draws are from torch's generator of the images' device, which a trainer seeds and a checkpoint stores, so that a
run can be repeated and continued.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from numbers import Integral

import torch
from torch import Tensor
from torch.nn import functional as F

Augmentation = Callable[[Tensor], Tensor]
AugmentationLike = str | Augmentation

PIXELS = 4
"""How far images are moved by default: customary for images of 32 × 32."""


def flip(x: Tensor) -> Tensor:
    """Mirror each image, left to right, with probability 1/2.

    Parameters
    ----------
    x : tensor of shape (n, channels, height, width)

    Returns
    -------
    tensor of the same shape, type and memory format

    Examples
    --------
    Fifty copies of an image, and the two that come out:

    >>> flip(torch.tensor([1.0, 2.0, 3.0]).expand(50, 1, 1, 3)).unique(dim=0)[:, 0, 0]
    tensor([[1., 2., 3.],
            [3., 2., 1.]])
    """
    mirrored = torch.randint(2, (len(x), 1, 1, 1), device=x.device) == 1
    return torch.where(mirrored, x.flip(3), x)


def shift(x: Tensor, pixels: int = PIXELS) -> Tensor:
    """Move each image by −``pixels`` to ``pixels`` rows and as many columns, all equally likely; zeros move in.

    The usual cut-out from an image with a border of zeros: no value is interpolated.

    Parameters
    ----------
    x : tensor of shape (n, channels, height, width)
    pixels : int
        The furthest move in each direction, at least 0.

    Returns
    -------
    tensor of the same shape, type and memory format

    Examples
    --------
    Five hundred copies of an image, and the first and the last of the nine that come out:

    >>> moved = shift(torch.tensor([[1.0, 2.0], [3.0, 4.0]]).expand(500, 1, 2, 2), pixels=1).unique(dim=0)[:, 0]
    >>> len(moved), moved[0], moved[-1]
    (9, tensor([[0., 0.],
                [0., 1.]]), tensor([[4., 0.],
                                    [0., 0.]]))
    """
    if not isinstance(pixels, Integral) or isinstance(pixels, bool) or pixels < 0:
        raise ValueError(f"pixels must be a whole number of at least 0, got {pixels!r}.")
    n, _, height, width = x.shape
    # Every place of the image in its border is a view (n, channels, top, left, height, width): one gather takes n.
    places = F.pad(x, [int(pixels)] * 4).unfold(2, height, 1).unfold(3, width, 1)
    top, left = torch.randint(2 * int(pixels) + 1, (2, n), device=x.device)
    return places[torch.arange(n, device=x.device), :, top, left]


AUGMENTATIONS: dict[str, Augmentation] = {"flip": flip, "shift": shift}


def is_augmentation(name: str) -> bool:
    """Is this a name of `AUGMENTATIONS`, or several joined by ``+``?

    Examples
    --------
    >>> [is_augmentation(name) for name in ("flip", "shift+flip", "shift+", "rotate")]
    [True, True, False, False]
    """
    return all(part in AUGMENTATIONS for part in name.split("+"))


def get_augmentation(augment: AugmentationLike) -> Augmentation:
    """The function that is meant by a name, by several joined by ``+`` (applied from left to right), or by itself.

    Examples
    --------
    >>> get_augmentation("shift+flip")(torch.ones(10, 3, 8, 8)).shape
    torch.Size([10, 3, 8, 8])
    >>> get_augmentation("rotate")
    Traceback (most recent call last):
        ...
    ValueError: augment must be one of 'flip', 'shift', several joined by '+' or a function ..., got 'rotate'.
    """
    if callable(augment):
        return augment
    if not isinstance(augment, str) or not is_augmentation(augment):
        names = ", ".join(map(repr, AUGMENTATIONS))
        raise ValueError(
            f"augment must be one of {names}, several joined by '+' or a function from batch to batch, got {augment!r}."
        )
    return functools.partial(_one_after_another, [AUGMENTATIONS[name] for name in augment.split("+")])


def build_augmentation(augment: AugmentationLike | None, rows: Tensor) -> Augmentation | None:
    """What a trainer applies to its batches, tried on a few rows before any work; None where nothing is asked for.

    Parameters
    ----------
    augment : str, callable or None
        As for `get_augmentation`.
    rows : tensor of shape (n, …)
        A few rows as the model would get them.

    Examples
    --------
    >>> build_augmentation("flip", torch.zeros(2, 784))
    Traceback (most recent call last):
        ...
    ValueError: augment='flip' takes images, got rows of shape (784,); reshape X to (n, channels, height, width) or ...
    >>> build_augmentation(lambda x: x[..., 1:], torch.zeros(2, 1, 8, 8))
    Traceback (most recent call last):
        ...
    ValueError: augment=<lambda> must give a batch like the one it gets, (2, 1, 8, 8) of torch.float32 on cpu, ...
    """
    if augment is None:
        return None
    augmentation = functools.partial(_watched, get_augmentation(augment))
    if rows.ndim != 4:
        name = repr(augment) if isinstance(augment, str) else _name(augment)
        raise ValueError(
            f"augment={name} takes images, got rows of shape {tuple(rows.shape[1:])}; reshape X to (n, channels, "
            "height, width) or set augment=None."
        )
    with torch.random.fork_rng(devices=[rows.device] if rows.device.type == "cuda" else []):
        augmentation(rows)
    return augmentation


def _one_after_another(augmentations: list[Augmentation], x: Tensor) -> Tensor:
    for augmentation in augmentations:
        x = augmentation(x)
    return x


def _watched(augmentation: Augmentation, x: Tensor) -> Tensor:
    """The batch augmented, without a gradient; a batch of another kind would be trained on wrongly, or not at all."""
    expected = _kind(x)
    with torch.no_grad():
        out = augmentation(x)
    found = _kind(out) if isinstance(out, Tensor) else f"a {type(out).__name__}"
    if found != expected:
        raise ValueError(
            f"augment={_name(augmentation)} must give a batch like the one it gets, {expected}, but gave {found}; make "
            "it return one image of the same size and type for each."
        )
    return out


def _kind(x: Tensor) -> str:
    return f"{tuple(x.shape)} of {x.dtype} on {x.device}"


def _name(augmentation: Augmentation) -> str:
    return str(getattr(augmentation, "__qualname__", type(augmentation).__qualname__))
