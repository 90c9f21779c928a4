"""`UUClassifier.check_rows`: kinds of models and rows, stored statistics, and Kuzushiji-MNIST."""

import dataclasses
import hashlib
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import load, save
from scipy import sparse

from helpers.data import data_folder
from helpers.manifests import put, rewrite
from uulearn import UUClassifier
from uulearn.datasets import load_task, make_sets
from uulearn.estimator import new_rows, self_training
from uulearn.estimator.new_rows import RowCounter
from uulearn.exceptions import ModelFormatError
from uulearn.streaming import RowStream

PRIORS = (0.8, 0.2)


def draw(n, prior, seed, columns=5):
    rng = np.random.default_rng(seed)
    return rng.normal((rng.random((n, 1)) < prior) * 1.5, 1, (n, columns)).astype(np.float32)


SETS = [draw(800, prior, seed) for seed, prior in enumerate(PRIORS)]
NEW, MOVED = draw(600, 0.35, 7), draw(600, 0.35, 8) + np.float32([0.6, 0, 0, 0, 0])


def classifier(**parameters):
    return UUClassifier(PRIORS, random_state=0, progress=False, **{"model": "linear", "epochs": 5} | parameters)


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit_sets(*SETS)


def test_mixtures_pass_and_moved_rows_do_not(fitted):
    fine, moved = fitted.check_rows(NEW), fitted.check_rows(MOVED)
    assert not fine.alarm
    assert moved.alarm
    assert moved.p_scores is not None
    assert moved.columns[0][0] == "column 0"
    assert moved.columns[0][1] > 3
    assert fitted.with_target_prior(0.1).check_rows(MOVED) == moved  # it does not depend on the target prior


def test_scores_of_all_models_are_compared(fitted, monkeypatch):
    """Rows that differ only in the score: one class is replaced by copies of the most certain rows."""
    scores = fitted.decision_function(NEW)
    certain = NEW[np.argsort(np.abs(scores))[-60:]]
    assert fitted.check_rows(np.repeat(certain, 10, axis=0)).p_scores < 1e-6
    counter = RowCounter(fitted)
    fitted.score_and_count(NEW, counter)
    assert counter.counts.scores.sum() == 5 * len(NEW)
    monkeypatch.setattr(new_rows, "SCORED_ROWS", 70)
    limited = RowCounter(fitted)
    for chunk in np.array_split(NEW, 12):
        fitted.score_and_count(chunk, limited)
    assert limited.counts.scores.sum() == 5 * 70
    np.testing.assert_array_equal(limited.counts.above, counter.counts.above)


def test_chunks_give_the_same_result(fitted, monkeypatch):
    whole = fitted.check_rows(MOVED)
    monkeypatch.setattr(new_rows, "COUNTED_VALUES", 64)
    assert fitted.check_rows(MOVED) == whole
    counter = RowCounter(fitted)
    for chunk in np.array_split(MOVED, 7):
        fitted.score_and_count(chunk, counter)
    assert counter.check() == whole


def test_rows_that_another_process_counts_are_added(fitted):
    for trained in (fitted, fitted.submodel(0), classifier().fit_sets(*(X[:40] for X in SETS))):
        workers, total = [RowCounter(trained) for _ in range(2)], RowCounter(trained)
        for worker, chunk in zip(workers, np.array_split(MOVED, 2), strict=True):
            trained.score_and_count(chunk, worker)
            total.add_counts(pickle.loads(pickle.dumps(worker.counts)))
        assert total.check() == trained.check_rows(MOVED)
        assert total.check().rows == 600


def test_sparse_rows_and_rows_with_names(fitted):
    expected = dataclasses.replace(fitted.check_rows(MOVED), columns=())
    other = classifier().fit_sets(*map(sparse.csr_array, SETS))
    assert dataclasses.replace(other.check_rows(sparse.csr_array(MOVED)), columns=()) == expected
    frames = [pd.DataFrame(X, columns=list("abcde")) for X in (*SETS, MOVED)]
    named = classifier(encoder=None).fit_sets(*frames[:2]).check_rows(frames[2])
    assert (named.columns[0][0], named.p_inputs) == ("a", expected.p_inputs)


def test_wide_rows_are_compared_in_some_columns(monkeypatch):
    monkeypatch.setattr(new_rows, "MAX_COLUMNS", 3)
    monkeypatch.setattr(new_rows, "REFERENCE_VALUES", 3 * 500)
    few = classifier().fit_sets(*SETS)
    assert few.row_reference_.columns.tolist() == [0, 2, 4]
    assert few.row_reference_.sizes.tolist() == [500, 500]
    assert few.check_rows(MOVED).alarm
    assert not few.check_rows(NEW).alarm


def test_few_rows_and_models_without_statistics_say_so(fitted, tmp_path):
    few = fitted.check_rows(MOVED[:49])
    assert (few.alarm, few.p_value, few.note) == (False, None, "at least 50 rows are needed")
    small = classifier().fit_sets(*(X[:40] for X in SETS))
    check = small.check_rows(MOVED)
    assert not check.alarm
    assert str(check) == (
        "600 rows were not compared with the two sets: the model has no statistics of its sets, because one of its "
        "sets has 40 rows; at least 50 are needed"
    )
    small.save(tmp_path / "small")
    assert UUClassifier.load(tmp_path / "small").check_rows(MOVED) == check
    several = classifier(epochs=20, lr=0.1).set_params(set_priors=(*PRIORS, 0.35)).fit_sets(*SETS, NEW)
    assert several.check_rows(MOVED).note.endswith("because it was trained on more than two sets")
    fitted.save(tmp_path / "old")
    rewrite(tmp_path / "old", lambda manifest: manifest["files"].pop("reference"))  # as an older version wrote it
    assert "an older version" in UUClassifier.load(tmp_path / "old").check_rows(MOVED).note
    with pytest.raises(ValueError, match="trained with set_priors=None"):
        UUClassifier(None, method="biased", model="linear", epochs=1).fit_sets(*SETS).check_rows(NEW)


def test_single_models_compare_the_scores_of_validation_rows():
    single = classifier(n_estimators=1, validation_fraction=0.3).fit_sets(*SETS)
    assert single.row_reference_.scores.sum() == sum(single.held_out_sizes_) == 480
    counter = RowCounter(single)
    np.testing.assert_array_equal(single.score_and_count(MOVED, counter), single.decision_function(MOVED))
    assert counter.check() == single.check_rows(MOVED)
    assert counter.check().p_scores is not None


def test_scores_are_not_compared_without_scores_of_other_rows(fitted, monkeypatch):
    def use_round_1(rounds):
        return min(1, len(rounds) - 1)

    with monkeypatch.context() as patch:
        patch.setattr(self_training, "_best_round", use_round_1)
        self_trained = classifier(self_training_rounds=1, n_estimators=2, lr=0.1).fit_sets(*SETS)
    for unscored in (
        self_trained,
        fitted.submodel(0),
        classifier(n_estimators=1, validation_fraction=0.0).fit_sets(*SETS),
    ):
        check = unscored.check_rows(MOVED)
        assert (check.p_scores, check.alarm) == (None, True)
        assert "scores were not compared" in check.note


class Streamed(RowStream):
    """A set of 2,000 rows in memory that is read in pieces."""

    piece_sizes = (500,) * 4

    def __init__(self, X):
        self.X, self.row_shape = torch.from_numpy(X), X.shape[1:]

    def read(self, piece):
        """Return one of four pieces."""
        return self.X[500 * piece : 500 * (piece + 1)]

    def describe(self):
        """Return a description for error messages."""
        return "a stream"


def test_streams_are_compared_with_their_held_out_rows():
    streams = [Streamed(draw(2_000, prior, seed)) for seed, prior in enumerate(PRIORS)]
    held_out = classifier(validation_fraction=0.2).fit_sets(*streams)
    assert held_out.row_reference_.sizes.tolist() == [400, 400]
    assert held_out.check_rows(MOVED).alarm
    assert not held_out.check_rows(NEW).alarm
    none = classifier(validation_fraction=0.0).fit_sets(*streams).check_rows(MOVED)
    assert none.note.endswith("no rows of the streams were held out; pass validation_fraction")


def test_text_columns_are_left_out():
    """The encoder of text is fitted to the rows of the sets, so new random words have other features."""
    rng = np.random.default_rng(0)

    def frame(X):
        words = [" ".join(own) for own in rng.integers(2_000, size=(len(X), 4)).astype(str)]
        return pd.DataFrame(X, columns=list("abcde")).assign(note=words, kind=rng.choice(list("xyz"), len(X)))

    fitted = classifier().fit_sets(*map(frame, SETS))
    fine, moved = (fitted.check_rows(frame(X)) for X in (NEW, MOVED))
    assert (fine.alarm, fine.p_scores, moved.alarm) == (False, None, True)
    assert "text columns were not compared" in fine.note
    assert "a" in dict(moved.columns)
    assert "note" not in dict(moved.columns)
    only = classifier().fit_sets(*(frame(X)[["note"]] for X in SETS)).check_rows(frame(MOVED)[["note"]])
    assert only.p_value is None
    assert str(only).startswith("600 rows were not compared with the two sets: scores and text columns")


def test_round_trip_and_tampered_statistics(fitted, tmp_path):
    fitted.save(tmp_path)
    (path,) = tmp_path.glob("reference-*.safetensors")
    assert path.stat().st_size < 10_000
    assert UUClassifier.load(tmp_path).check_rows(MOVED) == fitted.check_rows(MOVED)
    arrays = load(path.read_bytes())
    arrays["above"] = arrays["above"] * 100
    content = save(arrays)
    path.write_bytes(content)
    with pytest.raises(ModelFormatError, match="was altered after it was saved"):
        UUClassifier.load(tmp_path)
    entry = {"name": path.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    rewrite(tmp_path, put("files", "reference", entry))
    with pytest.raises(ModelFormatError, match="reference has counts that are negative or larger than the sets"):
        UUClassifier.load(tmp_path)


@pytest.mark.skipif(not (data_folder() / "kmnist").is_dir(), reason="no Kuzushiji-MNIST in the data folder")
def test_test_rows_of_kuzushiji_mnist_raise_an_alarm():
    task = load_task("kmnist", data_dir=data_folder(), download=False)
    X, X_test = (
        images.reshape(-1, 28, 28)[:, ::2, ::2].reshape(len(images), -1) / np.float32(255)
        for images in (task.X_train, task.X_test)
    )
    drawn = make_sets(X[:15_000], task.y_train[:15_000], PRIORS, (2_000, 2_000), random_state=0)
    fitted = classifier(model="mlp").fit_sets(drawn.X0, drawn.X1)
    assert not fitted.check_rows(X[-2_000:]).alarm
    shifted = fitted.check_rows(X_test[:2_000])
    assert shifted.alarm
    assert max(shifted.p_scores, shifted.p_inputs) < 0.01
