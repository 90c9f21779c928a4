"""Connect to a Ray cluster, and run tasks that are retried if their process dies."""

import contextlib
import importlib
import io
import logging
import os
import socket
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

PORT = 6379
"""Default port of the head node."""
CONNECT_SECONDS = 4.5
"""Timeout of the connection test, including the name lookup."""
HEADERS, STATUS_200 = 1, 0x88  # HTTP/2: type of a frame, and the header "status 200"
GRPC_REQUEST = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x45\x01\x04\0\0\0\x01"
    b"\x83\x86\x04\x1c/grpc.health.v1.Health/Check\x01\x03ray\x0f\x10\x10application/grpc\0\x02te\x08trailers"
    b"\0\0\x05\0\x01\0\0\0\x01\0\0\0\0\0"
)
"""Request over HTTP/2 that every gRPC server answers with status 200, even if it refuses the call."""
CANNOT_CONNECT = (
    "cannot connect to a Ray cluster at {}; start one with ray start --head, set RAY_AUTH_MODE=token if it needs a "
    "token, or remove --address to use only this machine."
)
RETRIES = 3
"""Maximum number of retries of a task or a training run after a process or machine is lost."""
TASKS_PER_PROCESS = 2
"""Number of tasks submitted per process; waiting tasks cause an autoscaling cluster to add machines."""
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",  # detect dead workers quickly
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # hide GPUs from tasks that request none
}


def import_ray() -> Any:
    """Import Ray; raise ImportError with the install command if it is missing."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError("--engine ray needs Ray; install it with pip install 'uulearn[ray]'.") from error


@contextlib.contextmanager
def ray_cluster(address: str | None = None, workers: int | None = None) -> Iterator[Any]:
    """Connect to a cluster and yield the ``ray`` module, with Ray's output suppressed.

    If no address is given, a local cluster with ``workers`` processes (default: one per core) is started, and stopped
    at the end of the block. If this process is already connected to a cluster, that cluster is used.
    """
    ray = import_ray()
    # Ray reports dead workers on standard output, which is reserved for results.
    with contextlib.redirect_stdout(io.StringIO()), _quiet_log(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"ray(\.|$)")  # warnings about Ray internals
        if ray.is_initialized():
            yield ray
            return
        check_address(address)
        try:
            # "local" starts a new cluster even if RAY_ADDRESS is set
            own = {"address": "local", "num_cpus": workers, "include_dashboard": False}
            options = own if address is None else {"address": full_address(address)}
            ray.init(**options, log_to_driver=False, configure_logging=False)
        except (ConnectionError, TimeoutError) as error:
            raise ValueError(CANNOT_CONNECT.format(address)) from error
        try:
            yield ray
        finally:
            ray.shutdown()


def full_address(address: str) -> str:
    """Return the address of the head node, with the default port if none is given.

    >>> full_address("auto"), full_address("10.0.0.7"), full_address("head:6380")
    ('auto', '10.0.0.7:6379', 'head:6380')
    """
    if address == "auto":
        return address
    host, _, port = address.rpartition(":") if ":" in address else (address, "", str(PORT))
    if "://" in address or not port.isdecimal():
        raise ValueError(f"--address must be auto or the HOST:PORT of the head node, got {address!r}.")
    return f"{host}:{port}"


def check_address(address: str | None) -> None:
    """Raise ValueError if no Ray cluster (without TLS) answers within seconds; ``ray.init`` would retry for minutes."""
    given = os.environ.get("RAY_ADDRESS", "") if address == "auto" else ""
    given = "" if given == "local" else given
    place = "auto" if address is None else full_address(given or address)
    if place == "auto" or os.environ.get("RAY_USE_TLS", "0") != "0":
        return
    found: list[bool] = []
    test = threading.Thread(target=lambda: found.append(_is_grpc_server(place)), daemon=True)
    test.start()
    test.join(CONNECT_SECONDS)  # a name lookup has no timeout of its own
    if not any(found):
        raise ValueError(CANNOT_CONNECT.format(f"{place} (from RAY_ADDRESS)" if given else place))


def _is_grpc_server(address: str) -> bool:
    """Return whether a gRPC server, such as the head node of a Ray cluster, answers; a proxy returns an error."""
    host, _, port = address.rpartition(":")
    target = (host.removeprefix("[").removesuffix("]"), int(port))
    errors = (OSError, ValueError, OverflowError)  # the last two: a host name or port that cannot exist
    with contextlib.suppress(*errors), socket.create_connection(target, CONNECT_SECONDS) as connection:
        connection.sendall(GRPC_REQUEST)
        with connection.makefile("rb") as answer:
            while len(frame := answer.read(9)) == 9:
                content = answer.read(int.from_bytes(frame[:3], "big"))
                if frame[3] == HEADERS:
                    return STATUS_200 in content[:2]  # the first byte may be a table size
    return False


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
    """Call a function on the cluster for each tuple of arguments; yield (index of the call, result) as calls finish.

    A call whose process dies is retried up to three times, so it must be idempotent. An exception in a call is raised
    here. Other running calls then continue until this process disconnects, because ``ray.cancel`` can abort the whole
    process (observed with Ray 2.60). ``what`` is the name of the tasks in Ray.
    """
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES)(_call).options(name=what)
    waiting, running = deque(enumerate(calls)), dict[Any, int]()
    while waiting or running:
        processes = int(ray.cluster_resources().get("GPU" if gpus else "CPU", 0))  # may grow with the cluster
        limit = at_once or TASKS_PER_PROCESS * max(1, processes)
        while waiting and len(running) < limit:
            number, arguments = waiting.popleft()
            running[task.remote(function, *arguments)] = number
        ready, _ = ray.wait(list(running), num_returns=1)
        for done in ready:
            with convert_errors(ray):
                result = ray.get(done)
            yield running.pop(done), result


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function; this wrapper is needed because Ray does not accept a `functools.partial` as a task."""
    return function(*arguments)


@contextlib.contextmanager
def convert_errors(ray: Any) -> Iterator[None]:
    """Re-raise the original exception of a task, and convert Ray errors to a one-sentence message."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, ray.exceptions.RaySystemError):
            reason = str(error.cause).strip().splitlines()[-1]
            raise RuntimeError(
                f"a process of the Ray cluster cannot unpickle its task ({reason}); your modules must be importable "
                "on all machines, with the same versions."
            ) from error
        if isinstance(error.cause, Exception):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise RuntimeError(
            f"Ray gave up after {RETRIES + 1} attempts ({reason}); find out why its processes die, for example because "
            "they run out of memory, and run the command again."
        ) from error
