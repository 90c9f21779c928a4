"""Load the paper's image datasets, and draw two unlabeled sets from labeled data."""

from uulearn.datasets.files import DatasetNotFoundError
from uulearn.datasets.formats import DatasetFileError
from uulearn.datasets.images import IMAGE_DATASETS, BinaryTask, ImageDataset, load_images, load_task
from uulearn.datasets.sets import SCHEMES, UnlabeledSets, make_sets

__all__ = [
    "IMAGE_DATASETS", "SCHEMES", "BinaryTask", "DatasetFileError", "DatasetNotFoundError", "ImageDataset",
    "UnlabeledSets", "load_images", "load_task", "make_sets",
]  # fmt: skip
