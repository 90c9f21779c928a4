"""Cross-validation folds for two unlabeled sets."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.model_selection import BaseCrossValidator, StratifiedGroupKFold, StratifiedKFold

from uulearn.data.holdout import digests_of
from uulearn.data.rows import DenseRows, SparseRows

Positions = NDArray[np.int64]


class SetKFold(BaseCrossValidator):  # type: ignore[misc]
    """Cross-validator with folds that are stratified by set; all copies of a row are in the same fold.

    If copies of a row were in different folds, a model could be evaluated on rows that it was trained on. Use
    ``groups`` to assign other rows, such as all rows of a patient, to the same fold. Rows are shuffled by default.

    >>> X, sets = np.arange(12.0)[:, None], np.repeat([0, 1], [4, 8])
    >>> for train, test in SetKFold(2, random_state=0).split(X, sets):
    ...     print(np.bincount(sets[train]), np.bincount(sets[test]))
    [2 4] [2 4]
    [2 4] [2 4]
    """

    def __init__(self, n_splits: int = 5, *, shuffle: bool = True, random_state: int | None = None) -> None:
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Positions, Positions]]:
        """Yield the training and test row numbers of each fold; ``y`` contains the set of each row."""
        if y is None:
            raise ValueError("SetKFold needs the set of each row: call split(X, sets).")
        sets = np.asarray(y)
        smallest = min(np.count_nonzero(sets == which) for which in (0, 1))
        if smallest < self.n_splits:
            raise ValueError(
                f"{self.n_splits} folds need at least {self.n_splits} rows of each set, but one set has {smallest}; "
                "use fewer folds or more rows."
            )
        together = _digests(X) if groups is None else np.asarray(groups)
        seed = self.random_state if self.shuffle else None
        if len(np.unique(together)) == len(together):
            folds: Any = StratifiedKFold(self.n_splits, shuffle=self.shuffle, random_state=seed)
            yield from folds.split(np.zeros(len(sets)), sets)
            return
        folds = StratifiedGroupKFold(self.n_splits, shuffle=self.shuffle, random_state=seed)
        for train, test in folds.split(np.zeros(len(sets)), sets, together):
            if any(len(np.unique(sets[part])) < 2 for part in (train, test)):
                raise ValueError("a fold has no rows of one set: too many rows must share a fold; use fewer folds.")
            yield train, test


def _digests(X: Any) -> Positions:
    if sparse.issparse(X):
        return digests_of(SparseRows(X.tocsr()))
    values = np.asarray(X)
    if values.dtype.kind not in "biuf":  # text, dates and other objects are compared as text
        rows = ["\x1f".join(map(str, row)) for row in values.reshape(len(values), -1)]
        return np.unique(rows, return_inverse=True)[1].astype(np.int64)
    return digests_of(DenseRows(torch.from_numpy(np.ascontiguousarray(values))))
