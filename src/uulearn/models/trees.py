"""Boosted regression trees as arrays, which are scored without the library that trained them.

The leaves of a tree are numbered from left to right. A node sends a row to the right if ``row[feature] > threshold``;
the row can then reach no leaf of the left subtree. Therefore, the leaf of a row is the first leaf that no node rules
out (Lucchese et al., QuickScorer, SIGIR 2015). With one bit per leaf, this needs no branches, and NumPy evaluates a
tree for many rows at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_LEAVES = 63
"""Maximum number of leaves of a tree: one bit per leaf in a signed 64-bit integer."""
TREE_CHUNK_ROWS = 4096
"""Number of rows that are scored at a time, so that the values of one tree fit into the cache."""

Node = Mapping[str, Any]


@dataclass(frozen=True)
class BoostedTrees:
    """T trees with at most L leaves; the score of a row is the sum of the values of its leaves.

    >>> stump = {"split_feature": 0, "threshold": 0.5, "left_child": {"leaf_value": -1.0},
    ...          "right_child": {"leaf_value": 2.0}}
    >>> BoostedTrees.from_nodes([stump, {"leaf_value": 0.5}]).score(np.array([[0.5], [0.6]], dtype=np.float32))
    array([-0.5,  2.5], dtype=float32)
    """

    features: NDArray[np.int32]
    """Column of each node, shape (T, L − 1)."""
    thresholds: NDArray[np.float32]
    """Threshold of each node, shape (T, L − 1); infinite for unused nodes."""
    masks: NDArray[np.int64]
    """Leaves that remain possible if a row exceeds the threshold, one bit per leaf, shape (T, L − 1)."""
    values: NDArray[np.float64]
    """Value of each leaf, shape (T, L)."""

    @classmethod
    def from_nodes(cls, trees: Sequence[Node]) -> BoostedTrees:
        """Convert trees of nested nodes, as in ``lightgbm.Booster.dump_model``, whose splits are ``x <= threshold``."""
        listed = [_splits_and_leaves(tree) for tree in trees]
        n_leaves = max((len(values) for _, values in listed), default=1)
        features = np.zeros((len(listed), n_leaves - 1), dtype=np.int32)
        thresholds = np.full(features.shape, np.inf)
        masks = np.full(features.shape, -1, dtype=np.int64)
        leaves = np.zeros((len(listed), n_leaves))
        for number, (splits, values) in enumerate(listed):
            leaves[number, : len(values)] = values
            for place, (feature, threshold, left) in enumerate(splits):
                features[number, place], thresholds[number, place], masks[number, place] = feature, threshold, ~left
        return cls(features, round_down(thresholds), masks, leaves)

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.values)

    def first(self, n_trees: int) -> BoostedTrees:
        """Return the first trees."""
        return BoostedTrees(*(part[:n_trees] for part in vars(self).values()))

    def followed_by(self, other: BoostedTrees) -> BoostedTrees:
        """Return these trees and then the others, with the number of leaves of the larger ones."""
        joined = {}
        for name, fill in {"features": 0, "thresholds": np.inf, "masks": -1, "values": 0.0}.items():
            parts = [getattr(trees, name) for trees in (self, other)]
            width = max(part.shape[1] for part in parts)
            padded = [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=fill) for part in parts]
            joined[name] = np.concatenate(padded)
        return BoostedTrees(**joined)

    def score(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the score of each row, shape (n,)."""
        scores = np.empty(len(rows), dtype=np.float32)
        bits = next(bits for bits in (np.uint16, np.uint32, np.uint64) if self.values.shape[1] <= np.iinfo(bits).bits)
        excluded = (~self.masks).astype(bits)
        for start in range(0, len(rows), TREE_CHUNK_ROWS):
            columns = np.ascontiguousarray(rows[start : start + TREE_CHUNK_ROWS].T)
            total = np.zeros(columns.shape[1])
            for feature, threshold, leaves, value in zip(
                self.features, self.thresholds, excluded, self.values, strict=True
            ):
                right = (columns[feature] > threshold[:, None]).view(np.uint8)
                marked = np.bitwise_or.reduce(np.multiply(right, leaves[:, None], dtype=bits), axis=0)
                total += value[_lowest_bit(~marked)]
            scores[start : start + TREE_CHUNK_ROWS] = total
        return scores

    def check(self, n_features: int) -> None:
        """Raise a ValueError if the arrays do not describe trees for rows with this number of columns."""
        n_trees, n_leaves = self.values.shape
        nodes = (n_trees, n_leaves - 1)
        if not 1 <= n_leaves <= MAX_LEAVES or any(
            part.shape != nodes for part in (self.features, self.thresholds, self.masks)
        ):
            raise ValueError(f"the arrays of {n_trees} trees with {n_leaves} leaves have inconsistent shapes")
        if self.features.size and not (self.features.min() >= 0 and self.features.max() < n_features):
            raise ValueError(f"the trees use columns up to {self.features.max()}, but rows have {n_features} columns")
        if not np.isfinite(self.values).all() or np.isnan(self.thresholds).any():
            raise ValueError("the trees contain values that are not finite")
        if not (self.masks & (1 << (n_leaves - 1))).all():  # the last leaf is in no left subtree
            raise ValueError("a node of a tree excludes all leaves")


def round_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the largest float32 that is at most each threshold; float32 rows compare the same with both."""
    rounded = thresholds.astype(np.float32)
    return np.where(rounded <= thresholds, rounded, np.nextafter(rounded, np.float32(-np.inf)))


def _splits_and_leaves(tree: Node) -> tuple[list[tuple[int, float, int]], list[float]]:
    """Return the column, the threshold and the bits of the left subtree for each split, and the values of the leaves.

    A split comes before the splits of its subtrees, and leaves are in order from left to right.
    """
    splits: list[tuple[int, float, int]] = []
    leaves: list[float] = []

    def visit(node: Node) -> None:
        if "leaf_value" in node:
            leaves.append(node["leaf_value"])
            return
        place, first = len(splits), len(leaves)
        splits.append((node["split_feature"], node["threshold"], 0))
        visit(node["left_child"])
        splits[place] = (*splits[place][:2], (1 << len(leaves)) - (1 << first))
        visit(node["right_child"])

    visit(tree)
    return splits, leaves


def _lowest_bit(bits: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.integer[Any]]:
    """Return the position of the lowest bit that is set."""
    if bits.dtype == np.uint16:
        return np.asarray(_lowest_bits()[bits])
    lowest = (bits & (~bits + bits.dtype.type(1))).astype(np.float64)
    return np.frexp(lowest)[1].astype(np.intp) - 1


@functools.cache
def _lowest_bits() -> NDArray[np.uint8]:
    """Return the position of the lowest bit of each 16-bit number, which is faster to look up than to compute."""
    return (np.frexp([float(number & -number) for number in range(1 << 16)])[1] - 1).clip(0).astype(np.uint8)
