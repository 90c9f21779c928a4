"""Folders of images as torchvision's users keep them: subfolders, sizes, color modes, formats and damaged files."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from uulearn.exceptions import TableError
from uulearn.io.formats import IMAGE_SUFFIXES
from uulearn.tabular.images import FORMATS, ImageSchema, load_images, open_rows, survey_images

GRAY, COLOR = ImageSchema("path", 4, 4, "L"), ImageSchema("path", 4, 4, "RGB")


@pytest.fixture
def draw():
    return np.random.default_rng(0)


def save(pixels, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def paths_in(folder):
    with open_rows(folder, images=True) as reader:
        return [path for frame in reader for path in frame["path"]], reader.notes


def test_reads_all_formats_of_torchvision():
    folder = pytest.importorskip("torchvision.datasets.folder", reason="needs the extra vision")
    assert set(folder.IMG_EXTENSIONS) <= set(IMAGE_SUFFIXES)


def test_formats_are_those_of_the_suffixes():
    known = Image.registered_extensions()
    assert {known[suffix] for suffix in IMAGE_SUFFIXES} == set(FORMATS)


def test_postscript_is_refused(tmp_path):
    """Pillow would start Ghostscript to read it."""
    lines = ("%!PS-Adobe-3.0 EPSF-3.0", "%%BoundingBox: 0 0 4 4", "%%EndComments", "0 0 4 4 rectfill", "%%EOF", "")
    (tmp_path / "x.png").write_text("\n".join(lines))
    with Image.open(tmp_path / "x.png") as image:
        assert image.format == "EPS"
    expected = (
        r"/x\.png is not a readable image; expected one of the formats PNG, JPEG, .*; convert, replace or remove it\.$"
    )
    with pytest.raises(TableError, match=expected):
        survey_images([tmp_path], None, None)
    with pytest.raises(TableError, match=expected):
        load_images(["x.png"], tmp_path, COLOR)


@pytest.mark.parametrize("suffix", [*IMAGE_SUFFIXES, ".PNG"])
def test_reads_each_format(suffix, draw, tmp_path):
    pixels = np.full((4, 4), 128, dtype=np.uint8)
    save(pixels, tmp_path / f"one{suffix}")
    schema, _ = survey_images([tmp_path], None, None)
    (image,) = load_images(paths_in(tmp_path)[0], tmp_path, schema)
    assert abs(image.astype(int) - 128).max() <= 1


def test_finds_images_in_subfolders_and_links_but_not_hidden_files(draw, tmp_path):
    own, pixels = tmp_path / "set", draw.integers(0, 256, (4, 4), dtype=np.uint8)
    for name in ("b.png", "ill/a.jpg", "ill/2026/c.PPM", ".hidden.png", "._b.png", ".thumbs/b.png", "ill/.c/d.png"):
        save(pixels, own / name)
    save(pixels, tmp_path / "elsewhere" / "e.png")
    (own / "linked").symlink_to(tmp_path / "elsewhere")
    (own / "again").symlink_to(tmp_path / "elsewhere")
    (own / "loop").symlink_to(own)
    (own / "notes.txt").write_text("not an image")
    paths, notes = paths_in(own)
    assert paths == ["again/e.png", "b.png", "ill/2026/c.PPM", "ill/a.jpg"]
    assert notes == [f"{own} has 1 file that is not an image; it is ignored."]
    (own / "more.txt").touch()
    with open_rows(own) as reader:
        assert reader.notes == [f"{own} has 2 files that are not images; they are ignored."]


@pytest.mark.parametrize("locked", ["", "ill"])
def test_folders_that_cannot_be_read_are_named(locked, draw, tmp_path, monkeypatch):
    for name in ("b.png", "ill/a.png"):
        save(draw.integers(0, 256, (4, 4), dtype=np.uint8), tmp_path / name)
    scandir = os.scandir

    def denied(path):
        if Path(path) == tmp_path / locked:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(TableError) as caught:
        open_rows(tmp_path, images=True)
    fix = "request read permission, or move it to another folder"
    assert str(caught.value) == f"{tmp_path / locked} cannot be read (Permission denied); {fix}."


def test_finds_the_same_images_in_the_same_order_as_torchvision(draw, tmp_path):
    datasets = pytest.importorskip("torchvision", reason="needs the extra vision").datasets
    for name in ("north/b.png", "north/more/a.jpg", "south/x.webp", "south/B.bmp", "south/a.tiff"):
        save(draw.integers(0, 256, (5, 6, 3), dtype=np.uint8), tmp_path / name)
    wanted = datasets.ImageFolder(tmp_path)
    found = [path for name in ("north", "south") for path in (f"{name}/{own}" for own in paths_in(tmp_path / name)[0])]
    assert sorted(found) == sorted(str(path).removeprefix(f"{tmp_path}/") for path, _ in wanted.samples)
    loaded = load_images(found, tmp_path, ImageSchema("path", 5, 6, "RGB"))
    own = {path.removeprefix(f"{tmp_path}/"): np.asarray(wanted.loader(path)) for path, _ in wanted.samples}
    np.testing.assert_array_equal(loaded, [own[path].transpose(2, 0, 1) for path in found])


def test_broken_links_are_named_with_their_target(draw, tmp_path):
    """Like torchvision, which fails when it reads the image; a missing image would otherwise go unnoticed."""
    own = tmp_path / "set"
    save(draw.integers(0, 256, (4, 4), dtype=np.uint8), own / "a.png")
    (own / "b.png").symlink_to(own / "c.png")
    (own / "c.png").symlink_to(tmp_path / "removed.png")
    assert paths_in(own)[0] == ["a.png", "b.png", "c.png"]
    expected = rf"^{own}/b\.png is a link to {tmp_path}/removed\.png, which does not exist; replace or remove it\.$"
    with pytest.raises(TableError, match=expected):
        survey_images([own], None, None)
    with pytest.raises(TableError, match=expected):
        load_images(["a.png", "b.png"], own, ImageSchema("path", 4, 4, "L"))
    with pytest.raises(TableError, match=r"/d\.png does not exist; image paths are relative to"):
        load_images(["d.png"], own, ImageSchema("path", 4, 4, "L"))


@pytest.mark.parametrize(("height", "width"), [(30, 50), (50, 30), (20, 20), (12, 9)])
def test_mixed_sizes_are_resized_and_cropped_like_torchvision(height, width, draw, tmp_path):
    transforms = pytest.importorskip("torchvision", reason="needs the extra vision").transforms
    smooth = np.add.outer(np.linspace(0, 120, height), np.linspace(0, 120, width)).astype(np.uint8)
    save(np.stack([smooth] * 3, axis=2), tmp_path / "one.png")
    (image,) = load_images(["one.png"], tmp_path, ImageSchema("path", 16, 16, "RGB"))
    same = transforms.Compose([transforms.Resize(16), transforms.CenterCrop(16)])
    with Image.open(tmp_path / "one.png") as opened:
        wanted = np.asarray(same(opened)).transpose(2, 0, 1)
    assert abs(image.astype(int) - wanted).max() <= 8  # torchvision rounds the crop to whole pixels


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("1", "L"),
        ("L", "L"),
        ("LA", "L"),
        ("I;16", "L"),
        ("P", "RGB"),
        ("RGB", "RGB"),
        ("RGBA", "RGB"),
        ("CMYK", "RGB"),
    ],
)
def test_all_color_modes_become_gray_or_color(mode, wanted, draw, tmp_path):
    pixels = draw.integers(0, 256, (4, 4, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    image = Image.fromarray(pixels[..., 0].astype(np.uint16) * 257) if mode == "I;16" else image.convert(mode)
    image.save(tmp_path / ("one.tif" if mode == "CMYK" else "one.png"))
    schema, _ = survey_images([tmp_path], None, None)
    assert schema.mode == wanted
    (found,) = load_images(paths_in(tmp_path)[0], tmp_path, schema)
    if mode in ("RGB", "RGBA"):
        expected = pixels
    elif mode == "I;16":  # Pillow would clip all values above 255
        expected = pixels[..., 0]
    elif mode in ("L", "LA"):
        expected = np.asarray(image.getchannel("L"))
    else:
        expected = np.asarray(image.convert(wanted))
    np.testing.assert_array_equal(found, np.atleast_3d(expected).transpose(2, 0, 1))
    assert found.max() > found.min()


def test_transparent_palettes_are_read_without_a_warning(draw, tmp_path):
    image = Image.fromarray(draw.integers(0, 256, (4, 4, 3), dtype=np.uint8)).quantize(8)
    image.save(tmp_path / "one.png", transparency=bytes(range(8)))
    with Image.open(tmp_path / "one.png") as opened:
        assert "transparency" in opened.info
    (found,) = load_images(["one.png"], tmp_path, COLOR)
    np.testing.assert_array_equal(found, np.asarray(image.convert("RGB")).transpose(2, 0, 1))


def test_pixels_of_unknown_range_are_refused(tmp_path):
    Image.fromarray(np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)).save(tmp_path / "one.tif")
    with pytest.raises(TableError, match=r"one\.tif cannot be decoded .the range of its pixels is unknown, mode F; co"):
        load_images(["one.tif"], tmp_path, GRAY)


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp"])
def test_truncated_files_are_named(suffix, draw, tmp_path):
    save(draw.integers(0, 256, (32, 32, 3), dtype=np.uint8), tmp_path / f"one.{suffix}")
    content = (tmp_path / f"one.{suffix}").read_bytes()
    (tmp_path / f"one.{suffix}").write_bytes(content[: len(content) // 2])
    with pytest.raises(TableError, match=rf"one\.{suffix} .*; replace or remove it\.$"):
        load_images([f"one.{suffix}"], tmp_path, COLOR)


@pytest.mark.parametrize(
    ("sizes", "size", "default", "wanted", "note"),
    [
        ([(28, 28)] * 2, None, 32, (28, 28), None),
        ([(28, 28)] * 2, None, 224, (28, 28), None),
        ([(40, 60)] * 2, None, 32, (40, 60), None),
        ([(28, 28), (30, 30)], None, 32, (32, 32), "images are resized to 32 × 32 pixels"),
        ([(28, 28), (30, 40)], None, 224, (224, 224), "are resized and cropped to their center to 224 × 224 pixels"),
        ([(100, 100)] * 2, None, 224, (224, 224), "images are resized to 224 × 224 pixels"),
        ([(40, 60)] * 2, 48, 32, (48, 48), "images are resized and cropped to their center to 48 × 48 pixels"),
    ],
)
def test_size_is_chosen_from_the_images(sizes, size, default, wanted, note, tmp_path):
    for number, shape in enumerate(sizes):
        save(np.zeros(shape, dtype=np.uint8), tmp_path / f"{number}.png")
    schema, notes = survey_images([tmp_path], None, size, default_size=default)
    assert (schema.height, schema.width) == wanted
    assert len(notes) == (note is not None)
    assert note is None or note in notes[0]
