"""Compare the speed of batched training and of ResNet-32 on one CUDA device with its arithmetic and memory limits.

usage: python benchmarks/gpu.py [--epochs 200] [--only stack,convolution,contenders,consistency] [--out FILE]

Each part prints its results and stores them as JSON, with versions, device and configuration: the seconds from the
start to the last epoch (including building, compiling and capturing), the seconds per epoch after warm-up, and the
roofline: floating-point operations and bytes of one step, the limits measured in the same run (a large copy, a large
bfloat16 product), the minimum time that each limit allows, and the fraction of the limit that is reached. The part
``consistency`` compares epochs with and without consistency training, with the same augmentation.

Real data are used if the data folder (``UULEARN_DATA``) contains them, otherwise random pixels of the same shapes.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from common import FORMAT, RESULTS, Bar, Section, read_json, write_json
from uulearn import UURisk
from uulearn.data import DenseRows, TwoSets
from uulearn.datasets import load_task, make_sets
from uulearn.models import ResNet32
from uulearn.models.convolutional import PackedConv2d
from uulearn.training import ConsistencyOptions, RunOptions, Trainer
from uulearn.training.batched import BatchedTrainer, Run

PRIORS = ((0.8, 0.2), (0.7, 0.3), (0.6, 0.4))
METHODS = (
    ("biased", 0.0), ("unbiased", 0.0), ("abs", 0.0), ("relu", 0.0),
    ("leaky_relu", -0.01), ("leaky_relu", -0.03), ("leaky_relu", -0.1), ("leaky_relu", -0.3),
)  # fmt: skip
SEEDS = 5
SIZES = (30_000, 30_000)
BATCH = 3000
DENSE: dict[str, dict[str, Any]] = {
    "linear": {"lr": 1e-3, "l2": 1e-4, "params": None, "bar": 8.0},
    "mlp": {"lr": 5e-5, "l2": 5e-3, "params": {"momentum": 0.01}, "bar": 60.0},
}
IMAGES_BAR = 150_000
CONSISTENCY_BAR = 2.5


def fastest_convolutions(trainer: Trainer) -> AbstractContextManager[None]:
    """Return the cuDNN setting that `Trainer.run` uses: with ``compile``, cuDNN benchmarks its algorithms."""
    benchmark = trainer.channels_last and trainer.options.compile
    return torch.backends.cudnn.flags(enabled=True, benchmark=benchmark)


def seconds_of(work: Callable[[], object], repeats: int) -> float:
    """Return the seconds of one call, including the work on the device, after three warm-up calls."""
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(repeats):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / repeats


def ceilings() -> dict[str, float]:
    """Return the limits of this device: bytes per second of a copy, operations per second of products."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    copied = 2 * 2**31 / seconds_of(lambda: target.copy_(source), 10)
    rates = {}
    for name, dtype in (("bfloat16", torch.bfloat16), ("float32", torch.float32)):
        a = torch.randn(8192, 8192, device="cuda", dtype=dtype)
        rates[name] = 2 * 8192**3 / seconds_of(functools.partial(torch.matmul, a, a), 10)
    return {"bytes_a_second": copied, "bfloat16_flops": rates["bfloat16"], "float32_flops": rates["float32"]}


def roofline(flops: float, moved: float, seconds: float, top: dict[str, float], dtype: str) -> dict[str, float]:
    """Return the work of one step, and the minimum time that each limit allows."""
    compute, memory = flops / top[f"{dtype}_flops"], moved / top["bytes_a_second"]
    return {
        "flops": flops,
        "bytes": moved,
        "seconds": seconds,
        "seconds_of_arithmetic_at_the_ceiling": compute,
        "seconds_of_memory_at_the_ceiling": memory,
        "share_of_the_higher_ceiling": max(compute, memory) / seconds,
        "share_if_the_two_do_not_overlap": (compute + memory) / seconds,
    }


# --------------------------------------------------------------------------------------------------- batched training


def dense_work(model: str, runs: int, groups: int, d: int, h: int = 300) -> tuple[float, float]:
    """Return the FLOPs and bytes of one step of batched training; activations are bfloat16.

    Each pass over memory counts once. Hidden layer, in bytes per unit: the product writes (2), the moments read (2),
    normalization and ReLU read and write (4), and the next product reads (2). Backward, the gradient of the product is
    written (2), the sums read it and the input (4), the gradient of the normalization reads both and writes (6), two
    products read it (4), and one reads the activations (2). The last unit reads the last activations, and backward it
    reads and writes them (6). Kernels: conversion to bfloat16 and its two readers (10), gradient written and read (4),
    Adam's state read and written (24).
    """
    rows = BATCH
    gathered = groups * rows * d
    if model == "linear":
        return 2 * 2.0 * runs * rows * d, gathered * (1 + 1 + 1 + 4 + 4 + 4) + runs * d * 28.0
    units, kernels = runs * rows * h, runs * (d * h + 3 * h * h)
    flops = 2.0 * runs * rows * (2 * d * h + 3 * 3 * h * h)
    return flops, gathered * (1 + 1 + 1 + 2 + 4) + 4.0 * units * 28 + units * 6.0 + kernels * 38.0


def stack_part(model: str, epochs: int, top: dict[str, float]) -> Section:
    """Train all runs of one dataset of a table together."""
    X, y, X_test, y_test = dense_data()
    runs = []
    for priors in PRIORS:
        for seed in range(SEEDS):
            drawn = make_sets(y[:, None], y, priors, SIZES, random_state=seed).indices
            rows = (torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1]))
            runs += [Run(rows, priors, 0.4926, name, slope, seed=seed) for name, slope in METHODS]
    settings = DENSE[model]
    options = RunOptions(
        epochs=epochs, batch_size=BATCH, lr=settings["lr"], l2=settings["l2"], optimizer_params={"eps": 1e-7},
        ema=None, device="cuda", input_scale=1 / 255, progress=False,
    )  # fmt: skip
    stamps: list[float] = []
    torch.cuda.synchronize()
    started = time.perf_counter()
    trainer = BatchedTrainer(
        torch.from_numpy(X), runs, model=model, model_params=settings["params"], loss="logistic",
        options=options, test=(torch.from_numpy(X_test), torch.from_numpy(y_test)),
        callback=lambda *_: stamps.append(time.perf_counter()),
    )  # fmt: skip
    histories = trainer.run()
    total = time.perf_counter() - started
    warm = [later - earlier for earlier, later in itertools.pairwise(stamps[2:])]
    step = seconds_of(lambda: trainer._step(trainer.plan.counts(0)), 50)
    evaluation = seconds_of(trainer._evaluation, 10)
    dtype = str(trainer.dtype).removeprefix("torch.")
    work = dense_work(model, len(runs), trainer.groups.count, X.shape[1])
    results = {
        "seconds_in_all": total,
        "seconds_before_the_second_epoch": stamps[0] - started,
        "seconds_an_epoch": statistics.median(warm),
        "seconds_a_step": step,
        "seconds_an_evaluation": evaluation,
        "precision": dtype,
        "peak_memory_gb": torch.cuda.max_memory_allocated() / 1e9,
        "roofline_of_a_step": roofline(*work, step, top, dtype),
        "accuracy_last_epoch": statistics.mean(history.column("test_accuracy")[-1] for history in histories),
    }
    configuration = {"runs": len(runs), "epochs": epochs, "sizes": SIZES, "batch_size": BATCH, "test_rows": len(y_test)}
    evaluated = epochs == 200
    bar = Bar(
        f"seconds for {len(runs)} {model} runs", total, float(settings["bar"]), at_least=False, evaluated=evaluated
    )
    return Section(configuration | {"model": model, "columns": X.shape[1]}, results, [bar])


def dense_data() -> tuple[Any, Any, Any, Any]:
    """Return MNIST as rows of pixels, or random pixels."""
    try:
        task = load_task("mnist", download=False).flat()
        return task.X_train, task.y_train, task.X_test, task.y_test
    except FileNotFoundError:
        rng = np.random.default_rng(0)
        draw = [rng.integers(0, 256, (n, 784), dtype=np.uint8) for n in (60_000, 10_000)]
        return draw[0], np.arange(60_000) % 2, draw[1], np.arange(10_000) % 2


# --------------------------------------------------------------------------------------------------- convolutions


def convolution_work(model: nn.Module) -> tuple[float, float]:
    """Return the FLOPs and bytes of one image, forward and backward, with bfloat16 activations.

    A convolution reads its input and writes its output; backward, it reads the gradient of its output twice, reads its
    input, and writes the gradient of its input. A normalization with ReLU has two reads and a write; backward, two
    reads twice and a write. An addition has two reads and a write; backward, it has none, because it shares its
    gradient. Each value has two bytes.
    """
    flops = moved = 0.0

    def count(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal flops, moved
        if isinstance(layer, nn.Conv2d):
            macs = output[0].numel() * layer.weight[0].numel()
            flops += 2.0 * macs * (2 if layer.in_channels == 3 else 3)
            moved += 2.0 * (3 * output[0].numel() + 3 * inputs[0][0].numel())
        elif isinstance(layer, nn.BatchNorm2d):
            moved += 2.0 * 8 * output[0].numel()

    handles = [layer.register_forward_hook(count) for layer in model.modules()]
    with torch.no_grad():
        model(torch.zeros(1, 3, 32, 32))
    for handle in handles:
        handle.remove()
    additions = 5 * (16 * 1024 + 32 * 256 + 64 * 64)
    return flops, moved + 2.0 * 3 * additions


def convolution_part(epochs: int, top: dict[str, float]) -> Section:
    """Train ResNet-32 with `Trainer`, with one evaluation per epoch."""
    images, labels, test_images, test_labels = image_data()
    drawn = make_sets(labels[:, None], labels, (0.6, 0.4), SIZES, random_state=0).indices
    torch.manual_seed(0)
    model = ResNet32()
    work = convolution_work(model)
    rows = DenseRows(torch.from_numpy(images))
    data = TwoSets((rows, rows), (torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1])))
    options = RunOptions(
        epochs=epochs, batch_size=BATCH, lr=3e-5, l2=5e-3, optimizer_params={"eps": 1e-7}, ema=None, device="cuda",
        input_scale=1 / 255, progress=False, compile=True, graph=True,
    )  # fmt: skip
    stamps: list[float] = []
    torch.cuda.synchronize()
    started = time.perf_counter()
    trainer = Trainer(
        model, data, UURisk((0.6, 0.4), 0.6, "logistic", "unbiased"), options,
        test=(DenseRows(torch.from_numpy(test_images).cuda()), torch.from_numpy(test_labels)),
        callback=lambda *_: stamps.append(time.perf_counter()),
    )  # fmt: skip
    trainer.run()
    total = time.perf_counter() - started
    trainer.model.train()
    x = torch.rand(BATCH, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
    counts = (BATCH // 2, BATCH // 2)
    with fastest_convolutions(trainer):
        step = seconds_of(lambda: trainer.step(x, counts, counts), 40)
    evaluation = seconds_of(trainer._evaluate, 5)
    epoch = statistics.median(later - earlier for earlier, later in itertools.pairwise(stamps[1:]))
    results = {
        "images_a_second_of_training_steps": BATCH / step,
        "images_a_second_of_whole_epochs": sum(SIZES) / epoch,
        "seconds_a_step": step,
        "seconds_an_epoch": epoch,
        "seconds_an_evaluation": evaluation,
        "seconds_before_the_second_epoch": stamps[0] - started,
        "seconds_in_all": total,
        "peak_memory_gb": torch.cuda.max_memory_allocated() / 1e9,
        "roofline_of_a_step": roofline(work[0] * BATCH, work[1] * BATCH, step, top, "bfloat16"),
    }
    bar = Bar("ResNet-32, training images per second", BATCH / step, IMAGES_BAR, at_least=True)
    return Section({"model": "resnet32", "epochs": epochs, "sizes": SIZES, "batch_size": BATCH}, results, [bar])


def contenders_part(top: dict[str, float]) -> Section:
    """Compare a training step of ResNet-32 in plain PyTorch, compiled, and compiled with packed pixels."""
    x = torch.rand(BATCH, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
    rows = DenseRows(torch.zeros(BATCH, 3, 32, 32, dtype=torch.uint8))
    steps = {}
    for name, packs, compiled in (("plain", False, False), ("compiled", False, True), ("packed", True, True)):
        torch._dynamo.reset()
        model = ResNet32()
        for layer in model.modules():
            if isinstance(layer, PackedConv2d) and not packs:
                layer.packing = 1
        options = RunOptions(batch_size=BATCH, ema=None, device="cuda", compile=compiled, progress=False)
        data = TwoSets.from_membership(rows, torch.arange(BATCH) % 2)
        trainer = Trainer(model, data, UURisk((0.6, 0.4), 0.6, "logistic", "unbiased"), options)
        trainer.dtype = torch.bfloat16  # zeros would not show that it is used
        trainer.model.train()
        counts = (BATCH // 2, BATCH // 2)
        with fastest_convolutions(trainer):
            steps[name] = seconds_of(functools.partial(trainer.step, x, counts, counts), 40)
    rates = {f"images_a_second_{name}": BATCH / seconds for name, seconds in steps.items()}
    return Section({"model": "resnet32", "batch_size": BATCH}, {"seconds_a_step": steps, **rates})


def consistency_part() -> Section:
    """Compare the time of an epoch with and without consistency training, for five MLPs and for ResNet-32."""
    always = ConsistencyOptions(ramp=(0, 0))
    common: dict[str, Any] = {
        "batch_size": BATCH,
        "device": "cuda",
        "input_scale": 1 / 255,
        "progress": False,
        "epochs": 8,
    }
    results: dict[str, Any] = {}
    X, y, *_ = dense_data()
    drawn = make_sets(y[:, None], y, (0.6, 0.4), SIZES, random_state=0).indices
    rows = torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1])
    for name, consistency in (("mlp", None), ("mlp_consistency", always)):
        options = RunOptions(augment="shift:1", image_shape=(1, 28, 28), consistency=consistency, **common)
        runs = [Run(rows, (0.6, 0.4), 0.5, seed=seed) for seed in range(5)]
        histories = BatchedTrainer(torch.from_numpy(X), runs, options=options).run()
        results[f"{name}_seconds_an_epoch"] = statistics.median(histories[0].column("seconds")[2:])
    images, labels, *_ = image_data()
    drawn = make_sets(labels[:, None], labels, (0.6, 0.4), SIZES, random_state=0).indices
    table = DenseRows(torch.from_numpy(images))
    data = TwoSets((table, table), (torch.from_numpy(drawn[0]), torch.from_numpy(drawn[1])))
    for name, consistency in (("resnet32", None), ("resnet32_consistency", always)):
        torch._dynamo.reset()
        options = RunOptions(augment="shift+flip", compile=True, graph=True, consistency=consistency, **common)
        history = Trainer(ResNet32(), data, UURisk((0.6, 0.4), 0.6), options).run()
        results[f"{name}_seconds_an_epoch"] = statistics.median(history.column("seconds")[2:])
    bars = []
    for model in ("mlp", "resnet32"):
        ratio = results[f"{model}_consistency_seconds_an_epoch"] / results[f"{model}_seconds_an_epoch"]
        bars.append(Bar(f"{model}, epoch with / without consistency training", ratio, CONSISTENCY_BAR, at_least=False))
    return Section({"sizes": SIZES, "batch_size": BATCH, "mlp_runs": 5}, results, bars)


def image_data() -> tuple[Any, Any, Any, Any]:
    """Return CIFAR-10, or random pixels."""
    try:
        task = load_task("cifar10", download=False)
        return task.X_train, task.y_train, task.X_test, task.y_test
    except FileNotFoundError:
        rng = np.random.default_rng(0)
        draw = [rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8) for n in (50_000, 10_000)]
        return draw[0], np.arange(50_000) % 5 // 2 % 2, draw[1], np.arange(10_000) % 2


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=200, help="of batched training; convolutions run a tenth")
    parser.add_argument("--only", default="stack,convolution,contenders,consistency")
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu.json")
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a CUDA device, but torch finds none")
    stored = read_json(asked.out)
    top = ceilings()
    device = torch.cuda.get_device_name()
    print(f"{device}: {top['bytes_a_second'] / 1e12:.2f} TB/s, {top['bfloat16_flops'] / 1e12:.0f} TFLOP/s in bfloat16")
    parts: dict[str, Callable[[], Section]] = {}
    if "stack" in asked.only:
        parts |= {f"stack-{model}": functools.partial(stack_part, model, asked.epochs, top) for model in DENSE}
    if "convolution" in asked.only:
        parts["resnet32"] = functools.partial(convolution_part, max(4, asked.epochs // 10), top)
    if "contenders" in asked.only:
        parts["resnet32-contenders"] = functools.partial(contenders_part, top)
    if "consistency" in asked.only:
        parts["consistency"] = consistency_part
    for name, measure in parts.items():
        torch.cuda.reset_peak_memory_stats()
        section = measure()
        print(f"\n{name}")
        for key, value in section.results.items():
            print(f"  {key}: {value}")
        for bar in section.bars:
            print(f"  {bar}")
        stored[name] = section.as_json() | {"device": device, "ceilings": top}
        write_json(asked.out, {"format": FORMAT} | stored)


if __name__ == "__main__":
    main()
