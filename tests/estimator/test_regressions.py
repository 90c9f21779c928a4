"""Regression tests, each for a past bug."""

import textwrap
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from helpers.plain import make_classifier, plain_classifier
from helpers.processes import python
from uulearn import UUClassifier
from uulearn.data import DenseRows, TwoSets
from uulearn.estimator.fitting import average_histories
from uulearn.exceptions import CheckpointError, OneSidedPredictionsWarning
from uulearn.risk import pn_risk
from uulearn.training import History


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], 300)
    labels = rng.random(600) < np.where(sets == 0, 0.8, 0.2)
    return rng.normal(size=(600, 3)) + labels[:, None], sets


# ----------------------------------------------------------------------------------- which run a checkpoint belongs to

RUN = """
    import sys
    import numpy as np
    from torch.optim.lr_scheduler import LambdaLR
    from uulearn import UUClassifier
    from uulearn.training import TrainingOptions

    class Factory:
        def __init__(self, decay):
            self.decay = decay

        def __call__(self, optimizer):
            return LambdaLR(optimizer, lambda epoch: self.decay**epoch)

    schedulers = {
        "nested": lambda optimizer: LambdaLR(optimizer, lambda epoch: 0.95**epoch),
        "object": Factory(0.95),
        "other object": Factory(0.5),
    }
    X, sets = np.random.default_rng(0).normal(size=(60, 2)) , np.repeat([0, 1], 30)
    clf = UUClassifier(
        (0.8, 0.2), model="linear", n_estimators=1, epochs=int(sys.argv[2]), random_state=0, early_stopping=False,
        patience=None, validation_fraction=0.0, calibrated=False,
        training=TrainingOptions(scheduler=schedulers[sys.argv[3]], checkpoint_dir=sys.argv[1]),
    )
    print(clf.fit(X + sets[:, None], sets).history_.resumed_at)
"""


def run(*arguments):
    """Run code in a separate process; return standard output and standard error."""
    return python("-c", textwrap.dedent(RUN), *arguments)[1:]


@pytest.mark.parametrize("scheduler", ["nested", "object"])
def test_run_with_nested_functions_resumes_in_another_process(tmp_path, scheduler):
    assert run(tmp_path, 2, scheduler)[0] == "[]\n"
    assert run(tmp_path, 4, scheduler)[0] == "[2]\n"


def test_object_with_other_attributes_is_another_run(tmp_path):
    run(tmp_path, 2, "object")
    assert "belongs to another run (different: scheduler)" in run(tmp_path, 4, "other object")[1]


def scaled(factor):
    return lambda margin: torch.nn.functional.softplus(-factor * margin)


def with_default(factor):
    def loss(margin, factor=factor):
        return torch.nn.functional.softplus(-factor * margin)

    return loss


@pytest.mark.parametrize("make", [scaled, with_default])
def test_closure_variables_identify_a_run(data, tmp_path, make):
    def fit(factor, epochs):
        clf = plain_classifier(
            (0.8, 0.2), model="linear", loss=make(factor), epochs=epochs, random_state=0, checkpoint_dir=tmp_path
        )
        return clf.fit(*data)

    fit(1.0, 2)
    assert fit(1.0, 3).history_.resumed_at == [2]
    with pytest.raises(CheckpointError, match="different: risk"):
        fit(50.0, 4)


# ------------------------------------------------------------------------------------------------------ the estimator


def test_summary_omits_estimate_for_other_priors(data):
    clf = UUClassifier((0.8, 0.2), model="linear", epochs=20, n_estimators=2, random_state=0).fit(*data)
    shown = f"{clf.out_of_fold_evaluation_.accuracy.value:.3f}"
    assert shown in clf.summary()
    for other in (clf.with_target_prior(0.05), clf.with_priors((0.7, 0.3), 0.5, *data)):
        assert other.out_of_fold_evaluation_ is None
        assert shown not in other.summary()
    assert clf.out_of_fold_evaluation_ is not None  # it does not change
    assert clf.calibrate(*data).out_of_fold_evaluation_ is None


def test_submodel_can_be_saved(data, tmp_path):
    clf = UUClassifier((0.8, 0.2), model_params={"hidden": (4,)}, epochs=3, n_estimators=3, random_state=0).fit(*data)
    alone = clf.submodel(1)
    alone.save(tmp_path / "one")
    loaded = UUClassifier.load(tmp_path / "one")
    np.testing.assert_array_equal(loaded.decision_function(data[0]), alone.decision_function(data[0]))


@pytest.mark.parametrize("calibrated", [True, False])
def test_no_one_sided_warning_for_rare_targets(calibrated):
    """If 2% are positive and the classes overlap, predicting only negatives is correct."""
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], 1000)
    X = rng.normal(size=(2000, 2)) + (rng.random(2000) < np.where(sets == 0, 0.8, 0.2))[:, None]
    clf = UUClassifier(
        (0.8, 0.2), 0.02, model="linear", n_estimators=3, epochs=30, lr=0.05, random_state=0, calibrated=calibrated
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", OneSidedPredictionsWarning)
        clf.fit(X, sets)
    assert clf.predict(X).mean() < 0.02


def test_lazy_layers_are_initialized_from_rows(data):
    for model in (nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(1)), lambda: nn.LazyLinear(1)):
        clf = plain_classifier((0.8, 0.2), model=model, epochs=2, random_state=0).fit(*data)
        assert clf.decision_function(data[0]).shape == (600,)
    with pytest.raises(ValueError, match="the model does not accept rows of shape"):
        plain_classifier((0.8, 0.2), model=nn.Sequential(nn.LazyLinear(4), nn.Linear(5, 1)), epochs=2).fit(*data)


def test_smoothing_accepts_numpy_integer(data):
    clf = make_classifier((0.8, 0.2), model="linear", epochs=3, n_estimators=2, smoothing=np.int64(2), random_state=0)
    assert len(clf.fit(*data).history_)


def test_fit_does_not_change_global_random_state(data, monkeypatch):
    def refuse(seed):
        raise AssertionError("every CUDA device would be seeded")

    monkeypatch.setattr(torch.cuda, "manual_seed_all", refuse)
    torch.default_generator.manual_seed(3)
    before = torch.get_rng_state()
    UUClassifier((0.8, 0.2), epochs=2, model_params={"hidden": (4,)}, n_estimators=2, random_state=0).fit(*data)
    assert torch.equal(torch.get_rng_state(), before)


# ----------------------------------------------------------------------------------------------------- smaller things


def test_mean_of_histories_with_different_records():
    early = History([{"epoch": 1, "objective": 0.5}])
    late = History([{"epoch": 1, "objective": 0.3, "test_accuracy": 0.9}, {"epoch": 2, "objective": 0.1}])
    assert average_histories([early, late]).epochs == [
        {"epoch": 1, "objective": 0.4, "test_accuracy": 0.9},
        {"epoch": 2, "objective": 0.1},
    ]


def test_sample_is_even_in_tables_larger_than_float32_precision():
    class Endless(DenseRows):
        """A table without values; only the number of rows matters."""

        def __init__(self, n_rows):
            super().__init__(torch.zeros(1, 1))
            self.n_rows = n_rows

        def take(self, index, out):
            assert int(index.max()) < self.n_rows
            out.copy_(index[:, None])

    size = 2**24 + 4
    data = TwoSets((Endless(size), Endless(size)))
    assert data.sample(0, 5)[-1].item() == pytest.approx(size - 1)


def test_overflowing_loss_does_not_affect_rows_of_the_other_class():
    parts = pn_risk(torch.tensor([-200.0, 3.0]), torch.tensor([0, 1]), 0.5, loss=lambda margin: torch.exp(-margin))
    assert parts.total.isfinite()


def test_plan_of_another_classifier_is_refused(gaussians):
    plan = make_classifier((0.8, 0.2), model="linear", epochs=1).plan_sets(gaussians["X0"], gaussians["X1"])
    other = make_classifier((0.1, 0.9), model="linear", epochs=1)
    with pytest.raises(ValueError, match=r"the plan has set_priors=\(0.8, 0.2\), but this classifier has \(0.1, 0.9\)"):
        other.fit_plan(plan)


def test_classifier_with_a_random_generator_is_saved_with_its_seed(gaussians, tmp_path):
    clf = make_classifier((0.8, 0.2), model="linear", epochs=1, random_state=np.random.RandomState(3))
    clf.fit_sets(gaussians["X0"], gaussians["X1"]).save(tmp_path)
    assert UUClassifier.load(tmp_path).random_state == clf.seed_


def test_options_of_a_training_that_is_no_options_object_are_refused():
    with pytest.raises(TypeError, match=r"training must be TrainingOptions or None, got \{'ema': 0.9\}"):
        UUClassifier((0.8, 0.2), training={"ema": 0.9}).set_params(training__ema=0.5)


def test_submodel_has_no_evaluation_of_the_ensemble(gaussians):
    clf = make_classifier((0.8, 0.2), model="linear", epochs=1, n_estimators=2, random_state=0)
    alone = clf.fit_sets(gaussians["X0"], gaussians["X1"]).submodel(0)
    assert clf.out_of_fold_scores_.shape == (800,)
    assert alone.out_of_fold_evaluation_ is alone.out_of_fold_scores_ is None
