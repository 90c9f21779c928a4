"""Several workers, and gradient accumulation over micro-batches, give the gradient of the whole batch."""

import copy
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from helpers.distributed_cases import PRIORS, TRAINABLE, batch, gradients, network, stack
from helpers.processes import several
from uulearn import UURisk
from uulearn.risk import accumulate
from uulearn.risk.corrections import METHODS

WORKER = Path(__file__).parents[1] / "helpers" / "distributed_worker.py"


def close(ours, theirs, size=1.0):
    """Equal up to rounding; the risk terms are differences of sums that are larger by the size of the coefficients."""
    precision = 1e-6 if theirs.dtype == torch.float32 else 1e-14
    return torch.linalg.norm(ours.double() - theirs.double()) <= precision * max(size, 1.0) * max(
        1e-3, torch.linalg.norm(theirs.double())
    )


# ------------------------------------------------------------------------------------------------------ several workers


@pytest.fixture(scope="module", params=[2, 3])
def results(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("parts")
    for code, _, output in several(request.param, WORKER, folder):
        assert code == 0, output[-2000:]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(request.param)]


def test_workers_with_parts_equal_one_worker_with_whole_batch(results):
    found = [each["cases"] for each in results]
    checked = 0
    for (name, ours), *others in zip(*(one.items() for one in found), strict=True):
        _, priors, loss, method, seed = name.split("|")
        x, sets = batch(48, int(seed), double=int(seed) % 2)
        model = network().to(x.dtype)
        criterion = UURisk(*PRIORS[int(priors)], loss, method)
        whole = criterion(model(x).squeeze(1), sets)
        whole.backward()
        for value, gradient in (ours, *(other for _, other in others)):
            assert value.dtype == whole.dtype
            assert value.item() == pytest.approx(whole.item(), rel=1e-6, abs=1e-7), name
            assert close(gradient, gradients(model), sum(map(abs, criterion.coefficients))), name
        checked += 1
    assert checked == len(found[0]) > 150


def test_batched_runs_over_workers_equal_one_worker_with_whole_batch(results):
    criterion, (scores, sets) = UURisk(*PRIORS[0], method="abs"), stack()
    wanted = [torch.func.vmap(f, in_dims=(1, None))(scores, sets) for f in (criterion, torch.func.grad(criterion))]
    assert all((criterion.parts(run, sets).positive < 0) == (number == 0) for number, run in enumerate(scores.T))
    for values, gradient, own in (each["stack"] for each in results):
        torch.testing.assert_close(values, wanted[0])
        torch.testing.assert_close(gradient / len(results), wanted[1][:, own])


# ------------------------------------------------------------------------------------------------ gradient accumulation


@given(st.sampled_from(TRAINABLE), st.sampled_from(METHODS), st.sampled_from(PRIORS), st.lists(st.integers(1, 47)))
def test_micro_batches_equal_the_whole_batch(loss, method, priors, cuts):
    x, sets = batch(48, len(cuts))
    ends = sorted({0, *cuts, 48})
    parts = [(x[a:b], sets[a:b]) for a, b in itertools.pairwise(ends)]
    criterion = UURisk(*priors, loss, method)
    model, whole = network(), network()
    returned = accumulate(criterion, model, parts)
    wanted = criterion.parts(whole(x), sets)
    wanted.objective.backward()
    for ours, theirs in zip(returned, wanted, strict=True):
        assert ours.item() == pytest.approx(theirs.item(), rel=1e-5, abs=1e-6)
    assert close(gradients(model), gradients(whole), sum(map(abs, criterion.coefficients)))


def test_naive_accumulation_gives_another_gradient():
    x, sets = batch(48, 3)
    criterion = UURisk((0.55, 0.45), 0.5, "sigmoid", "abs")
    model, naive = network(), network()
    accumulate(criterion, model, [(x[:24], sets[:24]), (x[24:], sets[24:])])
    for part in (slice(24), slice(24, 48)):
        (criterion(naive(x[part]), sets[part]) / 2).backward()
    assert not torch.allclose(gradients(model), gradients(naive), rtol=0.1)


def test_gradients_are_added_to_existing_gradients():
    x, sets = batch(20, 0)
    criterion, model = UURisk((0.8, 0.2), 0.5), network()
    accumulate(criterion, model, [(x, sets)])
    once = gradients(model).clone()
    accumulate(criterion, model, [(x, sets)])
    torch.testing.assert_close(gradients(model), 2 * once)


def test_dropout_uses_the_same_random_numbers_in_both_passes():
    """A single micro-batch gives the same result as a plain step with the same seed."""
    x, sets = batch(64, 1)
    criterion = UURisk((0.6, 0.4), 0.5, "sigmoid", "abs")
    model = network(dropout=True)
    plain = copy.deepcopy(model)
    torch.manual_seed(5)
    returned = accumulate(criterion, model, [(x, sets)])
    torch.manual_seed(5)
    wanted = criterion(plain(x), sets)
    wanted.backward()
    assert returned.objective.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert close(gradients(model), gradients(plain))


def test_running_statistics_are_updated_once():
    x, sets = batch(40, 2)
    criterion, model = UURisk((0.8, 0.2), 0.5), network(normalized=True)
    plain = copy.deepcopy(model)
    accumulate(criterion, model, [(x[:30], sets[:30]), (x[30:], sets[30:])])
    for part in (slice(30), slice(30, 40)):
        plain(x[part])
    for ours, theirs in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_failure_keeps_statistics_and_gradients_unchanged():
    x, sets = batch(40, 2)
    model = network(normalized=True)
    before = [buffer.clone() for buffer in model.buffers()]
    with pytest.raises(ValueError, match="sets must be 0 or 1"):
        accumulate(UURisk((0.8, 0.2), 0.5), model, [(x[:30], sets[:30]), (x[30:], sets[30:] + 1)])
    for now, then in zip(model.buffers(), before, strict=True):
        torch.testing.assert_close(now, then)
    assert all(p.grad is None for p in model.parameters())


def test_custom_backward_and_no_sync():
    x, sets = batch(30, 4)
    calls, waits = [], []

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = network()

        def forward(self, x):
            return self.inner(x)

        def no_sync(self):
            waits.append(len(calls))
            return torch.enable_grad()

    model, plain = Wrapped(), network()
    criterion = UURisk((0.8, 0.2), 0.5)

    def backward(loss):
        calls.append(loss.item())
        (4 * loss).backward()

    accumulate(criterion, model, [(x[i : i + 10], sets[i : i + 10]) for i in (0, 10, 20)], backward=backward)
    criterion(plain(x), sets).backward()
    assert len(calls) == 3
    assert waits == [0, 1]  # gradients are exchanged with the last micro-batch
    torch.testing.assert_close(gradients(model), 4 * gradients(plain))


def test_micro_batches_without_one_set():
    x, _ = batch(20, 0)
    sets = torch.arange(20) // 10  # each micro-batch has rows of one set only
    model, plain = network(), network()
    criterion = UURisk((0.8, 0.2), 0.5, method="abs")
    accumulate(criterion, model, [(x[:10], sets[:10]), (x[10:], sets[10:])])
    criterion(plain(x), sets).backward()
    assert close(gradients(model), gradients(plain))
    assert gradients(model).abs().sum() > 0
    model.zero_grad()
    returned = accumulate(criterion, model, [(x[:10], sets[:10])])  # no risk term can be estimated
    assert returned.objective.item() == 0
    assert gradients(model).abs().sum() == 0


def test_rejects_zero_micro_batches():
    with pytest.raises(ValueError, match="micro_batches is empty"):
        accumulate(UURisk((0.8, 0.2), 0.5), network(), [])


def test_accepts_boolean_sets():
    x, sets = batch(16, 0)
    model, other = network(), network()
    accumulate(UURisk((0.8, 0.2), 0.5), model, [(x, sets)])
    accumulate(UURisk((0.8, 0.2), 0.5), other, [(x, torch.from_numpy(np.asarray(sets) == 1))])
    torch.testing.assert_close(gradients(model), gradients(other))
