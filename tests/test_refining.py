"""Refinement: rows sorted by models that have not seen them, and the answer no where a round is no better."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from uulearn import UUClassifier
from uulearn.estimator.refining import refine
from uulearn.models import Linear
from uulearn.training import DenseRows, History, TwoSets
from uulearn.training.crossfit import CrossFit
from uulearn.training.folds import assign_folds

PRIORS = (0.7, 0.3)


@pytest.fixture(scope="module")
def pool():
    """Two sets as row numbers of one table, the class of every row (which nobody is told), and folds."""
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.random(1500) < 0.7, rng.random(2500) < 0.3])
    data = TwoSets((DenseRows(torch.arange(4000.0)[:, None]),) * 2, (torch.arange(1500), torch.arange(1500, 4000)))
    return data, y, assign_folds(data, 3, seed=0)


def scripted(y, accuracies, seen):
    """A trainer whose models are right on a given share of the rows, round by round."""

    def train(sets, folds, priors, number):
        seen.append((sets, folds, priors, number))
        scores = []
        for index in sets.index:
            right = np.random.default_rng([number, 5]).random(4000)[index.numpy()] < accuracies[number]
            truth = np.where(y[index.numpy()], 1.0, -1.0)
            scores.append(torch.from_numpy(np.where(right, truth, -truth)).float())
        return CrossFit([Linear(1)] * 3, [History()] * 3, [1.0] * 3, (scores[0], scores[1]), torch.float32)

    return train


def test_rows_are_sorted_into_purer_sets_whose_priors_are_known_without_labels(pool):
    data, y, folds = pool
    seen = []
    found = refine(scripted(y, [0.85, 0.9, 0.95], seen), data, folds, PRIORS, 0.5, rounds=2)
    assert [call[3] for call in seen] == [0, 1, 2]
    assert [done.better for done in found.rounds] == [True, True, True]
    assert found.kept == 2
    assert found.stop_reason == "all 2 rounds done"
    for sets, new_folds, priors, number in seen[1:]:
        both = np.concatenate([index.numpy() for index in sets.index])
        assert sorted(both.tolist()) == list(range(4000))  # every row is in one of the new sets
        for index, prior, fold in zip(sets.index, priors, new_folds, strict=True):
            assert y[index.numpy()].mean() == pytest.approx(prior, abs=0.04), number
            np.testing.assert_array_equal(fold, np.concatenate(folds)[index.numpy()])  # and stays in its fold
        assert priors[0] > 0.8 > 0.2 > priors[1]
    # What is returned are the scores of the original sets, in their order.
    accuracy = ((torch.cat(found.scores).numpy() > 0) == y).mean()
    assert accuracy == pytest.approx(0.95, abs=0.01)
    assert found.rounds[2].judgement.accuracy.value == pytest.approx(0.95, abs=4 * 0.012)
    assert found.rounds[1].gain.value == pytest.approx(0.05, abs=4 * found.rounds[1].gain.standard_error)


@settings(max_examples=60, deadline=None)
@given(
    positives=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    negatives=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    called=st.tuples(st.integers(2, 18), st.integers(2, 18)).filter(lambda c: c[0] - c[1] >= 2),
)
def test_the_priors_of_the_new_sets_are_exact_where_both_sets_have_the_same_rates(positives, negatives, called):
    """Sets of 20·p positives and 20·q negatives, of which t·20 and f·20 in twenty are called positive."""
    if positives[0] * negatives[1] == positives[1] * negatives[0]:
        negatives = (negatives[0] + 1, negatives[1])  # the priors must differ; either may be the larger
    block = [np.repeat([True, False], [20 * p, 20 * q]) for p, q in zip(positives, negatives, strict=True)]
    y = np.concatenate(block)
    turn = np.arange(len(y)) % 20
    scores = np.where(turn < np.where(y, *called), 1.0, -1.0) * np.random.default_rng(0).uniform(0.1, 9.0, len(y))
    parts = torch.arange(len(y)).split([len(part) for part in block])
    data = TwoSets((DenseRows(torch.zeros(len(y), 1)),) * 2, (parts[0], parts[1]))
    seen = []

    def train(sets, folds, priors, number):
        seen.append((sets, priors))
        found = [torch.from_numpy(scores[index.numpy()]).float() for index in sets.index]
        return CrossFit([Linear(1)] * 2, [History()] * 2, [1.0] * 2, (found[0], found[1]), torch.float32)

    set_priors = tuple(float(part.mean()) for part in block)
    refine(train, data, (turn[: len(block[0])] % 2, turn[len(block[0]) :] % 2), set_priors, 0.3, rounds=1)
    sets, priors = seen[1]
    np.testing.assert_allclose(priors, [y[index.numpy()].mean() for index in sets.index], atol=1e-6)
    assert set(sets.index[0].tolist()) == set(np.flatnonzero(scores > 0).tolist())


def test_rates_estimated_beyond_their_bounds_make_pure_sets():
    """Four fifths of set 0 and one of set 1 are called positive, more and less than there are: t = 1.25, f = −0.25."""
    scores = torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0, 1.0, -1.0, -1.0, -1.0, -1.0]).repeat_interleave(6)
    data = TwoSets((DenseRows(torch.zeros(60, 1)),) * 2, (torch.arange(30), torch.arange(30, 60)))
    seen = []

    def train(sets, folds, priors, number):
        seen.append(priors)
        found = [scores[index] for index in sets.index]
        return CrossFit([Linear(1)] * 2, [History()] * 2, [1.0] * 2, (found[0], found[1]), torch.float32)

    refine(train, data, (np.arange(30) % 2, np.arange(30) % 2), PRIORS, 0.5, rounds=1)
    assert seen == [PRIORS, (1.0, 0.0)]


def test_copies_of_a_row_stay_copies_and_in_one_fold():
    rng = np.random.default_rng(1)
    y = rng.random(300) < 0.5
    index = rng.choice(np.flatnonzero(y), 300), rng.choice(np.flatnonzero(~y), 200)  # many rows more than once
    shared = rng.choice(300, 200)
    drawn = [torch.from_numpy(np.concatenate([part, shared])) for part in index]
    data = TwoSets((DenseRows(torch.arange(300.0)[:, None]),) * 2, (drawn[0], drawn[1]))
    folds = assign_folds(data, 3, seed=0)
    seen = []

    def train(sets, its_folds, priors, number):
        seen.append((sets, its_folds))
        right = np.random.default_rng(number).random(300) < 0.9
        found = [torch.from_numpy(np.where(right == y, 1.0, -1.0)[part.numpy()]).float() for part in sets.index]
        return CrossFit([Linear(1)] * 3, [History()] * 3, [1.0] * 3, (found[0], found[1]), torch.float32)

    refine(train, data, folds, (0.8, 0.2), 0.5, rounds=1)
    (before, old), (after, new) = seen
    of_row = dict(zip(torch.cat(before.index).tolist(), np.concatenate(old).tolist(), strict=True))
    assert sorted(torch.cat(after.index).tolist()) == sorted(torch.cat(before.index).tolist())
    assert [of_row[row] for row in torch.cat(after.index).tolist()] == np.concatenate(new).tolist()


def test_a_round_that_is_worse_is_not_kept_and_ends_it(pool):
    data, y, folds = pool
    seen = []
    found = refine(scripted(y, [0.9, 0.8, 0.99], seen), data, folds, PRIORS, 0.5, rounds=2)
    assert [done.better for done in found.rounds] == [True, False]
    assert found.stop_reason == "round 1 was no better"
    assert found.kept == 0
    assert ((torch.cat(found.scores).numpy() > 0) == y).mean() == pytest.approx(0.9, abs=0.01)
    assert len(seen) == 2


def test_a_gain_within_noise_is_doubted(pool):
    data, y, folds = pool
    outcomes = [
        refine(scripted(y, [0.9, 0.903], []), data, folds, PRIORS, 0.5, rounds=1, doubt=doubt).rounds[1].better
        for doubt in (-10.0, 10.0)
    ]
    assert outcomes == [True, False]


def test_no_rounds_is_the_first_training(pool):
    data, y, folds = pool
    found = refine(scripted(y, [0.9], []), data, folds, PRIORS, 0.5, rounds=0)
    assert len(found.rounds) == 1
    assert found.rounds[0].set_priors == PRIORS
    assert found.rounds[0].set_sizes == (1500, 2500)
    assert found.rounds[0].gain is None


def test_models_that_cannot_sort_are_not_asked_to(pool):
    data, y, folds = pool
    found = refine(scripted(y, [0.5], []), data, folds, PRIORS, 0.5, rounds=1)
    assert "too badly to sort rows" in found.stop_reason
    few = np.zeros(4000, dtype=bool)
    few[:2] = True

    def one_sided(sets, its_folds, priors, number):
        scores = [torch.where(torch.from_numpy(few)[index], 1.0, -1.0) for index in sets.index]
        return CrossFit([Linear(1)] * 3, [History()] * 3, [1.0] * 3, (scores[0], scores[1]), torch.float32)

    # Priors under which two positives of 4,000 rows are a good classifier, so that only their number is at fault.
    found = refine(one_sided, data, folds, (0.0014, 0.0), 0.5, rounds=1)
    assert "too few rows are predicted" in found.stop_reason


# ------------------------------------------------------------------------------------------------- the estimator


@pytest.fixture(scope="module")
def hard():
    """Classes far apart in sets that are nearly alike: noise in the memberships is what limits the first training."""
    rng = np.random.default_rng(3)

    def draw(n, prior):
        y = rng.random(n) < prior
        X = rng.normal(size=(n, 20))
        X[:, :4] += 1.4 * (2 * y[:, None] - 1)
        return X, y

    (X0, _), (X1, _), (X, y) = draw(600, 0.6), draw(600, 0.4), draw(4000, 0.5)
    return X0, X1, X, y


def refining(**changes):
    settings = {"members": 3, "rounds": 2, "model_params": {"hidden": (32,)}, "epochs": 30, "lr": 0.01, "ema": 0.9}
    settings |= {"batch_size": 200, "keep": "best", "loss": "sigmoid", "method": "abs", "random_state": 0}
    return UUClassifier((0.6, 0.4), 0.5, **settings | {"progress": False} | changes)


def test_refinement_gains_where_memberships_are_noise(hard):
    X0, X1, X, y = hard
    plain, refined = refining(rounds=0).fit_sets(X0, X1), refining().fit_sets(X0, X1)
    assert plain.refinement_ is None
    rounds = refined.refinement_
    assert rounds[0].judgement == plain.cross_fitted_
    assert rounds[1].better
    before, after = ((classifier.predict(X) == y).mean() for classifier in (plain, refined))
    assert after > before + 0.02
    assert f"refinement, round 1: sets with {rounds[1].set_priors[0]:.1%}" in refined.summary()
    assert ", kept" in refined.summary()


def test_one_table_or_two_and_saving(hard, tmp_path):
    X0, X1, X, _ = hard
    settings = {"rounds": 1, "epochs": 8, "members": 2, "calibrated": True}
    apart = refining(**settings).fit_sets(X0, X1)
    together = refining(**settings).fit(np.concatenate([X0, X1]), np.repeat([0, 1], 600))
    np.testing.assert_allclose(together.decision_function(X), apart.decision_function(X), rtol=1e-5, atol=1e-5)
    apart.save(tmp_path / "model")
    loaded = UUClassifier.load(tmp_path / "model")
    assert loaded.refinement_ == apart.refinement_
    assert loaded.summary() == apart.summary()
    np.testing.assert_array_equal(loaded.predict_proba(X), apart.predict_proba(X))


def test_an_interrupted_refinement_goes_on_where_it_was(hard, tmp_path):
    X0, X1, X, _ = hard
    settings = {"rounds": 1, "epochs": 4, "members": 2, "checkpoint_every": 1}
    whole = refining(**settings).fit_sets(X0, X1)
    seen = []

    def interrupt(record, model):
        assert isinstance(model, nn.Module)
        seen.append(record["epoch"])
        if len(seen) == 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        refining(**settings, checkpoint_dir=tmp_path).fit_sets(X0, X1, callback=interrupt)
    after = []
    resumed = refining(**settings, checkpoint_dir=tmp_path).fit_sets(X0, X1, callback=lambda *_: after.append(1))
    assert len(seen) + len(after) == 16 + 1  # the epoch in which it was interrupted is done again
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))


def test_rounds_need_members(hard):
    with pytest.raises(ValueError, match="rounds=2 of refinement .* set members=5, or rounds=0"):
        refining(members=1).fit_sets(*hard[:2])
