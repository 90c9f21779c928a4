"""``uulearn reproduce``: the paper's tables and figures, from runs that are done once and kept."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import typer

from uulearn.cli.several import asks_for_ray
from uulearn.datasets import BinaryTask, load_task
from uulearn.reproduction.experiments import DATASETS, EXPERIMENTS, STUDIES, TARGETS, Request, runs_of
from uulearn.reproduction.jobs import Record, Reporter, TrainingJob
from uulearn.reproduction.pages import Page, check_drawing, render
from uulearn.reproduction.runner import ReproductionOutcome, reproduce
from uulearn.reproduction.store import RunStore
from uulearn.reproduction.tables import DATASET_NAMES

if TYPE_CHECKING:
    from rich.progress import Progress

INTERRUPTED = 130


def run_reproduce(
    target: str,
    request: Request,
    *,
    out: Path | None,
    data_dir: Path | None,
    device: str,
    render_only: bool,
    pack: bool,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
) -> None:
    """Do the runs that are missing, write tables and figures, and say in a few lines what there is."""
    on_ray = asks_for_ray(engine, address, workers)
    targets = choose_targets(target, request)
    out = out or default_folder(request)
    check_folder(out)
    check_drawing(targets)
    store = RunStore(out)
    configurations = runs_of(targets, request)
    outcome = None
    if not render_only:
        tasks = load_all({run["dataset"] for run in store.missing(configurations)}, data_dir)
        if request.quick:
            torch.set_num_threads(1)  # small products gain nothing by threads, and lose much where cores are shared
        with Display() if sys.stderr.isatty() else Lines() as reporter:
            try:
                if on_ray:
                    from uulearn.engines.ray_runs import reproduce_on_ray

                    outcome = reproduce_on_ray(
                        configurations, store, tasks, device=device, reporter=reporter, address=address, workers=workers
                    )
                else:
                    outcome = reproduce(configurations, store, tasks, device=device, reporter=reporter)
            except KeyboardInterrupt:
                reporter.close()
                kept = f"{reporter.found + reporter.done} of {reporter.total} runs are kept in {out}"
                typer.echo(f"interrupted: {kept}; the same command goes on from there.", err=True)
                raise typer.Exit(INTERRUPTED) from None
    pages = render(targets, request, store, out)
    written = [path for page in pages for path in page.paths]
    if pack:
        written += store.pack()
    for line in summary(outcome, pages, len(store.missing(configurations)), written):
        typer.echo(line)


def default_folder(request: Request) -> Path:
    """``results`` for the paper's setting, a folder of its own for any other."""
    if request.is_the_papers:
        return Path("results")
    return Path("results-quick" if request.quick else f"results-{request.epochs}-epochs")


def check_folder(out: Path) -> None:
    """Find out now, not after the first hour, whether anything can be kept."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; pass a folder for runs, tables and figures.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(f"{out} cannot be written into ({error.strerror}); pass another folder as --out.") from None


def load_all(datasets: Iterable[str], data_dir: Path | None) -> Callable[[str], BinaryTask]:
    """The tasks of all datasets that are needed, read before any work, so that a missing one is found at once."""
    found = {name: load_task(name, data_dir=data_dir) for name in DATASETS if name in set(datasets)}
    return found.__getitem__


def choose_targets(target: str, request: Request) -> list[str]:
    """The targets that a name stands for: itself, or all tables and figures of the datasets asked for."""
    if target != "all" and target not in TARGETS:
        raise ValueError(f"the target must be one of {', '.join(TARGETS)} or all, got {target!r}.")
    names = [name for name in TARGETS if name not in STUDIES] if target == "all" else [target]
    everything = Request()
    idle = [name for name in names if EXPERIMENTS[name](everything) and not EXPERIMENTS[name](request)]
    if idle and target != "all":
        known = dict.fromkeys(run["dataset"] for run in EXPERIMENTS[target](everything))
        raise ValueError(f"{target} is about {' and '.join(known)}, got --dataset {' and '.join(request.datasets)}.")
    return [name for name in names if name not in idle]


def summary(
    outcome: ReproductionOutcome | None, pages: Iterable[Page], missing: int, written: Sequence[Path]
) -> list[str]:
    """What was done, what agrees with the paper, and where it is, in a few lines."""
    lines = []
    if outcome is not None:
        odd = f", {outcome.not_finite} of them ended by a risk that was not finite" if outcome.not_finite else ""
        lines.append(f"runs    {outcome.done} done now{odd}; {outcome.found} were there")
    elif missing:
        lines.append(f"runs    {missing} are missing; without --render-only they would be done")
    for page in pages:
        if not page.paths:
            lines.append(f"{page.target}  has no runs yet; nothing was written")
        if page.table is None or not page.paths:
            continue
        evaluated, differ = len(page.table.compared), len(page.table.disagreeing)
        said = (
            f"{evaluated - differ} of {evaluated} complete cells agree with the paper, {differ} differ"
            if evaluated
            else ""
        )
        if incomplete := len(page.table.incomplete):
            said += f"{'; ' if said else ''}{incomplete} of {len(page.table.cells)} cells are not complete"
        if not any(cell.paper for cell in page.table):
            said += f"{'; ' if said else ''}not the paper's setting, so not compared with it"
        lines.append(f"{page.target}  {said}")
    return [*lines, *(f"file    {path}" for path in written)]


class Counting(Reporter):
    """Counts runs and works out the time left, from the epochs done and what they cost."""

    def __init__(self) -> None:
        self.total = self.found = self.done = 0
        self._cost = self._finished = self._current = 0.0
        self._started = time.monotonic()

    def __enter__(self) -> Counting:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take away whatever is shown."""

    def begin(self, jobs: Sequence[TrainingJob], found: int) -> None:
        """Know how much there is to do."""
        self.found, self.total = found, found + sum(len(job.configurations) for job in jobs)
        self._cost = sum(job.cost for job in jobs)
        self._started = time.monotonic()

    def epoch(self, job: TrainingJob, epoch: int, accuracies: Sequence[float]) -> None:
        """Count an epoch."""
        self._current = job.cost * epoch / job.first["epochs"]

    def finish(self, job: TrainingJob, records: Sequence[Record], seconds: float) -> None:
        """Count a job."""
        self.done += len(job.configurations)
        self._finished += job.cost
        self._current = 0.0

    @property
    def share(self) -> float:
        """Of the work, that which is done."""
        return (self._finished + self._current) / self._cost if self._cost else 1.0

    def left(self) -> str:
        """The time left, in words."""
        if self.share == 0:
            return "time left unknown"
        seconds = (time.monotonic() - self._started) * (1 - self.share) / self.share
        return f"about {duration(seconds)} left"


class Lines(Counting):
    """One plain line for each finished job, on standard error."""

    def load(self, dataset: str) -> None:
        """Say what is being read."""
        typer.echo(f"reading {DATASET_NAMES[dataset]}", err=True)

    def finish(self, job: TrainingJob, records: Sequence[Record], seconds: float) -> None:
        """Say what was finished."""
        super().finish(job, records, seconds)
        done = f"{self.found + self.done} of {self.total} runs"
        ended = accuracy_range([record["curves"]["test_accuracy"][-1:] for record in records])
        said = f"{len(records)} in {duration(seconds)}{ended}" if records else "done by another process"
        typer.echo(f"{done}: {describe(job)}: {said}; {self.left()}", err=True)


class Display(Counting):
    """A bar on the terminal: runs done, time left, and how accurate the runs at hand are."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Progress | None = None
        self._task: Any = None

    def begin(self, jobs: Sequence[TrainingJob], found: int) -> None:
        """Show the bar if there is something to do."""
        super().begin(jobs, found)
        if not jobs:
            return
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = [BarColumn(bar_width=10), TextColumn("{task.fields[text]}", markup=False)]
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("runs", total=1.0, text="starting")
        self._bar.start()

    def load(self, dataset: str) -> None:
        """Say what is being read."""
        self._show(f"reading {DATASET_NAMES[dataset]}")

    def epoch(self, job: TrainingJob, epoch: int, accuracies: Sequence[float]) -> None:
        """Show how far the job is."""
        super().epoch(job, epoch, accuracies)
        ended = accuracy_range([[accuracy] for accuracy in accuracies]).removeprefix(", accuracy ")
        self._show(f"{ended}, epoch {epoch}/{job.first['epochs']}, {describe(job)}")

    def finish(self, job: TrainingJob, records: Sequence[Record], seconds: float) -> None:
        """Count the job."""
        super().finish(job, records, seconds)
        self._show(describe(job))

    def _show(self, text: str) -> None:
        if self._bar is not None:
            done = f"{self.found + self.done}/{self.total} runs, {self.left().removeprefix('about ')}"
            self._bar.update(self._task, completed=self.share, text=f"{done}; {text}")

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()


def describe(job: TrainingJob) -> str:
    """A job in a few words.

    Examples
    --------
    >>> one = {"dataset": "mnist", "model": "mlp", "set_priors": [0.8, 0.2], "seed": 0, "held_out": 0, "method": "abs",
    ...        "loss": "logistic"}
    >>> describe(TrainingJob((one,))), describe(TrainingJob((one, one | {"set_priors": [0.7, 0.3], "seed": 4})))
    ('MNIST mlp abs (0.8, 0.2) seed 0', 'MNIST mlp (0.8, 0.2) (0.7, 0.3) seeds 0 to 4')
    """
    first = job.first
    priors = dict.fromkeys(f"({', '.join(f'{p:g}' for p in c['set_priors'])})" for c in job.configurations)
    seeds = sorted({c["seed"] for c in job.configurations})
    named = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    method = [first["method"]] if len(job.configurations) == 1 else []
    method += [first["loss"]] if first["loss"] != "logistic" else []
    words = [DATASET_NAMES[first["dataset"]], first["model"], *method, *priors, named]
    return " ".join(words) + (", to choose λ" if first["held_out"] else "")


def accuracy_range(ends: Iterable[Sequence[float]]) -> str:
    """The lowest and the highest of the accuracies, each in a list that may be empty."""
    values = [100 * value for end in ends for value in end if value == value]
    if not values:
        return ""
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return f", accuracy {low}%" if low == high else f", accuracy {low} to {high}%"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever reads best.

    Examples
    --------
    >>> duration(3.21), duration(130), duration(7300)
    ('3.2 s', '2 min', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
