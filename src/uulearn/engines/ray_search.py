"""The models of a search on a Ray cluster, one task a job; the store is written by the process that asks."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from uulearn.engines.ray_cluster import finished_tasks, ray_cluster
from uulearn.selection.trials import Job, Place, Result, Trials, train_job
from uulearn.training.progress import ProgressBar

TASK = "uulearn-search"


def train_on_ray(
    trials: Trials, jobs: Sequence[Job], *, address: str | None = None, workers: int | None = None
) -> Generator[dict[Place, Result]]:
    """Train jobs on a cluster; yields the results of each as it is finished.

    The rows travel to the cluster and the models back, so that its machines need to share no files, but for checkpoints
    where these are asked for. A job whose process dies is done again.

    Parameters
    ----------
    trials : Trials
    jobs : sequence of Job
    address, workers
        As for `ray_cluster`; at most so many jobs are trained at once.
    """
    if not jobs:
        return
    first = trials.tried[0]
    with ray_cluster(address, workers) as ray, ProgressBar(len(jobs), first.progress, unit="stacks of models") as bar:
        # "cuda" is refused before where this process has none; the cluster may have some nevertheless.
        gpus = int(first.device != "cpu" and bool(ray.cluster_resources().get("GPU")))
        shared = ray.put(trials)
        calls = [(shared, job) for job in jobs]
        found = finished_tasks(ray, train_job, calls, at_once=workers, gpus=gpus, what=TASK)
        for done, (_, results) in enumerate(found, 1):
            yield results
            bar.update(done, {})
