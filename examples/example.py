"""Code that the examples share: they run uulearn commands, and store what the commands print in ``record.json``.

The pages of the examples show these records: ``docs/building/facts/examples.py`` formats them, and ``make facts`` (part
of ``make examples``) writes them into the pages.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import json
import os
import platform
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RECORD = "record.json"
WIDTH = 88  # columns of a block of code on a page
HEAD = 6  # lines shown of a file that a command writes
METRICS = {
    "accuracy": "accuracy",
    "true_positive_rate": "true-positive rate",
    "false_positive_rate": "false-positive rate",
    "auc": "AUC",
}


class DataMissingError(Exception):
    """The data of an example is missing; the message says which files to put where."""


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of all examples."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--epochs", type=int, help="number of epochs, for a quick look")
    options.add_argument("--work", type=Path, help="folder for all files (default: work, beside the script)")
    options.add_argument("--write", action="store_true", help=f"store the results in {RECORD}, beside the script")
    return options


@dataclass
class Example:
    """One example: its folder, its working folder, and the commands that ran so far with their output."""

    folder: Path
    work: Path
    epochs: int | None = None
    blocks: dict[str, str] = field(default_factory=dict)

    @classmethod
    def start(cls, script: str, options: argparse.Namespace) -> Example:
        """Create an empty working folder."""
        folder = Path(script).resolve().parent
        work = (options.work or folder / "work").resolve()
        if work.exists() and not (work / ".example").exists() and any(work.iterdir()):
            raise ValueError(f"{work} contains other files; pass an empty or a new folder as --work.")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / ".example").touch()
        return cls(folder, work, options.epochs)

    def run(self, command: str, name: str | None = None, *, head: str | None = None) -> str:
        """Run ``uulearn …`` in the working folder and return its output; with a name, print and store it.

        ``head`` is a file that the command writes; its first lines are shown too.
        """
        words = shlex.split(command)
        if words[1] == "fit" and self.epochs is not None:
            words += ["--epochs", str(self.epochs)]  # the last one given counts
        output = _run_in_process(words, self.work)
        if name is not None:
            block = f"$ {shlex.join(words)}\n{output}".rstrip()
            if head is not None:
                lines = (self.work / head).read_text(encoding="utf-8").splitlines()
                block += "\n".join([f"\n$ head -n {HEAD} {head}", *lines[:HEAD]])
            self.show(name, block)
        return output

    def run_all(self, fit: str, rows: str, evaluate: str) -> dict[str, Any]:
        """Fit, score new rows, write the report and evaluate with labels; return the evaluation."""
        self.run(fit, "fit")
        self.run(f"uulearn predict model {rows} --out scored.csv", "predict", head="scored.csv")
        self.run("uulearn report model", "report")
        self.run(evaluate, "evaluate")
        found: dict[str, Any] = json.loads(self.run(f"{evaluate} --json"))
        return found

    def show(self, name: str, text: str) -> None:
        """Print a text, and store it for the page."""
        print(text, end="\n\n", flush=True)
        self.blocks[name] = text

    def finish(self, truth: Mapping[str, Any], title: str, write: bool) -> None:
        """Compare the estimates with the evaluation by labels, and store the record if ``write`` is true."""
        facts = json.loads(next((self.work / "model").glob("facts-*.json")).read_text(encoding="utf-8"))
        record = {
            "title": title,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": {name: importlib.metadata.version(name) for name in ("torch", "numpy", "scikit-learn")}
            | {"python": platform.python_version(), "uulearn": facts["versions"]["uulearn"]},
            "rows": facts["row_use"]["evaluation"],
            "set_priors": [entry["prior"] for entry in facts["sets"]],
            "target_prior": facts["target_prior"],
            "labeled": sum(truth["confusion"].values()),
            "estimate": _select_metrics(facts["evaluation"]),
            "truth": _select_metrics(truth["evaluation"]),
            "warnings": [entry["message"] for entry in facts["warnings"]],
            "blocks": self.blocks,
        }
        print(comparison(record), verdict(record), sep="\n\n", flush=True)
        if write:
            text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
            (self.folder / RECORD).write_text(text, encoding="utf-8")


def run_example(main: Callable[[], None]) -> None:
    """Run an example; if its data is missing, print one sentence."""
    # One thread, set before torch is imported, so that the results depend on the machine as little as possible.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        main()
    except (DataMissingError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


# ------------------------------------------------------------------------------------------------------ what pages show


def comparison(record: Mapping[str, Any]) -> str:
    """Return a Markdown table of the estimates without labels and the values from the labels.

    >>> one = {"value": 1.02, "interval": [0.85, 1.0]}
    >>> print(comparison({"estimate": {"accuracy": one}, "truth": {"accuracy": {"value": 0.9}}}))
    | | 95% interval, no labels | best estimate, no labels | with the labels | in the interval |
    |---|---|---|---|---|
    | accuracy | 85.0% to 100.0% | 100.0% | 90.0% | yes |
    """
    lines = [
        "| | 95% interval, no labels | best estimate, no labels | with the labels | in the interval |",
        "|---|---|---|---|---|",
    ]
    for name, own in record["estimate"].items():
        true = record["truth"][name]
        inside = "yes" if contains(own, true) else "**no**"
        lines.append(
            f"| {METRICS[name]} | {interval(own)} | {percent(own['value'])} | {percent(true['value'])} | {inside} |"
        )
    return "\n".join(lines)


def verdict(record: Mapping[str, Any]) -> str:
    """Return a paragraph that compares the estimate with the labels.

    >>> own = {"value": 0.9, "interval": [0.85, 0.95]}
    >>> print(verdict({"estimate": {"accuracy": own}, "truth": {"accuracy": {"value": 0.93}}, "labeled": 171}))
    Without labels, the 95% interval of the accuracy is 85.0% to 95.0%, and the best estimate is 90.0%. On the 171
    labeled rows, the accuracy is 93.0%, which is inside the interval.
    """
    own, true = record["estimate"]["accuracy"], record["truth"]["accuracy"]
    where = "inside the interval" if contains(own, true) else "outside the interval"
    text = (
        f"Without labels, the 95% interval of the accuracy is {interval(own)}, and the best estimate is "
        f"{percent(own['value'])}. On the {record['labeled']:,} labeled rows, the accuracy is "
        f"{percent(true['value'])}, which is {where}."
    )
    missed = [METRICS[name] for name, own in record["estimate"].items() if not contains(own, record["truth"][name])]
    missed = [name for name in missed if name != "accuracy"]
    if missed:
        text += f" The interval of the {' and of the '.join(missed)} does not contain the value from the labels."
    return textwrap.fill(text, 116, break_on_hyphens=False)


def contains(estimate: Mapping[str, Any], truth: Mapping[str, Any]) -> bool:
    """Return whether the interval contains the true value, both rounded as they are shown."""
    low, high = (round(bound, 3) for bound in estimate["interval"])
    return bool(low <= round(truth["value"], 3) <= high)


def console(block: str) -> str:
    r"""Return a command with its output as a block of code whose lines fit on a page; other text unchanged.

    >>> print(console("a table"))
    a table
    >>> print(console("$ uulearn fit " + 60 * "x" + " --id row --out model\n   " + 30 * "long "))
    ```console
    $ uulearn fit xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx --id row \
        --out model
       long long long long long long long long long long long long long long long long long
       long long long long long long long long long long long long long
    ```
    """
    if not block.startswith("$ "):
        return block
    lines: list[str] = []
    for line in block.splitlines():
        indent = "    " if line.startswith("$ ") else line[: len(line) - len(line.lstrip())]
        width = WIDTH - 2 if line.startswith("$ ") else WIDTH
        if len(line) <= WIDTH:
            lines.append(line)
            continue
        words = line.replace(" --", "\0--").split("\0") if line.startswith("$ ") else line.split()
        parts = [words[0] if line.startswith("$ ") else indent + words[0]]
        for word in words[1:]:
            if len(parts[-1]) + 1 + len(word) <= width:
                parts[-1] += f" {word}"
            else:
                parts.append(indent + word)
        lines.append((" \\\n" if line.startswith("$ ") else "\n").join(parts))
    return "\n".join(["```console", *lines, "```"])


def interval(estimate: Mapping[str, Any]) -> str:
    """Return the interval of an estimate in percent."""
    low, high = estimate["interval"]
    return f"{percent(low)} to {percent(high)}"


def percent(fraction: float) -> str:
    """Return a fraction in percent, clipped to 0% to 100%: an unbiased estimate may lie outside."""
    return f"{100 * min(1.0, max(0.0, fraction)):.1f}%"


def _run_in_process(words: list[str], folder: Path) -> str:
    """Return the standard output of a command, run in this process because starting Python again takes longer."""
    from uulearn.cli import main

    before, sys.argv = sys.argv, words
    output = io.StringIO()
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(output):
            main()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = before
    return output.getvalue()


def _select_metrics(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {key: evaluation[name][key] for key in ("value", "interval")} for name in METRICS}
