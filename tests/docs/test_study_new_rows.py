"""The study of the check of new rows: a quick run, and its summary."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "study"))

import new_rows
import records


@pytest.fixture(autouse=True)
def threads():
    """Restore the number of threads, which a study sets to one."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_fits_are_stored_and_not_repeated(tmp_path, capsys):
    out = tmp_path / "new_rows.jsonl"
    for _ in range(2):
        new_rows.main(["--quick", "--out", str(out)])
    assert "0 fits to run" in capsys.readouterr().out
    (fit,) = records.read([out]).fits.values()
    assert [one["kind"] for one in fit["checks"]] == ["valid"] * 10 + ["column", "cluster"]
    for one in fit["checks"]:
        assert one["alarm"] == (2 * min(one["p_scores"], one["p_inputs"]) < 0.01)
    new_rows.main(["--summary", "--out", str(out)])
    assert "| valid | gaussian | 0 of 10 | 0 of 0 |" in capsys.readouterr().out
