"""Python programs in separate processes that start immediately, because torch and uulearn are already loaded.

Each process is forked from a server that has only imported them, so a test that kills or counts processes does not wait
seconds for each. Tests of the start itself start Python instead.
"""

import contextlib
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

LOADED = [
    "helpers.torchvision_operators",  # scripts may import Transformers, which imports torchvision
    "torch._dynamo",  # imported by the first optimizer
    "pandas",
    "pyarrow.parquet",
    "torch.distributed.run",
    "typer._adapters",
    "uulearn.app.fitting",
    "uulearn.app.scoring",
    "uulearn.cli.app",
    "uulearn.cli.reproduction_progress",
    "uulearn.engines.ray_cluster",
    "uulearn.estimator.classifier",
]


class Program:
    """``python ARGUMENTS``, with ``-m MODULE …``, ``-c CODE …`` or ``SCRIPT …``; it starts immediately.

    Standard output and standard error go to files, the latter or to one that is given. `read` waits for the end, and
    comes last.
    """

    def __init__(self, *arguments, cwd=None, env=None, err=None):
        self.folder = tempfile.TemporaryDirectory()
        self.out = Path(self.folder.name) / "out"
        self.err = Path(self.folder.name) / "err" if err is None else Path(err)
        for path in (self.out, *[self.err][: err is None]):
            path.touch()
        if sys.platform == "win32":
            pytest.skip("needs a process that is forked from a server")
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(LOADED)
        call = (list(map(str, arguments)), str(cwd or Path.cwd()), {**os.environ, **(env or {})})
        self.process = context.Process(target=_run, args=(*call, str(self.out), str(self.err)), daemon=True)
        self.process.start()
        self.pid = self.process.pid

    def running(self):
        return self.process.is_alive()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait_for(self, condition):
        """Wait until the condition holds, as long as the program runs."""
        while self.running() and not condition():
            time.sleep(0.002)

    def read(self, timeout=240):
        """Wait for the end; return exit code, standard output and standard error."""
        self.process.join(timeout)
        if self.running():
            self.kill()
            raise TimeoutError(f"still running after {timeout} s; it wrote {self.err.read_text()[-2000:]}")
        found = self.process.exitcode, self.out.read_text(), self.err.read_text() if self.err.is_file() else ""
        self.process.close()
        self.folder.cleanup()
        return found


def python(*arguments, **options):
    """Run a program; return exit code, standard output and standard error."""
    return Program(*arguments, **options).read()


def several(n, *arguments, **options):
    """Run the same program in n processes that connect as under torchrun; return the result of each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(n), "LOCAL_WORLD_SIZE": str(n)}
    env |= {"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "none"}
    programs = [
        Program(*arguments, env=env | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, **options) for rank in range(n)
    ]
    return [program.read() for program in programs]


def _run(arguments, cwd, env, out, err):
    for number, path in ((1, out), (2, err)):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOCTTY)
        os.dup2(handle, number)
        os.close(handle)
    # sys.stdout and sys.stderr already write to these descriptors
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    warnings.resetwarnings()
    for category in (ResourceWarning, ImportWarning, PendingDeprecationWarning, DeprecationWarning):
        warnings.simplefilter("ignore", category)  # as in a new Python process
    warnings.filterwarnings("default", category=DeprecationWarning, module="__main__")
    import torch

    torch.set_num_threads(int(env.get("OMP_NUM_THREADS", "1")))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    how, *rest = arguments
    if how == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif how == "-c":
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(how).resolve().parent))
        runpy.run_path(how, run_name="__main__")
