"""Names from user files in the report: escaped, shortened, and made visible."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.report_page import checked, parse, section
from uulearn.app.facts import RaisedWarning
from uulearn.markup.svg import element
from uulearn.markup.text import name, shorten, visible
from uulearn.report import render_report, write_report
from uulearn.training import History

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'single' & \"double\"",
    "</style></title></svg><b>",
    "&lt;already&gt; &amp;amp;",
    "مريض",
    "🧪 👩‍⚕️",
    "javascript:alert(1)",
    "{{7*7}} ${x} %s",
]


def first_replaced(items, **changes):
    return (replace(items[0], **changes), *items[1:])


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_are_text(facts, history, text):
    plain = [node.tag for node in checked(render_report(facts, history, title="title")).walk()]
    hostile = replace(
        facts,
        sets=first_replaced(facts.sets, name=text),
        columns=first_replaced(facts.columns, name=text, reason=text, kind=text),
        importance=first_replaced(facts.importance, column=text),
        sensitivity=replace(facts.sensitivity, conclusion=text),
        commands=facts.commands | {"predict": text},
        configuration={"seed": 0, "classifier": {"method": text, "model": text, "epochs": 30}},
        command=text,
        notes=(text,),
        device=text,
        created=text,
    )
    root = checked(render_report(hostile, History(history.epochs, text, best_epoch=history.best_epoch), title=text))
    tags = [node.tag for node in root.walk()]
    assert sorted(tag for tag in tags if tag != "bdi") == sorted(tag for tag in plain if tag != "bdi")
    assert root.one("h1").text == root.one("head").one("title").text == text
    assert section(root, "trained").one("code").text == text
    assert section(root, "commands").all("code")[0].text == text
    assert section(root, "data").all("table")[0].rows()[1][0] == text
    figure = root.one("figure", id="figure-importance")
    assert figure.one("table").rows()[1][0] == text
    assert text in figure.one("desc").text
    assert any(node.text.startswith(f"\u2068{shorten(text, 40)}\u2069") for node in root.all("text"))


def test_warnings_are_escaped(facts, history):
    raised = tuple(RaisedWarning("<script>", text) for text in HOSTILE)
    boxes = section(checked(render_report(replace(facts, warnings=raised), history)), "warnings").all("div")
    assert [box.one("bdi").text.rstrip(".") for box in boxes] == HOSTILE


def test_long_names_are_shortened(facts, history):
    long = replace(
        facts,
        sets=first_replaced(facts.sets, name="x" * 5000),
        columns=first_replaced(facts.columns, name="x" * 5000),
        importance=first_replaced(facts.importance, column="x" * 5000),
        notes=("y" * 5000,),
    )
    page = render_report(long, history)
    assert "x" * 119 + "…" in page
    assert "x" * 121 not in page
    assert "y" * 1001 not in page
    label = checked(page).one("figure", id="figure-importance").all("text", class_="name")[0].text
    assert label.startswith(f"\u2068{'x' * 39}…\u2069")


def test_invisible_characters_are_spelled_out(facts, history, tmp_path):
    columns = first_replaced(facts.columns, name="age\x00\u202egpj\ud800\u2069\uffff\x85")
    path = write_report(tmp_path / "report.html", replace(facts, columns=columns), history)
    cell = section(checked(path.read_text("utf-8")), "data").all("table")[1].rows()[1][0]
    assert cell == r"age\x00\u202egpj\ud800\u2069\uffff\x85"


@given(st.text(max_size=30))
def test_text_is_read_back_unchanged(text):
    root = parse(element("p", visible(text), title=visible(text)))
    assert root.one("p").text == root.one("p").attributes["title"] == visible(text) == visible(visible(text))
    visible(text).encode("utf-8")  # a lone surrogate would fail


@given(st.text(max_size=60), st.integers(2, 40))
def test_shortened_text_is_a_prefix(text, width):
    short = shorten(text, width)
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))
    assert parse(name(text, width)).one("bdi").text
