"""The study of label-free estimates: a quick run, and its summary."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "study"))

import coverage
import records


@pytest.fixture(autouse=True)
def threads():
    """Restore the number of threads, which a study sets to one."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_fits_are_stored_and_not_repeated(tmp_path, capsys):
    out = tmp_path / "coverage.jsonl"
    for _ in range(2):
        coverage.main(["--quick", "--out", str(out)])
    assert "0 fits to run" in capsys.readouterr().out
    fits = list(records.read([out]).fits.values())
    assert [one["configuration"]["dataset"] for one in fits] == ["gaussian", "breast_cancer"]
    for one in fits:
        low, high = one["accuracy"]["interval"]
        assert one["accuracy"]["covered"] == (low <= one["accuracy"]["truth"] <= high)
        assert 0 <= one["calibration_error"] <= 1
    coverage.main(["--summary", "--out", str(out)])
    assert "| (0.6, 0.4) | 60 | 2 |" in capsys.readouterr().out


def test_more_than_300_fits_are_at_close_priors():
    planned = coverage.planned(images=())
    assert sum(one["set_priors"] == [0.6, 0.4] and one["size"] >= 200 for one in planned) > 300


def test_fraction_of_positives_of_measured_rows_is_the_target_prior():
    for name in ("breast_cancer", "xor"):
        _, y = coverage.Labeled(name, None).measured(0.3, np.random.default_rng(0))
        assert abs(y.mean() - 0.3) < 0.01
