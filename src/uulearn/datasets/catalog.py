"""Read ``catalog.json``: the files, download addresses, checksums, classes and binary tasks of the image datasets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"


@dataclass(frozen=True)
class DatasetSource:
    """Files and properties of one dataset."""

    title: str
    folders: tuple[str, ...]  # subfolders of a data folder that are searched; downloads are saved in the first
    files: tuple[str, ...]  # file names; IDX files may end in ``.gz``
    addresses: tuple[str, ...]  # base addresses of the downloads, tried in order
    downloads: Mapping[str, str]  # published MD5 of each download
    digests: Mapping[str, str]  # SHA-256 of each uncompressed IDX file, or of the records of each part of CIFAR-10
    sizes: tuple[int, int]  # number of training and of test images
    image_shape: tuple[int, ...]
    classes: tuple[str, ...]
    positive_classes: tuple[int, ...]  # the positive classes of Appendix C of the paper

    @property
    def is_idx(self) -> bool:
        """Whether the files are IDX files; otherwise, they contain CIFAR-10 records."""
        return self.files == IDX_FILES


def _fields(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}


_CATALOG = json.loads(resources.files("uulearn.datasets").joinpath("catalog.json").read_text("utf-8"))
SOURCES = {name: DatasetSource(**_fields(entry)) for name, entry in _CATALOG.items()}
IDX_FILES = SOURCES["mnist"].files
CIFAR_FILES = SOURCES["cifar10"].files
