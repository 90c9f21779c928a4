"""The figures of docs/theory.md and the simulation behind them."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from helpers.risk_simulation import simulate_risk_terms

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "figures" / "theory.py"


def test_script_draws_all_figures(tmp_path):
    spec = importlib.util.spec_from_file_location("theory_figures", SCRIPT)
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    paths = figures.draw_all(tmp_path / "new", draws=2000)
    assert [path.name for path in paths] == ["theory-bias.png", "theory-exponent.png", "theory-half-width.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(path.name for path in paths)


def test_simulated_terms_do_not_depend_on_the_order_of_the_sets():
    for priors in ((0.8, 0.3), (0.3, 0.8)):
        positive, negative = simulate_risk_terms(priors, 0.4, (300, 200), 0.9, 20_000, np.random.default_rng(0))
        assert (positive.mean(), negative.mean()) == pytest.approx((0.04, 0.06), abs=0.001)
