"""UUClassifierCV: settings compared without labels, in batched training if possible."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.utils import estimator_checks, get_tags
from torch import nn

from helpers.plain import plain_classifier
from uulearn import UUClassifier
from uulearn.estimator import learners
from uulearn.estimator.learners import FoldScores, NetworkLearner
from uulearn.estimator.resolving import AUTO_PARAMETERS
from uulearn.exceptions import FailedSettingWarning, NonFiniteRiskError, UUWarning
from uulearn.metrics import evaluate, uu_accuracy
from uulearn.selection import UUClassifierCV, trials
from uulearn.selection import search as module
from uulearn.selection.search import SLOPES, default_grid
from uulearn.training import History


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)

    def draw(n, prior):
        y = rng.random(n) < prior
        return rng.normal(size=(n, 4)) + 0.6 * (2 * y[:, None] - 1), y

    (X0, _), (X1, _), (X, y) = draw(300, 0.8), draw(240, 0.3), draw(2000, 0.4)
    return X0, X1, X, y


def base(**changes):
    settings = {"model_params": {"hidden": (12,)}, "epochs": 8, "batch_size": 90, "ema": 0.8, "n_estimators": 3}
    settings |= {"early_stopping": True, "random_state": 0, "progress": False, "precision": "float32"}
    return plain_classifier((0.8, 0.3), 0.4, **settings | changes)


GRID = {"slope": [0.0, -1.0], "lr": [1e-7, 0.02]}


def test_best_setting_is_chosen_and_fitted(data):
    X0, X1, X, y = data
    search = UUClassifierCV(base(), GRID).fit_sets(X0, X1)
    assert search.best_params_["lr"] == 0.02
    assert [one.params for one in search.candidates_] == [
        {"slope": slope, "lr": lr} for slope in (0.0, -1.0) for lr in (1e-7, 0.02)
    ]
    assert sorted(one.rank for one in search.candidates_) == [1, 2, 3, 4]
    best = next(one for one in search.candidates_ if one.rank == 1)
    assert best.evaluation.accuracy.value == max(one.evaluation.accuracy.value for one in search.candidates_)
    assert best.gap.value == 0
    for one in search.candidates_:
        difference = best.evaluation.accuracy.value - one.evaluation.accuracy.value
        assert one.gap.value == pytest.approx(difference)
    assert (search.predict(X) == y).mean() > 0.75
    np.testing.assert_array_equal(search.decision_function(X), search.best_estimator_.decision_function(X))
    np.testing.assert_array_equal(search.predict_proba(X), search.best_estimator_.predict_proba(X))
    assert search.n_features_in_ == 4
    assert search.classes_.tolist() == [0, 1]
    text = search.summary()
    assert text.index("(the best)") < text.index("points behind")
    assert "3 models, each trained without one fold" in text


def test_best_estimator_equals_fit_with_best_setting(data):
    X0, X1, X, _ = data
    search = UUClassifierCV(base(calibrated=True), GRID).fit_sets(X0, X1)
    alone = clone(base(calibrated=True)).set_params(**search.best_params_).fit_sets(X0, X1)
    np.testing.assert_allclose(search.decision_function(X), alone.decision_function(X), rtol=5e-3, atol=5e-3)
    found = search.best_estimator_
    assert found.out_of_fold_evaluation_.accuracy.value == pytest.approx(
        alone.out_of_fold_evaluation_.accuracy.value, abs=1e-6
    )
    assert found.get_params()["n_estimators"] == 3


def test_one_table_and_two_tables_give_the_same_result(data):
    X0, X1, X, _ = data
    apart = UUClassifierCV(base(), GRID).fit_sets(X0, X1)
    together = UUClassifierCV(base(), GRID).fit(np.concatenate([X0, X1]), np.repeat([0, 1], [300, 240]))
    assert together.best_params_ == apart.best_params_
    np.testing.assert_allclose(together.decision_function(X), apart.decision_function(X), rtol=1e-4, atol=1e-5)
    held = np.concatenate([X0, X1]), np.repeat([0, 1], [300, 240])
    expected = uu_accuracy(apart.decision_function(held[0]), held[1], (0.8, 0.3), 0.4).value
    assert apart.score(*held) == pytest.approx(expected, abs=1e-6)


def test_slopes_are_batched_per_fold_on_cpu(data, monkeypatch):
    X0, X1, *_ = data
    seen = []
    original = learners.fit_folds_batched

    def spy(chosen, model, params, sets, folds, variants, options, **others):
        seen.append((len(variants), {variant.lr for variant in variants}))
        return original(chosen, model, params, sets, folds, variants, options, **others)

    monkeypatch.setattr(learners, "fit_folds_batched", spy)
    UUClassifierCV(base(epochs=1), {"slope": [0.0, -0.1, -1.0], "lr": [0.01, 0.02]}).fit_sets(X0, X1)
    assert seen == [(6, {0.01, 0.02})]
    seen.clear()
    UUClassifierCV(base(epochs=1), {"slope": [0.0, -1.0], "loss": ["logistic", "sigmoid"]}).fit_sets(X0, X1)
    assert [count for count, _ in seen] == [2, 2]


class Own(nn.Module):
    def __init__(self, n_features, bias=0.0):
        super().__init__()
        self.layer = nn.Linear(n_features, 1)
        nn.init.constant_(self.layer.bias, bias)

    def forward(self, x):
        return self.layer(x)


def test_custom_models_are_trained_one_by_one(data, tmp_path):
    X0, X1, X, y = data
    own = base(model=Own, model_params=None, epochs=15, checkpoint_dir=tmp_path)
    search = UUClassifierCV(own, {"lr": [1e-6, 0.05]}).fit_sets(X0, X1)
    assert search.best_params_ == {"lr": 0.05}
    assert (search.predict(X) == y).mean() > 0.75
    assert sorted(path.name for path in tmp_path.iterdir()) == ["setting-0", "setting-1"]


# ----------------------------------------------------------------------------------------- settings that cannot be used


def wild(model, **changes):
    """A base estimator that overflows with a large learning rate; "linear" is batched, `Own` is not."""
    settings = {"model": model, "model_params": None, "loss": "squared", "optimizer": "sgd", "calibrated": True}
    return base(**settings | {"ema": None, "batch_size": 3000} | changes)


both_ways = pytest.mark.parametrize("model", ["linear", Own])


@both_ways
@pytest.mark.parametrize("rate", [1e20, 3e38])
def test_diverging_setting_is_reported_and_not_chosen(data, model, rate):
    X0, X1, *_ = data
    with pytest.raises(NonFiniteRiskError):
        wild(model, lr=rate).fit_sets(X0, X1)
    with pytest.warns(FailedSettingWarning) as caught:
        search = UUClassifierCV(wild(model), {"lr": [rate, 1e-7, 0.1]}).fit_sets(X0, X1)
    assert search.best_params_ == {"lr": 0.1}
    assert all("not finite" not in one.stop_reason for one in search.best_estimator_.history_.models)
    failed, slow, good = search.candidates_
    assert [one.rank for one in search.candidates_] == [3, 2, 1]
    assert "finite in epoch 2" in failed.failure
    assert ":" not in failed.failure  # the values of one epoch of one fold are not informative
    assert slow.failure is None is good.failure
    figures = dataclasses.asdict(failed.evaluation)
    assert figures.pop("sizes") == (300, 240)
    assert figures.pop("labels_used") is False
    assert all(math.isnan(one["value"]) and math.isnan(one["standard_error"]) for one in figures.values())
    assert math.isnan(failed.gap.value)
    assert good.gap.value == 0 < slow.gap.value
    (warning,) = caught
    assert str(warning.message) == (f"1 of 3 settings failed and will not be chosen: lr={rate!r} ({failed.failure}).")
    assert warning.filename == __file__
    assert issubclass(warning.category, UUWarning)
    lines = search.summary().splitlines()
    assert lines[1].endswith("lr=0.1  (the best)")
    assert lines[3] == f"     nan  lr={rate!r}  ({failed.failure})"


@both_ways
def test_raises_if_every_setting_diverges(data, model):
    X0, X1, *_ = data
    search = UUClassifierCV(wild(model), {"lr": [1e20, 1e21, 1e22, 1e23, 1e24]})
    with pytest.raises(
        NonFiniteRiskError, match=r"^all settings failed: lr=1e\+20 \(.*finite in epoch 2\); .*"
    ) as caught:
        search.fit_sets(X0, X1)
    assert "lr=1e+22 (" in str(caught.value)
    assert "); and 2 more; lower lr, scale the columns, or" in str(caught.value)
    assert "lr=1e+23" not in str(caught.value)
    assert not hasattr(search, "best_estimator_")
    with pytest.raises(NonFiniteRiskError, match="all settings failed: the only setting "):
        UUClassifierCV(wild(model, lr=1e20), {}).fit_sets(X0, X1)


@both_ways
def test_divergence_in_last_step_is_detected_by_scores(data, model):
    """The risk is finite before the last step, and not computed after it."""
    X0, X1, *_ = data
    with pytest.warns(FailedSettingWarning, match=r"lr=3e\+38 \(scores of held-out rows are not finite\)\."):
        search = UUClassifierCV(wild(model, epochs=1, early_stopping=False), {"lr": [0.5, 3e38]}).fit_sets(X0, X1)
    assert search.best_params_ == {"lr": 0.5}


@pytest.mark.parametrize(
    ("scores", "error", "finite"),
    [
        ([1.0, 1.0], None, True),
        ([3e38, 3e38], None, False),  # finite scores whose mean is not
        ([1.0, math.nan], None, False),
        ([1.0, 1.0], NonFiniteRiskError("the risk stopped being finite in epoch 3: positive term nan"), False),
    ],
)
def test_detects_diverged_fits(scores, error, finite):
    pair = (torch.ones(3), torch.tensor(scores))
    fitted = FoldScores(None, History(), pair, error)
    assert (trials._check_finite(fitted) is fitted) == finite


class Silent(Own):
    """A model with the same score for every row."""

    def forward(self, x):
        return self.layer(torch.zeros_like(x))


def test_constant_scores_cannot_be_calibrated(data):
    X0, X1, *_ = data
    search = UUClassifierCV(wild(Own, lr=0.1), {"model": [Silent, Own], "model_params": [{"bias": 1.0}]})
    with pytest.warns(
        FailedSettingWarning, match=r"Silent.* \(all scores are 1 and carry no information about the class\)\.$"
    ):
        search.fit_sets(X0, X1)
    assert search.best_params_["model"] is Own
    assert [one.rank for one in search.candidates_] == [2, 1]
    with pytest.raises(ValueError, match="all settings failed: lr=0.001 .all scores are 1"):
        UUClassifierCV(wild(Silent, model_params={"bias": 1.0}), {"lr": [1e-3]}).fit_sets(X0, X1)
    mixed = UUClassifierCV(wild(Silent, model_params={"bias": 1.0}), {"lr": [1e-3, 1e38]})
    with pytest.raises(NonFiniteRiskError, match="all settings failed: lr=0.001 .all scores are 1"):
        mixed.fit_sets(X0, X1)


@pytest.mark.parametrize("first", [True, False])
def test_only_first_worker_warns(data, monkeypatch, first):
    monkeypatch.setattr(module, "join_workers", lambda *_: SimpleNamespace(first=first, broadcast=lambda value: value))
    search = UUClassifierCV(wild("linear"), {"lr": [1e20, 0.1]})
    if first:
        with pytest.warns(FailedSettingWarning):
            search.fit_sets(*data[:2])
    else:
        search.fit_sets(*data[:2])
    assert search.best_params_ == {"lr": 0.1}


# ----------------------------------------------------------------------------------------------------- what is compared


@pytest.fixture(scope="module")
def uneven():
    """Sets of unequal sizes: separating the sets at 0 differs from the decision by class log-odds."""
    rng = np.random.default_rng(1)
    y = [rng.random(n) < prior for n, prior in ((600, 0.8), (3000, 0.3))]
    return [rng.normal(size=(len(own), 4)) + 0.6 * (2 * own[:, None] - 1) for own in y]


@both_ways
def test_settings_are_compared_by_calibrated_decisions(uneven, model):
    settings = {"model": model, "model_params": None, "loss": "logistic", "epochs": 15, "batch_size": 1200, "lr": 0.05}
    own = base(**settings, early_stopping=False)
    grid = {"calibrated": [True, False], "method": ["biased", "abs"]}
    search = UUClassifierCV(own, grid).fit_sets(*uneven)
    best = next(one for one in search.candidates_ if one.rank == 1)

    def evaluate_models(classifier):
        """The evaluation before the correction to the ensemble, which uncalibrated settings do not have."""
        sets = np.repeat([0, 1], [len(part) for part in uneven])
        return evaluate(classifier.out_of_fold_scores_, sets, own.set_priors, own.target_prior)

    assert best.evaluation == evaluate_models(search.best_estimator_)
    assert search.best_estimator_.calibrated
    assert f"{search.best_estimator_.out_of_fold_evaluation_.accuracy}" in search.summary()
    for one in search.candidates_:
        alone = evaluate_models(clone(own).set_params(**one.params).fit_sets(*uneven))
        assert one.evaluation.accuracy.value == pytest.approx(alone.accuracy.value, abs=2e-3)
        assert one.gap.value == pytest.approx(best.evaluation.accuracy.value - one.evaluation.accuracy.value)
    scaled, _, raw, _ = (one.evaluation for one in search.candidates_)  # with method "biased"
    assert scaled.accuracy.value > raw.accuracy.value + 0.15
    assert scaled.auc.value == pytest.approx(
        raw.auc.value, abs=2e-3
    )  # the slope is positive; thresholds of folds differ


def test_uncalibrated_settings_are_compared_by_scores(data):
    search = UUClassifierCV(base(), GRID).fit_sets(*data[:2])
    best = next(one for one in search.candidates_ if one.rank == 1)
    assert search.best_estimator_.scaling_ is None
    assert best.evaluation == search.best_estimator_.out_of_fold_evaluation_


# --------------------------------------------------------------------------------------------------------- scikit-learn


def test_tags_equal_tags_of_estimator():
    search = UUClassifierCV(base())
    assert get_tags(search) == get_tags(base())
    assert get_tags(search).input_tags.sparse
    assert not get_tags(search).classifier_tags.multi_class
    assert get_tags(UUClassifierCV(Own(2))).estimator_type == "classifier"  # fit rejects it with one sentence


@pytest.mark.filterwarnings("ignore::uulearn.exceptions.UUWarning")  # some checks fit on noise
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_classifiers_train,
        estimator_checks.check_estimators_unfitted,
        estimator_checks.check_estimator_sparse_tag,
        estimator_checks.check_n_features_in,
        estimator_checks.check_dict_unchanged,
    ],
)
def test_scikit_learn_estimator_checks(check):
    """With set_priors = (0, 1), the labels of the checks are valid sets."""
    own = UUClassifier((0.0, 1.0), model="linear", epochs=15, lr=0.2, n_estimators=2, random_state=0, progress=False)
    check("UUClassifierCV", UUClassifierCV(own, {"lr": [0.2, 1e-6]}))


def test_column_attributes_equal_best_estimator(data):
    X0, X1, X, _ = data
    search = UUClassifierCV(base(epochs=1), {"lr": [0.01]})
    assert not any(hasattr(search, name) for name in ("n_features_in_", "feature_names_in_", "classes_"))
    names = ["age", "weight", "height", "dose"]
    search.fit_sets(*(pd.DataFrame(part, columns=names) for part in (X0, X1)))
    assert search.feature_names_in_.tolist() == names
    assert search.n_features_in_ == 4
    with pytest.raises(ValueError, match="X lacks the columns 'age', 'weight', 'height' and 'dose'"):
        search.predict(pd.DataFrame(X, columns=[*"abcd"]))
    search.fit_sets(X0[:, :3], X1[:, :3])
    assert not hasattr(search, "feature_names_in_")
    assert search.n_features_in_ == 3
    search.fit_sets(sparse.csr_matrix(X0), sparse.csr_matrix(X1))
    assert search.n_features_in_ == 4


@pytest.mark.parametrize("step", ["run_plan", "warn_about_result"])
def test_interrupted_search_does_not_change_earlier_result(data, monkeypatch, step):
    X0, X1, *_ = data
    search = UUClassifierCV(base(epochs=2), {"lr": [0.01]}).fit_sets(X0, X1)
    before = dict(vars(search))
    search.set_params(param_grid={"lr": [0.02, 0.03]})

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, step, interrupt)
    with pytest.raises(KeyboardInterrupt):
        search.fit_sets(X0[:, :2], X1[:, :2])
    now = dict(vars(search))
    assert before.pop("param_grid") != now.pop("param_grid")
    assert now.keys() == before.keys()
    assert all(now[name] is value for name, value in before.items())
    assert search.n_features_in_ == 4


# ----------------------------------------------------------------------------------------------------- what is searched


def test_self_training_starts_from_best_setting(data, monkeypatch):
    X0, X1, *_ = data
    seen = []
    original = NetworkLearner.train_folds

    def spy(self, task, chosen=None):
        seen.append((sum(task.data.sizes), self.risk(task.set_priors, task.target_prior).method.name, self.options.lr))
        return original(self, task, chosen)

    monkeypatch.setattr(NetworkLearner, "train_folds", spy)
    search = UUClassifierCV(base(self_training_rounds=1), GRID).fit_sets(X0, X1)
    best = search.best_estimator_
    assert [done.number for done in best.self_training_] == [0, 1]
    if not best.self_training_[1].better:
        assert best.out_of_fold_evaluation_ == next(one.evaluation for one in search.candidates_ if one.rank == 1)
    # Two rounds of each half; on all rows the first was trained by the search.
    sizes, methods, rates = zip(*seen, strict=True)
    assert sizes == (270, 270, 270, 270, *[540] * best.self_training_[1].better)
    assert set(rates) == {search.best_params_["lr"]} != {base().lr}
    assert len(set(methods)) == 1


def test_default_search_parameters():
    search = UUClassifierCV(base(n_estimators=1, epochs=1))
    assert len(search._settings(search._base())) == 18
    assert search._base().n_estimators == UUClassifierCV(base(n_estimators="auto"))._base().n_estimators == 5
    assert UUClassifierCV(base(n_estimators=3))._base().n_estimators == 3
    assert clone(search).get_params()["estimator"].epochs == 1
    assert isinstance(search.estimator, UUClassifier)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("method", ["leaky_relu", "abs", "relu", "unbiased", "biased", (torch.relu, torch.relu)])
@pytest.mark.parametrize(("rate", "rates"), [(1e-3, [1e-4, 3e-4, 1e-3]), (0.07, [0.007, 0.021, 0.07])])
def test_default_grid_depends_on_base_estimator(method, rate, rates):
    """The grid has λ if the method supports it, and learning rates up to that of the base estimator."""
    paths = {"leaky_relu": {"slope": SLOPES}, "abs": {"method": ["leaky_relu"], "slope": SLOPES}}
    expected = paths.get(method, {}) if isinstance(method, str) else {}
    assert default_grid(base(method=method, lr=rate)) == expected | {"lr": rates}


def test_auto_is_resolved_for_every_setting(data):
    X0, X1, X, _ = data
    bare = UUClassifier((0.8, 0.3), 0.4, model="linear", epochs=2, random_state=0, progress=False)
    search = UUClassifierCV(bare).fit_sets(X0, X1)
    assert [one.params["lr"] for one in search.candidates_] == [0.001, 0.003, 0.01] * 6
    best = search.best_estimator_
    assert "auto" not in [best.get_params()[name] for name in AUTO_PARAMETERS]
    assert (best.method, best.n_estimators, best.early_stopping, best.calibrated) == ("leaky_relu", 5, True, True)
    assert best.scaling_ is not None
    losses = UUClassifierCV(bare, {"loss": ["sigmoid", "logistic"], "lr": ["auto", 0.02]}).fit_sets(X0, X1)
    again = UUClassifier(**bare.get_params(deep=False) | losses.best_params_).fit_sets(X0, X1)
    assert losses.best_estimator_.get_params() == bare.get_params() | losses.best_params_ | again.resolved_params_
    np.testing.assert_allclose(losses.decision_function(X), again.decision_function(X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"rate": [1]}, "param_grid cannot contain 'rate'; it may contain .*batch_size"),
        ({"n_estimators": [2, 3]}, "param_grid cannot contain 'n_estimators'"),
        ({"lr": 0.1}, r"param_grid\['lr'\] must be a list of values to try, got 0.1"),
        ({"loss": "sigmoid"}, r"param_grid\['loss'\] must be a list"),
        ({"lr": []}, r"param_grid\['lr'\] must be a list"),
        ({"slope": [0.0, -0.1], "method": ["abs"]}, "slope is used only by method 'leaky_relu'"),
        ({"lr": [0.1, -1.0]}, "lr must be 'auto' or a number above 0, got -1.0"),
        ({"batch_size": [0]}, r"batch_size must be 'auto' or an integer of at least 2 \(rows of both sets\), got 0"),
    ],
)
def test_rejects_bad_grid_before_training(data, grid, message, monkeypatch):
    monkeypatch.setattr(module, "train_all", lambda *_, **__: pytest.fail("work was done"))
    for estimator in base(), UUClassifier((0.8, 0.3)):
        with pytest.raises(ValueError, match=message):
            UUClassifierCV(estimator, grid).fit_sets(*data[:2])


def test_search_rejects_missing_priors():
    with pytest.raises(ValueError, match="a search compares accuracies, which need class priors"):
        UUClassifierCV(UUClassifier(None, method="biased")).fit_sets(np.zeros((5, 2)), np.ones((5, 2)))


def test_search_rejects_other_estimators():
    with pytest.raises(TypeError, match="estimator must be a UUClassifier, got Own"):
        UUClassifierCV(Own(2)).fit_sets(np.zeros((5, 2)), np.ones((5, 2)))
