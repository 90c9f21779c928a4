"""The `UUClassifier` estimator and the four steps of its `fit` method.

`UUClassifier.fit` runs four steps. They can also be run separately: `UUClassifier.plan_sets` runs the first two steps,
and `UUClassifier.fit_plan` runs the last two.

1. `check_parameters` and `uulearn.data.inputs` check the parameters and read the data (`FitData`);
2. `make_plan` resolves "auto" parameters, chooses folds or held-out rows, and creates the `Learner` (`FitPlan`);
3. `run_plan` trains, calibrates and evaluates the model (`FitResult`);
4. `UUClassifier.set_fitted` sets the fitted attributes from the result.
"""

from uulearn.data.inputs import FitData
from uulearn.estimator.classifier import UUClassifier
from uulearn.estimator.fitting import FitResult, run_plan
from uulearn.estimator.learners import Learner, NetworkLearner, TrainedModel
from uulearn.estimator.parameters import check_parameters
from uulearn.estimator.plan import FitPlan, make_plan
from uulearn.estimator.resolving import ResolvedParameters, resolve_defaults

__all__ = [
    "FitData", "FitPlan", "FitResult", "Learner", "NetworkLearner", "ResolvedParameters", "TrainedModel",
    "UUClassifier", "check_parameters", "make_plan", "resolve_defaults", "run_plan",
]  # fmt: skip
