"""`uulearn priors`: estimates, intervals, warnings and errors."""

import json
import shlex
import sys

import numpy as np
import pandas as pd
import pytest

from uulearn.app.priors import read_sets
from uulearn.cli import main
from uulearn.priors import estimate_set_priors


@pytest.fixture
def uulearn(monkeypatch, capsys):
    """Run a command in this process; returns exit code, standard output and standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["uulearn", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            main()
        return exited.value.code, *capsys.readouterr()

    return call


def rows(rng, n, share, distance):
    y = rng.random(n) < share
    return rng.normal(size=(n, 3)) + np.where(y, distance / 2, -distance / 2)[:, None]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("priors")
    rng = np.random.default_rng(0)
    X0, X1 = rows(rng, 500, 0.9, 2.5), rows(rng, 600, 0.2, 2.5)
    pd.DataFrame(X0, columns=["a", "b", "c"]).to_csv(folder / "A.csv", index=False)
    pd.DataFrame(X1, columns=["a", "b", "c"])[["c", "a", "b"]].to_csv(folder / "B.csv", index=False)
    np.save(folder / "A.npy", X0)
    np.save(folder / "B.npy", X1)
    np.save(folder / "alike.npy", rows(rng, 500, 0.9, 2.5))
    np.save(folder / "few.npy", X1[:50])
    np.save(folder / "narrow.npy", X1[:, :2])
    np.save(folder / "flat.npy", X1[:, 0])
    (folder / "other.csv").write_text("a,b,d\n1,2,3\n")
    (folder / "text.csv").write_text("a,b,c\n1,2,x\n")
    return folder


@pytest.fixture(scope="module")
def expected(files):
    return estimate_set_priors(np.load(files / "A.npy"), np.load(files / "B.npy"), random_state=0)


def test_prints_estimates_intervals_method_and_next_command(uulearn, files, expected):
    code, printed, errors = uulearn("priors", files / "A.csv", files / "B.csv")
    assert (code, errors) == (0, "")
    for line, name, size, share, (low, high) in zip(
        printed.splitlines()[1:3], ("A.csv", "B.csv"), (500, 600), expected.set_priors, expected.intervals,
        strict=True,
    ):  # fmt: skip
        assert line.split() == [
            "set",
            line.split()[1],
            name,
            str(size),
            *f"{share:.1%} {low:.1%} to {high:.1%}".split(),
        ]
    text = " ".join(printed.split())
    assert f"the class prior of set 0 is at least {expected.bounds.higher_prior_at_least:.1%}" in text
    assert "warning" not in text
    assert "which unlabeled rows cannot confirm" in text
    assert f"AUC {expected.set_auc:.3f}" in text
    assert f"and train: uulearn fit {files / 'A.csv'} {files / 'B.csv'} --set-priors 0." in printed
    command = next(line for line in printed.splitlines() if line.startswith("  uulearn plan"))
    code, _, errors = uulearn(*shlex.split(command)[1:])
    assert (code, errors) == (0, "")


def test_json_equals_the_estimate_in_python(uulearn, files, expected):
    found = json.loads(uulearn("priors", files / "A.npy", files / "B.npy", "--json")[1])
    assert found["set_priors"] == list(expected.set_priors)
    assert found["intervals"] == [list(interval) for interval in expected.intervals]
    assert found["bounds"] == expected.bounds._asdict()
    assert (found["identified"], found["concern"], found["higher_prior_set"]) == (True, None, 0)


def test_warns_if_priors_are_not_identified(uulearn, files):
    text = " ".join(uulearn("priors", files / "A.npy", files / "alike.npy")[1].split())
    assert (
        "warning: the two sets do not identify their class priors: the rows of the two sets cannot be distinguished"
        in text
    )
    assert "next: label some random rows of each file" in text
    assert "uulearn plan" not in text


def test_identical_files_have_unknown_priors(uulearn, files):
    """Every row has a copy in the other set, so the density ratio is 1 everywhere."""
    lines = uulearn("priors", files / "A.npy", files / "A.npy")[1].splitlines()
    assert lines[1].split() == ["set", "0", "A.npy", "500", "unknown", "0.0%", "to", "100.0%"]
    assert json.loads(uulearn("priors", files / "A.npy", files / "A.npy", "--json")[1])["set_priors"] is None


def test_columns_are_matched_by_name(files):
    X0, X1 = read_sets(files / "A.csv", files / "B.csv")
    np.testing.assert_allclose(X1, np.load(files / "B.npy"))
    np.testing.assert_allclose(X0, np.load(files / "A.npy"))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("A.csv", "none.csv"), "none.csv does not exist"),
        (("A.csv", "other.csv"), "only other.csv has the column 'd'; both files need the same columns"),
        (("other.csv", "A.csv"), "other.csv has 1 rows; each file needs at least two"),
        (("A.csv", "text.csv"), "text.csv has 1 rows; each file needs at least two"),
        (
            ("A.npy", "narrow.npy"),
            "A.npy has 3 columns, but narrow.npy has 2; compute all embeddings with the same encoder",
        ),
        (("A.npy", "flat.npy"), "flat.npy contains an array of shape (600,), but a table needs two dimensions"),
        (("A.npy", "few.npy"), "set 1 has 50 rows"),
    ],
)
def test_bad_files_get_one_sentence(uulearn, files, names, text):
    code, printed, errors = uulearn("priors", *(files / name for name in names))
    assert (code, printed) == (2, "")
    assert errors.startswith("error: ")
    assert text in errors
    assert len(errors.splitlines()) == 1


def test_rejects_a_set_other_than_0_and_1(uulearn, files):
    assert uulearn("priors", files / "A.npy", files / "B.npy", "--higher-prior-set", 2)[0] == 2


def test_options_are_passed_to_the_estimator(uulearn, files):
    code, printed, _ = uulearn(
        "priors", files / "A.npy", files / "B.npy", "--higher-prior-set", 1, "--seed", 7, "--json"
    )
    again = estimate_set_priors(np.load(files / "A.npy"), np.load(files / "B.npy"), higher_prior_set=1, random_state=7)
    assert code == 0
    found = json.loads(printed)
    assert found["set_priors"] == list(again.set_priors)
    assert found["intervals"] == [list(interval) for interval in again.intervals]
