"""Several processes of a Ray cluster that train one model, and begin again from its checkpoint when one of them dies.

Ray Train starts the processes and their `torch.distributed` group. It is told not to start them again by itself: a
death while they start is no failure of a worker to it, and it cannot know a mistake, which would come back, from an
accident. Both are settled here.
"""

from __future__ import annotations

import importlib
import os
import queue
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from uulearn.engines.ray_cluster import RETRIES, ray_cluster
from uulearn.storage import write_atomically

MISTAKE = "mistake.txt"
FINAL = (ValueError, TypeError, LookupError, ArithmeticError, ImportError, OSError)
"""What would come again if the same were done again; a lost connection to another worker is a RuntimeError."""


def train_on_ray(
    work: Callable[[], None], scratch: Path, *, workers: int, device: str = "auto", address: str | None = None
) -> None:
    """Call ``work()`` in each of several processes of a cluster, which are a process group, until all have done it.

    Where a process dies all are ended and started again, up to three times; ``work`` goes on from where its own
    checkpoint is. A mistake that it raises is raised here as a ValueError with the same text.

    Parameters
    ----------
    work : callable
        Importable on the cluster. It is called in the folder that is the current one here.
    scratch : Path
        A folder that is made for this, and removed; all machines must share it.
    workers : int
        The number of processes, each with a core of its own; with ``device="cuda"``, or ``"auto"`` on a cluster with as
        many GPUs, with a GPU too.
    device, address : str
    """
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        with ray_cluster(address, workers) as ray:
            use_gpu = _check_room(ray.cluster_resources(), workers, device)
            # As bytes, since Ray Train hands it on by a process that would import all that the work needs.
            packed = importlib.import_module("ray.cloudpickle").dumps(work)
            settings = {"work": packed, "folder": os.getcwd(), "scratch": str(scratch)}
            for attempt in range(RETRIES + 1):
                error = _train_once(settings, workers, use_gpu)
                if (scratch / MISTAKE).exists():
                    raise ValueError((scratch / MISTAKE).read_text(encoding="utf-8"))
                if error is None:
                    return
                if attempt == RETRIES or not isinstance(
                    error, importlib.import_module("ray.train").TrainingFailedError
                ):
                    reason = str(error).strip().splitlines() or [type(error).__name__]
                    raise RuntimeError(
                        f"training on Ray failed {attempt + 1} times, the last time so: {reason[-1]} What was trained "
                        "so far is kept; look for what ends the processes, and go on with --resume."
                    ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_room(resources: dict[str, float], workers: int, device: str) -> bool:
    """Whether each worker gets a GPU; Ray would wait for ever for what a cluster does not have."""
    cores, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    if cores < workers:
        raise ValueError(f"{workers} workers need as many cores, and the Ray cluster has {cores}; pass fewer.")
    if device.startswith("cuda") and gpus < workers:
        raise ValueError(f"{workers} workers need as many GPUs, and the Ray cluster has {gpus}; pass fewer, or no GPU.")
    return device != "cpu" and gpus >= workers


def _train_once(settings: dict[str, Any], workers: int, use_gpu: bool) -> BaseException | None:
    """Start the processes and wait for them; what went wrong, if anything did.

    In a thread: in the main one Ray Train would take over interrupts, and end the process without a word.
    """
    train = importlib.import_module("ray.train")
    trainer = importlib.import_module("ray.train.torch").TorchTrainer(
        _work_in_group,
        train_loop_config=settings,
        scaling_config=train.ScalingConfig(num_workers=workers, use_gpu=use_gpu),
        run_config=train.RunConfig(name="train", storage_path=settings["scratch"]),
    )
    ended: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            trainer.fit()
            ended.put(None)
        except BaseException as error:
            ended.put(error)

    threading.Thread(target=run, daemon=True).start()
    return ended.get()


def _work_in_group(settings: dict[str, Any]) -> None:
    """What each process does; a mistake is written down before it ends all of them."""
    try:
        os.chdir(settings["folder"])
        importlib.import_module("ray.cloudpickle").loads(settings["work"])()
    except FINAL as error:
        text = str(error) or type(error).__name__
        place = Path(settings["scratch"]) / MISTAKE
        write_atomically(place, lambda path: path.write_text(text, encoding="utf-8"))
        raise
