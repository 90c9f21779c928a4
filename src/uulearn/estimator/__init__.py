"""`UUClassifier`, and the steps of a fit.

A fit has four steps, which can be called separately (`UUClassifier.plan_sets` runs the first two, and
`UUClassifier.fit_plan` runs the last two):

1. `check_parameters` and `uulearn.data.inputs` check the parameters and read the data (`FitData`);
2. `make_plan` resolves "auto" and chooses the folds or held-out rows and the `Learner` (`FitPlan`);
3. `run_plan` trains, calibrates and evaluates (`FitResult`);
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
