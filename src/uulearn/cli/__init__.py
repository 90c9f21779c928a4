"""The command ``uulearn``; see `uulearn.cli.app`."""

from uulearn.cli.app import main

__all__ = ["main"]
