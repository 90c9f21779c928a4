"""How far `uulearn fit` is and how long it will take: counted right, shown as a bar, said now and then elsewhere."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from helpers.terminal import run_on_terminal
from uulearn import UUClassifier
from uulearn.cli import fit_progress, main
from uulearn.cli.fit_progress import Display, Lines, Silent
from uulearn.training import TrainingOptions
from uulearn.training.batched import BatchedTrainer, Run
from uulearn.training.progress import watch_training


class Clock:
    """Seconds that pass when they are told to."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


# ------------------------------------------------------------------------------------------------- who watches training


class Notes(list):
    """A watcher that keeps what it was told."""

    def begin(self, epochs, models, done):
        self.append(("begin", epochs, models, done))

    def epoch(self, done):
        self.append(done)

    def end(self):
        self.append("end")


def classifier(**changes):
    return UUClassifier(
        (0.8, 0.2), **{"model": "linear", "epochs": 3, "members": 1, "random_state": 0, "patience": None} | changes
    )


def test_watchers_are_told_of_every_member_and_of_what_a_checkpoint_holds(gaussians, tmp_path):
    sets = gaussians["X0"], gaussians["X1"]
    with watch_training(told := Notes()):
        classifier(members=2, checkpoint_dir=tmp_path, checkpoint_every=1).fit_sets(*sets)
        classifier(members=2, checkpoint_dir=tmp_path, epochs=4).fit_sets(*sets)
    member, longer = [("begin", 3, 1, 0), 1, 2, 3, "end"], [("begin", 4, 1, 3), 4, "end"]
    assert told == 2 * member + 2 * longer


def test_watchers_are_told_of_the_end_of_a_training_that_failed(gaussians):
    def fail(record, _):
        raise KeyboardInterrupt

    with watch_training(told := Notes()), pytest.raises(KeyboardInterrupt):
        classifier().fit_sets(gaussians["X0"], gaussians["X1"], callback=fail)
    assert told == [("begin", 3, 1, 0), 1, "end"]


def test_without_progress_or_after_the_watch_nobody_is_told(gaussians):
    with watch_training(outer := Notes()):
        with watch_training(inner := Notes()):
            classifier(progress=False).fit_sets(gaussians["X0"], gaussians["X1"])
        classifier(epochs=1).fit_sets(gaussians["X0"], gaussians["X1"])
    classifier().fit_sets(gaussians["X0"], gaussians["X1"])
    assert (inner, outer) == ([], [("begin", 1, 1, 0), 1, "end"])


def test_a_stack_tells_how_many_models_it_holds(gaussians):
    rows = torch.arange(0, 400), torch.arange(400, 800)
    runs = [Run(rows, (0.8, 0.2), 0.5, slope=slope) for slope in (0.0, -0.1, -0.5)]
    X = torch.tensor(np.concatenate([gaussians["X0"], gaussians["X1"]]), dtype=torch.float32)
    with watch_training(told := Notes()):
        BatchedTrainer(X, runs, model="linear", options=TrainingOptions(epochs=2)).run()
    assert told == [("begin", 2, 3, 0), 1, 2, "end"]


# ------------------------------------------------------------------------------------------------------------- counting


def test_time_left_follows_from_the_epochs_of_all_models(clock):
    progress = Silent(clock)
    clock.now = 100.0  # reading took its time, which tells nothing of training
    progress("training", 4)
    assert progress.described() == "training"
    assert progress.share is None
    progress.begin(50, 1, 0)
    assert progress.described() == "training: 0 of 200 epochs, model 1 of 4"
    assert progress.seconds_left is None
    for done in range(1, 51):
        clock.now += 0.5
        progress.epoch(done)
    assert progress.seconds_left == pytest.approx(75.0)
    progress.end()
    progress.begin(50, 1, 0)
    clock.now += 0.5
    progress.epoch(1)
    assert progress.described() == "training: 51 of 200 epochs, model 2 of 4, about 1 min 14 s left"
    assert progress.share == pytest.approx(51 / 200)


def test_what_a_checkpoint_holds_is_done_but_took_no_time(clock):
    progress = Silent(clock)
    progress("training", 2)
    progress.begin(100, 1, 100)  # finished before the interruption
    progress.end()
    progress.begin(100, 1, 60)
    clock.now = 10.0
    progress.epoch(80)
    assert progress.described() == "training: 180 of 200 epochs, model 2 of 2, about 10 seconds left"


def test_a_model_that_stops_early_leaves_less_to_do(clock):
    progress = Silent(clock)
    progress("training", 2)
    progress.begin(100, 1, 0)
    clock.now = 20.0
    progress.epoch(20)
    progress.end()
    progress.begin(100, 1, 0)
    assert progress.share == pytest.approx(0.5)
    assert progress.seconds_left == pytest.approx(100.0)


def test_models_of_a_stack_count_each(clock):
    progress = Silent(clock)
    progress("again", 13)
    progress.begin(200, 13, 0)
    clock.now = 3.0
    progress.epoch(50)
    assert progress.described() == "again: 650 of 2,600 epochs, 13 models at once, about 9.0 seconds left"


def test_one_model_is_not_counted_aloud_and_each_stage_counts_anew(clock):
    progress = Silent(clock)
    for stage in ("training", "again"):
        progress(stage, 1)
        progress.begin(10, 1, 0)
        clock.now += 5.0
        progress.epoch(5)
        assert progress.described() == f"{stage}: 5 of 10 epochs, about 5.0 seconds left"
        progress.end()
        assert progress.described() == stage
    progress("evaluating")
    assert progress.described() == "evaluating"


@given(
    models=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 4)), min_size=1, max_size=8),
    missing=st.integers(0, 3),
)
def test_the_share_rises_from_nothing_to_all(models, missing):
    """Whatever is resumed, ends early or is trained together; and also where more are trained than foreseen."""
    progress = Silent(Clock())
    progress("training", max(1, sum(together for _, _, together in models) - missing))
    shares = []
    for found, own, together in models:
        progress.begin(60, together, found)
        for done in range(found + 1, found + own + 1):
            progress.epoch(done)
            shares.append(progress.share)
        progress.end()
        shares.append(progress.share)
    assert all(0 <= share <= 1 for share in shares)
    assert shares[-1] == pytest.approx(1.0)
    if not missing:
        assert shares == sorted(shares)


# ------------------------------------------------------------------------------------------------------- lines and bars


def hour_of_training(progress, clock, seconds):
    progress("training", 1)
    progress.begin(3600, 1, 0)
    for second in range(1, seconds + 1):
        clock.now = float(second)
        progress.epoch(second)
    progress.end()


def test_away_from_a_terminal_a_line_is_said_now_and_then(clock, capsys):
    hour_of_training(Lines(clock), clock, 3599)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "   0.0 s  training"
    assert lines[1] == "  10.0 s  training: 10 of 3,600 epochs, about 59 min 50 s left"
    times = [float(line.split()[0]) for line in lines]
    gaps = np.diff(times)
    assert min(gaps) >= 10
    assert max(gaps) <= 300
    assert 12 < len(lines) < 30


def test_short_work_is_a_line_for_each_stage(clock, capsys):
    progress = Lines(clock)
    hour_of_training(progress, clock, 9)
    clock.now = 9.5
    progress("evaluating")
    assert capsys.readouterr().err == "   0.0 s  training\n   9.5 s  evaluating\n"


def test_where_nobody_reads_nothing_is_said(clock, capsys):
    hour_of_training(Silent(clock), clock, 60)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("quiet", "terminal", "kind"), [(True, True, Silent), (False, True, Display), (False, False, Lines)]
)
def test_what_is_shown_depends_on_where_it_goes(monkeypatch, quiet, terminal, kind):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    assert type(fit_progress.fit_progress(quiet)) is kind


# --------------------------------------------------------------------------------------------------- the command itself


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    for name, prior in (("a.csv", 0.8), ("b.csv", 0.2)):
        y = rng.random(200) < prior
        pd.DataFrame(rng.normal(size=(200, 2)) + 2 * y[:, None], columns=["u", "v"]).to_csv(folder / name, index=False)
    return [
        *("uulearn", "fit", str(folder / "a.csv"), str(folder / "b.csv"), "--set-priors", "0.8", "0.2"),
        *("--model", "linear", "--epochs", "4", "--members", "3", "--out"),
    ]


def run(monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", list(map(str, arguments)))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code


def test_fit_says_what_it_does_and_how_far_it_is(command, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(fit_progress, "FIRST_LINE", 0.0)
    monkeypatch.setattr(fit_progress, "RARELY", 0.0)
    run(monkeypatch, [*command, tmp_path / "m"])
    said = [line.split(" s  ")[1] for line in capsys.readouterr().err.splitlines()]
    assert said[:3] == ["reading both files", "turning columns into numbers", "training"]
    epochs = [line.split(", about ")[0] for line in said if line.startswith("training: ") and "about" in line]
    assert epochs[:4] == [f"training: {done} of 12 epochs, model 1 of 3" for done in (1, 2, 3, 4)]
    assert epochs[-1] == "training: 12 of 12 epochs, model 3 of 3"
    again = "training again with other priors, to see how much they matter"
    assert any(line.startswith(f"{again}: 52 of 52 epochs, 13 models at once") for line in said)


def test_with_json_fit_says_nothing_else(command, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(fit_progress, "FIRST_LINE", 0.0)
    run(monkeypatch, [*command, tmp_path / "m", "--no-sensitivity", "--json"])
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith("{")


def test_on_a_terminal_fit_shows_a_bar_and_leaves_nothing_of_it(command, tmp_path):
    options = [str(tmp_path / "m"), "--no-sensitivity", "--epochs", "60"]
    text, out = run_on_terminal("-m", *command, *options, columns=120)
    assert "reading both files" in text
    assert "of 180 epochs, model " in text
    assert " left" in text
    assert text.rstrip().endswith("\x1b[2K")  # the line is cleared
    assert "no label used" in out
