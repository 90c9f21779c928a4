"""Measure whether ``compile=True`` is faster: one epoch of the paper's MLP, plain and compiled, in turn.

The data have 60,000 × 784 rows (MNIST, or random pixels) in batches of 3,000. There are 7 rounds after one first epoch
each, whose time (including the compilation) is stored separately. Results are stored in
``benchmarks/results/compiled.json``.
"""

from __future__ import annotations

import dataclasses
import time

import torch

from common import FORMAT, RESULTS, Section, interleave, print_table, summarize, write_json
from epoch import SteppedTrainer, stepped
from pixels import two_sets

ROUNDS = 7


def main() -> None:
    """Measure, print and store the results."""
    data = two_sets(30_000)
    plain = stepped("mlp", "auto", data)
    torch.manual_seed(0)
    compiled = SteppedTrainer(
        type(plain.model)(data.X.shape[1]), plain.data, plain.risk, dataclasses.replace(plain.options, compile=True)
    )
    first = {}
    for name, trainer in (("plain", plain), ("compiled", compiled)):
        started = time.perf_counter()
        trainer.one_epoch()
        first[name] = time.perf_counter() - started
    seconds = interleave({"plain": plain.one_epoch, "compiled": compiled.one_epoch}, ROUNDS, warm_up=False)
    summary = summarize(seconds, ["plain"])
    print_table("one epoch of the MLP", summary)
    print(f"  first epoch: {first['plain']:.1f} s plain, {first['compiled']:.1f} s compiled")
    section = Section({"rounds": ROUNDS, "data": data.source}, summary | {"first_epoch": first})
    write_json(RESULTS / "compiled.json", {"format": FORMAT, "sections": {"compiled": section.as_json()}})


if __name__ == "__main__":
    main()
