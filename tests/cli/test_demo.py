"""The demo's claim, which is the paper's: unbiased falls with the risk going negative, corrected does not."""

import pytest

from uulearn.cli.demo import demo_tasks, outcome, train_task


@pytest.fixture(scope="module")
def outcomes():
    return {
        (task.name, method): outcome(task, method, train_task(task, method, 200, 0).history_)
        for task in demo_tasks(0)
        for method in ("unbiased", "abs", "relu", "leaky_relu")
    }


@pytest.mark.parametrize("name", ["digits", "breast cancer"])
def test_unbiased_drops(name, outcomes):
    row = outcomes[name, "unbiased"]
    assert row.drop > 0.10
    assert row.risk < -1
    assert row.negative_epoch is not None


@pytest.mark.parametrize("name", ["digits", "breast cancer"])
@pytest.mark.parametrize("method", ["abs", "relu", "leaky_relu"])
def test_corrected_does_not(name, method, outcomes):
    row = outcomes[name, method]
    assert row.drop < 0.05
    assert row.accuracy > outcomes[name, "unbiased"].accuracy + 0.10
