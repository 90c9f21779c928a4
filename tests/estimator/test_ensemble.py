"""Several models, each without one fold: folds, joined tables, ensembles, and the estimator that uses them."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from torch import nn

from helpers.plain import plain_classifier
from uulearn import UUClassifier, UURisk
from uulearn.data import DenseRows, SparseRows, TwoSets
from uulearn.data.folds import assign_balanced, assign_folds
from uulearn.data.rows import JoinedRows
from uulearn.estimator.learners import FoldScores, NetworkLearner, NetworkModel, merge_folds
from uulearn.exceptions import NonFiniteRiskError
from uulearn.metrics import evaluate
from uulearn.metrics.calibration import calibration_error
from uulearn.models import MLP, Ensemble, build_model
from uulearn.training import History, RunOptions, score_rows
from uulearn.training.batched.out_of_fold import Variant, can_be_batched, fit_folds_batched
from uulearn.training.out_of_fold import count_folds, fit_fold, fold_options

# --------------------------------------------------------------------------------------------------------- folds


@given(st.integers(0, 1000), st.integers(2, 6), st.integers(6, 90), st.integers(6, 90), st.integers(3, 200))
def test_copies_share_a_fold_and_fold_sizes_are_balanced(seed, n_folds, n0, n1, distinct):
    rng = np.random.default_rng(seed)
    values = [rng.integers(distinct, size=n) for n in (n0, n1)]
    folds = assign_balanced((values[0], values[1]), n_folds, seed)
    together = np.concatenate(values), np.concatenate(folds)
    assert all(len(np.unique(together[1][together[0] == value])) == 1 for value in np.unique(together[0]))
    counts = np.unique(together[0], return_counts=True)
    single = set(counts[0][counts[1] == 1].tolist())
    for value, fold in zip(values, folds, strict=True):
        size = np.bincount(fold, minlength=n_folds)
        loose = np.bincount(fold[[v in single for v in value]], minlength=n_folds)
        # Single rows go to the smallest fold, so fold sizes differ by at most one.
        assert all(size[k] <= size.min() + 1 for k in range(n_folds) if loose[k])


@given(st.integers(0, 100), st.integers(2, 6), st.integers(6, 50), st.integers(6, 50))
def test_without_copies_folds_differ_by_at_most_one_row(seed, n_folds, n0, n1):
    for fold in assign_balanced((np.arange(n0), np.arange(n0, n0 + n1)), n_folds, seed):
        assert np.ptp(np.bincount(fold, minlength=n_folds)) <= 1


def test_folds_depend_only_on_seed_and_reject_too_few_rows():
    data = TwoSets((DenseRows(torch.randn(40, 2)), DenseRows(torch.randn(30, 2))))
    one, again, other = (assign_folds(data, 4, seed) for seed in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
    assert (one[0] != other[0]).any()
    with pytest.raises(ValueError, match="31 folds need at least 31 rows of each set, but one set has 30"):
        assign_folds(data, 31, 0)
    with pytest.raises(ValueError, match="1 folds need at least 2"):
        assign_folds(data, 1, 0)
    same = TwoSets((DenseRows(torch.ones(40, 2)), DenseRows(torch.randn(30, 2))))
    with pytest.raises(ValueError, match="set 0 cannot be split into 4 folds because too many of its rows are copies"):
        assign_folds(same, 4, 0)


# --------------------------------------------------------------------------------------------------------- tables


@pytest.mark.parametrize(
    "make",
    [
        lambda x: (DenseRows(x[:7]), DenseRows(x[7:])),
        lambda x: (DenseRows(x[:7].double()), DenseRows(x[7:].to(torch.uint8))),
        lambda x: (SparseRows(sparse.csr_matrix(x[:7].numpy())), DenseRows(x[7:])),
    ],
)
def test_joined_tables_equal_concatenated_table(make):
    x = torch.arange(60.0).reshape(20, 3)
    joined = JoinedRows(*make(x))
    assert (joined.n_rows, joined.row_shape) == (20, (3,))
    index = torch.tensor([19, 0, 7, 6, 7])
    out = torch.empty(5, 3)
    joined.take(index, out)
    assert out.tolist() == x[index].tolist()
    assert joined.slice(5, 9).tolist() == x[5:9].tolist()
    assert joined.n_bytes == sum(part.n_bytes for part in joined.parts)


def test_joined_sets_equal_original_sets():
    x = torch.arange(40.0).reshape(20, 2)
    apart = TwoSets((DenseRows(x[:8]), DenseRows(x[8:])), (None, torch.tensor([0, 3, 5])))
    one_table = TwoSets.from_membership(DenseRows(x), torch.arange(20) % 2)
    for data in (apart, one_table):
        joined = data.joined()
        assert joined.rows[0] is joined.rows[1]
        assert joined.sizes == data.sizes
        for which in (0, 1):
            everything = torch.arange(data.sizes[which])
            assert joined.take(which, everything).tolist() == data.take(which, everything).tolist()


# ------------------------------------------------------------------------------------------------------ ensembles


class Plain(nn.Module):
    def __init__(self, n_features=3):
        super().__init__()
        self.layer = nn.Linear(n_features, 1)

    def forward(self, x):
        return self.layer(x)


def test_ensemble_score_is_mean_of_scaled_scores():
    models = [MLP(3, hidden=(5,)).eval(), Plain(), MLP(3, hidden=(4, 4)).eval()]
    x = torch.randn(11, 3)
    expected = (models[0](x) + models[1](x).flatten() / 2 + models[2](x) / 4) / 3
    ensemble = Ensemble(models, [1.0, 2.0, 4.0])
    torch.testing.assert_close(ensemble(x), expected)
    assert not ensemble.accepts_bfloat16_rows  # one model does not declare support for them
    torch.testing.assert_close(ensemble.for_inference()(x), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(score_rows(ensemble, DenseRows(x)), expected, rtol=1e-4, atol=1e-5)
    half = score_rows(ensemble, DenseRows(x), dtype=torch.bfloat16)
    assert (half - expected).abs().max() < 0.05 * expected.abs().max()
    with pytest.raises(ValueError, match="one scale per model, got 1 models and 2 scales"):
        Ensemble(models[:1], [1.0, 1.0])


# -------------------------------------------------------------------------------------------------- out-of-fold


def sets_of(seed=0, n=(60, 45)):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 3, generator=generator) + shift for size, shift in zip(n, (0.4, -0.4), strict=True)]


def merge_fits(fits, folds):
    parts = [FoldScores(NetworkModel(fit.model, "float32"), fit.history, fit.scores, fit.error) for fit in fits]
    return dataclasses.replace(merge_folds(parts, folds), models=[fit.model for fit in fits])


def train_folds(build, data, folds, risk, options, test=None):
    fits = [fit_fold(fold, build, data, folds, risk, options, test=test) for fold in range(count_folds(folds))]
    return merge_fits(fits, folds)


def train_folds_batched(model, model_params, data, folds, variants, options, test=None):
    chosen = range(count_folds(folds))
    found = fit_folds_batched(chosen, model, model_params, data, folds, variants, options, test=test)
    return [merge_fits(parts, folds) for parts in found]


def ensemble_of(found):
    return Ensemble(found.models, found.scales).eval()


def crossed(tables, folds, **changes):
    data = TwoSets((DenseRows(tables[0]), DenseRows(tables[1])))
    settings = {"epochs": 4, "batch_size": 20, "lr": 0.02, "ema": None, "progress": False, "precision": "float32"}

    def build(seed):
        torch.manual_seed(seed)
        return build_model("mlp", (3,), {"hidden": (6,)})

    return train_folds(build, data, folds, UURisk((0.8, 0.2), 0.5), RunOptions(**settings | changes))


def test_model_is_not_trained_on_its_fold():
    tables = sets_of()
    folds = assign_folds(TwoSets((DenseRows(tables[0]), DenseRows(tables[1]))), 3, seed=0)
    before = crossed(tables, folds)
    changed = [table.clone() for table in tables]
    for table, fold in zip(changed, folds, strict=True):
        table[torch.from_numpy(fold == 1)] += 5.0
    after = crossed(changed, folds)
    same = [
        all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))
        for one, other in zip(before.models, after.models, strict=True)
    ]
    assert same == [False, True, False]


@pytest.mark.parametrize("early_stopping", [False, True])
def test_every_row_is_scored_by_the_model_of_its_fold(early_stopping):
    """With early stopping, a row is scored at an epoch that other rows chose, on the scale of the model."""
    tables = sets_of()
    folds = assign_folds(TwoSets((DenseRows(tables[0]), DenseRows(tables[1]))), 3, seed=0)
    found = crossed(tables, folds, early_stopping=early_stopping)
    at_epochs = [crossed(tables, folds, epochs=epochs) for epochs in range(1, 5)] if early_stopping else [found]
    for fold in range(3):
        mine = [torch.from_numpy(part == fold) for part in folds]
        scores = torch.cat([own[rows] for own, rows in zip(found.scores, mine, strict=True)])
        assert scores.abs().mean().item() == pytest.approx(1.0, rel=1e-5)
        inside = DenseRows(torch.cat([table[rows] for table, rows in zip(tables, mine, strict=True)]))
        final = score_rows(found.models[fold], inside).abs().mean() / found.scales[fold]
        allowed = torch.stack([score_rows(one.models[fold], inside) for one in at_epochs])
        allowed *= final / allowed.abs().mean(1, keepdim=True)
        distance = (scores - allowed).abs().amin(0)
        torch.testing.assert_close(distance, torch.zeros_like(distance), rtol=0, atol=1e-5)
    assert [history.best_epoch is None for history in found.histories] == [not early_stopping] * 3
    mean = sum(score_rows(m, DenseRows(tables[0])) / s for m, s in zip(found.models, found.scales, strict=True)) / 3
    torch.testing.assert_close(score_rows(ensemble_of(found), DenseRows(tables[0])), mean, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["one table", "two tables"])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_batched_training_equals_training_one_by_one(kind, early_stopping):
    """The sizes are multiples of the number of folds, so no row is dropped and the runs are equal."""
    tables = sets_of(n=(60, 45))
    if kind == "two tables":
        data = TwoSets((DenseRows(tables[0]), DenseRows(tables[1])))
    else:
        data = TwoSets.from_membership(
            DenseRows(torch.cat(tables)), torch.repeat_interleave(torch.arange(2), torch.tensor([60, 45]))
        )
    folds = assign_folds(data, 3, seed=0)
    settings = {"epochs": 6, "batch_size": 20, "lr": 0.02, "ema": 0.8, "progress": False, "precision": "float32"}
    options = RunOptions(**settings | {"early_stopping": early_stopping, "seed": 5})
    risk = UURisk((0.8, 0.2), 0.5, method="abs")
    test = DenseRows(torch.cat(tables)), torch.repeat_interleave(torch.arange(2), torch.tensor([60, 45]))

    def build(seed):
        torch.manual_seed(seed)
        return build_model("mlp", (3,), {"hidden": (6,)})

    assert can_be_batched("mlp", data, options)
    other_risk = UURisk((0.8, 0.2), 0.5, method="relu")
    variants = [Variant(other_risk, lr=0.001), Variant(risk), Variant(risk, l2=0.1, weight_decay=0.01)]
    others = train_folds_batched("mlp", {"hidden": (6,)}, data, folds, variants, options, test=test)
    stacked = others.pop(1)
    single = train_folds(build, data, folds, risk, options, test=test)
    for one, other in zip(stacked.scores, single.scores, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
    assert stacked.scales == pytest.approx(single.scales, rel=1e-3)
    for one, other in zip(stacked.histories, single.histories, strict=True):
        assert one.best_epoch == other.best_epoch
        assert one.column("objective") == pytest.approx(other.column("objective"), abs=1e-4)
        assert one.column("test_risk") == pytest.approx(other.column("test_risk"), abs=1e-3)
    torch.testing.assert_close(ensemble_of(stacked)(tables[0]), ensemble_of(single)(tables[0]), rtol=1e-3, atol=1e-3)
    changed = [(other_risk, {"lr": 0.001}), (risk, {"l2": 0.1, "weight_decay": 0.01})]
    for found, (its_risk, changes) in zip(others, changed, strict=True):
        alone = train_folds(build, data, folds, its_risk, dataclasses.replace(options, **changes))
        torch.testing.assert_close(found.scores[0], alone.scores[0], rtol=2e-3, atol=2e-3)


def test_batched_training_equalizes_folds_and_scores_all_rows():
    tables = sets_of(n=(50, 47))
    data = TwoSets((DenseRows(tables[0]), DenseRows(tables[1])))
    folds = assign_folds(data, 4, seed=0)
    options = RunOptions(epochs=2, batch_size=20, ema=None, progress=False, early_stopping=True)
    (found,) = train_folds_batched("linear", None, data, folds, [Variant(UURisk((0.8, 0.2), 0.5))], options)
    assert [len(part) for part in found.scores] == [50, 47]
    for table, fold, scores in zip(tables, folds, found.scores, strict=True):
        for number, (model, scale) in enumerate(zip(found.models, found.scales, strict=True)):
            mine = torch.from_numpy(fold == number)
            torch.testing.assert_close(scores[mine], model(table[mine]).detach() / scale, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("model", "changes", "rows"),
    [
        (Plain, {}, "dense"),
        ("resnet32", {}, "images"),
        ("mlp", {"clip_norm": 1.0}, "dense"),
        ("mlp", {"checkpoint_dir": "somewhere"}, "dense"),
        ("mlp", {"optimizer": torch.optim.Adam}, "dense"),
        ("mlp", {}, "sparse"),
    ],
)
def test_cases_that_cannot_be_batched(model, changes, rows):
    tables = {
        "dense": DenseRows(torch.zeros(4, 3)),
        "images": DenseRows(torch.zeros(4, 3, 8, 8)),
        "sparse": SparseRows(sparse.csr_matrix(np.zeros((4, 3)))),
    }
    data = TwoSets((tables[rows], tables[rows]))
    assert not can_be_batched(model, data, RunOptions(**changes))
    assert can_be_batched("linear", TwoSets((tables["dense"], tables["dense"])), RunOptions())


def test_fold_options_differ_in_seed_and_folder(tmp_path):
    options = RunOptions(seed=3, checkpoint_dir=tmp_path)
    made = [fold_options(options, k) for k in range(5)]
    assert len({o.seed for o in made} | {fold_options(RunOptions(seed=4), k).seed for k in range(5)}) == 10
    assert [o.checkpoint_dir for o in made] == [tmp_path / f"model-{k}" for k in range(5)]
    assert fold_options(RunOptions(), 0).checkpoint_dir is None


# ------------------------------------------------------------------------------------------------- the estimator


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)

    def draw(n, prior):
        y = rng.random(n) < prior
        return rng.normal(size=(n, 8)) + 0.5 * (2 * y[:, None] - 1), y

    (X0, _), (X1, _), (X, y) = draw(240, 0.8), draw(300, 0.3), draw(4000, 0.4)
    return X0, X1, X, y


def several(**changes):
    settings = {"n_estimators": 3, "model_params": {"hidden": (32, 32)}, "epochs": 25, "lr": 0.01, "ema": 0.9}
    settings |= {"batch_size": 100, "early_stopping": True, "random_state": 0, "progress": False}
    return plain_classifier((0.8, 0.3), 0.4, **settings | changes)


def test_ensemble_is_better_than_single_model(problem):
    X0, X1, X, y = problem
    classifier = several().fit_sets(X0, X1)
    assert isinstance(classifier.model_, Ensemble)
    accuracies = []
    for single in classifier.model_.models:
        scores = score_rows(single, DenseRows(torch.from_numpy(X).float()))
        accuracies.append(((scores.numpy() > 0) == y).mean())
    assert (classifier.predict(X) == y).mean() > np.mean(accuracies)
    assert classifier.set_sizes_ == classifier.held_out_sizes_ == (240, 300)


def test_accuracy_without_labels_is_close_to_accuracy_with_labels(problem):
    X0, X1, X, y = problem
    classifier = several().fit_sets(X0, X1)
    found = classifier.out_of_fold_evaluation_
    assert found.sizes == (240, 300)
    assert not found.labels_used
    assert abs(found.accuracy.value - (classifier.predict(X) == y).mean()) < 3 * found.accuracy.standard_error
    assert "3 models, each trained without one fold and evaluated on it; accuracy estimated without labels: " in (
        classifier.summary()
    )
    assert str(found.accuracy) in classifier.summary()
    assert several(n_estimators=1, early_stopping=False).fit_sets(X0, X1).out_of_fold_evaluation_ is None


def test_history_is_mean_of_the_models(problem):
    X0, X1, X, y = problem
    history = several(patience=4).fit_sets(X0, X1, test_data=(X, y)).history_
    assert len(history.models) == 3
    assert len(history) == max(map(len, history.models))
    assert len({len(single) for single in history.models}) > 1
    assert history.labels_used
    for position in (0, len(history) - 1):
        running = [single[position] for single in history.models if len(single) > position]
        for name in ("positive", "validation_zero_one", "test_accuracy", "epoch"):
            assert history[position][name] == pytest.approx(np.mean([record[name] for record in running]))
    assert all(single.best_epoch for single in history.models)
    again = History.from_dict(history.to_dict())
    assert again == history


def test_one_table_and_two_tables_give_the_same_models(problem):
    X0, X1, X, _ = problem
    order = np.random.default_rng(1).permutation(540)
    together = several(n_estimators=2).fit(np.concatenate([X0, X1]), np.repeat([0, 1], [240, 300]))
    apart = several(n_estimators=2).fit_sets(X0, X1)
    np.testing.assert_array_equal(together.decision_function(X), apart.decision_function(X))
    shuffled = several(n_estimators=2).fit(np.concatenate([X0, X1])[order], np.repeat([0, 1], [240, 300])[order])
    assert shuffled.out_of_fold_evaluation_.sizes == (240, 300)


def test_calibration_uses_all_rows(problem):
    X0, X1, X, y = problem
    classifier = several(loss="sigmoid", calibrated=True).fit_sets(X0, X1)
    assert calibration_error(classifier.predict_proba(X)[:, 1], y) < 0.1
    plain = several(loss="sigmoid").fit_sets(X0, X1)
    assert plain.scaling_ is None
    expected = classifier.scaling_.log_odds(plain.decision_function(X))
    np.testing.assert_allclose(classifier.decision_function(X), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", ["mlp", Plain])
def test_saved_ensemble_gives_the_same_scores(problem, tmp_path, model):
    X0, X1, X, _ = problem
    params = {"hidden": (8,)} if model == "mlp" else None
    classifier = several(model=model, model_params=params, epochs=3, calibrated=True).fit_sets(X0, X1)
    classifier.save(tmp_path / "model")
    loaded = UUClassifier.load(tmp_path / "model", **({} if model == "mlp" else {"model": Plain}))
    np.testing.assert_array_equal(loaded.decision_function(X), classifier.decision_function(X))
    assert loaded.out_of_fold_evaluation_ == classifier.out_of_fold_evaluation_
    assert loaded.history_ == classifier.history_
    assert loaded.summary() == classifier.summary()


def test_resume_equals_uninterrupted_fit(problem, tmp_path):
    X0, X1, X, _ = problem
    whole = several(epochs=6).fit_sets(X0, X1)
    seen = []

    def interrupt(record, model):
        seen.append(record["epoch"])
        if len(seen) == 9:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        several(epochs=6, checkpoint_dir=tmp_path, checkpoint_every=1).fit_sets(X0, X1, callback=interrupt)
    resumed = several(epochs=6, checkpoint_dir=tmp_path, checkpoint_every=1).fit_sets(X0, X1)
    assert [single.resumed_at for single in resumed.history_.models] == [[6], [2], []]
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))


def test_rejects_contradictory_parameters(problem):
    X0, X1, X, _ = problem
    with pytest.raises(ValueError, match="do not pass validation_data, or set n_estimators=1"):
        several().fit_sets(X0, X1, validation_data=(X[:10], np.arange(10) % 2))
    with pytest.raises(ValueError, match="5 folds need at least 5 rows of each set, but one set has 4"):
        several(n_estimators=5).fit_sets(X0, X1[:4])
    evaluated = several(n_estimators=2, epochs=1).fit_sets(X0, X1).out_of_fold_evaluation_
    assert evaluated == evaluate(*_out_of_fold(X0, X1), (0.8, 0.3), 0.4)


def _out_of_fold(X0, X1):
    classifier = several(n_estimators=2, epochs=1).fit_sets(X0, X1)
    data = TwoSets((DenseRows(torch.from_numpy(X0)), DenseRows(torch.from_numpy(X1))))
    scores = []
    for which, folds in enumerate(assign_folds(data, 2, seed=0)):
        rows = torch.from_numpy((X0, X1)[which]).float()
        scales = classifier.model_.scales.tolist()
        models = [
            score_rows(m, DenseRows(rows)).numpy() / s for m, s in zip(classifier.model_.models, scales, strict=True)
        ]
        scores.append(np.where(folds == 0, models[0], models[1]))
    return np.concatenate(scores), np.repeat([0, 1], [240, 300])


# ------------------------------------------------------------------------------------------------------- divergence


def diverging(**changes):
    parameters = {"model": "linear", "loss": "squared", "method": "unbiased", "epochs": 9, "random_state": 0}
    return plain_classifier((0.8, 0.2), 0.5, **parameters | {"optimizer": "sgd", "n_estimators": 3} | changes)


@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize(("lr", "epoch"), [(1e3, 8), (1e20, 2), (3e38, 1)])
def test_diverging_fold_raises_the_same_error_if_folds_are_trained_together(lr, epoch, early_stopping, monkeypatch):
    tables, errors = sets_of(), []

    def train_together(learner, task, chosen=None):
        variants = [Variant(learner.risk(task.set_priors, task.target_prior))]
        return learner.train_variants(task, variants, range(count_folds(task.folds)))[0]

    for _ in range(2):
        classifier = diverging(lr=lr, early_stopping=early_stopping, batch_size=200)
        with pytest.raises(
            NonFiniteRiskError, match=f"finite in epoch {epoch}: positive term .*Likely causes"
        ) as caught:
            classifier.fit_sets(*tables)
        assert not hasattr(classifier, "model_")
        errors.append(str(caught.value).partition(" The ")[0])  # without the weights that a single run restores
        monkeypatch.setattr(NetworkLearner, "train_folds", train_together)
    assert errors[0] == errors[1]


def test_error_of_one_variant_does_not_affect_the_others():
    tables = sets_of()
    data = TwoSets((DenseRows(tables[0]), DenseRows(tables[1])))
    folds = assign_folds(data, 3, seed=0)
    options = RunOptions(epochs=2, batch_size=200, ema=None, progress=False, precision="float32", optimizer="sgd")
    risk = UURisk((0.8, 0.2), 0.5, "squared", "unbiased")
    variants = [Variant(risk, lr=lr) for lr in (0.01, 1e20)]
    good, bad = fit_folds_batched(range(3), "linear", None, data, folds, variants, options)
    assert [fit.error for fit in good] == [None] * 3
    assert torch.cat(merge_fits(good, folds).scores).isfinite().all()
    assert all("finite in epoch 2: " in str(fit.error) and "now 1e+20" in str(fit.error) for fit in bad)
    with pytest.raises(NonFiniteRiskError, match="finite in epoch 2"):
        merge_fits(bad, folds)
