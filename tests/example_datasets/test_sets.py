"""`make_sets`: two unlabeled sets drawn from labeled data."""

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats

from uulearn.datasets import make_sets

Y = np.array([1] * 120 + [0] * 80)
X = np.arange(200)[:, None]


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 300), st.integers(1, 300), st.integers(0, 10**6))
def test_without_replacement_is_exact_and_reuses_rows_only_if_needed(theta, theta_prime, n, n_prime, seed):
    if abs(theta - theta_prime) < 1e-3:
        return
    drawn = make_sets(X, Y, (theta, theta_prime), (n, n_prime), random_state=seed)
    for which, (size, prior) in enumerate(((n, theta), (n_prime, theta_prime))):
        index = drawn.indices[which]
        assert len(index) == size
        assert Y[index].sum() == round(size * prior)
        assert drawn.realized_priors[which] == pytest.approx(Y[index].mean())
        assert drawn.repeats[which] == size - len(np.unique(index))
    for label in (0, 1):
        available = int((label == Y).sum())
        used = [np.bincount(index[Y[index] == label], minlength=200)[label == Y] for index in drawn.indices]
        for count in (*used, used[0] + used[1]):
            assert count.max() - count.min() <= 1 or len(count) == 0  # no row is used twice while another is unused
        wanted = [int(count.sum()) for count in used]
        if max(wanted) <= available:
            assert max(count.max() for count in used) <= 1
            shared = int(((used[0] > 0) & (used[1] > 0)).sum())
            assert shared == max(0, sum(wanted) - available)
    assert drawn.overlap == len(np.intersect1d(*drawn.indices))


def test_independent_draws_vary_around_the_prior():
    realized = [
        make_sets(X, Y, (0.7, 0.3), (100, 500), scheme="independent", random_state=seed).realized_priors
        for seed in range(400)
    ]
    first, second = np.array(realized).T
    assert abs(first.mean() - 0.7) < 4 * np.sqrt(0.21 / 100 / 400)
    assert first.std() == pytest.approx(np.sqrt(0.21 / 100), rel=0.15)
    assert second.std() == pytest.approx(np.sqrt(0.21 / 500), rel=0.15)


def test_independent_draws_are_uniform_within_a_class():
    drawn = make_sets(X, Y, (0.5, 0.2), (40_000, 10), scheme="independent", random_state=0)
    counts = np.bincount(drawn.indices[0], minlength=200)
    assert stats.chisquare(counts[Y == 1]).pvalue > 1e-3
    assert stats.chisquare(counts[Y == 0]).pvalue > 1e-3


@pytest.mark.parametrize(
    "kind",
    [
        np.asarray,
        lambda x: pd.DataFrame(x, columns=["row"]),
        sparse.csr_matrix,
        torch.as_tensor,
        np.ndarray.tolist,
    ],
)
def test_accepts_arrays_frames_sparse_tensors_and_lists(kind):
    X0, _ = make_sets(kind(X), Y, (0.8, 0.2), (10, 20), random_state=0)
    drawn = make_sets(
        kind(X), torch.as_tensor(Y) if kind is torch.as_tensor else Y, (0.8, 0.2), (10, 20), random_state=0
    )
    if kind is not np.ndarray.tolist:
        assert type(drawn.X0) is type(kind(X))
        assert drawn.X1.shape == (20, 1)
    dense = X0.toarray() if sparse.issparse(X0) else np.asarray(X0)
    np.testing.assert_array_equal(dense.ravel(), drawn.indices[0])
    assert drawn.sets.tolist() == [0] * 10 + [1] * 20
    assert drawn.sizes == (10, 20)


@pytest.mark.parametrize("y", [Y, 2 * Y - 1, Y.astype(bool), Y.astype(float)])
def test_accepts_common_label_types(y):
    drawn = make_sets(X, y, (0.8, 0.2), (20, 20), random_state=0)
    assert drawn.realized_priors == (0.8, 0.2)


def test_same_seed_gives_same_sets():
    one, again, other = (make_sets(X, Y, (0.8, 0.2), (20, 20), random_state=seed).indices[0] for seed in (1, 1, 2))
    assert (one == again).all()
    assert (one != other).any()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"sizes": (160, 10), "allow_reuse": False}, r"need 128 \+ 2 positive rows, but the data have only 120"),
        ({"sizes": (100, 101), "allow_reuse": False}, r"need 20 \+ 81 negative rows, but the data have only 80"),
        ({"sizes": (0, 10)}, "each at least 1"),
        ({"sizes": 10}, "two whole numbers"),
        ({"sizes": (10.5, 10)}, "two whole numbers"),
        ({"scheme": "bootstrap"}, "scheme must be one of"),
        ({"set_priors": (0.5, 0.5)}, "must differ"),
        ({"y": Y * 3}, r"both classes.*\[0, 3\]"),
        ({"y": np.ones(200)}, "both classes"),
        ({"y": Y[:50]}, "50 labels for 200 rows"),
    ],
)
def test_rejects_impossible_requests(changes, text):
    arguments = {"X": X, "y": Y, "set_priors": (0.8, 0.2), "sizes": (20, 20)} | changes
    with pytest.raises(ValueError, match=text):
        make_sets(**arguments, random_state=0)


def test_overlap_of_the_mnist_experiment():
    """MNIST has 30,508 odd and 29,492 even training digits; at n = n′ = 30,000 the sets share 508 rows."""
    y = np.array([1] * 29_492 + [0] * 30_508)
    drawn = make_sets(np.zeros((60_000, 1), np.uint8), y, (0.8, 0.2), (30_000, 30_000), random_state=0)
    assert drawn.overlap == 508


def test_rows_repeat_if_a_class_is_smaller_than_one_set():
    y = np.array([1] * 18_000 + [0] * 42_000)
    drawn = make_sets(np.zeros((60_000, 1), np.uint8), y, (0.8, 0.2), (30_000, 30_000), random_state=0)
    assert drawn.realized_priors == (0.8, 0.2)
    assert drawn.repeats == (6_000, 0)
    assert drawn.overlap == 6_000  # all positives of set 1; there are enough negatives
