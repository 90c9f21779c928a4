"""Code shared by all benchmarks: description of the machine, interleaved timing, summaries, bars and stored results."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

import uulearn
from uulearn.defaults import SINGLE_RUN
from uulearn.storage import write_atomically
from uulearn.training.precision import cpu_multiplies_bfloat16

RESULTS = Path(__file__).resolve().parent / "results"
FORMAT = 1

SET_PRIORS = (0.7, 0.3)
TARGET_PRIOR = 0.5
LR = 5e-5
BATCH_SIZE = 3000
N_FEATURES = 784
LEAKY: dict[str, Any] = SINGLE_RUN | {"method": "leaky_relu"}
"""One model trained on all rows to the last epoch, independent of the defaults of `UUClassifier`."""

Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Settings:
    """Command-line settings; a quick run uses tiny sizes, only to check that the script runs."""

    rounds: int | None
    quick: bool

    def repeats(self, full: int, quick: int) -> int:
        """Return the number of rounds: the requested number, or the default of the benchmark."""
        return self.rounds or (quick if self.quick else full)


@dataclass(frozen=True)
class Bar:
    """A measurement with a lower or upper limit; ``evaluated`` is false if the limit does not apply."""

    name: str
    value: float
    limit: float
    at_least: bool
    evaluated: bool = True
    note: str = ""

    @property
    def verdict(self) -> str:
        """The result in one word."""
        if not self.evaluated:
            return "not evaluated"
        return "pass" if (self.value >= self.limit) == self.at_least or self.value == self.limit else "FAIL"

    def __str__(self) -> str:
        sign = "≥" if self.at_least else "≤"
        note = f"  ({self.note})" if self.note else ""
        return f"{self.verdict:10}  {self.name}: {self.value:.2f}, bar {sign} {self.limit:g}{note}"


@dataclass
class Section:
    """The result of one benchmark: its configuration, all raw measurements, and its bars."""

    configuration: dict[str, Any]
    results: dict[str, Any]
    bars: list[Bar] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the section with machine and versions, because sections may be measured at different times."""
        return {
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": versions(),
            "machine": machine(),
            "configuration": self.configuration,
            "results": self.results,
            "bars": [asdict(bar) | {"verdict": bar.verdict} for bar in self.bars],
        }


# ------------------------------------------------------------------------------------------------ the machine


def versions() -> dict[str, str]:
    """Return the versions of the timed packages."""
    packages = ("torch", "numpy", "scikit-learn", "pandas", "skorch", "lightgbm", "skrub")
    installed = {package.metadata["Name"].lower(): package.version for package in importlib.metadata.distributions()}
    found = {name: installed[name] for name in packages if name in installed}
    return {"python": platform.python_version(), **found, "uulearn": uulearn.__version__}


def machine() -> dict[str, Any]:
    """Return the processor, the number of cores, the memory, and the number of torch threads."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        name = next((value.strip() for key, value in lines if key.strip() == "model name"), name)
    return {
        "processor": name,
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "bfloat16_instructions": cpu_multiplies_bfloat16(),
        "torch_threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
    }


# ----------------------------------------------------------------------------------------------------- timing


def interleave(contenders: Mapping[str, Callable[[], object]], rounds: int, warm_up: bool = True) -> Seconds:
    """Return the seconds of each contender, with one run per round, after one warm-up run of each.

    The noise of a shared machine varies slowly, so it affects all contenders of a round equally, and ratios within a
    round are meaningful. The order is rotated in every round, so that no contender always follows the same one. A
    contender that returns a float has measured its own time.
    """
    names = list(contenders)
    seconds: Seconds = {name: [] for name in names}
    if warm_up:
        for name in names:
            contenders[name]()
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            started = time.perf_counter()
            own = contenders[name]()
            seconds[name].append(own if isinstance(own, float) else time.perf_counter() - started)
        print(f"  round {number + 1} of {rounds} done", file=sys.stderr, flush=True)
    return seconds


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the smallest value, the quartiles and the largest value."""
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"min": min(values), "q1": low, "median": middle, "q3": high, "max": max(values)}


def speedup(seconds: Seconds, fast: str, slow: str) -> float:
    """Return the speed of one contender relative to another: the median of the ratios within a round."""
    return statistics.median(s / f for s, f in zip(seconds[slow], seconds[fast], strict=True))


def summarize(seconds: Seconds, references: Sequence[str]) -> dict[str, Any]:
    """Return the raw seconds, their spread, and the speed of each reference relative to every contender."""
    return {
        "seconds": seconds,
        "spread": {name: spread(values) for name, values in seconds.items()},
        "speedup": {fast: {slow: speedup(seconds, fast, slow) for slow in seconds} for fast in references},
    }


def print_table(title: str, summary: dict[str, Any]) -> None:
    """Print one line per contender."""
    references = list(summary["speedup"])
    print(f"\n{title}\n  {'seconds':32}{'median':>9}{'min':>9}{'q1':>9}{'q3':>9}", end="")
    print("".join(f"{'vs ' + name:>24}" for name in references))
    for name, row in summary["spread"].items():
        figures = "".join(f"{row[key]:9.3f}" for key in ("median", "min", "q1", "q3"))
        print(f"  {name:32}{figures}" + "".join(f"{summary['speedup'][r][name]:23.2f}x" for r in references))


# -------------------------------------------------------------------------------------------- child processes


def ask_child(script: str, *arguments: object) -> dict[str, Any]:
    """Return the JSON output of a new Python process that runs a script of this folder with ``--child``."""
    path = Path(__file__).resolve().parent / script
    command = [sys.executable, str(path), "--child", *map(str, arguments)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def child_arguments() -> list[str]:
    """Return the arguments that `ask_child` passed."""
    if sys.argv[1:2] != ["--child"]:
        sys.exit("this part is run by benchmarks/run.py; see its --only")
    return sys.argv[2:]


# ---------------------------------------------------------------------------------------------------- results


def read_json(path: Path) -> dict[str, Any]:
    """Return the stored results; empty if there are none."""
    stored: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return stored


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace stored results atomically."""
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: _write_text(temporary, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
