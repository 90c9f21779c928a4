"""Run pages whose blocks are not doctests from top to bottom, as a reader would."""

from __future__ import annotations

import doctest
import importlib.util
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.pages import blocks_in, python_in, read_section

DOCS = Path(__file__).resolve().parents[2] / "docs"


def blocks_of(page, language):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run_python(page):
    namespace = {"__name__": "page"}
    for block in blocks_of(page, "python"):
        exec(compile(block, page, "exec"), namespace)
    return namespace


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


# ------------------------------------------------------------------------------------------------------------ commands


def run_command(line, quicker):
    """Run a command of a page and return its output."""
    from typer.testing import CliRunner

    from uulearn.cli.app import app

    _, command, *arguments = shlex.split(line)
    done = CliRunner().invoke(app, [command, *arguments, *quicker.get(command, [])])
    assert done.exit_code == 0, f"{line}: {done.output}{done.exception}"
    return done.stdout or done.stderr


def check_output(line, expected, got):
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.OutputChecker().check_output(expected, got, options), f"$ {line}\n{got}\ninstead of\n{expected}"


def test_two_files_page_runs(tmp_path, monkeypatch):
    """Run the page in an empty folder; `fit` uses fewer epochs and models than the page."""
    monkeypatch.chdir(tmp_path)
    diagnosis = run_python("start/two-files.md")["diagnosis"]
    quicker = {"fit": ["--epochs", "20", "--n-estimators", "3", "--no-sensitivity"]}
    shown = {}
    for block in blocks_of("start/two-files.md", "console"):
        line, _, expected = block.removeprefix("$ ").partition("\n")
        if line.startswith("uulearn") and "evaluate" not in line:
            shown[line.split()[1]] = run_command(line, quicker)
            check_output(line, expected, shown[line.split()[1]])
    assert set(shown) == {"plan", "fit", "predict", "report", "priors"}
    scored = np.genfromtxt("scored.csv", delimiter=",", names=True)
    assert (scored["class"] == diagnosis).mean() > 0.85
    assert "Estimated accuracy" in Path("model/report.html").read_text(encoding="utf-8")


def test_two_files_page_evaluates_new_files(tmp_path, monkeypatch):
    """Run the commands at the end of the page, which need files from the reader."""
    monkeypatch.chdir(tmp_path)
    page = run_python("start/two-files.md")
    page["new"].assign(malignant=page["diagnosis"]).to_csv("labelled.csv", index=False)
    for mine, theirs in (("clinic_a.csv", "more_of_a.csv"), ("clinic_b.csv", "more_of_b.csv")):
        Path(theirs).write_bytes(Path(mine).read_bytes())
    settings = "--model linear --epochs 5 --n-estimators 2 --no-sensitivity"
    run_command(f"uulearn fit clinic_a.csv clinic_b.csv --set-priors 0.8 0.2 --out model/ {settings}", {})
    lines = [line[2:] for block in blocks_of("start/two-files.md", "console") for line in block.splitlines()]
    first, second = (line for line in lines if line.startswith("uulearn evaluate"))
    assert "labels were used" in run_command(first, {}).lower()
    assert "label" in run_command(second, {}).lower()


def test_researcher_page_shows_its_first_figure(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [line for block in blocks_of("start/researcher.md", "console") for line in block.splitlines()]
    line = next(line for line in lines if "figure2" in line).removeprefix("$ ").partition("#")[0]
    run_command(line, {"reproduce": ["--out", str(tmp_path)]})
    assert (tmp_path / "figure2.png").stat().st_size > 1000


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
