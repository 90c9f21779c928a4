"""Train the models of a search on a Ray cluster, one task per job; only the calling process writes to the store."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from uulearn.engines.ray_cluster import finished_tasks, ray_cluster
from uulearn.selection.trials import Place, Result, TrainingJob, Trials, train_job
from uulearn.training.progress import ProgressBar

# Name of the tasks in the Ray dashboard.
TASK = "uulearn-search"


@dataclass(frozen=True)
class RayExecutor:
    """Executor that trains the models of `uulearn.selection.UUClassifierCV` in parallel on a Ray cluster.

    Rows are sent to the cluster, and models are sent back. The machines need shared storage only if you request
    checkpoints. A job whose process dies is retried. ``address`` is ``"auto"`` for the cluster that this machine
    belongs to, or the host and port of a head node; by default, a local cluster is started. ``workers`` is the number
    of jobs trained in parallel, by default one per core (or GPU).
    """

    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and not (isinstance(self.workers, int) and self.workers > 0):
            raise ValueError(f"workers must be a positive integer, got {self.workers!r}.")

    def train(self, trials: Trials, jobs: Sequence[TrainingJob]) -> Generator[dict[Place, Result]]:
        """Train the jobs; yield the results of each job when it finishes."""
        if not jobs:
            return
        first = trials.plans[0].parameters
        bar = ProgressBar(len(jobs), first.progress, unit="groups of models")
        with ray_cluster(self.address, self.workers) as ray, bar:
            # "cuda" fails earlier if this process has no GPU; with "auto", the cluster may have GPUs.
            gpus = int(first.device != "cpu" and bool(ray.cluster_resources().get("GPU")))
            shared = ray.put(trials)
            calls = [(shared, job) for job in jobs]
            found = finished_tasks(ray, train_job, calls, at_once=self.workers, gpus=gpus, what=TASK)
            for done, (_, results) in enumerate(found, 1):
                yield results
                bar.update(done, {})
