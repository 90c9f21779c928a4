"""The page as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uulearn.report import provenance, questions, training, verdict
from uulearn.report.course import read_course
from uulearn.report.facts import Facts, read_facts
from uulearn.report.markup import Html, element, join, named
from uulearn.report.style import style_sheet
from uulearn.storage import write_atomically
from uulearn.training.history import History

TITLE = "Report on a classifier from two unlabeled sets"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
"""Nothing is loaded and nothing runs, whatever a file's names hold."""


def render_report(facts: Mapping[str, Any], history: History, *, title: str = TITLE) -> str:
    """One self-contained HTML page about a trained model.

    Parameters
    ----------
    facts : mapping
        What was stored when the model was trained: files, columns, estimates, warnings, commands. Keys that are not
        known are ignored; what is missing is said to be, on the page.
    history : `uulearn.training.History`
        The classifier's ``history_``: one record an epoch with both signed brackets, the risk and the objective.
    title : str
        The page's title and first heading.

    Returns
    -------
    str
        HTML. It loads nothing and runs no script; all names, messages and commands in it are escaped.

    Raises
    ------
    ValueError
        Where a fact is of a wrong type; the sentence says which.

    Examples
    --------
    >>> accuracy = {"value": 0.931, "interval": [0.88, 0.974]}
    >>> facts = {"target_prior": 0.5, "evaluation": {"accuracy": accuracy, "sizes": [100, 120], "labels_used": False}}
    >>> page = render_report(facts, History([{"epoch": 1, "positive": 0.2, "negative": 0.1, "unbiased": 0.3}]))
    >>> "93.1%" in page, "No label was used" in page, "<script" in page
    (True, True, False)
    """
    if not isinstance(title, str):
        raise TypeError(f"title must be a text, got {title!r}.")
    known, course = read_facts(facts), read_course(history)
    parts = [
        ("figures", "Other figures of merit", verdict.figures(known)),
        ("trained", "What was trained", provenance.trained(known, course)),
        ("data", "The data", provenance.data(known)),
        ("training", "How the training went", training.training(known, course)),
        ("targets", "If another share is positive", questions.targets(known)),
        ("sensitivity", "If the shares of positives are wrong", questions.sensitivity(known)),
        ("scores", "Scores by set", questions.scores(known)),
        ("importance", "Which columns matter", questions.importance(known)),
        ("commands", "Use it, and repeat it", questions.commands(known)),
        ("words", "What the words mean", questions.words()),
    ]
    warned = "Warnings" if len(known.warnings) != 1 else "Warning"
    links = [element("li", element("a", heading, href=f"#{name}")) for name, heading, _ in parts]
    body = [
        element("a", "Skip to the report", href="#report", class_="skip"),
        element("header", element("h1", element("bdi", title)), _subtitle(known)),
        element(
            "main",
            verdict.verdict(known, course),
            element(
                "section", element("h2", warned, id_="warnings"), verdict.warnings(known), aria_labelledby="warnings"
            ),
            element("nav", element("ul", links), aria_label="Sections of this report"),
            [
                element("section", element("h2", heading, id_=name), content, aria_labelledby=name)
                for name, heading, content in parts
            ],
            id_="report",
            tabindex="-1",
        ),
        element("footer", element("p", _made_by(known), "It is one file: it loads nothing and runs no script.")),
    ]
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", Html(style_sheet())),
    ]
    page = element("html", element("head", head), element("body", body), lang="en")
    return f"<!DOCTYPE html>\n{page}\n"


def write_report(path: str | Path, facts: Mapping[str, Any], history: History, *, title: str = TITLE) -> Path:
    """Write `render_report`'s page to a file, whole or not at all, and return its path."""
    target, text = Path(path), render_report(facts, history, title=title)
    write_atomically(target, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return target


def _subtitle(facts: Facts) -> Html | None:
    if not facts.files:
        return None
    names = [join(" and " if place else None, named(file.name, 60)) for place, file in enumerate(facts.files)]
    return element("p", "Trained on ", names, class_="muted")


def _made_by(facts: Facts) -> str:
    version = dict(facts.versions).get("uulearn")
    return f"This page was made from a model of uulearn {version}. " if version else ""
