"""The image datasets, tested with small files of the same layout, and with the real files if available."""

import dataclasses
import gzip
import hashlib
import io
import subprocess
import sys
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from helpers.data import data_folder
from uulearn.datasets import (
    IMAGE_DATASETS,
    BinaryTask,
    DatasetFileError,
    DatasetNotFoundError,
    load_images,
    load_task,
    make_sets,
)
from uulearn.datasets.catalog import CIFAR_ARCHIVE, CIFAR_FILES, IDX_FILES, SOURCES
from uulearn.datasets.formats import digest_of_records, read_idx

DATA = data_folder()
SIZES = (20, 10)
IMAGES, LABELS = IDX_FILES[:2]


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def md5(content):
    return hashlib.md5(content).hexdigest()


def idx(array, kind=8):
    """Return the content of an IDX file."""
    return bytes([0, 0, kind, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def one_sentence(error):
    """Return the message, after checking that it is one sentence without chained exceptions."""
    text = str(error.value)
    assert text.endswith(".")
    assert "\n" not in text
    assert ". " not in text
    assert error.value.__suppress_context__ or error.value.__context__ is None
    return text


def files_under(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """Isolate the tests from the data folder and cache of the user."""
    monkeypatch.delenv("UULEARN_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    folder = tmp_path / "cache"
    monkeypatch.setattr("pooch.os_cache", lambda project: folder / project)
    return folder / "uulearn"


@pytest.fixture
def small_idx(monkeypatch):
    """Contents of small files with the layout of MNIST, by file name; the catalog expects them."""
    rng = np.random.default_rng(0)
    shapes = [(SIZES[0], 28, 28), SIZES[:1], (SIZES[1], 28, 28), SIZES[1:]]
    contents = {
        file: idx(rng.integers(0, 10 if len(shape) == 1 else 256, shape, dtype=np.uint8))
        for file, shape in zip(IDX_FILES, shapes, strict=True)
    }
    for name in ("mnist", "fashion_mnist", "kmnist"):
        source = dataclasses.replace(
            SOURCES[name],
            sizes=SIZES,
            digests={file: sha256(content) for file, content in contents.items()},
            downloads={f"{file}.gz": md5(gzip.compress(content, mtime=0)) for file, content in contents.items()},
            addresses=("http://127.0.0.1:9/",),  # the discard port: no server
        )
        monkeypatch.setitem(SOURCES, name, source)
    return contents


@pytest.fixture
def small_cifar(monkeypatch):
    """Records of small files with the layout of CIFAR-10, by file name; the catalog expects them."""
    rng = np.random.default_rng(1)
    records = rng.integers(0, 256, (60, 3073), dtype=np.uint8)
    records[:, 0] = np.tile(np.arange(10), 6)
    parts = dict(zip(CIFAR_FILES, records.reshape(6, 10, 3073), strict=True))
    source = dataclasses.replace(
        SOURCES["cifar10"],
        sizes=(50, 10),
        digests={"training": digest_of_records(records[:50]), "test": digest_of_records(records[50:])},
        addresses=("http://127.0.0.1:9/",),
    )
    monkeypatch.setitem(SOURCES, "cifar10", source)
    return parts


def write_idx(folder, contents, compress=True):
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        if compress:
            (folder / f"{file}.gz").write_bytes(gzip.compress(content, mtime=0))
        else:
            (folder / file).write_bytes(content)


def write_cifar(folder, parts):
    folder.mkdir(parents=True, exist_ok=True)
    for file, records in parts.items():
        (folder / file).write_bytes(np.ascontiguousarray(records).tobytes())


# --- Reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize(("name", "subfolder"), [
    ("mnist", "mnist"), ("mnist", "MNIST/raw"), ("fashion_mnist", "fashion-mnist"), ("fashion_mnist", "fashion_mnist"),
    ("fashion_mnist", "FashionMNIST/raw"), ("kmnist", "kmnist"), ("kmnist", "KMNIST/raw"),
])  # fmt: skip
def test_reads_raw_and_compressed_idx_files(tmp_path, small_idx, name, subfolder, compress):
    write_idx(tmp_path / subfolder, small_idx, compress)
    loaded = load_images(name, data_dir=str(tmp_path))
    assert loaded.name == name
    assert len(loaded.classes) == 10
    parts = (loaded.train_images, loaded.train_labels, loaded.test_images, loaded.test_labels)
    for content, array in zip(small_idx.values(), parts, strict=True):
        assert array.dtype == np.uint8
        assert array.flags.writeable
        assert idx(array) == content


def test_raw_and_compressed_files_may_be_mixed(tmp_path, small_idx):
    contents = list(small_idx.items())
    write_idx(tmp_path / "mnist", dict(contents[:2]), compress=True)
    write_idx(tmp_path / "mnist", dict(contents[2:]), compress=False)
    assert load_images("mnist", data_dir=tmp_path).train_images.shape == (20, 28, 28)


@pytest.mark.parametrize("subfolder", ["cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"])
def test_reads_cifar_files(tmp_path, small_cifar, subfolder):
    write_cifar(tmp_path / subfolder, small_cifar)
    loaded = load_images("cifar10", data_dir=tmp_path)
    assert loaded.train_images.shape == (50, 3, 32, 32)
    assert loaded.train_images.flags.c_contiguous
    assert loaded.test_images.shape == (10, 3, 32, 32)
    first = small_cifar["data_batch_2.bin"][3]
    assert loaded.train_labels[13] == first[0]
    assert (loaded.train_images[13].ravel() == first[1:]).all()
    assert loaded.classes[loaded.test_labels[5]] == "dog"


def test_cifar_records_may_be_in_any_order(tmp_path, small_cifar):
    shuffled = np.random.default_rng(2).permutation(np.concatenate(list(small_cifar.values())[:5])).reshape(5, 10, 3073)
    parts = dict(zip(CIFAR_FILES, [*shuffled, small_cifar["test_batch.bin"][::-1]], strict=True))
    write_cifar(tmp_path / "cifar-10-batches-bin", parts)
    loaded = load_images("cifar10", data_dir=tmp_path)
    assert (loaded.train_labels == shuffled[:, :, 0].ravel()).all()


@pytest.mark.parametrize("name", IMAGE_DATASETS)
def test_tasks_equal_those_of_the_paper(tmp_path, small_idx, small_cifar, name):
    expected = {
        "mnist": {"0", "2", "4", "6", "8"},
        "fashion_mnist": {"T-shirt/top", "Trouser", "Shirt", "Sneaker"},
        "kmnist": {"ki", "re", "wo"},
        "cifar10": {"bird", "cat", "deer", "dog", "frog", "horse"},
    }[name]
    write_idx(tmp_path / SOURCES[name].folders[0], small_idx)
    write_cifar(tmp_path / "cifar-10-batches-bin", small_cifar)
    images, task = load_images(name, data_dir=tmp_path), load_task(name, data_dir=tmp_path)
    assert {images.classes[number] for number in task.positive_classes} == expected
    for labels, y in ((images.train_labels, task.y_train), (images.test_labels, task.y_test)):
        assert y.dtype == np.int64
        assert y.tolist() == [int(images.classes[label] in expected) for label in labels]
    assert (task.X_train == images.train_images).all()
    assert task.prior == task.y_test.mean()
    assert task.row_shape == images.train_images.shape[1:]
    flat = task.flat()
    assert isinstance(flat, BinaryTask)
    assert flat.X_test.shape == (10, images.test_images[0].size)
    assert flat.row_shape == (images.test_images[0].size,)
    assert (flat.X_train.ravel() == task.X_train.ravel()).all()
    assert (flat.name, flat.prior, flat.positive_classes) == (task.name, task.prior, task.positive_classes)
    assert len(repr(task)) < 100
    X0, _ = make_sets(flat.X_train, flat.y_train, (0.8, 0.2), (5, 5), random_state=0)
    assert X0.dtype == np.uint8


@pytest.mark.parametrize("name", ["imagenet", "MNIST", "", None, ["mnist"]])
def test_rejects_unknown_name(name):
    for load in (load_images, load_task):
        with pytest.raises(ValueError, match="name must be one of 'mnist', .*, got "):
            load(name)


# --- Invalid files ---------------------------------------------------------------------------------------------------

TRAIN = np.zeros((20, 28, 28), np.uint8)
INVALID_IDX = {
    "empty": (IMAGES, b"", "is not an IDX file: it starts with nothing"),
    "another kind of file": (IMAGES, b"<html>not found</html>", "is not an IDX file: it starts with 3c 68 74 6d"),
    "compressed under a raw name": (IMAGES, gzip.compress(idx(TRAIN)), f"rename it to {IMAGES}.gz"),
    "another element type": (IMAGES, idx(TRAIN.astype(">f4"), kind=13), "found 0x0d"),
    "cut in its header": (IMAGES, idx(TRAIN)[:9], "is truncated: it ends within its header"),
    "cut after its header": (IMAGES, idx(TRAIN)[:-5], "is truncated: found 15,675 bytes"),
    "too long": (IMAGES, idx(TRAIN) + b"\0\0\0", "is too long: found more bytes, expected"),
    "another number of images": (IMAGES, idx(TRAIN[:10]), "header for 20 × 28 × 28 bytes, found 10 × 28 × 28"),
    "labels of other images": (LABELS, idx(np.zeros(19, np.uint8)), "expected a header for 20 bytes, found 19"),
    "labels as images": (IMAGES, idx(np.zeros(20, np.uint8)), "expected a header for 20 × 28 × 28 bytes, found 20"),
    "no dimensions": (IMAGES, b"\0\0\x08\0", "expected a header for 20 × 28 × 28 bytes, found no"),
    "other content": (IMAGES, idx(TRAIN), "has the layout of MNIST but different content"),
}  # fmt: skip


@pytest.mark.parametrize("case", INVALID_IDX)
@pytest.mark.parametrize("compress", [True, False])
def test_rejects_invalid_idx_files(tmp_path, small_idx, case, compress):
    file, content, words = INVALID_IDX[case]
    if compress and case == "compressed under a raw name":
        words = "is gzip-compressed"  # compressed twice: the outer layer is valid
    write_idx(tmp_path / "mnist", small_idx | {file: content}, compress)
    with pytest.raises(DatasetFileError) as error:
        load_images("mnist", data_dir=tmp_path)
    text = one_sentence(error)
    assert words in text
    assert str(tmp_path / "mnist" / file) in text


@pytest.mark.parametrize(("damage", "words"), [
    (lambda packed: packed[:-100], "is truncated: its compressed data are incomplete"),
    (lambda packed: packed[:-4], "is truncated: its compressed data are incomplete"),
    (lambda packed: b"<html>not found</html>", "is not an intact gzip file"),
    (lambda packed: packed[:-8] + b"\0\0\0\0" + packed[-4:], "is not an intact gzip file (CRC check failed"),
    (lambda packed: packed[:10] + b"\xff" * 20 + packed[30:], "is damaged: it cannot be decompressed"),
])  # fmt: skip
def test_rejects_damaged_compression(tmp_path, small_idx, damage, words):
    write_idx(tmp_path / "mnist", small_idx)
    path = tmp_path / "mnist" / f"{IMAGES}.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatasetFileError) as error:
        load_task("mnist", data_dir=tmp_path)
    text = one_sentence(error)
    assert words in text
    assert str(path) in text


def with_label(parts, file, row, label):
    changed = parts[file].copy()
    changed[row, 0] = label
    return {file: changed}


def with_pixel(parts, file):
    changed = parts[file].copy()
    changed[3, 17] ^= 1
    return {file: changed}


@pytest.mark.parametrize(("change", "file", "words"), [
    (lambda parts: {"data_batch_3.bin": parts["data_batch_3.bin"][:9]}, "data_batch_3.bin", "is truncated: expected "),
    (lambda parts: {"test_batch.bin": np.zeros((11, 3073), np.uint8)}, "test_batch.bin", "is too long: expected "),
    (lambda parts: with_label(parts, "data_batch_5.bin", 2, 10), "data_batch_5.bin", "labels up to 9, found 10"),
    (lambda parts: with_label(parts, "data_batch_5.bin", 2, 9), "data_batch_5.bin", "5 per class, found 4 to 6"),
    (lambda parts: with_pixel(parts, "data_batch_1.bin"), "data_batch_1.bin", "training set (the layout is correct"),
    (lambda parts: with_pixel(parts, "test_batch.bin"), "test_batch.bin", "test set (the layout is correct"),
    (lambda parts: {"data_batch_1.bin": parts["data_batch_2.bin"]}, "data_batch_1.bin", "the SHA-256 differs"),
])  # fmt: skip
def test_rejects_invalid_cifar_files(tmp_path, small_cifar, change, file, words):
    folder = tmp_path / "cifar-10-batches-bin"
    write_cifar(folder, small_cifar | change(small_cifar))
    with pytest.raises(DatasetFileError) as error:
        load_images("cifar10", data_dir=tmp_path)
    text = one_sentence(error)
    assert words in text
    assert str(folder / file) in text


@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=1, max_dims=4, max_side=5)), st.booleans())
def test_idx_round_trip(tmp_path_factory, array, compress):
    content = idx(array)
    write_idx(folder := tmp_path_factory.mktemp("idx"), {"file": content}, compress)
    read = read_idx(folder / ("file.gz" if compress else "file"), array.shape, sha256(content), "test")
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, array)


@given(st.data())
def test_rejects_any_changed_idx_file(tmp_path_factory, data):
    content = idx(np.arange(12, dtype=np.uint8).reshape(3, 4))
    place = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[place] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.mktemp("idx") / "file"
    for damaged in (changed, content[:place], content + content[: place + 1]):
        path.write_bytes(damaged)
        with pytest.raises(DatasetFileError, match="file"):
            read_idx(path, (3, 4), sha256(content), "test")


@given(arrays.arrays(np.uint8, (6, 5)), st.permutations(range(6)), st.integers(0, 29), st.integers(1, 255))
def test_digest_of_records_ignores_only_their_order(records, order, place, change):
    assert digest_of_records(records[order]) == digest_of_records(records)
    changed = records.copy()
    changed.ravel()[place] ^= change
    assert digest_of_records(changed) != digest_of_records(records)


# --- Search for files ------------------------------------------------------------------------------------------------


def test_error_lists_missing_files_and_folder(tmp_path, small_idx):
    with pytest.raises(DatasetNotFoundError) as error:
        load_images("fashion_mnist", data_dir=tmp_path, download=False)
    assert one_sentence(error) == (
        "Fashion-MNIST is incomplete and download=False; put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
        f"t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz into {tmp_path / 'fashion-mnist'}."
    )
    assert isinstance(error.value, FileNotFoundError)


def test_error_lists_only_missing_files(tmp_path, small_cifar):
    del small_cifar["data_batch_2.bin"], small_cifar["test_batch.bin"]
    write_cifar(tmp_path / "cifar-10-batches-bin", small_cifar)
    with pytest.raises(DatasetNotFoundError) as error:
        load_images("cifar10", data_dir=tmp_path, download=False)
    assert f"put data_batch_2.bin, test_batch.bin into {tmp_path / 'cifar-10-batches-bin'}." in one_sentence(error)


def test_pickled_cifar_is_not_read(tmp_path, small_cifar):
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "data_batch_1").write_bytes(b"cos\nsystem\n(S'exit'\ntR.")
    with pytest.raises(DatasetNotFoundError, match="data_batch_1.bin"):
        load_images("cifar10", data_dir=tmp_path, download=False)


def test_searches_environment_variable_then_cache(monkeypatch, tmp_path, cache, small_idx):
    write_idx(cache / "mnist", small_idx)
    assert load_images("mnist", download=False).name == "mnist"
    monkeypatch.setenv("UULEARN_DATA", str(tmp_path / "named"))
    assert load_images("mnist", download=False).name == "mnist"
    write_idx(tmp_path / "named" / "mnist", small_idx | {IMAGES: b"damaged"})
    with pytest.raises(DatasetFileError, match="named"):
        load_images("mnist", download=False)
    with pytest.raises(DatasetNotFoundError, match="elsewhere"):
        load_images("mnist", data_dir=tmp_path / "elsewhere", download=False)


def test_complete_cache_precedes_incomplete_data_folder(monkeypatch, tmp_path, cache, small_cifar):
    monkeypatch.setenv("UULEARN_DATA", str(tmp_path))
    write_cifar(tmp_path / "cifar-10-batches-bin", {"data_batch_1.bin": small_cifar["data_batch_2.bin"]})
    write_cifar(cache / "cifar-10-batches-bin", small_cifar)
    assert load_images("cifar10", download=False).train_images.shape == (50, 3, 32, 32)


def test_files_of_two_folders_are_combined(monkeypatch, tmp_path, cache, small_idx):
    monkeypatch.setenv("UULEARN_DATA", str(tmp_path))
    contents = list(small_idx.items())
    write_idx(tmp_path / "mnist", dict(contents[:3]))
    write_idx(cache / "mnist", dict(contents[2:]), compress=False)
    assert load_images("mnist", download=False).test_labels.shape == (10,)


def test_error_without_data_folder(monkeypatch, tmp_path, cache, small_idx):
    place = "mnist/ in the folder set by data_dir or UULEARN_DATA."
    with pytest.raises(DatasetNotFoundError) as error:
        load_images("mnist", download=False)
    assert one_sentence(error).endswith(f"into {cache / 'mnist'}, or into {place}")
    monkeypatch.setenv("UULEARN_DATA", str(tmp_path / "named"))
    with pytest.raises(DatasetNotFoundError) as error:
        load_images("mnist", download=False)
    assert one_sentence(error).endswith(f"into {tmp_path / 'named' / 'mnist'}, or into {place}")


def test_error_without_pooch(monkeypatch, tmp_path, small_idx):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(DatasetNotFoundError) as error:
        load_images("mnist")
    text = one_sentence(error)
    assert "run pip install 'uulearn[data]', or put train-images-idx3-ubyte.gz, " in text
    assert text.endswith(" into mnist/ in the folder set by data_dir or UULEARN_DATA.")
    write_idx(tmp_path / "mnist", small_idx)
    monkeypatch.setenv("UULEARN_DATA", str(tmp_path))
    assert load_images("mnist").name == "mnist"


def test_importing_the_datasets_does_not_import_pooch():
    code = "import sys, uulearn.datasets; print([m for m in ('pooch', 'requests') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- Downloads from a local server -----------------------------------------------------------------------------------


class Handler(SimpleHTTPRequestHandler):
    def log_request(self, *args):
        self.server.requests.append(self.path)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path):
    """An HTTP server of a folder that records the requests."""
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=folder)) as served:
        served.folder, served.requests, served.address = folder, [], f"http://127.0.0.1:{served.server_port}/"
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        served.shutdown()
        thread.join()


def redirect(monkeypatch, name, *addresses, **changes):
    monkeypatch.setitem(SOURCES, name, dataclasses.replace(SOURCES[name], addresses=addresses, **changes))


def archive_of(parts, extra=()):
    """Return a tar.gz archive like that of CIFAR-10, with additional entries."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for entry in extra:
            tar.addfile(entry, io.BytesIO(b"x" * entry.size))
        for file, records in parts.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{file}")
            entry.size = records.nbytes
            tar.addfile(entry, io.BytesIO(records.tobytes()))
    return buffer.getvalue()


def test_downloads_into_the_cache_once(monkeypatch, tmp_path, cache, small_idx, server):
    redirect(monkeypatch, "mnist", server.address)
    write_idx(server.folder, small_idx)
    monkeypatch.setenv("UULEARN_DATA", str(tmp_path / "named"))
    assert idx(load_images("mnist").train_images) == small_idx[IMAGES]
    assert files_under(cache) == {f"mnist/{file}.gz" for file in IDX_FILES}
    assert not (tmp_path / "named").exists()
    assert len(server.requests) == 4
    load_images("mnist")
    assert len(server.requests) == 4


def test_downloaded_files_have_the_usual_mode(monkeypatch, tmp_path, small_idx, server):
    redirect(monkeypatch, "mnist", server.address)
    write_idx(server.folder, small_idx)
    load_images("mnist", data_dir=tmp_path / "data")
    (plain := tmp_path / "plain").touch()
    modes = {path.stat().st_mode for path in (tmp_path / "data" / "mnist").iterdir()}
    assert modes == {plain.stat().st_mode}


def test_incomplete_folder_is_completed(monkeypatch, tmp_path, cache, small_idx, server):
    redirect(monkeypatch, "kmnist", server.address)
    write_idx(server.folder, small_idx)
    folder = tmp_path / "data"
    write_idx(folder / "kmnist", {IMAGES: small_idx[IMAGES]}, compress=False)
    write_idx(folder / "kmnist", {LABELS: small_idx[LABELS]})
    load_images("kmnist", data_dir=folder)
    assert sorted(server.requests) == [f"/{file}.gz" for file in sorted(IDX_FILES[2:])]
    assert files_under(folder) == {f"kmnist/{name}" for name in (IMAGES, *(f"{file}.gz" for file in IDX_FILES[1:]))}
    assert not cache.exists()


def test_tries_the_next_address_after_a_failure(monkeypatch, tmp_path, small_idx, server):
    redirect(monkeypatch, "mnist", f"{server.address}gone/", "http://127.0.0.1:9/", server.address)
    write_idx(server.folder, small_idx)
    load_images("mnist", data_dir=tmp_path / "data")
    assert server.requests[:2] == [f"/gone/{IMAGES}.gz", f"/{IMAGES}.gz"]


def test_download_with_wrong_checksum_is_discarded(monkeypatch, tmp_path, small_idx, server):
    redirect(monkeypatch, "mnist", server.address)
    write_idx(server.folder, small_idx | {IDX_FILES[2]: b"something else"})
    with pytest.raises(DatasetNotFoundError) as error:
        load_images("mnist", data_dir=tmp_path / "data")
    host = server.address.split("/")[2]
    assert one_sentence(error) == (
        f"MNIST could not be downloaded (t10k-images-idx3-ubyte.gz from {host} has a wrong checksum); put "
        f"t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz into {tmp_path / 'data' / 'mnist'}."
    )
    assert files_under(tmp_path / "data") == {f"mnist/{file}.gz" for file in IDX_FILES[:2]}


def test_error_for_missing_file_and_failed_connection(monkeypatch, tmp_path, small_idx, server):
    redirect(monkeypatch, "mnist", server.address, "http://127.0.0.1:9/")
    with pytest.raises(DatasetNotFoundError) as error:
        load_images("mnist", data_dir=tmp_path / "data")
    host = server.address.split("/")[2]
    text = one_sentence(error)
    assert f"({host} returned 404 for {IMAGES}.gz, the connection to 127.0.0.1:9 failed); put {IMAGES}.gz, " in text
    assert files_under(tmp_path / "data") == set()


def test_interrupted_download_is_discarded(monkeypatch, tmp_path, small_idx, server):
    def send_half(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        handler.wfile.write(b"x" * 500)
        handler.close_connection = True

    monkeypatch.setattr(Handler, "do_GET", send_half)
    redirect(monkeypatch, "mnist", server.address)
    with pytest.raises(DatasetNotFoundError) as error:
        load_images("mnist", data_dir=tmp_path / "data")
    assert f"(the connection to {server.address.split('/')[2]} failed)" in one_sentence(error)
    assert files_under(tmp_path / "data") == set()


def test_error_for_unwritable_folder(monkeypatch, tmp_path, small_idx, server):
    redirect(monkeypatch, "mnist", server.address)
    (tmp_path / "data").write_text("a file, not a folder")
    with pytest.raises(DatasetNotFoundError) as error:
        load_images("mnist", data_dir=tmp_path / "data")
    assert f"cannot write into {tmp_path / 'data' / 'mnist'}: " in one_sentence(error)


def test_extracts_only_the_files_of_cifar(monkeypatch, tmp_path, small_cifar, server):
    hostile = [tarfile.TarInfo("../outside.bin"), tarfile.TarInfo("/outside.bin"), tarfile.TarInfo("batches.meta.txt")]
    link = tarfile.TarInfo("data_batch_1.bin")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    packed = archive_of(small_cifar, [*hostile, link])
    (server.folder / CIFAR_ARCHIVE).write_bytes(packed)
    redirect(monkeypatch, "cifar10", server.address, downloads={CIFAR_ARCHIVE: md5(packed)})
    folder = tmp_path / "data"
    assert load_images("cifar10", data_dir=folder).train_images.shape == (50, 3, 32, 32)
    assert files_under(folder) == {f"cifar-10-batches-bin/{file}" for file in CIFAR_FILES}
    assert sorted(path.name for path in (folder / "cifar-10-batches-bin").iterdir()) == sorted(CIFAR_FILES)
    assert not list(tmp_path.rglob("outside.bin"))
    load_images("cifar10", data_dir=folder)
    assert server.requests == [f"/{CIFAR_ARCHIVE}"]


def test_existing_cifar_files_are_kept(monkeypatch, tmp_path, small_cifar, server):
    packed = archive_of(small_cifar)
    (server.folder / CIFAR_ARCHIVE).write_bytes(packed)
    redirect(monkeypatch, "cifar10", server.address, downloads={CIFAR_ARCHIVE: md5(packed)})
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    write_cifar(folder, {"data_batch_4.bin": small_cifar["data_batch_4.bin"][::-1]})
    before = (folder / "data_batch_4.bin").read_bytes()
    load_images("cifar10", data_dir=tmp_path / "data")
    assert (folder / "data_batch_4.bin").read_bytes() == before


@pytest.mark.parametrize(("lacking", "checksum", "words"), [
    (True, True, f"({CIFAR_ARCHIVE} does not contain data_batch_3.bin); put data_batch_3.bin into "),
    (False, False, "has a wrong checksum); put data_batch_1.bin, "),
])  # fmt: skip
def test_error_for_wrong_archive(monkeypatch, tmp_path, small_cifar, server, lacking, checksum, words):
    if lacking:
        del small_cifar["data_batch_3.bin"]
    packed = archive_of(small_cifar)
    (server.folder / CIFAR_ARCHIVE).write_bytes(packed)
    redirect(monkeypatch, "cifar10", server.address, downloads={CIFAR_ARCHIVE: md5(packed if checksum else b"")})
    with pytest.raises(DatasetNotFoundError) as error:
        load_images("cifar10", data_dir=tmp_path / "data")
    assert words in one_sentence(error)
    kept = set(small_cifar) if lacking else set()
    folder = tmp_path / "data" / "cifar-10-batches-bin"
    assert {path.name for path in folder.iterdir()} == kept if kept else not folder.parent.exists()


# --- The real files --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def real_cifar(tmp_path_factory):
    if (DATA / "cifar-10-batches-bin").is_dir():
        return DATA
    if not (DATA / "unpack_cifar10.py").is_file():
        pytest.skip("no CIFAR-10 in the data folder (UULEARN_DATA)")
    folder = tmp_path_factory.mktemp("real")
    subprocess.run([sys.executable, DATA / "unpack_cifar10.py", folder], check=True, capture_output=True)
    return folder


@pytest.mark.parametrize(("name", "prior", "first"), [
    ("mnist", 0.4926, [5, 0, 4, 1, 9]), ("fashion_mnist", 0.4, [9, 0, 0, 3, 0]), ("kmnist", 0.3, [8, 7, 0, 1, 4]),
])  # fmt: skip
def test_real_idx_files(name, prior, first):
    if not (DATA / SOURCES[name].folders[0]).is_dir():
        pytest.skip(f"no {SOURCES[name].title} in the data folder (UULEARN_DATA)")
    images = load_images(name, data_dir=DATA, download=False)
    assert images.train_images.shape == (60_000, 28, 28)
    assert images.test_images.shape == (10_000, 28, 28)
    assert images.train_labels[:5].tolist() == first
    if name != "mnist":
        assert np.bincount(images.train_labels).tolist() == [6_000] * 10
    task = load_task(name, data_dir=DATA, download=False)
    assert task.prior == prior
    assert (task.X_test == images.test_images).all()
    assert task.y_train.shape == (60_000,)
    if name == "kmnist":
        assert task.y_train.sum() == 18_000


def test_real_cifar(real_cifar):
    images = load_images("cifar10", data_dir=real_cifar, download=False)
    assert images.train_images.shape == (50_000, 3, 32, 32)
    assert np.bincount(images.train_labels).tolist() == [5_000] * 10
    assert np.bincount(images.test_labels).tolist() == [1_000] * 10
    mean = images.train_images.mean(axis=(0, 2, 3)) / 255
    np.testing.assert_allclose(mean, (0.49139968, 0.48215841, 0.44653091), atol=1e-8)
    task = load_task("cifar10", data_dir=real_cifar, download=False)
    assert task.prior == 0.6
    assert task.flat().row_shape == (3_072,)
