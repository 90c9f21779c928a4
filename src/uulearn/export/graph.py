"""What an exported classifier computes, as one module: what `decision_function`, `predict_proba` and `predict` do."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from uulearn.estimator import UUClassifier
from uulearn.estimator.learners import NetworkModel
from uulearn.models import Ensemble
from uulearn.risk import get_loss

REFUSED = -1
"""The class of a row that the classifier in Python would refuse."""


def plain_model(model: nn.Module) -> nn.Module:
    """A copy on the CPU in float32, with weights laid out as they were defined."""
    plain = copy.deepcopy(model).cpu().float()
    plain.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return plain


class _Mean(nn.Module):
    """What `Ensemble` computes, for any number of rows: to the exporter, len(x) is a constant."""

    scales: Tensor

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__()
        self.models = ensemble.models
        self.register_buffer("scales", ensemble.scales)

    def forward(self, x: Tensor) -> Tensor:
        scores = [model(x).reshape(-1).float() for model in self.models]
        return (torch.stack(scores) / self.scales[:, None]).mean(0)


class ClassifierGraph(nn.Module):
    """From rows X of shape (n, …) to score (n,), and where priors are known probability (n,) and class (n,).

    A row that is not finite where it reaches the model gets the score NaN, the probability NaN and the class −1.

    Parameters
    ----------
    classifier : UUClassifier
        Fitted.
    pipeline : nn.Module, optional
        From float64 rows to the columns that the classifier was fitted on.
    """

    line: Tensor | None

    def __init__(self, classifier: UUClassifier, pipeline: nn.Module | None) -> None:
        super().__init__()
        plain = plain_model(classifier.model_)
        fold = getattr(plain, "for_inference", None)  # as `score_rows` does
        scorer: nn.Module = plain if fold is None else fold(torch.float32)
        self.model = _Mean(scorer) if isinstance(scorer, Ensemble) else scorer
        self.pipeline = pipeline
        assert isinstance(classifier.trained_, NetworkModel)  # checked by export_onnx
        self.input_scale = float(classifier.trained_.input_scale)
        scaling = classifier.scaling_
        # A buffer: the exporter rounds numbers that stand in the code to float32.
        line = None if scaling is None else torch.tensor([scaling.slope, scaling.intercept], dtype=torch.float64)
        self.register_buffer("line", line)
        self.link = get_loss(classifier.fitted_params()["loss"]).probability if scaling is None else torch.sigmoid
        self.output_names = ["score"] if classifier.set_priors is None else ["score", "probability", "class"]

    def forward(self, X: Tensor) -> tuple[Tensor, ...]:
        """The outputs, in the order of ``output_names``."""
        x = (X if self.pipeline is None else self.pipeline(X.double())).float()
        finite = torch.isfinite(x)
        x = torch.where(finite, x, 0.0)  # the row's score is not used, but must not stop the others
        usable = finite.flatten(1).all(1)
        if self.input_scale != 1.0:
            x = x * self.input_scale
        # Python goes from the model's float32 score to a probability in float64: so does the graph.
        log_odds = self.model(x).reshape(-1).double()
        if self.line is not None:
            log_odds = log_odds * self.line[0] + self.line[1]
        score = log_odds.float()
        told = torch.where(usable, score, torch.nan)
        if len(self.output_names) == 1:
            return (told,)
        probability = torch.where(usable, self.link(log_odds).float(), torch.nan)
        return told, probability, torch.where(usable, (score > 0).long(), REFUSED)
