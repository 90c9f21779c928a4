"""Code that the examples share: they run commands of uulearn, and their pages quote the output."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HEAD = 6
OUTPUT, FIGURES, PAGE = "output.txt", "figures.json", "README.md"
COMPARED = {
    "accuracy": "accuracy",
    "true_positive_rate": "true-positive rate",
    "false_positive_rate": "false-positive rate",
    "auc": "AUC",
}


class DataMissingError(Exception):
    """The data of an example is missing; the message says which files to put where."""


def parser(description: str) -> argparse.ArgumentParser:
    """The options of all examples."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--epochs", type=int, help="number of epochs, for a quick look")
    options.add_argument("--work", type=Path, help="folder for all files (default: work, beside the script)")
    options.add_argument("--write", action="store_true", help="update the page and the figures of the example")
    return options


@dataclass
class Story:
    """One example: its folder, its working folder, and the commands and outputs so far."""

    folder: Path
    work: Path
    epochs: int | None = None
    said: dict[str, str] = field(default_factory=dict)
    """The name of each command to the command and its output."""

    @classmethod
    def begin(cls, script: str, options: argparse.Namespace) -> Story:
        """Create an empty working folder."""
        folder = Path(script).resolve().parent
        work = (options.work or folder / "work").resolve()
        if work.exists() and not (work / ".story").exists() and any(work.iterdir()):
            raise ValueError(f"{work} is a folder of other things; pass an empty one, or a new one, as --work.")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (work / ".story").touch()
        return cls(folder, work, options.epochs)

    def type(self, command: str, name: str | None = None, *, head: str | None = None) -> str:
        """Run ``uulearn …`` in the working folder and return its output; with a name it is also shown on the page.

        ``head`` is a file that the command writes; its first lines are shown too.
        """
        words = shlex.split(command)
        if words[1] == "fit" and self.epochs is not None:
            words += ["--epochs", str(self.epochs)]  # the last one given counts
        answer = _answer(words, self.work)
        if name is not None:
            said = f"$ {shlex.join(words)}\n{answer}".rstrip()
            if head is not None:
                lines = (self.work / head).read_text(encoding="utf-8").splitlines()
                said += "\n".join([f"\n$ head -n {HEAD} {head}", *lines[:HEAD]])
            self.show(name, said)
        return answer

    def run_commands(self, fit: str, rows: str, evaluate: str) -> dict[str, Any]:
        """Fit, score new rows, write the report and evaluate with labels; returns the evaluation."""
        self.type(fit, "fit")
        self.type(f"uulearn predict model {rows} --out scored.csv", "predict", head="scored.csv")
        self.type("uulearn report model", "report")
        self.type(evaluate, "evaluate")
        found: dict[str, Any] = json.loads(self.type(f"{evaluate} --json"))
        return found

    def show(self, name: str, text: str) -> None:
        """Print a text, and store it for the page."""
        print(text, end="\n\n", flush=True)
        self.said[name] = text

    def finish(self, truth: Mapping[str, Any], title: str, write: bool) -> None:
        """Compare the estimates with the evaluation by labels, and update the page if ``write`` is true."""
        facts = json.loads(next((self.work / "model").glob("facts-*.json")).read_text(encoding="utf-8"))
        figures = {
            "title": title,
            "rows": facts["row_use"]["evaluation"],
            "set_priors": [entry["prior"] for entry in facts["sets"]],
            "target_prior": facts["target_prior"],
            "labelled": sum(truth["confusion"].values()),
            "estimate": _figures(facts["evaluation"]),
            "truth": _figures(truth["evaluation"]),
            "warnings": [entry["message"] for entry in facts["warnings"]],
        }
        self.show("comparison", comparison(figures))
        self.show("verdict", verdict(figures))
        if write:
            commands = [text for text in self.said.values() if text.startswith("$ ")]
            (self.folder / OUTPUT).write_text("\n\n".join(commands) + "\n", encoding="utf-8")
            (self.folder / FIGURES).write_text(
                json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
            )
            fill_in(self.folder / PAGE, {name: quoted(text) for name, text in self.said.items()})


def run(tell: Any) -> None:
    """Run an example; if its data is missing, print one sentence."""
    # One thread, set before torch is imported, so that the figures depend on the machine as little as possible.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        tell()
    except (DataMissingError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def comparison(figures: Mapping[str, Any]) -> str:
    """A Markdown table of the estimates without labels and the values from the labels.

    >>> one = {"value": 0.9, "interval": [0.85, 0.95]}
    >>> print(comparison({"estimate": {"accuracy": one}, "truth": {"accuracy": one}}))
    | | estimated without labels | with the held-back labels | difference |
    |---|---|---|---|
    | accuracy | 90.0% (85.0% to 95.0%) | 90.0% (85.0% to 95.0%) | 0.0 points |
    """
    lines = ["| | estimated without labels | with the held-back labels | difference |", "|---|---|---|---|"]
    for name, mine in figures["estimate"].items():
        true = figures["truth"][name]
        lines.append(f"| {COMPARED[name]} | {shown(mine)} | {shown(true)} | {difference(mine, true)} |")
    return "\n".join(lines)


def verdict(figures: Mapping[str, Any]) -> str:
    """A paragraph that compares the estimate with the labels.

    >>> mine = {"value": 0.9, "interval": [0.85, 0.95]}
    >>> one = {"estimate": {"accuracy": mine}, "truth": {"accuracy": {"value": 0.93}}, "labelled": 171}
    >>> print(verdict(one))
    Without a label the accuracy was estimated as 90.0%, with a 95% interval from 85.0% to 95.0%. The 171 labels that
    were held back give 93.0%: the estimate is 3.0 points too low, and its interval contains the true value.
    """
    mine, true = figures["estimate"]["accuracy"], figures["truth"]["accuracy"]
    gap = 100 * (mine["value"] - true["value"])
    far = f"{abs(gap):.1f} points too {'high' if gap > 0 else 'low'}" if abs(gap) >= 0.05 else "right"
    low, high = mine["interval"]
    text = (
        f"Without a label the accuracy was estimated as {percent(mine['value'])}, with a 95% interval from "
        f"{percent(low)} to {percent(high)}. The {figures['labelled']:,} labels that were held back give "
        f"{percent(true['value'])}: the estimate is {far}, and its interval "
        f"{'contains' if holds(mine, true) else 'does not contain'} the true value."
    )
    missed = [COMPARED[name] for name, own in figures["estimate"].items() if not holds(own, figures["truth"][name])]
    missed = [name for name in missed if name != "accuracy"]
    if missed:
        text += f" The interval of the {' and of the '.join(missed)} does not contain the value from the labels."
    if any(not 0 <= own["value"] <= 1 for own in figures["estimate"].values()):
        text += " Estimates without labels are unbiased and may lie outside 0% to 100%; read their intervals then."
    return _wrapped(text)


def holds(estimate: Mapping[str, Any], truth: Mapping[str, Any]) -> bool:
    """Whether the interval contains the true value, both rounded as they are shown."""
    low, high = (round(bound, 3) for bound in estimate["interval"])
    return bool(low <= round(truth["value"], 3) <= high)


def fill_in(page: Path, blocks: Mapping[str, str]) -> None:
    """Put new text between the marks ``<!-- begin: name -->`` and ``<!-- end: name -->`` of a page."""
    text = page.read_text(encoding="utf-8")
    for name, block in blocks.items():
        marks = re.compile(rf"(<!-- begin: {name} -->)\n.*?(<!-- end: {name} -->)", re.DOTALL)
        text = marks.sub(lambda found, new=block: f"{found[1]}\n\n{new}\n\n{found[2]}", text)
    page.write_text(text, encoding="utf-8")


def quoted(text: str) -> str:
    """A command with its output as a block of code; other text unchanged."""
    return f"```console\n{text}\n```" if text.startswith("$ ") else text


def shown(estimate: Mapping[str, Any]) -> str:
    """An estimate in percent with its interval."""
    low, high = estimate["interval"]
    return f"{percent(estimate['value'])} ({percent(low)} to {percent(high)})"


def difference(estimate: Mapping[str, Any], truth: Mapping[str, Any]) -> str:
    """Difference between the estimate and the true value, in points.

    >>> difference({"value": 0.9}, {"value": 0.93}), difference({"value": 0.9}, {"value": 0.8999})
    ('−3.0 points', '0.0 points')
    """
    points = round(100 * (estimate["value"] - truth["value"]), 1)
    return f"{points:+.1f} points".replace("-", "−") if points else "0.0 points"


def percent(fraction: float) -> str:
    """A fraction in percent."""
    return f"{100 * fraction:.1f}%".replace("-", "−")


def _answer(words: list[str], folder: Path) -> str:
    """Standard output of a command, run in this process because starting Python again takes longer."""
    from uulearn.cli import main

    before, sys.argv = sys.argv, words
    answer = io.StringIO()
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(answer):
            main()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = before
    return answer.getvalue()


def _figures(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {key: evaluation[name][key] for key in ("value", "interval")} for name in COMPARED}


def _wrapped(text: str, width: int = 116) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False)
