"""The demo shows the result of the paper: unbiased drops when its risk becomes negative, corrected methods do not."""

import re
from pathlib import Path

import pytest

from uulearn.cli.demo import fit_commands
from uulearn.cli.demo_runs import demo_tasks, summarize, train_task


@pytest.fixture(scope="module")
def results():
    return {
        (task.name, method): summarize(task, method, train_task(task, method, 200, 0).history_)
        for task in demo_tasks(0)
        for method in ("unbiased", "abs", "relu", "leaky_relu")
    }


@pytest.mark.parametrize("name", ["digits", "breast cancer"])
def test_unbiased_method_drops(name, results):
    row = results[name, "unbiased"]
    assert row.drop > 0.10
    assert row.risk < -1
    assert row.negative_epoch is not None


@pytest.mark.parametrize("name", ["digits", "breast cancer"])
@pytest.mark.parametrize("method", ["abs", "relu", "leaky_relu"])
def test_corrected_methods_do_not_drop(name, method, results):
    row = results[name, method]
    assert row.drop < 0.05
    assert row.accuracy > results[name, "unbiased"].accuracy + 0.10


@pytest.mark.parametrize("activated", [False, True])
def test_next_commands_are_those_of_the_readme(tmp_path, monkeypatch, activated):
    program = tmp_path / ".venv" / "bin" / "uulearn"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    program.with_name("activate").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(program), "demo"])
    if activated:
        monkeypatch.setenv("PATH", str(program.parent))
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")
    entered = re.search(r"^make demo && (.*)$", readme, re.MULTILINE)[1]
    train = re.sub(r"\\\n\s*", "", re.search(r"^\$ (uulearn fit (?:.*\\\n)*.*)$", readme, re.MULTILINE)[1])
    assert fit_commands(Path("uulearn-demo")) == [entered.rpartition("&& ")[2] if activated else entered, train]
