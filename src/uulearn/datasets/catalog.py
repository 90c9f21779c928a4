"""The image datasets: files, download addresses, checksums, classes and binary tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

IDX_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
CIFAR_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
CIFAR_ARCHIVE = "cifar-10-binary.tar.gz"


@dataclass(frozen=True)
class DatasetSource:
    """Files and properties of one dataset."""

    title: str
    folders: tuple[str, ...]  # subfolders of a data folder that are searched; downloads go into the first
    files: tuple[str, ...]  # file names; IDX files may end in ``.gz``
    addresses: tuple[str, ...]  # base addresses of the downloads, tried in order
    downloads: Mapping[str, str]  # published MD5 of each download
    digests: Mapping[str, str]
    """SHA-256 of each uncompressed IDX file; of the records of each part of CIFAR-10, in any order."""
    sizes: tuple[int, int]  # number of training and of test images
    image_shape: tuple[int, ...]
    classes: tuple[str, ...]
    positive_classes: tuple[int, ...]  # the positive classes of Appendix C of the paper

    @property
    def is_idx(self) -> bool:
        """Whether the files are IDX files; otherwise they are CIFAR-10 records."""
        return self.files == IDX_FILES


def _idx_source(
    title: str,
    folders: tuple[str, ...],
    addresses: tuple[str, ...],
    checksums: tuple[tuple[str, str], ...],
    classes: str,
    positive_classes: tuple[int, ...],
) -> DatasetSource:
    return DatasetSource(
        title=title,
        folders=folders,
        files=IDX_FILES,
        addresses=addresses,
        downloads={f"{file}.gz": md5 for file, (md5, _) in zip(IDX_FILES, checksums, strict=True)},
        digests={file: sha256 for file, (_, sha256) in zip(IDX_FILES, checksums, strict=True)},
        sizes=(60_000, 10_000),
        image_shape=(28, 28),
        classes=tuple(classes.split(", ")),
        positive_classes=positive_classes,
    )


# Checksums in the order of IDX_FILES: MD5 of the published .gz, SHA-256 of its content.
SOURCES = {
    "mnist": _idx_source(
        "MNIST",
        ("mnist", "MNIST/raw"),
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        (
            ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
            ("d53e105ee54ea40749a09fcbcd1e9432", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
            ("9fb629c4189551a2d022fa330f9573f3", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
            ("ec29112dd5afa0611ce80d1b7f02629c", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
        ),
        "0, 1, 2, 3, 4, 5, 6, 7, 8, 9",
        (0, 2, 4, 6, 8),
    ),
    "fashion_mnist": _idx_source(
        "Fashion-MNIST",
        ("fashion-mnist", "fashion_mnist", "FashionMNIST/raw"),
        (
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        (
            ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
            ("25c81989df183df01b3e8a0aad5dffbe", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
            ("bef4ecab320f06d8554ea6380940ec79", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
            ("bb300cfdad3c16e7a12a480ee83cd310", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
        ),
        "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot",
        (0, 1, 6, 7),
    ),
    "kmnist": _idx_source(
        "Kuzushiji-MNIST",
        ("kmnist", "KMNIST/raw"),
        ("https://codh.rois.ac.jp/kmnist/dataset/kmnist/", "http://codh.rois.ac.jp/kmnist/dataset/kmnist/"),
        (
            ("bdb82020997e1d708af4cf47b453dcf7", "7112ba9ec422d98de4885262d4a4dff14cc4fefb81c11ace8bf563a8255df5c3"),
            ("e144d726b3acfaa3e44228e80efcd344", "2a16eeae62da984b8bd24fa32e31d47291f01dac3fe84d5594f304f71e7d374b"),
            ("5c965bf0a639b31b8f53240b1b52f4d7", "76fbd229ce87db80dd281af5e6670de4ad0e42fb30a7bd643972994c47c1f42e"),
            ("7320c461ea6c1c855c0b718fb2a4b134", "a11dc742be8e781a40a92f53d6a4957e7b7d36df2faa097659131ebfd8fd60c6"),
        ),
        "o, ki, su, tsu, na, ha, ma, ya, re, wo",
        (1, 8, 9),
    ),
    "cifar10": DatasetSource(
        title="CIFAR-10",
        folders=("cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"),
        files=CIFAR_FILES,
        addresses=("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
        downloads={CIFAR_ARCHIVE: "c32a1d4ab5d03f1284b67883e8d87530"},
        digests={
            "training": "55a61f79a40ece2ceda9fb5f9f7078f6ea2fc4952489cef56682bcf92cfcc260",
            "test": "325704b01eb92e1e2a6215ae6a916bb7db7de054af0c496be1c7be2e0fcfbf5f",
        },
        sizes=(50_000, 10_000),
        image_shape=(3, 32, 32),
        classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        positive_classes=(2, 3, 4, 5, 6, 7),
    ),
}
