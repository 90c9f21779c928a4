"""``uulearn reproduce`` from files of the published layouts to tables and figures, also after interruptions."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.data import data_folder
from helpers.processes import Program
from helpers.small_datasets import curves, expect_small_files, pages_in, write_small_files
from uulearn.cli import main
from uulearn.cli.progress import TerminalOutput
from uulearn.cli.reproduce import choose_targets, default_folder
from uulearn.cli.reproduction_progress import ReproductionProgress, describe_job
from uulearn.reproduction.experiments import PAPER_TARGET_PRIORS, SELECTION_HOLD_OUT, Request, runs_of
from uulearn.reproduction.jobs import plan_jobs
from uulearn.reproduction.render import SPACE
from uulearn.reproduction.store import RunStore

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_small_files(tmp_path_factory.mktemp("data"))


@pytest.fixture
def reproduce(monkeypatch, capsys, data, tmp_path):
    """Call ``uulearn reproduce`` in this process: exit code, output and messages."""
    expect_small_files(monkeypatch.setitem)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UULEARN_DATA", str(data))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["uulearn", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return call


def start(folder, data, *arguments):
    """Start the same command in another process."""
    tests = Path(__file__).resolve().parents[1]
    script = (
        f"import sys; sys.path.insert(0, {str(tests)!r}); "
        "from helpers.small_datasets import expect_small_files; expect_small_files(); "
        "from uulearn.cli import main; main()"
    )
    return Program("-c", script, "reproduce", *arguments, "--data-dir", data, cwd=folder, env=ENVIRONMENT)


# --- Whole targets ---------------------------------------------------------------------------------------------------


def test_table_from_files_to_pages(reproduce, tmp_path):
    asked = ("table2", "--quick", "--dataset", "mnist", "--dataset", "cifar10", "--epochs", 4)
    code, out, err = reproduce(*asked)
    assert code == 0
    folder = tmp_path / "results-quick"
    assert set(pages_in(folder)) == {"table2.md", "table2.tex", "table2.html", "selection.md", "conclusions.md"}
    assert len(list((folder / "runs").iterdir())) == 2 * 3 * 9 * 2
    assert "108 new; 0 already stored" in out
    assert "not compared with the paper" in out
    assert "file    results-quick/table2.html" in out
    assert err.count("reading") == 2
    assert "108 of 108 runs: CIFAR-10 linear (0.6, 0.4) seed 1, to choose λ: 3 in" in err
    text = (folder / "table2.md").read_text()
    assert "600 + 600 rows and 4 epochs" in text
    assert "not run" not in text
    before = curves(folder)
    code, out, err = reproduce(*asked, "--pack")
    assert (code, err) == (0, "")
    assert "0 new; 108 already stored" in out
    assert "packed/runs-cifar10-linear.jsonl.gz" in out
    assert list((folder / "runs").iterdir()) == []
    assert curves(folder) == before
    assert (folder / "table2.md").read_text() == text


def test_all_figures(reproduce, tmp_path):
    code, out, err = reproduce("figure1", "--quick", "--epochs", 1, "--out", "a")
    assert code == 0
    assert {path.suffix for path in (tmp_path / "a").glob("figure1.*")} == {".png", ".svg"}
    assert "8 new" in out
    assert "CIFAR-10 resnet32 unbiased (0.6, 0.4) seed 0: 1 in" in err
    code, out, _ = reproduce("figure3", "--quick", "--epochs", 1, "--out", "a")
    assert "9 new; 1 already stored" in out  # the MLP of Figure 1 is the run without dropout
    assert (tmp_path / "a" / "figure3.png").stat().st_size > 20_000
    code, out, err = reproduce("figure2", "--out", "a")
    assert (code, err) == (0, "")
    assert (tmp_path / "a" / "figure2.svg").exists()


def test_all_targets_with_deep_models(reproduce, tmp_path):
    code, out, _ = reproduce(
        "all", "--quick", "--dataset", "cifar10", "--trials", 1, "--epochs", 1, "--no-selection", "--out", "a"
    )
    assert code == 0
    assert set(pages_in(tmp_path / "a")) == {
        "table2.md", "table2.tex", "table2.html", "table3.md", "table3.tex", "table3.html",
        "figure1.png", "figure1.svg", "figure2.png", "figure2.svg", "conclusions.md",
    }  # fmt: skip
    # Table 2, Table 3, and Figure 1 without the panel that is a run of Table 3.
    assert f"{3 * 6 + 3 * 5 + 3} new; 0 already stored" in out
    assert "20 + 20 rows and 1 epochs" in (tmp_path / "a" / "table3.md").read_text()


def test_more_trials_and_datasets_extend_the_results(reproduce, tmp_path):
    reproduce("table2", "--quick", "--trials", 1, "--dataset", "mnist", "--epochs", 2)
    folder = tmp_path / "results-quick"
    first = curves(folder)
    _, out, _ = reproduce("table2", "--quick", "--trials", 2, "--dataset", "mnist", "--epochs", 2)
    assert "27 new; 27 already stored" in out
    assert first.items() <= curves(folder).items()
    _, out, _ = reproduce("table2", "--quick", "--trials", 2, "--dataset", "kmnist", "--epochs", 2)
    assert "54 new; 0 already stored" in out
    text = (folder / "table2.md").read_text()
    assert "| MNIST |" in text
    assert "Kuzushiji-MNIST" in text
    assert "Fashion" not in text
    assert "not run" not in text


# --- Interruptions ---------------------------------------------------------------------------------------------------

ASKED = ("table2", "--quick", "--dataset", "mnist", "--epochs", 10)


def test_resume_after_kill_equals_uninterrupted_run(reproduce, data, tmp_path):
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    assert reproduce(*ASKED, "--out", unbroken)[0] == 0
    program = start(tmp_path, data, *ASKED, "--out", broken)
    program.wait_for(lambda: len(list(broken.glob("runs/*.json"))) >= 6)  # a whole job
    program.kill()
    assert program.read()[0] == -signal.SIGKILL
    kept = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in broken.glob("runs/*.json")}
    assert 6 <= len(kept) < 54
    assert not list(broken.glob("*.md"))
    code, out, _ = reproduce(*ASKED, "--out", broken)
    assert code == 0
    assert f"{54 - len(kept)} new; {len(kept)} already stored" in out
    assert all((path.read_bytes(), path.stat().st_mtime_ns) == before for path, before in kept.items())
    assert curves(broken) == curves(unbroken)
    assert pages_in(broken) == pages_in(unbroken)


def test_two_processes_share_the_work(data, tmp_path):
    arguments = ("table2", "--quick", "--dataset", "mnist", "--trials", 1, "--out", "shared")
    both = [start(tmp_path, data, *arguments) for _ in range(2)]
    said = [program.read() for program in both]
    assert [code for code, _, _ in said] == [0, 0], said
    assert len(RunStore(tmp_path / "shared")) == 27
    assert not list((tmp_path / "shared").glob("runs/.*"))
    assert "not run" not in (tmp_path / "shared" / "table2.md").read_text()


def test_interrupt_keeps_finished_runs(monkeypatch, reproduce, tmp_path):
    finish = ReproductionProgress.finish

    def interrupt(self, *arguments):
        finish(self, *arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(ReproductionProgress, "finish", interrupt)
    code, out, err = reproduce("table2", "--quick", "--dataset", "mnist", "--out", "kept")
    assert (code, out) == (130, "")
    assert (
        err.splitlines()[-1] == "interrupted: 6 of 54 runs are stored in kept; run the same command again to continue."
    )
    assert len(RunStore(tmp_path / "kept")) == 6
    code, _, err = reproduce("table2", "--quick", "--dataset", "mnist", "--out", "kept")
    assert err.splitlines()[-1].startswith("interrupted: 9 of 54 runs")


def test_progress_on_a_terminal(capsys):
    jobs = plan_jobs(runs_of(["table2"], Request(["mnist"], quick=True)), None)
    with ReproductionProgress(TerminalOutput()) as display:
        display.begin(jobs, found=10)
        display.load("mnist")
        assert display.time_left == "time left unknown"
        display.epoch(jobs[0], 5, [0.5, 0.75, float("nan")])
        text = display.output.bar.text
        assert text.startswith("10/64 runs, ")
        assert text.endswith("left; 50.0 to 75.0%, epoch 5/10, MNIST linear (0.8, 0.2) seed 0")
        assert text.index("75.0%") < 50  # important text comes first, because a narrow terminal cuts the line
        assert display.fraction == pytest.approx(3 / 54)
        for job in jobs:
            display.finish(job, [], 1.0)
        assert (display.fraction, display.done) == (1, 54)
    assert capsys.readouterr().out == ""
    assert describe_job(jobs[1]) == "MNIST linear (0.8, 0.2) seed 0, to choose λ"


# --- Rendering without data ------------------------------------------------------------------------------------------


def test_render_only_needs_no_data(monkeypatch, reproduce, tmp_path):
    store = RunStore(tmp_path / "results")
    for run in runs_of(["table3", "figure3"], Request(["mnist"], trials=5)):
        if run["seed"] == 4 and run["method"] == "abs" and not run["held_out"]:
            continue
        accuracy = {"biased": 0.7055, "unbiased": 0.6474}.get(run["method"], 0.93) + 0.001 * run["seed"]
        n = run["epochs"]
        own = {"test_accuracy": [accuracy] * n, "unbiased": [0.5 - i / 100 for i in range(n)], "test_risk": [0.4] * n}
        if run["held_out"]:
            own["validation_zero_one"] = [0.1 if run["slope"] == -0.3 else 0.2] * n
        store.add({"configuration": run, "curves": own, "stop_reason": f"all {n} epochs done"})
    store.pack()
    monkeypatch.setenv("UULEARN_DATA", "nowhere")
    code, out, err = reproduce("table3", "--render-only", "--dataset", "mnist")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("runs    3 are missing")  # ABS of one seed at three pairs of priors
    text = (tmp_path / "results" / "table3.md").read_text().replace(SPACE, " ")
    assert "cells are incomplete" in text
    assert "| MNIST | 0.7, 0.3 | ours<br>*paper*<br>difference | 70.75 (0.16)" in text
    assert "table3  " in out
    assert "complete cells agree with the paper" in out
    study = (tmp_path / "results" / "selection.md").read_text()
    assert "| times chosen without labels | 0 | 0 | 0 | 12 | 0 |" in study  # four trials in three rows are complete
    assert "in the paper" in study
    first = pages_in(tmp_path / "results")
    assert reproduce("table3", "--render-only", "--dataset", "mnist")[0] == 0
    assert pages_in(tmp_path / "results") == first
    assert reproduce("figure3", "--render-only")[0] == 0
    assert (tmp_path / "results" / "figure3.svg").exists()


def test_render_only_without_runs(reproduce, tmp_path):
    code, out, _ = reproduce("all", "--render-only", "--out", "empty")
    assert code == 0
    assert set(pages_in(tmp_path / "empty")) == {"figure2.png", "figure2.svg"}  # the only target without runs
    assert out.count("has no runs yet; nothing was written") == 4


# --- Errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("table4",),
            "the target must be one of table2, table3, figure1, figure2, figure3, variants or all, got 'table4'.",
        ),
        (("table2", "--dataset", "svhn"), "one of mnist, fashion_mnist, kmnist, cifar10, got 'svhn'."),
        (("figure3", "--dataset", "kmnist"), "figure3 uses mnist, got --dataset kmnist."),
        (("table2", "--out", "file"), "file is a file; pass a folder as --out."),
        (("table2", "--device", "gpu"), "device must be 'auto', 'cpu' or 'cuda', got 'gpu'."),
    ],
)
def test_errors_are_one_sentence(reproduce, tmp_path, arguments, text):
    (tmp_path / "file").write_text("")
    code, out, err = reproduce(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert text in err
    assert len(err.splitlines()) == 1


def test_missing_data_is_reported_before_anything_is_written(monkeypatch, reproduce, tmp_path):
    code, _, err = reproduce("table2", "--quick", "--data-dir", tmp_path / "none", "--dataset", "cifar10")
    assert code == 2
    assert "CIFAR-10" in err.splitlines()[-1]
    assert not list(tmp_path.glob("results-quick/*"))


def test_rejects_other_data(monkeypatch, reproduce):
    monkeypatch.setitem(PAPER_TARGET_PRIORS, "mnist", 0.4926)
    code, _, err = reproduce("table2", "--quick", "--dataset", "mnist")
    assert (code, "expected a class prior of 0.4926 in the test data, found 0.5" in err) == (2, True)


def test_figures_need_matplotlib_and_tables_do_not(monkeypatch, reproduce):
    monkeypatch.setattr("uulearn.reproduction.pages.find_spec", lambda name: None)
    code, _, err = reproduce("figure1")
    assert (code, "pip install 'uulearn[plot]'" in err) == (2, True)
    assert reproduce("table2", "--render-only")[0] == 0


def test_all_stands_for_tables_and_figures():
    assert choose_targets("all", Request()) == ["table2", "table3", "figure1", "figure2", "figure3"]
    assert choose_targets("all", Request(["kmnist"])) == ["table2", "table3", "figure2"]


def test_help_does_not_import_torch():
    code = (
        "import sys; sys.argv = ['uulearn', 'reproduce', '--help']\n"
        "from uulearn.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "assert not {'torch', 'matplotlib', 'numpy'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--render-only" in done.stdout


# --- The real files --------------------------------------------------------------------------------------------------


def test_reproduces_real_mnist(monkeypatch, capsys, tmp_path):
    if not (data_folder() / "mnist").is_dir():
        pytest.skip("no MNIST in the data folder (UULEARN_DATA)")
    arguments = ["reproduce", "table2", "--quick", "--dataset", "mnist", "--data-dir", str(data_folder())]
    monkeypatch.setattr(sys, "argv", ["uulearn", *arguments, "--out", str(tmp_path / "real")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "54 new" in capsys.readouterr().out
    records = RunStore(tmp_path / "real").records(method="relu", held_out=0, set_priors=[0.8, 0.2])
    assert len(records) == 2
    assert all(record["curves"]["test_accuracy"][-1] > 0.75 for record in records)
    held = RunStore(tmp_path / "real").records(held_out=SELECTION_HOLD_OUT)
    assert all(record["facts"]["trained_sizes"] == [476, 476] for record in held)
    assert "ours" in (tmp_path / "real" / "table2.md").read_text()


def test_other_settings_have_another_default_folder(tmp_path, monkeypatch):
    assert default_folder(Request()) == Path("results")
    assert default_folder(Request(epochs=200, trials=1)) == Path("results")
    assert default_folder(Request(quick=True)) == Path("results-quick")
    assert default_folder(Request(epochs=50)) == Path("results-50-epochs")


def test_fewer_requested_trials_do_not_hide_existing_ones(reproduce, tmp_path):
    arguments = ("table2", "--quick", "--dataset", "mnist", "--epochs", 2, "--out", "kept")
    assert reproduce(*arguments)[0] == 0
    before = pages_in(tmp_path / "kept")
    assert reproduce(*arguments, "--trials", 1)[0] == 0
    assert pages_in(tmp_path / "kept") == before
    assert reproduce(*arguments, "--trials", 4)[0] == 0
    more = pages_in(tmp_path / "kept")
    assert more != before
    assert reproduce(*arguments)[0] == 0  # the default number of trials is smaller
    assert pages_in(tmp_path / "kept") == more
    assert (
        reproduce("table2", "--quick", "--dataset", "kmnist", "--epochs", 2, "--out", "kept", "--render-only")[0] == 0
    )
    assert pages_in(tmp_path / "kept")["table2.md"].count(b"over 4 trials") == 1
