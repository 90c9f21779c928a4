"""Run the command ``uulearn`` with ``python -m uulearn``."""

from uulearn.cli import main

if __name__ == "__main__":
    main()
