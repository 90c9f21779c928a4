"""Draw the figure of docs/sensitivity.md: ``python docs/figures/sensitivity.py``.

It is the plot of the page's example, with the three panels stacked, so that its text is legible on a phone.
"""

from pathlib import Path

import matplotlib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from uulearn import UUClassifier
from uulearn.datasets import make_sets
from uulearn.selection import prior_sensitivity

matplotlib.use("Agg")

import matplotlib.pyplot as plt

IMAGES = Path(__file__).resolve().parents[1] / "images"


def draw(path: Path) -> None:
    """Train with changed priors and draw the accuracies."""
    X, digit = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / 16, digit % 2 == 0, test_size=0.3, random_state=0)
    drawn = make_sets(X, y, (0.8, 0.2), (600, 600), random_state=0)
    clf = UUClassifier(
        (0.8, 0.2), 0.5, model="linear", lr=0.03, epochs=60, validation_fraction=0.4, progress=False, random_state=0
    )
    found = prior_sensitivity(clf, np.concatenate([drawn.X0, drawn.X1]), drawn.sets, test_data=(X_test, y_test))
    figure, axes = plt.subplots(3, 1, figsize=(5.2, 9), sharey=True, layout="constrained")
    found.plot(ax=axes)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    draw(IMAGES / "sensitivity-digits.png")
