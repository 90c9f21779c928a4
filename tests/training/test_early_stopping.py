"""Held-out rows and early stopping, without labels."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from helpers.batched_runs import X as TABLE
from helpers.batched_runs import alone, assert_same_model, histories, options, run_of, train_batched
from helpers.batched_runs import rows as draw_rows
from helpers.plain import make_classifier
from uulearn import UUClassifier
from uulearn.data import DenseRows, SparseRows, TwoSets, hold_out
from uulearn.data.holdout import choose_held_out, row_digests
from uulearn.data.rows import PickedRows
from uulearn.metrics import uu_accuracy
from uulearn.risk import uu_coefficients
from uulearn.training.batched import Run
from uulearn.training.early_stopping import EPOCH_PARTS, BestEpoch, CrossedEpochs

# -------------------------------------------------------------------------------------------------------- held-out rows


@given(st.integers(0, 1000), st.integers(20, 80), st.integers(20, 80), st.floats(0.05, 0.5), st.integers(2, 60))
def test_copies_stay_on_one_side_and_no_row_is_lost(seed, n0, n1, fraction, distinct):
    rng = np.random.default_rng(seed)
    values = [rng.integers(distinct, size=n) for n in (n0, n1)]
    held = choose_held_out((values[0], values[1]), fraction, seed)
    held_values = np.concatenate([part[index] for part, index in zip(values, held, strict=True)])
    kept_values = np.concatenate([np.delete(part, index) for part, index in zip(values, held, strict=True)])
    assert not np.intersect1d(held_values, kept_values).size
    assert all(len(np.unique(index)) == len(index) for index in held)


@given(st.integers(0, 1000), st.integers(10, 300), st.integers(10, 300), st.floats(0.1, 0.9))
def test_fraction_is_exact_without_copies(seed, n0, n1, fraction):
    held = choose_held_out((np.arange(n0), np.arange(n0, n0 + n1)), fraction, seed)
    assert [len(index) for index in held] == [round(fraction * n0), round(fraction * n1)]


def test_sets_with_common_rows_are_split_near_the_fraction():
    first, second = np.arange(3000), np.arange(1000, 4000)
    held = choose_held_out((first, second), 0.1, 0)
    assert [len(index) for index in held] == [300, 300]
    again = choose_held_out((first, second), 0.1, 0)
    other = choose_held_out((first, second), 0.1, 1)
    assert all(np.array_equal(a, b) for a, b in zip(held, again, strict=True))
    assert not np.array_equal(held[0], other[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.uint8, torch.int16])
def test_equal_rows_have_equal_digests(dtype):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(0, 3, (2000, 4), generator=generator).to(dtype)  # 81 distinct rows
    tables = [DenseRows(rows[:1500]), DenseRows(rows[1500:])]
    digests = np.concatenate(row_digests(TwoSets((tables[0], tables[1]))))
    _, expected = np.unique(rows.numpy(), axis=0, return_inverse=True)
    _, found = np.unique(digests, return_inverse=True)
    pairs = set(zip(expected.ravel().tolist(), found.tolist(), strict=True))
    assert len(pairs) == expected.max() + 1 == found.max() + 1


def test_digests_do_not_depend_on_type_storage_or_sign_of_zero():
    dense = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 5.0], [-0.0, 2.0, 0.0], [2.0, 0.0, 0.0]])
    matrix = sparse.csr_matrix(dense.numpy())
    stored_zero = sparse.csr_matrix(([2.0, 0.0], ([0, 0], [1, 2])), shape=(1, 3))
    kinds = [DenseRows(dense), DenseRows(dense.double()), DenseRows(dense.to(torch.uint8))]
    found = [row_digests(TwoSets((rows, rows)))[0] for rows in kinds]
    assert (found[0] == found[1]).all()
    assert (found[0] == found[2]).all()
    assert found[0][0] == found[0][2]
    assert len(set(found[0].tolist())) == 3
    assert (row_digests(TwoSets((SparseRows(matrix), kinds[0])))[0] == found[0]).all()
    assert row_digests(TwoSets((SparseRows(stored_zero), kinds[0])))[0][0] == found[0][0]


def test_held_out_rows_come_from_their_set():
    rows = DenseRows(torch.arange(400.0)[:, None])
    sets = (torch.arange(400) % 4 == 0).long()
    for data in (
        TwoSets.from_membership(rows, sets),
        TwoSets((DenseRows(rows.tensor[sets == 0]), DenseRows(rows.tensor[sets == 1]))),
        TwoSets.from_membership(SparseRows(sparse.csr_matrix(rows.tensor.numpy())), sets),
    ):
        kept, held_out = hold_out(data, 0.2, seed=3)
        assert (kept.sizes, held_out.sizes) == ((240, 80), (60, 20))
        for which in (0, 1):
            both = [part.take(which, torch.arange(part.sizes[which])).flatten() for part in (kept, held_out)]
            assert sorted(torch.cat(both).tolist()) == sorted(rows.tensor[sets == which].flatten().tolist())
            sliced = held_out.rows_of(which).slice(0, held_out.sizes[which]).flatten()
            assert sliced.tolist() == both[1].tolist()


def test_picked_rows_equal_rows_of_the_table():
    table = DenseRows(torch.arange(20, dtype=torch.uint8).reshape(10, 2))
    picked = PickedRows(table, torch.tensor([7, 3, 3]))
    assert (picked.n_rows, picked.row_shape, picked.dtype, picked.n_bytes) == (3, (2,), torch.uint8, 6)
    assert picked.slice(1, 3).tolist() == [[6, 7], [6, 7]]
    out = torch.empty(2, 2)
    picked.take(torch.tensor([0, 2]), out)
    assert out.tolist() == [[14, 15], [6, 7]]


def test_rejects_too_few_rows_to_hold_out():
    data = TwoSets((DenseRows(torch.randn(100, 2)), DenseRows(torch.randn(4, 2))))
    with pytest.raises(ValueError, match=r"a fraction of 0.1 cannot be held out of the 4 rows of set 1"):
        hold_out(data, 0.1, seed=0)


# ----------------------------------------------------------------------------------------------------------- best epoch


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(1, 8))
def test_best_epoch_has_the_lowest_trailing_mean(figures, smoothing):
    best = BestEpoch(smoothing, None)
    for figure in figures:
        best.update(figure)
    means = [np.mean(figures[max(0, end - smoothing) : end]) for end in range(1, len(figures) + 1)]
    assert means[best.epoch - 1] == pytest.approx(min(means))
    assert best.value == pytest.approx(min(means))
    assert not best.exhausted


def test_patience_counts_epochs_since_the_best():
    best = BestEpoch(1, 2)
    seen = [(best.update(figure), best.exhausted) for figure in (0.3, 0.2, 0.2, 0.1, 0.4, float("nan"))]
    assert seen == [(True, False), (True, False), (False, False), (True, False), (False, False), (False, True)]
    assert best.epoch == 4


HELD_OUT = tuple(torch.from_numpy(index) for index in draw_rows(seed=9, sizes=(100, 100)))


def overfitting(method="unbiased", **others):
    """A run on few rows that overfits quickly, so the best epoch is early."""
    return run_of(method=method, sizes=(30, 30), held_out=HELD_OUT, **others)


@pytest.mark.parametrize("ema", [None, 0.8])
@pytest.mark.parametrize(("smoothing", "patience"), [(1, None), (3, None), (3, 4)])
def test_final_weights_are_those_of_the_best_epoch(ema, smoothing, patience):
    run = overfitting(seed=2)
    changes = {"ema": ema, "early_stopping": True, "smoothing": smoothing, "patience": patience}
    kept = alone(run, loss="logistic", options=options(epochs=25, lr=0.05, **changes))
    epoch = kept.history.best_epoch
    assert 1 < epoch < 25
    plain = alone(run, loss="logistic", options=options(epochs=epoch, lr=0.05, ema=ema))
    assert_same_model(kept.final_model, plain.final_model, rtol=0, atol=0)
    if patience:
        assert len(kept.history) == epoch + patience
        assert kept.history.stop_reason == f"no better epoch in 4 (the best is epoch {epoch})"


@pytest.mark.parametrize("ema", [None, 0.8])
@pytest.mark.parametrize("patience", [None, 3])
def test_batched_early_stopping_equals_single_runs(ema, patience):
    runs = [overfitting(seed=2), overfitting("abs", seed=1), overfitting("relu", seed=2, lr=0.02)]
    chosen = options(epochs=25, lr=0.05, ema=ema, early_stopping=True, smoothing=2, patience=patience)
    batched = train_batched(runs, options=chosen)
    ends, singles = [], []
    for run, module, history in zip(runs, batched.models(), histories(batched), strict=True):
        single = alone(run, options=chosen)
        assert history.best_epoch == single.history.best_epoch
        assert len(history) == len(single.history)
        assert history.stop_reason == single.history.stop_reason
        ends.append(len(history))
        assert_same_model(module, single.final_model, rtol=5e-3, atol=3e-4)
        singles.append(torch.cat(single.held_out_scores()))
    torch.testing.assert_close(batched.held_out_scores(), torch.stack(singles), rtol=2e-2, atol=3e-3)
    assert patience is None or len(set(ends)) > 1
    scores = batched.scores(TABLE)
    modules = torch.stack([module(TABLE).flatten() for module in batched.models()])
    torch.testing.assert_close(scores, modules.detach(), rtol=1e-3, atol=1e-4)


# ------------------------------------------------------------------------- scores at epochs that other rows chose


@given(st.integers(0, 1000), st.integers(2, 25), st.integers(2, 25), st.integers(1, 3))
def test_each_part_is_scored_at_the_best_epoch_of_the_others(seed, n0, n1, smoothing):
    scores = torch.randn(6, n0 + n1, generator=torch.Generator().manual_seed(seed))
    crossed = CrossedEpochs((n0, n1), [uu_coefficients((0.7, 0.2), 0.4)], [seed], smoothing)
    parts, sets = crossed.parts[0].numpy(), np.repeat([0, 1], [n0, n1])
    for own in scores:
        crossed.update(own[None], [True])
    found, magnitude = crossed.cross(scores[-1:])[0].numpy(), scores.abs().mean(1).numpy()
    for part in np.unique(parts):
        others = parts != part
        errors = [1 - uu_accuracy(own[others], sets[others], (0.7, 0.2), 0.4).unclipped for own in scores.numpy()]
        recorded = torch.stack(crossed.errors)[:, 0, part].numpy()
        np.testing.assert_allclose(recorded, errors, atol=1e-12)
        best = BestEpoch(smoothing, None)
        for error in recorded:
            best.update(error)
        expected = scores[best.epoch - 1].numpy() * magnitude[-1] / magnitude[best.epoch - 1]
        np.testing.assert_allclose(found[~others], expected[~others], rtol=1e-5, atol=1e-6)


@given(st.integers(0, 1000), st.integers(2, 40), st.integers(2, 40), st.integers(1, 3))
def test_crossed_scores_equal_those_of_all_stored_epochs(seed, n0, n1, smoothing):
    """The reference keeps the scores of all rows for each part, and weights every row separately."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.normal(size=(8, 3, n0 + n1)).astype(np.float32))
    running = [[bool(epoch < end) for end in (8, 5, 0)] for epoch in range(8)]  # the last run never improves
    known = [uu_coefficients(priors, 0.4) for priors in ((0.7, 0.2), (0.2, 0.9), (0.6, 0.5))]
    crossed = CrossedEpochs((n0, n1), known, [seed, seed + 1, seed + 2], smoothing)
    for own, active in zip(scores, running, strict=True):
        crossed.update(own, active)

    sets = torch.repeat_interleave(torch.arange(2), torch.tensor([n0, n1]))
    others = (crossed.parts[:, None] != torch.arange(EPOCH_PARTS)[:, None]).double()
    sizes = torch.stack([others[..., sets == which].sum(2) for which in (0, 1)], 2)
    slopes = torch.tensor([[-(a + b), c + d] for a, b, c, d in known], dtype=torch.float64)
    weights = others * (slopes[:, None] / sizes)[..., sets]
    constants = torch.tensor([[a - c] for a, _, c, _ in known], dtype=torch.float64)
    stored = torch.full((EPOCH_PARTS, 3, n0 + n1), torch.nan)
    best = {place: BestEpoch(smoothing, None) for place in np.ndindex(3, EPOCH_PARTS)}
    for own, active, errors in zip(scores, running, crossed.errors, strict=True):
        weighted = constants + torch.einsum("rn,rpn->rp", (own > 0).double(), weights)
        torch.testing.assert_close(errors, weighted, rtol=0, atol=1e-12)
        for (run, part), error in np.ndenumerate(errors.numpy()):  # rounding may decide between equal epochs
            if active[run] and best[run, part].update(float(error)):
                stored[part, run] = own[run]
    scale = scores[-1].abs().mean(1, keepdim=True) / stored.abs().mean(2, keepdim=True)
    expected = torch.where(scale.isfinite(), stored * scale, scores[-1]).gather(0, crossed.parts[None])[0]
    assert torch.equal(crossed.cross(scores[-1]), expected)
    assert torch.equal(expected[2], scores[-1, 2])


def test_crossed_epochs_store_one_score_per_row():
    crossed = CrossedEpochs((600, 400), [uu_coefficients((0.8, 0.2), 0.5)] * 2, [0, 1], 1)
    crossed.update(torch.randn(2, 1000, generator=torch.Generator().manual_seed(0)), [True, True])
    tensors = [value for value in vars(crossed).values() if isinstance(value, torch.Tensor)]
    assert sum(value.nbytes for value in tensors) < 2 * 1000 * (4 + 8) + 1000  # a float32 score and an int64 part
    state = crossed.state_dict()
    assert {name: tuple(state[name].shape) for name in ("own", "magnitude")} == {
        "own": (2, 1000),
        "magnitude": (2, EPOCH_PARTS),
    }


def test_runs_that_have_stopped_are_not_updated():
    crossed = CrossedEpochs((2, 2), [uu_coefficients((0.8, 0.2), 0.5)] * 2, [0, 1], 1)
    bad, good = torch.tensor([[-1.0, -1.0, 1.0, 1.0]] * 2), torch.tensor([[3.0, 3.0, -3.0, -3.0]] * 2)
    crossed.update(bad, [True, True])
    crossed.update(good, [True, False])
    torch.testing.assert_close(crossed.cross(good), torch.stack([good[0], 3 * bad[0]]))


def test_held_out_scores_are_not_optimistic_on_noise():
    """Rows say nothing about the classes, so every model has an accuracy of one half."""
    table = torch.randn(400, 6, generator=torch.Generator().manual_seed(5))
    rng = np.random.default_rng(0)
    runs = []
    for seed in range(100):
        order = rng.permutation(400)
        parts = [order[start : start + 100] for start in (0, 100, 200, 300)]
        runs.append(Run((parts[0], parts[1]), (0.8, 0.2), 0.5, seed=seed, held_out=(parts[2], parts[3])))
    chosen = options(epochs=20, lr=0.05, batch_size=200, early_stopping=True, smoothing=2)
    batched = train_batched(runs, table=table, options=chosen)
    final = batched.scores(table)
    of_chosen = torch.stack([own[torch.cat(run.held_out)] for own, run in zip(final, runs, strict=True)])
    sets = np.repeat([0, 1], 100)
    optimistic, honest = (
        np.mean([uu_accuracy(own.numpy(), sets, (0.8, 0.2), 0.5).value for own in scores])
        for scores in (of_chosen, batched.held_out_scores())
    )
    assert optimistic > 0.54
    assert abs(honest - 0.5) < 0.015


def test_early_stopping_needs_held_out_rows():
    run = run_of()
    with pytest.raises(ValueError, match="early_stopping=True requires held-out rows of both sets"):
        alone(run, options=options(early_stopping=True))
    with pytest.raises(ValueError, match="early_stopping=True requires held-out rows of both sets"):
        train_batched([run], options=options(early_stopping=True))
    with pytest.raises(ValueError, match="patience=3 requires early stopping; set early_stopping=True"):
        alone(run, options=options(patience=3))


# ------------------------------------------------------------------------------------------------ in the estimator


def best(quick, **changes):
    return make_classifier(**quick | {"validation_fraction": 0.2, "early_stopping": True, "epochs": 30} | changes)


def test_estimator_holds_out_rows_and_uses_the_best_epoch(gaussians, quick):
    classifier = best(quick).fit(gaussians["X"], gaussians["sets"])
    assert classifier.set_sizes_ == (320, 320)
    assert classifier.held_out_sizes_ == (80, 80)
    history = classifier.history_
    assert len(history) == 30
    error = history[history.best_epoch - 1]["validation_zero_one"]
    assert "held out of training for validation without labels: 80 + 80 rows" in classifier.summary()
    assert f"best epoch: {history.best_epoch}, with error {error:.1%} on the held-out rows" in (classifier.summary())
    apart = best(quick).fit_sets(gaussians["X"][gaussians["sets"] == 0], gaussians["X"][gaussians["sets"] == 1])
    np.testing.assert_array_equal(
        apart.decision_function(gaussians["X_test"]), classifier.decision_function(gaussians["X_test"])
    )


def test_given_validation_rows_are_used(gaussians, quick):
    X, sets = gaussians["X"], gaussians["sets"]
    classifier = best(quick).fit(X[100:], sets[100:], validation_data=(X[:100], sets[:100]))
    assert sum(classifier.set_sizes_) == 700
    assert sum(classifier.held_out_sizes_) == 100
    kept = classifier.history_[classifier.history_.best_epoch - 1]
    estimate = uu_accuracy(classifier.decision_function(X[:100]), sets[:100], (0.8, 0.2), 0.5)
    assert estimate.value == pytest.approx(1 - kept["validation_zero_one"], abs=1e-6)


def test_rejects_early_stopping_without_validation_rows(gaussians, quick):
    with pytest.raises(ValueError, match="hold out some rows"):
        best(quick, validation_fraction=0.0).fit(gaussians["X"], gaussians["sets"])


def test_resumed_run_finds_the_same_best_epoch(tmp_path, gaussians, quick):
    X, sets = gaussians["X"], gaussians["sets"]
    settings = {"model_params": {"hidden": (32,)}, "lr": 0.05, "method": "unbiased", "smoothing": 2}
    whole = best(quick, **settings, epochs=20).fit(X, sets)
    best(quick, **settings, epochs=12, checkpoint_dir=tmp_path).fit(X, sets)
    resumed = best(quick, **settings, epochs=20, checkpoint_dir=tmp_path).fit(X, sets)
    assert resumed.history_.resumed_at == [12]
    assert resumed.history_.best_epoch == whole.history_.best_epoch
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))


def test_resumed_folds_have_the_same_out_of_fold_scores(tmp_path, gaussians, quick):
    X, sets = gaussians["X"], gaussians["sets"]
    settings = {"model_params": {"hidden": (32,)}, "lr": 0.05, "method": "unbiased", "smoothing": 2, "n_estimators": 2}
    settings |= {"validation_fraction": 0.0}
    whole = best(quick, **settings, epochs=20).fit(X, sets)
    best(quick, **settings, epochs=12, checkpoint_dir=tmp_path).fit(X, sets)
    resumed = best(quick, **settings, epochs=20, checkpoint_dir=tmp_path).fit(X, sets)
    assert [history.resumed_at for history in resumed.history_.models] == [[12], [12]]
    np.testing.assert_array_equal(resumed.out_of_fold_scores_, whole.out_of_fold_scores_)


@pytest.mark.parametrize("stop", [8, 25])
def test_patience_continues_after_resume(tmp_path, gaussians, quick, stop):
    X, sets = gaussians["X"], gaussians["sets"]
    settings = {"lr": 0.05, "method": "unbiased", "smoothing": 1, "patience": 5}
    whole = best(quick, **settings, epochs=60).fit(X, sets)
    assert len(whole.history_) < 60
    best(quick, **settings, epochs=stop, checkpoint_dir=tmp_path).fit(X, sets)
    resumed = best(quick, **settings, epochs=60, checkpoint_dir=tmp_path).fit(X, sets)
    assert len(resumed.history_) == len(whole.history_)
    assert resumed.history_.stop_reason == whole.history_.stop_reason
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))


def test_saved_model_has_the_best_weights(tmp_path, gaussians, quick):
    classifier = best(quick).fit(gaussians["X"], gaussians["sets"])
    classifier.save(tmp_path / "model")
    loaded = UUClassifier.load(tmp_path / "model")
    assert loaded.history_.best_epoch == classifier.history_.best_epoch
    assert loaded.held_out_sizes_ == (80, 80)
    assert loaded.summary() == classifier.summary()


def test_interrupted_run_has_its_best_weights(gaussians, quick):
    X, sets = gaussians["X"], gaussians["sets"]

    def interrupt(record, model):
        if record["epoch"] == 12:
            raise KeyboardInterrupt

    settings = {"lr": 0.05, "method": "unbiased", "smoothing": 1}
    classifier = best(quick, **settings)
    with pytest.raises(KeyboardInterrupt):
        classifier.fit(X, sets, callback=interrupt)
    whole = best(quick, **settings, epochs=12).fit(X, sets)
    assert classifier.history_.best_epoch == whole.history_.best_epoch
    np.testing.assert_array_equal(classifier.decision_function(X), whole.decision_function(X))


def test_last_epoch_is_used_without_early_stopping(gaussians, quick):
    classifier = best(quick, early_stopping=False).fit(gaussians["X"], gaussians["sets"])
    assert classifier.history_.best_epoch is None
    assert "validation_zero_one" in classifier.history_[-1]
