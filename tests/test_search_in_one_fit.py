"""UUClassifierCV: settings compared without labels, as stacks where it can be."""

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from plain import plain_classifier
from uulearn import UUClassifier
from uulearn.estimator import fitting
from uulearn.estimator.settling import SETTLED
from uulearn.exceptions import NonFiniteRiskError
from uulearn.metrics import uu_accuracy
from uulearn.selection import UUClassifierCV
from uulearn.selection import search as module
from uulearn.selection.search import SLOPES, default_grid
from uulearn.training.checkpoint import SEED_NAME


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)

    def draw(n, prior):
        y = rng.random(n) < prior
        return rng.normal(size=(n, 4)) + 0.6 * (2 * y[:, None] - 1), y

    (X0, _), (X1, _), (X, y) = draw(300, 0.8), draw(240, 0.3), draw(2000, 0.4)
    return X0, X1, X, y


def base(**changes):
    settings = {"model_params": {"hidden": (12,)}, "epochs": 8, "batch_size": 90, "ema": 0.8, "members": 3}
    settings |= {"keep": "best", "random_state": 0, "progress": False, "precision": "float32"}
    return plain_classifier((0.8, 0.3), 0.4, **settings | changes)


GRID = {"slope": [0.0, -1.0], "lr": [1e-7, 0.02]}


def test_the_best_setting_wins_and_is_ready_to_use(data):
    X0, X1, X, y = data
    search = UUClassifierCV(base(), GRID).fit_sets(X0, X1)
    assert search.best_params_["lr"] == 0.02
    assert [one.params for one in search.candidates_] == [
        {"slope": slope, "lr": lr} for slope in (0.0, -1.0) for lr in (1e-7, 0.02)
    ]
    assert sorted(one.rank for one in search.candidates_) == [1, 2, 3, 4]
    best = next(one for one in search.candidates_ if one.rank == 1)
    assert best.judgement.accuracy.value == max(one.judgement.accuracy.value for one in search.candidates_)
    assert best.gap.value == 0
    for one in search.candidates_:
        difference = best.judgement.accuracy.value - one.judgement.accuracy.value
        assert one.gap.value == pytest.approx(difference)
    assert (search.predict(X) == y).mean() > 0.75
    np.testing.assert_array_equal(search.decision_function(X), search.best_estimator_.decision_function(X))
    np.testing.assert_array_equal(search.predict_proba(X), search.best_estimator_.predict_proba(X))
    assert search.n_features_in_ == 4
    assert search.classes_.tolist() == [0, 1]
    text = search.summary()
    assert text.index("(the best)") < text.index("points behind")
    assert "3 models, each trained without one fold" in text


def test_the_best_estimator_is_the_one_that_fitting_that_setting_gives(data):
    X0, X1, X, _ = data
    search = UUClassifierCV(base(calibrated=True), GRID).fit_sets(X0, X1)
    alone = clone(base(calibrated=True)).set_params(**search.best_params_).fit_sets(X0, X1)
    np.testing.assert_allclose(search.decision_function(X), alone.decision_function(X), rtol=5e-3, atol=5e-3)
    found = search.best_estimator_
    assert found.cross_fitted_.accuracy.value == pytest.approx(alone.cross_fitted_.accuracy.value, abs=1e-6)
    assert found.get_params()["members"] == 3


def test_one_table_or_two(data):
    X0, X1, X, _ = data
    apart = UUClassifierCV(base(), GRID).fit_sets(X0, X1)
    together = UUClassifierCV(base(), GRID).fit(np.concatenate([X0, X1]), np.repeat([0, 1], [300, 240]))
    assert together.best_params_ == apart.best_params_
    np.testing.assert_allclose(together.decision_function(X), apart.decision_function(X), rtol=1e-4, atol=1e-5)
    held = np.concatenate([X0, X1]), np.repeat([0, 1], [300, 240])
    expected = uu_accuracy(apart.decision_function(held[0]), held[1], (0.8, 0.3), 0.4).value
    assert apart.score(*held) == pytest.approx(expected, abs=1e-6)


def test_a_path_of_slopes_is_one_stack_a_fold_on_the_cpu(data, monkeypatch):
    X0, X1, *_ = data
    seen = []
    original = module.cross_fit_stacked

    def spy(model, params, sets, folds, variants, options, **others):
        seen.append((len(variants), {variant.lr for variant in variants}))
        return original(model, params, sets, folds, variants, options, **others)

    monkeypatch.setattr(module, "cross_fit_stacked", spy)
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


def test_models_of_ones_own_are_trained_one_by_one(data, tmp_path):
    X0, X1, X, y = data
    own = base(model=Own, model_params=None, epochs=15, checkpoint_dir=tmp_path)
    search = UUClassifierCV(own, {"lr": [1e-6, 0.05]}).fit_sets(X0, X1)
    assert search.best_params_ == {"lr": 0.05}
    assert (search.predict(X) == y).mean() > 0.75
    assert sorted(path.name for path in tmp_path.iterdir()) == [SEED_NAME, "setting-0", "setting-1"]


def test_a_setting_that_breaks_is_named(data):
    X0, X1, *_ = data
    own = base(model=Own, model_params=None, optimizer="sgd", method="unbiased")
    with pytest.raises(NonFiniteRiskError) as caught:
        UUClassifierCV(own, {"lr": [1e-3, 1e38]}).fit_sets(X0, X1)
    assert caught.value.__notes__ == ["This happened with lr=1e+38; take it out of param_grid."]


def test_refinement_starts_from_the_best_and_goes_on_with_its_setting(data, monkeypatch):
    X0, X1, *_ = data
    seen = []
    original = fitting.train_members

    def spy(*arguments, **others):
        sets, risk, options = arguments[3], arguments[5], arguments[6]
        seen.append((sum(sets.sizes), risk.method.name, options.lr))
        return original(*arguments, **others)

    monkeypatch.setattr(fitting, "train_members", spy)
    search = UUClassifierCV(base(rounds=1), GRID).fit_sets(X0, X1)
    best = search.best_estimator_
    assert [done.number for done in best.refinement_] == [0, 1]
    if not best.refinement_[1].better:
        assert best.cross_fitted_ == next(one.judgement for one in search.candidates_ if one.rank == 1)
    # Two rounds of each half; on all rows the first was trained by the search.
    sizes, methods, rates = zip(*seen, strict=True)
    assert sizes == (270, 270, 270, 270, *[540] * best.refinement_[1].better)
    assert set(rates) == {search.best_params_["lr"]} != {base().lr}
    assert len(set(methods)) == 1


def test_defaults():
    search = UUClassifierCV(base(members=1, epochs=1))
    assert len(search._settings(search._base())) == 18
    assert search._base().members == UUClassifierCV(base(members="auto"))._base().members == 5
    assert UUClassifierCV(base(members=3))._base().members == 3
    assert clone(search).get_params()["estimator"].epochs == 1
    assert isinstance(search.estimator, UUClassifier)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("method", ["leaky_relu", "abs", "relu", "unbiased", "biased", (torch.relu, torch.relu)])
@pytest.mark.parametrize(("rate", "rates"), [(1e-3, [1e-4, 3e-4, 1e-3]), (0.07, [0.007, 0.021, 0.07])])
def test_the_default_grid_is_about_the_base(method, rate, rates):
    """λ where the method has one, or is the end of the path; rates up to the base's."""
    paths = {"leaky_relu": {"slope": SLOPES}, "abs": {"method": ["leaky_relu"], "slope": SLOPES}}
    expected = paths.get(method, {}) if isinstance(method, str) else {}
    assert default_grid(base(method=method, lr=rate)) == expected | {"lr": rates}


def test_what_is_auto_is_settled_for_every_setting(data):
    X0, X1, X, _ = data
    bare = UUClassifier((0.8, 0.3), 0.4, model="linear", epochs=2, random_state=0, progress=False)
    search = UUClassifierCV(bare).fit_sets(X0, X1)
    assert [one.params["lr"] for one in search.candidates_] == [0.001, 0.003, 0.01] * 6
    best = search.best_estimator_
    assert "auto" not in [best.get_params()[name] for name in SETTLED]
    assert (best.method, best.members, best.keep, best.calibrated) == ("leaky_relu", 5, "best", True)
    assert best.scaling_ is not None
    losses = UUClassifierCV(bare, {"loss": ["sigmoid", "logistic"], "lr": ["auto", 0.02]}).fit_sets(X0, X1)
    again = UUClassifier(**bare.get_params() | losses.best_params_).fit_sets(X0, X1)
    assert losses.best_estimator_.get_params() == bare.get_params() | losses.best_params_ | again.settled_
    np.testing.assert_allclose(losses.decision_function(X), again.decision_function(X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"rate": [1]}, "param_grid cannot search 'rate'; it may hold .*batch_size"),
        ({"members": [2, 3]}, "param_grid cannot search 'members'"),
        ({"lr": 0.1}, r"param_grid\['lr'\] must be a list of values to try, got 0.1"),
        ({"loss": "sigmoid"}, r"param_grid\['loss'\] must be a list"),
        ({"lr": []}, r"param_grid\['lr'\] must be a list"),
        ({"slope": [0.0, -0.1], "method": ["abs"]}, "slope matters to method 'leaky_relu' alone"),
        ({"lr": [0.1, -1.0]}, "lr must be 'auto' or a number above 0, got -1.0"),
        ({"batch_size": [0]}, "batch_size must be a whole number of rows, both sets together, of at least 2, got 0"),
    ],
)
def test_bad_grids_are_refused_before_any_work(data, grid, message, monkeypatch):
    monkeypatch.setattr(module, "_cross_fit_all", lambda *_: pytest.fail("work was done"))
    for estimator in base(), UUClassifier((0.8, 0.3)):
        with pytest.raises(ValueError, match=message):
            UUClassifierCV(estimator, grid).fit_sets(*data[:2])


def test_priors_are_needed():
    with pytest.raises(ValueError, match="a search compares accuracies, which take set_priors; got None"):
        UUClassifierCV(UUClassifier(None, method="biased")).fit_sets(np.zeros((5, 2)), np.ones((5, 2)))


def test_only_its_own_estimator():
    with pytest.raises(TypeError, match="estimator must be a UUClassifier, got Own"):
        UUClassifierCV(Own(2)).fit_sets(np.zeros((5, 2)), np.ones((5, 2)))
