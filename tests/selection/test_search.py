"""Scorers and splitters in scikit-learn's searches, without labels."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers.plain import plain_classifier
from uulearn.metrics import uu_accuracy, uu_auc, uu_balanced_accuracy
from uulearn.selection import SetKFold, UUScorer


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    sets = np.repeat([0, 1], [500, 700])
    y = rng.random(1200) < np.where(sets == 0, 0.8, 0.3)
    return rng.normal(size=(1200, 3)) + 0.8 * (2 * y[:, None] - 1), sets


def linear(**changes):
    settings = {"model": "linear", "lr": 0.05, "epochs": 15, "batch_size": 400, "random_state": 0, "progress": False}
    return plain_classifier((0.8, 0.3), 0.4, **settings | changes)


# ------------------------------------------------------------------------------------------------------- scorers


def test_scorer_uses_priors_of_the_estimator(data):
    X, sets = data
    classifier = linear().fit(X, sets)
    scores = classifier.decision_function(X)
    assert UUScorer()(classifier, X, sets) == uu_accuracy(scores, sets, (0.8, 0.3), 0.4).unclipped
    assert UUScorer()(classifier, X, sets) == pytest.approx(classifier.score(X, sets), abs=1e-6)
    balanced = UUScorer("balanced_accuracy")
    assert balanced(classifier, X, sets) == uu_balanced_accuracy(scores, sets, (0.8, 0.3)).unclipped
    assert UUScorer("auc").estimate(classifier, X, sets) == uu_auc(scores, sets, (0.8, 0.3))
    elsewhere = UUScorer(set_priors=(0.9, 0.2), target_prior=0.7)
    assert elsewhere(classifier, X, sets) == uu_accuracy(scores, sets, (0.9, 0.2), 0.7).unclipped


class OnlyClasses(ClassifierMixin, BaseEstimator):
    def predict(self, X):
        return (np.asarray(X)[:, 0] > 0).astype(int)


def test_any_classifier_can_be_scored(data):
    X, sets = data
    scorer = UUScorer(set_priors=(0.8, 0.3), target_prior=0.4)
    forest = RandomForestClassifier(10, random_state=0).fit(X, 1 - sets)
    expected = uu_accuracy(forest.predict_proba(X)[:, 1] - 0.5, sets, (0.8, 0.3), 0.4).unclipped
    assert scorer(forest, X, sets) == expected
    assert scorer(OnlyClasses(), X, sets) == uu_accuracy(X[:, 0], sets, (0.8, 0.3), 0.4).unclipped
    with pytest.raises(ValueError, match=r"RandomForestClassifier has no set_priors; pass it to UUScorer"):
        UUScorer()(forest, X, sets)
    with pytest.raises(ValueError, match=r"LogisticRegression has no target_prior"):
        UUScorer(set_priors=(0.8, 0.3))(LogisticRegression().fit(X, sets), X, sets)


def test_search_over_pipeline_finds_better_setting(data):
    X, sets = data
    X = X * np.array([100.0, 1.0, 1.0])
    search = GridSearchCV(
        make_pipeline(StandardScaler(), linear()),
        {"uuclassifier__lr": [1e-7, 0.05]},
        scoring=UUScorer("auc"),
        cv=SetKFold(3, random_state=0),
    ).fit(X, sets)
    assert search.best_params_ == {"uuclassifier__lr": 0.05}
    assert search.best_score_ > 0.8
    assert UUScorer("auc")(search, X, sets) == search.score(X, sets) > 0.8


def test_scorer_can_be_cloned_and_pickled():
    assert repr(UUScorer("auc", set_priors=(0.8, 0.2))) == "UUScorer('auc', set_priors=(0.8, 0.2), target_prior=None)"
    with pytest.raises(ValueError, match="measure must be one of 'accuracy', .* got 'f1'"):
        UUScorer("f1")
    with pytest.raises(ValueError, match="set_priors must differ"):
        UUScorer(set_priors=(0.2, 0.2))
    with pytest.raises(ValueError, match="target_prior must be"):
        UUScorer(target_prior=0)


# ----------------------------------------------------------------------------------------------------- splitters


@given(st.integers(0, 500), st.integers(2, 5), st.integers(8, 40), st.integers(8, 40))
def test_every_row_is_tested_once_and_folds_have_both_sets(seed, n_splits, n0, n1):
    rng = np.random.default_rng(seed)
    sets = rng.permutation(np.repeat([0, 1], [n0, n1]))
    X = rng.normal(size=(n0 + n1, 2))
    tested = []
    for train, test in SetKFold(n_splits, random_state=seed).split(X, sets):
        assert not np.intersect1d(train, test).size
        assert len(train) + len(test) == len(X)
        for which, n in ((0, n0), (1, n1)):
            assert n // n_splits <= np.count_nonzero(sets[test] == which) <= -(-n // n_splits)
        tested += test.tolist()
    assert sorted(tested) == list(range(len(X)))


def as_words(values):
    return pd.DataFrame({"word": values.astype(str), "again": values.astype(str)})


@pytest.mark.parametrize(
    "form",
    [
        lambda v: v[:, None].astype(float),
        lambda v: sparse.csr_matrix(v[:, None]),
        lambda v: pd.DataFrame({"a": v, "b": 2 * v}),
        as_words,
        lambda v: v.astype(np.uint8)[:, None, None] * np.ones((1, 2, 2), dtype=np.uint8),
    ],
)
def test_copies_share_a_fold(form):
    values = np.random.default_rng(0).integers(0, 60, size=200)
    sets = np.arange(200) % 2
    for train, test in SetKFold(4, random_state=1).split(form(values), sets):
        assert not np.intersect1d(values[train], values[test]).size


def test_groups_share_a_fold(data):
    X, sets = data
    groups = np.arange(1200) // 7
    for train, test in SetKFold(4, random_state=1).split(X, sets, groups):
        assert not np.intersect1d(groups[train], groups[test]).size


def test_order_depends_on_seed_only_with_shuffling(data):
    X, sets = data

    def first_fold(**arguments):
        return next(SetKFold(3, **arguments).split(X, sets))[1].tolist()

    assert first_fold(random_state=0) == first_fold(random_state=0) != first_fold(random_state=1)
    assert first_fold(shuffle=False) == first_fold(shuffle=False, random_state=1)
    assert len(cross_val_score(linear(), X, sets, cv=SetKFold(3, random_state=0))) == 3
    assert SetKFold(4).get_n_splits() == 4


def test_splitter_rejects_bad_input():
    X = np.arange(10.0)[:, None]
    with pytest.raises(ValueError, match=r"call split\(X, sets\)"):
        next(SetKFold(2).split(X))
    with pytest.raises(ValueError, match="3 folds need at least 3 rows of each set, but one set has 2"):
        next(SetKFold(3).split(X, np.repeat([0, 1], [8, 2])))
    with pytest.raises(ValueError, match="too many rows must share a fold"):
        list(SetKFold(2, random_state=0).split(X, np.repeat([0, 1], 5), groups=np.repeat([0, 1], 5)))
