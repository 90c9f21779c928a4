"""The choice of λ without labels, and how tables show it."""

import math

import pytest

from uulearn.reproduction import pages, selection
from uulearn.reproduction.experiments import (
    DATASETS,
    PAPER_SET_PRIORS,
    PAPER_TARGET_PRIORS,
    SELECTION_HOLD_OUT,
    Request,
    TableRow,
    table_rows,
)
from uulearn.reproduction.store import key

MNIST_ROW = TableRow("mnist", (0.8, 0.2), "table3", Request())


def record_of(run, accuracy=0.9, risk=None, epochs=None):
    n = run["epochs"] if epochs is None else epochs
    curves = {"test_accuracy": [accuracy] * n, "unbiased": [0.1] * n, "test_risk": [0.3] * n}
    if run["held_out"]:
        curves["validation_zero_one"] = [0.5] * (n - 10) + [risk] * 10
    return {"configuration": run, "curves": curves, "stop_reason": f"all {n} epochs done"}


def fixed_records(row, seed, risks, accuracies):
    """The runs of one trial with given held-out risks and accuracies by λ."""
    found = [record_of(row.run(slope, seed, SELECTION_HOLD_OUT), risk=risk) for slope, risk in risks.items()]
    found += [record_of(row.run(slope, seed), accuracy) for slope, accuracy in accuracies.items()]
    return {key(record["configuration"]): record for record in found}


RISKS = {-0.01: 0.2, -0.03: 0.1, -0.1: 0.15, -0.3: 0.1, -1.0: 0.3}
ACCURACIES = {0.0: 0.80, -0.01: 0.81, -0.03: 0.82, -0.1: 0.83, -0.3: 0.86, -1.0: 0.7}


def test_choice_without_labels():
    records = fixed_records(MNIST_ROW, 0, RISKS, ACCURACIES)
    find = lambda run: records.get(key(run))  # noqa: E731
    assert selection.chosen_slope(MNIST_ROW, 0, find) == -0.03  # as good as −0.3, and closer to 0
    assert selection.chosen_slope(MNIST_ROW, 1, find) is None
    assert [trial.seed for trial in selection.trials_of([MNIST_ROW], find)] == [0]
    (trial,) = selection.trials_of([MNIST_ROW], find)
    assert (trial.chosen, trial.hindsight) == (-0.03, -0.3)
    (comparison,) = selection.compare([trial])
    assert comparison.best_slope == -0.3
    numbers = [getattr(comparison, name) for name in ("relu", "fixed", "chosen", "hindsight_row", "hindsight_trial")]
    assert numbers == pytest.approx([80, 83, 82, 86, 86])
    text = selection.to_markdown({"table2": [], "table3": [trial]})
    assert "Table 2" not in text
    assert "+2.00 with λ chosen without labels, +3.00 with λ = −0.1, +6.00 with the best λ of each row" in text
    assert "in the paper +0.06" in text


def test_failed_runs_are_not_chosen():
    run = MNIST_ROW.run(-0.1, 0, SELECTION_HOLD_OUT)
    assert selection.held_out_risk(record_of(run, risk=0.25)) == 0.25
    assert selection.held_out_risk(record_of(run, risk=0.01, epochs=150)) == math.inf
    assert selection.held_out_risk(record_of(run, risk=math.nan)) == math.inf


def test_hindsight_of_a_row_uses_one_slope_for_all_trials():
    other = ACCURACIES | {-0.3: 0.5, -0.1: 0.9}
    records = fixed_records(MNIST_ROW, 0, RISKS, ACCURACIES) | fixed_records(MNIST_ROW, 1, RISKS, other)
    trials = selection.trials_of([MNIST_ROW], lambda run: records.get(key(run)))
    (comparison,) = selection.compare(trials)
    assert (comparison.best_slope, comparison.trials) == (-0.1, 2)
    assert comparison.hindsight_row == pytest.approx(86.5)
    assert comparison.hindsight_trial == pytest.approx(88)


def test_table_shows_the_chosen_run():
    request = Request(["mnist"], trials=1)
    row = TableRow("mnist", (0.8, 0.2), "table3", request)
    records = fixed_records(row, 0, RISKS, ACCURACIES)
    table = pages.make_table("table3", table_rows("table3", request), lambda run: records.get(key(run)))
    cells = {cell.column.name: cell for cell in table if cell.row.set_priors == (0.8, 0.2)}
    assert cells["leaky_relu"].accuracy.mean == pytest.approx(82)
    assert cells["abs"].accuracy == cells["leaky_relu(-1)"].accuracy
    assert cells["relu"].accuracy.mean == pytest.approx(80)
    assert not cells["biased"].complete
    assert "chosen per trial, without labels, among −0.01, −0.03, −0.1, −0.3, −1." in table.notes[0]
    fixed = pages.make_table(
        "table3", table_rows("table3", Request(["mnist"], 1, selection=False)), lambda run: records.get(key(run))
    )
    shown = next(cell for cell in fixed if cell.column.name == "leaky_relu")
    assert shown.accuracy.mean == pytest.approx(83)


def test_cells_that_are_not_run_do_not_count_as_missing():
    table = pages.make_table("table3", table_rows("table3", Request()), lambda run: None)
    cifar = [cell for cell in table if cell.row.dataset == "cifar10"]
    idle = {cell.column.name for cell in cifar if cell.complete}
    assert idle == {"leaky_relu(-0.01)", "leaky_relu(-0.03)", "leaky_relu(-0.3)"}
    assert len(table.incomplete) == 12 * 11 - 3 * 3
    assert len(table.notes) == 2
    assert "λ = −0.1 for CIFAR-10" in table.notes[1]


def test_datasets_and_priors_match_the_paper():
    assert tuple(PAPER_TARGET_PRIORS) == DATASETS
    assert len(PAPER_SET_PRIORS) == 3


def test_table_notes_mixed_precisions():
    rows = table_rows("table3", Request(["mnist"], 2))
    runs = [run for row in rows for seed in row.seeds for run in row.trial(seed)]

    def record(run, precision):
        return {"configuration": run, "curves": {"test_accuracy": [0.9]}, "environment": {"precision": precision}}

    same = {key(run): record(run, "bfloat16") for run in runs}
    assert not any(
        "bfloat16" in note for note in pages.make_table("table3", rows, lambda run: same.get(key(run))).notes
    )
    mixed = same | {key(runs[0]): record(runs[0], "float32")}
    notes = pages.make_table("table3", rows, lambda run: mixed.get(key(run))).notes
    assert "Runs of MNIST are in bfloat16 and float32." in notes
