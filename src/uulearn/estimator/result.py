"""`FitResult`: everything that a fit gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uulearn.data.inputs import Columns
from uulearn.estimator.learners import Learner, TrainedModel
from uulearn.metrics import Evaluation
from uulearn.metrics.calibration import PlattScaling
from uulearn.training import History

if TYPE_CHECKING:
    from uulearn.estimator.self_training import Round


@dataclass(frozen=True)
class FitResult:
    """The trained model and what is known about it; `uulearn.UUClassifier` sets its fitted attributes from it."""

    learner: Learner
    model: TrainedModel
    history: History
    columns: Columns
    set_sizes: tuple[int, int]
    """Number of training rows of each set."""
    held_out_sizes: tuple[int, int]
    """Number of validation rows of each set; with an ensemble, all rows."""
    seed: int
    resolved: dict[str, Any]
    """Values of the parameters that were "auto"."""
    scaling: PlattScaling | None = None
    """The line from scores to log-odds; None if the model is not calibrated."""
    out_of_fold_evaluation: Evaluation | None = None
    self_training: tuple[Round, ...] | None = None
    error: BaseException | None = None
    """Why the fit ended early although there is a model: it is raised after the estimator has been set."""
