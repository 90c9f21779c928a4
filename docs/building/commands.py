"""The page of the command line, made from what the commands themselves say with ``--help``."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.structure.pages import Page

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Put a section for every command where the mark is."""
    return markdown.replace(MARK, describe_commands()) if MARK in markdown else markdown


def describe_commands() -> str:
    """Markdown of all commands: what each does, how it is called, its arguments and options."""
    import typer.main

    from uulearn.cli.app import app

    group: Any = typer.main.get_command(app)
    return "\n\n".join(_describe(name, command) for name, command in sorted(group.commands.items()))


def _describe(name: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    call = " ".join(["uulearn", name, *(_placeholder(argument) for argument in arguments), "[OPTIONS]"])
    text = [f"## {name}", _sentences(command.help), f"```console\n$ {call}\n```"]
    rows = [(f"`{_placeholder(argument)}`", argument.help, _default(argument)) for argument in arguments]
    rows += [(_spelling(option), option.help, _default(option)) for option in options if option.name != "help"]
    if rows:
        lines = ["| | | default |", "|---|---|---|"]
        lines += ["| " + " | ".join(_cell(part) for part in row) + " |" for row in rows]
        text.append("\n".join(lines))
    return "\n\n".join(text)


def _sentences(text: str | None) -> str:
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text or "")


def _placeholder(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _spelling(option: Any) -> str:
    spelled = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    if option.is_flag:
        return spelled
    return f"{spelled} {option.metavar or ' '.join(['…'] * option.nargs)}"


def _default(parameter: Any) -> str:
    if parameter.required:
        return "*needed*"
    value = parameter.default
    return "" if value is None or value is False or value == [] else f"`{value}`"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")
