"""Read images as rows, from a folder of images or from a table with a column of image paths.

All images are converted to the same size and color mode, as bytes of shape (n, channels, height, width). Images of
another size are resized and cropped to the center, as with ``Resize`` and ``CenterCrop`` of torchvision.
"""

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from uulearn.exceptions import TableError
from uulearn.io.formats import IMAGE_SUFFIXES, STANDARD, refuse_unreadable
from uulearn.io.reading import CHUNK_ROWS, TableReader, is_table_folder, open_table

"""All formats of torchvision's ``ImageFolder``, and GIF (the first frame)."""
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "PPM", "GIF")
"""Pillow's names of these formats. Without them, Pillow would read PostScript in a .png file with Ghostscript."""
PATH = "path"  # name of the only column of a folder of images
DEFAULT_SIZE = 32  # pixels per side, for the built-in networks
PHOTO_SIZE = 224  # pixels per side, for the networks of torchvision
SMALL_SIZE = 64  # images of the same size with sides up to this length are not resized
LARGEST_SIZE = 1024
MODES = {"L": 1, "RGB": 3}
SURVEYED_IMAGES = 500  # number of images of each set used to choose size and color mode
CHUNK = 2000  # number of images decoded per chunk

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class ImageSchema:
    """Description of the images that a model accepts: the column of image paths, the size and the color mode."""

    column: str
    height: int
    width: int
    mode: str
    ids: tuple[str, ...] = ()
    flat: bool = False
    """Whether each image is flattened to a vector of pixels, for models that do not accept images."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of one image: (channels, height, width), or (channels · height · width,) if images are flattened."""
        return (math.prod(self.image_shape),) if self.flat else self.image_shape

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Shape of one image: (channels, height, width)."""
        return MODES[self.mode], self.height, self.width

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as a dictionary that can be stored as JSON."""
        return {"images": {**asdict(self), "ids": list(self.ids)}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Create a schema from the output of `to_dict`; raise ValueError if the data are invalid."""
        own = data["images"]
        height, width = int(own["height"]), int(own["width"])
        if not (1 <= height <= LARGEST_SIZE and 1 <= width <= LARGEST_SIZE) or own["mode"] not in MODES:
            raise ValueError(f"images of {height} × {width} pixels in mode {own['mode']!r} are not supported")
        return cls(str(own["column"]), height, width, own["mode"], tuple(map(str, own["ids"])), bool(own["flat"]))


def open_rows(
    source: str | Path, *, images: bool = False, format: str | None = None, sheet: str | None = None
) -> TableReader:
    """Return a reader for a table file or a folder of images; with ``images``, the chunks are smaller."""
    if source != STANDARD and Path(source).is_dir() and not is_table_folder(source):
        return _open_folder(Path(source))
    return open_table(source, chunk_rows=CHUNK if images else CHUNK_ROWS, format=format, sheet=sheet)


def _open_folder(folder: Path) -> TableReader:
    """Return a reader with one column: the paths of all images in a folder and its subfolders, sorted by name."""
    files = sorted(_files_in(folder))
    found = [path.relative_to(folder).as_posix() for path in files if path.suffix.lower() in IMAGE_SUFFIXES]
    if not found:
        raise TableError(f"{folder} contains no images ({', '.join(IMAGE_SUFFIXES)}); pass another folder.")
    others = len(files) - len(found)
    notes = []
    if others:
        what = "1 file that is not an image; it is" if others == 1 else f"{others} files that are not images; they are"
        notes = [f"{folder} has {what} ignored."]
    frames = (pd.DataFrame({PATH: found[start : start + CHUNK]}) for start in range(0, len(found), CHUNK))
    return TableReader(str(folder), frames, pd.DataFrame({PATH: found[:0]}), notes)


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, its subfolders and linked folders, without hidden files and folders.

    If several links lead to the same folder, the first in alphabetical order is used.
    """
    visited: set[str] = set()  # a link to a parent folder would never end
    for place, subfolders, names in os.walk(folder, onerror=refuse_unreadable, followlinks=True):
        own = os.path.realpath(place)
        subfolders[:] = [] if own in visited else sorted(name for name in subfolders if not name.startswith("."))
        if own not in visited:
            yield from (Path(place, name) for name in names if not name.startswith("."))
        visited.add(own)


def base_folder(source: str | Path) -> Path:
    """Return the folder that the image paths in a source are relative to."""
    path = Path(source)
    return path if path.is_dir() else path.parent


def survey_images(
    sources: Sequence[str | Path],
    column: str | None,
    size: int | None,
    ids: Sequence[str] = (),
    flat: bool = False,
    default_size: int = DEFAULT_SIZE,
) -> tuple[ImageSchema, list[str]]:
    """Choose the size and color mode from the first images of each source; return the schema and notes.

    Without ``size``, images are resized to the default size, unless all have the same size and no side exceeds 64
    pixels.
    """
    if size is not None and not 1 <= size <= LARGEST_SIZE:
        raise TableError(f"the image size {size} is not supported; choose a size from 1 to {LARGEST_SIZE} pixels.")
    sizes: set[tuple[int, int]] = set()
    has_color = False
    for source in sources:
        n_read = 0
        with open_rows(source, images=True) as reader:
            where = column or PATH
            if where not in reader.columns:
                raise TableError(f"{reader.name} has no column {where!r}; name the column of paths with --images.")
            for frame in reader:
                for path in frame[where].iloc[: SURVEYED_IMAGES - n_read]:
                    with _opened(base_folder(source), path) as image:
                        sizes.add((image.height, image.width))
                        has_color = has_color or (image.mode not in ("1", "L", "LA") and not _is_16_bit(image))
                    n_read += 1
                if n_read >= SURVEYED_IMAGES:
                    break
    height = width = size or default_size
    if size is None and len(sizes) == 1 and max(one := next(iter(sizes))) <= SMALL_SIZE:
        height, width = one
    cropped = " and cropped to their center" if any(own[0] * width != own[1] * height for own in sizes) else ""
    resized = f"images are resized{cropped} to {width} × {height} pixels; choose another size with --image-size"
    notes = [resized] if sizes != {(height, width)} else []
    return ImageSchema(column or PATH, height, width, "RGB" if has_color else "L", tuple(ids), flat), notes


def load_images(paths: Sequence[Any], folder: Path, schema: ImageSchema) -> Bytes:
    """Load images as bytes of shape (n, channels, height, width), or (n, pixels) if images are flattened."""
    from PIL import Image, ImageOps

    out = np.empty((len(paths), MODES[schema.mode], schema.height, schema.width), dtype=np.uint8)
    for place, path in enumerate(paths):
        with _opened(folder, path) as image:
            try:
                plain = _to_8_bits(image).convert(schema.mode)
                if plain.size != (schema.width, schema.height):
                    plain = ImageOps.fit(plain, (schema.width, schema.height), Image.Resampling.BILINEAR)
            except (OSError, ValueError, SyntaxError, EOFError) as error:
                raise TableError(f"{folder / str(path)} cannot be decoded ({error}); replace or remove it.") from error
            pixels = np.asarray(plain)
        out[place] = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return out.reshape(len(paths), *schema.row_shape)


def _is_16_bit(image: Any) -> bool:
    """Return whether an image has 16 bits per pixel; some versions of Pillow read such a PNG file in mode I."""
    return bool(image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")))


def _to_8_bits(image: Any) -> Any:
    """Return an image that Pillow converts to gray or RGB without clipping values or warning about transparency."""
    from PIL import Image

    if _is_16_bit(image):
        return Image.fromarray((np.asarray(image).astype(np.int64) >> 8).astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"the range of its pixels is unknown, mode {image.mode}; convert it to 8 or 16 bits")
    return image.convert("RGBA") if image.mode == "P" and "transparency" in image.info else image


def _opened(folder: Path, path: Any) -> Any:
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise ImportError("images need Pillow; install it with pip install 'uulearn[images]'.") from error
    if not isinstance(path, str) or not path:
        raise TableError(f"an image path is {path!r}; enter the path of an image, or remove the row.")
    place = folder / path
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return Image.open(place, formats=FORMATS)
    except FileNotFoundError:
        if place.is_symlink():
            target = os.path.realpath(place)
            raise TableError(f"{place} is a link to {target}, which does not exist; replace or remove it.") from None
        raise TableError(f"{place} does not exist; image paths are relative to {folder}.") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise TableError(f"{place} has too many pixels to open safely; resize it.") from None
    except UnidentifiedImageError:
        raise TableError(
            f"{place} is not a readable image; expected one of the formats {', '.join(FORMATS)}; convert, replace or "
            "remove it."
        ) from None
    except (OSError, ValueError, SyntaxError) as error:
        raise TableError(f"{place} is not a readable image ({error}); replace or remove it.") from error
