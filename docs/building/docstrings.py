"""Convert docstrings to Markdown: tables, linked names, fields of records in one list, and parameters in groups.

Defaults in signatures are shown as values: ``slope=-0.1`` instead of ``slope=defaults.SLOPE``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

RULE = re.compile(r"^\s*=+( +=+)+\s*$")
NAME = re.compile(r"(?<![`\[\w])`(?:uulearn\.)?([A-Za-z_][\w.]*)`(?![`\]\w])")
SHARED = re.compile(r"^(\w+(?:, \w+)+)( : [^\n]*)?\n((?:    [^\n]*\n|\n(?=    ))*)", re.MULTILINE)
"""Parameters that are described together in one entry of a docstring."""
TYPE = re.compile(r"^\w+ : ")
"""Start of a line with the type of a parameter, which is not Markdown."""
RETURNED = re.compile(r"^(?:Returns|Yields|Raises)\n-+\n[^\n]*`[^\n]*", re.MULTILINE)
"""Heading of a section that starts with a type, and that type."""
PAGE = re.compile(r"(`*)\bdocs/([\w/-]+)\.md\1")
WORD = re.compile(r"(?:a|[a-z]{2,}(?:-[a-z]+)*)(?![\w(·])")
"""A word at the start of a comment."""
CONSTANT = re.compile(r"^[A-Z][A-Z0-9_]*$")
GROUPS = {
    "uulearn.estimator.classifier.UUClassifier": {
        "Class priors": ["set_priors", "target_prior"],
        "Risk": ["method", "slope", "loss"],
        "Model": ["encoder", "model", "model_params", "n_estimators"],
        "Optimization": ["epochs", "batch_size", "lr", "l2", "training"],
        "Validation, early stopping and self-training": [
            "validation_fraction", "early_stopping", "patience", "self_training_rounds", "consistency",
            "calibrated",
        ],
        "Execution": ["device", "progress", "random_state"],
    },
    "uulearn.training.options.TrainingOptions": {
        "Optimizer": [
            "optimizer", "optimizer_params", "scheduler", "scheduler_interval", "weight_decay", "clip_norm", "ema",
        ],
        "Data and precision": ["input_scale", "augment", "image_shape", "precision", "compile"],
        "Validation and checkpoints": ["smoothing", "checkpoint_dir", "checkpoint_every"],
        "Several processes": ["distributed"],
    },
}  # fmt: skip
"""Headings for the parameters of classes with many parameters; each parameter belongs to one group."""
WITHOUT_EXPORTS = ("data.augmentation", "exceptions", "metrics.calibration")
"""Modules with a page that have no ``__all__``; all their classes and functions are public."""


def to_markdown_tables(text: str) -> str:
    """Convert simple tables (columns under lines of ``=``) to Markdown; without a second line, the header is empty.

    >>> print(to_markdown_tables("===  =====\\n`a`  first\\n`b`  rest\\n===  ====="))
    | | |
    |---|---|
    | `a` | first |
    | `b` | rest |
    >>> print(to_markdown_tables("==  ===\\nn   π\\n==  ===\\na   0.5\\n==  ==="))
    | n | π |
    |---|---|
    | a | 0.5 |
    """
    lines: list[str] = []
    rows: list[str] = []
    for line in [*text.split("\n"), ""]:
        if RULE.match(line) or (rows and line.strip()):
            rows.append(line)
            continue
        lines += _table(rows) if rows else []
        lines.append(line)
        rows = []
    return "\n".join(lines[:-1])


def _table(rows: list[str]) -> list[str]:
    starts = [match.start() for match in re.finditer("=+", rows[0])]

    def to_cells(row: str) -> str:
        cells = [row[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rules = [position for position, row in enumerate(rows) if RULE.match(row)]
    head = to_cells(rows[1]) if len(rules) == 3 else "|" + " |" * len(starts)
    body = _join_continued(rows[rules[-2] + 1 : rules[-1]], starts)
    return [head, "|" + "---|" * len(starts), *map(to_cells, body)]


def _join_continued(rows: list[str], starts: list[int]) -> list[str]:
    """Join rows whose first cell is empty with the last cell of the previous row."""
    joined: list[str] = []
    for row in rows:
        if joined and not row[: starts[1]].strip():
            joined[-1] += " " + row.strip()
        else:
            joined.append(row)
    return joined


def link_names(text: str, places: dict[str, str]) -> str:
    """Link names in single backticks to their documentation; prompts and types are unchanged.

    >>> link_names("see `UURisk`, not ``UURisk``", {"UURisk": "uulearn.risk.UURisk"})
    'see [`UURisk`][uulearn.risk.UURisk], not ``UURisk``'
    >>> link_names("history_ : `uulearn.training.History`", {})
    'history_ : uulearn.training.History'
    >>> link_names("Returns\\n-------\\n`UURisk`\\n    of `UURisk`", {"UURisk": "risk.UURisk"})
    'Returns\\n-------\\nUURisk\\n    of [`UURisk`][risk.UURisk]'
    """

    def link(found: re.Match[str]) -> str:
        name = found[1]
        return f"[`{name}`][{places[name]}]" if name in places else found[0]

    def change(line: str) -> str:
        if TYPE.match(line):
            return line.replace("`", "")
        return line if line.lstrip().startswith(">>>") else NAME.sub(link, line)

    text = RETURNED.sub(lambda found: found[0].replace("`", ""), text)
    return "\n".join(map(change, text.split("\n")))


def link_pages(text: str) -> str:
    """Link the path of a documentation page to the page; the API reference is in a folder next to the guides.

    >>> link_pages("see docs/priors.md and ``docs/studies/priors.md``")
    'see [docs/priors.md](../priors.md) and [docs/studies/priors.md](../studies/priors.md)'
    """
    return PAGE.sub(r"[docs/\2.md](../\2.md)", text)


def split_shared_entries(text: str) -> str:
    """Split an entry of several parameters into one entry per parameter, which then shows its default.

    >>> print(split_shared_entries("Parameters\\n---\\nlow, high : float\\n    The ends.\\n"))
    Parameters
    ---
    low : float
        The ends.
    high : float
        The ends.
    <BLANKLINE>
    """

    def split(entry: re.Match[str]) -> str:
        body = entry[3].rstrip("\n") + "\n" if entry[3].strip() else "    \n"
        after = entry[3][len(entry[3].rstrip("\n")) + 1 :]
        return "".join(f"{name}{entry[2] or ''}\n{body}" for name in entry[1].split(", ")) + after

    return SHARED.sub(split, text)


def add_examples_heading(text: str) -> str:
    """Move prompts without a heading into an Examples section at the end of the docstring.

    >>> add_examples_heading("Add one.\\n\\n>>> 1 + 1\\n2")
    'Add one.\\n\\nExamples\\n--------\\n>>> 1 + 1\\n2'
    """
    if re.search(r"^Examples\n-+$", text, re.MULTILINE):
        return text
    return re.sub(r"^>>> ", "Examples\n--------\n>>> ", text, count=1, flags=re.MULTILINE)


class Docstrings(griffe.Extension):
    """Griffe extension that rewrites the docstrings of a package after it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Rewrite every docstring of the package, and list result classes after the code that users call."""
        places = dict(_public(pkg))
        self._rewrite(pkg, places, pkg)
        for path in {place.rpartition(".")[0] for place in places.values()}:
            module = pkg[path.partition(".")[2]]
            if module.exports:
                module.exports = sorted(module.exports, key=lambda name: _is_result(module[str(name)]))

    def _rewrite(self, thing: Any, places: dict[str, str], package: griffe.Module) -> None:
        if thing.docstring:
            thing.docstring.value = add_examples_heading(thing.docstring.value)
        if thing.is_class and _is_record(thing):
            _describe_fields(thing)
        if thing.is_function:
            for parameter in thing.parameters:
                parameter.default = _value_of(parameter.default, package)
        elif thing.is_attribute and thing.parent.is_class:
            thing.value = _value_of(thing.value, package)  # the default of a field of a dataclass
        if thing.docstring:
            text = split_shared_entries(thing.docstring.value)
            thing.docstring.value = link_pages(link_names(to_markdown_tables(text), places))
        for inner in thing.members.values():  # vocabulary: ok
            if not inner.is_alias:
                self._rewrite(inner, places, package)
        if thing.path in GROUPS:
            _group_parameters(thing, GROUPS[thing.path])


def _value_of(default: Any, package: griffe.Module) -> Any:
    """Return the value of a constant of the package; any other default is returned unchanged."""
    while isinstance(default, griffe.ExprName | griffe.ExprAttribute) and CONSTANT.match(str(default).split(".")[-1]):
        module, _, rest = default.canonical_path.partition(".")
        if module != package.name:
            break
        constant = package[rest]
        default = (constant.final_target if constant.is_alias else constant).value
    return default


def _group_parameters(thing: Any, groups: dict[str, list[str]]) -> None:
    """Replace the section of parameters by one section per group, with the title of the group."""
    sections: list[Any] = []
    for section in thing.docstring.parse("numpy", warn_unknown_params=False, warn_missing_types=False):
        if section.kind is not griffe.DocstringSectionKind.parameters:
            sections.append(section)
            continue
        entries = {entry.name: entry for entry in section.value}
        if different := set(entries) ^ {name for names in groups.values() for name in names}:
            raise ValueError(f"GROUPS of {thing.path} and its parameters differ: {sorted(different)}")
        for title, names in groups.items():
            sections.append(griffe.DocstringSectionParameters([entries[name] for name in names], title=title))
    thing.docstring.parsed = sections


def _public(module: griffe.Module) -> Iterator[tuple[str, str]]:
    """Yield names as written in docstrings, each with its full path."""
    for name, inner in module.modules.items():
        short = inner.path.removeprefix("uulearn.")
        if short in WITHOUT_EXPORTS:
            for defined in [*inner.classes, *inner.functions]:
                yield f"{short}.{defined}", f"{inner.path}.{defined}"
                if defined[0].isupper():
                    yield defined, f"{inner.path}.{defined}"
        if name.startswith("_") or not inner.exports:
            continue
        for exported in map(str, inner.exports):
            yield exported, f"{inner.path}.{exported}"
            yield f"{short}.{exported}", f"{inner.path}.{exported}"
        yield from _public(inner)


def _is_result(thing: Any) -> bool:
    """Return whether this is a record or an error, which functions return or raise."""
    found = thing.final_target if thing.is_alias else thing
    return bool(found.is_class) and (_is_record(found) or found.name.endswith(("Error", "Warning")))


def _is_record(thing: Any) -> bool:
    decorated = any("dataclass" in str(decorator.value) for decorator in thing.decorators)
    return decorated or any("NamedTuple" in str(base) for base in thing.bases)


def _comment(field: Any) -> str:
    """Return the comment at the end of the line that declares a field, as a sentence."""
    comment = field.source.partition("  # ")[2]
    if not comment or comment.startswith(("type:", "noqa", "fmt:")):
        return ""
    start = comment[0].upper() if WORD.match(comment) else comment[0]  # a symbol such as π or w stays as it is
    return start + comment[1:].rstrip(".") + "."


def _describe_fields(record: Any) -> None:
    """Move the descriptions of the fields into the docstring of the record, as its section of attributes."""
    if not record.docstring or re.search(r"^(Attributes|Parameters)\n-", record.docstring.value, re.MULTILINE):
        return
    fields = {
        name: field
        for name, field in record.attributes.items()
        if not name.startswith("_") and field.annotation is not None and "property" not in field.labels
    }
    words = {name: field.docstring.value if field.docstring else _comment(field) for name, field in fields.items()}
    if any(words.values()):
        entries = [
            f"{name} : {fields[name].annotation}\n    " + said.replace("\n", "\n    ") for name, said in words.items()
        ]
        section = "\n".join(["Attributes", "----------", *entries])
        for field in fields.values():
            field.docstring = None
    elif fields:
        section = "Fields: " + ", ".join(f"``{name}`` ({field.annotation})" for name, field in fields.items()) + "."
    else:
        return
    text, heading, examples = record.docstring.value.partition("\nExamples\n---")
    record.docstring.value = text.rstrip("\n") + "\n\n" + section + "\n" + heading + examples
