"""One worker of a process group: parts of batches, their risk, and gradients as data parallelism averages them."""

import itertools
import sys
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from helpers.distributed_cases import PRIORS, TRAINABLE, batch, gradients, network, stack
from uulearn import UURisk
from uulearn.exceptions import ClosePriorsWarning
from uulearn.risk import accumulate
from uulearn.risk.corrections import METHODS
from uulearn.risk.distributed import sum_over_workers


def shares(sets, kind, rank, workers):
    """Return the rows of one worker for a kind of split; the workers together hold every row once."""
    rows = torch.arange(len(sets))
    if kind == "even":
        return rows[rank::workers]
    if kind == "uneven":  # the last worker holds most
        return rows[rank : rank + 1] if rank < workers - 1 else rows[workers - 1 :]
    if kind == "by set":  # worker 0 holds only set 0, the others set 1
        own = rows[sets == 0] if rank == 0 else rows[sets == 1][rank - 1 :: workers - 1]
        return own
    assert kind == "empty"  # the last worker holds no row
    return rows[rank :: workers - 1] if rank < workers - 1 else rows[:0]


def stacked(rank, workers):
    """Return risks and gradients of several runs, computed with vmap."""
    criterion, (scores, sets) = UURisk(*PRIORS[0], method="abs"), stack()
    own = shares(sets, "uneven", rank, workers)
    sums = torch.func.vmap(sum_over_workers, in_dims=1, out_dims=1)(scores)
    torch.testing.assert_close(sums, workers * scores)
    values = torch.func.vmap(criterion, in_dims=(1, None))(scores[own], sets[own])
    return values, torch.func.vmap(torch.func.grad(criterion), in_dims=(1, None))(scores[own], sets[own]), own


def main():
    warnings.simplefilter("ignore", ClosePriorsWarning)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    found = {}
    kinds = ("even", "uneven", "by set", "empty", "accumulated")
    for seed, (kind, priors, loss, method) in enumerate(
        itertools.product(kinds, range(len(PRIORS)), TRAINABLE, METHODS)
    ):
        if seed % 4 and loss != "logistic":
            continue  # all losses, methods and splits, not all of their combinations
        x, sets = batch(48, seed, double=seed % 2)
        own = shares(sets, "even" if kind == "accumulated" else kind, rank, workers)
        criterion = UURisk(*PRIORS[priors], loss, method)
        model = network().to(x.dtype)
        parallel = DistributedDataParallel(model) if kind != "empty" else model
        if kind == "accumulated":  # workers with different numbers of micro-batches
            cut = [3, 9][: 1 + rank % 2]
            value = accumulate(
                criterion, parallel, [(x[part], sets[part]) for part in torch.tensor_split(own, cut)]
            ).objective
        else:
            value = criterion(parallel(x[own]), sets[own])
            value.backward()
        mean = gradients(model).clone()
        if kind == "empty":  # the average that data parallelism computes
            dist.all_reduce(mean)
            mean /= workers
        found["|".join([kind, str(priors), loss, method, str(seed)])] = (value.detach(), mean)
    local = UURisk((0.8, 0.2), 0.5, distributed=False)(torch.tensor([1.0 + rank, -1.0]), torch.tensor([0, 1]))
    alone = UURisk((0.8, 0.2), 0.5, process_group=dist.new_group([rank], use_local_synchronization=True))
    assert torch.equal(local, alone(torch.tensor([1.0 + rank, -1.0]), torch.tensor([0, 1])))
    torch.save({"cases": found, "stack": stacked(rank, workers)}, f"{sys.argv[1]}/{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
