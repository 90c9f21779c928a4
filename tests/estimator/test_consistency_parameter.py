"""`UUClassifier(consistency=...)`: accepted values, refusals, saved models, ensembles and flattened images."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from helpers.plain import make_classifier, plain_classifier
from uulearn import UUClassifier
from uulearn.data import DenseRows, TwoSets
from uulearn.estimator import Learner, consistency
from uulearn.estimator.consistency import ConsistencyLearner
from uulearn.estimator.learners import (
    ConsistencyChoice,
    FoldScores,
    ModelFit,
    ModelTask,
    NetworkLearner,
    NetworkModel,
    make_learner,
)
from uulearn.estimator.resolving import resolve
from uulearn.exceptions import ModelFormatError
from uulearn.selection import prior_sensitivity
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
    params = {"models": ["linear"]}
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


# ------------------------------------------------------------------------------------------------- consistency="auto"


def clusters(seed, n, columns=50):
    """Two sets with priors 0.7 and 0.3 and labeled test rows; each class has four clusters."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(8, columns))

    def rows(labels):
        place = 2 * rng.integers(4, size=len(labels)) + labels
        return (centers[place] + 1.5 * rng.normal(size=(len(labels), columns))).astype(np.float32)

    first, second, test = ((np.arange(n) < prior * n).astype(int) for prior in (0.7, 0.3, 0.5))
    return rows(first), rows(second), rows(test), test


AUTO = {
    "model": "mlp", "model_params": {"hidden": (32,)}, "epochs": 25, "lr": 0.01, "batch_size": 500, "n_estimators": 3,
    "random_state": 0, "consistency": "auto",
}  # fmt: skip


@pytest.fixture(scope="module")
def chosen():
    X0, X1, X_test, y_test = clusters(0, 1500)
    return make_classifier((0.7, 0.3), **AUTO).fit_sets(X0, X1), X0, X1, X_test, y_test


def test_auto_uses_consistency_training_where_it_helps(chosen, tmp_path):
    classifier, X0, X1, X_test, y_test = chosen
    choice = classifier.consistency_
    assert choice.used
    assert choice.risk_without - choice.risk_with > 2 * choice.standard_error
    fits = {
        value: make_classifier((0.7, 0.3), **AUTO | {"consistency": value}).fit_sets(X0, X1) for value in (True, False)
    }
    np.testing.assert_allclose(classifier.decision_function(X_test), fits[True].decision_function(X_test), rtol=1e-5)
    truth = {value: (fit.predict(X_test) == y_test).mean() for value, fit in fits.items()}
    assert truth[True] > truth[False]
    assert "consistency training is used: estimated error" in classifier.summary()
    assert classifier.resolved_params_["l2"] == fits[True].resolved_params_["l2"] == 0.0005
    assert "consistency_loss" in classifier.history_[-1]
    low, high = classifier.out_of_fold_evaluation_.accuracy.interval
    assert low <= truth[True] <= high
    classifier.save(tmp_path)
    loaded = UUClassifier.load(tmp_path)
    assert (loaded.consistency, loaded.consistency_) == ("auto", choice)
    np.testing.assert_array_equal(loaded.decision_function(X_test), classifier.decision_function(X_test))


@half_trained
def test_auto_keeps_the_plain_network_if_nothing_is_gained(gaussians):
    rows = gaussians["X0"], gaussians["X1"]
    plain, auto = (
        make_classifier((0.8, 0.2), **AUTO | {"consistency": value, "epochs": 5}).fit_sets(*rows)
        for value in (None, "auto")
    )
    assert not auto.consistency_.used
    np.testing.assert_array_equal(plain.decision_function(rows[0]), auto.decision_function(rows[0]))
    assert plain.consistency_ is None
    assert "consistency training is not used: estimated error" in auto.summary()
    assert "consistency_loss" not in auto.history_[-1]


def test_score_of_a_row_comes_from_the_network_that_other_rows_chose(monkeypatch):
    """Fold 1 would not choose consistency training; its scores then come from the other network, rescaled."""
    learner = ConsistencyLearner.from_parameters(
        resolve(make_classifier((0.7, 0.3), **AUTO).get_params(deep=False), (30, 30))
    )
    folds = tuple(np.arange(30) % 3 for _ in range(2))
    data = TwoSets((DenseRows(torch.zeros(30, 1)), DenseRows(torch.ones(30, 1))))
    model = NetworkModel(nn.Linear(1, 1), "float32")

    def trained(value):
        rows = [torch.linspace(-1, 1, 10) * value * (fold + 1) for fold in range(3)]
        return lambda *_: [FoldScores(model, History(), (own, own.flip(0))) for own in rows]

    monkeypatch.setattr(
        NetworkLearner, "train_folds", lambda self, *_: trained(5 if self.options.consistency else -1)()
    )
    calls = iter([True, True, False, True])
    monkeypatch.setattr(consistency, "choose", lambda *_: ConsistencyChoice(next(calls), 0.2, 0.1, 0.01))
    found = learner.train_folds(ModelTask(data, (0.7, 0.3), 0.5, 0, folds=folds))
    for fold, part in enumerate(found):
        sign = -1 if fold == 1 else 1  # the other network ranks the rows in the opposite order
        torch.testing.assert_close(part.scores[0], sign * torch.linspace(-1, 1, 10) * 5 * (fold + 1))
        assert part.model.consistency.used


@pytest.mark.parametrize(
    ("changes", "rows", "plain", "consistent"),
    [
        ({}, 30_000, (0.005, 20), (0.0005, None)),
        ({"l2": 0.1, "patience": 7}, 30_000, (0.1, 7), (0.1, 7)),
        ({"loss": "logistic"}, 30_000, (0.0, 20), (0.0, None)),
        ({}, 6_000, (0.005, 100), (0.005, None)),  # a smaller MLP
        ({"lr": 1e-3}, 6_000, (0.005, 100), (0.0005, None)),
    ],
)
def test_consistency_training_has_its_own_l2_and_patience(changes, rows, plain, consistent):
    found = {}
    for value in (None, True, "auto", {"compare": True, "fraction": 0.7}):
        parameters = resolve(UUClassifier((0.8, 0.2), consistency=value, **changes).get_params(deep=False), (rows,) * 2)
        learner = make_learner(parameters)
        learners = [learner.plain, learner.consistent] if isinstance(learner, ConsistencyLearner) else [learner]
        found[str(value)] = [(own.options.l2, own.options.patience) for own in learners]
    assert found["None"] == [plain]
    assert found["True"] == [consistent]
    assert found["auto"] == [plain, consistent]
    assert learner.consistent.options.consistency == ConsistencyOptions(fraction=0.7)
    assert learner.plain.options.consistency is None


@pytest.mark.parametrize("n_estimators", [1, "auto"])
def test_auto_needs_folds(n_estimators, gaussians):
    classifier = make_classifier((0.8, 0.2), model=Flattened, consistency="auto", n_estimators=n_estimators)
    with pytest.raises(ValueError, match="compares two ensembles on the same folds, but n_estimators is 1; set n_est"):
        classifier.fit_sets(gaussians["X0"], gaussians["X1"])


@half_trained
def test_auto_in_a_comparison_of_models_and_in_sensitivity(gaussians, tmp_path):
    params = {"models": ["linear"]}
    rows = gaussians["X0"], gaussians["X1"]
    classifier = make_classifier((0.8, 0.2), **AUTO | {"model": "auto", "model_params": params, "epochs": 2})
    classifier.fit_sets(*rows)
    assert classifier.consistency_ is not None
    assert [entry.model for entry in classifier.comparison_] == ["linear"]
    classifier.save(tmp_path)
    loaded = UUClassifier.load(tmp_path)
    assert loaded.consistency_ == classifier.consistency_
    np.testing.assert_array_equal(loaded.decision_function(rows[0]), classifier.decision_function(rows[0]))
    X, sets = np.concatenate(rows), np.repeat([0, 1], [len(part) for part in rows])
    assert len(prior_sensitivity(classifier, X, sets, errors=(0.1,)).rows) > 1
