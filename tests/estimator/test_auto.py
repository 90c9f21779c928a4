"""``model="auto"``: which models are used, honest estimates, budget, storage."""

import sys
import threading
import time
import warnings
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from uulearn import UUClassifier
from uulearn.data import DenseRows
from uulearn.estimator import auto, boosting
from uulearn.estimator.auto import compare_risks, cross_weigh, decision_weights, weigh
from uulearn.estimator.boosting import BoostingLearner
from uulearn.estimator.learners import ModelState, NetworkLearner
from uulearn.exceptions import ClosePriorsWarning, ModelFormatError, NonFiniteRiskError
from uulearn.risk import uu_risk
from uulearn.selection import UUClassifierCV, prior_sensitivity
from uulearn.training import TrainingOptions

PRIORS = (0.85, 0.15)
QUICK = {"models": ("linear", "mlp")}


def draw(n, kind, seed=0, priors=PRIORS, noise=0.4):
    """Draw two sets of n rows and a labeled test set; ``kind`` is "line" or "xor"."""
    rng = np.random.default_rng(seed)

    def rows(y):
        side = np.where(y, 1.0, -1.0)
        other = rng.choice([-1.0, 1.0], len(y))
        columns = [side, other] if kind == "line" else [other, side * other]
        return (np.column_stack([*columns, np.zeros(len(y))]) + rng.normal(0, noise, (len(y), 3))).astype(np.float32)

    sets = [rows(rng.random(n) < prior) for prior in priors]
    y = rng.random(500) < 0.5
    return sets[0], sets[1], rows(y), y.astype(int)


def fit(kind, n=250, noise=0.4, **parameters):
    X0, X1, X, y = draw(n, kind, noise=noise)
    settings = {"model": "auto", "epochs": 40, "progress": False, "random_state": 0, **parameters}
    clf = UUClassifier(PRIORS, **settings).fit_sets(X0, X1)
    return clf, X, y


class TestChoice:
    def test_uses_a_model_that_can_represent_the_classes(self):
        clf, X, y = fit("xor", model_params=QUICK)
        weights = {entry.model: entry.weight for entry in clf.comparison_}
        assert weights["mlp"] > 0.8
        assert (clf.predict(X) == y).mean() > 0.9

    def test_boosting_takes_part(self):
        pytest.importorskip("lightgbm")
        clf, X, y = fit("xor", epochs=150, model_params={"models": ["boosting", "linear"]})
        assert [entry.model for entry in clf.comparison_] == ["linear", "boosting"]
        assert (clf.predict(X) == y).mean() > 0.85

    def test_summary_names_the_models(self):
        clf, _, _ = fit("line", epochs=5, model_params=QUICK)
        assert "compared without labels: " in clf.summary()
        assert "linear" in clf.summary()

    def test_models_have_their_own_defaults(self):
        clf, _, _ = fit("line", epochs=5, model_params=QUICK)
        assert not {"lr", "loss", "l2"} & clf.resolved_params_.keys()
        learners = [clf.learner_.learner(name, (250, 250)) for name in ("linear", "mlp")]
        assert [learner.loss for learner in learners] == ["logistic", "sigmoid"]
        assert learners[0].options.lr != learners[1].options.lr

    def test_comparison_has_the_resolved_parameters(self, tmp_path):
        clf, _, _ = fit("line", epochs=4, model_params=QUICK)
        linear, mlp = clf.comparison_
        assert (linear.parameters["loss"], mlp.parameters["loss"]) == ("logistic", "sigmoid")
        assert (linear.parameters["lr"], mlp.parameters["lr"]) == (0.01, 0.001)
        assert "epochs" not in linear.parameters  # given, so it is the same for all models
        assert len(mlp.best_epochs) == 5
        clf.save(tmp_path / "model")
        assert UUClassifier.load(tmp_path / "model").comparison_ == clf.comparison_

    def test_a_skipped_model_has_no_parameters(self):
        clf, _, _ = fit("line", epochs=5, model_params={"models": ["linear", "mlp"], "seconds": 1e-9})
        assert (clf.comparison_[1].parameters, clf.comparison_[1].best_epochs) == ({}, ())
        assert clf.comparison_[0].parameters


class TestComparison:
    @given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95), st.booleans())
    def test_risk_is_the_unbiased_zero_one_risk(self, seed, target_prior, swapped):
        rng = np.random.default_rng(seed)
        priors = (0.3, 0.9) if swapped else (0.7, 0.2)
        sets = np.concatenate([[0, 1], rng.integers(0, 2, 40)])
        scores = rng.normal(size=42)
        expected = uu_risk(
            torch.from_numpy(scores), torch.from_numpy(sets), priors, target_prior, loss="zero_one", method="unbiased"
        ).unbiased.item()
        assert compare_risks({"a": scores}, sets, priors, target_prior)[0].risk == pytest.approx(expected)
        weights = decision_weights(sets, priors, target_prior)
        assert target_prior + weights[scores > 0].sum() == pytest.approx(expected)

    def test_equal_models_have_no_difference(self):
        sets = np.repeat([0, 1], 50)
        scores = np.random.default_rng(0).normal(size=100)
        found = compare_risks({"a": scores, "b": scores}, sets, (0.7, 0.3), 0.5)
        assert [(entry.difference, entry.standard_error) for entry in found] == [(0, 0)] * 2


class TestWeights:
    @given(st.integers(0, 2**32 - 1), st.floats(0.05, 0.95), st.booleans())
    def test_weights_are_the_posterior_mean(self, seed, target_prior, swapped):
        rng = np.random.default_rng(seed)
        priors = np.array((0.3, 0.9) if swapped else (0.7, 0.2))
        sets = np.concatenate([[0, 1], rng.integers(0, 2, 10)])
        decisions = {name: rng.normal(0, 0.5, size=12) for name in ("linear", "mlp")}
        sizes, posterior = np.bincount(sets), []
        pooled = sizes @ priors / 12
        for weight in np.linspace(0, 1, 11):
            odds = np.exp((1 - weight) * decisions["linear"] + weight * decisions["mlp"])
            positive = 1 / (1 + (1 - pooled) / pooled * target_prior / (1 - target_prior) / odds)  # at the pooled prior
            both = sizes[:, None] * (
                priors[:, None] / pooled * positive + (1 - priors[:, None]) / (1 - pooled) * (1 - positive)
            )
            posterior.append(np.prod((both / both.sum(axis=0))[sets, np.arange(12)]) ** auto.LIKELIHOOD_POWER)
        expected = np.average(np.linspace(0, 1, 11), weights=posterior)
        found = weigh(decisions, sets, tuple(priors), target_prior)
        assert list(found.values()) == pytest.approx([1 - expected, expected])

    def test_weights_do_not_depend_on_the_order_of_sets(self):
        rng = np.random.default_rng(0)
        sets, decisions = rng.integers(0, 2, 100), {name: rng.normal(size=100) for name in "ab"}
        swapped = weigh(decisions, 1 - sets, (0.2, 0.7), 0.4)
        assert swapped == pytest.approx(weigh(decisions, sets, (0.7, 0.2), 0.4))

    def test_a_row_does_not_weigh_its_own_models(self):
        rng = np.random.default_rng(1)
        sets, folds = np.repeat([0, 1], 200), np.tile(np.arange(5), 80)
        decisions = {name: rng.normal(size=400) for name in "abc"}
        before = cross_weigh(decisions, sets, folds, (0.7, 0.3), 0.5)
        # Model a becomes perfect in fold 0; the weights for fold 0 must stay the same.
        changed = {**decisions, "a": np.where(folds == 0, np.where(sets == 0, 5.0, -5.0), decisions["a"])}
        after = cross_weigh(changed, sets, folds, (0.7, 0.3), 0.5)
        outside = {name: own[folds != 0] for name, own in decisions.items()}
        weights = weigh(outside, sets[folds != 0], (0.7, 0.3), 0.5)
        for found, own in ((before, decisions), (after, changed)):
            expected = sum(weights[name] * own[name][folds == 0] for name in "abc")
            np.testing.assert_allclose(found[folds == 0], expected, rtol=1e-5, atol=1e-6)

    def test_weights_of_useless_models_are_not_optimistic(self):
        priors, risks, naive = (0.7, 0.3), [], []
        sets, folds = np.repeat([0, 1], 100), np.tile(np.arange(5), 40)
        for seed in range(150):
            rng = np.random.default_rng(seed)
            decisions = {name: rng.normal(size=200) for name in "abc"}
            crossed = cross_weigh(decisions, sets, folds, priors, 0.5)
            risks.append(compare_risks({"crossed": crossed}, sets, priors, 0.5)[0].risk)
            naive.append(min(entry.risk for entry in compare_risks(decisions, sets, priors, 0.5)))
        assert np.mean(naive) < 0.45
        assert abs(np.mean(risks) - 0.5) < 4 * np.std(risks) / np.sqrt(len(risks))

    def test_the_score_is_the_weighted_mean_of_the_log_odds(self):
        clf, X, _ = fit("line", n=60, noise=0.8, epochs=20, calibrated=False, model_params=QUICK)
        weights = {entry.model: entry.weight for entry in clf.comparison_}
        assert 0 < weights["linear"] < 1
        assert sum(weights.values()) == pytest.approx(1)
        rows, expected = DenseRows(torch.from_numpy(X)), 0.0
        for name, weight in weights.items():
            alone, _, _ = fit("line", n=60, noise=0.8, epochs=20, calibrated=False, model_params={"models": [name]})
            expected = expected + weight * alone.trained_.score(rows).numpy()
        np.testing.assert_allclose(clf.decision_function(X), expected, rtol=1e-3, atol=1e-3)


class TestBudget:
    def test_skips_models_that_do_not_fit(self):
        clf, _, _ = fit("line", epochs=5, model_params={**QUICK, "seconds": 1e-6})
        linear, mlp = clf.comparison_
        assert linear.used
        assert mlp.skipped.startswith("its training needs about ")
        assert mlp.skipped.endswith(" s, more than the 0.0 s that are left of the budget of 0.0 s")
        assert mlp.seconds is None

    def test_missing_lightgbm_is_reported(self, monkeypatch):
        def fail():
            raise ImportError("no module")

        monkeypatch.setattr(auto, "import_lightgbm", fail)
        clf, _, _ = fit("line", epochs=5, model_params={"models": ["linear", "boosting"]})
        assert clf.comparison_[1].skipped.startswith("LightGBM is not installed (pip install")

    def test_lightgbm_that_cannot_be_loaded_is_reported(self, monkeypatch):
        class Broken:
            def find_spec(self, name, *_):
                if name == "lightgbm":
                    raise OSError("Library not loaded: @rpath/libomp.dylib")

        for name in [name for name in sys.modules if name.partition(".")[0] == "lightgbm"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
        clf, _, _ = fit("line", epochs=5, model_params={"models": ["linear", "boosting"]})
        assert "libomp.dylib); on macOS, run brew install libomp" in clf.comparison_[1].skipped

    @pytest.mark.parametrize(
        ("params", "message"),
        [
            ({"models": "mlp"}, "models must be some of 'linear', 'boosting', 'mlp', got 'mlp'"),
            ({"models": []}, "models must be some of"),
            ({"models": ["mlp", "mlp"]}, "models must be some of"),
            ({"models": [["mlp"]]}, "models must be some of"),
            ({"seconds": True}, "seconds must be a number above 0, got True"),
            ({"seconds": 0}, "seconds must be a number above 0, got 0"),
            ({"hidden": (3,)}, "'hidden' is not an option of model='auto', the default for tables; use models"),
        ],
    )
    def test_refuses_bad_options(self, params, message):
        with pytest.raises(ValueError, match=message):
            fit("line", model_params=params)


class TestOtherSettings:
    def test_stored_model_gives_the_same_scores(self, tmp_path):
        clf, X, _ = fit("xor", epochs=20, model_params=QUICK)
        clf.save(tmp_path / "model")
        loaded = UUClassifier.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.decision_function(X), clf.decision_function(X))
        assert loaded.comparison_ == clf.comparison_
        assert loaded.summary() == clf.summary()

    def test_score_is_the_mean_over_the_folds(self):
        clf, X, _ = fit("line", epochs=10, calibrated=False, model_params=QUICK)
        single = [clf.submodel(number).decision_function(X) for number in range(5)]
        np.testing.assert_allclose(np.mean(single, axis=0), clf.decision_function(X), rtol=1e-4, atol=1e-4)

    def test_uncalibrated_scores_are_log_odds(self):
        rng = np.random.default_rng(0)
        X0, X1 = (rng.normal(np.where(rng.random(3000) < prior, 1.0, -1.0)[:, None]) for prior in PRIORS)
        settings = {"calibrated": False, "model_params": {"models": ["linear"]}, "progress": False, "random_state": 0}
        clf = UUClassifier(PRIORS, model="auto", **settings).fit_sets(X0, X1)
        x = np.linspace(-2, 2, 9)[:, None]
        slope = np.polyfit(2 * x[:, 0], clf.decision_function(x), 1)[0]  # the true log-odds are 2x
        assert 0.8 < slope < 1.25
        expected = 1 / (1 + np.exp(-clf.decision_function(x)))
        np.testing.assert_allclose(clf.predict_proba(x)[:, 1], expected, rtol=1e-5)

    @pytest.mark.parametrize(
        "change",
        [
            {"offsets": [0.0]},
            {"offsets": [0.0] * 100},
            {"offsets": [float("nan")] * 5},
            {"sizes": [0, 250]},
            {"comparison": []},
            {"comparison": [{"model": "linear", "used": True, "weight": 0.5}]},
            {"comparison": [{"model": "linear", "used": True, "weight": float("nan")}]},
            {"comparison": [{"model": "linear", "used": True, "weight": 1.0}, {"model": "mlp", "weight": 0.5}]},
            {"loss": "nope"},
            {"parts": {}},
        ],
    )
    def test_rejects_a_tampered_state(self, change):
        clf, _, _ = fit("line", epochs=2, model_params={"models": ["linear"]})
        state = clf.trained_.state()
        with pytest.raises((ModelFormatError, ValueError)):
            clf.learner_.restore(ModelState(state.tensors, state.config | change), (3,))

    def test_rejects_tensors_without_a_part(self):
        clf, _, _ = fit("line", epochs=2, model_params={"models": ["linear"]})
        state = clf.trained_.state()
        with pytest.raises(ModelFormatError, match="do not fit together"):
            clf.learner_.restore(ModelState({**state.tensors, "mlp.x": torch.zeros(1)}, state.config), (3,))

    def test_sensitivity_trains_a_single_mlp(self):
        X0, X1, _, _ = draw(150, "line")
        clf = UUClassifier(PRIORS, model="auto", model_params=QUICK, random_state=0, progress=False)
        rows, sets = np.concatenate([X0, X1]), np.repeat([0, 1], 150)
        found = prior_sensitivity(clf, rows, sets, errors=(0.05,))
        same = prior_sensitivity(clf.set_params(model="mlp", model_params="auto"), rows, sets, errors=(0.05,))
        assert [row.shown for row in found.rows] == [row.shown for row in same.rows]

    def test_single_model_is_an_mlp(self, tmp_path):
        clf, X, _ = fit("line", epochs=3, validation_fraction=0.2, model_params=QUICK)
        assert [(entry.model, entry.used) for entry in clf.comparison_] == [("linear", False), ("mlp", True)]
        assert "needs an ensemble over folds" in clf.comparison_[0].skipped
        assert "compared without labels" not in clf.summary()
        clf.save(tmp_path / "model")
        loaded = UUClassifier.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.predict_proba(X), clf.predict_proba(X))

    def test_needs_the_class_priors(self):
        X0, X1, _, _ = draw(50, "line")
        with pytest.raises(ValueError, match="model='auto' compares models by their estimated risk, which needs"):
            UUClassifier(None, method="biased", model="auto").fit_sets(X0, X1)

    def test_self_training(self):
        clf, X, y = fit("line", epochs=100, self_training_rounds=1, model_params={"models": ["linear"]})
        assert (clf.predict(X) == y).mean() > 0.9

    def test_search_is_refused(self):
        X0, X1, _, _ = draw(50, "line")
        search = UUClassifierCV(UUClassifier(PRIORS, model="auto", random_state=0), {"l2": [0.0, 0.01]})
        with pytest.raises(ValueError, match="model='auto' compares models itself, so its settings cannot be searched"):
            search.fit_sets(X0, X1)


@pytest.fixture
def two_threads():
    """As on a machine with two cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        yield
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.fixture
def threads_of_boosting(monkeypatch):
    """Whether each training of boosting is in the main thread, and the number of threads that torch uses there."""
    pytest.importorskip("lightgbm")
    seen, train = [], BoostingLearner.train_folds

    def train_folds(self, *arguments):
        main = threading.current_thread() is threading.main_thread()
        seen.append((main, torch.get_num_threads()))
        return train(self, *arguments)

    monkeypatch.setattr(BoostingLearner, "train_folds", train_folds)
    return seen


class TestSideBySide:
    """Boosting is trained in a second thread if the table is small and there are several cores."""

    models: ClassVar = {"model_params": {"models": ["linear", "boosting", "mlp"]}}

    def test_gives_the_same_model_as_in_turn(self, threads_of_boosting, two_threads, tmp_path):
        found = []
        for number in (1, 2):
            torch.set_num_threads(number)
            clf, X, _ = fit("xor", training=TrainingOptions(checkpoint_dir=tmp_path / str(number)), **self.models)
            found.append((clf, clf.decision_function(X)))
        assert threads_of_boosting == [(True, 1), (False, 1)]
        (alone, expected), (together, scores) = found
        np.testing.assert_array_equal(scores, expected)
        np.testing.assert_array_equal(together.out_of_fold_scores_, alone.out_of_fold_scores_)
        names = ["model", "used", "weight", "risk", "best_epochs", "parameters"]
        compared = [[getattr(entry, name) for entry in clf.comparison_ for name in names] for clf, _ in found]
        assert compared[0] == compared[1]
        assert min(entry.seconds for entry in together.comparison_) > 0
        files = [
            sorted(path.relative_to(tmp_path / number) for path in (tmp_path / number).rglob("*")) for number in "12"
        ]
        assert files[0] == files[1]

    def test_warns_as_in_turn(self, threads_of_boosting, two_threads):
        """The threads do not change the filters for warnings."""
        X0, X1, _, _ = draw(250, "line")
        clf = UUClassifier((0.55, 0.5), model="auto", epochs=5, progress=False, random_state=0)
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always")
            before = list(warnings.filters)
            clf.fit_sets(X0, X1)
            assert warnings.filters == before
        assert [warning.category for warning in raised].count(ClosePriorsWarning) == 1
        assert threads_of_boosting == [(False, 1)]

    @pytest.mark.parametrize(
        "changes",
        [
            {"loss": lambda z: torch.nn.functional.softplus(-z)},
            {"method": (torch.abs, torch.abs)},
        ],
    )
    def test_own_functions_are_called_in_one_thread(self, changes, threads_of_boosting, two_threads):
        fit("line", n=60, **changes)
        assert [main for main, _ in threads_of_boosting] == [True]

    def test_consistency_training_is_compared_in_turn(self, threads_of_boosting, two_threads):
        fit("line", n=60, consistency="auto")
        assert [main for main, _ in threads_of_boosting] == [True]

    def test_callback_is_called_in_one_thread(self, threads_of_boosting, two_threads):
        X0, X1, _, _ = draw(60, "line")
        clf = UUClassifier(PRIORS, model="auto", epochs=3, progress=False, random_state=0)
        clf.fit_sets(X0, X1, callback=lambda record, model: None)
        assert [main for main, _ in threads_of_boosting] == [True]

    def test_short_budget_is_kept(self, threads_of_boosting, two_threads):
        clf, _, _ = fit("line", model_params={"models": ["boosting", "mlp"], "seconds": 1e-6})
        assert [entry.model for entry in clf.comparison_ if entry.seconds is not None] == ["boosting"]
        assert [main for main, _ in threads_of_boosting] == [True]

    @pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError("out of memory")])
    def test_error_in_a_network_stops_boosting(self, error, two_threads, monkeypatch):
        pytest.importorskip("lightgbm")
        started, trees = threading.Event(), list[int]()
        advance = boosting._Run.advance

        def slow(self):
            started.set()
            trees.append(1)
            time.sleep(0.01)
            return advance(self)

        def fail(*_):
            assert started.wait(60)
            raise error

        monkeypatch.setattr(boosting._Run, "advance", slow)
        monkeypatch.setattr(NetworkLearner, "train_folds", fail)
        with pytest.raises(error if isinstance(error, type) else RuntimeError):
            fit("line", epochs=1000, patience=None, model_params={"models": ["boosting", "mlp"], "seconds": 1e6})
        assert 0 < len(trees) < 200

    def test_error_in_boosting_is_raised(self, two_threads, monkeypatch):
        pytest.importorskip("lightgbm")

        def fail(*_):
            raise MemoryError("of boosting")

        monkeypatch.setattr(BoostingLearner, "train_folds", fail)
        with pytest.raises(MemoryError, match="of boosting"):
            fit("line", epochs=3)

    def test_model_that_diverges_is_skipped(self, threads_of_boosting, two_threads, monkeypatch):
        def diverge(*_):
            raise NonFiniteRiskError("the risk was not finite.")

        monkeypatch.setattr(NetworkLearner, "train_folds", diverge)
        clf, _, _ = fit("line", epochs=20)
        assert [(entry.model, entry.used, entry.skipped) for entry in clf.comparison_] == [
            ("boosting", True, None),
            ("mlp", False, "the risk was not finite"),
        ]
