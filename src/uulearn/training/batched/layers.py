"""Layers of batched networks with hand-written gradients: batch normalization with ReLU, and the output unit.

Autograd would store more tensors and make more passes over the activations. CUDA devices use the Triton kernels of
`uulearn.training.batched.kernels`; other devices and systems without Triton use the torch formulas below.
"""

import importlib.util
from typing import Any

import torch
from torch import Tensor

HAS_TRITON = importlib.util.find_spec("triton") is not None


def use_kernels(x: Tensor) -> bool:
    """Return whether the Triton kernels are used for this tensor."""
    return x.is_cuda and HAS_TRITON


def split_runs(x: Tensor, width: int) -> Tensor:
    """Reshape a tensor from (G, n, width·h), with the runs of a group side by side, to (R, n, h)."""
    groups, n, columns = x.shape
    return x.reshape(groups, n, width, columns // width).transpose(1, 2).reshape(groups * width, n, columns // width)


def concatenate_runs(x: Tensor, width: int) -> Tensor:
    """Invert `split_runs`."""
    runs, n, h = x.shape
    return x.view(runs // width, width, n, h).transpose(1, 2).reshape(runs // width, n, width * h)


class NormalizeReLU(torch.autograd.Function):
    """Compute relu(γ·(x − mean)/√(var + ε) + β) with the mean and variance of each unit over the rows of a batch.

    x has shape (G, n, width·h), with the ``width`` runs of a group side by side; γ and β have shape (R, 1, h). The
    first row is subtracted before the moments are computed, so one pass is enough and cancellation is avoided. The
    outputs are the activations, with shape (R, n, h) and the dtype of x, and the mean and biased variance of the batch.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, gamma: Tensor, beta: Tensor, eps: float, width: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Normalize with the batch statistics, and apply the ReLU."""
        n = x.shape[1]
        about = split_runs(x[:, :1], width).float().contiguous()  # required by the kernels
        if use_kernels(x):
            from uulearn.training.batched import kernels

            first, second = (sums / n for sums in kernels.moments(x, about, width))
        else:
            distance = split_runs(x, width).float() - about
            first, second = (values.mean(1, keepdim=True) for values in (distance, distance * distance))
        var = (second - first * first).clamp(min=0)
        mean, inverse = about + first, torch.rsqrt(var + eps)
        ctx.save_for_backward(x, gamma, beta, mean, inverse)
        ctx.width = width
        ctx.mark_non_differentiable(mean, var)
        return scale_shift_relu(x, mean, inverse * gamma, beta, width), mean, var

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients with respect to x, γ and β; the batch statistics are treated as functions of x."""
        x, gamma, beta, mean, inverse = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        if use_kernels(x):
            from uulearn.training.batched import kernels

            d_x, d_gamma, d_beta = kernels.normalize_gradient(x, gradient, gamma, beta, mean, inverse, ctx.width)
        else:
            n = x.shape[1]
            normalized = (split_runs(x, ctx.width).float() - mean) * inverse
            back = torch.where(normalized * gamma + beta > 0, gradient.float(), 0)
            d_beta, d_gamma = back.sum(1, keepdim=True), (back * normalized).sum(1, keepdim=True)
            d_x = (gamma * inverse) * (back - d_beta / n - normalized * (d_gamma / n))
            d_x = concatenate_runs(d_x.to(x.dtype), ctx.width)
        return d_x, d_gamma, d_beta, None, None


class OutputUnit(torch.autograd.Function):
    """Scores of shape (R, n) from hidden units (R, n, h), kernels (R, h, 1) and biases (R, 1, 1), in float32."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
        """Return hidden · kernel + bias."""
        ctx.save_for_backward(hidden, kernel)
        return output_scores(hidden, kernel, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the gradients with respect to the hidden units, the kernels and the biases."""
        hidden, kernel = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        if use_kernels(hidden):
            from uulearn.training.batched import kernels

            d_hidden, d_kernel = kernels.scores_gradient(hidden, kernel, gradient)
        else:
            d_hidden = (gradient[:, :, None] * kernel.transpose(1, 2)).to(hidden.dtype)
            d_kernel = torch.bmm(hidden.float().transpose(1, 2), gradient[:, :, None])
        return d_hidden, d_kernel, gradient.sum(1)[:, None, None]


def scale_shift_relu(x: Tensor, mean: Tensor, scale: Tensor, shift: Tensor, width: int) -> Tensor:
    """Return relu((x − mean)·scale + shift) of shape (R, n, h), in the type of x, for x of shape (G, n, width·h)."""
    if use_kernels(x):
        from uulearn.training.batched import kernels

        return kernels.scale_shift_relu(x, mean, scale, shift, width)
    return torch.relu_((split_runs(x, width) - mean) * scale + shift).to(x.dtype)


def output_scores(hidden: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Return scores of shape (R, n) from hidden units (R, n, h), in float32."""
    if use_kernels(hidden):
        from uulearn.training.batched import kernels

        return kernels.scores(hidden, kernel, bias)
    return torch.bmm(hidden.float(), kernel)[:, :, 0] + bias[:, 0]
