"""Learners other than networks: folds, ensembling, calibration, evaluation and persistence work for any of them."""

import dataclasses
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from helpers.manifests import rewrite
from uulearn import UUClassifier
from uulearn.data import TwoSets
from uulearn.data.inputs import read_two_tables
from uulearn.estimator import Learner, NetworkLearner, TrainedModel, make_plan, run_plan
from uulearn.estimator.learners import MeanModel, ModelFit, ModelState
from uulearn.exceptions import ModelFormatError
from uulearn.metrics.calibration import calibration_error
from uulearn.selection import UUClassifierCV, prior_sensitivity
from uulearn.training import History, RunOptions


@dataclass(frozen=True)
class LinearModel(TrainedModel):
    weights: torch.Tensor
    intercept: float

    def score(self, rows):
        return rows.slice(0, rows.n_rows).float() @ self.weights + self.intercept

    def state(self):
        return ModelState({"weights": self.weights}, {"intercept": self.intercept})


@dataclass(frozen=True)
class SetMembership(Learner):
    """Logistic regression that separates the sets; calibration turns its scores into log-odds of the classes."""

    kind = "set-membership"
    C: float = 1.0

    def train(self, task):
        tables = [task.data.take(which, torch.arange(size)).numpy() for which, size in enumerate(task.data.sizes)]
        higher = int(task.set_priors[1] > task.set_priors[0])
        sets = np.repeat([0, 1], task.data.sizes)
        found = LogisticRegression(C=self.C, class_weight="balanced").fit(np.concatenate(tables), sets == higher)
        model = LinearModel(torch.tensor(found.coef_[0], dtype=torch.float32), float(found.intercept_[0]))
        return ModelFit(model, History(stop_reason="converged"))


@dataclass(frozen=True)
class StoredMembership(SetMembership):
    """Like `SetMembership`, with models that can be restored."""

    def restore(self, state, row_shape):
        return LinearModel(state.tensors["weights"], state.config["intercept"])


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)

    def draw(n, prior):
        y = rng.random(n) < prior
        return (rng.normal(size=(n, 3)) + y[:, None] - 0.5).astype(np.float32), y

    (X0, _), (X1, _), (X, y) = draw(900, 0.3), draw(700, 0.8), draw(4000, 0.5)
    return X0, X1, X, y


def test_ensemble_of_another_learner_is_calibrated_and_evaluated_without_labels(problem):
    X0, X1, X, y = problem
    classifier = UUClassifier((0.3, 0.8), 0.5, model=SetMembership(), random_state=0).fit_sets(X0, X1)
    assert classifier.resolved_params_["n_estimators"] == 5
    assert isinstance(classifier.model_, MeanModel)
    accuracy = (classifier.predict(X) == y).mean()
    assert accuracy > 0.75
    estimate = classifier.out_of_fold_evaluation_.accuracy
    assert abs(estimate.value - accuracy) < 3 * estimate.standard_error
    assert calibration_error(classifier.predict_proba(X)[:, 1], y) < 0.05
    scores = np.mean([classifier.submodel(k).trained_.score(rows_of(X)).numpy() for k in range(5)], axis=0)
    np.testing.assert_allclose(classifier.trained_.score(rows_of(X)).numpy(), scores, rtol=1e-5, atol=1e-6)
    assert "5 models, each trained without one fold" in classifier.summary()


def rows_of(X):
    return read_two_tables(X, X, any_shape=False).data.rows_of(0)


def test_models_of_another_learner_do_not_see_their_fold(problem):
    X0, X1, *_ = problem
    given = read_two_tables(X0, X1, any_shape=False)
    seen = []

    class Spy(SetMembership):
        def train(self, task):
            seen.append((task.data.sizes, task.validation.sizes))
            return super().train(task)

    parameters = UUClassifier((0.3, 0.8), model=Spy(), n_estimators=4, random_state=0).get_params(deep=False)
    plan = make_plan(parameters, given)
    result = run_plan(plan)
    assert seen == [((675, 525), (225, 175))] * 4
    assert isinstance(plan.data, TwoSets)
    assert result.set_sizes == (900, 700)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.seed = 1


def test_single_model_of_another_learner_holds_rows_out(problem):
    X0, X1, X, y = problem
    classifier = UUClassifier((0.3, 0.8), model=SetMembership(), n_estimators=1, calibrated=True, random_state=0)
    classifier.fit_sets(X0, X1)
    assert classifier.held_out_sizes_ == (90, 70)
    assert classifier.scaling_ is not None
    assert (classifier.predict(X) == y).mean() > 0.75


def test_self_training_works_with_another_learner(problem):
    X0, X1, X, y = problem
    classifier = UUClassifier((0.3, 0.8), model=SetMembership(), self_training_rounds=1, random_state=0)
    classifier.fit_sets(X0, X1)
    assert [done.number for done in classifier.self_training_] == [0, 1]
    assert (classifier.predict(X) == y).mean() > 0.75


def test_search_and_sensitivity_work_with_another_learner(problem):
    X0, X1, X, y = problem
    base = UUClassifier((0.3, 0.8), model=SetMembership(), n_estimators=3, random_state=0)
    grid = {"model": [SetMembership(1e-6), SetMembership(1.0)]}
    search = UUClassifierCV(base, grid).fit_sets(X0, X1)
    assert (search.predict(X) == y).mean() > 0.75
    found = prior_sensitivity(base, np.concatenate([X0, X1]), np.repeat([0, 1], [900, 700]), errors=[0.05])
    assert len(found.rows) == 4
    assert not found.batched


def test_search_with_another_learner_needs_a_grid(problem):
    search = UUClassifierCV(UUClassifier((0.3, 0.8), model=SetMembership(), random_state=0))
    with pytest.raises(ValueError, match=r"param_grid must list the parameters to search.*SetMembership"):
        search.fit_sets(*problem[:2])


def test_model_of_another_learner_is_saved_by_its_state_and_restored_by_the_learner(problem, tmp_path):
    X0, X1, X, _ = problem
    classifier = UUClassifier((0.3, 0.8), model=StoredMembership(), random_state=0).fit_sets(X0, X1)
    classifier.save(tmp_path)
    with pytest.raises(ModelFormatError, match=r"model=StoredMembership, which is code .* pass it again"):
        UUClassifier.load(tmp_path)
    loaded = UUClassifier.load(tmp_path, model=StoredMembership())
    np.testing.assert_array_equal(loaded.predict_proba(X), classifier.predict_proba(X))
    assert loaded.out_of_fold_evaluation_ == classifier.out_of_fold_evaluation_
    with pytest.raises(ModelFormatError, match="of kind 'set-membership', got 'network'"):
        UUClassifier.load(tmp_path, model="linear")


@pytest.mark.parametrize("number", [1, 3])
def test_model_without_state_cannot_be_saved(number, problem, tmp_path, monkeypatch):
    monkeypatch.delattr(LinearModel, "state")
    classifier = UUClassifier((0.3, 0.8), model=SetMembership(), n_estimators=number, random_state=0)
    with pytest.raises(NotImplementedError, match=r"LinearModel has no state\(\)"):
        classifier.fit_sets(*problem[:2]).save(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scales": [1.0]}, "5 models need one positive scale each"),
        ({"scales": [0.0] * 5}, "5 models need one positive scale each"),
        ({"models": []}, "0 models need one positive scale each"),
    ],
)
def test_damaged_ensemble_of_another_learner_is_refused(change, message, problem, tmp_path):
    UUClassifier((0.3, 0.8), model=StoredMembership(), random_state=0).fit_sets(*problem[:2]).save(tmp_path)
    rewrite(tmp_path, lambda manifest: manifest["learner"]["config"].update(change))
    with pytest.raises(ModelFormatError, match=message):
        UUClassifier.load(tmp_path, model=StoredMembership())


def test_network_is_one_learner_among_others(problem):
    classifier = UUClassifier((0.3, 0.8), model="linear", epochs=2, random_state=0).fit_sets(*problem[:2])
    assert isinstance(classifier.learner_, NetworkLearner)
    assert classifier.learner_.kind == "network"


def test_modules_are_built_with_one_thread():
    """Initialization with several threads takes twenty times as long on a busy machine."""
    used = []

    def build(n_features):
        used.append(torch.get_num_threads())
        return torch.nn.Linear(n_features, 1)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        NetworkLearner(build, None, "sigmoid", "abs", -0.1, RunOptions()).build((3,), seed=0)
        assert (used, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)
