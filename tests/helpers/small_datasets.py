"""Small files in the published layouts of MNIST and CIFAR-10, for tests of `uulearn reproduce`."""

import dataclasses
import gzip
import hashlib

import numpy as np

from uulearn.datasets.catalog import CIFAR_FILES, IDX_FILES, SOURCES
from uulearn.datasets.formats import digest_of_records
from uulearn.reproduction.experiments import PAPER_TARGET_PRIORS
from uulearn.reproduction.store import RunStore, key

SIZES = (1500, 100)
CIFAR_ROWS = (100, 100, 100, 100, 100, 20)
"""Rows of each CIFAR-10 file. The last file is the test data, which every ResNet-32 scores."""


NAMES = ("mnist", "fashion_mnist", "kmnist")


def draw(n, shape, seed):
    """Draw images of ten classes with different brightness patterns, and their classes in turn."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n, dtype=np.uint8) % 10
    patterns = np.random.default_rng(9).integers(60, 190, (10, *shape))
    return np.clip(rng.normal(patterns[labels], 50), 0, 255).astype(np.uint8), labels


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def small_files():
    """The content of small files in the layouts of MNIST and CIFAR-10, by name."""
    contents, records = {}, {}
    for part, (n, files) in enumerate(zip(SIZES, (IDX_FILES[:2], IDX_FILES[2:]), strict=True)):
        contents |= dict(zip(files, map(idx, draw(n, (28, 28), part)), strict=True))
    for number, (file, n) in enumerate(zip(CIFAR_FILES, CIFAR_ROWS, strict=True)):
        images, labels = draw(n, (3, 32, 32), 10 + number)
        records[file] = np.concatenate([labels[:, None], images.reshape(n, -1)], axis=1)
    return contents, records


def expect_small_files(set_item=dict.__setitem__):
    """Change the tables so that the small files are the published ones."""
    contents, records = small_files()
    digests = {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()}
    for name in NAMES:
        set_item(SOURCES, name, dataclasses.replace(SOURCES[name], sizes=SIZES, digests=digests))
    parts = {"training": np.concatenate(list(records.values())[:5]), "test": records[CIFAR_FILES[-1]]}
    digests = {part: digest_of_records(rows) for part, rows in parts.items()}
    set_item(
        SOURCES,
        "cifar10",
        dataclasses.replace(SOURCES["cifar10"], sizes=(sum(CIFAR_ROWS[:-1]), CIFAR_ROWS[-1]), digests=digests),
    )
    set_item(PAPER_TARGET_PRIORS, "mnist", 0.5)  # equal numbers of even and odd digits; others are as published


def write_small_files(folder):
    """A data folder with the small files."""
    contents, records = small_files()
    for name in NAMES:
        place = folder / SOURCES[name].folders[0]
        place.mkdir()
        for file, content in contents.items():
            (place / f"{file}.gz").write_bytes(gzip.compress(content, 1))
    (folder / "cifar-10-batches-bin").mkdir()
    for file, rows in records.items():
        (folder / "cifar-10-batches-bin" / file).write_bytes(rows.tobytes())
    return folder


def curves(folder):
    return {key(r["configuration"]): (r["curves"], r["stop_reason"], r["facts"]) for r in RunStore(folder).records()}


def pages_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
