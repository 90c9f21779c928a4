"""Run the experiments of the paper on a Ray cluster, one task per job; only the calling process writes to the store."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from uulearn.datasets import BinaryTask
from uulearn.engines.ray_cluster import finished_tasks, ray_cluster
from uulearn.reproduction.experiments import Configuration
from uulearn.reproduction.jobs import MAX_BATCHED_RUNS, ExperimentJob, Reporter, plan_jobs
from uulearn.reproduction.runner import JobTrainer, ReproductionOutcome, choose_device, train_in_parts
from uulearn.reproduction.store import Record, RunStore, key

TASK = "uulearn-train"


def reproduce_on_ray(
    configurations: Iterable[Configuration],
    store: RunStore,
    tasks: Callable[[str], BinaryTask],
    *,
    device: str = "auto",
    reporter: Reporter | None = None,
    address: str | None = None,
    workers: int | None = None,
) -> ReproductionOutcome:
    """Train all configurations that are missing from the store on a Ray cluster, and store the records.

    The records are the same as those of `uulearn.reproduction.runner.reproduce`. Data and records are sent over the
    network. A job whose process dies is retried. ``workers`` limits the number of jobs that run in parallel.
    """
    wanted = list(configurations)
    missing = [dict(configuration) for configuration in store.missing(wanted)]
    found = len(set(map(key, wanted))) - len(missing)
    reporter = reporter or Reporter()
    if not missing:
        reporter.begin([], found)
        return ReproductionOutcome(0, found, 0)
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', got {device!r}.")
    done = not_finite = 0
    with ray_cluster(address, workers) as ray:
        has_gpus = bool(ray.cluster_resources().get("GPU"))
        if device == "cuda" and not has_gpus:
            raise ValueError("device is 'cuda', but the Ray cluster has no GPU; use 'auto'.")
        place = "cuda" if device == "cuda" or (device == "auto" and has_gpus) else "cpu"
        jobs = plan_jobs(missing, MAX_BATCHED_RUNS if place == "cuda" else None)
        reporter.begin(jobs, found)
        data: dict[str, Any] = {}
        for name in dict.fromkeys(job.first["dataset"] for job in jobs):
            reporter.load(name)
            data[name] = ray.put(tasks(name))  # sent once, shared by all jobs
        calls = [(job, data[job.first["dataset"]], place) for job in jobs]
        gpus = int(place == "cuda")
        for number, (records, seconds) in finished_tasks(ray, train_job, calls, at_once=workers, gpus=gpus, what=TASK):
            done += sum(store.add_all(records))
            not_finite += sum("not finite" in record["stop_reason"] for record in records)
            reporter.finish(jobs[number], records, seconds)
    return ReproductionOutcome(done, found, not_finite)


def train_job(job: ExperimentJob, task: BinaryTask, device: str) -> tuple[list[Record], float]:
    """Train the models of a job, and return the records and the duration in seconds."""
    started = time.perf_counter()
    records = train_in_parts(JobTrainer(task, choose_device(device), Reporter()), job)
    return records, time.perf_counter() - started
