"""The demo shows the result of the paper: unbiased drops when its risk becomes negative, corrected methods do not."""

import pytest

from uulearn.cli.demo_runs import demo_tasks, summarize, train_task


@pytest.fixture(scope="module")
def results():
    return {
        (task.name, method): summarize(task, method, train_task(task, method, 200, 0).history_)
        for task in demo_tasks(0)
        for method in ("unbiased", "abs", "relu", "leaky_relu")
    }


@pytest.mark.parametrize("name", ["digits", "breast cancer"])
def test_unbiased_method_drops(name, results):
    row = results[name, "unbiased"]
    assert row.drop > 0.10
    assert row.risk < -1
    assert row.negative_epoch is not None


@pytest.mark.parametrize("name", ["digits", "breast cancer"])
@pytest.mark.parametrize("method", ["abs", "relu", "leaky_relu"])
def test_corrected_methods_do_not_drop(name, method, results):
    row = results[name, method]
    assert row.drop < 0.05
    assert row.accuracy > results[name, "unbiased"].accuracy + 0.10
