"""Folder of the real datasets."""

import os
from pathlib import Path


def data_folder() -> Path:
    default = Path(__file__).resolve().parents[3] / "shared" / "data"
    return Path(os.environ.get("UULEARN_DATA", default))
