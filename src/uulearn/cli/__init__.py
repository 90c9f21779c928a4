"""The command ``uulearn``: `uulearn.cli.app` declares it, and each subcommand has its own module."""

import atexit
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Iterator

__all__ = ["main"]


def is_first_process() -> bool:
    """Return whether this process prints: a single process, or the first one under torchrun."""
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


@contextlib.contextmanager
def fast_imports() -> Iterator[None]:
    """Import modules without garbage collection, which takes a fifth of the time of importing torch and scikit-learn.

    Nearly all imported objects exist until the process ends, so later collections ignore them too.
    """
    if "torch" in sys.modules or not gc.isenabled():  # only the first command of a process imports them
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def main() -> None:
    """Run the command line; an interrupt during imports is reported like any other interrupt."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded: waiting threads sleep, not spin
    try:
        from uulearn.cli.app import main as run

        run()
    except KeyboardInterrupt:
        if is_first_process():
            print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        # An interrupt during the interpreter's shutdown would print a traceback.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
        # The system frees the memory of a process that ends; collecting garbage first would take half a second.
        atexit.register(gc.freeze)
