"""The command ``uulearn``: `uulearn.cli.app` declares it, and each subcommand has its own module."""

import atexit
import os
import signal
import sys

__all__ = ["main"]


def is_first_process() -> bool:
    """Return whether this process prints: a single process, or the first one under torchrun."""
    return os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1"


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
