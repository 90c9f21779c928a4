"""`uulearn plan`: numbers, text, JSON and errors; and the figures of the documentation."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from uulearn import defaults
from uulearn.cli.app import main
from uulearn.cli.plan import render
from uulearn.risk import estimation_cost
from uulearn.theory import (
    anticipated_spread,
    bias_bound,
    deviation_bound,
    guaranteed_spread,
    plan_rows,
    prior_error_effect,
    worst_spread,
)
from uulearn.theory.planning import GAP_FACTORS


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the command in this process; returns exit code, standard output and standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["uulearn", "plan", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        written = capsys.readouterr()
        return caught.value.code or 0, written.out, written.err

    return run


SKEWED = ((0.8, 0.3), 0.3)


def test_plan_combines_the_functions_of_the_theory():
    plan = plan_rows(*SKEWED, accuracy=0.85, half_width=0.03, sizes=(900, 300), delta=0.1)
    spread = anticipated_spread(*SKEWED, accuracy=0.85, delta=0.1)
    splits = {split.name: split for split in plan.splits}
    assert list(splits) == ["best", "equal", "2 : 1", "1 : 2", "5 : 1", "1 : 5", "as given"]
    assert splits["best"].rows == spread.rows(0.03)
    for name, share in {"equal": 1 / 2, "2 : 1": 2 / 3, "1 : 5": 1 / 6, "as given": 3 / 4}.items():
        assert splits[name].rows == spread.rows(0.03, share)
        assert splits[name].cost == pytest.approx(spread.relative_cost(share))
        assert splits[name].rows.total == pytest.approx(splits[name].cost * splits["best"].rows.total, abs=3)
    assert plan.equal == splits["equal"].rows
    assert plan.worst == worst_spread(*SKEWED, delta=0.1).rows(0.03, 0.5)
    assert plan.guaranteed == guaranteed_spread(*SKEWED, delta=0.1).rows(0.03, 0.5)
    assert plan.prior_error == pytest.approx(0.01 * max(prior_error_effect(*SKEWED, accuracy=0.85)))
    given = plan.precision
    assert given.sizes == (900, 300)
    assert given.half_width == spread.half_width((900, 300))
    assert given.half_width / given.standard_error == pytest.approx(1.6448536)
    assert given.interval == (pytest.approx(0.85 - given.half_width), pytest.approx(0.85 + given.half_width))
    assert given.labeled_rows == estimation_cost(*SKEWED, (900, 300)).effective_rows
    assert given.worst_half_width == worst_spread(*SKEWED, delta=0.1).half_width((900, 300))
    assert given.guaranteed_half_width == guaranteed_spread(*SKEWED, delta=0.1).half_width((900, 300))
    lost = {"alpha": 0.3 * 0.15, "beta": 0.7 * 0.15}
    corrected = deviation_bound(*SKEWED, (900, 300), **lost, delta=0.1)
    assert given.corrected_half_width == pytest.approx(corrected.value)
    assert given.corrected_sharp == pytest.approx(corrected.sharp)
    assert given.corrected_bias == pytest.approx(bias_bound(*SKEWED, (900, 300), **lost).sharp)
    assert given.set0_needed == spread.rows_needed(half_width=0.03, set1=300)
    assert given.set1_needed == spread.rows_needed(half_width=0.03, set0=900)


def test_default_sizes_are_equal():
    plan = plan_rows(*SKEWED)
    assert plan.precision.sizes == plan.equal
    assert 0.0199 < plan.precision.half_width <= 0.02
    assert "as given" not in [split.name for split in plan.splits]


def test_closer_priors_need_more_rows():
    plan = plan_rows((0.6, 0.4), 0.5, accuracy=0.9)
    assert [distance.set_priors for distance in plan.distances] == [
        (0.7, 0.3), (0.6, 0.4), (0.575, 0.425), (0.55, 0.45), (0.525, 0.475),
    ]  # fmt: skip
    rows = [distance.rows_each for distance in plan.distances]
    assert rows == sorted(rows)
    assert rows[1] == plan.equal.set0
    assert rows[4] > 16 * rows[1] * 0.99  # a quarter of the distance
    effects = [distance.prior_error for distance in plan.distances]
    assert effects == pytest.approx([0.01, 0.02, 0.02 / 0.75, 0.04, 0.08])
    assert plan.prior_error == effects[1]


def test_impossible_priors_are_omitted():
    """Twice the distance would give 1.05 and 0.25."""
    plan = plan_rows((0.85, 0.45), 0.5)
    assert len(plan.distances) == len(GAP_FACTORS) - 1
    assert plan.distances[0].set_priors == (0.85, 0.45)
    widest = plan_rows((0.75, 0.25), 0.5)
    assert widest.distances[0].set_priors == (1.0, 0.0)


def test_interval_stays_between_0_and_1():
    assert plan_rows((0.6, 0.4), 0.5, accuracy=0.95, sizes=(100, 100)).precision.interval[1] == 1.0
    assert plan_rows((0.55, 0.45), 0.5, accuracy=0.1, sizes=(10, 10)).precision.interval[0] == 0.0


# ------------------------------------------------------------------------------------------------------------- the text


def test_text_without_sizes(command):
    code, out, err = command("--set-priors", 0.6, 0.4, "--target-prior", 0.5, "--accuracy", 0.9, "--details")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "class priors: set 0 60%, set 1 40%, population 50%; expected accuracy 90% on each class"
    assert re.search(r"^  equal +29,244 +29,244 +58,488 +1\.00$", out, re.MULTILINE)
    assert re.search(r"^  5 : 1 +87,730 +17,546 +105,276 +1\.80$", out, re.MULTILINE)
    assert re.search(r"^  equal, by Hoeffding +57,639 +57,639 +115,278$", out, re.MULTILINE)
    assert re.search(r"^  0\.6, 0\.4 \(yours\) +29,244 +2\.0 points$", out, re.MULTILINE)
    assert re.search(r"^  unbiased estimate +±2\.8 points \(Hoeffding\)$", out, re.MULTILINE)
    corrected = r"^  corrected estimate +±4\.0 points \(Theorem 3\); ±2\.8 points with a sharper bias bound$"
    assert re.search(corrected, out, re.MULTILINE)
    assert "Precision of" not in out
    assert lines[-4].startswith("The models of uulearn fit for tables (boosting, mlp) hold out no rows")
    assert lines[-2].startswith("the interval is 1.3 times as wide (for the same width: 1.69 times as many rows)")
    assert lines[-1] == "next: collect 29,244 rows per set to hold out, or 49,423 for uulearn fit"
    assert max(map(len, lines)) <= 120
    _, short, _ = command("--set-priors", 0.6, 0.4, "--target-prior", 0.5, "--accuracy", 0.9)
    assert re.search(r"^  sets of equal size +29,244 rows per set$", short, re.MULTILINE)
    assert "Hoeffding" not in short
    assert "against best" not in short


def test_documentation_shows_the_real_output(command):
    page = (Path(__file__).resolve().parents[2] / "docs" / "theory.md").read_text(encoding="utf-8")
    commands = re.findall(r"```console\n\$ uulearn plan (.*)\n((?:.*\n)+?)```", page)
    assert len(commands) == 1
    for arguments, shown in commands:
        assert command(*arguments.split())[1] == shown


def test_columns_are_aligned():
    text = render(plan_rows((0.6, 0.4), 0.5, sizes=(500, 4000)), given=True, details=True)
    table = text[text.index("Held-out rows") :].split("\n\n")[0].splitlines()[1:]
    assert len({line.index(line.split()[-1]) + len(line.split()[-1]) for line in table[1:-2]}) == 1
    ends = {re.match(r".{26} *[\d,]+", line).end() for line in table[1:]}
    assert ends == {table[0].index("set 0", 20) + len("set 0")}


def test_text_with_sizes(command):
    code, out, _ = command("--set-priors", 0.8, 0.2, "--target-prior", 0.3, "--sizes", 3000, 1000, "--details")
    assert code == 0
    assert "Precision of the accuracy estimate with 3,000 + 1,000 held-out rows" in out
    assert re.search(r"95% interval +±3\.0 points: 0\.870 to 0\.930 around 0\.9", out)
    assert "no number of rows of set 0 is enough, with set 1 unchanged" in out
    assert "2,621 rows of set 1, with set 0 unchanged" in out
    assert re.search(r"^  as given +6,661 +2,221 +8,882 +1\.73$", out, re.MULTILINE)
    assert out.splitlines()[-2:] == [
        "Your rows give ±3.0 points if held out, and ±3.9 points with uulearn fit.",
        "next: collect 2,715 rows per set to hold out, or 4,589 for uulearn fit",
    ]
    _, enough, _ = command("--set-priors", 0.8, 0.2, "--sizes", 3000, 3000, "--delta", 0.1)
    assert re.search(r"90% interval +±1\.6 points", enough)
    assert re.search(r"for ±2\.0 points +enough", enough)
    last = "next: these rows are enough to hold out; for uulearn fit, collect 3,056 rows per set"
    assert enough.splitlines()[-1] == last
    _, enough, _ = command("--set-priors", 0.8, 0.2, "--sizes", 3100, 3100, "--delta", 0.1)
    assert enough.splitlines()[-1] == "next: these rows are enough"


def test_names_the_models_that_fit_compares(command):
    _, out, _ = command("--set-priors", 0.8, 0.2)
    assert f"({', '.join(defaults.AUTO_MODELS)})" in out


def test_vacuous_bounds_are_marked(command):
    _, out, _ = command("--set-priors", 0.55, 0.45, "--sizes", 50, 50, "--details")
    assert re.search(
        r"unbiased estimate +no guarantee \(Hoeffding: the bound, ±136 points, is wider than the range from 0 to 1\)",
        out,
    )
    assert re.search(
        r"corrected estimate +no guarantee \(Theorem 3: .*, is wider than the range from 0 to 1\)$", out, re.M
    )
    _, out, _ = command("--set-priors", 0.55, 0.45, "--sizes", 500, 500, "--details")
    assert re.search(
        r"corrected estimate +no guarantee \(Theorem 3: .*\); ±\d\d points with a sharper bias bound$", out, re.M
    )


def test_json_equals_the_plan(command):
    code, out, err = command("--set-priors", 0.8, 0.3, "--target-prior", 0.3, "--sizes", 900, 300, "--json")
    assert (code, err) == (0, "")
    read = json.loads(out)
    plan = plan_rows(*SKEWED, sizes=(900, 300))
    assert read["splits"]["best"] == {**plan.splits[0].rows._asdict(), "total": plan.splits[0].rows.total, "cost": 1.0}
    assert read["guaranteed"] == plan.guaranteed._asdict()
    assert read["worst"] == plan.worst._asdict()
    assert read["precision"]["sizes"] == {"set0": 900, "set1": 300}
    assert read["precision"]["half_width"] == plan.precision.half_width
    assert read["precision"]["set1_needed"] == plan.precision.set1_needed
    assert (read["set_priors"], read["target_prior"], read["accuracy"]) == ([0.8, 0.3], 0.3, 0.9)
    assert [row["rows_each"] for row in read["distances"]] == [row.rows_each for row in plan.distances]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--set-priors", 0.5, 0.5], "set_priors must differ, got (0.5, 0.5)"),
        (["--set-priors", 80, 20], "not percentages; write --set-priors 0.8 0.2."),
        (
            ["--set-priors", 0.8, 0.2, "--target-prior", 0],
            "target_prior must be a number strictly between 0 and 1, got 0.0",
        ),
        (
            ["--set-priors", 0.8, 0.2, "--accuracy", 90],
            "--accuracy takes fractions between 0 and 1, not percentages; write --accuracy 0.9.",
        ),
        (
            ["--set-priors", 0.8, 0.2, "--half-width", 2],
            "--half-width takes fractions between 0 and 1, not percentages; write --half-width 0.02.",
        ),
        (["--set-priors", 0.8, 0.2, "--sizes", 0, 5], "sizes must be two whole numbers of rows"),
        (["--set-priors", 0.8, 0.2, "--delta", 1], "delta must be a number strictly between 0 and 1, got 1.0"),
        (["--set-priors", "nan", 0.2], "must lie in [0, 1], got nan"),
    ],
)
@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_bad_values_get_one_sentence(command, arguments, text, json_flag):
    code, out, err = command(*arguments, *json_flag)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert text in err
    assert len(err.splitlines()) == 1


def test_requires_set_priors(command):
    code, _, err = command()
    assert code == 2
    assert "--set-priors" in err


def test_module_can_be_run():
    done = subprocess.run(
        [sys.executable, "-m", "uulearn", "plan", "--set-priors", "0.2", "0.8"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("next: ")


def test_plan_is_symmetric_in_the_sets(command):
    one, two = (
        json.loads(command("--set-priors", *priors, "--target-prior", 0.4, "--json")[1])
        for priors in ((0.8, 0.3), (0.3, 0.8))
    )
    swapped = {"set0": two["splits"]["best"]["set1"], "set1": two["splits"]["best"]["set0"]}
    assert {name: one["splits"]["best"][name] for name in ("set0", "set1")} == swapped
    assert one["precision"]["half_width"] == pytest.approx(two["precision"]["half_width"])
