"""Boosted trees as arrays score rows exactly as LightGBM does, and damaged arrays are rejected."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uulearn.models.trees import BoostedTrees, round_down


@pytest.fixture(scope="module")
def trained():
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 4)).astype(np.float32)
    X[:, 3] = rng.integers(0, 3, 700)  # thresholds between few distinct values
    y = np.sin(3 * X[:, 0]) * X[:, 1] + X[:, 3]
    parameters = {"num_leaves": 13, "min_data_in_leaf": 3, "verbosity": -1, "num_threads": 1, "use_missing": False}
    booster = lightgbm.train(parameters, lightgbm.Dataset(X, y), 30)
    dumped = booster.dump_model()["tree_info"]
    return booster, BoostedTrees.from_nodes([tree["tree_structure"] for tree in dumped]), X


def test_scores_are_those_of_lightgbm(trained):
    booster, trees, X = trained
    new = np.concatenate([X, np.random.default_rng(1).normal(size=(6000, 4)).astype(np.float32) * 3])
    np.testing.assert_array_equal(trees.score(new), booster.predict(new).astype(np.float32))
    trees.check(4)


@pytest.mark.parametrize("leaves", [2, 16, 17, 32, 33, 63])
def test_number_of_leaves(trained, leaves):
    lightgbm = pytest.importorskip("lightgbm")
    *_, X = trained
    parameters = {"num_leaves": leaves, "min_data_in_leaf": 1, "verbosity": -1, "num_threads": 1}
    booster = lightgbm.train(parameters, lightgbm.Dataset(X, np.sin(5 * X[:, 0]) + X[:, 1] ** 2), 4)
    trees = BoostedTrees.from_nodes([tree["tree_structure"] for tree in booster.dump_model()["tree_info"]])
    assert trees.values.shape == (4, leaves)
    np.testing.assert_array_equal(trees.score(X), booster.predict(X).astype(np.float32))


def test_rows_equal_to_a_threshold_go_left(trained):
    booster, trees, X = trained
    edges = np.repeat(X[:1], trees.thresholds.size, axis=0)
    edges[np.arange(len(edges)), trees.features.ravel()] = trees.thresholds.ravel()
    edges = edges[np.isfinite(edges).all(1)]
    np.testing.assert_array_equal(trees.score(edges), booster.predict(edges).astype(np.float32))


def test_thresholds_are_rounded_down():
    values = np.array([0.5, 0.1, -0.1, 1e-40, 16777217.0, np.inf])
    rounded = round_down(values)
    assert rounded.dtype == np.float32
    assert rounded[0] == 0.5
    assert rounded[-1] == np.inf
    assert (rounded <= values).all()
    assert (values[:-1] < np.nextafter(rounded[:-1], np.float32(np.inf))).all()


def test_trees_without_splits_have_constant_scores():
    trees = BoostedTrees.from_nodes([{"leaf_value": 0.25}] * 2)
    assert trees.score(np.zeros((3, 2), dtype=np.float32)).tolist() == [0.5] * 3
    assert BoostedTrees.from_nodes([]).score(np.zeros((2, 2), dtype=np.float32)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("features", -1, "columns up to"),
        ("features", 4, "columns up to 4, but rows have 4 columns"),
        ("thresholds", np.nan, "not finite"),
        ("values", np.inf, "not finite"),
        ("masks", 0, "excludes all leaves"),
    ],
)
def test_damaged_trees_are_rejected(trained, name, value, message):
    changed = getattr(trained[1], name).copy()
    changed[2, 0] = value
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(trained[1], **{name: changed}).check(4)


def test_inconsistent_shapes_are_rejected(trained):
    with pytest.raises(ValueError, match="inconsistent shapes"):
        dataclasses.replace(trained[1], masks=trained[1].masks[:-1]).check(4)
    wide = np.zeros((1, 70))
    with pytest.raises(ValueError, match="70 leaves"):
        BoostedTrees(wide[:, 1:].astype(np.int32), wide[:, 1:].astype(np.float32), wide[:, 1:] == 0, wide).check(4)


NODES = st.recursive(
    st.builds(lambda value: {"leaf_value": value}, st.floats(-1, 1)),
    lambda node: st.builds(
        lambda column, at, left, right: {
            "split_feature": column, "threshold": at, "left_child": left, "right_child": right,
        },
        st.integers(0, 1), st.floats(-1, 1), node, node,
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(NODES, max_size=3), st.lists(NODES, max_size=3))
def test_joined_trees_equal_trees_converted_together(first, second):
    apart, joint = map(BoostedTrees.from_nodes, (first, second)), BoostedTrees.from_nodes(first + second)
    joined = BoostedTrees.followed_by(*apart)
    for name, part in vars(joint).items():
        np.testing.assert_array_equal(getattr(joined, name), part)
        assert getattr(joined, name).dtype == part.dtype
    X = np.random.default_rng(0).uniform(-1, 1, (20, 2)).astype(np.float32)
    start = BoostedTrees.from_nodes(first)
    np.testing.assert_array_equal(joined.first(start.n_trees).score(X), start.score(X))
