"""`UUClassifier`: learning, predictions, parameters, errors and the scikit-learn API."""

import dataclasses
import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from helpers.plain import plain_classifier
from uulearn import UUClassifier, uu_risk
from uulearn.estimator.parameters import CONSISTENCY_RULES, RULES, TRAINING_RULES
from uulearn.exceptions import NonFiniteRiskError
from uulearn.risk import estimation_cost
from uulearn.training import ConsistencyOptions, TrainingOptions

METHODS = ["biased", "unbiased", "abs", "relu", "leaky_relu"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_every_method_learns(method, model, gaussians, quick):
    classifier = plain_classifier(
        **quick
        | {"method": method, "model": model, "epochs": 60, "lr": 0.03}
        | ({"model_params": None} if model == "linear" else {})
    )
    classifier.fit(gaussians["X"], gaussians["sets"])
    assert accuracy_score(gaussians["y_test"], classifier.predict(gaussians["X_test"])) > 0.93


@pytest.mark.parametrize("loss", ["logistic", "sigmoid", "ramp", "double_hinge", "squared", lambda z: torch.exp(-z)])
def test_every_loss_learns(loss, gaussians, quick):
    classifier = UUClassifier(**quick | {"loss": loss, "epochs": 40}).fit_sets(gaussians["X0"], gaussians["X1"])
    assert accuracy_score(gaussians["y_test"], classifier.predict(gaussians["X_test"])) > 0.93


def test_fit_and_fit_sets_agree(gaussians, quick):
    apart = UUClassifier(**quick).fit_sets(gaussians["X0"], gaussians["X1"])
    together = UUClassifier(**quick).fit(np.concatenate([gaussians["X0"], gaussians["X1"]]), np.repeat([0, 1], 400))
    np.testing.assert_array_equal(
        apart.decision_function(gaussians["X_test"]), together.decision_function(gaussians["X_test"])
    )


def test_swapping_sets_and_priors_gives_the_same_classifier_up_to_shuffles(gaussians, quick):
    one = UUClassifier(**quick | {"batch_size": 800}).fit_sets(gaussians["X0"], gaussians["X1"])
    other = UUClassifier(**quick | {"batch_size": 800, "set_priors": (0.2, 0.8)}).fit_sets(
        gaussians["X1"], gaussians["X0"]
    )
    np.testing.assert_allclose(
        one.decision_function(gaussians["X_test"]), other.decision_function(gaussians["X_test"]), atol=0.02
    )


def test_predictions_are_consistent(gaussians, quick):
    classifier = UUClassifier(**quick).fit(gaussians["X"], gaussians["sets"])
    X = gaussians["X_test"]
    probability = classifier.predict_proba(X)
    assert probability.shape == (1000, 2)
    assert ((probability >= 0) & (probability <= 1)).all()
    np.testing.assert_allclose(probability.sum(1), 1)
    np.testing.assert_array_equal(classifier.predict(X), (classifier.decision_function(X) > 0).astype(int))
    np.testing.assert_array_equal(classifier.predict(X), probability.argmax(1))
    assert classifier.decision_function(X).shape == (1000,)
    assert classifier.classes_.tolist() == [0, 1]


@pytest.mark.parametrize("pi", [0.2, 0.8])
def test_probabilities_follow_the_target_prior(pi, gaussians, quick):
    """With a proper loss and a well-specified model, the mean probability on the target population is about π."""
    rng = np.random.default_rng(3)
    y = rng.random(4000) < pi
    X = rng.normal(size=(4000, 3)) + 1.5 * (2 * y[:, None] - 1)
    classifier = plain_classifier((0.8, 0.2), pi, model="linear", lr=0.03, epochs=200, random_state=0)
    classifier.fit_sets(gaussians["X0"], gaussians["X1"])
    assert classifier.predict_proba(X)[:, 1].mean() == pytest.approx(pi, abs=0.06)


def test_score_is_one_minus_the_zero_one_risk(gaussians, quick):
    classifier = UUClassifier(**quick).fit(gaussians["X"], gaussians["sets"])
    scores = torch.from_numpy(classifier.decision_function(gaussians["X"]))
    risk = uu_risk(scores, torch.from_numpy(gaussians["sets"]), (0.8, 0.2), 0.5, loss="zero_one", method="unbiased")
    assert classifier.score(gaussians["X"], gaussians["sets"]) == pytest.approx(1 - risk.unbiased.item())
    truth = accuracy_score(gaussians["y_test"], classifier.predict(gaussians["X_test"]))
    standard_error = estimation_cost((0.8, 0.2), 0.5, (400, 400)).standard_error
    assert classifier.score(gaussians["X"], gaussians["sets"]) == pytest.approx(truth, abs=3 * standard_error)
    with pytest.raises(TypeError, match=r"UUClassifier\.score needs sets, the set of each row"):
        classifier.score(gaussians["X"])


def test_scikit_learn_tools_work_on_rows_and_sets(gaussians, quick):
    X, sets = gaussians["X"], gaussians["sets"]
    pipeline = make_pipeline(StandardScaler(), UUClassifier(**quick))
    scores = cross_val_score(pipeline, X, sets, cv=3)
    assert scores.mean() > 0.85
    search = GridSearchCV(UUClassifier(**quick), {"slope": [-1.0, 0.0], "method": ["leaky_relu"]}, cv=2).fit(X, sets)
    assert search.best_estimator_.predict(gaussians["X_test"]).mean() == pytest.approx(0.5, abs=0.1)


def test_clone_copies_parameters_but_no_fitted_state(gaussians, quick):
    classifier = UUClassifier(**quick | {"model": nn.Linear(3, 1), "model_params": None})
    copy = clone(classifier.fit(gaussians["X"], gaussians["sets"]))
    assert not hasattr(copy, "model_")
    assert copy.get_params().keys() == classifier.get_params().keys()
    assert copy.set_params(epochs=3).fit(gaussians["X"], gaussians["sets"]).history_[-1]["epoch"] == 3


def test_fit_does_not_change_the_passed_module(gaussians, quick):
    module = nn.Linear(3, 1)
    before = module.weight.detach().clone()
    classifier = UUClassifier(**quick | {"model": module, "model_params": None}).fit(gaussians["X"], gaussians["sets"])
    assert torch.equal(module.weight, before)
    assert not torch.equal(classifier.model_.weight, before)


class Convolution(nn.Module):
    """A small network for images."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)
        )

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("as_type", [np.asarray, torch.as_tensor])
def test_custom_model_accepts_rows_of_any_shape(as_type):
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.random(200) < 0.9, rng.random(200) < 0.1])
    images = (rng.random((400, 1, 8, 8)) + 0.8 * y[:, None, None, None]).astype(np.float32)
    classifier = plain_classifier((0.9, 0.1), 0.5, model=Convolution, epochs=60, lr=0.02, random_state=0)
    classifier.fit(as_type(images), as_type(np.repeat([0, 1], 200)))
    assert (classifier.predict(as_type(images)) == y).mean() > 0.95
    with pytest.raises(ValueError, match=r"rows of shape \(1, 9, 9\).*fitted on rows of shape \(1, 8, 8\)"):
        classifier.predict(np.zeros((2, 1, 9, 9), dtype=np.float32))


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (nn.Linear(3, 2), r"one score per row.*returned \(2, 2\)"),
        (nn.Linear(5, 1), r"does not accept rows of shape \(3,\)"),
        (
            nn.Sequential(nn.Linear(3, 1), nn.Flatten(0), nn.Softmax(0), nn.Unflatten(0, (1, -1))),
            "one score per row",
        ),
    ],
)
def test_rejects_unsuitable_model_before_training(model, text, gaussians, quick):
    with pytest.raises(ValueError, match=text):
        UUClassifier(**quick | {"model": model, "model_params": None}).fit(gaussians["X"], gaussians["sets"])


def test_random_state_is_reproducible(gaussians, quick):
    def scores(random_state):
        classifier = UUClassifier(**quick | {"random_state": random_state}).fit(gaussians["X"], gaussians["sets"])
        return classifier.decision_function(gaussians["X_test"])

    np.testing.assert_array_equal(scores(5), scores(5))
    np.testing.assert_array_equal(scores(np.random.RandomState(5)), scores(np.random.RandomState(5)))
    assert not np.array_equal(scores(5), scores(6))
    assert not np.array_equal(scores(None), scores(None))


def test_classifier_can_be_pickled(gaussians, quick):
    classifier = UUClassifier(**quick).fit(gaussians["X"], gaussians["sets"])
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(gaussians["X"]), classifier.predict_proba(gaussians["X"]))


def test_pickle_moves_model_to_cpu(gaussians, quick):
    classifier = UUClassifier(**quick).fit(gaussians["X"], gaussians["sets"])

    class Elsewhere(nn.Module):
        """Simulates a module on an accelerator; only its copy on the CPU is pickled."""

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2, device="meta"))
            self.moved = False

        def __deepcopy__(self, memo):
            return Elsewhere()

        def cpu(self):
            self.moved = True
            return self

    classifier.trained_ = dataclasses.replace(classifier.trained_, module=Elsewhere())
    assert classifier.__getstate__()["trained_"].module.moved
    assert not classifier.model_.moved


def test_diverging_run_raises_and_sets_fitted_attributes(gaussians, quick):
    class Exploding(nn.Module):
        calls = 0

        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 1)

        def forward(self, x):
            Exploding.calls += self.training
            return self.inner(x) * (float("inf") if Exploding.calls > 4 else 1.0)

    classifier = UUClassifier(**quick | {"model": Exploding, "model_params": None})
    with pytest.raises(NonFiniteRiskError, match="epoch 5"):
        classifier.fit(gaussians["X"], gaussians["sets"])
    assert len(classifier.history_) == 4
    Exploding.calls = 0
    assert np.isfinite(classifier.decision_function(gaussians["X"])).all()


def test_interrupted_fit_sets_fitted_attributes(gaussians, quick):
    def interrupt(record, model):
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    classifier = UUClassifier(**quick)
    with pytest.raises(KeyboardInterrupt):
        classifier.fit(gaussians["X"], gaussians["sets"], callback=interrupt)
    assert classifier.history_.stop_reason == "stopped by KeyboardInterrupt after 3 epochs"
    assert classifier.predict(gaussians["X"]).shape == (800,)


def test_failing_callback_sets_fitted_attributes_and_gets_model_in_eval_mode(gaussians, quick):
    modes = []

    def fail(record, model):
        modes.append(model.training)
        if record["epoch"] == 3:
            raise OSError("no network")

    classifier = UUClassifier(**quick, training=TrainingOptions(ema=None))
    with pytest.raises(OSError, match="no network"):
        classifier.fit(gaussians["X"], gaussians["sets"], callback=fail)
    assert modes == [False] * 3
    assert classifier.history_.stop_reason == "stopped by OSError after 3 epochs"
    assert classifier.predict(gaussians["X"]).shape == (800,)


def test_lazy_layers_are_initialized(gaussians, quick):
    model = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(1))
    classifier = UUClassifier(**quick | {"model": lambda: model, "model_params": None, "epochs": 60})
    classifier.fit(gaussians["X"], gaussians["sets"])
    assert accuracy_score(gaussians["y_test"], classifier.predict(gaussians["X_test"])) > 0.9


def test_summary_states_assumptions(gaussians, quick):
    text = UUClassifier(**quick).fit_sets(gaussians["X0"], gaussians["X1"]).summary()
    assert "assumed: set 0 has the higher class prior" in text
    assert "400 rows, 80.0% positive" in text
    assert "no label was used" in text
    assert "all 15 epochs done" in text
    labeled = UUClassifier(**quick | {"set_priors": (0.2, 0.8)}).fit_sets(
        gaussians["X1"], gaussians["X0"], test_data=(gaussians["X_test"], gaussians["y_test"])
    )
    assert "assumed: set 1 has the higher class prior" in labeled.summary()
    assert "labels were passed for evaluation; training did not use them" in labeled.summary()


def test_labels_do_not_change_the_model(gaussians, quick):
    one = UUClassifier(**quick).fit(gaussians["X"], gaussians["sets"])
    other = UUClassifier(**quick).fit(
        gaussians["X"], gaussians["sets"], test_data=(gaussians["X_test"], gaussians["y_test"])
    )
    np.testing.assert_array_equal(one.decision_function(gaussians["X"]), other.decision_function(gaussians["X"]))
    assert not one.history_.labels_used
    assert other.history_.labels_used
    last = accuracy_score(gaussians["y_test"], other.predict(gaussians["X_test"]))
    assert other.history_[-1]["test_accuracy"] == pytest.approx(last)


@pytest.mark.parametrize("name", RULES)
def test_rejects_bad_value_of_every_parameter(name, gaussians, quick):
    bad = RULES[name].bad
    classifier = UUClassifier(**quick | {name: bad})  # the constructor never validates
    with pytest.raises(ValueError, match=f"{name} must be .*, got {bad!r}"):
        classifier.fit(gaussians["X"], gaussians["sets"])
    assert not hasattr(classifier, "model_")


@pytest.mark.parametrize("name", TRAINING_RULES)
def test_rejects_bad_value_of_every_training_option(name, gaussians, quick):
    bad = TRAINING_RULES[name].bad
    classifier = UUClassifier(**quick).set_params(**{f"training__{name}": bad})
    with pytest.raises(ValueError, match=rf"TrainingOptions\.{name} must be .*, got {bad!r}"):
        classifier.fit(gaussians["X"], gaussians["sets"])
    assert not hasattr(classifier, "model_")


@pytest.mark.parametrize("name", CONSISTENCY_RULES)
def test_rejects_bad_value_of_every_consistency_option(name, gaussians, quick):
    bad = CONSISTENCY_RULES[name].bad
    classifier = UUClassifier(**quick, consistency={name: bad})
    with pytest.raises(ValueError, match=rf"ConsistencyOptions\.{name} must be .*, got {bad!r}"):
        classifier.fit(gaussians["X"], gaussians["sets"])
    assert not hasattr(classifier, "model_")


def test_every_parameter_has_a_rule():
    checked_by_the_risk = {"set_priors", "target_prior", "method", "slope", "loss"}  # tested below
    assert set(RULES) | checked_by_the_risk == set(UUClassifier((0.8, 0.2)).get_params(deep=False))
    assert set(TRAINING_RULES) == {field.name for field in dataclasses.fields(TrainingOptions)}
    assert set(CONSISTENCY_RULES) == {field.name for field in dataclasses.fields(ConsistencyOptions)}


def test_constructor_has_about_twenty_parameters():
    assert len(UUClassifier((0.8, 0.2)).get_params(deep=False)) <= 23


def test_training_options_are_nested_parameters(gaussians, quick):
    classifier = UUClassifier(**quick)
    assert classifier.get_params()["training__ema"] == TrainingOptions().ema
    options = TrainingOptions(clip_norm=1.0)
    classifier.set_params(training=options, training__ema=None)
    assert classifier.training == TrainingOptions(clip_norm=1.0, ema=None)
    assert options.ema is not None  # options are immutable: set_params replaces them
    assert clone(classifier).get_params()["training__ema"] is None
    with pytest.raises(ValueError, match="Invalid parameter 'momentum' for training"):
        classifier.set_params(training__momentum=0.9)
    search = GridSearchCV(make_pipeline(StandardScaler(), UUClassifier(**quick | {"epochs": 2})),
                          {"uuclassifier__training__ema": [None, 0.5]}, cv=2)  # fmt: skip
    found = search.fit(gaussians["X"], gaussians["sets"]).best_params_
    assert search.best_estimator_[-1].training.ema == found["uuclassifier__training__ema"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"set_priors": (0.5, 0.5)}, "must differ"),
        ({"set_priors": (1.5, 0.5)}, r"must lie in \[0, 1\], got 1.5"),
        ({"target_prior": 1.0}, "strictly between 0 and 1"),
        ({"method": "best"}, "method must be one of"),
        ({"method": (torch.abs, torch.square)}, "not the identity"),
        ({"slope": 0.5}, "≤ 0, got 0.5"),
        ({"loss": "zero_one"}, "cannot be used for training"),
        ({"loss": "MLP"}, "loss must be one of"),
        ({"model": "resnet"}, "'resnet'"),
        ({"model_params": {"depth": 3}}, "correct model_params"),
    ],
)
def test_rejects_bad_risk_parameters(changes, text, gaussians, quick):
    with pytest.raises(ValueError, match=text):
        UUClassifier(**quick | changes).fit(gaussians["X"], gaussians["sets"])


def test_small_fits_raise_no_warning(gaussians, quick):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        UUClassifier(**quick).fit(gaussians["X"][:100], gaussians["sets"][:100])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_rejects_missing_device(gaussians, quick):
    with pytest.raises(ValueError, match=r"device='cuda' requires a CUDA device.*use device='auto'"):
        UUClassifier(**quick | {"device": "cuda"}).fit(gaussians["X"], gaussians["sets"])
