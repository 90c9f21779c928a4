"""``uulearn reproduce``: reproduce the tables and figures of the paper; stored runs are not repeated."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from uulearn.cli.options import Address, Engine, RayWorkers, argument, flag, option, uses_ray

if TYPE_CHECKING:
    from uulearn.datasets import BinaryTask
    from uulearn.reproduction.experiments import Request
    from uulearn.reproduction.pages import Page
    from uulearn.reproduction.runner import ReproductionOutcome


def reproduce(
    target: Annotated[str, argument("TARGET", "table2, table3, figure1, figure2, figure3, variants, or all.")],
    dataset: Annotated[
        list[str] | None, option("NAME", "Dataset: mnist, fashion_mnist, kmnist or cifar10; repeatable. Default: all.")
    ] = None,
    trials: Annotated[
        int | None, option("N", "Number of trials per cell. Default: 5 (2 for ResNet-32 or with --quick).", min=1)
    ] = None,
    epochs: Annotated[int | None, option("N", "Number of epochs. Default: 200 (fewer with --quick).", min=1)] = None,
    out: Annotated[
        Path | None, option("DIR", "Folder for runs, tables and figures. Default: results for the paper's settings.")
    ] = None,
    data_dir: Annotated[
        Path | None, option("DIR", "Folder that contains the datasets. Default: $UULEARN_DATA or the user cache.")
    ] = None,
    device: Annotated[str, option("NAME", "Device: auto, cpu or cuda.")] = "auto",
    quick: Annotated[bool, flag("Run a small version with few rows and epochs (minutes).", "--quick")] = False,
    render_only: Annotated[
        bool, flag("Write tables and figures from stored runs, without training.", "--render-only")
    ] = False,
    pack: Annotated[bool, flag("Pack the runs into a few compressed archives.", "--pack")] = False,
    no_selection: Annotated[
        bool, flag("Use λ = −0.1 instead of choosing λ without labels (fewer runs).", "--no-selection")
    ] = False,
    engine: Engine = "local",
    address: Address = None,
    workers: RayWorkers = None,
) -> None:
    """Reproduce the tables and figures of the paper.

    Runs the missing experiments, saves each one, and compares the results with the paper. After an interruption, run
    the same command again to continue.
    """
    on_ray = uses_ray(engine, address, workers)
    import torch

    from uulearn.cli.progress import progress_output
    from uulearn.cli.reproduction_progress import ReproductionProgress
    from uulearn.engines.ray_runs import reproduce_on_ray
    from uulearn.reproduction.experiments import DATASETS, Request, runs_of
    from uulearn.reproduction.pages import check_drawing, render
    from uulearn.reproduction.runner import reproduce as run_missing
    from uulearn.reproduction.store import RunStore

    request = Request(dataset or DATASETS, trials, epochs, quick, not no_selection)
    targets = choose_targets(target, request)
    out = out or default_folder(request)
    check_folder(out)
    check_drawing(targets)
    store = RunStore(out)
    configurations = runs_of(targets, request)
    outcome = None
    if not render_only:
        tasks = load_all({run["dataset"] for run in store.missing(configurations)}, data_dir)
        if quick:
            torch.set_num_threads(1)  # more threads do not speed up small matrix products, but slow down shared cores
        with ReproductionProgress(progress_output()) as progress:
            try:
                if on_ray:
                    outcome = reproduce_on_ray(
                        configurations, store, tasks, device=device, reporter=progress, address=address, workers=workers
                    )
                else:
                    outcome = run_missing(configurations, store, tasks, device=device, reporter=progress)
            except KeyboardInterrupt:
                done = f"{progress.found + progress.done} of {progress.total} runs are stored in {out}"
                raise KeyboardInterrupt(f"{done}; run the same command again to continue.") from None
    pages = render(targets, request, store, out)
    written = [path for page in pages for path in page.paths]
    if pack:
        written += store.pack()
    for line in summary(outcome, pages, len(store.missing(configurations)), written):
        typer.echo(line)


def default_folder(request: Request) -> Path:
    """Return ``results`` for the settings of the paper, or a separate folder for other settings."""
    if request.is_the_papers:
        return Path("results")
    return Path("results-quick" if request.quick else f"results-{request.epochs}-epochs")


def check_folder(out: Path) -> None:
    """Raise ValueError before any work starts if the folder cannot be written."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file; pass a folder as --out.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(f"{out} cannot be written ({error.strerror}); pass another folder as --out.") from None


def load_all(datasets: Iterable[str], data_dir: Path | None) -> Callable[[str], BinaryTask]:
    """Load all datasets first, so that a missing dataset is reported before any work starts."""
    from uulearn.datasets import load_task
    from uulearn.reproduction.experiments import DATASETS

    tasks = {name: load_task(name, data_dir=data_dir) for name in DATASETS if name in set(datasets)}
    return tasks.__getitem__


def choose_targets(target: str, request: Request) -> list[str]:
    """Return the targets with this name; "all" means the tables and figures of the requested datasets."""
    from uulearn.reproduction.experiments import EXPERIMENTS, STUDIES, TARGETS, Request

    if target != "all" and target not in TARGETS:
        raise ValueError(f"the target must be one of {', '.join(TARGETS)} or all, got {target!r}.")
    names = [name for name in TARGETS if name not in STUDIES] if target == "all" else [target]
    everything = Request()
    without_runs = [name for name in names if EXPERIMENTS[name](everything) and not EXPERIMENTS[name](request)]
    if without_runs and target != "all":
        known = dict.fromkeys(run["dataset"] for run in EXPERIMENTS[target](everything))
        raise ValueError(f"{target} uses {' and '.join(known)}, got --dataset {' and '.join(request.datasets)}.")
    return [name for name in names if name not in without_runs]


def summary(
    outcome: ReproductionOutcome | None, pages: Iterable[Page], missing: int, written: Sequence[Path]
) -> list[str]:
    """Format a summary of the finished runs, the agreement with the paper, and the written files."""
    lines = []
    if outcome is not None:
        failed = f", {outcome.not_finite} of them stopped because the risk was not finite" if outcome.not_finite else ""
        lines.append(f"runs    {outcome.done} new{failed}; {outcome.found} already stored")
    elif missing:
        lines.append(f"runs    {missing} are missing; run without --render-only to train them")
    for page in pages:
        if not page.paths:
            lines.append(f"{page.target}  has no runs yet; nothing was written")
        if page.table is None or not page.paths:
            continue
        compared, differ = len(page.table.compared), len(page.table.disagreeing)
        parts = []
        if compared:
            parts.append(f"{compared - differ} of {compared} complete cells agree with the paper, {differ} differ")
        if incomplete := len(page.table.incomplete):
            parts.append(f"{incomplete} of {len(page.table.cells)} cells are incomplete")
        if not any(cell.paper for cell in page.table):
            parts.append("not compared with the paper, which uses other settings")
        lines.append(f"{page.target}  {'; '.join(parts)}")
    return [*lines, *(f"file    {path}" for path in written)]
