"""Random augmentation of training images by a named or custom function; each image is augmented independently.

Random numbers come from torch's generators. Checkpoints store the state of the generators, so runs can be resumed.
"""

import functools
from collections.abc import Callable
from numbers import Integral

import torch
from torch import Tensor
from torch.nn import functional as F

Augmentation = Callable[[Tensor], Tensor]
AugmentationLike = str | Augmentation

MAX_SHIFT = 4
"""Default maximum shift in pixels, the usual value for 32 × 32 images."""


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


AUGMENTATIONS: dict[str, Augmentation] = {"flip": flip, "shift": shift}


def is_augmentation(name: str) -> bool:
    """Return whether this is a name in `AUGMENTATIONS`, or several names joined by ``+``.

    >>> is_augmentation("shift+flip"), is_augmentation("blur")
    (True, False)
    """
    return all(part in AUGMENTATIONS for part in name.split("+"))


def get_augmentation(augment: AugmentationLike) -> Augmentation:
    """Return the augmentation function for a name, or for several names joined by ``+`` (applied left to right).

    >>> get_augmentation("shift+flip")(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 1, 8, 8])
    """
    if callable(augment):
        return augment
    if not isinstance(augment, str) or not is_augmentation(augment):
        names = ", ".join(map(repr, AUGMENTATIONS))
        raise ValueError(
            f"augment must be one of {names}, several names joined by '+', or a function of a batch, got {augment!r}."
        )
    chosen = [AUGMENTATIONS[name] for name in augment.split("+")]
    return lambda x: functools.reduce(lambda images, augmentation: augmentation(images), chosen, x)


def build_augmentation(augment: AugmentationLike, rows: Tensor) -> Augmentation:
    """Return the augmentation that a trainer applies to its batches, after testing it on a few ``rows``."""
    augmentation = functools.partial(_apply_checked, get_augmentation(augment))
    if rows.ndim != 4:
        name = repr(augment) if isinstance(augment, str) else _name(augment)
        raise ValueError(
            f"augment={name} expects images, got rows of shape {tuple(rows.shape[1:])}; reshape X to (n, channels, "
            "height, width) or set augment=None."
        )
    with torch.random.fork_rng(devices=[rows.device] if rows.device.type == "cuda" else []):
        augmentation(rows)
    return augmentation


def _apply_checked(augmentation: Augmentation, x: Tensor) -> Tensor:
    """Augment a batch without computing gradients; raise an error if its shape, type or device changes."""
    with torch.no_grad():
        out = augmentation(x)
    expected, found = (
        f"{tuple(t.shape)} of {t.dtype} on {t.device}" if isinstance(t, Tensor) else f"a {type(t).__name__}"
        for t in (x, out)
    )
    if found != expected:
        raise ValueError(
            f"augment={_name(augmentation)} must return a batch like its input, {expected}, but returned {found}; make "
            "it return one image of the same size and type for each image."
        )
    return out


def _name(augmentation: Augmentation) -> str:
    return str(getattr(augmentation, "__qualname__", type(augmentation).__qualname__))
