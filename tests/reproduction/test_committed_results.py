"""The committed pages in ``results/`` follow from the committed runs."""

from pathlib import Path

import pytest

from uulearn.reproduction.experiments import Request
from uulearn.reproduction.pages import render
from uulearn.reproduction.store import RunStore

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.skipif(not (RESULTS / "packed").is_dir(), reason="the results are not part of the package")
def test_committed_pages_equal_rendered_pages(tmp_path):
    pages = render(["table2", "table3", "variants"], Request(), RunStore(RESULTS), tmp_path)
    written = [path.name for page in pages for path in page.paths]
    tables = [f"{table}.{ending}" for table in ("table2", "table3") for ending in ("md", "tex", "html")]
    assert sorted(written) == sorted([*tables, "variants.md", "selection.md", "conclusions.md"])
    for name in written:
        assert (tmp_path / name).read_text("utf-8") == (RESULTS / name).read_text("utf-8"), name
