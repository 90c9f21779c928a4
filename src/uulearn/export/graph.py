"""The computation of an exported file: `decision_function`, `predict_proba` and `predict` as one module."""

import copy

import torch
from torch import Tensor, nn

from uulearn.data.inputs import LARGEST_INPUT
from uulearn.estimator import UUClassifier
from uulearn.estimator.learners import NetworkModel
from uulearn.export.steps import Step
from uulearn.models import Ensemble
from uulearn.risk import get_loss

REFUSED = -1
"""Class of a row that the classifier in Python would reject."""


def plain_model(model: nn.Module) -> nn.Module:
    """Return a copy of a module on the CPU in float32, with the default memory layout."""
    plain = copy.deepcopy(model).cpu().float()
    plain.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return plain


def network_of(classifier: UUClassifier) -> NetworkModel:
    """Return the trained network of a classifier; raise TypeError for other models."""
    if not isinstance(classifier.trained_, NetworkModel):
        raise TypeError(
            f"export_onnx supports only networks, got a model of kind {classifier.learner_.kind!r}; fit a classifier "
            "with the model 'mlp' or 'linear'."
        )
    return classifier.trained_


class _EnsembleMean(nn.Module):
    """A version of `Ensemble` for any number of rows; the exporter would treat len(x) in `Ensemble` as a constant."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.models = ensemble.models
        self.scales = nn.Buffer(ensemble.scales)

    def forward(self, x: Tensor) -> Tensor:
        scores = [model(x).reshape(-1).float() for model in self.models]
        return (torch.stack(scores) / self.scales[:, None]).mean(0)


class ClassifierGraph(nn.Module):
    """Module that maps rows X of shape (n, …) to score (n,) and, if priors are known, probability (n,) and class (n,).

    A row with a non-finite or too large value after the pipeline gets the score NaN, the probability NaN and the
    class −1.
    """

    line: Tensor | None

    def __init__(self, classifier: UUClassifier, pipeline: Step | None) -> None:
        super().__init__()
        plain = plain_model(classifier.model_)
        fold = getattr(plain, "for_inference", None)  # as in `score_rows`
        scorer: nn.Module = plain if fold is None else fold(torch.float32)
        self.model = _EnsembleMean(scorer) if isinstance(scorer, Ensemble) else scorer
        self.pipeline = pipeline
        self.input_scale = float(network_of(classifier).input_scale)
        scaling = classifier.scaling_
        # A buffer, because the exporter rounds Python numbers to float32.
        line = None if scaling is None else torch.tensor([scaling.slope, scaling.intercept], dtype=torch.float64)
        self.register_buffer("line", line)
        self.link = get_loss(classifier.fitted_params()["loss"]).probability if scaling is None else torch.sigmoid
        self.output_names = ["score"] if classifier.set_priors is None else ["score", "probability", "class"]

    def forward(self, X: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs, in the order of ``output_names``."""
        x = (X if self.pipeline is None else self.pipeline(X.double())).float()
        finite = x.abs() <= LARGEST_INPUT  # as `uulearn.data.inputs` checks; false for NaN
        x = torch.where(finite, x, 0.0)  # the score of such a row is not used, but it must not affect other rows
        usable = finite.flatten(1).all(1)
        if self.input_scale != 1.0:
            x = x * self.input_scale
        # As in Python, the score is float32, and the probability is computed from it in float64.
        log_odds = self.model(x).reshape(-1).double()
        if self.line is not None:
            log_odds = log_odds * self.line[0] + self.line[1]
        score = log_odds.float()
        outputs = [torch.where(usable, score, torch.nan)]
        if len(self.output_names) > 1:
            outputs.append(torch.where(usable, self.link(log_odds).float(), torch.nan))
            outputs.append(torch.where(usable, (score > 0).long(), REFUSED))
        return tuple(outputs)
