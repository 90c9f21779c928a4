"""Run areas in several forked processes, print the time of each, and write the counts to a JSON record."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import platform
import resource
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from hostile.cases import Area, Case, Failed, Trial

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "benchmarks" / "results" / "hostile.json"
FORMAT = 1
AREAS = ("kills", "damage", "tampering", "inputs", "disk", "signals", "names", "stores", "numbers")
"""The modules of the areas, in the order in which they run."""
LISTED_FAILURES = 200
"""Maximum number of failures in the record."""
PRINTED_FAILURES = 30
"""Maximum number of failures of an area that are printed."""
PACKAGES = ("torch", "numpy", "pandas", "pyarrow", "scikit-learn", "safetensors", "python-calamine")


@dataclass
class Result:
    """The outcome of one area."""

    title: str
    cases: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the plain values for the record."""
        times = {"wall_seconds": round(self.wall_seconds, 1), "cpu_seconds": round(self.cpu_seconds, 1)}
        counts = {"refused": 0, "right": 0, **dict(sorted(self.counts.items()))}
        return {
            "title": self.title,
            "cases": self.cases,
            **counts,
            "failures": len(self.failures),
            "listed_failures": self.failures[:LISTED_FAILURES],
            **times,
        }


def main(arguments: Sequence[str] | None = None, areas: Sequence[Area] | None = None) -> int:
    """Run the suite; return 1 if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m hostile", description="Attack uulearn and count the outcomes.")
    parser.add_argument("--seed", type=int, help="seed of all random choices (default: a new one, which is printed)")
    parser.add_argument("--only", action="append", metavar="AREA", help="area to run; can be repeated")
    parser.add_argument("--case", metavar="TEXT", help="run only cases whose name contains this text")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the cases to run (default: 1)")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (default: 2)")
    parser.add_argument("--record", type=Path, help=f"JSON file for the counts (default: {RECORD.relative_to(ROOT)})")
    options = parser.parse_args(arguments)
    known = list(areas) if areas is not None else load_areas(options.only)
    if options.only and (unknown := set(options.only) - {area.name for area in known}):
        parser.error(f"unknown area {sorted(unknown)[0]!r}; choose from {', '.join(AREAS)}")
    chosen = [area for area in known if not options.only or area.name in options.only]
    seed = secrets.randbelow(2**31) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    results = {}
    os.umask(0o022)
    warm_up()
    path = options.record or (None if options.case or options.scale < 1 else RECORD)
    configuration = {"seed": seed, "scale": options.scale, "jobs": options.jobs}
    for area in chosen:
        results[area.name] = result = run_area(area, seed, options.scale, options.jobs, options.case)
        print(summary(area.name, result), flush=True)
        if path is not None:
            update_record(path, area.name, configuration, result)
        for failure in result.failures[:PRINTED_FAILURES]:
            print(f"  FAILED {failure['case']} (number {failure['number']}): {failure['message'][:600]}", flush=True)
    failures = sum(len(result.failures) for result in results.values())
    if path is not None:
        print(f"counts written to {path}")
    wall, cpu = (sum(getattr(r, f"{kind}_seconds") for r in results.values()) for kind in ("wall", "cpu"))
    cases = sum(result.cases for result in results.values())
    print(f"{cases:,} cases, {failures:,} failures, {wall:.0f} s, {cpu:.0f} s of CPU time, seed {seed}")
    return int(failures > 0)


def load_areas(only: Sequence[str] | None = None) -> list[Area]:
    """Import the modules of the areas."""
    sys.path.insert(0, str(ROOT / "tests"))  # the small datasets for reproduce
    wanted = [name for name in AREAS if not only or name in only]
    return [importlib.import_module(f"hostile.{name}").AREA for name in wanted]


def warm_up() -> None:
    """Import everything that the commands use, so that forked processes start at once."""
    import torch

    from hostile.tables import fit_small, write_tables

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="uulearn-hostile-") as name:
        write_tables(Path(name))
        fit_small(Path(name), Path(name) / "model")


def run_area(area: Area, seed: int, scale: float, jobs: int, case: str | None = None) -> Result:
    """Prepare an area and run its cases in parallel."""
    started, used = time.monotonic(), cpu_seconds()
    result = Result(area.title)
    base = Path(tempfile.mkdtemp(prefix=f"uulearn-hostile-{area.name}-"))
    base.chmod(0o755)
    try:
        shared = base / "shared"
        shared.mkdir()
        area.prepare(shared)
        cases = [entry for entry in area.cases(scale) if case is None or case in entry.name]
        for outcome in Workers(area, cases, seed, base).run(jobs):
            result.cases += 1
            result.counts.update(outcome["counts"])
            if outcome["failure"] is not None:
                number = outcome["number"]
                result.failures.append({"case": cases[number].name, "number": number, "message": outcome["failure"]})
    finally:
        shutil.rmtree(base, ignore_errors=True)
    result.wall_seconds, result.cpu_seconds = time.monotonic() - started, cpu_seconds() - used
    return result


class Workers:
    """Forked processes that take the numbers of cases from a pipe; one that dies or hangs is replaced."""

    def __init__(self, area: Area, cases: Sequence[Case], seed: int, base: Path) -> None:
        self.area, self.cases, self.seed, self.base = area, cases, seed, base
        self._queue, writing = os.pipe()
        os.set_blocking(writing, False)
        numbers = np.arange(len(cases), dtype=np.int32).tobytes()
        written = os.write(writing, numbers)
        os.close(writing)
        if written < len(numbers):
            os.close(self._queue)
            raise ValueError(f"an area can have at most {written // 4:,} cases, got {len(cases):,}; split the area.")
        self._logs = 0

    def run(self, jobs: int) -> list[dict[str, Any]]:
        """Run all cases and return their outcomes; a case without an outcome is a failure."""
        running = {self._start(): time.monotonic() for _ in range(min(jobs, len(self.cases)))}
        outcomes: dict[int, dict[str, Any]] = {}
        while running:
            time.sleep(0.05)
            for worker in list(running):
                pid, log = worker
                ended, status = os.waitpid(pid, os.WNOHANG)
                current = self._collect(log, outcomes)
                hangs = current is not None and time.time() - current[1] > self.area.limit
                if not ended and not hangs:
                    continue
                if not ended:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                del running[worker]
                if current is not None:
                    why = "hangs" if hangs else f"the process died ({os.waitstatus_to_exitcode(status)})"
                    tail = log.with_suffix(".out").read_text(errors="replace")[-600:]
                    outcomes[current[0]] = {"number": current[0], "failure": f"{why}: {tail}", "counts": {}}
                if current is not None or (status and log.stat().st_size):  # one that dies at once is not replaced
                    running[self._start()] = time.monotonic()
        os.close(self._queue)
        for number in set(range(len(self.cases))) - outcomes.keys():
            outcomes[number] = {"number": number, "failure": "was not run: a process died between cases", "counts": {}}
        return [outcomes[number] for number in sorted(outcomes)]

    def _collect(self, log: Path, outcomes: dict[int, dict[str, Any]]) -> tuple[int, float] | None:
        """Read the outcomes so far; return the number and the start of the current case, if there is one."""
        current: tuple[int, float] | None = None
        for line in log.read_text().split("\n")[:-1]:
            entry = json.loads(line)
            if "started" in entry:
                current = (entry["number"], entry["started"])
            else:
                outcomes[entry["number"]] = entry
                current = None
        return current

    def _start(self) -> tuple[int, Path]:
        self._logs += 1
        log = self.base / f"worker-{self._logs}.jsonl"
        log.touch()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.setpgid(0, 0)
                output = os.open(log.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(output, 1)
                os.dup2(output, 2)
                self._work(log)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        return pid, log

    def _work(self, log: Path) -> None:
        with log.open("a", buffering=1) as file:
            while taken := os.read(self._queue, 4):
                number = int(np.frombuffer(taken, np.int32)[0])
                file.write(json.dumps({"number": number, "started": time.time()}) + "\n")
                file.write(json.dumps(self._run_case(number)) + "\n")

    def _run_case(self, number: int) -> dict[str, Any]:
        folder = self.base / f"case-{number}"
        folder.mkdir()
        rng = np.random.default_rng([self.seed, zlib.crc32(self.area.name.encode()), number])
        trial = Trial(folder, self.base / "shared", rng)
        failure = None
        try:
            self.cases[number].run(trial)
        except Failed as error:
            failure = str(error)
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            failure = f"{type(error).__name__} at {Path(place.filename).name}:{place.lineno}: {error}"
        if failure is not None:
            failure = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in failure)[:1500]
        shutil.rmtree(folder, ignore_errors=True)
        return {"number": number, "failure": failure, "counts": dict(trial.counts)}


def cpu_seconds() -> float:
    """Return the CPU time of this process and its finished children."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def summary(name: str, result: Result) -> str:
    """Return the line of an area."""
    counts = ", ".join(f"{count:,} {what}" for what, count in sorted(result.counts.items()))
    times = f"{result.wall_seconds:.0f} s, {result.cpu_seconds:.0f} s of CPU time"
    return f"{name:10} {result.cases:,} cases ({counts}), {len(result.failures)} failures, {times}"


def update_record(path: Path, name: str, configuration: dict[str, Any], result: Result) -> None:
    """Write the result of an area to the record, and keep those of other areas; the file changes in one step.

    An area has its own versions, machine and seed, because areas may run at different times.
    """
    import uulearn
    from uulearn.storage import write_atomically

    record: dict[str, Any] = {"format": FORMAT, "areas": {}}
    if path.exists():
        record = json.loads(path.read_text(encoding="utf-8"))
    record["areas"][name] = {
        **result.as_json(),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "configuration": configuration,
        "versions": {
            "uulearn": uulearn.__version__,
            "python": platform.python_version(),
            **{package: metadata.version(package) for package in PACKAGES},
        },
        "machine": machine(),
    }
    record["areas"] = {area: record["areas"][area] for area in sorted(record["areas"], key=_position)}
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _position(name: str) -> int:
    return AREAS.index(name) if name in AREAS else len(AREAS)


def machine() -> dict[str, Any]:
    """Describe the processor, the cores and the system."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = (line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        name = next((value.strip() for key, value in lines if key.strip() == "model name"), name)
    return {"processor": name, "cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}"}
