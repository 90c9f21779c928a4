"""Values of "auto" parameters: how they are resolved, shown and stored."""

import inspect
import json
import types
import unittest.mock
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from torch import nn

from helpers.manifests import put, rewrite
from helpers.plain import PLAIN, make_classifier, plain_classifier
from uulearn import UUClassifier, defaults
from uulearn.app import fitting
from uulearn.app.settings import FitSettings
from uulearn.data import DenseRows, TwoSets
from uulearn.data.folds import assign_folds
from uulearn.data.holdout import has_few_unique_rows
from uulearn.estimator.parameters import RULES, check_parameters
from uulearn.estimator.resolving import AUTO_PARAMETERS, OF_EACH_MODEL, resolve_defaults
from uulearn.exceptions import ModelFormatError
from uulearn.selection import prior_sensitivity


class Own(nn.Linear):
    def __init__(self, n_features=3):
        super().__init__(n_features, 1)


def made():
    return Own()


FIVE = {"n_estimators": 5, "validation_fraction": 0.0, "early_stopping": True, "patience": 400, "calibrated": True}
KEPT = FIVE | {"n_estimators": 1, "validation_fraction": 0.1}
GIVEN = FIVE | {"n_estimators": 1}
ALL_ROWS = {
    "n_estimators": 1,
    "validation_fraction": 0.0,
    "early_stopping": False,
    "patience": None,
    "calibrated": False,
}
"""An ensemble; one model with held-out rows; one with validation data; one without validation."""


def resolved(parameters, sizes=(300, 200), **data):
    return resolve_defaults(
        UUClassifier(**{"set_priors": (0.8, 0.2)} | parameters).get_params(deep=False), sizes, **data
    )


# ------------------------------------------------------------------------------------------------------------ the rules


def test_parameters_with_rules_default_to_auto():
    given = {name: one.default for name, one in inspect.signature(UUClassifier).parameters.items()}
    assert [name for name, value in given.items() if value == "auto"] == [
        "loss", "model_params", "epochs", "batch_size", "lr", "l2", "n_estimators", "validation_fraction",
        "early_stopping", "patience", "calibrated", "encoder", "device",
    ]  # fmt: skip
    assert (given["method"], given["model"]) == ("abs", None)
    assert {name for name, value in given.items() if value == "auto"} - {"device", "encoder"} == set(AUTO_PARAMETERS)
    check_parameters(UUClassifier((0.8, 0.2)).get_params())
    for name in set(AUTO_PARAMETERS) - {"loss"}:  # checked by the risk
        assert "'auto'" in RULES[name].description


@pytest.mark.parametrize("model", ["linear", "mlp", "resnet32", "allconvnet", Own(), Own, made])
def test_loss_and_learning_rate_depend_on_model(model):
    found = resolved({"model": model}, (9000, 9000))  # on small tables, the learning rate of an MLP is higher
    assert (found["loss"], found["lr"]) == (("logistic", 0.01) if model == "linear" else ("sigmoid", 0.001))


def test_batch_size_depends_on_the_model():
    """A batch of 3,000 photographs does not fit in memory."""
    for model, size in [("mlp", 3000), ("resnet32", 3000), (None, 3000), (Own, 3000), ("torchvision:resnet18", 256)]:
        assert resolved({"model": model}, (9000, 9000))["batch_size"] == size
    assert "batch_size" not in resolved({"model": "torchvision:resnet18", "batch_size": 64})
    found = resolved({"model": "torchvision:resnet18"}, (9000, 9000))
    assert found["patience"] == 20  # 71 steps per epoch
    with_steps = resolved({"model": "torchvision:resnet18", "early_stopping": True}, (300, 212))
    assert with_steps["patience"] == 200  # two steps per epoch


def test_default_model_depends_on_the_input():
    assert resolved({}, is_table=False)["model"] == "mlp"
    assert resolved({}, is_table=True)["model"] == "auto"
    assert resolved({"set_priors": None, "method": "biased"}, is_table=True)["model"] == "mlp"
    assert "model" not in resolved({"model": "linear"}, is_table=True)


@pytest.mark.parametrize(
    ("model", "loss", "penalty"),
    [
        ("mlp", "sigmoid", 0.005),
        ("mlp", "auto", 0.005),
        ("linear", "sigmoid", 0.0),
        ("linear", "auto", 0.0),
        ("resnet32", "sigmoid", 0.0),
        ("resnet32", "auto", 0.0),
        (Own, "sigmoid", 0.0),
        ("mlp", "logistic", 0.0),
        ("linear", "squared", 0.0),
        ("mlp", torch.exp, 0.0),
    ],
)
def test_l2_depends_on_model_and_loss(model, loss, penalty):
    assert resolved({"model": model, "loss": loss})["l2"] == penalty


@pytest.mark.parametrize(
    ("parameters", "sizes", "data", "expected"),
    [
        # Fast models are trained as an ensemble, unless there are very few rows.
        ({"model": "linear"}, (300, 200), {}, FIVE),
        ({"model": "mlp"}, (10, 200), {}, FIVE),
        ({"model": "mlp"}, (200, 9), {}, ALL_ROWS),
        ({"model": "mlp"}, (6000, 9), {}, ALL_ROWS),
        # Other models are trained once, and hold out rows if there are enough.
        ({"model": "resnet32"}, (4999, 9000), {}, ALL_ROWS),
        ({"model": "resnet32"}, (9000, 5000), {}, KEPT | {"patience": 80}),
        ({"model": "allconvnet"}, (60_000, 60_000), {}, KEPT | {"patience": 20}),
        ({"model": Own()}, (5000, 5000), {}, KEPT | {"patience": 100}),
        ({"model": Own}, (300, 200), {}, ALL_ROWS),
        ({"model": made}, (5000, 5000), {}, KEPT | {"patience": 100}),
        # Validation rows are given.
        ({"model": "mlp"}, (300, 200), {"has_validation_data": True}, GIVEN),
        ({"model": Own}, (9000, 9000), {"has_validation_data": True}, GIVEN | {"patience": 67}),
        # There are too few unique rows to leave any out.
        ({"model": "mlp"}, (300, 200), {"single_model": True}, ALL_ROWS),
        ({"model": Own}, (9000, 9000), {"single_model": True}, ALL_ROWS),
        ({"model": "mlp"}, (300, 200), {"single_model": True, "has_validation_data": True}, GIVEN),
        ({"self_training_rounds": 1}, (300, 200), {"single_model": True}, FIVE),  # assign_folds rejects it
        # A validation fraction (also 0) implies one model.
        ({"validation_fraction": 0.3}, (300, 200), {}, KEPT | {"validation_fraction": 0.3}),
        ({"validation_fraction": 0.0}, (300, 200), {}, ALL_ROWS),
        ({"validation_fraction": 0}, (9000, 9000), {}, ALL_ROWS),
        ({"validation_fraction": 0.0}, (300, 200), {"has_validation_data": True}, GIVEN),
        ({"n_estimators": 3}, (300, 200), {}, FIVE | {"n_estimators": 3}),
        ({"n_estimators": 3, "model": Own}, (300, 200), {}, FIVE | {"n_estimators": 3}),
        ({"n_estimators": 1}, (300, 200), {}, ALL_ROWS),
        ({"n_estimators": 1}, (5000, 5000), {}, KEPT | {"patience": 100}),
        # Parameters that need held-out rows get them, for any number of rows.
        ({"model": Own, "early_stopping": True}, (300, 200), {}, KEPT),
        ({"model": Own, "calibrated": True}, (300, 200), {}, KEPT),
        ({"model": Own, "patience": 7}, (300, 200), {}, KEPT | {"patience": 7}),
        ({"model": Own, "calibrated": np.True_}, (300, 200), {}, KEPT),
        ({"model": Own, "patience": np.int64(7)}, (300, 200), {}, KEPT | {"patience": 7}),
        ({"model": Own, "calibrated": False}, (300, 200), {}, ALL_ROWS),
        ({"model": Own, "patience": None}, (300, 200), {}, ALL_ROWS),
        ({"model": Own, "early_stopping": False}, (300, 200), {}, ALL_ROWS),
        ({"n_estimators": 1, "early_stopping": True}, (300, 200), {}, KEPT),
        # Given values are kept, next to resolved ones.
        ({"early_stopping": False}, (300, 200), {}, FIVE | {"early_stopping": False, "patience": None}),
        ({"patience": None}, (300, 200), {}, FIVE | {"patience": None}),
        ({"patience": 7}, (300, 200), {}, FIVE | {"patience": 7}),
        ({"calibrated": False}, (300, 200), {}, FIVE | {"calibrated": False}),
        ({"calibrated": False}, (300, 200), {"has_validation_data": True}, GIVEN | {"calibrated": False}),
        # Self-training needs several models for any kind of model.
        ({"self_training_rounds": 2}, (300, 200), {}, FIVE),
        ({"self_training_rounds": 1, "model": Own}, (300, 200), {}, FIVE),
        ({"self_training_rounds": 1, "validation_fraction": 0.1}, (300, 200), {}, FIVE | {"validation_fraction": 0.1}),
        # Without priors, rows are only ranked; probabilities do not exist.
        ({"set_priors": None, "method": "biased"}, (300, 200), {}, FIVE | {"calibrated": False}),
        (
            {"set_priors": None, "method": "biased"},
            (300, 200),
            {"has_validation_data": True},
            GIVEN | {"calibrated": False},
        ),
        ({"set_priors": None, "method": "biased", "model": Own}, (300, 200), {}, ALL_ROWS),
    ],
)  # fmt: skip
def test_validation_parameters_depend_on_data_and_each_other(parameters, sizes, data, expected):
    found = resolved(parameters, sizes, **data)
    assert {name: found.get(name, parameters.get(name)) for name in expected} == expected


@pytest.mark.parametrize(
    ("sizes", "batch_size", "patience"),
    [
        ((300, 200), 3000, 400),  # one step per epoch
        ((3000, 2999), 3000, 200),
        ((28_000, 28_000), 3000, 22),  # 19 steps
        ((30_000, 30_000), 3000, 20),
        ((300, 300), 20, 20),
        ((10, 90_000), 3000, 40),  # no more batches than rows of the smaller set
    ],
)
def test_patience_is_minimum_number_of_epochs_or_steps(sizes, batch_size, patience):
    assert resolved({"batch_size": batch_size, "early_stopping": True}, sizes)["patience"] == patience


models = st.sampled_from([None, "auto", "boosting", "linear", "mlp", "resnet32", "allconvnet", Own(), Own, made])
values = {
    "model_params": st.none() | st.just({"hidden": (8,)}),
    "epochs": st.integers(1, 500),
    "batch_size": st.integers(2, 10_000),
    "loss": st.sampled_from(["sigmoid", "logistic", "squared", torch.exp]),
    "lr": st.floats(1e-6, 10),
    "l2": st.floats(0, 1),
    "n_estimators": st.integers(1, 9),
    "validation_fraction": st.floats(0, 0.9),
    "early_stopping": st.booleans(),
    "patience": st.none() | st.integers(1, 500),
    "calibrated": st.booleans(),
}
anything = st.fixed_dictionaries(
    {
        "set_priors": st.sampled_from([(0.8, 0.2), (0.1, 0.9), None]),
        "model": models,
        "self_training_rounds": st.sampled_from([0, 0, 1, 3]),
        **{name: st.just("auto") | value for name, value in values.items()},
    }
)
size = st.integers(2, 20) | st.integers(2, 100_000)


@given(parameters=anything, sizes=st.tuples(size, size), has_validation_data=st.booleans(), single_model=st.booleans())
@settings(max_examples=300)
def test_resolved_parameters_are_consistent(parameters, sizes, has_validation_data, single_model):
    if parameters["set_priors"] is None:
        parameters["method"] = "biased"
    asked = UUClassifier(**parameters).get_params(deep=False)
    before = dict(asked)
    found = resolve_defaults(asked, sizes, has_validation_data=has_validation_data, single_model=single_model)
    assert asked == before
    # All parameters that are "auto" are resolved, and no others; resolving again changes nothing.
    open_names = OF_EACH_MODEL if asked["model"] == "auto" else ()
    named = [name for name in AUTO_PARAMETERS if asked[name] == "auto" and name not in open_names]
    assert list(found) == (["model"] if asked["model"] is None else []) + named
    assert "auto" not in found.values()
    assert (
        resolve_defaults(asked | found, sizes, has_validation_data=has_validation_data, single_model=single_model) == {}
    )
    check_parameters(asked | found)
    json.dumps(found)
    # The order of the sets does not matter.
    assert (
        resolve_defaults(asked, sizes[::-1], has_validation_data=has_validation_data, single_model=single_model)
        == found
    )
    # Parameters that need held-out rows are set only with such rows.
    done = types.SimpleNamespace(**asked | found)
    evaluated = has_validation_data or done.n_estimators > 1 or done.validation_fraction > 0
    for name, follows in (("early_stopping", done.early_stopping), ("calibrated", done.calibrated)):
        if name in found:
            assert not follows or evaluated
    if "patience" in found:
        assert (done.patience is None) == (not done.early_stopping)
    if "calibrated" in found and asked["set_priors"] is None:
        assert done.calibrated is False


# ----------------------------------------------------------------------------------------------- accepted, and the same


def two_sets(n=(30, 24), columns=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n[0], columns)) + 0.5, rng.normal(size=(n[1], columns)) - 0.5


def bare(set_priors=(0.8, 0.2), **changes):
    """A fast classifier with default parameters."""
    return make_classifier(
        set_priors, **{"model": "linear", "epochs": 3, "random_state": 0, "progress": False} | changes
    )


TOGETHER = [
    ALL_ROWS,
    KEPT | {"patience": 2},
    KEPT | {"patience": None, "calibrated": False, "validation_fraction": 0.3},
    KEPT | {"early_stopping": False, "patience": None},
    FIVE | {"patience": 2},
    FIVE | {"n_estimators": 2, "early_stopping": False, "patience": None},
    FIVE | {"calibrated": False},
]
"""Settings that fit accepts."""


@pytest.mark.filterwarnings("ignore::uulearn.exceptions.UUWarning")  # thirty rows of noise
@given(
    together=st.sampled_from(TOGETHER),
    left=st.sets(st.sampled_from(AUTO_PARAMETERS)),
    model=st.sampled_from(["linear", Own(), made]),
    without_priors=st.booleans(),
    sizes=st.sampled_from([(30, 24), (14, 9), (10, 40)]),
)
@settings(max_examples=30)
def test_fit_accepts_every_consistent_subset_of_parameters(together, left, model, without_priors, sizes):
    chosen = {"loss": "logistic", "model_params": None, "epochs": 1, "batch_size": 20, "lr": 0.1, "l2": 0.0} | together
    if chosen["n_estimators"] > 1:  # a validation fraction applies to one model
        left = left | {"validation_fraction"}
    if without_priors:
        chosen |= {"method": "biased", "calibrated": False}
    kept = {name: value for name, value in chosen.items() if name not in left}
    asked = bare(None if without_priors else (0.8, 0.2), **{"model": model, "epochs": "auto"} | kept)
    with unittest.mock.patch.object(defaults, "EPOCHS", 2):  # "auto" is fast
        fitted = asked.fit_sets(*two_sets(sizes))
        assert fitted.resolved_params_ == resolve_defaults(asked.get_params(deep=False), sizes)
    assert fitted.resolved_params_.keys() == left
    assert fitted.fitted_params() == asked.get_params(deep=False) | fitted.resolved_params_
    assert (fitted.scaling_ is not None) == fitted.fitted_params()["calibrated"]
    assert (fitted.held_out_sizes_ == (0, 0)) == (fitted.fitted_params() | ALL_ROWS == fitted.fitted_params())


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({}, None),
        ({"model": "mlp", "model_params": {"hidden": (8,)}}, None),
        ({"model": Own}, None),
        ({"model": Own, "early_stopping": True}, None),
        ({}, "validation_data"),
        ({"self_training_rounds": 1, "n_estimators": 2, "epochs": 2}, None),
    ],
)
def test_auto_equals_explicit_resolved_parameters(changes, given):
    X0, X1 = two_sets((60, 50))
    X = np.concatenate([X0, X1])
    sets = np.repeat([0, 1], [60, 50])
    data = {} if given is None else {given: (X[::7], sets[::7])}
    default = bare(**changes).fit(X, sets, **data)
    expected = resolve_defaults(bare(**changes).get_params(deep=False), (60, 50), has_validation_data=given is not None)
    assert default.resolved_params_ == expected
    written = bare(**changes | expected).fit(X, sets, **data)
    assert written.resolved_params_ == {}
    np.testing.assert_array_equal(default.decision_function(X), written.decision_function(X))
    np.testing.assert_array_equal(default.predict_proba(X), written.predict_proba(X))
    assert default.summary() == written.summary()
    assert default.scaling_ == written.scaling_
    assert default.out_of_fold_evaluation_ == written.out_of_fold_evaluation_
    assert default.fitted_params() == written.get_params(deep=False)
    if expected.get("n_estimators") == 5:
        assert "5 models, each trained without one fold" in default.summary()


def test_explicit_parameters_are_not_resolved():
    assert PLAIN.keys() >= set(AUTO_PARAMETERS)
    assert plain_classifier((0.8, 0.2), model="linear", epochs=1).fit_sets(*two_sets()).resolved_params_ == {}


def test_with_target_prior_uses_resolved_loss():
    X0, X1 = two_sets()
    log_odds = bare(validation_fraction=0.0).fit_sets(X0, X1)
    assert log_odds.loss == "auto"
    shifted = log_odds.decision_function(X0) + np.log(0.3 / 0.7)
    np.testing.assert_allclose(log_odds.with_target_prior(0.3).decision_function(X0), shifted, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="the scores of loss 'sigmoid' and method 'abs' are not log-odds"):
        bare(validation_fraction=0.0, model=Own).fit_sets(X0, X1).with_target_prior(0.3)


# ------------------------------------------------------------------------------------------------- rows that are copies


def table(values, first=0.0):
    return DenseRows(torch.tensor(values, dtype=torch.float32)[:, None] + first)


def test_few_unique_rows_fill_the_folds():
    copied = [0.0, 1.0] * 20
    assert has_few_unique_rows(TwoSets((table(copied), table(copied, 9.0))))
    enough, lacking = [[*copied, *range(2, 2 + n)] for n in (5, 4)]
    assert not has_few_unique_rows(TwoSets((table(enough), table(enough, 0.5))))
    assert has_few_unique_rows(TwoSets((table(enough), table(lacking, 0.5))))
    assert has_few_unique_rows(TwoSets((table(lacking), table(enough, 0.5))))
    assert has_few_unique_rows(TwoSets((table(enough), table(enough))))  # each has a copy in the other set
    for seed in range(20):
        assign_folds(TwoSets((table(enough), table(enough, 0.5))), 5, seed)


def test_many_rows_with_copies_fill_the_folds():
    many, few = [2 * list(range(n)) for n in (100, 99)]
    others = table(list(range(3000)) * 2, 0.5)
    assert not has_few_unique_rows(TwoSets((table(many), others)))
    assert has_few_unique_rows(TwoSets((table(few), others)))
    for seed in range(20):
        assign_folds(TwoSets((table(many), others)), 5, seed)


@pytest.mark.parametrize("changes", [{}, {"model": Own}])
@pytest.mark.parametrize("rows", [40, 5000])
def test_few_unique_rows_train_a_single_model(changes, rows):
    """A table of categories has a few unique rows, too few for folds or held-out rows."""
    rng = np.random.default_rng(0)
    X0, X1 = ((rng.random((rows, 2)) < share).astype(np.float32) for share in (0.8, 0.2))
    classifier = bare(epochs=60, lr=0.1, **changes).fit_sets(X0, X1)
    assert classifier.resolved_params_ == {
        "loss": "sigmoid" if changes else "logistic", "model_params": None, "batch_size": 3000, "l2": 0.0,
    } | ALL_ROWS  # fmt: skip
    assert classifier.predict([[1, 1], [0, 0]]).tolist() == [1, 0]
    with pytest.raises(ValueError, match="cannot be split into 5 folds because too many of its rows are copies"):
        bare(n_estimators=5, **changes).fit_sets(X0, X1)


# ---------------------------------------------------------------------------------------- parameters stay as they were


def test_fit_does_not_change_parameters():
    classifier = bare()
    before = classifier.get_params()
    classifier.fit_sets(*two_sets())
    assert classifier.get_params() == before
    autos = {name for name in AUTO_PARAMETERS if before[name] == "auto"}
    assert autos == set(AUTO_PARAMETERS) - {"epochs"} == set(classifier.resolved_params_)
    copy = clone(classifier)
    assert copy.get_params() == before
    assert not hasattr(copy, "resolved_params_")
    classifier.set_params(lr=0.5, n_estimators=1)
    assert (
        classifier.resolved_params_["n_estimators"] == classifier.fitted_params()["n_estimators"] == 5
    )  # from the earlier fit
    classifier.fit_sets(*two_sets())
    rest = {name: value for name, value in ALL_ROWS.items() if name != "n_estimators"}
    assert (
        classifier.resolved_params_ == {"loss": "logistic", "model_params": None, "batch_size": 3000, "l2": 0.0} | rest
    )
    assert classifier.fitted_params()["lr"] == 0.5


def test_refit_replaces_all_fitted_attributes():
    X0, X1 = two_sets()
    frames = [pd.DataFrame(X, columns=["a", "b", "c"]) for X in (X0, X1)]
    classifier = bare(n_estimators=2, self_training_rounds=1).fit_sets(*frames)
    assert classifier.feature_names_in_.tolist() == ["a", "b", "c"]
    assert classifier.self_training_ is not None
    classifier.set_params(n_estimators="auto", self_training_rounds=0, validation_fraction=0.0).fit_sets(X0, X1)
    fresh = bare(validation_fraction=0.0).fit_sets(X0, X1)
    assert {name for name in vars(classifier) if name.endswith("_")} == {
        name for name in vars(fresh) if name.endswith("_")
    }
    assert not hasattr(classifier, "feature_names_in_")
    assert classifier.self_training_ is classifier.out_of_fold_evaluation_ is classifier.scaling_ is None
    np.testing.assert_array_equal(classifier.decision_function(X0), fresh.decision_function(X0))


def interrupted(record, model):
    raise KeyboardInterrupt


def fail_by_value(classifier, X0, X1):
    classifier.set_params(epochs=0).fit_sets(X0, X1)


def fail_by_rows(classifier, X0, X1):
    classifier.fit_sets(X0 * np.nan, X1)


def fail_by_model(classifier, X0, X1):
    classifier.set_params(model_params={"depth": 3}).fit_sets(X0, X1)


def fail_by_interrupt(classifier, X0, X1):
    classifier.fit_sets(X0, X1, callback=interrupted)


@pytest.mark.parametrize("fail", [fail_by_value, fail_by_rows, fail_by_model, fail_by_interrupt])
def test_failed_fit_does_not_change_earlier_model(fail):
    X0, X1 = two_sets()
    classifier = bare().fit(
        pd.DataFrame(np.concatenate([X0, X1]), columns=["a", "b", "c"]), np.repeat([0, 1], [30, 24])
    )
    before = {name: value for name, value in vars(classifier).items() if name.endswith("_")}
    with pytest.raises((ValueError, KeyboardInterrupt)):
        fail(classifier, *two_sets((50, 40), columns=2))
    after = {name: value for name, value in vars(classifier).items() if name.endswith("_")}
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    new = bare()
    with pytest.raises((ValueError, KeyboardInterrupt)):
        fail(new, *two_sets((50, 40), columns=2))
    assert not [name for name in vars(new) if name.endswith("_")]


def test_interrupted_single_model_replaces_earlier_model():
    X0, X1 = two_sets()
    classifier = bare().fit_sets(X0, X1)
    classifier.set_params(validation_fraction=0.0)
    with pytest.raises(KeyboardInterrupt):
        classifier.fit_sets(X0, X1, callback=interrupted)
    assert len(classifier.history_) == 1
    assert classifier.resolved_params_["n_estimators"] == 1
    assert "validation_fraction" not in classifier.resolved_params_


# ----------------------------------------------------------------------------------------------------- saved and loaded


@pytest.fixture(scope="module")
def default():
    return bare().fit_sets(*two_sets())


@pytest.fixture
def saved(default, tmp_path):
    default.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("changes", [{}, {"validation_fraction": 0.0}, {"early_stopping": False, "patience": None}])
def test_resolved_parameters_are_stored(changes, tmp_path):
    X0, X1 = two_sets()
    classifier = bare(**changes).fit_sets(X0, X1)
    classifier.save(tmp_path)
    loaded = UUClassifier.load(tmp_path)
    assert loaded.resolved_params_ == classifier.resolved_params_
    assert {name: type(value) for name, value in loaded.resolved_params_.items()} == {
        name: type(value) for name, value in classifier.resolved_params_.items()
    }
    assert loaded.get_params() == classifier.get_params()
    assert loaded.summary() == classifier.summary()
    np.testing.assert_array_equal(loaded.decision_function(X0), classifier.decision_function(X0))
    np.testing.assert_array_equal(loaded.predict_proba(X0), classifier.predict_proba(X0))
    again = loaded.fit_sets(X0, X1)  # it is a full estimator, and "auto" parameters are still "auto"
    np.testing.assert_array_equal(again.decision_function(X0), classifier.decision_function(X0))


def drop(*keys):
    *path, last = keys

    def change(manifest):
        for key in path:
            manifest = manifest[key]
        del manifest[last]

    return change


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (put("fitted", "resolved_params", {"slope": 0}), "resolved parameters are not readable: {'slope': 0}"),
        (put("fitted", "resolved_params", "shell", "rm"), "are not readable: .*'shell': 'rm'"),
        (put("fitted", "resolved_params", "lr", "auto"), "are not readable: .*'lr': 'auto'"),
        (put("fitted", "resolved_params", ["lr"]), r"are not readable: \['lr'\]"),
        (put("fitted", "resolved_params", None), "are not readable: None"),
        (put("fitted", "resolved_params", "auto"), "are not readable: auto"),
        (put("fitted", "resolved_params", "n_estimators", 0), "n_estimators must be"),
        (put("fitted", "resolved_params", "early_stopping", "first"), "early_stopping must be"),
        (put("fitted", "resolved_params", "calibrated", 1), "calibrated must be"),
        (put("fitted", "resolved_params", "loss", "zero_one"), "cannot be used for training"),
        (put("fitted", "resolved_params", "loss", {"code": "os.system"}), "cannot be loaded"),
        (drop("fitted", "resolved_params"), "cannot be loaded"),
        (put("parameters", "n_estimators", "several"), "n_estimators must be"),
    ],
)
def test_rejects_tampered_manifest(saved, change, text):
    rewrite(saved, change)
    with pytest.raises(ModelFormatError, match=text):
        UUClassifier.load(saved)


# --------------------------------------------------------------------------------------- callers that resolve first


@pytest.mark.filterwarnings("ignore::uulearn.exceptions.UUWarning")
def test_sensitivity_trains_one_model_to_the_last_epoch():
    rng = np.random.default_rng(0)
    given = rng.normal(size=(220, 3)), np.repeat([0, 1], [120, 100])
    quick = {"epochs": 40, "lr": 0.5, "ema": None}  # noise, so the best epoch is not the last
    classifier = bare(**quick)
    before = classifier.get_params()
    found = prior_sensitivity(classifier, *given, errors=(0.1,))
    assert classifier.get_params() == before
    written = {
        "loss": "logistic",
        "l2": 0.0,
        "n_estimators": 1,
        "early_stopping": False,
        "patience": None,
        "calibrated": True,
    }
    assert found == prior_sensitivity(bare(**quick, **written), *given, errors=(0.1,))
    assert found != prior_sensitivity(bare(**quick, early_stopping=True), *given, errors=(0.1,))


OF_EACH = {"model": "auto"} | dict.fromkeys(OF_EACH_MODEL, "auto")
"""The default for tables: several models are compared, and these parameters have a different value for each model."""


@pytest.mark.parametrize(
    ("sizes", "images", "given", "expected"),
    [
        ((4999, 9000), None, {"model": "mlp"}, FIVE | {"patience": 80}),
        ((5000, 9000), None, {"model": "mlp"}, FIVE | {"patience": 80}),
        ((5000, 9000), None, {}, FIVE | OF_EACH),
        ((300, 300), "convolved", {"calibrated": True}, KEPT),  # as `uulearn fit` asks for
        ((300, 300), "flat", {"model": "linear"}, FIVE),
        (
            (300, 300),
            None,
            {"n_estimators": 1, "early_stopping": False, "calibrated": True, "model": "mlp"},
            KEPT | {"early_stopping": False, "patience": None},
        ),
        ((300, 300), None, {"n_estimators": "auto", "calibrated": False}, FIVE | OF_EACH | {"calibrated": False}),
        (
            (9000, 9000),
            None,
            {"self_training_rounds": 2, "n_estimators": 3, "model": "mlp"},
            FIVE | {"n_estimators": 3, "patience": 67},
        ),
    ],
)
def test_files_and_python_resolve_parameters_by_the_same_rule(sizes, images, given, expected):
    settings = FitSettings("a", "b", (0.8, 0.2), images="path" if images else None, classifier=given)
    classifier = fitting.make_classifier(settings, None)
    parameters = classifier.get_params(deep=False)
    classifier.set_params(**resolve_defaults(parameters, sizes))
    found = classifier.get_params(deep=False)
    assert {name: found[name] for name in expected} == expected


class TestSmallTables:
    """An MLP on a small table is smaller and trains for fewer epochs, unless one of these parameters is given."""

    LARGE: ClassVar = {"model_params": None, "epochs": 200, "lr": 1e-3}

    def small(self, sizes, **changes):
        found = resolve_defaults(UUClassifier((0.8, 0.2), **changes).get_params(deep=False), sizes)
        return {name: found[name] for name in self.LARGE if name in found}

    def test_network_depends_on_the_number_of_rows(self):
        hidden = [self.small(sizes)["model_params"] for sizes in ((1500, 1500), (1501, 1500), (9000, 3000))]
        assert [own["hidden"] for own in hidden] == [(128, 128), (300, 300), (300, 300)]
        assert self.small((9000, 3001)) == self.LARGE

    @pytest.mark.parametrize("changes", [{"lr": 1e-4}, {"epochs": 7}, {"model_params": None}, {"loss": "logistic"}])
    def test_a_given_parameter_restores_the_others(self, changes):
        expected = {name: value for name, value in self.LARGE.items() if name not in changes}
        assert self.small((100, 100), **changes) == expected

    @pytest.mark.parametrize("model", ["linear", "resnet32"])
    def test_other_models_do_not_change(self, model):
        assert self.small((100, 100), model=model)["epochs"] == 200
        assert self.small((100, 100), model=model)["model_params"] is None

    def test_stored_model_keeps_its_network(self, tmp_path):
        rows = np.random.default_rng(0).normal(size=(2, 40, 3)).astype(np.float32)
        clf = UUClassifier((0.8, 0.2), progress=False, random_state=0).fit_sets(*rows)
        clf.save(tmp_path / "model")
        loaded = UUClassifier.load(tmp_path / "model")
        assert loaded.fitted_params()["model_params"]["dropout"] == 0.25
        np.testing.assert_array_equal(loaded.decision_function(rows[0]), clf.decision_function(rows[0]))
