"""Check the workflow files of the host: ``python tools/check_workflows.py``.

Every file must be valid YAML with triggers and jobs. Every command must call a target of the Makefile, or a program of
the runner that is listed here. Paths of files of the repository must exist. The exit code is 1 if there is a finding.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {"brew", "grep", "make"}
"""Programs that a step may run."""
ACTION = re.compile(r"[\w-]+/[\w-]+(/[\w-]+)*@[\w./-]+")


def make_targets(makefile: str) -> set[str]:
    """Return the targets of a Makefile that are not files.

    >>> sorted(make_targets(".PHONY: test docs\\ntest: a\\n\\ttrue\\ndocs:\\n"))
    ['docs', 'test']
    """
    declared = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    rules = set(re.findall(r"^([a-z][\w-]*):(?!=)", makefile, re.MULTILINE))
    return rules & set(declared[1].split()) if declared else set()


def check_workflow(text: str, targets: set[str], root: Path = ROOT) -> Iterator[str]:
    """Yield a sentence for every problem of a workflow file."""
    try:
        workflow = yaml.safe_load(text)
    except yaml.YAMLError as error:
        yield f"is not valid YAML: {' '.join(str(error).split())}"
        return
    jobs = workflow.get("jobs") if isinstance(workflow, dict) else None
    if not isinstance(jobs, dict) or True not in workflow:  # YAML 1.1 reads the key "on" as true
        yield "needs the keys 'on' and 'jobs'"
        return
    for name, job in jobs.items():
        if not isinstance(job, dict):
            yield f"job {name} is empty"
            continue
        for key in ("runs-on", "steps", "timeout-minutes"):
            if key not in job:
                yield f"job {name} has no {key!r}"
        needs = job.get("needs", [])
        for other in [needs] if isinstance(needs, str) else needs:
            if other not in jobs:
                yield f"job {name} needs the job {other!r}, which does not exist"
        for step in job.get("steps", []):
            yield from (f"job {name}: {problem}" for problem in _check_step(step, targets, root))


def _check_step(step: dict[str, Any], targets: set[str], root: Path) -> Iterator[str]:
    if ("run" in step) == ("uses" in step):
        yield f"a step needs either 'run' or 'uses', got {sorted(step)}"
        return
    if "uses" in step and not ACTION.fullmatch(step["uses"]):
        yield f"{step['uses']!r} is not an action with a version"
    pinned = step.get("with", {}).get("cache-dependency-path")
    if pinned is not None and not (root / pinned).is_file():
        yield f"the file {pinned!r} does not exist"
    for line in step.get("run", "").splitlines():
        if not (parts := line.split()):
            continue
        program, *words = parts
        if set("|;&") & set(line):
            yield f"{line.strip()!r} has several commands; write one per line"
            continue
        if program not in PROGRAMS:
            yield f"{program!r} is not in the list of programs"
        for word in words if program == "make" else []:
            if "=" not in word and word not in targets:
                yield f"make has no target {word!r}"


def main() -> int:
    """Print all findings; return the exit code."""
    targets = make_targets((ROOT / "Makefile").read_text("utf-8"))
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    findings = [
        f"{file.relative_to(ROOT).as_posix()}: {problem}"
        for file in files
        for problem in check_workflow(file.read_text("utf-8"), targets)
    ]
    print("\n".join(findings) if findings else f"{len(files)} workflow files checked")
    return int(bool(findings) or not files)


if __name__ == "__main__":
    sys.exit(main())
