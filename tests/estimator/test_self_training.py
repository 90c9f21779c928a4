"""Self-training: pseudo-labels from out-of-fold models, evaluation on halves, and rejected rounds."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from torch import nn

from helpers.plain import plain_classifier
from uulearn import UUClassifier
from uulearn.data import DenseRows, TwoSets
from uulearn.data.folds import assign_folds
from uulearn.estimator import fitting, self_training
from uulearn.estimator.learners import NetworkLearner, OutOfFold
from uulearn.estimator.self_training import Stage, self_train
from uulearn.metrics import evaluate, uu_accuracy_difference
from uulearn.metrics.calibration import calibration_error, decision_values, fit_platt_scaling
from uulearn.models import Ensemble, Linear
from uulearn.training import History, score_rows
from uulearn.training.batched.out_of_fold import Variant

PRIORS = (0.7, 0.3)
SETS = np.repeat([0, 1], [1500, 2500])


@pytest.fixture(scope="module")
def pool():
    """Two sets as row numbers of one table, the class of every row (hidden from the models), and folds."""
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.random(1500) < 0.7, rng.random(2500) < 0.3])
    data = TwoSets((DenseRows(torch.arange(4000.0)[:, None]),) * 2, (torch.arange(1500), torch.arange(1500, 4000)))
    return data, y, assign_folds(data, 3, seed=0)


def ensemble_of(fitted):
    return Ensemble(fitted.models, fitted.scales).eval()


class Script:
    """Models with a given accuracy per stage; the only column holds the row number."""

    def __init__(self, y, *accuracies, other=None):
        self.y, self.accuracies, self.other = y, accuracies, other or {}
        self.calls, self.made, self.scored = [], [], []

    def says(self, stage, rows):
        accuracy = self.other.get(stage, self.accuracies[stage.number])
        right = np.random.default_rng([stage.number, 5]).random(len(self.y)) < accuracy
        return torch.from_numpy(np.where(right == self.y, 1.0, -1.0)).float()[rows]

    def train(self, sets, folds, priors, stage):
        self.calls.append((sets, folds, priors, stage))
        scores = [self.says(stage, index) for index in sets.index]
        fitted = OutOfFold([Linear(1)] * 3, [History()] * 3, [1.0] * 3, (scores[0], scores[1]))
        self.made.append(fitted)
        return fitted

    def stage_of(self, fitted):
        return next(call[3] for call, made in zip(self.calls, self.made, strict=True) if made is fitted)

    def score(self, fitted, rows):
        number = rows.slice(0, rows.n_rows).flatten().long()
        self.scored.append((self.stage_of(fitted), number))
        return self.says(self.stage_of(fitted), number)

    def self_train_rows(self, pool, rounds, **options):
        data, _, folds = pool
        settings = {"seed": 0} | options
        return self_train(self.train, self.score, data, folds, PRIORS, 0.5, rounds=rounds, **settings)

    @property
    def stages(self):
        return [(call[3].number, call[3].half) for call in self.calls]


# --------------------------------------------------------------------------------------------------------- the sorting


def test_rows_are_relabeled_into_purer_sets_with_estimated_priors(pool):
    _, y, folds = pool
    script = Script(y, 0.85, 0.9, 0.95)
    found = script.self_train_rows(pool, 2, pure=False)
    assert script.stages == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (0, None), (1, None), (2, None)]
    assert [done.better for done in found.rounds] == [True, True, True]
    assert found.best_round == 2
    assert found.stop_reason == "all 2 rounds done"
    for (sets, new_folds, priors, _), done in zip(script.calls[-3:], found.rounds, strict=True):
        both = np.concatenate([index.numpy() for index in sets.index])
        assert sorted(both.tolist()) == list(range(4000))  # every row is in one of the new sets
        assert done.set_priors == priors
        assert done.set_sizes == sets.sizes
        for index, prior, fold in zip(sets.index, priors, new_folds, strict=True):
            assert y[index.numpy()].mean() == pytest.approx(prior, abs=0.04), done.number
            np.testing.assert_array_equal(fold, np.concatenate(folds)[index.numpy()])  # and stays in its fold
    assert found.rounds[1].set_priors[0] > 0.8 > 0.2 > found.rounds[1].set_priors[1]
    assert found.best is script.made[-1]


def test_pseudo_labeled_sets_are_trained_as_pure(pool):
    script, honest = Script(pool[1], 0.85, 0.9, 0.95), Script(pool[1], 0.85, 0.9, 0.95)
    found, other = script.self_train_rows(pool, 2), honest.self_train_rows(pool, 2, pure=False)
    trained = {stage: priors for _, _, priors, stage in script.calls}
    assert {priors for stage, priors in trained.items() if stage.number == 0} == {PRIORS}
    assert {priors for stage, priors in trained.items() if stage.number} == {(1.0, 0.0)}
    assert found.rounds == other.rounds  # the estimates are reported in both cases


def test_each_half_is_trained_alone_and_evaluated_on_the_other(pool):
    y = pool[1]
    script = Script(y, 0.85, 0.9, 0.95)
    script.self_train_rows(pool, 2)
    rows = {stage: torch.cat(sets.index).tolist() for sets, _, _, stage in script.calls}
    first, second = set(rows[Stage(0, 0)]), set(rows[Stage(0, 1)])
    assert not first & second
    assert first | second == set(range(4000))
    for sets, folds, _, stage in script.calls[:2]:
        assert sets.sizes == (750, 1250)
        for fold in folds:
            assert np.ptp(np.bincount(fold, minlength=3)) <= 1
        assert set(rows[Stage(2, stage.half)]) == set(rows[Stage(1, stage.half)]) == set(rows[stage])
    assert len(script.scored) == 12  # two sets, two halves, three rounds
    for stage, number in script.scored:
        assert set(number.tolist()) <= (second if stage.half == 0 else first)
    assert sorted(torch.cat([n for stage, n in script.scored if stage.number == 1]).tolist()) == list(range(4000))


def test_halves_depend_only_on_seed(pool):
    scripts = [Script(pool[1], 0.9, 0.8) for _ in range(3)]
    for script, seed in zip(scripts, (1, 1, 2), strict=True):
        script.self_train_rows(pool, 1, seed=seed)
    first, again, other = (script.calls[0][0].index[0].tolist() for script in scripts)
    assert first == again != other


def sorting(data, folds, scores, set_priors, target_prior):
    return self_training._relabel(
        self_training._Pool(data, folds, set_priors, target_prior, None), torch.as_tensor(scores).float()
    )


@settings(max_examples=60, deadline=None)
@given(
    positives=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    negatives=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    called=st.tuples(st.integers(2, 18), st.integers(2, 18)).filter(lambda c: c[0] - c[1] >= 2),
)
def test_priors_of_new_sets_are_exact_for_equal_rates(positives, negatives, called):
    """Sets of 20·p positives and 20·q negatives, with true-positive rate t and false-positive rate f."""
    if positives[0] * negatives[1] == positives[1] * negatives[0]:
        negatives = (negatives[0] + 1, negatives[1])  # the priors must differ; either may be the larger
    block = [np.repeat([True, False], [20 * p, 20 * q]) for p, q in zip(positives, negatives, strict=True)]
    y = np.concatenate(block)
    turn = np.arange(len(y)) % 20
    scores = np.where(turn < np.where(y, *called), 1.0, -1.0) * np.random.default_rng(0).uniform(0.1, 9.0, len(y))
    parts = torch.arange(len(y)).split([len(part) for part in block])
    data = TwoSets((DenseRows(torch.zeros(len(y), 1)),) * 2, (parts[0], parts[1]))
    set_priors = tuple(float(part.mean()) for part in block)
    found = sorting(data, (turn[: len(block[0])] % 2, turn[len(block[0]) :] % 2), scores, set_priors, 0.3)
    np.testing.assert_allclose(found.priors, [y[index.numpy()].mean() for index in found.sets.index], atol=1e-6)
    assert set(found.sets.index[0].tolist()) == set(np.flatnonzero(scores > 0).tolist())


def test_rates_outside_bounds_are_clipped():
    """80% of set 0 and 20% of set 1 are predicted positive, beyond what the priors allow: t = 1.25, f = −0.25."""
    scores = torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0, 1.0, -1.0, -1.0, -1.0, -1.0]).repeat_interleave(6)
    data = TwoSets((DenseRows(torch.zeros(60, 1)),) * 2, (torch.arange(30), torch.arange(30, 60)))
    assert sorting(data, (np.arange(30) % 2, np.arange(30) % 2), scores, PRIORS, 0.5).priors == (1.0, 0.0)


def test_copies_share_a_fold_and_a_half():
    rng = np.random.default_rng(1)
    y = rng.random(300) < 0.5
    index = rng.choice(np.flatnonzero(y), 300), rng.choice(np.flatnonzero(~y), 200)  # many rows repeat
    shared = rng.choice(300, 200)
    drawn = [torch.from_numpy(np.concatenate([part, shared])) for part in index]
    data = TwoSets((DenseRows(torch.arange(300.0)[:, None]),) * 2, (drawn[0], drawn[1]))
    script = Script(y, 0.9, 0.95)
    self_train(
        script.train, script.score, data, assign_folds(data, 3, 0), (0.8, 0.2), 0.5, rounds=1, seed=0, min_gain=-9.0
    )
    folds_of = {}
    for sets, folds, _, stage in script.calls:
        rows = torch.cat(sets.index).tolist()
        of_row = dict(zip(rows, np.concatenate(folds).tolist(), strict=True))
        assert [of_row[row] for row in rows] == np.concatenate(folds).tolist()
        folds_of.setdefault(stage.half, []).append((sorted(rows), of_row))
    for before, after in folds_of.values():
        assert before == after
    assert not folds_of[0][0][1].keys() & folds_of[1][0][1].keys()
    assert sorted(folds_of[0][0][0] + folds_of[1][0][0]) == sorted(torch.cat(drawn).tolist())


# ---------------------------------------------------------------------------------------------------------- the choice


@pytest.mark.parametrize(
    ("accuracies", "better", "used"),
    [
        ((0.85, 0.9, 0.95), (True, True, True), 2),
        ((0.8, 0.9, 0.85), (True, True, False), 1),
        ((0.9, 0.8, 0.99), (True, False, True), 2),  # a bad round does not end self-training
        ((0.9, 0.8, 0.85), (True, False, False), 0),  # better than round 1 is not enough
    ],
)
def test_better_round_replaces_best_round(pool, accuracies, better, used):
    y = pool[1]
    script = Script(y, *accuracies)
    found = script.self_train_rows(pool, 2)
    assert tuple(done.better for done in found.rounds) == better
    assert found.best_round == used
    on_all = [stage for stage in script.stages if stage[1] is None]
    assert on_all == [(number, None) for number in range(used + 1)]  # no additional rounds are trained
    assert script.stage_of(found.best) == (used, None)
    scores = {number: script.says(Stage(number, None), torch.arange(4000)).numpy() for number in range(3)}
    best = 0
    for done in found.rounds:
        assert done.evaluation == evaluate(scores[done.number], SETS, PRIORS, 0.5)
        assert done.evaluation.accuracy.value == pytest.approx(accuracies[done.number], abs=4 * 0.02)
        if done.number:
            assert done.gain == uu_accuracy_difference(scores[done.number], scores[best], SETS, PRIORS, 0.5)
            best = done.number if done.better else best
    np.testing.assert_array_equal(torch.cat(found.scores), scores[used])
    assert [len(part) for part in found.scores] == [1500, 2500]


def test_round_run_on_halves_reports_mean_priors_and_total_sizes(pool):
    script = Script(pool[1], 0.9, 0.8)
    tried = script.self_train_rows(pool, 1).rounds[1]
    trained = [(sets.sizes, stage) for sets, _, _, stage in script.calls if stage.number == 1]
    assert [stage.half for _, stage in trained] == [0, 1]
    assert tried.set_sizes == tuple(np.sum([sizes for sizes, _ in trained], axis=0))
    honest = Script(pool[1], 0.9, 0.8)
    honest.self_train_rows(pool, 1, pure=False)
    priors = [priors for _, _, priors, stage in honest.calls if stage.number == 1]
    assert priors[0] != priors[1]
    assert tried.set_priors == pytest.approx(np.mean(priors, axis=0))


def test_gain_within_noise_is_not_used(pool):
    found = [Script(pool[1], 0.9, 0.903).self_train_rows(pool, 1, min_gain=doubt).rounds[1] for doubt in (-10.0, 10.0)]
    assert [done.better for done in found] == [True, False]
    gain = found[0].gain
    just = [
        Script(pool[1], 0.9, 0.903).self_train_rows(pool, 1, min_gain=gain.unclipped / gain.standard_error + d)
        for d in (-1e-6, 1e-6)
    ]
    assert [done.best_round for done in just] == [1, 0]


def test_zero_rounds_equals_first_training(pool):
    script = Script(pool[1], 0.9)
    found = script.self_train_rows(pool, 0)
    assert script.stages == [(0, None)]
    assert found.rounds == []
    assert (found.best_round, found.best) == (0, script.made[0])
    assert torch.cat(found.scores).equal(torch.cat(found.best.scores))


def test_stops_if_models_separate_classes_poorly(pool):
    found = Script(pool[1], 0.5).self_train_rows(pool, 1)
    assert "too poorly to label rows" in found.stop_reason
    assert [done.number for done in found.rounds] == [0]
    data, _, folds = pool
    few = torch.full((4000,), -1.0)
    few[:2] = 1.0
    # With these priors, two predicted positives among 4,000 rows are accurate but too few.
    assert "too few rows are predicted" in sorting(data, folds, few, (0.0014, 0.0), 0.5)


@pytest.mark.parametrize("half", [0, 1])
def test_stops_if_one_half_cannot_be_relabeled(pool, half):
    script = Script(pool[1], 0.85, 0.95, 0.99, other={Stage(1, half): 0.5})
    found = script.self_train_rows(pool, 2)
    assert script.stages[:4] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(number < 2 for number, _ in script.stages)
    assert [done.number for done in found.rounds] == [0, 1]
    assert "too poorly to label rows" in found.stop_reason


def test_stops_if_all_rows_cannot_be_relabeled(pool):
    y = pool[1]
    nothing = Script(y, 0.85, 0.9, 0.95, other={Stage(0, None): 0.5}).self_train_rows(pool, 2)
    assert nothing.best_round == 0
    assert [done.better for done in nothing.rounds] == [True, False, False]
    assert "too poorly to label rows" in nothing.stop_reason
    script = Script(y, 0.9, 0.8, 0.95, other={Stage(1, None): 0.5})
    found = script.self_train_rows(pool, 2)
    assert script.stages[-2:] == [(0, None), (1, None)]
    assert found.best_round == 0  # round 1 was run, but only as a step to round 2
    assert [done.better for done in found.rounds] == [True, False, False]
    assert torch.cat(found.scores).equal(torch.cat(found.best.scores))
    partly = Script(y, 0.85, 0.9, 0.95, other={Stage(1, None): 0.5}).self_train_rows(pool, 2)
    assert [done.better for done in partly.rounds] == [True, True, False]
    assert partly.best_round == 1


# -------------------------------------------------------------------------------------------------------- the fairness


class Nearest(nn.Module):
    """Memorizes every row and predicts the set of the nearest neighbor."""

    def __init__(self, rows, sides):
        super().__init__()
        self.rows, self.sides = rows, sides

    def forward(self, x):
        return self.sides[torch.cdist(x, self.rows).argmin(1)]


def remember(sets, folds):
    rows = [sets.take(which, torch.arange(size)) for which, size in enumerate(sets.sizes)]
    models, scores = [], [torch.empty(size) for size in sets.sizes]
    for fold in range(3):
        out = [torch.from_numpy(part != fold) for part in folds]
        sides = [torch.full((int(part.sum()),), side) for part, side in zip(out, (1.0, -1.0), strict=True)]
        models.append(Nearest(torch.cat([r[part] for r, part in zip(rows, out, strict=True)]), torch.cat(sides)))
        for which in (0, 1):
            scores[which][~out[which]] = models[-1](rows[which][~out[which]])
    return OutOfFold(models, [History()] * 3, [1.0] * 3, (scores[0], scores[1]))


def remembered(seed, n=250, priors=(0.8, 0.2)):
    """Run one round with memorizing models; return the gain on halves, the out-of-fold gain and the true gain."""
    rng = np.random.default_rng(seed)

    def draw(size, prior):
        y = rng.random(size) < prior
        return torch.from_numpy(rng.normal(size=(size, 3)) + 1.2 * (2 * y[:, None] - 1)).float(), y

    (first, _), (second, _), (fresh, y) = draw(n, priors[0]), draw(n, priors[1]), draw(1000, 0.5)
    table = DenseRows(torch.cat([first, second]))
    data = TwoSets((table, table), (torch.arange(n), torch.arange(n, 2 * n)))
    made = {}

    def train(sets, folds, _, stage):
        made[stage] = remember(sets, folds), torch.cat(sets.index)
        return made[stage][0]

    def accuracy(*stage):
        return ((ensemble_of(made[Stage(*stage)][0])(fresh).numpy() > 0) == y).mean()

    folds = assign_folds(data, 3, seed)
    found = self_train(
        train,
        lambda fit, x: score_rows(ensemble_of(fit), x),
        data,
        folds,
        priors,
        0.5,
        rounds=1,
        seed=seed,
        min_gain=-1e9,
    )
    out_of_fold = np.empty((2, 2 * n))
    for number in (0, 1):
        fitted, index = made[Stage(number, None)]
        out_of_fold[number, index.numpy()] = torch.cat(fitted.scores)
    leaked = uu_accuracy_difference(out_of_fold[1], out_of_fold[0], np.repeat([0, 1], n), priors, 0.5)
    true = np.mean([accuracy(1, half) - accuracy(0, half) for half in (0, 1)])
    return *(v for gain in (found.rounds[1].gain, leaked) for v in (gain.unclipped, gain.standard_error)), true


def test_estimated_gain_is_unbiased_for_memorizing_models():
    """Nearest neighbors gain nothing by a round. Out-of-fold scores see 27 points and take it every time,
    because nearest neighbors pass on their sets to each other; scores of the other half do not."""
    fair, error, leaked, its_error, true = np.array([remembered(seed) for seed in range(60)]).T
    assert abs(true.mean()) < 0.01
    assert leaked.mean() > 0.2
    assert (leaked > its_error).all()
    bias = fair - true
    assert abs(bias.mean()) < 3 * bias.std() / np.sqrt(60)
    assert bias.std() / np.sqrt(60) < 0.01  # precise enough to detect a leak of three points
    assert 0.75 < (bias / error).std() < 1.3  # the standard errors are correct
    assert (fair > error).mean() < 0.3  # 16% by chance, within three standard errors of 60 draws


class Centers(nn.Module):
    """Scores along the line through the centers of two sets of rows."""

    def __init__(self, first, second):
        super().__init__()
        self.way = first.mean(0) - second.mean(0)

    def forward(self, x):
        return x @ self.way


def slopes(seed, n=300, columns=50, priors=(0.7, 0.3)):
    """Slopes of a round's log-odds relative to log-odds fitted with labels, for halves and for folds."""
    rng = np.random.default_rng(seed)

    def draw(size, prior):
        y = rng.random(size) < prior
        X = rng.normal(size=(size, columns))
        X[:, 0] += 2.0 * y - 1.0
        return torch.from_numpy(X).float(), y

    (first, _), (second, _), (fresh, y) = draw(n, priors[0]), draw(n, priors[1]), draw(2000, 0.5)
    table = DenseRows(torch.cat([first, second]))
    data = TwoSets((table, table), (torch.arange(n), torch.arange(n, 2 * n)))
    out_of_fold = torch.empty(2 * n)

    def train(sets, folds, _, stage):
        rows = [sets.take(which, torch.arange(size)) for which, size in enumerate(sets.sizes)]
        models, scales, scores = [], [], [torch.empty(size) for size in sets.sizes]
        for fold in range(3):
            inside = [torch.from_numpy(part == fold) for part in folds]
            models.append(Centers(*(r[~part] for r, part in zip(rows, inside, strict=True))))
            found = [models[-1](r[part]) for r, part in zip(rows, inside, strict=True)]
            scales.append(float(torch.cat(found).abs().mean()))
            for which in (0, 1):
                scores[which][inside[which]] = found[which] / scales[-1]
        if stage == (1, None):
            out_of_fold[torch.cat(sets.index)] = torch.cat(scores)
        return OutOfFold(models, [History()] * 3, scales, (scores[0], scores[1]))

    found = self_train(
        train,
        lambda fit, x: score_rows(ensemble_of(fit), x),
        data,
        assign_folds(data, 3, seed),
        priors,
        0.5,
        rounds=1,
        seed=seed,
        min_gain=-1e9,
    )
    final, sets = ensemble_of(found.best)(fresh).numpy(), np.repeat([0, 1], n)
    best = LogisticRegression(C=1e6).fit(final[:, None], y).coef_[0, 0]
    fair, leaked = (fit_platt_scaling(s.numpy(), sets, priors, 0.5) for s in (torch.cat(found.scores), out_of_fold))
    return fair.slope / best, leaked.slope / best, calibration_error(expit(fair.log_odds(final)), y)


def test_scores_of_halves_give_calibrated_probabilities():
    """Out-of-fold scores depend on the sets of their rows, which makes log-odds a third too steep."""
    fair, leaked, error = np.array([slopes(seed) for seed in range(30)]).T
    assert 0.8 < np.median(fair) < 1.1
    assert np.median(leaked) > 1.2
    assert error.mean() < 0.07  # the limit for 600 rows at (0.7, 0.3); without self-training it is 0.06


# ------------------------------------------------------------------------------------------------------- the estimator


def draw_sets(seed, n, set_priors):
    """Two sets and labeled rows of classes that are far apart in four of twenty columns."""
    rng = np.random.default_rng(seed)

    def draw(size, prior):
        y = rng.random(size) < prior
        X = rng.normal(size=(size, 20))
        X[:, :4] += 1.4 * (2 * y[:, None] - 1)
        return X, y

    (X0, _), (X1, _), (X, y) = draw(n, set_priors[0]), draw(n, set_priors[1]), draw(4000, 0.5)
    return X0, X1, X, y


@pytest.fixture(scope="module")
def hard():
    """Similar sets: noise in the set membership limits the first training."""
    return draw_sets(3, 600, (0.6, 0.4))


@pytest.fixture(scope="module")
def easy():
    """Sets that a short training can distinguish."""
    return draw_sets(4, 300, (0.9, 0.1))


def self_training_classifier(**changes):
    settings = {
        "set_priors": (0.6, 0.4),
        "target_prior": 0.5,
        "n_estimators": 3,
        "self_training_rounds": 2,
        "progress": False,
    }
    settings |= {"model_params": {"hidden": (16,)}, "epochs": 15, "lr": 0.01, "ema": 0.9, "batch_size": 300}
    settings |= {"early_stopping": True, "loss": "sigmoid", "method": "abs", "random_state": 0}
    return plain_classifier(**settings | changes)


SHORT = {
    "set_priors": (0.9, 0.1),
    "self_training_rounds": 1,
    "epochs": 4,
    "n_estimators": 2,
    "lr": 0.1,
    "batch_size": 40,
}
SHORT |= {"model": "linear", "model_params": None}


@pytest.fixture
def doubted(monkeypatch):
    """Set the minimum gain of a round, and record the result of `self_train`."""
    box = {}

    def set_doubt(doubt):
        def with_doubt(*arguments, **options):
            box["found"] = self_train(*arguments, **options, min_gain=doubt)
            return box["found"]

        monkeypatch.setattr(fitting, "self_train", with_doubt)
        return box

    return set_doubt


def test_self_training_gains_if_set_membership_is_noisy(hard):
    X0, X1, X, y = hard
    plain, self_trained = (
        self_training_classifier(self_training_rounds=0).fit_sets(X0, X1),
        self_training_classifier().fit_sets(X0, X1),
    )
    assert plain.self_training_ is None
    first, second, third = self_trained.self_training_
    assert second.better != third.better
    used = second if second.better else third
    before, after = ((classifier.predict(X) == y).mean() for classifier in (plain, self_trained))
    assert after > before + 0.02
    assert self_trained.out_of_fold_evaluation_ == used.evaluation  # unbiased scores from models of half of the rows
    assert first.set_priors == (0.6, 0.4)
    assert sum(third.set_sizes) == 1200
    lines = [line for line in self_trained.summary().splitlines() if line.startswith("self-training round ")]
    assert lines[0].startswith(f"self-training round 1: sets with class priors {second.set_priors[0]:.1%}")
    assert f"gained {100 * second.gain.value:+.2f} points" in lines[0]
    assert [line.rpartition(", ")[2] for line in lines] == [
        "used" if done.better else "no better" for done in (second, third)
    ]
    assert (
        "then self-trained; accuracy of models trained on one half of the rows and evaluated on the other, estimated"
        in self_trained.summary()
    )


def test_self_training_is_not_worse_if_nothing_can_be_gained(gaussians, quick):
    """Easy classes: with and without self-training the accuracy is the same within noise."""
    X, y = gaussians["X_test"], gaussians["y_test"]
    changes = quick | {"n_estimators": 3, "early_stopping": True, "progress": False}
    plain, self_trained = (
        UUClassifier(**changes, self_training_rounds=n).fit(gaussians["X"], gaussians["sets"]) for n in (0, 1)
    )
    gained = (self_trained.predict(X) == y).astype(float) - (plain.predict(X) == y)
    assert gained.mean() >= -2 * gained.std() / np.sqrt(len(y))


def test_zero_used_rounds_equals_classifier_without_self_training(easy, doubted):
    X0, X1, X, _ = easy
    doubted(1e9)
    plain = self_training_classifier(**SHORT | {"self_training_rounds": 0, "calibrated": True}).fit_sets(X0, X1)
    self_trained = self_training_classifier(**SHORT | {"calibrated": True}).fit_sets(X0, X1)
    np.testing.assert_array_equal(self_trained.decision_function(X), plain.decision_function(X))
    assert self_trained.out_of_fold_evaluation_ == plain.out_of_fold_evaluation_
    assert self_trained.scaling_ == plain.scaling_
    assert self_trained.history_.to_dict().keys() == plain.history_.to_dict().keys()
    assert [done.better for done in self_trained.self_training_] == [True, False]
    assert "each trained without one fold and evaluated on it" in self_trained.summary()
    assert self_trained.summary().count("no better") == 1


def test_used_round_is_calibrated_on_halves(easy, doubted):
    X0, X1, *_ = easy
    box = doubted(-1e9)
    self_trained = self_training_classifier(**SHORT | {"calibrated": True}).fit_sets(X0, X1)
    fair = torch.cat(box["found"].scores)
    assert box["found"].best_round == 1
    assert not fair.equal(torch.cat(box["found"].best.scores))
    sets = np.repeat([0, 1], 300)
    assert self_trained.scaling_ == fit_platt_scaling(fair.double().numpy(), sets, (0.9, 0.1), 0.5)
    decisions = decision_values(fair.numpy(), self_trained.scaling_)
    found, expected = self_trained.out_of_fold_evaluation_, evaluate(decisions, sets, (0.9, 0.1), 0.5)
    assert found.accuracy.value == pytest.approx(expected.accuracy.value, abs=0.01)  # thresholds of folds differ


def test_scores_of_halves_have_scale_of_ensemble(easy, doubted):
    X0, X1, *_ = easy
    box = doubted(-1e9)
    plain = self_training_classifier(**SHORT).fit_sets(X0, X1)
    scores = torch.cat(box["found"].scores)
    assert scores.abs().mean() == pytest.approx(1.0, abs=0.15)  # models are divided by their mean magnitude
    scaled = self_training_classifier(**SHORT, input_scale=0.25).fit_sets(4 * X0, 4 * X1)
    torch.testing.assert_close(torch.cat(box["found"].scores), scores)
    assert scaled.self_training_ == plain.self_training_


def test_summary_describes_each_round(easy, doubted):
    X0, X1, *_ = easy
    doubted(-1e9)
    classifier = self_training_classifier(**SHORT).fit_sets(X0, X1)
    first, second = classifier.self_training_
    classifier.self_training_ = [
        first,
        second,
        *(dataclasses.replace(second, number=n, better=n == 3) for n in (2, 3, 4)),
    ]
    lines = [line for line in classifier.summary().splitlines() if line.startswith("self-training round ")]
    assert [line.partition(":")[0][-1] for line in lines] == ["1", "2", "3", "4"]
    assert [line.rpartition(", ")[2] for line in lines] == ["better", "no better", "used", "no better"]


def test_self_training_with_one_table_two_tables_and_saving(easy, tmp_path, doubted):
    X0, X1, X, _ = easy
    doubted(-1e9)
    changes = SHORT | {"epochs": 8, "calibrated": True}
    apart = self_training_classifier(**changes).fit_sets(X0, X1)
    together = self_training_classifier(**changes).fit(np.concatenate([X0, X1]), np.repeat([0, 1], 300))
    np.testing.assert_allclose(together.decision_function(X), apart.decision_function(X), rtol=1e-5, atol=1e-5)
    assert together.self_training_ == apart.self_training_
    assert apart.self_training_[1].better
    apart.save(tmp_path / "model")
    loaded = UUClassifier.load(tmp_path / "model")
    assert loaded.self_training_ == apart.self_training_
    assert loaded.out_of_fold_evaluation_ == apart.out_of_fold_evaluation_
    assert loaded.summary() == apart.summary()
    np.testing.assert_array_equal(loaded.predict_proba(X), apart.predict_proba(X))


@pytest.mark.parametrize("after", [14, 21, 38])  # in both halves and rounds, and on all rows
def test_resumed_self_training_equals_uninterrupted(easy, tmp_path, doubted, after):
    X0, X1, X, _ = easy
    doubted(-1e9)
    changes = SHORT | {"checkpoint_every": 1}
    whole = self_training_classifier(**changes).fit_sets(X0, X1)
    seen = []

    def interrupt(record, model):
        assert isinstance(model, nn.Module)
        seen.append(record["epoch"])
        if len(seen) == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        self_training_classifier(**changes, checkpoint_dir=tmp_path).fit_sets(X0, X1, callback=interrupt)
    rest = []
    resumed = self_training_classifier(**changes, checkpoint_dir=tmp_path).fit_sets(
        X0, X1, callback=lambda *_: rest.append(1)
    )
    # Six stages of two models and four epochs; the interrupted epoch is repeated.
    assert len(seen) + len(rest) == 48 + 1
    np.testing.assert_array_equal(resumed.decision_function(X), whole.decision_function(X))
    assert resumed.self_training_ == whole.self_training_
    assert resumed.self_training_[1].better


def test_every_stage_has_its_own_seed_and_folder():
    stages = [Stage(number, half) for number in range(3) for half in (None, 0, 1)]
    assert Stage(0, None).seed(7) == 7
    assert Stage(0, None).path == ()
    assert len({stage.seed(7) for stage in stages}) == len({stage.path for stage in stages}) == 9
    assert Stage(2, None).path == ("round-2",)
    assert Stage(0, 1).path == ("half-1",)
    assert Stage(2, 1).path == ("half-1", "round-2")


def test_models_of_a_stage_can_be_batched(easy, monkeypatch, doubted):
    X0, X1, X, _ = easy
    doubted(-1e9)
    changes = SHORT | {"precision": "float32"}
    single = self_training_classifier(**changes).fit_sets(X0, X1)
    sizes = []

    def batched(self, task, chosen=None):
        sizes.append(sum(task.data.sizes))
        return self.train_variants(task, [Variant(self.risk(task.set_priors, task.target_prior))], range(2))[0]

    monkeypatch.setattr(NetworkLearner, "train_folds", batched)
    together = self_training_classifier(**changes).fit_sets(X0, X1)
    assert sizes == [300, 300, 300, 300, 600, 600]
    assert together.self_training_[1].better
    agree = (together.predict(X) == single.predict(X)).mean()
    assert agree > 0.9  # batched training leaves out a row of uneven folds, which changes a few pseudo-labels


def test_rounds_need_several_models_and_enough_rows(easy):
    with pytest.raises(
        ValueError,
        match="self_training_rounds=2 needs out-of-fold predictions.* set n_estimators=5, or self_training_rounds=0",
    ):
        self_training_classifier(n_estimators=1).fit_sets(*easy[:2])
    X0, X1 = easy[:2]
    with pytest.raises(ValueError, match="which needs 10 rows per set, but one set has 9; use fewer models"):
        self_training_classifier(n_estimators=5).fit_sets(X0[:9], X1)
    self_training_classifier(**SHORT | {"n_estimators": 5, "epochs": 1}).fit_sets(X0[:10], X1)
