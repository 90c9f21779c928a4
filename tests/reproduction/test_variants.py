"""Variants of the experiments where the paper leaves details open."""

import numpy as np
import pytest
from torch import nn

from uulearn.models import build_model
from uulearn.reproduction import variants
from uulearn.reproduction.experiments import (
    ABS,
    EXPERIMENTS,
    RELU,
    RESNET_VARIANTS,
    VARIANT_METHODS,
    VARIANT_TRIALS,
    VARIANTS,
    Request,
    TableRow,
    runs_of,
    table_rows,
    variant_rows,
    variant_run,
)
from uulearn.reproduction.jobs import plan_jobs
from uulearn.reproduction.runner import model_params
from uulearn.reproduction.sampling import shortened_sets
from uulearn.reproduction.store import key


def test_each_variant_changes_one_entry():
    row = table_rows("table3", Request(["kmnist"]))[2]
    assert row.set_priors == (0.6, 0.4)
    printed = row.run("unbiased", 0)
    changed = {variant: variant_run(row, variant, "unbiased", 0) for variant in VARIANTS}
    assert set(RESNET_VARIANTS) <= set(VARIANTS)
    assert changed.pop("as printed") == printed
    for variant, run in changed.items():
        different = {name for name in run if run[name] != printed.get(name)}
        assert len(different) == 1, variant
    assert changed["decay"]["lr_decay"] == 5e-4
    far = variant_run(table_rows("table3", Request(["kmnist"]))[0], "decay", "unbiased", 0)
    assert far["lr_decay"] == 5e-5
    assert changed["lr / 3"]["lr"] == pytest.approx(1e-5)


def test_variant_runs_are_unique_and_share_those_of_the_tables():
    runs = EXPERIMENTS["variants"](Request())
    keys = [key(run) for run in runs]
    assert len(set(keys)) == len(keys)
    tables = {key(run) for run in runs_of(["table2", "table3"], Request())}
    printed = [run for run in keys if run in tables]
    dense = [run for run in runs if run["model"] != "resnet32" and key(run) in tables]
    assert len(dense) == 12 * VARIANT_TRIALS * len(VARIANT_METHODS)  # nine rows with the MLP, three of CIFAR-10
    assert len(printed) - len(dense) == 2 * 5  # two trials of the ResNet-32 cells that are used for comparison
    assert {row.dataset for row in variant_rows("shortened", Request())} == {"kmnist", "cifar10"}
    assert all(row.model == "mlp" for row in variant_rows("Glorot", Request()))


def test_shortened_sets_with_different_priors_are_separate_jobs():
    runs = [run for run in EXPERIMENTS["variants"](Request(["kmnist"])) if run.get("sampling") == "shortened"]
    assert [len(job.configurations) for job in plan_jobs(runs, 150)] == [15, 15, 15]


@pytest.mark.parametrize("seed", range(3))
def test_shortened_sets_are_short_if_a_class_runs_out(seed):
    y = np.array([1] * 300 + [0] * 700)
    numbers = np.arange(1000)[:, None]
    drawn = shortened_sets(numbers, y, (0.8, 0.2), (500, 500), random_state=seed)
    first, second = drawn.indices
    assert len(first) == 300 + 100  # all available positives, and the requested negatives
    assert len(second) == 100 + 400
    assert len(np.unique(first)) == len(first)
    assert drawn.realized_priors == (0.75, 0.2)
    assert drawn.overlap == 100  # both sets have the same positives
    np.testing.assert_array_equal(drawn.X0[:, 0], first)
    enough = shortened_sets(numbers, y, (0.5, 0.2), (200, 200), random_state=seed)
    assert enough.sizes == (200, 200)
    assert enough.overlap == 0


def test_page_compares_with_the_paper():
    request = Request(["mnist"], trials=2)
    records = {}
    for variant, accuracy in {"as printed": 0.7800, "decay": 0.9}.items():
        for row in variant_rows(variant, request):
            for method in VARIANT_METHODS:
                for seed in range(2):
                    run = variant_run(row, variant, method, seed)
                    curve = [0.1, accuracy + 0.001 * seed]
                    records[key(run)] = {"configuration": run, "curves": {"test_accuracy": curve}}
    cells = variants.variant_results(request, lambda run: records.get(key(run)))
    assert len(cells) == 2 * 3 * len(VARIANT_METHODS)

    def cell(variant, method, priors):
        return next(c for c in cells if (c.variant, c.method, c.row.set_priors) == (variant, method, priors))

    near = cell("as printed", "unbiased", (0.8, 0.2))  # the paper has 78.01
    assert near.mean == pytest.approx(78.05)
    assert near.difference == pytest.approx(0.04)
    assert near.agrees
    assert not cell("decay", "unbiased", (0.8, 0.2)).agrees
    assert cell("as printed", RELU, (0.8, 0.2)).paper.accuracy.mean == 95.15
    page = variants.to_markdown(cells)
    assert "+0.04" in page
    assert "lr × 3" not in page  # it has no runs
    assert "UU-LReLU, λ = −0.01" in page
    assert isinstance(cells[0].row, TableRow)


def test_resnet_has_its_own_section_with_late_medians():
    request = Request(["cifar10"])
    row = next(row for row in variant_rows("no L2", request) if row.set_priors == (0.7, 0.3) and row.table == "table3")
    run = variant_run(row, "no L2", ABS, 0)
    curve = [0.9] * 180 + [0.85] * 19 + [0.8]
    records = {key(run): {"curves": {"test_accuracy": curve}}}
    cells = variants.variant_results(request, lambda wanted: records.get(key(wanted)))
    (cell,) = cells
    assert (cell.mean, cell.std, cell.late) == (pytest.approx(80), None, pytest.approx(85))
    page = variants.to_markdown(cells)
    assert "| CIFAR-10, ResNet-32 | 0.7, 0.3 | 80.53 | −0.53 / +4.47 |" in page
    assert "#### Table 3 with the MLP" not in page


def test_further_trials_count_and_missing_ones_do_not_hide_a_variant():
    request = Request(["cifar10"])
    row = next(row for row in variant_rows("lr / 3", request) if row.set_priors == (0.7, 0.3) and row.table == "table3")
    runs = {key(variant_run(row, "lr / 3", ABS, seed)): 0.8 + 0.02 * seed for seed in range(2)}

    def find(run):
        return {"curves": {"test_accuracy": [runs[key(run)]]}} if key(run) in runs else None

    (cell,) = variants.variant_results(request, find)
    assert cell.mean == pytest.approx(81)
    runs.pop(key(variant_run(row, "lr / 3", ABS, 0)))
    assert not variants.variant_results(request, find)  # the requested trial is missing


def test_batch_normalization_momentum_reaches_the_model():
    row = next(row for row in variant_rows("normalization", Request(["cifar10"])))
    run = variant_run(row, "normalization", -0.1, 0)
    for configuration, momentum in ((run, 0.1), (row.run(-0.1, 0), 0.01)):
        model = build_model("resnet32", (3, 32, 32), model_params(configuration))
        assert {m.momentum for m in model.modules() if isinstance(m, nn.BatchNorm2d)} == {momentum}
