"""Score many rows without gradients, in chunks that fit into the cache; batch normalization is folded if possible."""

import torch
from torch import Tensor, nn

from uulearn.data.rows import Rows
from uulearn.training.options import few_threads

SCORING_CHUNK_BYTES = {"cpu": 4 * 2**20, "cuda": 256 * 2**20}
"""Number of bytes of rows that are scored at a time, for each type of device."""


def module_device(module: nn.Module) -> torch.device:
    """Return the device of a module's first parameter, or the CPU if the module has no parameters."""
    return next((parameter.device for parameter in module.parameters()), torch.device("cpu"))


@torch.no_grad()
def score_rows(model: nn.Module, rows: Rows, *, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
    """Return the score g(x) of every row as a float32 tensor of shape (n,) on the CPU.

    If the model has a method ``for_inference(dtype)`` (such as `uulearn.models.MLP`), the module returned by this
    method computes the scores from rows of type ``dtype``. Other models run under autocast.

    >>> from uulearn.data import DenseRows
    >>> score_rows(nn.Flatten(0), DenseRows(torch.tensor([[1.0], [2.0]])))
    tensor([1., 2.])
    """
    device, was_training = module_device(model), model.training
    fold = getattr(model, "for_inference", None)
    scorer: nn.Module = fold(dtype) if fold is not None else model.eval()
    rows_dtype = dtype if fold is not None else torch.float32
    per_row = max(1, torch.Size(rows.row_shape).numel()) * 4
    chunk = max(16, SCORING_CHUNK_BYTES.get(device.type, SCORING_CHUNK_BYTES["cpu"]) // per_row)
    scores = torch.empty(rows.n_rows, device=device)
    try:
        with (
            few_threads(rows.n_rows, rows.row_shape, model),
            torch.autocast(device.type, dtype=torch.bfloat16, enabled=fold is None and dtype == torch.bfloat16),
        ):
            for start in range(0, rows.n_rows, chunk):
                stop = min(start + chunk, rows.n_rows)
                x = rows.slice(start, stop).to(device)
                if scale != 1.0:
                    x = x.float() * scale
                scores[start:stop] = scorer(x.to(rows_dtype)).reshape(stop - start)
    finally:
        if fold is None:
            model.train(was_training)
    return scores.cpu()
