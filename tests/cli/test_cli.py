"""The command line in a separate process: output and exit code."""

import contextlib
import gc
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from helpers.plain import plain_classifier
from helpers.processes import python
from helpers.run_command import run
from uulearn import UUClassifier, __version__
from uulearn.cli import fast_imports
from uulearn.cli.app import app


def uulearn(*arguments, cwd=None):
    code, out, err = python("-m", "uulearn", *arguments, cwd=cwd, env={"COLUMNS": "120"})
    return subprocess.CompletedProcess(arguments, code, out, err)


@pytest.fixture(scope="module")
def model(tmp_path_factory, gaussians):
    folder = tmp_path_factory.mktemp("cli") / "model"
    frame = pd.DataFrame(gaussians["X"], columns=["a", "b", "c"])
    plain = plain_classifier((0.8, 0.2), model="linear", epochs=3, lr=0.1, random_state=0, encoder=None)
    plain.fit(frame, gaussians["sets"]).save(folder)
    return folder


def test_prints_version_and_help():
    assert uulearn("--version").stdout.strip() == f"uulearn {__version__}"
    text = uulearn("--help").stdout
    assert "demo" in text
    assert "predict" in text


@pytest.mark.parametrize("ends", [None, KeyboardInterrupt])
def test_garbage_collection_continues_after_the_imports(monkeypatch, ends):
    with fast_imports():  # torch is already imported
        assert gc.isenabled()
    monkeypatch.delitem(sys.modules, "torch")
    with contextlib.suppress(KeyboardInterrupt), fast_imports():
        assert not gc.isenabled()
        if ends is not None:
            raise ends
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    assert (gc.isenabled(), frozen > 0) == (True, True)


COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_flags_without_a_type_and_an_example(command):
    text = uulearn(command, "--help").stdout
    assert "<bool>" not in text
    assert f"Example: uulearn {command}" in text


@pytest.mark.skipif(sys.platform != "linux", reason="OMP_DISPLAY_ENV of libgomp")
@pytest.mark.parametrize(("given", "spins"), [({}, "0"), ({"GOMP_SPINCOUNT": "7"}, "7")])
def test_waiting_threads_sleep_unless_the_user_says_otherwise(given, spins):
    """The OpenMP runtime of torch reads the setting when it is loaded, and prints it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    command = [sys.executable, "-m", "uulearn", "evaluate", "none", "a.csv", "b.csv"]
    env = environment | given | {"OMP_DISPLAY_ENV": "VERBOSE"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 2
    counts = set(re.findall(r"GOMP_SPINCOUNT = '(\d+)'", done.stderr))
    assert counts == {spins}


def test_help_does_not_import_torch():
    code = (
        "import sys\nfrom uulearn.cli.app import app\n"
        "try:\n    app(['fit', '--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'torch', 'sklearn', 'pandas', 'rich'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_predict_agrees_with_the_estimator(model, gaussians, tmp_path):
    frame = pd.DataFrame(gaussians["X_test"][:20], columns=["a", "b", "c"])
    frame[["c", "a", "b"]].to_csv(tmp_path / "rows.csv", index=False)  # columns are found by name
    done = uulearn("predict", model, tmp_path / "rows.csv", "--out", tmp_path / "scored.csv")
    assert (done.returncode, done.stderr) == (0, f"20 rows scored, written to {tmp_path / 'scored.csv'}\n")
    scored = pd.read_csv(tmp_path / "scored.csv")
    classifier = UUClassifier.load(model)
    np.testing.assert_allclose(scored["score"], classifier.decision_function(frame), rtol=1e-4)
    np.testing.assert_allclose(scored["probability"], classifier.predict_proba(frame)[:, 1], rtol=1e-4)
    np.testing.assert_array_equal(scored["class"], classifier.predict(frame))
    np.save(tmp_path / "rows.npy", gaussians["X_test"][:20])
    done = uulearn("predict", model, tmp_path / "rows.npy")
    assert done.stdout == (tmp_path / "scored.csv").read_text()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a,b,c\n1,2,x\n", "has 'x' in row 1, column 'c', which is not a finite number"),
        ("a,b,c\n1,2\n", "line 2 of"),
        ("a,b,c\n", "has no rows"),
        ("", "is empty"),
        ("a,b\n1,2\n", "lacks the column 'c'"),
        ("5,2\n3,4\n", "has 2 columns, but the model expects 3"),
        ("a,b,c\n1,2,nan\n", "has nothing in row 1, column 'c', which is not a finite number"),
        (b"\xff\xfe\x00", "save it as UTF-8"),
    ],
)
def test_bad_rows_get_one_sentence(model, tmp_path, content, text):
    path = tmp_path / "rows.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = uulearn("predict", model, path, "--out", tmp_path / "scored.csv")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "scored.csv").exists()


def test_numbered_columns_are_a_header(tmp_path, gaussians):
    plain_classifier((0.8, 0.2), model="linear", epochs=1).fit(gaussians["X"], gaussians["sets"]).save(
        tmp_path / "model"
    )
    pd.DataFrame(gaussians["X_test"][:5]).to_csv(tmp_path / "rows.csv", index=False)
    done = uulearn("predict", tmp_path / "model", tmp_path / "rows.csv")
    assert len(done.stdout.splitlines()) == 1 + 5


def test_closed_pipe_is_not_an_error(model, tmp_path, gaussians):
    np.save(tmp_path / "rows.npy", np.tile(gaussians["X_test"], (40, 1)))
    command = f"{sys.executable} -m uulearn predict {model} {tmp_path / 'rows.npy'} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("score,probability,class\n", "")


def test_bad_paths_get_one_sentence(model, tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((2, 3)))
    folder = uulearn("predict", model, tmp_path / "rows.npy", "--out", tmp_path)
    assert (folder.returncode, "is a folder" in folder.stderr) == (2, True)
    file = uulearn("demo", "--out", tmp_path / "rows.npy")
    assert (file.returncode, "is a file" in file.stderr) == (2, True)
    missing = uulearn("predict", model, tmp_path / "none.csv")
    assert (missing.returncode, "does not exist" in missing.stderr) == (2, True)
    no_model = uulearn("predict", tmp_path, tmp_path / "none.csv")
    assert (no_model.returncode, "contains no model.json" in no_model.stderr) == (2, True)
    traced = uulearn("--debug", "predict", tmp_path, tmp_path / "none.csv")
    assert "Traceback" in traced.stderr


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ("predict", "model"),
            "Missing argument 'ROWS'. Example: uulearn predict model new_patients.csv --out scored.csv",
        ),
        (("priors",), "Missing argument 'A'. Example: uulearn priors clinic_a.csv clinic_b.csv"),
        (
            ("fit", "a.csv", "b.csv", "c.csv", "--set-priors", 0.8, 0.5, 0.2),
            "extra argument(s) (c.csv 0.2). The command line takes two sets; for more sets, use UUClassifier in Python",
        ),
    ],
)
def test_wrong_number_of_arguments_is_explained(arguments, text):
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert text in done.err


DEMO_TABLES = ["clinic_a.csv", "clinic_b.csv", "labeled_patients.csv", "new_patients.csv"]


def test_demo_writes_all_files_and_its_next_commands_work(tmp_path):
    done = uulearn("demo", "--epochs", 3, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    written = sorted(path.name for path in (tmp_path / "uulearn-demo").iterdir())
    assert written == sorted([*DEMO_TABLES, "demo.png", "digits_model", "digits_rows.csv", "table.csv"])
    assert (tmp_path / "uulearn-demo" / "demo.png").read_bytes().startswith(b"\x89PNG")
    lines = done.stdout.splitlines()
    assert "Number of rows in the sets: digits 600 + 600 (no row is in both sets)," in lines
    assert "breast cancer 180 + 180 (32 rows are in both sets)." in lines
    score, enter, train = (line for line in lines if re.match("  .* predict |  cd |  .* fit ", line))
    script = f"{enter}\n{train} --model linear --epochs 2 --no-sensitivity"
    trained = subprocess.run(script, shell=True, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert (trained.returncode, "1,500 + 1,500 rows" in trained.stdout) == (0, True)
    following = subprocess.run(score, shell=True, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    place = "uulearn-demo/digits_scored.csv"
    assert (following.returncode, following.stderr) == (0, f"540 rows scored, written to {place}\n")
    scored = pd.read_csv(tmp_path / place)
    assert len(scored) == 540
    assert set(scored["class"]) == {0, 1}


def test_demo_can_write_only_the_tables_and_overwrites_no_other_rows(tmp_path):
    done = uulearn("demo", "--files-only", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    folder = tmp_path / "uulearn-demo"
    assert sorted(path.name for path in folder.iterdir()) == DEMO_TABLES
    tables = {name: pd.read_csv(folder / name) for name in DEMO_TABLES}
    assert tables["labeled_patients.csv"]["ill"].mean() == 0.3
    assert all("ill" not in table for name, table in tables.items() if not name.startswith("labeled"))
    assert uulearn("demo", "--files-only", cwd=tmp_path).returncode == 0  # the same rows again
    (folder / "clinic_b.csv").write_text("age\n40\n")
    refused = uulearn("demo", "--files-only", cwd=tmp_path)
    assert (refused.returncode, "clinic_b.csv in uulearn-demo would be overwritten" in refused.stderr) == (2, True)
    assert (folder / "clinic_b.csv").read_text() == "age\n40\n"
