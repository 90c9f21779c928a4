"""Model directories: exact round trips, atomic writes, and no execution of code."""

import hashlib
import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save as save_tensors
from torch import nn

from helpers.manifests import put, rewrite
from helpers.plain import plain_classifier
from uulearn import UUClassifier
from uulearn.estimator import model_directory, persistence
from uulearn.exceptions import ModelFormatError


@pytest.fixture(scope="module")
def fitted(gaussians):
    frame = pd.DataFrame(gaussians["X"], columns=["a", "b", "c"])
    return plain_classifier(
        (0.8, 0.2),
        0.4,
        model_params={"hidden": (8, 8)},
        epochs=3,
        ema=0.9,
        random_state=0,
        optimizer=torch.optim.RAdam,
        encoder=None,
    ).fit(frame, gaussians["sets"])


@pytest.fixture
def saved(fitted, tmp_path):
    fitted.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def frame(gaussians):
    return pd.DataFrame(gaussians["X_test"], columns=["a", "b", "c"])


def test_round_trip_is_bit_identical(fitted, saved, frame, gaussians):
    loaded = UUClassifier.load(saved)
    np.testing.assert_array_equal(loaded.decision_function(frame), fitted.decision_function(frame))
    np.testing.assert_array_equal(loaded.predict_proba(frame), fitted.predict_proba(frame))
    assert loaded.get_params() == fitted.get_params()
    assert loaded.history_ == fitted.history_
    assert loaded.summary() == fitted.summary()
    assert loaded.feature_names_in_.tolist() == ["a", "b", "c"]
    for name, value in fitted.model_.state_dict().items():
        assert torch.equal(loaded.model_.state_dict()[name], value)
    loaded.set_params(epochs=1).fit(gaussians["X"], gaussians["sets"])  # a loaded model is a full estimator


def test_directory_holds_safetensors_and_json_only(saved):
    assert sorted(path.suffix for path in saved.iterdir()) == [".json", ".json", ".safetensors", ".safetensors"]
    json.loads((saved / "model.json").read_text())


def test_saving_again_replaces_all_files(fitted, saved, frame, gaussians):
    other = plain_classifier((0.8, 0.2), 0.4, model="linear", epochs=1, random_state=1).fit(
        gaussians["X"], gaussians["sets"]
    )
    other.save(saved)
    assert len(list(saved.iterdir())) == 4
    np.testing.assert_array_equal(
        UUClassifier.load(saved).decision_function(gaussians["X"]), other.decision_function(gaussians["X"])
    )


def fill_the_disk(monkeypatch, failing_file):
    """Make writing one kind of file fail."""
    write = model_directory.write_bytes

    def fails(path, content):
        if failing_file in path.name:
            raise OSError("no space left")
        write(path, content)

    monkeypatch.setattr(model_directory, "write_bytes", fails)


@pytest.mark.parametrize("failing_file", ["weights", "history", "model"])
def test_interrupted_save_leaves_old_model_intact(fitted, saved, frame, gaussians, monkeypatch, failing_file):
    other = plain_classifier((0.8, 0.2), 0.4, model="linear", epochs=1, random_state=1).fit(
        gaussians["X"], gaussians["sets"]
    )
    fill_the_disk(monkeypatch, failing_file)
    with pytest.raises(OSError, match="no space"):
        other.save(saved)
    np.testing.assert_array_equal(UUClassifier.load(saved).decision_function(frame), fitted.decision_function(frame))


ATTACHED = {"schema": ("json", b"images"), "facts": ("json", b"{}")}


def test_attached_files_are_returned_and_verified(fitted, tmp_path, frame):
    folder = tmp_path / "model"
    persistence.save(fitted, folder, ATTACHED)
    assert model_directory.read_attached(folder) == {"schema": b"images", "facts": b"{}"}
    np.testing.assert_array_equal(UUClassifier.load(folder).decision_function(frame), fitted.decision_function(frame))
    (schema,) = folder.glob("schema-*.json")
    schema.write_bytes(b"imagez")
    with pytest.raises(ModelFormatError, match=r"schema-.*altered"):
        model_directory.read_attached(folder)
    schema.unlink()
    schema.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFormatError, match="missing or is a link"):
        model_directory.read_attached(folder)


def test_saving_without_attached_files_removes_old_ones(fitted, tmp_path):
    for attached in (ATTACHED, None):
        persistence.save(fitted, tmp_path / "model", attached)
    assert len(list((tmp_path / "model").iterdir())) == 4
    assert model_directory.read_attached(tmp_path / "model") == {}


def test_rejects_directory_of_earlier_format():
    folder = Path(__file__).parents[1] / "fixtures" / "format_1"
    message = (
        r"format_1 has model format 1, written by uulearn .*; this version reads format 3 only, so fit the model again"
    )
    with pytest.raises(ModelFormatError, match=message):
        UUClassifier.load(folder)


@pytest.mark.parametrize("failing_file", ["weights", "schema", "facts", "model"])
def test_save_with_attached_files_is_atomic(fitted, tmp_path, monkeypatch, failing_file):
    folder = tmp_path / "model"
    persistence.save(fitted, folder, ATTACHED)
    fill_the_disk(monkeypatch, failing_file)
    with pytest.raises(OSError, match="no space"):
        persistence.save(fitted, folder, {name: (suffix, b"new") for name, (suffix, _) in ATTACHED.items()})
    assert model_directory.read_attached(folder)["schema"] == b"images"


def test_rejects_saving_to_a_file(fitted, tmp_path):
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        fitted.save(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (put("format_version", 4), "format 4.*install a newer uulearn"),
        (put("format_version", "new"), "format 'new'"),
        (put("format_version", True), "format True"),
        (put("format_version", 0), "format 0"),
        (put("format", "other"), "does not describe a uulearn model"),
        (put("files", "weights", "name", "../../etc/passwd"), "lists the unexpected file"),
        (put("files", "weights", "name", "weights-0000000000000000.safetensors"), "missing or is a link"),
        (put("files", "weights", "bytes", 10), "truncated or was replaced"),
        (put("files", "weights", "sha256", "0" * 64), "SHA-256 does not match"),
        (
            put("parameters", "model_params", {"dict": {"hidden": {"tuple": [10**7, 10**7]}}}),
            "weights do not match the model",
        ),
        (put("learner", "config", "n_models", 10**4), "description of the model is not valid"),
        (
            put("parameters", "model_params", {"dict": {"hidden": {"list": [1] * 10**4}}}),
            "expected a model with 10,001 layers",
        ),
        (put("files", "weights", "bytes", None), "bytes instead of None"),
        (put("parameters", "model", {"code": "os.system"}), "code and therefore not stored"),
        (put("parameters", "training__optimizer", {"torch.optim": "__builtins__"}), "no optimizer"),
        (put("parameters", "epochs", -1), "epochs must be"),
        (put("parameters", "set_priors", {"tuple": [0.5, 0.5]}), "must differ"),
        (put("parameters", "shell", "rm"), "does not support: shell"),
        (put("learner", "kind", "trees"), "needs a learner of kind 'trees', got 'network'"),
        (put("learner", "config", "precision", "__builtins__"), "description of the model is not valid"),
        (put("learner", {}), "cannot be loaded"),
        (put("fitted", "row_shape", [4]), "its feature names do not fit"),
        (put("fitted", {}), "cannot be loaded"),
        (put("files", None), "cannot be loaded"),
    ],
)
def test_rejects_tampered_manifest(saved, change, text):
    rewrite(saved, change)
    with pytest.raises(ModelFormatError, match=text):
        UUClassifier.load(saved)


def test_rejects_edited_manifest(saved):
    path = saved / "model.json"
    path.write_text(path.read_text().replace('"epochs": 3', '"epochs": 4'))
    with pytest.raises(ModelFormatError, match="altered after it was saved"):
        UUClassifier.load(saved)


@pytest.mark.parametrize("name", ["model", "weights", "history"])
@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b[:-1] + bytes([b[-1] ^ 1])])
def test_rejects_damaged_files(saved, name, damage):
    (path,) = saved.glob(f"{name}*")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelFormatError, match=str(saved)):
        UUClassifier.load(saved)


def test_pickle_instead_of_weights_is_not_executed(saved, tmp_path):
    class Bomb:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    content = pickle.dumps(Bomb())
    digest = hashlib.sha256(content).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    (saved / name).write_bytes(content)
    rewrite(saved, put("files", "weights", {"name": name, "bytes": len(content), "sha256": digest}))
    with pytest.raises(ModelFormatError, match="cannot be loaded"):
        UUClassifier.load(saved)
    assert not (tmp_path / "ran").exists()


def replace_file(folder, stem, suffix, content):
    digest = hashlib.sha256(content).hexdigest()
    name = f"{stem}-{digest[:16]}.{suffix}"
    (folder / name).write_bytes(content)
    rewrite(folder, put("files", stem, {"name": name, "bytes": len(content), "sha256": digest}))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda w: w.double() if w.is_floating_point() else w, "weights do not match the model"),
        (lambda w: w * float("nan") if w.is_floating_point() else w, "non-finite values"),
    ],
)
def test_rejects_invalid_weights(saved, fitted, change, text):
    weights = {name: change(value).contiguous() for name, value in fitted.model_.state_dict().items()}
    replace_file(saved, "weights", "safetensors", save_tensors(weights))
    with pytest.raises(ModelFormatError, match=text):
        UUClassifier.load(saved)


@pytest.mark.parametrize("content", [b'{"epochs": 5}', b"[]", b"{}x", b'{"epochs": [3]}', b'{"other": 1}'])
def test_rejects_invalid_history(saved, content):
    replace_file(saved, "history", "json", content)
    with pytest.raises(ModelFormatError, match="cannot be loaded"):
        UUClassifier.load(saved)


@pytest.mark.parametrize("content", [b"[" * 200_000, b"9" * 5000, b"\xff\xfe", b"null"])
def test_rejects_invalid_manifest(saved, content):
    (saved / "model.json").write_bytes(content)
    with pytest.raises(ModelFormatError, match=r"model\.json"):
        UUClassifier.load(saved)


def test_save_stores_arrays_and_rejects_other_objects(tmp_path, gaussians):
    classifier = plain_classifier(
        np.array([0.8, 0.2]), np.float32(0.5), model="linear", epochs=1, checkpoint_dir=tmp_path / "c"
    )
    classifier.fit(gaussians["X"], gaussians["sets"]).save(tmp_path / "model")
    loaded = UUClassifier.load(tmp_path / "model")
    assert list(loaded.set_priors) == [0.8, 0.2]
    assert loaded.training.checkpoint_dir is None
    classifier.set_params(training__optimizer_params={"betas": object()})
    with pytest.raises(ValueError, match="cannot be stored as JSON"):
        classifier.save(tmp_path / "other")


def test_removes_temporary_files_of_killed_save(fitted, saved):
    leftover = saved / ".weights-0123456789abcdef.safetensors.abc.tmp"
    leftover.write_bytes(b"half")
    mine = saved / ".notes"
    mine.write_text("mine")
    fitted.save(saved)
    assert not leftover.exists()
    assert mine.exists()


@pytest.mark.parametrize("failing_file", ["weights", "history", "model"])
def test_new_directory_is_written_atomically(fitted, tmp_path, frame, monkeypatch, failing_file):
    with monkeypatch.context() as patch:
        fill_the_disk(patch, failing_file)
        with pytest.raises(OSError, match="no space"):
            fitted.save(tmp_path / "deep" / "model")
    assert list((tmp_path / "deep").iterdir()) == []
    (tmp_path / "deep" / ".model.0123abcd.saving").mkdir()  # left by a killed process
    (tmp_path / "deep" / ".model.more.0123abcd.saving").mkdir()  # belongs to another model
    fitted.save(tmp_path / "deep" / "model")
    left = {path.name for path in (tmp_path / "deep").iterdir()}
    assert left == {"model", ".model.more.0123abcd.saving"}
    np.testing.assert_array_equal(
        UUClassifier.load(tmp_path / "deep" / "model").decision_function(frame), fitted.decision_function(frame)
    )
    assert (tmp_path / "deep" / "model").stat().st_mode == (tmp_path / "deep").stat().st_mode


@pytest.mark.parametrize("failing_file", ["weights", "history", "model", "card"])
def test_failed_save_changes_nothing(fitted, tmp_path, gaussians, monkeypatch, failing_file):
    persistence.save(fitted, tmp_path, ATTACHED, {"card.md": b"old"})
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = plain_classifier((0.8, 0.2), 0.4, model="linear", epochs=1, random_state=1).fit(
        gaussians["X"], gaussians["sets"]
    )
    with monkeypatch.context() as patch:
        fill_the_disk(patch, failing_file)
        with pytest.raises(OSError, match="no space"):
            persistence.save(other, tmp_path, ATTACHED, {"card.md": b"new"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    persistence.save(other, tmp_path, ATTACHED, {"card.md": b"new"})
    assert (tmp_path / "card.md").read_bytes() == b"new"
    assert len(list(tmp_path.iterdir())) == len(before)


def test_interrupt_after_manifest_is_written_leaves_new_model(fitted, tmp_path, frame, monkeypatch):
    """The interrupt may arrive after the rename but before the next line."""
    replace = type(tmp_path).replace

    def interrupted(self, target):
        done = replace(self, target)
        if target.name == "model.json":
            raise KeyboardInterrupt
        return done

    tmp_path.joinpath("mine.txt").write_text("mine")  # makes save write in place
    with monkeypatch.context() as patch:
        patch.setattr(type(tmp_path), "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fitted.save(tmp_path)
    np.testing.assert_array_equal(UUClassifier.load(tmp_path).decision_function(frame), fitted.decision_function(frame))


def test_saves_to_directory_of_killed_save(fitted, tmp_path):
    assert model_directory.could_be_model(tmp_path)
    for name in (".model.json.new.tmp", "weights-0123456789abcdef.safetensors", "..card.md.new.tmp.abc.tmp"):
        (tmp_path / name).write_bytes(b"half")
    assert model_directory.could_be_model(tmp_path)
    persistence.save(fitted, tmp_path, None, {"card.md": b"new"})
    assert len(list(tmp_path.iterdir())) == 5
    assert model_directory.could_be_model(tmp_path)
    (tmp_path / "model.json").unlink()
    assert not model_directory.could_be_model(tmp_path)  # a card alone may belong to the user


def test_save_rejects_state_that_is_not_a_tensor(tmp_path, gaussians):
    class Stateful(nn.Linear):
        def get_extra_state(self):
            return {"step": 1}

        def set_extra_state(self, state):
            pass

    classifier = plain_classifier((0.8, 0.2), model=Stateful(3, 1), epochs=1).fit(gaussians["X"], gaussians["sets"])
    with pytest.raises(ValueError, match="'_extra_state' is not a tensor"):
        classifier.save(tmp_path)


def test_rejects_links_and_missing_folders(saved, tmp_path):
    (weights,) = saved.glob("weights*")
    shutil.move(weights, tmp_path / "elsewhere")
    weights.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFormatError, match="missing or is a link"):
        UUClassifier.load(saved)
    with pytest.raises(ModelFormatError, match="nowhere does not exist; pass a directory that uulearn fit"):
        UUClassifier.load(tmp_path / "nowhere")


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, x):
        return self.layers(x)


def test_custom_code_must_be_passed_to_load(tmp_path, gaussians):
    classifier = plain_classifier(
        (0.8, 0.2), model=Net, model_params={"width": 5}, epochs=2, loss=lambda z: torch.exp(-z)
    )
    classifier.fit(gaussians["X"], gaussians["sets"]).save(tmp_path)
    with pytest.raises(ModelFormatError, match=r"loss=.*<lambda>.*code.*loss=\.\.\."):
        UUClassifier.load(tmp_path, model=Net)
    loaded = UUClassifier.load(tmp_path, model=Net, loss="logistic")
    np.testing.assert_array_equal(
        loaded.decision_function(gaussians["X"]), classifier.decision_function(gaussians["X"])
    )
    with pytest.raises(ModelFormatError, match="weights do not match the model"):
        UUClassifier.load(tmp_path, model=nn.Linear(3, 1), model_params=None, loss="logistic")
    with pytest.raises(TypeError, match="unknown parameters: modle"):
        UUClassifier.load(tmp_path, modle=Net)
