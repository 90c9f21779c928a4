"""MNIST itself, where it is at hand: even against odd from two unlabeled sets."""

import numpy as np
import pytest

from conftest import data_folder, read_idx
from uulearn import UUClassifier
from uulearn.datasets import make_sets

FOLDER = data_folder() / "mnist"


@pytest.mark.skipif(not FOLDER.is_dir(), reason="no MNIST in the data folder (UULEARN_DATA)")
def test_mnist_even_against_odd():
    images, labels = (read_idx(FOLDER / f"train-{name}.gz") for name in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    X_test, digits = (read_idx(FOLDER / f"t10k-{name}.gz") for name in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    X, y = images.reshape(-1, 784), (labels % 2 == 0).astype(int)
    X_test, y_test = X_test.reshape(-1, 784), (digits % 2 == 0).astype(int)
    drawn = make_sets(X, y, (0.8, 0.2), (5_000, 5_000), random_state=0)
    assert drawn.overlap == 0
    classifier = UUClassifier(
        drawn.realised_priors, float(y_test.mean()), model_params={"hidden": (100, 100)}, epochs=20, batch_size=1_000,
        input_scale=1 / 255, random_state=0,
    )  # fmt: skip
    classifier.fit_sets(drawn.X0, drawn.X1)
    accuracy = (classifier.predict(X_test) == y_test).mean()
    assert accuracy > 0.90
    rows = np.concatenate([drawn.X0, drawn.X1])
    assert 0.85 < classifier.score(rows, drawn.sets) < 1.15
