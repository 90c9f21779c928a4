"""A killed run can be resumed and ends bit-identical to an uninterrupted run."""

import errno
import functools
import json
import signal
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from helpers.plain import plain_classifier
from helpers.processes import Program
from uulearn.exceptions import CheckpointError
from uulearn.selection.trials import FoldStore
from uulearn.storage import load_tree, save_tree, write_atomically
from uulearn.training.checkpoint import CHECKPOINT_NAME, Checkpoint, stored_seed

RUN = """
    import sys, numpy as np, torch
    from uulearn import UUClassifier
    from uulearn.training import TrainingOptions

    torch.set_num_threads(1)
    folder, out, pause = sys.argv[1], sys.argv[2], float(sys.argv[3])
    rng = np.random.default_rng(0)
    X0, X1 = rng.normal(size=(300, 6)) + 0.5, rng.normal(size=(200, 6)) - 0.5

    def slow(record, model):
        print(record["epoch"], flush=True)
        if pause:
            import time
            time.sleep(pause)

    classifier = UUClassifier(
        (0.8, 0.2), 0.5, model_params={"hidden": (16, 16), "dropout": 0.3}, epochs=30, batch_size=100, lr=0.01,
        training=TrainingOptions(
            ema=0.9, scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 30),
            checkpoint_dir=folder or None, checkpoint_every=1,
        ),
        random_state=3,
        method="leaky_relu", loss="logistic", l2=0.0, early_stopping=False, patience=None, calibrated=False,
    )
    classifier.fit_sets(X0, X1, validation_data=(np.concatenate([X0, X1])[::5], np.repeat([0, 1], [300, 200])[::5]),
                        callback=slow)
    from safetensors.torch import save_file
    save_file(dict(classifier.model_.state_dict()), out)
    import json, pathlib
    records = [{k: v for k, v in r.items() if k != "seconds"} for r in classifier.history_]
    pathlib.Path(out + ".json").write_text(json.dumps([records, classifier.history_.resumed_at]))
"""


def start(script, folder, out, pause):
    return Program(script, folder, out, pause)


def finish(program):
    return program.read()[0]


def test_run_resumed_after_sigkill_equals_uninterrupted_run(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(textwrap.dedent(RUN))
    assert finish(start(script, "", tmp_path / "unbroken", 0)) == 0

    rng = np.random.default_rng(1)
    folder, out = tmp_path / "checkpoints", tmp_path / "resumed"
    kills = 0
    for _ in range(4):  # killed at different moments
        program = start(script, folder, out, 0.02)
        program.wait_for(program.out.read_text)  # training has started
        time.sleep(float(rng.uniform(0.02, 0.12)))
        if program.running():
            program.kill()
            kills += 1
        finish(program)
    assert kills >= 3
    assert finish(start(script, folder, out, 0)) == 0

    expected, resumed = load_file(tmp_path / "unbroken"), load_file(out)
    assert expected.keys() == resumed.keys()
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)
    expected_records, _ = json.loads((tmp_path / "unbroken.json").read_text())
    records, resumed_at = json.loads((tmp_path / "resumed.json").read_text())
    assert records == expected_records
    assert len(resumed_at) >= 1
    assert max(resumed_at) > 0


def fit(folder, gaussians, callback=None, **changes):
    arguments = {
        "epochs": 6,
        "checkpoint_every": 2,
        "random_state": 0,
        "model_params": {"hidden": (8,)},
    } | changes
    classifier = plain_classifier((0.8, 0.2), 0.5, checkpoint_dir=folder, **arguments)
    return classifier.fit_sets(gaussians["X0"], gaussians["X1"], callback=callback)


def test_finished_run_is_not_repeated_and_can_be_extended(tmp_path, gaussians):
    first = fit(tmp_path / "a", gaussians)
    again = fit(tmp_path / "a", gaussians)
    assert again.history_.resumed_at == [6]
    assert again.history_.stop_reason == "all 6 epochs done"
    np.testing.assert_array_equal(first.decision_function(gaussians["X"]), again.decision_function(gaussians["X"]))
    longer = fit(tmp_path / "a", gaussians, epochs=9)
    straight = fit(tmp_path / "b", gaussians, epochs=9)
    np.testing.assert_array_equal(longer.decision_function(gaussians["X"]), straight.decision_function(gaussians["X"]))


def test_resumed_run_without_seed_uses_stored_seed(tmp_path, gaussians):
    first = fit(tmp_path, gaussians, random_state=None)
    again = fit(tmp_path, gaussians, random_state=None)
    assert first.seed_ == again.seed_
    np.testing.assert_array_equal(first.decision_function(gaussians["X"]), again.decision_function(gaussians["X"]))


def interrupt_model(number, epochs):
    """A callback that interrupts the training of one of several models in its second-to-last epoch."""
    seen = []

    def interrupt(record, _):
        seen.append(record["epoch"])
        if len(seen) == number * epochs + epochs - 1:
            raise KeyboardInterrupt

    return interrupt


@pytest.mark.parametrize("rounds", [0, 1])
def test_resumed_ensemble_without_seed_uses_stored_seed(tmp_path, gaussians, rounds):
    several = {
        "n_estimators": 3,
        "self_training_rounds": rounds,
        "random_state": None,
        "checkpoint_every": 1,
        "model": "linear",
    }
    several |= {"model_params": None}
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "a", gaussians, callback=interrupt_model(1, 6), **several)
    resumed = fit(tmp_path / "a", gaussians, **several)
    assert [history.resumed_at for history in resumed.history_.models][:1] == ([[6]] if not rounds else [[]])
    unbroken = fit(tmp_path / "b", gaussians, **several | {"random_state": resumed.seed_})
    np.testing.assert_array_equal(resumed.decision_function(gaussians["X"]), unbroken.decision_function(gaussians["X"]))
    other = fit(tmp_path / "c", gaussians, **several)
    assert other.seed_ != resumed.seed_


def test_stored_ensemble_seed_belongs_to_its_checkpoints(tmp_path, gaussians):
    several = {"n_estimators": 2, "model": "linear", "model_params": None}
    first = fit(tmp_path, gaussians, **several | {"random_state": None})
    with pytest.raises(CheckpointError, match="different: .*seed"):
        fit(tmp_path, gaussians, **several | {"random_state": first.seed_ + 1})
    assert stored_seed(tmp_path) == first.seed_  # unchanged by the rejected fit
    for checkpoint in tmp_path.rglob(CHECKPOINT_NAME):
        checkpoint.unlink()
    assert stored_seed(tmp_path) is None
    assert fit(tmp_path, gaussians, **several | {"random_state": 8}).seed_ == stored_seed(tmp_path) == 8
    again = fit(tmp_path, gaussians, **several | {"random_state": None})
    assert [history.resumed_at for history in again.history_.models] == [[6], [6]]


def test_single_model_stores_one_file(tmp_path, gaussians):
    fit(tmp_path, gaussians, n_estimators=1)
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT_NAME]


def test_rejects_unwritable_folder_before_training_an_ensemble(tmp_path, gaussians):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"model-0.*cannot be written .*choose another checkpoint_dir"):
        fit(tmp_path / "file", gaussians, n_estimators=2)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"lr": 0.5}, "lr"),
        ({"method": "abs"}, "risk"),
        ({"model_params": {"hidden": (9,)}}, "model"),
        ({"random_state": 1}, "model, seed"),
    ],
)
def test_rejects_checkpoint_of_another_run(tmp_path, gaussians, changes, named):
    fit(tmp_path, gaussians)
    with pytest.raises(CheckpointError, match=rf"another run \(different: {named}\)"):
        fit(tmp_path, gaussians, **changes)


def test_fingerprint_includes_code_and_layers_without_weights(tmp_path, gaussians):
    def stepped(optimizer, size):
        return torch.optim.lr_scheduler.StepLR(optimizer, size)

    cases = [
        (
            {"model_params": {"hidden": (8,), "dropout": 0.1}},
            {"model_params": {"hidden": (8,), "dropout": 0.5}},
            "model",
        ),
        ({"loss": lambda z: torch.exp(-z)}, {"loss": lambda z: torch.relu(1 - z)}, "risk"),
        ({"slope": -0.1}, {"slope": -0.10000001}, "risk"),
        (
            {"scheduler": functools.partial(stepped, size=2)},
            {"scheduler": functools.partial(stepped, size=3)},
            "scheduler",
        ),
    ]
    for number, (first, second, named) in enumerate(cases):
        folder = tmp_path / str(number)
        fit(folder, gaussians, **first)
        assert fit(folder, gaussians, **first).history_.resumed_at == [6]
        with pytest.raises(CheckpointError, match=rf"different: {named}\)"):
            fit(folder, gaussians, **second)


def test_fingerprint_detects_a_single_changed_row(tmp_path, gaussians):
    fit(tmp_path, gaussians)
    X0 = gaussians["X0"].copy()
    X0[123, 1] += 1e-3
    with pytest.raises(CheckpointError, match="different: data"):
        fit(tmp_path, gaussians | {"X0": X0})


def test_rejects_fewer_epochs_than_stored(tmp_path, gaussians):
    fit(tmp_path, gaussians)
    with pytest.raises(CheckpointError, match="has 6 finished epochs, more than epochs=2"):
        fit(tmp_path, gaussians, epochs=2)


def test_rejects_unusable_folder_before_training(tmp_path, gaussians):
    path = tmp_path / "file"
    path.write_text("mine")
    seen = []
    with pytest.raises(CheckpointError, match="cannot be written.*choose another"):
        plain_classifier((0.8, 0.2), epochs=2, checkpoint_dir=path).fit_sets(
            gaussians["X0"], gaussians["X1"], callback=lambda record, model: seen.append(record)
        )
    assert seen == []
    assert path.read_text() == "mine"


def test_resumed_history_says_that_labels_were_used(tmp_path, gaussians):
    fit(tmp_path, gaussians)
    arguments = {"epochs": 8, "checkpoint_every": 2, "random_state": 0, "model_params": {"hidden": (8,)}}
    classifier = plain_classifier((0.8, 0.2), 0.5, checkpoint_dir=tmp_path, **arguments)
    classifier.fit_sets(gaussians["X0"], gaussians["X1"], test_data=(gaussians["X_test"], gaussians["y_test"]))
    assert classifier.history_.labels_used
    accuracies = classifier.history_.column("test_accuracy")
    assert accuracies[:6] == [None] * 6
    assert isinstance(accuracies[7], float)
    with pytest.raises(KeyError, match="'validation_unbiased' was not recorded in any epoch"):
        classifier.history_.column("validation_unbiased")


def test_ignores_files_of_a_write_that_was_killed(tmp_path, gaussians):
    """The process dies while the new checkpoint has its temporary name."""
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(RUN).replace(
            "torch.set_num_threads(1)",
            "torch.set_num_threads(1)\n"
            "import os, pathlib, signal\n"
            "plain, calls = pathlib.Path.replace, []\n"
            "def replace(self, target):\n"
            "    calls.append(target)\n"
            "    if len(calls) == 8 and not os.path.exists(sys.argv[1] + '/killed'):\n"
            "        open(sys.argv[1] + '/killed', 'w').close()\n"
            "        os.kill(os.getpid(), signal.SIGKILL)\n"
            "    return plain(self, target)\n"
            "pathlib.Path.replace = replace\n",
        )
    )
    folder = tmp_path / "checkpoints"
    assert finish(start(script, folder, tmp_path / "resumed", 0)) == -signal.SIGKILL
    assert len(list(folder.glob(".*.tmp"))) == 1
    assert finish(start(script, folder, tmp_path / "resumed", 0)) == 0
    assert list(folder.glob(".*.tmp")) == []
    assert finish(start(script, "", tmp_path / "unbroken", 0)) == 0
    expected, resumed = load_file(tmp_path / "unbroken"), load_file(tmp_path / "resumed")
    assert all(torch.equal(expected[name], resumed[name]) for name in expected)


@pytest.mark.parametrize("optimizer", ["sgd", torch.optim.RMSprop, torch.optim.NAdam, torch.optim.LBFGS])
@pytest.mark.parametrize(
    "scheduler",
    [
        torch.optim.lr_scheduler.ReduceLROnPlateau,
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.1, total_steps=20, cycle_momentum=False),
        lambda o: torch.optim.lr_scheduler.SequentialLR(
            o,
            [torch.optim.lr_scheduler.ConstantLR(o), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)],
            milestones=[2],
        ),
    ],
)
def test_optimizers_and_schedulers_resume_exactly(tmp_path, gaussians, optimizer, scheduler):
    options = {"optimizer": optimizer, "scheduler": scheduler, "model": "linear", "model_params": None, "lr": 0.01}
    whole = fit(tmp_path / "whole", gaussians, **options, epochs=7)
    fit(tmp_path / "parts", gaussians, **options, epochs=3)
    parts = fit(tmp_path / "parts", gaussians, **options, epochs=7)
    assert parts.history_.resumed_at == [3]
    np.testing.assert_array_equal(whole.decision_function(gaussians["X"]), parts.decision_function(gaussians["X"]))


def test_rejects_checkpoint_of_other_data(tmp_path, gaussians):
    fit(tmp_path, gaussians)
    with pytest.raises(CheckpointError, match="different: data"):
        fit(tmp_path, gaussians | {"X0": gaussians["X0"] + 0.1})


def flip_bit(content):
    """Change a weight slightly, which only a checksum detects."""
    return content[:-21] + bytes([content[-21] ^ 1]) + content[-20:]


@pytest.mark.parametrize("damage", [lambda b: b[:-20], lambda b: b"", lambda b: b"\xff" * len(b), flip_bit])
def test_rejects_damaged_checkpoints(tmp_path, gaussians, damage):
    fit(tmp_path, gaussians)
    path = tmp_path / CHECKPOINT_NAME
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=r"damaged.*Delete the file"):
        fit(tmp_path, gaussians)


@pytest.mark.parametrize("other", [2, 99])
def test_rejects_other_checkpoint_formats(other, tmp_path, gaussians):
    save_tree(tmp_path / CHECKPOINT_NAME, {"format": other})
    with pytest.raises(CheckpointError, match=f"checkpoint format {other}, but this version reads 3"):
        fit(tmp_path, gaussians)


def test_rejects_state_that_needs_pickle(tmp_path, gaussians):
    class Odd(torch.optim.SGD):
        def state_dict(self):
            return super().state_dict() | {"odd": object()}

    with pytest.raises(CheckpointError, match="object cannot be stored without pickle"):
        fit(tmp_path, gaussians, optimizer=Odd)


def test_trees_round_trip_exactly(tmp_path):
    tree = {
        "numbers": [0.1, float("inf"), -0.0, 1 / 3, 7, True, None, "text"],
        3: (torch.arange(4), torch.tensor(2.5, dtype=torch.float64), {"empty": torch.zeros(0, 3)}),
    }
    save_tree(tmp_path / "tree", tree)
    back = load_tree(tmp_path / "tree")
    assert back["numbers"] == tree["numbers"]
    assert str(back["numbers"][2]) == "-0.0"
    assert isinstance(back[3], tuple)
    for one, other in zip(back[3][:2], tree[3][:2], strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    assert back[3][2]["empty"].shape == (0, 3)


def test_files_without_checksum_were_written_by_another_version(tmp_path):
    save_file({}, tmp_path / CHECKPOINT_NAME, metadata={"tree": '{"dict": [["format", 1]]}'})
    store = FoldStore(tmp_path)
    (tmp_path / "model.safetensors").write_bytes((tmp_path / CHECKPOINT_NAME).read_bytes())
    expected = r"was written by another version of uulearn \(it has no checksum\); finish the run with that version"
    with pytest.raises(CheckpointError, match=rf"{expected}.*Delete the file to train from the start"):
        Checkpoint(tmp_path).read()
    with pytest.raises(CheckpointError, match=rf"{expected}.*Delete the file to train this model again"):
        store.get("model", None, ())


def test_failed_write_keeps_old_file_and_leaves_no_temporary_files(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def fails(temporary):
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, fails)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("said", "number"),
    [(f"I/O error: No space left on device (os error {errno.ENOSPC})", errno.ENOSPC), ("InvalidHeaderLength", None)],
)
def test_failed_write_raises_os_error_and_keeps_old_file(tmp_path, monkeypatch, said, number):
    save_tree(tmp_path / "tree", {"a": torch.ones(2)})

    def refuse(tensors, path, metadata):
        Path(path).write_bytes(b"half")
        raise SafetensorError(said)

    monkeypatch.setattr("uulearn.storage.save_file", refuse)
    with pytest.raises(OSError, match="No space left|InvalidHeaderLength") as caught:
        save_tree(tmp_path / "tree", {"a": torch.zeros(2)})
    assert caught.value.errno == number
    assert load_tree(tmp_path / "tree")["a"].tolist() == [1, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["tree"]
