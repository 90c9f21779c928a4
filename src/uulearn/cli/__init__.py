"""The command ``uulearn``; see `uulearn.cli.app`."""

import atexit
import signal
import sys

__all__ = ["main"]


def main() -> None:
    """Entry point; an interrupt while modules are still on their way in is told like any other."""
    try:
        from uulearn.cli.app import main as run

        run()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    finally:
        # All is done; interrupted while it tidies up, Python would print tracebacks.
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
