"""Facts and history of one fitted model, shared by the tests of the report."""

import pytest

from helpers.report_example import facts_and_history


@pytest.fixture(scope="session")
def facts():
    return facts_and_history()[0]


@pytest.fixture(scope="session")
def history():
    return facts_and_history()[1]
