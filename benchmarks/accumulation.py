"""Compare two exact ways to accumulate gradients, in two passes or with two gradients, with two other ways.

The correction needs its derivatives at the risk terms of the whole batch, which are known only after the last part. Two
ways are exact with the memory of one part:

* ``two passes``: the risk terms are computed first, without gradients, and then the gradients of each part
  (`uulearn.risk.accumulate`);
* ``two gradients``: one forward pass, and one backward pass per risk term; the two gradients are summed separately over
  all parts and combined at the end. It is implemented only in this file.

They are compared with ``each corrected``, the usual accumulation, which corrects every part separately and is not
exact, and with ``whole``, the whole batch in one part. The benchmark runs one step of the paper's MLP (a batch of 3,000
rows in parts of 300) and of a small convolutional network (256 images of 32 × 32 in parts of 32), with random pixels,
51 rounds and one thread. Memory is the peak that torch allocates during a step. Results are stored in
``benchmarks/results/accumulation.json``.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from common import FORMAT, RESULTS, SET_PRIORS, TARGET_PRIOR, Section, interleave, print_table, summarize, write_json
from uulearn import UURisk
from uulearn.models import MLP
from uulearn.risk import accumulate
from uulearn.risk.functional import flat_scores, row_weights, weighted_risk

ROUNDS = 51
EXACT = ("two passes", "two gradients")


class Workload(NamedTuple):
    """A model and a batch of rows."""

    model: nn.Module
    x: Tensor
    sets: Tensor
    part: int

    def parts(self) -> list[tuple[Tensor, Tensor]]:
        """Return the batch in parts."""
        return list(zip(torch.split(self.x, self.part), torch.split(self.sets, self.part), strict=True))


def workloads() -> dict[str, Workload]:
    """Return the models and batches by name."""
    torch.manual_seed(0)
    convolutional = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
        *(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1)),
    )
    return {
        "mlp": Workload(MLP(784), torch.rand(3000, 784), torch.arange(3000) % 2, 300),
        "convolutional": Workload(convolutional, torch.rand(256, 3, 32, 32), torch.arange(256) % 2, 32),
    }


# ---------------------------------------------------------------------------------------------------------- contenders


def two_passes(work: Workload, criterion: UURisk) -> None:
    """Accumulate the gradients as uulearn does."""
    accumulate(criterion, work.model, work.parts())


def two_gradients(work: Workload, criterion: UURisk) -> None:
    """Run one forward and two backward passes per part, and combine the gradients of the risk terms at the end."""
    counts = (int((work.sets == 0).sum()), int((work.sets == 1).sum()))
    parameters = list(work.model.parameters())
    added: list[list[Tensor | None]] = [[None] * len(parameters), [None] * len(parameters)]
    terms = torch.zeros(2)
    for x, sets in work.parts():
        scores = flat_scores(work.model(x))
        weights = row_weights(sets, criterion.coefficients, scores.dtype, counts)
        parts = weighted_risk(scores, weights, criterion.loss, criterion.method)
        for which, term in enumerate((parts.positive, parts.negative)):
            terms[which] += term.detach()
            _swap(parameters, added[which])  # so that backward adds in place
            term.backward(retain_graph=which == 0)  # type: ignore[no-untyped-call]
            added[which] = [parameter.grad for parameter in parameters]
    terms.requires_grad_()
    f1, f2 = criterion.method.corrections
    (slopes,) = torch.autograd.grad(f1(terms[0]) + f2(terms[1]), terms)
    for parameter, positive, negative in zip(parameters, *added, strict=True):
        assert positive is not None
        assert negative is not None
        parameter.grad = positive.mul_(slopes[0]).add_(negative.mul_(slopes[1]))


def _swap(parameters: list[nn.Parameter], gradients: list[Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def each_corrected(work: Workload, criterion: UURisk) -> None:
    """Accumulate the corrected risk of each part, which is usual but not exact."""
    parts = work.parts()
    for x, sets in parts:
        (criterion(work.model(x), sets) / len(parts)).backward()


def whole(work: Workload, criterion: UURisk) -> None:
    """Compute the gradients of the whole batch in one part."""
    criterion(work.model(work.x), work.sets).backward()


CONTENDERS: dict[str, Callable[[Workload, UURisk], None]] = {
    "two passes": two_passes,
    "two gradients": two_gradients,
    "each corrected": each_corrected,
    "whole": whole,
}


def step(name: str, work: Workload, criterion: UURisk) -> None:
    """Reset the gradients and compute them with the named contender."""
    work.model.zero_grad(set_to_none=True)
    CONTENDERS[name](work, criterion)


# ------------------------------------------------------------------------------------------------------------- figures


def peak_bytes(run: Callable[[], None]) -> int:
    """Return the peak memory of torch's allocator during a run, minus its memory at the start."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = [(event["ts"], event["args"]["Bytes"]) for event in events if event.get("name") == "[memory]"]
    held = peak = 0
    for _, change in sorted(changes, key=lambda pair: pair[0]):
        held += change
        peak = max(peak, held)
    return peak


def disagreement(work: Workload, criterion: UURisk) -> float:
    """Return the largest difference between the gradients of the two exact ways, relative to the largest gradient."""
    found = []
    for name in EXACT:
        step(name, work, criterion)
        found.append(torch.cat([p.grad.flatten() for p in work.model.parameters() if p.grad is not None]))
    return float((found[0] - found[1]).abs().max() / found[0].abs().max())


def measure(name: str, work: Workload) -> dict[str, Any]:
    """Measure all contenders with one model."""
    criterion = UURisk(SET_PRIORS, TARGET_PRIOR, "sigmoid", "abs")
    runs = {contender: functools.partial(step, contender, work, criterion) for contender in CONTENDERS}
    summary = summarize(interleave(runs, ROUNDS), list(EXACT))
    memory = {}
    for contender, run in runs.items():
        work.model.zero_grad(set_to_none=True)
        memory[contender] = peak_bytes(run)
    gradients = sum(parameter.numel() * parameter.element_size() for parameter in work.model.parameters())
    print_table(f"one step, {name}", summary)
    for contender, peak in memory.items():
        print(f"  {contender:32}{peak / 2**20:9.1f} MiB at the peak, of gradients {gradients / 2**20:.2f} MiB")
    return summary | {
        "peak_bytes": memory,
        "gradient_bytes": gradients,
        "largest_relative_difference": disagreement(work, criterion),
    }


def main() -> None:
    """Measure, print and store the results."""
    torch.set_num_threads(1)
    found = workloads()
    configuration = {
        name: {"rows": list(work.x.shape), "part": work.part, "model": str(work.model)} for name, work in found.items()
    }
    results = {name: measure(name, work) for name, work in found.items()}
    section = Section({"rounds": ROUNDS, "workloads": configuration}, results)
    write_json(RESULTS / "accumulation.json", {"format": FORMAT, "sections": {"accumulation": section.as_json()}})


if __name__ == "__main__":
    main()
