"""``python -m uulearn`` is the command ``uulearn``."""

from uulearn.cli import main

if __name__ == "__main__":
    main()
