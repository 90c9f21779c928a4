"""The study of more than two sets: quick run, stored results, and the tables of the page."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "study"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "building"))

import more_sets
import records
import tables

from uulearn.reproduction.store import key

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def threads():
    """Restore the number of threads, which a study sets to one."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def page_facts():
    path = ROOT / "docs" / "building" / "facts" / "more_sets.py"
    spec = importlib.util.spec_from_file_location("facts_more_sets", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stored_study_is_the_planned_one():
    assert records.read([more_sets.STORE]).fits.keys() == {key(one) for one in more_sets.planned()}


def test_each_variant_uses_its_sets_and_stored_fits_are_not_repeated(tmp_path, capsys):
    found = [more_sets.fit(one) for one in more_sets.planned(["digits"], 1, [3], 150)[:5]]
    extremes, merged, risk, surrogate, pairs = found
    assert (extremes["sizes"], risk["sizes"], surrogate["sizes"]) == ([50, 50], [50] * 3, [50] * 3)
    assert sum(merged["sizes"]) in (100, 150)
    assert pairs["pairs"] + pairs["failed_pairs"] == 3
    assert all(0.4 < one["accuracy"] < 1 for one in found)
    assert all(one["estimate"][1] <= one["estimate"][0] <= one["estimate"][2] for one in found[:4])
    out = tmp_path / "more_sets.jsonl"
    stored = [{"configuration": one, "accuracy": 0.9} for one in more_sets.planned(["digits"], 1, [3], 300)]
    out.write_text("".join(json.dumps({"format": 1, **one}) + "\n" for one in stored))
    more_sets.main(["--quick", "--out", str(out)])
    assert "0 fits to run" in capsys.readouterr().out


def test_sets_are_disjoint_and_have_their_priors():
    rows = np.arange(1000, dtype=np.float32)[:, None]
    labels = (np.arange(1000) < 500).astype(np.int64)
    table = tables.Table("numbers", rows, labels, rows, labels, 0.5)
    drawn = more_sets.draw(table, (0.9, 0.5, 0.1), 200, seed=1)
    assert len(np.unique(np.concatenate(drawn))) == 600
    assert [int((part < 500).sum()) for part in drawn] == [180, 100, 20]
    with pytest.raises(ValueError, match="too few rows"):
        more_sets.draw(table, (0.9, 0.9, 0.9), 200, seed=1)


def test_tables_of_the_page_equal_the_records(page_facts):
    shown, stored = page_facts.facts(), records.read([more_sets.STORE]).fits.values()

    def column(variant):
        known = [one for one in stored if one["configuration"]["variant"] == variant]
        known = [one for one in known if (one["configuration"]["priors"], one["configuration"]["sets"]) == ("close", 5)]
        order = sorted(known, key=lambda one: (one["configuration"]["dataset"], one["configuration"]["seed"]))
        return np.array([one["accuracy"] for one in order])

    line = next(row for row in shown["accuracy"].splitlines() if row.startswith("| 0.65 to 0.35 | 5 |"))
    risk, *others = (cell.strip().replace("−", "-") for cell in line.strip("|").split("|")[2:])
    assert float(risk.split()[0]) == pytest.approx(100 * column("risk").mean(), abs=0.051)
    for cell, variant in zip(others, ("extremes", "merged", "surrogate", "pairs"), strict=True):
        difference = 100 * (column(variant) - column("risk"))
        by_table = difference.reshape(len(more_sets.NAMES), more_sets.SEEDS).mean(axis=1)
        error = by_table.std(ddof=1) / len(by_table) ** 0.5
        assert list(map(float, cell.split(" ± "))) == pytest.approx([difference.mean(), error], abs=0.051)
    inside = [
        one["estimate"][1] <= one["accuracy"] <= one["estimate"][2]
        for one in stored
        if one["configuration"]["variant"] == "risk" and one["configuration"]["priors"] == "spread"
    ]
    assert f"{sum(inside)} of {len(inside)}" in shown["coverage"]
