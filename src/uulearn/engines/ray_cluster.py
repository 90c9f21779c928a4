"""A Ray cluster to send work to, and tasks that are done again when the process that did them dies."""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import socket
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

ENGINES = ("local", "ray")
PORT = 6379
"""Where the head of a cluster listens, if nothing else is said."""
CONNECT_SECONDS = 10
RETRIES = 3
"""So many times a task is done again, or a training goes on, after a process or machine was lost."""
TASKS_A_PROCESS = 2
"""Tasks that Ray knows of at once, for each that the cluster can do: one to do, and one that waits for its turn. A
cluster that grows with what waits grows by that too."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # Ray Train looks that often whether workers have ended
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # a task that asks for no GPU sees none
}


def check_engine(engine: str, address: str | None, workers: int | None) -> bool:
    """Whether Ray is asked for; refuses options that say nothing without it.

    Examples
    --------
    >>> check_engine("ray", None, 2), check_engine("local", None, None)
    (True, False)
    """
    if engine not in ENGINES:
        raise ValueError(f"--engine must be {' or '.join(ENGINES)}, got {engine!r}.")
    for option, value in (("--address", address), ("--workers", workers)):
        if engine != "ray" and value is not None:
            raise ValueError(f"{option} {value} is for --engine ray; add that, or leave {option} out.")
    return engine == "ray"


def import_ray() -> Any:
    """The module, or how to get it."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError("the engine ray needs Ray; install it with pip install 'uulearn[ray]'.") from error


@contextlib.contextmanager
def ray_cluster(address: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """Ray, connected to a cluster and silent; yields the module.

    Parameters
    ----------
    address : str, optional
        ``"auto"`` for the cluster that this machine is part of, or host (and port) of its head. Without one, and where
        this process has no connection yet, a cluster of this machine alone is started, and ended with the block.
    workers : int, optional
        Number of processes on a cluster started here; by default one for each core.
    """
    ray = import_ray()
    # Ray tells of dead workers on standard output, which belongs to the results.
    with contextlib.redirect_stdout(io.StringIO()), _quiet_log(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"ray(\.|$)")  # about what one part of Ray asks of another
        if ray.is_initialized():
            yield ray
            return
        where = {"num_cpus": workers} if address is None else {}
        silent = {"include_dashboard": False} if address is None else {}
        try:
            if address not in (None, "auto"):
                _check_reachable(full_address(str(address)))
            ray.init(
                # "local" is a cluster of this process's own, whatever RAY_ADDRESS says
                address="local" if address is None else full_address(address),
                log_to_driver=False,
                configure_logging=False,
                **where,
                **silent,
            )
        except (ConnectionError, TimeoutError, socket.gaierror) as error:
            raise ValueError(
                f"there is no Ray cluster at {address}, or it does not take this machine; start one with ray start "
                "--head, set RAY_AUTH_MODE=token where it asks for a token, or leave the address out for this machine "
                "alone."
            ) from error
        try:
            yield ray
        finally:
            ray.shutdown()


def full_address(address: str) -> str:
    """An address as Ray wants it.

    Examples
    --------
    >>> full_address("auto"), full_address("10.0.0.7"), full_address("head:6380")
    ('auto', '10.0.0.7:6379', 'head:6380')
    """
    if "://" in address:
        raise ValueError(f"the address is auto or HOST:PORT of the cluster's head, got {address!r}.")
    return address if address == "auto" or ":" in address else f"{address}:{PORT}"


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        raise ValueError(f"the address is auto or HOST:PORT of the cluster's head, got {address!r}.")
    socket.create_connection((host, int(port)), CONNECT_SECONDS).close()


@contextlib.contextmanager
def _quiet_log() -> Iterator[None]:
    log = logging.getLogger("ray")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def finished_tasks(
    ray: Any,
    function: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    *,
    at_once: int | None = None,
    gpus: int = 0,
    what: str = "uulearn",
) -> Iterator[tuple[int, Any]]:
    """Call a function for each tuple of arguments on the cluster; yields (number of the call, result) as they finish.

    A call whose process or machine dies is made again, up to three times, so that it must not matter whether it is
    made once or more. What a call raises is raised here. Then the few calls that Ray knows of at that moment go on as
    long as this process is connected, and nobody waits for them: ``ray.cancel`` is no remedy, since it aborts the whole
    process where a call finishes just as it is cancelled (seen with Ray 2.60). ``what`` is the name of the tasks where
    Ray lists them.
    """
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(_call).options(name=what)
    waiting, running = deque(enumerate(calls)), dict[Any, int]()
    while waiting or running:
        most = at_once or _most_at_once(ray, gpus)
        while waiting and len(running) < most:
            number, arguments = waiting.popleft()
            running[task.remote(function, *arguments)] = number
        ready, _ = ray.wait(list(running), num_returns=1)
        for done in ready:
            with plain_errors(ray):
                result = ray.get(done)
            yield running.pop(done), result


def _most_at_once(ray: Any, gpus: int) -> int:
    """Asked again and again, since clusters grow."""
    return TASKS_A_PROCESS * max(1, int(ray.cluster_resources().get("GPU" if gpus else "CPU", 0)))


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Ray makes tasks of functions, but not of what `functools.partial` gives."""
    return function(*arguments)


@contextlib.contextmanager
def plain_errors(ray: Any) -> Iterator[None]:
    """What a task raised is raised as it was there, and what Ray says, in a sentence."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ray.exceptions.RaySystemError):
            reason = str(error.cause).strip().splitlines()[-1]
            raise RuntimeError(
                f"a process of the Ray cluster cannot read what it was sent ({reason}); modules of your own must be "
                "importable on all of its machines, in the same versions."
            ) from error
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise RuntimeError(
            f"Ray gave up after {RETRIES + 1} attempts ({reason}); look for what ends its processes, such as too "
            "little memory, and start again."
        ) from error
