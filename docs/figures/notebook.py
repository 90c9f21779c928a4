"""Take the picture of a fitted classifier in a notebook: ``python docs/figures/notebook.py docs/images``.

The HTML of the classifier of the README is rendered by Chromium, which must be installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from uulearn import UUClassifier
from uulearn.datasets import make_sets

SIZE = "560,700"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--hide-scrollbars")  # fmt: skip


def fitted() -> UUClassifier:
    """Return the classifier of the README."""
    X, digit = load_digits(return_X_y=True)
    X, _, y, _ = train_test_split(X / 16, digit % 2 == 0, test_size=0.3, random_state=0)
    sets = make_sets(X, y, (0.8, 0.2), (600, 600), random_state=0)
    return UUClassifier((0.8, 0.2), target_prior=0.5, random_state=0).fit_sets(*sets)


def main() -> None:
    """Write ``notebook.png`` to the folder."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("this script needs Chromium, for example from `apt-get install chromium`.")
    page = f'<!DOCTYPE html><meta charset="utf-8"><body style="margin:12px">{fitted()._repr_html_()}</body>'
    with TemporaryDirectory() as folder:
        source = Path(folder, "page.html")
        source.write_text(page, encoding="utf-8")
        out = Path(sys.argv[1], "notebook.png").resolve()
        options = [f"--user-data-dir={folder}/profile", f"--window-size={SIZE}", f"--screenshot={out}"]
        subprocess.run([browser, *FLAGS, *options, source.as_uri()], check=True, capture_output=True, timeout=120)
    print(f"written: {out}")


if __name__ == "__main__":
    main()
