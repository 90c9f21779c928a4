"""Statistics, the paper's numbers, and tables in all three formats."""

import json
import re
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from uulearn.reproduction import statistics
from uulearn.reproduction.experiments import ResultRow
from uulearn.reproduction.reference import PaperCell, Spread, paper_table
from uulearn.reproduction.render import SPACE, to_html, to_latex, to_markdown
from uulearn.reproduction.store import RunStore
from uulearn.reproduction.tables import PAPER_COLUMNS, build_table, slope_column

percent = st.floats(0, 100, allow_subnormal=False)


# Statistics


@given(st.lists(percent, min_size=2, max_size=8))
def test_mean_and_deviation(values):
    mean, std = statistics.mean_std(values)
    assert mean == pytest.approx(sum(values) / len(values))
    squares = sum((value - mean) ** 2 for value in values)
    assert std == pytest.approx((squares / (len(values) - 1)) ** 0.5, abs=1e-9)


@given(st.lists(st.tuples(percent, percent), min_size=2, max_size=8))
def test_paired_t_test_matches_the_formula(pairs):
    a, b = np.array(pairs).T
    p = statistics.paired_t_test(a, b)
    assert 0 <= p <= 1
    assert p == statistics.paired_t_test(b, a)
    differences = a - b
    if np.ptp(differences) > 1e-6:
        t = differences.mean() / (differences.std(ddof=1) / len(a) ** 0.5)
        assert p == pytest.approx(2 * stats.t.sf(abs(t), len(a) - 1), abs=1e-9)


def test_paired_t_test_matches_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(90, 1, 5), rng.normal(89, 1, 5)
    assert statistics.paired_t_test(a, b) == stats.ttest_rel(a, b).pvalue


@pytest.mark.parametrize(
    ("a", "b", "p"),
    [
        ([0.9, 0.8], [0.9, 0.8], 1.0),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], 1.0),
        ([0.9, 0.8, 0.7], [0.8, 0.7, 0.6], 0.0),  # 0.1 each time, up to rounding
        ([0.9], [0.8], None),
        ([], [], None),
    ],
)
def test_paired_t_test_if_the_statistic_is_not_defined(a, b, p):
    assert statistics.paired_t_test(a, b) == p


def test_paired_t_test_rejects_unpaired_and_non_finite_values():
    with pytest.raises(ValueError, match="same number of values"):
        statistics.paired_t_test([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="finite"):
        statistics.paired_t_test([1.0, np.nan], [1.0, 2.0])


def test_trials_are_paired_by_seed():
    best = {0: 95.0, 1: 90.0, 2: 85.0, 7: 80.0}
    shuffled = {2: 84.0, 0: 94.1, 1: 88.9, 8: 70.0}  # a point below, seed by seed
    unpaired = {8: 10.0, 9: 10.0}
    assert statistics.best_methods({"best": best, "close": shuffled, "unpaired": unpaired}) == {"best"}


def test_better_on_the_shared_seeds_is_not_worse():
    best = {0: 90.0, 1: 90.1, 2: 99.0}
    assert statistics.best_methods({"best": best, "other": {0: 91.0, 1: 91.1001}}) == {"best", "other"}


def test_best_methods():
    trials = {
        "a": {0: 90.0, 1: 91.0, 2: 90.0},
        "b": {0: 91.0, 1: 89.5, 2: 90.0},
        "c": {0: 70.0, 1: 71.0, 2: 70.5},
        "d": {},
    }
    assert statistics.best_methods(trials) == {"a", "b"}
    assert statistics.best_methods({"a": {}}) == set()


@pytest.mark.parametrize(
    ("ours", "paper", "verdict"),
    [
        ((90.0, 0.1), (91.5, 0.1), True),  # 1.5 points exactly
        ((79.9, 0.1), (81.4, 0.1), True),  # the same, up to rounding
        ((90.0, 0.1), (91.51, 0.1), False),
        ((90.0, 3.0), (94.0, 4.0), True),  # pooled √(25/2) = 3.54, twice that is 7.07
        ((90.0, 3.0), (97.0, 4.0), True),
        ((90.0, 3.0), (97.1, 4.0), False),
        ((90.0, None), (92.0, 1.0), False),  # 2·√(1/2) = 1.41: 1.5 points decide
        ((90.0, None), (92.0, 2.0), True),  # 2·√(4/2) = 2.83
    ],
)
def test_agreement_rule(ours, paper, verdict):
    assert statistics.agrees(*ours, *paper) is verdict
    assert statistics.agrees(*paper, *ours) is verdict


def test_first_negative_epoch():
    assert statistics.first_negative_epoch([0.5, float("nan"), -0.1, 0.2]) == 3
    assert statistics.first_negative_epoch([0.5, 0.0]) is None
    assert statistics.first_negative_epoch([]) is None


class TestTurningEpoch:
    fall = tuple(0.55 + 0.35 * min(1, epoch / 20) for epoch in range(60))

    def test_overfitting(self):
        rng = np.random.default_rng(0)
        curve = [a - 0.003 * max(0, epoch - 25) for epoch, a in enumerate(self.fall)] + rng.normal(0, 0.002, 60)
        assert 18 <= statistics.turning_epoch(curve) <= 30

    def test_noise_is_not_overfitting(self):
        for seed in range(20):
            noisy = np.array(self.fall) + np.random.default_rng(seed).normal(0, 0.01, 60)
            assert statistics.turning_epoch(noisy) is None

    def test_single_good_epoch_is_not_the_turn(self):
        curve = [a - 0.003 * max(0, epoch - 25) for epoch, a in enumerate(self.fall)]
        curve[5] = 0.99
        assert statistics.turning_epoch(curve) > 15

    def test_small_rise_is_not_a_turn(self):
        assert statistics.turning_epoch([*self.fall, *([0.896] * 10)]) is None
        assert statistics.turning_epoch([*self.fall, *([0.894] * 10)]) is not None

    @pytest.mark.parametrize("curve", [[], [float("nan")] * 3, [0.9], [0.5, 0.6]])
    def test_short_curves_do_not_turn(self, curve):
        assert statistics.turning_epoch(curve) is None

    def test_missing_epochs_are_skipped(self):
        curve = [a - 0.003 * max(0, epoch - 25) for epoch, a in enumerate(self.fall)]
        curve[-1] = curve[3] = float("nan")
        assert statistics.turning_epoch(curve) is not None


# The paper's numbers


def test_printed_tables_are_complete():
    for name in ("table2", "table3"):
        table = paper_table(name)
        assert len(table) == 12
        for cells in table.values():
            assert list(cells) == [column.paper for column in PAPER_COLUMNS]
            best = max(cells.values(), key=lambda cell: cell.accuracy.mean)
            assert best.bold
    assert paper_table("table3")["cifar10", (0.6, 0.4)]["leaky_relu"] == PaperCell((78.34, 1.0), (2.62, 0.69), True)
    assert paper_table("table2")["mnist", (0.8, 0.2)]["biased"] == PaperCell((89.3, 0.09), (0.28, 0.12), False)
    with pytest.raises(ValueError, match="'table2' or 'table3'"):
        paper_table("table4")


def test_reference_numbers_are_in_the_package():
    data = json.loads(resources.files("uulearn.reproduction").joinpath("reference.json").read_text())
    assert "AISTATS 2020" in data["source"]


# A small store: two rows, five methods and two slopes; some runs are missing or ended early

MNIST, OTHER = ResultRow("mnist", (0.8, 0.2)), ResultRow("a_b & <c>", (0.6, 0.4))
SLOPES = (slope_column(-0.01), slope_column(-1))
LAST = {  # last-epoch accuracies by seed, and how far below the best epoch they are
    "biased": ([80.0, 80.5, 81.0, 80.2, 80.3], 15.0),
    "unbiased": ([70.0, 70.5, 71.0, 70.2, 70.3], 25.0),
    "abs": ([95.1, 95.3, 95.2, 95.0, 95.4], 1.0),
    "relu": ([95.0, 95.4, 95.1, 95.2, 95.2], 0.5),
    "leaky_relu": ([94.0, 94.2, 94.1, 93.9, 94.3], 2.0),
}


def record(row, name, seed, last, drop, stop_reason="all 3 epochs done"):
    return {
        "configuration": {"dataset": row.dataset, "set_priors": row.set_priors, "column": name, "seed": seed},
        "stop_reason": stop_reason,
        "curves": {"test_accuracy": [0.5, (last + drop) / 100, last / 100]},
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    store = RunStore(tmp_path_factory.mktemp("store"))
    for name, (accuracies, drop) in LAST.items():
        for seed, last in enumerate(accuracies):
            reason = "the risk was not finite in epoch 3" if name == "unbiased" and seed < 2 else "all 3 epochs done"
            store.add(record(MNIST, name, seed, last, drop, reason))
    for seed in range(5):
        store.add(record(MNIST, SLOPES[0].name, seed, 96.0 + seed / 10, 0.25))
    for seed in range(3):
        store.add(record(OTHER, "abs", seed, 60.0 + seed, 5.0))
    failed = record(OTHER, "biased", 0, 0, 0, "the risk was not finite in epoch 1")
    failed["curves"]["test_accuracy"] = []
    store.add(failed)
    store.pack("golden")

    def runs(row, column):
        return store.records(dataset=row.dataset, set_priors=row.set_priors, column=column.name)

    columns = [*PAPER_COLUMNS, *SLOPES]
    return build_table("Table 3: deep_models", [MNIST, OTHER], columns, runs, paper=paper_table("table3"))


def cell(table, row, name):
    return next(c for c in table if c.row == row and c.column.name == name)


def test_cell_numbers(table):
    found = cell(table, MNIST, "abs")
    assert found.accuracy == pytest.approx((95.2, np.std([95.1, 95.3, 95.2, 95.0, 95.4], ddof=1)), abs=1e-9)
    assert found.drop == pytest.approx((1.0, 0.0), abs=1e-9)
    assert found.paper.accuracy == Spread(95.19, 0.12)
    assert found.difference() == pytest.approx(0.01)
    assert found.difference("drop") == pytest.approx(0.14)
    assert found.complete
    assert found.agrees is True


def test_bold_is_decided_among_the_columns_of_the_paper(table):
    assert {c.column.name for c in table if c.bold} == {"abs", "relu"}  # λ = −0.01 is better, but not among them
    assert cell(table, MNIST, SLOPES[0].name).accuracy.mean == pytest.approx(96.2)


def test_cells_that_differ_from_the_paper(table):
    assert [c.column.name for c in table.disagreeing] == ["unbiased"]
    assert cell(table, MNIST, "biased").agrees is True
    assert len(table.compared) == 5


def test_incomplete_cells(table):
    some, none, failed = (cell(table, OTHER, name) for name in ("abs", "relu", "biased"))
    assert (some.runs, some.requested, some.complete) == (3, 5, False)
    assert some.agrees is None
    assert not some.bold
    assert (none.runs, none.accuracy, none.drop, none.difference()) == (0, None, None, None)
    assert (failed.runs, failed.accuracy, failed.not_finite) == (1, None, 1)
    assert len(table.incomplete) == 5 + 2 + 1


def test_incomplete_cells_are_not_compared():
    table = build_table("t", [MNIST], PAPER_COLUMNS[:1], lambda row, column: [record(row, "biased", 0, 10, 0)],
                        paper=paper_table("table3"))  # fmt: skip
    (found,) = table
    assert found.difference() == pytest.approx(10 - 80.56)
    assert found.agrees is None


@pytest.mark.parametrize(
    ("trials", "note"),
    [
        (2, "MNIST: agreement is weak evidence, because the cells have only 2 trials."),
        (4, "have only 4 trials."),
        (5, ""),
    ],
)
def test_note_on_few_trials_disappears_with_five(trials, note):
    def runs(row, column):
        return [record(row, column.name, seed, 80.0 + seed / 10, 15) for seed in range(trials)]

    table = build_table(
        "t", [MNIST], PAPER_COLUMNS[:1], runs, paper=paper_table("table3"), trials=lambda row: trials
    )  # fmt: skip
    assert len(table.compared) == 1
    assert table.few_trials == ({"MNIST": trials} if note else {})
    for text in (to_markdown(table), to_latex(table), to_html(table)):
        assert ("agreement is weak evidence" in text) == bool(note)
        assert note in text


def test_rejects_two_runs_with_one_seed():
    twice = [record(MNIST, "abs", 0, 90, 0), record(MNIST, "abs", 0, 91, 0)]
    with pytest.raises(ValueError, match=r"MNIST \(0.8, 0.2\), UU-ABS: two runs with seed 0"):
        build_table("t", [MNIST], PAPER_COLUMNS[2:3], lambda row, column: twice)


# Rendering


def test_renders_markdown(table):
    text = to_markdown(table).replace(SPACE, " ")
    assert "### Table 3: deep\\_models" in text
    rows = [line for line in text.splitlines() if line.startswith("| MNIST")]
    assert len(rows) == 3  # accuracy, drop, each λ
    accuracy, drop, slopes = ([part.strip() for part in row.strip("|").split(" | ")] for row in rows)
    assert accuracy[3:] == [
        "80.40 (0.38)<br>*80.56 (0.62)*<br>−0.16",
        "70.40 (0.38)†<br>*78.01 (0.45)*<br>−7.61 ≠",
        "**95.20** (0.16)<br>***95.19** (0.12)*<br>+0.01",
        "**95.18** (0.15)<br>***95.15** (0.43)*<br>+0.03",
        "94.10 (0.16)<br>***95.21** (0.42)*<br>−1.11",
    ]
    assert drop[5] == "1.00 (0.00)<br>*0.86 (0.13)*<br>+0.14"
    assert slopes[3:] == ["96.20 (0.16)<br>0.25 (0.00)", "not run"]
    assert "a\\_b & \\<c\\>" in text
    assert "60.00" not in text
    assert "61.00 (1.00)<br>*3 of 5 trials*" in text
    assert "no number†" in text
    assert "- MNIST (0.8, 0.2), UU-Unbiased: 70.40 (0.38), paper 78.01 (0.45), −7.61 points" in text
    assert "† MNIST (0.8, 0.2), UU-Unbiased: the risk was not finite in 2 of 5 runs" in text
    assert "4 of 5 complete cells agree" in text
    widths = {line.count(" | ") for line in text.splitlines() if line.startswith("|")}
    assert widths == {7, 4}


def braces_balance(text):
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    return depth == 0


def test_renders_latex(table):
    text = to_latex(table)
    assert braces_balance(text)
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 2
    assert text.count(r"\toprule") == text.count(r"\bottomrule") == 2
    assert text.count(r"\begin{tabular}{ccl" + "cc" * 5 + "}") == 1
    body = [line for line in text.splitlines() if line.endswith(r"\\") and "&" in line]
    first = [line.replace(r"\multicolumn{2}", " & ").replace(r"\&", "").count("&") for line in body]
    assert set(first) == {12, 6}  # every line has all its columns: 3 + 2·5, and 3 + 2·2
    assert "$-7.61^{\\neq}$" in text
    assert r"\textbf{95.20} & 1.00" in text
    assert r"70.40$^{\dagger}$" in text
    assert r"61.00$^{3/5}$" in text
    assert r"$\lambda$ = $-$0.01" in text
    assert r"a\_b \& $<$c$>$" in text
    visible = [line for line in text.splitlines() if not line.startswith("%")]
    assert all(ord(letter) < 128 for line in visible for letter in line)


class Reader(HTMLParser):
    """Checks that tags close in order, and collects the cells."""

    def __init__(self):
        super().__init__()
        self.open, self.cells, self.scopes, self.captions = [], [], [], 0

    def handle_starttag(self, tag, attributes):
        if tag in ("meta", "link"):
            return
        self.open.append(tag)
        if tag == "td":
            self.cells.append("")
        if tag == "th":
            self.scopes.append(dict(attributes)["scope"])
        self.captions += tag == "caption"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open:
            self.cells[-1] += data


def test_renders_html(table):
    page = to_html(table)
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert reader.captions == 3
    assert len(reader.cells) == 2 * 2 * 5 + 2 * 2  # accuracy and drop of five methods in two rows, then two slopes
    assert all(reader.cells)
    assert set(reader.scopes) == {"col", "row", "rowgroup"}
    cells = [text.replace(SPACE, " ") for text in reader.cells]
    assert cells[0] == "80.40 (0.38)paper 80.56 (0.62)−0.16"
    assert cells[1] == "70.40 (0.38)†paper 78.01 (0.45)−7.61 ≠differs from the paper"
    assert page.count('class="differs"') == 1
    assert f"<b>95.20{SPACE}(0.16)</b>" in page
    assert "a_b &amp; &lt;c&gt;" in page
    assert "prefers-color-scheme: dark" in page
    assert not re.search(r"<script|https?://|url\(", page)


def test_html_ids_are_unique(table):
    ids = re.findall(r' id="([^"]+)"', to_html(table, table))
    assert len(ids) == len(set(ids)) == 6


def test_table_without_runs():
    empty = build_table("Empty", [MNIST], PAPER_COLUMNS, lambda row, column: [], paper=paper_table("table3"))
    assert to_markdown(empty).count("not run") == 10
    assert to_html(empty).count("not run") == 10
    assert to_latex(empty).count("--") >= 10
    assert "differ from" not in to_markdown(empty)
    bare = build_table("Bare", [MNIST], SLOPES, lambda row, column: [])
    assert all("not run" in text for text in (to_markdown(bare), to_html(bare)))
    assert braces_balance(to_latex(bare))


def test_rows_may_have_different_numbers_of_trials():
    rows = [ResultRow("mnist", (0.8, 0.2)), ResultRow("cifar10", (0.8, 0.2))]
    record = {"configuration": {"seed": 0}, "curves": {"test_accuracy": [0.9]}}
    asked = {rows[0]: 3, rows[1]: 1}
    table = build_table("Mixed", rows, PAPER_COLUMNS[:1], lambda row, column: [record], trials=asked.__getitem__)
    assert [table[row, PAPER_COLUMNS[0]].complete for row in rows] == [False, True]
    assert "over 3 trials (1 for CIFAR-10)" in to_markdown(table)
