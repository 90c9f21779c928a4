"""Run pages whose blocks are not doctests, as a reader would. The start pages: test_start_pages.py."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.pages import blocks_in, python_in, read_section

DOCS = Path(__file__).resolve().parents[2] / "docs"


# ----------------------------------------------------------------------------------------------------------- Lightning


def numbers_in(text):
    return [float(number) for number in re.findall(r"\d+\.\d+", text)]


@pytest.mark.filterwarnings("ignore:.*num_workers", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_lightning_page_runs(capsys):
    pytest.importorskip("lightning")
    page = {"__name__": "page"}
    for block in python_in("distributed.md", "Example data", "Lightning"):
        exec(compile(block, "distributed.md", "exec"), page)
    printed = capsys.readouterr().out
    (shown,) = blocks_in(read_section("distributed.md", "Lightning"), "text")
    assert numbers_in(printed[printed.index("estimated accuracy") :]) == pytest.approx(numbers_in(shown), abs=0.02)
    metrics = page["trainer"].callback_metrics
    assert set(metrics) >= {"positive", "negative", "error"}
    assert 0 < float(metrics["error"]) < 0.25


# -------------------------------------------------------------------------------------------- how it works, in pictures


@pytest.fixture(scope="module")
def pictures():
    spec = importlib.util.spec_from_file_location("method_figures", DOCS / "figures" / "method.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["method_figures"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["method_figures"]


def test_pages_show_the_drawn_figures(pictures):
    pages = (DOCS / "how-it-works.md").read_text(encoding="utf-8") + (DOCS / "method.md").read_text(encoding="utf-8")
    assert set(re.findall(r"images/(method-[\w-]+\.png)", pages)) == set(pictures.DRAWINGS)
    assert all((DOCS / "images" / name).is_file() for name in pictures.DRAWINGS)


def test_subtracting_the_sets_gives_the_positives(pictures):
    many, few = pictures.unmix(20_000), pictures.unmix(100)
    width = many.middles[1] - many.middles[0]
    true = np.exp(-((many.middles - pictures.HALF_DISTANCE) ** 2) / 2) / np.sqrt(2 * np.pi) * width
    assert abs(many.positives - true).max() < 0.02
    assert few.positives.min() < -0.02 < many.positives.min()
    # Set 0 minus a quarter of set 1, scaled, gives the positives.
    assert np.allclose((many.fractions0 - many.fractions1 / 4) / 0.75, many.positives)


def test_network_of_the_figure_overfits_without_correction(pictures):
    grid = np.zeros((1, 2))
    early, late, corrected = (
        pictures.train(*how, grid).history[-1] for how in (("unbiased", 4), ("unbiased", 120), ("leaky_relu", 120))
    )
    assert early["unbiased"] > 0 > -10 > late["unbiased"]
    assert corrected["unbiased"] > -0.2
    assert late["test_accuracy"] < min(early["test_accuracy"], corrected["test_accuracy"]) - 0.03
