"""Train one model with several processes of a Ray cluster, and resume from its checkpoint if a process dies.

Ray Train starts the processes and their `torch.distributed` group. Retries by Ray Train are not used, because Ray Train
does not count a process that dies during startup as a failure, and would retry after permanent errors.
"""

import contextlib
import functools
import importlib
import os
import queue
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from uulearn.app.facts import FitFacts
from uulearn.app.fitting import SHARED_ROWS
from uulearn.app.model import TableModel
from uulearn.app.output import FitRun, OutputFolder, join_fit_workers
from uulearn.app.settings import FitSettings
from uulearn.engines.ray_cluster import RETRIES, ray_cluster
from uulearn.storage import write_atomically
from uulearn.training.progress import ProgressCallback, StageStarted
from uulearn.training.workers import FirstWorkerError

ERROR_FILE = "error.txt"
"""File in the scratch folder with the message of an error that ends the training."""
GROUP_FILE = "placement_group.txt"
"""File in the scratch folder with the id of the placement group, which holds the cores of the processes."""
PERMANENT_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError, ImportError, OSError)
"""Errors that would occur again after a retry; a lost connection to another worker raises a RuntimeError."""


def fit_on_ray(run: FitRun, command: str, progress: ProgressCallback, workers: int, address: str | None) -> FitFacts:
    """Train on two files with several cluster processes, which all need access to the files and the output folder."""
    folder = run.folder
    work = functools.partial(_fit_on_worker, run.settings, folder, command)
    scratch = folder.place.with_name(f".{folder.place.name}.ray")
    device = str(run.settings.classifier.get("device", "auto"))
    progress(StageStarted(f"training with {workers} processes on Ray"))
    with folder.explain_failure(run.resumed):
        try:
            train_on_ray(work, scratch, workers=workers, device=device, address=address)
        except RuntimeError as error:
            if not folder.resume_hint():
                raise
            again = command if run.resumed else f"{command} --resume"
            raise RuntimeError(f"{str(error).rstrip('.')}; continue from the checkpoint with: {again}") from error
        finally:
            shutil.rmtree(folder.unfinished / SHARED_ROWS, ignore_errors=True)  # from a killed first worker
        folder.clean_up()
    return TableModel.load(folder.place).fit_facts


def _fit_on_worker(settings: FitSettings, folder: OutputFolder, command: str) -> None:
    """Run the fit in one process of the cluster; the command that started Ray removes incomplete output."""
    with contextlib.suppress(FirstWorkerError):
        FitRun(settings, folder, resumed=True, workers=join_fit_workers(settings)).fit(command, clean_up=False)


def train_on_ray(
    work: Callable[[], None], scratch: Path, *, workers: int, device: str = "auto", address: str | None = None
) -> None:
    """Call ``work()`` in several cluster processes that form a process group, and wait until all have finished.

    If a process or Ray's train controller dies, all processes are started again, up to three times, and ``work`` must
    resume from its own checkpoint. A permanent error of ``work`` is raised here as a ValueError with the same text.
    ``scratch`` is a temporary folder, created and removed here, on storage that all machines share. Each process uses
    one core, and one GPU if ``device`` is ``"cuda"``, or ``"auto"`` on a cluster with enough GPUs.
    """
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        with ray_cluster(address, workers) as ray:
            use_gpu = _check_room(ray.cluster_resources(), workers, device)
            # Sent as bytes: the controller process of Ray Train then does not import the modules of the work.
            packed = importlib.import_module("ray.cloudpickle").dumps(work)
            settings = {"work": packed, "folder": os.getcwd(), "scratch": str(scratch)}
            for attempt in range(RETRIES + 1):
                (scratch / GROUP_FILE).unlink(missing_ok=True)
                error = _train_once(settings, workers, use_gpu)
                if (scratch / ERROR_FILE).exists():
                    raise ValueError((scratch / ERROR_FILE).read_text(encoding="utf-8"))
                if error is None:
                    return
                controller_died = isinstance(error, ray.exceptions.RayActorError)
                failed = isinstance(error, importlib.import_module("ray.train").TrainingFailedError)
                may_retry = _release_cores(ray, scratch) if controller_died else failed
                if attempt == RETRIES or not may_retry:
                    lines = str(error).strip().splitlines() or [type(error).__name__]
                    reason = "the process of Ray's train controller died" if controller_died else lines[-1].rstrip(".")
                    raise RuntimeError(
                        f"training on Ray failed (attempt {attempt + 1}): {reason}; find out why, for example because "
                        "memory is exhausted."
                    ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_room(resources: dict[str, float], workers: int, device: str) -> bool:
    """Return whether each worker gets a GPU; raise a ValueError if the cluster has too few cores or GPUs."""
    cores, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    needs_gpus = device.startswith("cuda")
    if cores < workers or (needs_gpus and gpus < workers):
        found = f"{cores} cores" + (f" and {gpus} GPUs" if needs_gpus else "")
        needed = f"{workers} cores" + (f" and {workers} GPUs" if needs_gpus else "")
        raise ValueError(f"{workers} workers need {needed}, but the Ray cluster has {found}; pass fewer --workers.")
    return device != "cpu" and gpus >= workers


def _release_cores(ray: Any, scratch: Path) -> bool:
    """Remove the placement group of a dead controller, as Ray does with a dashboard; return whether it is known."""
    place = scratch / GROUP_FILE
    if not place.exists():
        return False  # the next attempt would wait forever for the cores
    group = importlib.import_module("ray.util.placement_group")
    group.remove_placement_group(group.PlacementGroup(ray.PlacementGroupID(bytes.fromhex(place.read_text()))))
    return True


def _train_once(settings: dict[str, Any], workers: int, use_gpu: bool) -> BaseException | None:
    """Start the processes, wait until they end, and return the error, or None if training succeeded.

    Ray Train runs in its own thread. In the main thread, it would handle interrupts and end the process silently.
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
    """Run the work in one process; if it fails permanently, store the error before all processes are stopped."""
    scratch, group = Path(settings["scratch"]), importlib.import_module("ray.util").get_current_placement_group()
    if group is not None:
        write_atomically(scratch / GROUP_FILE, lambda path: path.write_text(group.id.hex()))
    try:
        os.chdir(settings["folder"])
        importlib.import_module("ray.cloudpickle").loads(settings["work"])()
    except PERMANENT_ERRORS as error:
        text = str(error) or type(error).__name__
        write_atomically(scratch / ERROR_FILE, lambda path: path.write_text(text, encoding="utf-8"))
        raise
