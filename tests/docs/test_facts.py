"""Measured numbers on the pages equal the stored records they come from."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def filler():
    spec = importlib.util.spec_from_file_location("fill_facts", ROOT / "docs" / "building" / "fill_facts.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_marked_value_equals_its_record(filler):
    assert [line for page in filler.find_pages() for line in filler.differences(page)] == []


def test_no_value_in_a_sentence_begins_a_line(filler):
    """Markdown ends the paragraph at a line that begins with a comment."""
    marker = re.compile(r"^ *<!-- fact: \S+ -->[^\n]", re.MULTILINE)
    texts = {page: page.read_text(encoding="utf-8") for page in filler.find_pages()}
    assert [f"{page}: {each[0]}" for page, text in texts.items() for each in marker.finditer(text)] == []


def test_finds_a_changed_value(filler, tmp_path, monkeypatch):
    monkeypatch.setattr(filler, "ROOT", tmp_path)
    monkeypatch.setattr(filler, "read_facts", {"speed": {"ratio": "2.4"}}.__getitem__)
    page = tmp_path / "page.md"
    page.write_text("It is <!-- fact: speed.ratio -->2.5<!-- end --> times as fast.\n")
    assert list(filler.differences(page)) == ["page.md:1: speed.ratio is '2.4', not '2.5'"]
    assert filler.fill(page.read_text()) == "It is <!-- fact: speed.ratio -->2.4<!-- end --> times as fast.\n"


def test_tables_keep_the_blank_lines_around_them(filler, monkeypatch):
    monkeypatch.setattr(filler, "read_facts", {"study": {"table": "| a |\n|---|\n| 1 |"}}.__getitem__)
    text = "<!-- fact: study.table -->\n\n| old |\n\n<!-- end -->"
    assert filler.fill(text) == "<!-- fact: study.table -->\n\n| a |\n|---|\n| 1 |\n\n<!-- end -->"


def test_unknown_fact_is_reported_with_known_facts(filler, monkeypatch):
    monkeypatch.setattr(filler, "read_facts", {"speed": {"ratio": "2.4"}}.__getitem__)
    with pytest.raises(SystemExit, match="has no fact 'ration'; it has ratio"):
        filler.fill("<!-- fact: speed.ration -->1<!-- end -->")


@pytest.mark.parametrize(
    ("text", "wrapped"),
    [
        ("It has\n<!-- fact: a.b -->3<!-- end --> rows.\n", "It has <!-- fact: a.b -->3<!-- end --> rows.\n"),
        (
            "- one\n- It has\n  <!-- fact: a.b -->3<!-- end -->\n  rows.\n- two\n",
            "- one\n- It has <!-- fact: a.b -->3<!-- end --> rows.\n- two\n",
        ),
        ("text\n\n<!-- fact: a.b -->\n\n| a |\n\n<!-- end -->\n", None),
        ("| <!-- fact: a.b -->3<!-- end --> |\n", None),
        ("```\nIt has\n<!-- fact: a.b -->3<!-- end --> rows.\n```\n", None),
    ],
)
def test_no_line_of_a_paragraph_begins_with_a_marker(filler, text, wrapped):
    assert filler.rewrap(text) == (wrapped or text)


def test_long_paragraphs_are_wrapped_before_the_word_that_precedes_a_marker(filler):
    text = f"{'word ' * 22}and now it has\n<!-- fact: a.b -->3<!-- end --> rows.\n"
    first, second, rest = filler.rewrap(text).split("\n")
    assert (first[-7:], second, rest) == ("and now", "it has <!-- fact: a.b -->3<!-- end --> rows.", "")
    assert len(first) <= 119
