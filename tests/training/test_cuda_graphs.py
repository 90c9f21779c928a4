"""Parts of CUDA graph capture that can be tested without a GPU; the rest is in test_cuda.py."""

import gc
import weakref

import pytest
import torch
from torch import nn

from uulearn.data import DenseRows, TwoSets
from uulearn.risk import UURisk
from uulearn.training import RunOptions, Trainer
from uulearn.training.batched import BatchedTrainer, Run
from uulearn.training.cuda_graphs import GraphedFunction, snapshot_tensors


def steps(model, optimizer, count, seed):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        optimizer.zero_grad()
        model(torch.randn(8, 3, generator=generator)).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize(
    "make", [lambda p: torch.optim.Adam(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)]
)
def test_restore_undoes_warm_up_steps(make, before):
    """Steps that are undone have no effect on later steps."""
    ends = []
    for disturbed in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = make(model.parameters())
        steps(model, optimizer, before, seed=1)
        if disturbed:
            undo = snapshot_tensors([p.detach() for p in model.parameters()], optimizer)
            steps(model, optimizer, 4, seed=2)
            undo()
        steps(model, optimizer, 3, seed=3)
        ends.append([p.detach().clone() for p in model.parameters()])
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other)


def test_graphed_function_on_cpu_is_a_plain_call():
    class Owner:
        def __init__(self):
            self.calls = []
            self.captured = GraphedFunction(self.work, torch.device("cpu"), self.protect)

        def work(self, *arguments):
            self.calls.append(arguments)
            return len(self.calls)

        def protect(self):
            pytest.fail("nothing is to be protected")

    owner = Owner()
    assert (owner.captured(1, 2), owner.captured(1, 2)) == (1, 2)
    assert owner.calls == [(1, 2), (1, 2)]


def test_step_with_static_rows_equals_plain_step(gaussians):
    """The code around the graph, with the graph replaced by a plain call."""

    def train(captured):
        torch.manual_seed(0)
        rows = DenseRows(torch.from_numpy(gaussians["X"]).float())
        data = TwoSets.from_membership(rows, torch.from_numpy(gaussians["sets"]))
        options = RunOptions(epochs=3, batch_size=130, lr=0.01, progress=False)
        trainer = Trainer(nn.Linear(3, 1), data, UURisk((0.8, 0.2), 0.5), options)
        if captured:
            trainer._graphed = GraphedFunction(trainer._update_static, trainer.device, trainer._snapshot)
        trainer.run()
        return trainer

    plain, captured = train(False), train(True)
    assert captured._static_rows
    assert [r["objective"] for r in plain.history] == [r["objective"] for r in captured.history]


def test_rejects_scheduler_with_graph():
    rows = DenseRows(torch.zeros(4, 3))
    data = TwoSets.from_membership(rows, torch.tensor([0, 0, 1, 1]))
    options = RunOptions(graph=True, scheduler=lambda o: torch.optim.lr_scheduler.ConstantLR(o), progress=False)
    with pytest.raises(ValueError, match="graph=True .* does not support a scheduler"):
        Trainer(nn.Linear(3, 1), data, UURisk((0.8, 0.2), 0.5), options)


def test_batched_trainer_is_freed_without_garbage_collection(gaussians):
    """On a device its tensors are large, and the next trainer may need their memory."""
    sets = torch.from_numpy(gaussians["sets"])
    run = Run(((sets == 0).nonzero().flatten(), (sets == 1).nonzero().flatten()), (0.8, 0.2), 0.5)
    options = RunOptions(epochs=2, batch_size=130, ema=None, progress=False, device="cpu")
    gc.disable()
    try:
        batched = BatchedTrainer(
            gaussians["X"], [run], options=options, test=(gaussians["X_test"], gaussians["y_test"])
        )
        batched.run()
        alive = weakref.ref(batched)
        del batched
        assert alive() is None
    finally:
        gc.enable()
