"""Progress of `uulearn fit`: counted correctly, shown as a bar on a terminal, logged as lines elsewhere."""

import contextlib
import dataclasses
import re
import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.plain import make_classifier
from helpers.terminal import run_on_terminal
from uulearn.cli import main, progress
from uulearn.cli.progress import FitProgress, LogOutput, ProgressOutput, TerminalOutput, progress_output
from uulearn.training import RunOptions
from uulearn.training.batched import BatchedTrainer, Run
from uulearn.training.progress import TRAINING_OBSERVER, StageStarted, TrainingProgress


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


# ------------------------------------------------------------------------------------------------------------ observers


class RecordingObserver(list):
    """A training observer that records all calls."""

    def __call__(self, event):
        self.append(event)


@contextlib.contextmanager
def observe_training(observer):
    before = TRAINING_OBSERVER.set(observer)
    yield
    TRAINING_OBSERVER.reset(before)


class Training:
    """Sends the progress of one training."""

    def __init__(self, progress, epochs, models=1, resumed=0):
        self.send = lambda done, **more: progress(TrainingProgress(epochs, done, models, resumed, **more))
        self.epoch(resumed)

    def epoch(self, done):
        self.done = done
        self.send(done)

    def end(self):
        self.send(self.done, stopped=True)


def events(epochs, last, models=1, resumed=0):
    """All events of a training that ends with the given epoch."""
    sent = [TrainingProgress(epochs, done, models, resumed) for done in range(resumed, last + 1)]
    return [*sent, dataclasses.replace(sent[-1], stopped=True)]


def classifier(**changes):
    return make_classifier(
        (0.8, 0.2), **{"model": "linear", "epochs": 3, "n_estimators": 1, "random_state": 0, "patience": None} | changes
    )


def test_observer_receives_every_model_and_resumed_epochs(gaussians, tmp_path):
    sets = gaussians["X0"], gaussians["X1"]
    with observe_training(observed := RecordingObserver()):
        classifier(n_estimators=2, checkpoint_dir=tmp_path, checkpoint_every=1).fit_sets(*sets)
        classifier(n_estimators=2, checkpoint_dir=tmp_path, epochs=4).fit_sets(*sets)
    assert observed == 2 * events(3, 3) + 2 * events(4, 4, resumed=3)


def test_observer_receives_the_end_of_a_failed_training(gaussians):
    def fail(record, _):
        raise KeyboardInterrupt

    with observe_training(observed := RecordingObserver()), pytest.raises(KeyboardInterrupt):
        classifier().fit_sets(gaussians["X0"], gaussians["X1"], callback=fail)
    assert observed == events(3, 1)


def test_progress_false_and_training_after_the_block_are_not_observed(gaussians):
    with observe_training(outer := RecordingObserver()):
        with observe_training(inner := RecordingObserver()):
            classifier(progress=False).fit_sets(gaussians["X0"], gaussians["X1"])
        classifier(epochs=1).fit_sets(gaussians["X0"], gaussians["X1"])
    classifier().fit_sets(gaussians["X0"], gaussians["X1"])
    assert (inner, outer) == ([], events(1, 1))


def test_batched_training_reports_the_number_of_models(gaussians):
    rows = torch.arange(0, 400), torch.arange(400, 800)
    runs = [Run(rows, (0.8, 0.2), 0.5, slope=slope) for slope in (0.0, -0.1, -0.5)]
    X = torch.tensor(np.concatenate([gaussians["X0"], gaussians["X1"]]), dtype=torch.float32)
    with observe_training(observed := RecordingObserver()):
        BatchedTrainer(X, runs, model="linear", options=RunOptions(epochs=2)).run()
    assert observed == events(2, 2, models=3)


# ------------------------------------------------------------------------------------------------------------- counting


def test_time_left_follows_from_the_epochs_of_all_models(clock):
    progress = FitProgress(clock=clock)
    clock.now = 100.0  # reading takes time, too, but must not count for the speed of training
    progress(StageStarted("training", 4))
    assert progress.text == "training"
    assert progress.fraction is None
    training = Training(progress, 50)
    assert progress.text == "training: 0 of 200 epochs, model 1 of 4"
    assert progress.seconds_left is None
    for done in range(1, 51):
        clock.now += 0.5
        training.epoch(done)
    assert progress.seconds_left == pytest.approx(75.0)
    training.end()
    training = Training(progress, 50)
    clock.now += 0.5
    training.epoch(1)
    assert progress.text == "training: 51 of 200 epochs, model 2 of 4, about 1 min 14 s left"
    assert progress.fraction == pytest.approx(51 / 200)


def test_folds_and_trees_are_named(clock):
    progress = FitProgress(clock=clock)
    progress(StageStarted("training boosting", 5, "fold"))
    progress(TrainingProgress(epochs=200, done=30, models=5, unit="trees"))
    assert progress.text == "training boosting: 150 of 1,000 trees, 5 folds at once, at most 0.0 s left"
    progress(StageStarted("training mlp", 5, "fold"))
    progress(TrainingProgress(epochs=60, done=60, stopped=True))
    progress(TrainingProgress(epochs=60, done=0))
    assert progress.text == "training mlp: 60 of 300 epochs, fold 2 of 5, about 0.0 s left"


def test_each_compared_model_is_a_stage(gaussians):
    pytest.importorskip("lightgbm")
    auto = make_classifier((0.8, 0.2), model="auto", epochs=3, n_estimators=2, random_state=0, patience=None)
    with observe_training(observed := RecordingObserver()):
        auto.fit_sets(gaussians["X0"], gaussians["X1"])
    stages = [StageStarted(f"training {name}", 2, "fold") for name in ("boosting", "mlp")]
    assert [event for event in observed if isinstance(event, StageStarted)] == stages
    trees = [dataclasses.replace(event, unit="trees") for event in events(3, 3, models=2)]
    assert observed == [stages[0], *trees, stages[1], *events(3, 3), *events(3, 3)]
    with observe_training(observed := RecordingObserver()):
        auto.set_params(progress=False).fit_sets(gaussians["X0"], gaussians["X1"])
    assert observed == []


def test_resumed_epochs_count_as_done_but_not_for_the_speed(clock):
    progress = FitProgress(clock=clock)
    progress(StageStarted("training", 2))
    training = Training(progress, 100, resumed=100)  # finished before the interruption
    training.end()
    training = Training(progress, 100, resumed=60)
    clock.now = 10.0
    training.epoch(80)
    assert progress.text == "training: 180 of 200 epochs, model 2 of 2, about 10 s left"


def test_early_stopping_shortens_the_time_left(clock):
    progress = FitProgress(clock=clock)
    progress(StageStarted("training", 2))
    training = Training(progress, 100)
    clock.now = 20.0
    training.epoch(20)
    training.end()
    training = Training(progress, 100)
    assert progress.fraction == pytest.approx(0.5)
    assert progress.seconds_left == pytest.approx(20.0)  # as many epochs as the finished model
    clock.now = 50.0
    training.epoch(30)
    assert progress.seconds_left == 0


def test_each_model_of_a_batched_training_counts(clock):
    progress = FitProgress(clock=clock)
    progress(StageStarted("again", 13))
    training = Training(progress, 200, 13)
    clock.now = 3.0
    training.epoch(50)
    assert progress.text == "again: 650 of 2,600 epochs, 13 models at once, at most 9.0 s left"


def test_models_of_a_stage_may_have_different_numbers_of_epochs(clock):
    observer = FitProgress(clock=clock)
    observer(StageStarted("training", 4))
    observer(TrainingProgress(epochs=200, done=200, models=2, stopped=True))
    observer(TrainingProgress(epochs=60, done=30))
    assert observer.text.startswith("training: 430 of 520 epochs, model 3 of 4")
    assert observer.fraction == pytest.approx(430 / 520)


def test_single_model_is_not_numbered_and_each_stage_restarts_the_count(clock):
    progress = FitProgress(clock=clock)
    for stage in ("training", "again"):
        progress(StageStarted(stage, 1))
        training = Training(progress, 10)
        clock.now += 5.0
        training.epoch(5)
        assert progress.text == f"{stage}: 5 of 10 epochs, at most 5.0 s left"
        training.end()
        assert progress.text == stage
    progress(StageStarted("evaluating"))
    assert progress.text == "evaluating"


@given(
    models=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=8),
    missing=st.integers(0, 3),
)
def test_fraction_rises_from_0_to_1(models, missing):
    """For resumed, stopped and batched trainings, and if more models are trained than announced."""
    progress = FitProgress(clock=Clock())
    progress(StageStarted("training", max(1, sum(at_once for _, _, at_once in models) - missing)))
    fractions = []
    for resumed, own, at_once in models:
        training = Training(progress, 60, at_once, resumed)
        for done in range(resumed + 1, resumed + own + 1):
            training.epoch(done)
            fractions.append(progress.fraction)
        training.end()
        fractions.append(progress.fraction)
    assert all(0 <= fraction <= 1 for fraction in fractions)
    assert fractions[-1] == pytest.approx(1.0)
    if not missing:
        assert fractions == sorted(fractions)


# ------------------------------------------------------------------------------------------------------- lines and bars


def train_for(seconds, output, clock):
    progress = FitProgress(output, clock)
    progress(StageStarted("training", 1))
    training = Training(progress, 3600)
    for second in range(1, seconds + 1):
        clock.now = float(second)
        training.epoch(second)
    training.end()
    return progress


def test_log_lines_become_rarer(clock, capsys):
    train_for(3599, LogOutput(clock), clock)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "   0.0 s  training"
    assert lines[1] == "  10.0 s  training: 10 of 3,600 epochs, at most 59 min 50 s left"
    times = [float(line.split()[0]) for line in lines]
    gaps = np.diff(times)
    assert min(gaps) >= 10
    assert max(gaps) <= 300
    assert 12 < len(lines) < 30


def test_short_fit_logs_one_line_per_stage(clock, capsys):
    progress = train_for(9, LogOutput(clock), clock)
    clock.now = 9.5
    progress(StageStarted("evaluating"))
    assert capsys.readouterr().err == "   0.0 s  training\n   9.5 s  evaluating\n"


def test_quiet_output_is_empty(clock, capsys):
    train_for(60, ProgressOutput(), clock)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("quiet", "terminal", "kind"),
    [(True, True, ProgressOutput), (False, True, TerminalOutput), (False, False, LogOutput)],
)
def test_output_depends_on_the_terminal(monkeypatch, quiet, terminal, kind):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert type(progress_output(quiet)) is kind


# ---------------------------------------------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    for name, prior in (("a.csv", 0.8), ("b.csv", 0.2)):
        y = rng.random(200) < prior
        pd.DataFrame(rng.normal(size=(200, 2)) + 2 * y[:, None], columns=["u", "v"]).to_csv(folder / name, index=False)
    return [
        *("uulearn", "fit", str(folder / "a.csv"), str(folder / "b.csv"), "--set-priors", "0.8", "0.2"),
        *("--model", "linear", "--epochs", "4", "--n-estimators", "3", "--out"),
    ]


def run(monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", list(map(str, arguments)))
    with pytest.raises(SystemExit) as exited:
        main()
    assert not exited.value.code


def test_fit_logs_stages_and_epochs(command, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(progress, "FIRST_LINE", 0.0)
    monkeypatch.setattr(progress, "LONGEST_PAUSE", 0.0)
    run(monkeypatch, [*command, tmp_path / "m", "--sensitivity"])
    lines = [line.split(" s  ")[1] for line in capsys.readouterr().err.splitlines()]
    assert lines[:4] == ["checking the settings", "reading both files", "encoding columns", "training"]
    epochs = [
        re.split(", (?:about|at most) ", line)[0] for line in lines if line.startswith("training: ") and " left" in line
    ]
    assert epochs[:4] == [f"training: {done} of 12 epochs, fold 1 of 3" for done in (1, 2, 3, 4)]
    assert epochs[-1] == "training: 12 of 12 epochs, fold 3 of 3"
    again = "training with wrong priors, to measure their effect"
    assert any(line.startswith(f"{again}: 52 of 52 epochs, 13 models at once") for line in lines)


def test_fit_with_json_prints_only_json(command, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(progress, "FIRST_LINE", 0.0)
    run(monkeypatch, [*command, tmp_path / "m", "--no-sensitivity", "--json"])
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("{")


def test_fit_on_a_terminal_shows_a_bar_and_removes_it(command, tmp_path):
    options = [str(tmp_path / "m"), "--no-sensitivity", "--epochs", "60"]
    text, out = run_on_terminal("-m", *command, *options, columns=120)
    assert "reading both files" in text
    assert "of 180 epochs, fold " in text
    assert " left" in text
    assert text.rstrip().endswith("\x1b[2K")  # the line is cleared
    assert "no label used" in " ".join(out.split())
