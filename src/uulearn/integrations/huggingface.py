"""`UUTrainer`: the trainer of Hugging Face Transformers on two unlabeled sets.

Install the extra with ``pip install 'uulearn[huggingface]'``. `transformers.Trainer` adds the gradients of
micro-batches, which is exact for a mean over rows. A corrected risk is not a mean over rows, so `UUTrainer` passes all
micro-batches of a step to `uulearn.risk.accumulate`.
"""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from uulearn.metrics import evaluate
from uulearn.risk import UURisk, accumulate
from uulearn.risk.distributed import world_size
from uulearn.risk.functional import estimate_risk, flat_sets

try:
    from transformers import EvalPrediction, Trainer
except (ImportError, RuntimeError, OSError) as error:
    if any(find_spec(name) is None for name in ("transformers", "accelerate")):
        raise ImportError(
            "UUTrainer needs Transformers; install it with pip install 'uulearn[huggingface]'."
        ) from error
    cause: BaseException = error
    while cause.__cause__ is not None:  # Transformers wraps the errors of the packages that it imports
        cause = cause.__cause__
    raise ImportError(
        f"Transformers is installed but cannot be loaded ({str(cause).rstrip('.')}); install versions of torch, "
        "torchvision and Transformers that work together."
    ) from error

SETS = "sets"
"""Name of the column with the set of each row."""


class UUTrainer(Trainer):
    """`transformers.Trainer` that minimizes the corrected risk of the whole batch.

    The batch of a step consists of the micro-batches of all processes. Its gradient does not depend on
    ``gradient_accumulation_steps`` or on the number of processes, except for rounding, dropout and batch normalization.

    Each row of ``train_dataset`` and ``eval_dataset`` needs an integer column ``sets``: the set that the row came from.
    A column ``labels`` is ignored. The model needs one output (``num_labels=1``); a score above zero is the positive
    class. With ``gradient_accumulation_steps`` above 1, each micro-batch needs two forward passes (see `accumulate`),
    and DeepSpeed is not supported.

    Parameters
    ----------
    *args, **kwargs
        Arguments of `transformers.Trainer`. The default of ``compute_metrics`` is `estimate_metrics`.
    compute_loss_func : UURisk
        Training objective.
    """

    _micro_batches: list[dict[str, Any]]

    def __init__(self, *args: Any, compute_loss_func: UURisk, **kwargs: Any) -> None:
        if not isinstance(compute_loss_func, UURisk):
            raise TypeError(f"compute_loss_func must be a UURisk, got {compute_loss_func!r}.")
        if kwargs.get("compute_metrics") is None:
            kwargs["compute_metrics"] = self.estimate_metrics
        super().__init__(*args, **kwargs | {"compute_loss_func": compute_loss_func})
        self.criterion = compute_loss_func
        self._check_arguments()
        self.label_names = [SETS]  # the columns that are not arguments of the model but stay in the batches
        if compute_loss_func.distributed and world_size() != self.args.world_size:
            raise ValueError(
                f"there are {world_size()} connected processes, but TrainingArguments found {self.args.world_size}; to "
                "train in several processes on CPUs, pass use_cpu=True to TrainingArguments."
            )
        n_outputs = getattr(getattr(self.model, "config", None), "num_labels", 1)
        if n_outputs != 1:
            raise ValueError(f"the model must have one output, got num_labels={n_outputs}; load it with num_labels=1.")
        self._check_sets({"train_dataset": self.train_dataset})
        self._check_sets(self.eval_dataset)

    def estimate_metrics(self, prediction: EvalPrediction) -> dict[str, float]:
        """Return the training objective, both risk terms and the estimated accuracy of all evaluated rows.

        No label is used. ``accuracy_low`` and ``accuracy_high`` are the limits of the 95% confidence interval.
        """
        scores, sets = torch.as_tensor(prediction.predictions), torch.as_tensor(prediction.label_ids)
        priors = self.criterion.set_priors, self.criterion.target_prior
        parts = estimate_risk(scores, sets, *priors, self.criterion.loss, self.criterion.method)
        accuracy = evaluate(scores, sets, *priors).accuracy
        low, high = accuracy.interval
        terms = {"loss": parts.objective, "positive": parts.positive, "negative": parts.negative}
        found = {name: term.item() for name, term in terms.items()}
        return found | {"accuracy": accuracy.value, "accuracy_low": low, "accuracy_high": high}

    def evaluate(self, eval_dataset: Any = None, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate the model without labels, see `estimate_metrics`."""
        self._check_sets(eval_dataset)
        found: dict[str, float] = super().evaluate(eval_dataset, *args, **kwargs)
        return found

    # --------------------------------------------------------------------------------------- steps of the base class

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Return the micro-batches of the next step, and remember them for `training_step`."""
        self._micro_batches, n_items = super().get_batch_samples(*args, **kwargs)
        return self._micro_batches, n_items

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        """Compute the gradient of the whole batch at its last micro-batch, and nothing before; return the objective."""
        if len(self._micro_batches) == 1:
            loss: Tensor = super().training_step(model, inputs, *args, **kwargs)
            return loss
        if inputs is not self._micro_batches[-1]:
            return torch.zeros((), device=self.args.device)
        model.train()
        if callable(switch := getattr(self.optimizer, "train", None)):  # schedule-free optimizers have two modes
            switch()
        batches = [self._split_sets(self._prepare_inputs(batch)) for batch in self._micro_batches]
        with self.compute_loss_context_manager():
            return accumulate(self.criterion, _Scores(model), batches, backward=self.accelerator.backward).objective

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        """Return the risk of one batch over all processes."""
        inputs, sets = self._split_sets(inputs)
        outputs = model(**inputs)
        loss = self.criterion(_scores(outputs), sets)
        return (loss, outputs) if return_outputs else loss

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[None, Any, Any]:
        """Return the scores and sets of a batch, and no loss: the risk of all rows is not a mean over batches."""
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            scores = _scores(model(**_without_sets(inputs)))
        return None, scores.detach(), inputs.get(SETS)

    def _check_arguments(self) -> None:
        """Raise a ValueError for training arguments that do not work with the risk of a whole batch."""
        smoothing, steps = self.args.label_smoothing_factor, self.args.gradient_accumulation_steps
        if smoothing:
            raise ValueError(
                f"label_smoothing_factor={smoothing} has no effect, because UUTrainer uses no labels; remove it."
            )
        if not self.args.eval_do_concat_batches:
            raise ValueError(
                "eval_do_concat_batches=False is not supported, because the risk is computed from all evaluated rows; "
                "remove it."
            )
        if self.is_deepspeed_enabled and steps > 1:  # `accumulate` calls backward once per micro-batch
            raise ValueError(
                f"DeepSpeed cannot be used with gradient_accumulation_steps={steps}, because it would update the "
                "weights after each micro-batch; set it to 1, or train without DeepSpeed."
            )

    def _check_sets(self, datasets: Any) -> None:
        """Raise a ValueError if the first row of a dataset, or of each dataset in a dict, has no set."""
        for name, data in datasets.items() if isinstance(datasets, dict) else [("eval_dataset", datasets)]:
            if isinstance(data, IterableDataset | str) or not (
                hasattr(data, "__getitem__") and hasattr(data, "__len__")
            ):
                continue  # a stream, or the name of a dataset that is already checked
            if len(data) and isinstance(row := data[0], Mapping) and SETS not in row:
                raise ValueError(_no_sets(f"the rows of {name}", row, name))

    def _split_sets(self, inputs: dict[str, Any]) -> tuple[dict[str, Any], Tensor]:
        """Return the inputs of the model and the sets of a batch."""
        if SETS not in inputs:
            raise ValueError(_no_sets("the batches", inputs, "train_dataset"))
        sets = inputs[SETS]
        flat_sets(sets.cpu(), len(sets), len(self.criterion.set_priors))  # values are only checked on the CPU
        return _without_sets(inputs), sets


class _Scores(nn.Module):
    """The scores of a model for the inputs of a micro-batch, as `accumulate` needs them."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.no_sync = getattr(model, "no_sync", None)

    def forward(self, inputs: dict[str, Any]) -> Tensor:
        return _scores(self.model(**inputs))


def _scores(outputs: Any) -> Tensor:
    """Return the scores in the outputs of a model, which may be a tensor, a dict or an object of Transformers."""
    scores = outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", None)
    if scores is None and isinstance(outputs, Mapping):
        scores = outputs.get("logits")
    if not isinstance(scores, Tensor):
        raise TypeError(
            f"the model must return a tensor, or logits as Transformers does, got {type(outputs).__name__}."
        )
    return scores


def _no_sets(what: str, columns: Iterable[str], dataset: str) -> str:
    return (
        f"{what} have no column {SETS!r}, only {', '.join(columns)}; add a column {SETS!r} with the set (0 or 1) of "
        f"each row to {dataset}."
    )


def _without_sets(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if name not in (SETS, "labels")}
