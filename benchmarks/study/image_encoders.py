"""Encoders of images that are trained without labels in minutes on one CPU core, for `embeddings`.

Both encoders compute K features per patch of 6 × 6 pixels and average them over the four quadrants of the image, so an
image has 4·K features. The contrast of each patch is normalized, and the patches are whitened.

* ``kmeans``: the "triangle" activations of K centroids, which k-means finds in patches of the unlabeled training images
  (Coates, Ng and Lee, AISTATS 2011). A feature is positive if its centroid is closer than the mean distance.
* ``random``: the positive parts of K random projections of a patch. Only the whitening is learned from the images.

    python benchmarks/study/image_encoders.py CACHE [--data-dir DIR]

computes the features of all images in advance; `features` computes those that are missing in the folder CACHE.
"""

from __future__ import annotations

import argparse
import functools
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from torch import Tensor

from uulearn.datasets import load_images
from uulearn.storage import write_atomically

PATCH = 6
PATCHES = 100_000
"""Number of patches to which the whitening and the centroids are fitted."""
BLOCK = 4
"""Number of images that are encoded at a time, to stay in the cache of the processor."""
KINDS = ("kmeans", "random")

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class PatchEncoder:
    """Fitted encoder: a patch p has the whitened patch (p − mean) @ whitening, which is compared with all filters."""

    kind: str
    mean: Tensor
    whitening: Tensor
    filters: Tensor

    @property
    def n_features(self) -> int:
        """Number of features of an image."""
        return 4 * len(self.filters)

    @torch.inference_mode()
    def __call__(self, images: Bytes) -> NDArray[np.float16]:
        """Return the features of images of shape (n, channels, height, width)."""
        out = np.empty((len(images), self.n_features), dtype=np.float16)
        for start in range(0, len(images), BLOCK):
            patches, side = _patches(images[start : start + BLOCK])
            found = self._activations(_normalized(patches)).view(-1, side, side, len(self.filters))
            half = side // 2
            parts = [
                found[:, rows, columns].mean((1, 2))
                for rows in (slice(half), slice(half, None))
                for columns in (slice(half), slice(half, None))
            ]
            out[start : start + BLOCK] = torch.cat(parts, 1).numpy()
        return out

    def _activations(self, patches: Tensor) -> Tensor:
        white = (patches - self.mean) @ self.whitening
        if self.kind == "random":
            return (white @ self.filters.T).relu_()
        squares = torch.addmm(self.filters.square().sum(1), white, self.filters.T, alpha=-2)
        distances = squares.add_(white.square().sum(1, keepdim=True)).clamp_min_(0).sqrt_()
        return (distances.mean(1, keepdim=True) - distances).relu_()


def _patches(images: Bytes) -> tuple[Tensor, int]:
    """Return all patches of images as rows, and the number of patches per side."""
    pixels = torch.from_numpy(images).float()
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels
    found = pixels.unfold(2, PATCH, 1).unfold(3, PATCH, 1)  # (n, channels, side, side, PATCH, PATCH)
    side = found.shape[2]
    return found.permute(0, 2, 3, 1, 4, 5).reshape(-1, pixels.shape[1] * PATCH**2), side


def _normalized(patches: Tensor) -> Tensor:
    """Return patches with mean 0 and about the same contrast; 10 is added to the variance of the pixels (0 to 255)."""
    centered = patches - patches.mean(1, keepdim=True)
    return centered.div_((centered.square().mean(1, keepdim=True) + 10).sqrt_())


def fit_encoder(images: Bytes, kind: str, k: int, seed: int = 0, patches: int = PATCHES) -> PatchEncoder:
    """Fit an encoder to unlabeled images."""
    rng = np.random.default_rng(seed)
    own = rng.permutation(len(images))[: max(1, patches // 50)]
    found = _patches(images[np.sort(own)])[0]
    found = found[torch.from_numpy(rng.permutation(len(found)))]
    found = _normalized(found[found.amax(1) > found.amin(1)][:patches])  # a constant patch contains no structure
    mean = found.mean(0)
    values, vectors = torch.linalg.eigh((found - mean).T @ (found - mean) / len(found))
    whitening = vectors / (values.clamp_min(0) + 0.1).sqrt() @ vectors.T
    if kind == "random":
        filters = torch.from_numpy(rng.standard_normal((k, len(mean))).astype(np.float32))
        return PatchEncoder(kind, mean, whitening, filters / filters.norm(dim=1, keepdim=True))
    white = ((found - mean) @ whitening).numpy()
    clusters = MiniBatchKMeans(k, batch_size=4096, max_iter=20, n_init=1, random_state=seed).fit(white)
    return PatchEncoder(kind, mean, whitening, torch.from_numpy(clusters.cluster_centers_.astype(np.float32)))


def features(
    cache: Path, dataset: str, kind: str, k: int, data_dir: Path | None = None
) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Return the features of the training and of the test images, which are stored in the folder ``cache``."""
    paths = [cache / f"{dataset}-{kind}-{k}-{part}.npy" for part in ("train", "test")]
    if not all(path.exists() for path in paths):
        cache.mkdir(parents=True, exist_ok=True)
        images = load_images(dataset, data_dir=data_dir, download=False)
        encoder = fit_encoder(images.train_images, kind, k)
        for path, part in zip(paths, (images.train_images, images.test_images), strict=True):
            write_atomically(path, functools.partial(_save, rows=encoder(part)))
    train, test = (np.load(path, mmap_mode="r") for path in paths)
    return train, test


def _save(path: Path, rows: NDArray[np.float16]) -> None:
    with path.open("wb") as file:
        np.save(file, rows)


def main() -> None:
    """Compute the features of all images that `embeddings` needs."""
    from embeddings import ENCODERS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--data-dir", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for dataset, kind, k in ENCODERS:
        started = time.perf_counter()
        train, _ = features(asked.cache, dataset, kind, k, asked.data_dir)
        print(f"{dataset} {kind} {k}: {train.shape[1]:,} features, {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
