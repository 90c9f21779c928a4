"""Train the runs of ``uulearn demo``: five methods on two datasets included in scikit-learn.

Each run trains a small deep model on two unlabeled sets with class priors 0.7 and 0.3. Without a correction, the
empirical risk becomes negative and the test accuracy drops; a correction prevents this.
"""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from uulearn import defaults
from uulearn.datasets import UnlabeledSets, make_sets
from uulearn.estimator import UUClassifier
from uulearn.training import History, TrainingOptions

DEMO_PRIORS = (0.7, 0.3)
DEMO_MODEL = {"hidden": (100, 100, 100)}


@dataclass(frozen=True)
class DemoTask:
    """A labeled dataset: training rows, from which two unlabeled sets are drawn, and test rows."""

    name: str
    X_train: NDArray[Any]
    y_train: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]
    set_size: int
    input_scale: float = 1.0

    @property
    def target_prior(self) -> float:
        """Class prior of the test rows."""
        return float(self.y_test.mean())


@dataclass(frozen=True)
class DemoResult:
    """One row of the table that the demo prints."""

    dataset: str
    method: str
    accuracy: float
    best: float
    risk: float
    negative_epoch: int | None

    @property
    def drop(self) -> float:
        """Δ_A, the accuracy of the best epoch minus the accuracy of the last epoch."""
        return self.best - self.accuracy


def demo_tasks(seed: int) -> list[DemoTask]:
    """Return the two tasks: digits (even against odd) and breast cancer (malignant against benign)."""
    digits, classes = load_digits(return_X_y=True)
    cells, benign = load_breast_cancer(return_X_y=True)
    tasks = []
    for name, X, y, size, scale in (
        ("digits", digits, (classes % 2 == 0).astype(int), 600, 1 / 16),
        ("breast cancer", cells, 1 - benign, 180, 1.0),
    ):
        X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, stratify=y, random_state=seed)
        if scale == 1.0:
            scaler = StandardScaler().fit(X_train)
            X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
        tasks.append(DemoTask(name, X_train, y_train, X_test, y_test, size, scale))
    return tasks


def draw_sets(task: DemoTask, seed: int) -> UnlabeledSets:
    """Draw two unlabeled sets from the training rows."""
    return make_sets(task.X_train, task.y_train, DEMO_PRIORS, (task.set_size, task.set_size), random_state=seed)


def train_task(task: DemoTask, method: str, epochs: int, seed: int) -> UUClassifier:
    """Train one method on one task."""
    drawn = draw_sets(task, seed)
    classifier = UUClassifier(
        drawn.realized_priors,
        task.target_prior,
        method=method,
        model_params=DEMO_MODEL,
        epochs=epochs,
        training=TrainingOptions(input_scale=task.input_scale),
        random_state=seed,
        progress=False,
        **defaults.SINGLE_RUN,  # early stopping and ensembling would hide the drop
    )
    return classifier.fit_sets(drawn.X0, drawn.X1, test_data=(task.X_test, task.y_test))


def summarize(task: DemoTask, method: str, history: History) -> DemoResult:
    """Return the row of the printed table for one run."""
    accuracy = history.column("test_accuracy")
    return DemoResult(
        task.name, method, accuracy[-1], max(accuracy), history[-1]["unbiased"], history.first_negative_epoch
    )
