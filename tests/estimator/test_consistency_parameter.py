"""`UUClassifier(consistency=...)`: accepted values, refusals, saved models, ensembles and flattened images."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from helpers.plain import make_classifier, plain_classifier
from uulearn import UUClassifier
from uulearn.estimator import Learner
from uulearn.estimator.learners import ModelFit
from uulearn.exceptions import ModelFormatError
from uulearn.training import ConsistencyOptions, History

half_trained = pytest.mark.filterwarnings("ignore::uulearn.exceptions.OneSidedPredictionsWarning")
QUICK = {"epochs": 4, "batch_size": 100, "model_params": {"hidden": (8,)}, "random_state": 0, "ema": 0.9}


def fit(gaussians, consistency, **changes):
    return plain_classifier((0.8, 0.2), consistency=consistency, **QUICK | changes).fit_sets(
        gaussians["X0"], gaussians["X1"]
    )


@half_trained
def test_options_dict_and_true_are_equivalent(gaussians):
    rows = gaussians["X"]
    scores = [
        fit(gaussians, value).decision_function(rows)
        for value in (True, {}, ConsistencyOptions(), {"ramp": [0, 0]}, ConsistencyOptions(ramp=(0, 0)), None, False)
    ]
    for one, other in [(0, 1), (0, 2), (3, 4), (5, 6)]:
        np.testing.assert_array_equal(scores[one], scores[other])
    assert np.abs(scores[0] - scores[5]).max() > 1e-3
    assert np.abs(scores[0] - scores[3]).max() > 1e-3


@half_trained
def test_ensemble_is_trained_with_consistency(gaussians):
    classifier = fit(gaussians, {"ramp": (0, 0)}, n_estimators=2)
    assert [len(history.column("consistency_loss")) for history in classifier.history_.models] == [4, 4]
    agreement = classifier.history_.column("pseudo_label_agreement")
    assert all(0 <= value <= 1 for value in agreement)
    assert agreement[-1] > 0.5


@half_trained
def test_model_is_saved_and_loaded(gaussians, tmp_path):
    options = ConsistencyOptions(fraction=0.5, ramp=(0, 0.5), strong="swap+noise")
    classifier = fit(gaussians, options)
    assert clone(classifier).consistency == options
    for value in (options, True, {"weight": 0.5}):
        classifier.set_params(consistency=value).save(tmp_path / "model")
        loaded = UUClassifier.load(tmp_path / "model")
        assert loaded.consistency == value
        np.testing.assert_array_equal(
            loaded.decision_function(gaussians["X"]), classifier.decision_function(gaussians["X"])
        )
    own = ConsistencyOptions(strong=torch.tanh)
    classifier.set_params(consistency=own).save(tmp_path / "own")
    with pytest.raises(
        ModelFormatError, match=r"trained with consistency=.*tanh, which is code .* consistency=\.\.\.\)"
    ):
        UUClassifier.load(tmp_path / "own")
    assert UUClassifier.load(tmp_path / "own", consistency=own).consistency is own


class Constant(Learner):
    kind = "constant"

    def train(self, task):
        return ModelFit(None, History())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ema": None}, r"as teacher, but TrainingOptions\.ema is None; set ema=0\.999, or consistency=None\.$"),
        ({"model": "boosting"}, r"needs a network, got model='boosting'; use model='mlp', or consistency=None\.$"),
        ({"model": Constant()}, r"needs a network, got model=Constant; use model='mlp'"),
        ({"set_priors": None, "method": "biased"}, "needs the class priors of the sets, but set_priors is None"),
        ({"consistency": {"fractoin": 1}}, "consistency: 'fractoin' is not an option; valid options: fraction, weight"),
        ({"consistency": {"strong": "cutout"}}, r"strong='cutout' expects images, got rows of shape \(\d+,\)"),
        ({"image_shape": (1, 28, 28)}, r"image_shape=\(1, 28, 28\) expects rows of 784 numbers"),
    ],
)
def test_rejects_what_cannot_work_before_training(changes, said, gaussians, monkeypatch):
    monkeypatch.setattr("uulearn.training.loop.Trainer.run", lambda *_: pytest.fail("training has started"))
    arguments = {"set_priors": (0.8, 0.2), "model": "mlp", "consistency": True} | changes
    with pytest.raises(ValueError, match=said):
        make_classifier(**arguments).fit_sets(gaussians["X0"], gaussians["X1"])


@half_trained
def test_model_auto_trains_only_networks_with_consistency(gaussians):
    params = {"models": ["linear", "mlp"]}
    classifier = make_classifier(
        (0.8, 0.2), model="auto", model_params=params, consistency={"ramp": (0, 0)}, epochs=2, n_estimators=2,
        random_state=0,
    )  # fmt: skip
    classifier.fit_sets(gaussians["X0"], gaussians["X1"])
    assert "consistency_loss" in classifier.history_[-1]
    pytest.importorskip("lightgbm")
    classifier.set_params(model_params={"models": ["boosting"]}).fit_sets(gaussians["X0"], gaussians["X1"])
    assert "consistency_loss" not in classifier.history_[-1]


class Flattened(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.output = nn.Linear(n_features, 1)

    def forward(self, x):
        return self.output(x.flatten(1))


@half_trained
def test_flattened_images_equal_images():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(2, 60, 1, 4, 4)).astype(np.float32) + np.array([0.3, -0.3])[:, None, None, None, None]
    scores = []
    for shape, image_shape in [((60, 1, 4, 4), None), ((60, 16), (1, 4, 4))]:
        classifier = plain_classifier(
            (0.8, 0.2), model=lambda: Flattened(16), epochs=5, lr=0.05, augment="shift", image_shape=image_shape,
            consistency={"ramp": (0, 0)}, random_state=0,
        )  # fmt: skip
        classifier.fit_sets(*(rows.reshape(shape).astype(np.float32) for rows in images))
        scores.append(classifier.decision_function(images[0].reshape(shape).astype(np.float32)))
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-5)
