"""The studies of prior intervals and of wrong priors on small data: quick runs and stored results."""

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "study"))

import prior_coverage
import records
import sensitivity_draws

from uulearn.reproduction.store import key


@pytest.fixture(autouse=True)
def threads():
    """Restore the number of threads, which a study sets to one."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("study", [prior_coverage, sensitivity_draws])
def test_the_stored_study_is_the_planned_one(study):
    assert records.read([study.STORE]).fits.keys() == {key(one) for one in study.planned()}


def test_quick_run_of_the_coverage(tmp_path):
    out = tmp_path / "coverage.jsonl"
    prior_coverage.main(["--quick", "--out", str(out)])
    environment, scores, rows, target = map(json.loads, out.read_text().splitlines())
    assert environment["versions"].keys() >= {"python", "numpy", "uulearn"}
    assert scores["configuration"]["draws"] == 4
    assert all(0 <= value <= 1 for value in (*scores["covered"], *rows["covered"], target["covered"]))
    assert scores["width"][0] > 0
    assert 0 <= scores["plain_covered"] <= scores["covered"][0]


def test_quick_run_of_the_draws(tmp_path, capsys):
    out = tmp_path / "draws.jsonl"
    sensitivity_draws.main(["--quick", "--out", str(out)])
    _, draw = map(json.loads, out.read_text().splitlines())
    changes = [(row["parameter"], row["error"]) for row in draw["rows"]]
    assert changes[0] == ("baseline", 0)
    assert len(changes) == 13
    assert draw["held_out"] == [60, 80]  # 40% of 150 and 200 rows
    sensitivity_draws.main(["--quick", "--out", str(out)])
    assert "0 fits to run" in capsys.readouterr().out


def test_positive_is_malignant():
    _, malignant = sensitivity_draws.load("breast cancer")
    assert malignant.sum() == 212
