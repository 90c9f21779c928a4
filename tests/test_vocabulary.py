"""The vocabulary check of ``make check``, which checks the project itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "check_vocabulary.py"


@pytest.fixture(scope="module")
def vocabulary():
    spec = importlib.util.spec_from_file_location("check_vocabulary", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "word", "part"),
    [
        ("mend the file", "mend", "fix"),
        ("The Share of Positives", "Share of Positives", "class prior"),
        ("state.kept_epoch = 3", "kept_epoch", "best epoch"),
        ("for member in self.members_:", "member", "ensemble"),
        ("both brackets are signed", "brackets", "risk term"),
        ("line 3 has 4 fields where 5 are due", "are due", "expected"),
        ("a colour map", "colour", "color"),
        ("batch normalisation", "normalisation", "-ization"),
    ],
)
def test_finds_banned_word_and_names_replacement(vocabulary, text, word, part) -> None:
    finding = next(vocabulary.check_text(f"first line\n{text}"))
    assert (finding.line, finding.word) == (2, word)
    assert part in finding.replacement


@pytest.mark.parametrize(
    "text",
    [
        "recommended, amended and commended",
        "set memberships",
        "unfolded",
        "stolder",
        "color and center",
        "a wise choice",
    ],
)
def test_respects_word_boundaries(vocabulary, text) -> None:
    assert not list(vocabulary.check_text(text))


def test_counts_every_use_on_a_line(vocabulary) -> None:
    assert [finding.word for finding in vocabulary.check_text("told anew")] == ["told", "anew"]


def test_marked_line_is_skipped(vocabulary) -> None:
    assert not list(vocabulary.check_text('quote = "judge"  # vocabulary: ok'))


def test_prints_findings_and_fails(vocabulary, tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "src").mkdir()
    monkeypatch.setattr(vocabulary, "__file__", str(tmp_path / "tools" / "check_vocabulary.py"))
    page = tmp_path / "src" / "page.md"
    page.write_text("The rows are judged.\n", "utf-8")
    assert vocabulary.main() == 1
    assert capsys.readouterr().out == "src/page.md:1: 'judged': write 'evaluate, evaluation'\n"
    page.write_text("The rows are evaluated.\n", "utf-8")
    assert vocabulary.main([str(page)]) == 0
