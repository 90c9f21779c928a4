"""One of two processes that train through a wrapper, started by `test_wrappers`. Usage: wrapper_worker.py OUT CASE …"""

import contextlib
import os
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import helpers.torchvision_operators  # noqa: F401  (before Lightning imports torchvision)
from helpers.pages import python_in
from uulearn import UURisk
from uulearn.models.normalization import synchronized
from uulearn.risk import accumulate

SETTINGS = ((0.6, 0.4), 0.5, "sigmoid", "abs")
CLOSE = ((0.55, 0.45), 0.5)
STEPS, ROWS, LR = 4, 30, 0.5


# --------------------------------------------------------------------------------------- shared with the single process


def batches():
    """Batches in which the risk terms of a part often have another sign than those of all rows."""
    generator = torch.Generator().manual_seed(0)
    x, sets = torch.randn(STEPS, ROWS, 4, generator=generator), torch.randint(0, 2, (STEPS, ROWS), generator=generator)
    return list(zip(x, sets, strict=True))


def network(normalized=False):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), *([nn.BatchNorm1d(8)] if normalized else []), nn.Tanh(), nn.Linear(8, 1))


def trained(model, step, own=lambda rows: rows, optimizer=None):
    """Losses of a few steps of plain SGD, which is sensitive to a wrong scale of the gradients."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=LR)
    losses = []
    for x, sets in batches():
        optimizer.zero_grad()
        losses.append(step(model, own(x), own(sets)).detach())
        optimizer.step()
    return torch.stack(losses)


def at_once(model, x, sets, precision=None):
    with torch.autocast("cpu", precision) if precision else contextlib.nullcontext():
        loss = UURisk(*SETTINGS)(model(x), sets)
    loss.backward()
    return loss


def flat(model):
    """Weights and running statistics, in one vector."""
    state = [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.is_floating_point())]
    return torch.cat([tensor.detach().flatten() for tensor in state])


# ------------------------------------------------------------------------------------------------- through a wrapper


def own_part(rows):
    """Twice as many rows for the first process as for the second."""
    mine = torch.arange(len(rows)) % 3 == 0
    return rows[mine if dist.get_rank() else ~mine]


def all_of_one(rows):
    """Every row for the first process and none for the second."""
    return rows[:0] if dist.get_rank() else rows


def in_parts(model, x, sets, precision=None, size=4, **how):
    """Parts of four rows: five in the first process and three in the second."""
    with torch.autocast("cpu", precision) if precision else contextlib.nullcontext():
        return accumulate(UURisk(*SETTINGS), model, zip(x.split(size), sets.split(size), strict=True), **how).objective


def in_equally_many(model, x, sets, **how):
    return in_parts(model, x, sets, size=-(-len(x) // 3), **how)


def with_precision(step, precision):
    return lambda model, x, sets: step(model, x, sets, precision=precision)


def ddp(step, normalized=False, own=own_part):
    model = network(normalized)
    parallel = DistributedDataParallel(model)
    with synchronized(model):
        return {"losses": trained(parallel, step, own), "weights": flat(model)}


def scaled(precision=None):
    """With a scaled loss, as for float16."""
    model = network()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=LR), torch.amp.GradScaler("cpu", init_scale=2.0**10)

    def step(parallel, x, sets):
        how = {"precision": precision, "backward": lambda loss: scaler.scale(loss).backward()}
        loss = in_parts(parallel, x, sets, **how)
        assert max(p.grad.abs().max() for p in model.parameters()) > 1
        scaler.unscale_(optimizer)
        return loss

    class Scaled:
        zero_grad = optimizer.zero_grad

        def step(self):
            scaler.step(optimizer)
            scaler.update()

    losses = trained(DistributedDataParallel(model), step, own_part, Scaled())
    return {"losses": losses, "weights": flat(model)}


def sharded(normalized=False, **policy):
    """Sharded layer by layer, except batch normalization, which cannot be synchronized if sharded."""
    model, mesh = network(normalized), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model:
        if not isinstance(layer, nn.BatchNorm1d):
            fully_shard(layer, mesh=mesh, **policy)
    return fully_shard(model, mesh=mesh, **policy)


def fsdp2(step, normalized=False, **policy):
    model = sharded(normalized, **policy)
    with synchronized(model):
        losses = trained(model, step, own_part)
    state = [p.full_tensor().detach() for p in model.parameters()]
    state += [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    return {"losses": losses, "weights": torch.cat([tensor.flatten() for tensor in state])}


def fsdp1(step, **options):
    model = FullyShardedDataParallel(network(), device_id=torch.device("cpu"), **options)
    model.no_sync = lambda: pytest.fail("no_sync would hold whole gradients")
    losses = trained(model, step, own_part)
    with FullyShardedDataParallel.summon_full_params(model):
        return {"losses": losses, "weights": flat(model)}


def refused():
    """The errors of each process if the numbers of micro-batches differ, so that one would wait forever."""
    said, normalized = [], network(normalized=True)
    with synchronized(normalized):
        for model in (sharded(), FullyShardedDataParallel(network(), device_id=torch.device("cpu")), normalized):
            x, sets = batches()[0]
            try:
                in_parts(model, own_part(x), own_part(sets))
            except ValueError as error:
                said.append(str(error))
    return said


def risk_terms():
    """The risk terms of bfloat16 scores of all processes, and those scores."""
    x, sets = batches()[0]
    with torch.autocast("cpu", torch.bfloat16):
        scores = network()(own_part(x))
        parts = UURisk(*SETTINGS).parts(scores, own_part(sets))
    return {"scores": scores.detach(), "sets": own_part(sets), "risk terms": [part.detach() for part in parts]}


# --------------------------------------------------------------------------------------------------------- Accelerate


def accelerated(step, **options):
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()  # the precision may change
    accelerator, model = Accelerator(cpu=True, **options), network()
    parallel, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=LR))
    assert isinstance(parallel, DistributedDataParallel)
    losses = trained(parallel, lambda *batch: step(accelerator, *batch), own_part, optimizer)
    return {"losses": losses, "weights": flat(model)}


def accelerated_at_once(accelerator, model, x, sets):
    loss = UURisk(*SETTINGS)(model(x), sets)
    accelerator.backward(loss)
    return loss


def accelerated_in_parts(accelerator, *batch):
    return in_parts(*batch, backward=accelerator.backward)


def accelerate_page():
    """The section of the documentation from top to bottom."""
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state()
    page = {}
    for block in python_in("distributed.md", "Example data", "Accelerate"):
        exec(compile(block, "distributed.md", "exec"), page)
    model = page["accelerator"].unwrap_model(page["model"])
    return {"losses": torch.stack([page["loss"].detach(), page["parts"].objective]), "weights": flat(model)}


# ---------------------------------------------------------------------------------------------------------- Lightning


def lightning_page():
    """The classes of the documentation."""
    page = {}
    for block in python_in("distributed.md", "Lightning"):
        if "class " in block:
            exec(compile(block, "distributed.md", "exec"), page)
    return page


def lightning(name, **options):
    import lightning as L
    from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

    class Recorded(lightning_page()[name]):
        logged = ()

        def log(self, name, value, **how):
            self.logged = (*self.logged, float(value))
            super().log(name, value, **how)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=LR)

    module = Recorded(network(), *CLOSE)
    data = TensorDataset(*(torch.cat(parts) for parts in zip(*batches(), strict=True)))
    in_turn = DistributedSampler(data, shuffle=False)  # Lightning's own would shuffle the rows
    rows, all_rows = (size // dist.get_world_size() for size in (ROWS, len(data)))
    trainer = L.Trainer(
        accelerator="cpu", devices=dist.get_world_size(), strategy="ddp", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        **options,
    )  # fmt: skip
    trainer.fit(module, DataLoader(data, rows, sampler=in_turn), DataLoader(data, all_rows))
    return {"losses": torch.tensor(module.logged), "weights": flat(module.model)}


# --------------------------------------------------------------------------------------------------------------- cases

BFLOAT16 = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16)}
CASES = {
    "DDP": lambda: ddp(at_once),
    "DDP in parts": lambda: ddp(in_parts),
    "DDP normalized": lambda: ddp(at_once, normalized=True),
    "DDP normalized, no rows": lambda: ddp(at_once, normalized=True, own=all_of_one),
    "DDP normalized, bfloat16": lambda: ddp(with_precision(at_once, torch.bfloat16), normalized=True),
    "DDP in parts, scaled": scaled,
    "DDP in parts, bfloat16": lambda: ddp(with_precision(in_parts, torch.bfloat16)),
    "DDP in parts, scaled, float16": lambda: scaled(torch.float16),
    "FSDP1": lambda: fsdp1(at_once),
    "FSDP1 in parts": lambda: fsdp1(in_equally_many),
    "FSDP1 in parts, original": lambda: fsdp1(in_equally_many, use_orig_params=True),
    "FSDP1, bfloat16": lambda: fsdp1(with_precision(at_once, torch.bfloat16)),
    "FSDP1 in parts, bfloat16": lambda: fsdp1(with_precision(in_equally_many, torch.bfloat16)),
    "FSDP2": lambda: fsdp2(at_once),
    "FSDP2 in parts": lambda: fsdp2(in_equally_many),
    "FSDP2, bfloat16": lambda: fsdp2(with_precision(at_once, torch.bfloat16)),
    "FSDP2 in parts, bfloat16": lambda: fsdp2(with_precision(in_equally_many, torch.bfloat16)),
    "FSDP2 in parts, bfloat16 weights": lambda: fsdp2(in_equally_many, **BFLOAT16),
    "FSDP2 normalized": lambda: fsdp2(at_once, normalized=True),
    "FSDP2 normalized, bfloat16 weights": lambda: fsdp2(at_once, normalized=True, **BFLOAT16),
    "Accelerate": lambda: accelerated(accelerated_at_once),
    "Accelerate in parts": lambda: accelerated(accelerated_in_parts),
    "Accelerate in parts, bfloat16": lambda: accelerated(accelerated_in_parts, mixed_precision="bf16"),
    "Accelerate page": accelerate_page,
    "Lightning": lambda: lightning("TwoSetModule"),
    "Lightning in parts": lambda: lightning("InParts"),
    "Lightning in parts, bfloat16": lambda: lightning("InParts", precision="bf16-mixed"),
    "refused": refused,
    "risk terms": risk_terms,
}


def main(out, names):
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))  # a process that waits forever fails
    found = {}
    for name in names:
        with warnings.catch_warnings():
            if name.startswith(("FSDP1", "refused", "Lightning")):
                warnings.simplefilter("ignore")
            found[name] = CASES[name]()
    torch.save(found, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1] + os.environ["RANK"]), sys.argv[2:])
