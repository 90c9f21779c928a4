"""Generate the command-line page from the help texts of the commands."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.structure.pages import Page

MARK = "<!-- commands -->"
GROUPS = {
    "fit": {
        "Class priors": ["set_priors", "target_prior"],
        "Columns and files": ["drop", "ids", "only", "sheet", "images", "image_size", "allow_leakage"],
        "Model and training": [
            "model", "method", "loss", "epochs", "n_estimators", "early_stopping", "self_training_rounds",
            "consistency", "device", "seed",
        ],
        "Evaluation": ["hold_out", "sensitivity"],
        "Settings and output": ["out", "config", "resume", "as_json"],
        "Cluster": ["engine", "address", "workers"],
    },
}  # fmt: skip
"""Headings for the options of commands with many options. Options that are not listed come first."""


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Replace the marker by one section per command."""
    return markdown.replace(MARK, describe_commands()) if MARK in markdown else markdown


def describe_commands() -> str:
    """Return Markdown for all commands: summary, usage, example, arguments and options."""
    import typer.main

    from uulearn.cli.app import app

    group: Any = typer.main.get_command(app)
    return "\n\n".join(_describe(name, command) for name, command in sorted(group.commands.items()))


def _describe(name: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    places = [_placeholder(each) if each.required else f"[{_placeholder(each)}]" for each in arguments]
    call = " ".join(["uulearn", name, *places, "[OPTIONS]"])
    example = str(command.epilog).removeprefix("Example: ")
    text = [f"## {name}", _sentences(command.help), f"`{call}`", f"```console\n{break_command(example)}\n```"]
    groups = GROUPS.get(name, {})
    grouped = {option for names in groups.values() for option in names} | {"help"}
    rows = [(f"`{_placeholder(argument)}`", argument) for argument in arguments]
    text += _table([*rows, *((_spelling(each), each) for each in options if each.name not in grouped)])
    by_name = {option.name: option for option in options}
    for title, names in groups.items():
        own = [by_name[each] for each in names if each in by_name]
        text += [f"**{title}**", *_table([(_spelling(option), option) for option in own])]
    return "\n\n".join(text)


def _table(rows: list[tuple[str, Any]]) -> list[str]:
    if not rows:
        return []
    lines = ["| | meaning | default |", "|---|---|---|"]
    for spelled, parameter in rows:
        meaning, default = split_default(parameter.help or "")
        meaning += " Required." if parameter.required else ""
        lines.append("| " + " | ".join(map(_cell, (spelled, meaning, default or _default(parameter)))) + " |")
    return ["\n".join(['<div class="options" markdown>', "", *lines, "", "</div>"])]


def break_command(line: str, width: int = 80) -> str:
    """Return a command with its prompt; the options of a long command are on separate lines.

    >>> print(break_command("uulearn fit a.csv b.csv --set-priors 0.8 0.2 --out model", width=50))
    $ uulearn fit a.csv b.csv --set-priors 0.8 0.2 \\
        --out model
    """
    lines = ["$"]
    for part in re.split(r" (?=--)", line):
        if len(lines[-1]) + len(part) + 3 > width:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {part}"
    return "\n".join(lines)


def split_default(text: str) -> tuple[str, str]:
    """Split a help text into the description and the default.

    >>> split_default("Maximum number of epochs. Default: 200.")
    ('Maximum number of epochs.', '200')
    >>> split_default("Random seed.")
    ('Random seed.', '')
    """
    meaning, _, default = text.partition(" Default: ")
    return meaning, default.removesuffix(".")


def _sentences(text: str | None) -> str:
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text or "")


def _placeholder(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper())


def _spelling(option: Any) -> str:
    if option.is_flag:
        return f"`{' / '.join([*option.opts, *option.secondary_opts])}`"
    return f"`{', '.join(option.opts)} {option.metavar or ' '.join(['…'] * option.nargs)}`"


def _default(parameter: Any) -> str:
    value = parameter.default
    return "" if parameter.required or value is None or value is False or value == [] else f"`{value}`"


def _cell(text: str) -> str:
    """Return text for a cell of a table; a backslash before a pipe would be visible in code, where it is not needed.

    >>> _cell("0|1 or `0|1`")
    '0\\\\|1 or `0|1`'
    """
    return "`".join(
        part if place % 2 else part.replace("|", "\\|") for place, part in enumerate(text.replace("\n", " ").split("`"))
    )
