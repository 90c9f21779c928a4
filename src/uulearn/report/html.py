"""Render Jinja2 templates for the report and for the reproduction pages.

HTML templates escape every value. Names come from user files, so invisible characters are shown as escape sequences,
and long names are shortened (`uulearn.markup.text`).
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from uulearn.app import formatting
from uulearn.markup.text import name, visible

MESSAGE_WIDTH = 1000
"""Maximum length of a message or note, in characters."""


@dataclass(frozen=True)
class HtmlTable:
    """A table for the macro ``data_table``; the first ``text_columns`` columns contain text, the others numbers."""

    caption: str
    head: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    text_columns: int = 1


def render_page(template: str, package: str = "uulearn.report", **values: Any) -> str:
    """Render a template of a package; ``base.html.jinja`` of `uulearn.report` is available to all packages."""
    return _environment(package).get_template(template).render(**values)


@functools.cache
def _environment(package: str) -> Environment:
    loaders = [PackageLoader(name) for name in dict.fromkeys((package, "uulearn.report"))]
    environment = Environment(
        loader=ChoiceLoader(loaders),
        autoescape=lambda template: template is not None and template.endswith(".html.jinja"),
        keep_trailing_newline=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if isinstance(value, str) else value,
    )
    environment.filters["name"] = name
    environment.filters["message"] = lambda text: name(formatting.sentence(text), MESSAGE_WIDTH)
    for function in ("percent", "prior", "count", "interval", "plural", "listing", "sentence", "duration"):
        environment.filters[function] = getattr(formatting, function)
    return environment
