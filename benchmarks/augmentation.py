"""Compare the augmentations of uulearn with those of torchvision and kornia on batches of images on a device.

usage: python benchmarks/augmentation.py [--device cuda] [--rows 3000] [--out FILE]

Each augmentation must draw other random numbers for each image. Transforms of torchvision (v2) draw once per call, so
they are called once per image and, as a lower limit that does not augment the images independently, once per batch.
Kornia draws for each image of a batch. Libraries that are not installed are skipped. The results are stored as JSON,
with versions, device and configuration.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import FORMAT, RESULTS, Section, print_table, summarize, write_json
from uulearn.data.augmentation import get_augmentation

NAMES = {"shift": "shift:4", "flip": "flip", "shift+flip": "shift:4+flip", "affine": "affine:0.15", "cutout": "cutout"}
SIZE = 32


def torchvision_transforms() -> dict[str, Callable[[Tensor], Tensor]]:
    """Return the transforms of torchvision, which draw once per call."""
    from torchvision.transforms import v2

    shift, flip = v2.RandomCrop(SIZE, padding=4), v2.RandomHorizontalFlip()
    return {
        "shift": shift,
        "flip": flip,
        "shift+flip": v2.Compose([shift, flip]),
        "affine": v2.RandomAffine(8.6, scale=(0.85, 1.15), shear=8.6, interpolation=v2.InterpolationMode.BILINEAR),
        "cutout": v2.RandomErasing(p=1.0, scale=(0.25, 0.25), ratio=(1.0, 1.0)),
    }


def kornia_transforms() -> dict[str, Callable[[Tensor], Tensor]]:
    """Return the transforms of kornia, which draw once per image."""
    import kornia.augmentation as K

    shift, flip = K.RandomCrop((SIZE, SIZE), padding=4), K.RandomHorizontalFlip()
    return {
        "shift": shift,
        "flip": flip,
        "shift+flip": K.AugmentationSequential(shift, flip),
        "affine": K.RandomAffine(8.6, scale=(0.85, 1.15), shear=8.6, p=1.0),
        "cutout": K.RandomErasing(scale=(0.25, 0.25), ratio=(1.0, 1.0), p=1.0),
    }


def one_by_one(transform: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Apply a transform to each image of a batch."""
    return lambda x: torch.stack([transform(image) for image in x])


def seconds_of(augment: Callable[[Tensor], Tensor], x: Tensor, repeats: int) -> list[float]:
    """Return the seconds of several calls, each including the work on the device, after two warm-up calls."""
    found = []
    for number in range(repeats + 2):
        started = time.perf_counter()
        augment(x)
        if x.is_cuda:
            torch.cuda.synchronize()
        if number >= 2:
            found.append(time.perf_counter() - started)
    return found


def main() -> None:
    """Measure all augmentations of all libraries in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "augmentation.json")
    asked = parser.parse_args()
    x = torch.rand(asked.rows, 3, SIZE, SIZE, device=asked.device)
    libraries: dict[str, dict[str, Callable[[Tensor], Tensor]]] = {
        "uulearn": {key: get_augmentation(name) for key, name in NAMES.items()}
    }
    if importlib.util.find_spec("torchvision"):
        libraries["torchvision, whole batch alike"] = torchvision_transforms()
        each = {key: one_by_one(own) for key, own in torchvision_transforms().items()}
        libraries["torchvision, one by one"] = each
    if importlib.util.find_spec("kornia"):
        libraries["kornia"] = kornia_transforms()
    results: dict[str, Any] = {}
    for name in NAMES:
        seconds = {}
        for library, transforms in libraries.items():
            seconds[library] = seconds_of(transforms[name], x, asked.repeats)
        results[name] = summarize(seconds, ["uulearn"])
        print_table(name, results[name])
    installed = {own: importlib.metadata.version(own) for own in ("torchvision", "kornia") if _installed(own)}
    device = torch.cuda.get_device_name() if x.is_cuda else "cpu"
    section = Section({"rows": asked.rows, "size": SIZE, "device": device, "libraries": installed}, results)
    write_json(asked.out, {"format": FORMAT, **section.as_json()})


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
