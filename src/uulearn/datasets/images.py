"""Load the four image datasets of the paper's experiments and their binary tasks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uulearn.datasets.catalog import SOURCES, DatasetSource
from uulearn.datasets.files import find_files
from uulearn.datasets.formats import Bytes, check_records, read_idx, read_records

IMAGE_DATASETS = tuple(SOURCES)


@dataclass(frozen=True, eq=False)
class ImageDataset:
    """Images and class numbers of a dataset, in their original order.

    Images have dtype uint8 and shape (n, 28, 28), or (n, 3, 32, 32) for CIFAR-10 (red, green and blue channels).

    >>> images, labels = np.zeros((2, 28, 28), np.uint8), np.array([0, 1], np.uint8)
    >>> ImageDataset("mine", images, labels, images, labels, classes=("cat", "dog"))
    ImageDataset(name='mine', classes=('cat', 'dog'))
    """

    name: str
    train_images: Bytes = field(repr=False)
    train_labels: Bytes = field(repr=False)
    test_images: Bytes = field(repr=False)
    test_labels: Bytes = field(repr=False)
    classes: tuple[str, ...]  # names of the classes; labels are positions in this tuple


@dataclass(frozen=True, eq=False)
class BinaryTask:
    """Training and test rows with labels 1 (positive) and 0 (negative).

    >>> images, labels = np.zeros((4, 2, 2), np.uint8), np.array([1, 0, 0, 0])
    >>> task = BinaryTask("small", images, labels, images, labels, positive_classes=(3,))
    >>> task.prior, task.row_shape, task.flat().row_shape
    (0.25, (2, 2), (4,))
    """

    name: str
    X_train: Bytes = field(repr=False)
    y_train: NDArray[np.int64] = field(repr=False)
    X_test: Bytes = field(repr=False)
    y_test: NDArray[np.int64] = field(repr=False)
    positive_classes: tuple[int, ...]  # numbers of the original classes that are positive

    @property
    def prior(self) -> float:
        """Class prior of the test data (π in the paper)."""
        return float(self.y_test.mean())

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one row of ``X_train`` and ``X_test``."""
        return tuple(self.X_train.shape[1:])

    def flat(self) -> BinaryTask:
        """Return the task with each row flattened to shape (d,), without copying the data."""
        train, test = (X.reshape(len(X), -1) for X in (self.X_train, self.X_test))
        return replace(self, X_train=train, X_test=test)


def load_images(name: str, *, data_dir: str | os.PathLike[str] | None = None, download: bool = True) -> ImageDataset:
    """Load MNIST, Fashion-MNIST, Kuzushiji-MNIST or CIFAR-10.

    In a data folder, the files are in ``mnist/``, ``fashion-mnist/`` or ``kmnist/`` under their original names
    (``train-images-idx3-ubyte`` and so on, with or without ``.gz``), or in ``cifar-10-batches-bin/`` for CIFAR-10
    (``data_batch_1.bin`` to ``data_batch_5.bin`` and ``test_batch.bin``). Pickled files are never read. If the header,
    length or SHA-256 of a file is wrong, a DatasetFileError is raised.

    Parameters
    ----------
    name : str
        One of `IMAGE_DATASETS`: ``"mnist"``, ``"fashion_mnist"``, ``"kmnist"``, ``"cifar10"``.
    data_dir : path or None
        Data folder that is searched and in which downloads are saved. By default, the folder set by the environment
        variable UULEARN_DATA and the user cache directory are searched, and downloads are saved in the cache.
    download : bool
        Whether to download missing files, which requires ``pip install 'uulearn[data]'``. If False, missing files raise
        a DatasetNotFoundError.

    Examples
    --------
    >>> IMAGE_DATASETS
    ('mnist', 'fashion_mnist', 'kmnist', 'cifar10')
    """
    source = _source(name)
    load = _load_idx if source.is_idx else _load_records
    train_images, train_labels, test_images, test_labels = load(source, find_files(source, data_dir, download))
    return ImageDataset(name, train_images, train_labels, test_images, test_labels, source.classes)


def load_task(name: str, *, data_dir: str | os.PathLike[str] | None = None, download: bool = True) -> BinaryTask:
    """Load one of the four binary tasks of the paper's experiments, as defined in Appendix C of the paper.

    ==================  ===============================================  ======
    ``name``            positive classes                                 π
    ==================  ===============================================  ======
    ``mnist``           even digits                                      0.4926
    ``fashion_mnist``   T-shirt, trouser, shirt, sneaker                 0.4
    ``kmnist``          ki, re, wo                                       0.3
    ``cifar10``         animals: bird, cat, deer, dog, frog, horse       0.6
    ==================  ===============================================  ======

    Images have dtype uint8 to save memory; scale them with ``UUClassifier(input_scale=1 / 255)``.
    See `load_images` for the parameters and errors.

    >>> load_task("imagenet")
    Traceback (most recent call last):
    ValueError: name must be one of 'mnist', 'fashion_mnist', 'kmnist', 'cifar10', got 'imagenet'.
    """
    positive_classes = _source(name).positive_classes
    images = load_images(name, data_dir=data_dir, download=download)
    labels = images.train_labels, images.test_labels
    y_train, y_test = (np.isin(part, positive_classes).astype(np.int64) for part in labels)
    return BinaryTask(name, images.train_images, y_train, images.test_images, y_test, positive_classes)


def _source(name: str) -> DatasetSource:
    if name not in IMAGE_DATASETS:
        raise ValueError(f"name must be one of {', '.join(map(repr, IMAGE_DATASETS))}, got {name!r}.")
    return SOURCES[name]


def _load_idx(source: DatasetSource, paths: dict[str, Path]) -> list[Bytes]:
    train, test = source.sizes
    shapes = [(train, *source.image_shape), (train,), (test, *source.image_shape), (test,)]
    return [
        read_idx(paths[file], shape, source.digests[file], source.title)
        for file, shape in zip(source.files, shapes, strict=True)
    ]


def _load_records(source: DatasetSource, paths: dict[str, Path]) -> list[Bytes]:
    arrays = []
    for part, files, size in zip(source.digests, (source.files[:-1], source.files[-1:]), source.sizes, strict=True):
        sources = [paths[file] for file in files]
        count, n_classes = size // len(files), len(source.classes)
        records = np.concatenate([read_records(path, count, source.image_shape, n_classes) for path in sources])
        check_records(records, sources, part, n_classes, source.digests[part])
        # Copy, to make the images contiguous and free the records.
        pixels = np.ascontiguousarray(records[:, 1:])
        arrays += [pixels.reshape(-1, *source.image_shape), records[:, 0].copy()]
    return arrays
