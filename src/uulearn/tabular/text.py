"""Count the words or letter groups of texts, for the encoder and the leakage checks."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import sparse

HASHED = 4096  # number of hashes that distinguish letter groups or words
TEXT_LETTERS = 2000  # maximum length of a cell; longer cells are truncated


def count_groups(cells: Iterable[Any], *, long: bool) -> Any:
    """Return log-scaled counts of words and word pairs (long text), or of groups of 2 to 4 letters (short text).

    The result is a sparse matrix with one row per cell and `HASHED` columns; None is treated as empty text.
    """
    from sklearn.feature_extraction.text import HashingVectorizer  # slow to import

    groups = {"analyzer": "word", "ngram_range": (1, 2)} if long else {"analyzer": "char_wb", "ngram_range": (2, 4)}
    hashing = HashingVectorizer(n_features=HASHED, alternate_sign=False, norm=None, **groups)
    texts = [cell[:TEXT_LETTERS] if isinstance(cell, str) else "" for cell in cells]
    counts = sparse.csr_matrix(hashing.transform(texts)) if texts else sparse.csr_matrix((0, HASHED))
    counts.data = 1 + np.log(counts.data)
    return counts
