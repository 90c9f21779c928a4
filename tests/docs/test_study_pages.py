"""The committed pages in ``results/study`` follow from the committed records."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "study"))

import records
import render_images
import render_refinement
import render_sensitivity
import render_tabular
import unknown_priors

from uulearn.reproduction.store import RunStore

RESULTS = Path(__file__).resolve().parents[2] / "results" / "study"


def render_study(name):
    if name == "grid":
        return render_images.grid_page(RunStore(RESULTS).records(study="grid"))
    if name == "finals":
        return render_images.finals_page(RunStore(RESULTS).records(study="finals"))
    if name == "tabular":
        return render_tabular.page(records.read([RESULTS / "tabular.jsonl.gz"]))
    stored = records.read([RESULTS / f"{name}.jsonl"])
    if name == "refinement":
        return render_refinement.page(stored)
    if name == "sensitivity":
        return render_sensitivity.page(render_sensitivity.grouped(stored), stored, "sensitivity.png")
    return unknown_priors.page(stored, unknown_priors.planned(quick=False))


@pytest.mark.parametrize("name", ["grid", "finals", "tabular", "refinement", "sensitivity", "unknown_priors"])
def test_committed_study_equals_rendered_study(name):
    assert render_study(name) == (RESULTS / f"{name}.md").read_text(encoding="utf-8")
