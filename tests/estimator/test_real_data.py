"""Even against odd MNIST digits from two unlabeled sets; skipped if the files are missing."""

import numpy as np
import pytest

from helpers.data import data_folder
from helpers.plain import plain_classifier
from uulearn.datasets import load_task, make_sets

FOLDER = data_folder() / "mnist"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no MNIST in the data folder (UULEARN_DATA)")
def test_classifies_even_and_odd_mnist_digits():
    task = load_task("mnist", data_dir=data_folder(), download=False).flat()
    X_test, y_test = task.X_test, task.y_test
    drawn = make_sets(task.X_train, task.y_train, (0.8, 0.2), (5_000, 5_000), random_state=0)
    assert drawn.overlap == 0
    classifier = plain_classifier(
        drawn.realized_priors, task.prior, model_params={"hidden": (100, 100)}, epochs=20, batch_size=1_000,
        input_scale=1 / 255, random_state=0,
    )  # fmt: skip
    classifier.fit_sets(drawn.X0, drawn.X1)
    accuracy = (classifier.predict(X_test) == y_test).mean()
    assert accuracy > 0.90
    rows = np.concatenate([drawn.X0, drawn.X1])
    assert 0.85 < classifier.score(rows, drawn.sets) <= 1
