"""`uulearn fit --model boosting`, and the other commands on its model directory."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from uulearn.cli import main

pytest.importorskip("lightgbm")


def run(capsys, *arguments):
    """Run a command; return its exit code, standard output and standard error."""
    sys.argv = ["uulearn", *map(str, arguments)]
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    return ended.value.code or 0, printed.out, printed.err


@pytest.fixture(autouse=True)
def command_line(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, n, prior in (("a", 200, 0.9), ("b", 240, 0.2), ("new", 300, 0.5)):
        y = rng.random(n) < prior
        frame = pd.DataFrame(
            {"x": rng.normal(size=n) + 2 * y, "ward": np.where(rng.random(n) < 0.2 + 0.6 * y, "n", "s")}
        )
        frame.loc[rng.random(n) < 0.1, "x"] = None
        frame.assign(**({"truth": y.astype(int)} if name == "new" else {})).to_csv(f"{name}.csv", index=False)


FILES = ("a.csv", "b.csv", "--set-priors", "0.9", "0.2", "--out", "model")
FIT = ("fit", *FILES, "--model", "boosting", "--epochs", "15", "--no-sensitivity")


def test_commands_work_on_a_model_of_trees(capsys, tmp_path):
    code, out, err = run(capsys, *FIT)
    assert (code, "accuracy   between" in out) == (0, True), err
    assert {path.suffix for path in (tmp_path / "model").iterdir()} <= {".json", ".safetensors", ".toml", ".md"}
    code, out, err = run(capsys, "predict", "model", "new.csv", "--out", "scored.csv")
    assert code == 0, err
    scored = pd.read_csv("scored.csv")
    assert (scored["class"] == pd.read_csv("new.csv")["truth"]).mean() > 0.75
    code, out, err = run(capsys, "evaluate", "model", "new.csv", "--labels", "truth", "--json")
    assert code == 0, err
    assert json.loads(out)
    code, out, err = run(capsys, "report", "model", "--out", "report.html")
    assert code == 0, err
    assert "Each model uses only its first " in (tmp_path / "report.html").read_text()
    code, out, err = run(capsys, "export", "model", "--out", "model.onnx")
    assert code != 0
    assert "models of --model boosting cannot be exported; fit again with --model mlp or --model linear." in err
    assert "Traceback" not in err


def test_effect_of_wrong_priors_is_measured(capsys):
    code, out, err = run(capsys, *FIT[:-1], "--sensitivity", "--json")
    assert code == 0, err
    assert len(json.loads(out)["sensitivity"]["rows"]) > 3


def test_missing_lightgbm_is_reported_before_files_are_read(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    code, _, err = run(capsys, *(word.replace("a.csv", "missing.csv") for word in FIT))
    assert code != 0
    assert "model='boosting' needs LightGBM for training; install it with pip install lightgbm." in err
