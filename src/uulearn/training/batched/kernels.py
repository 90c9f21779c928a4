"""Triton kernels for the operations between the matrix products of batched networks on CUDA devices.

`uulearn.training.batched.layers` implements the same formulas in plain torch and chooses between the two
implementations. The activations of a layer form a contiguous tensor of shape (R, n, h). The first normalization layer
has inputs of shape (R/width, n, width·h), with the ``width`` runs of a group side by side. Sums over rows are computed
as partial sums to use all processors; the callers add the partial sums.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, COLUMNS = 16, 128
"""Number of rows and number of columns in the block that one Triton program processes."""
PARTS = 12
"""Number of partial sums into which a sum over rows is split."""
FLAT = 1024
"""Number of entries that one Triton program of the Adam kernel updates."""


@triton.jit
def _moments(x, about, sums, n, h, width, n_runs, rows_per_part, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Compute the sums of x − about and of (x − about)² over the rows of one part."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part, run = tl.program_id(1), tl.program_id(2).to(tl.int64)
    inside = columns < h
    x += (run // width) * n * width * h + (run % width) * h
    center = tl.load(about + run * h + columns, mask=inside, other=0.0)
    first = tl.zeros((ROWS, COLUMNS), tl.float32)
    second = tl.zeros((ROWS, COLUMNS), tl.float32)
    stop = tl.minimum(n, (part + 1) * rows_per_part)
    for start in range(part * rows_per_part, stop, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        mask = (rows < stop)[:, None] & inside[None, :]
        value = tl.load(x + rows[:, None] * (width * h) + columns[None, :], mask=mask, other=0.0).to(tl.float32)
        distance = tl.where(mask, value - center[None, :], 0.0)
        first += distance
        second += distance * distance
    place = (part * n_runs + run) * h + columns
    tl.store(sums + place, tl.sum(first, 0), mask=inside)
    tl.store(sums + tl.num_programs(1).to(tl.int64) * n_runs * h + place, tl.sum(second, 0), mask=inside)


@triton.jit
def _scale_shift_relu(x, mean, scale, shift, out, n, h, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    rows, run = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64), tl.program_id(2).to(tl.int64)
    inside = columns < h
    mask = (rows < n)[:, None] & inside[None, :]
    x += (run // width) * n * width * h + (run % width) * h
    value = tl.load(x + rows[:, None] * (width * h) + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    factor = tl.load(scale + run * h + columns, mask=inside, other=0.0)
    offset = tl.load(shift + run * h + columns, mask=inside, other=0.0)
    center = tl.load(mean + run * h + columns, mask=inside, other=0.0)
    value = tl.maximum((value - center[None, :]) * factor[None, :] + offset[None, :], 0.0)
    tl.store(out + (run * n + rows[:, None]) * h + columns[None, :], value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _gradient_sums(
    x, gradient, gamma, beta, mean, inverse, sums, n, h, width, n_runs, rows_per_part,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Sum the gradient of the ReLU's input, and its product with the normalized input, over the rows of one part."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part, run = tl.program_id(1), tl.program_id(2).to(tl.int64)
    inside = columns < h
    x += (run // width) * n * width * h + (run % width) * h
    own = run * h + columns
    g, b = tl.load(gamma + own, mask=inside, other=0.0), tl.load(beta + own, mask=inside, other=0.0)
    m, i = tl.load(mean + own, mask=inside, other=0.0), tl.load(inverse + own, mask=inside, other=0.0)
    first = tl.zeros((ROWS, COLUMNS), tl.float32)
    second = tl.zeros((ROWS, COLUMNS), tl.float32)
    stop = tl.minimum(n, (part + 1) * rows_per_part)
    for start in range(part * rows_per_part, stop, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        mask = (rows < stop)[:, None] & inside[None, :]
        value = tl.load(x + rows[:, None] * (width * h) + columns[None, :], mask=mask, other=0.0).to(tl.float32)
        back = tl.load(gradient + (run * n + rows[:, None]) * h + columns[None, :], mask=mask, other=0.0).to(tl.float32)
        normalized = (value - m[None, :]) * i[None, :]
        back = tl.where(normalized * g[None, :] + b[None, :] > 0.0, back, 0.0)
        first += back
        second += back * normalized
    place = (part * n_runs + run) * h + columns
    tl.store(sums + place, tl.sum(first, 0), mask=inside)
    tl.store(sums + tl.num_programs(1).to(tl.int64) * n_runs * h + place, tl.sum(second, 0), mask=inside)


@triton.jit
def _gradient(
    x, gradient, gamma, beta, mean, inverse, first, second, out, n, h, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Compute the gradient with respect to x, in the layout of x; ``first`` and ``second`` are sums over all rows."""
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    rows, run = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64), tl.program_id(2).to(tl.int64)
    inside = columns < h
    mask = (rows < n)[:, None] & inside[None, :]
    start = (run // width) * n * width * h + (run % width) * h
    place = start + rows[:, None] * (width * h) + columns[None, :]
    own = run * h + columns
    g, b = tl.load(gamma + own, mask=inside, other=0.0), tl.load(beta + own, mask=inside, other=0.0)
    m, i = tl.load(mean + own, mask=inside, other=0.0), tl.load(inverse + own, mask=inside, other=0.0)
    s1, s2 = tl.load(first + own, mask=inside, other=0.0) / n, tl.load(second + own, mask=inside, other=0.0) / n
    value = tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
    back = tl.load(gradient + (run * n + rows[:, None]) * h + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    normalized = (value - m[None, :]) * i[None, :]
    back = tl.where(normalized * g[None, :] + b[None, :] > 0.0, back, 0.0)
    value = (g * i)[None, :] * (back - s1[None, :] - normalized * s2[None, :])
    tl.store(out + place, value.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _scores(hidden, kernel, bias, out, n, h, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows, run = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64), tl.program_id(1).to(tl.int64)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, h, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        mask = (rows < n)[:, None] & (columns < h)[None, :]
        value = tl.load(hidden + (run * n + rows[:, None]) * h + columns[None, :], mask=mask, other=0.0).to(tl.float32)
        total += value * tl.load(kernel + run * h + columns, mask=columns < h, other=0.0)[None, :]
    tl.store(out + run * n + rows, tl.sum(total, 1) + tl.load(bias + run), mask=rows < n)


@triton.jit
def _scores_gradient(
    hidden, kernel, gradient, out, sums, n, h, n_runs, rows_per_part, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Compute the gradient with respect to the hidden units, and a partial sum of the gradient of the kernel."""
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part, run = tl.program_id(1), tl.program_id(2).to(tl.int64)
    inside = columns < h
    weight = tl.load(kernel + run * h + columns, mask=inside, other=0.0)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    stop = tl.minimum(n, (part + 1) * rows_per_part)
    for start in range(part * rows_per_part, stop, ROWS):
        rows = (start + tl.arange(0, ROWS)).to(tl.int64)
        mask = (rows < stop)[:, None] & inside[None, :]
        place = (run * n + rows[:, None]) * h + columns[None, :]
        back = tl.load(gradient + run * n + rows, mask=rows < stop, other=0.0)
        total += tl.load(hidden + place, mask=mask, other=0.0).to(tl.float32) * back[:, None]
        tl.store(out + place, (back[:, None] * weight[None, :]).to(out.dtype.element_ty), mask=mask)
    tl.store(sums + (part * n_runs + run) * h + columns, tl.sum(total, 0), mask=inside)


@triton.jit
def _adam(
    p, gradient, first, second, lr, l2, decay, alive, finite, corrections, n, block, width, h,
    rest1, beta2, rest2, eps, decoupled: tl.constexpr, FLAT: tl.constexpr,
):  # fmt: skip
    """Apply one Adam step to one parameter of all runs; the arguments ``lr`` to ``finite`` contain one value per run.

    Entries whose new value would not be finite are left unchanged, and ``finite`` is set to 0 for their runs.
    """
    place = tl.program_id(0).to(tl.int64) * FLAT + tl.arange(0, FLAT)
    mask = place < n
    run = (place // block) * width + (place % (width * h)) // h
    value = tl.load(p + place, mask=mask, other=0.0)
    rate, fade = tl.load(lr + run, mask=mask, other=0.0), tl.load(decay + run, mask=mask, other=0.0)
    g = tl.load(gradient + place, mask=mask, other=0.0).to(tl.float32)
    g += 2.0 * tl.load(l2 + run, mask=mask, other=0.0) * value
    new = value
    if decoupled:
        new = new * (1.0 - rate * fade)
    else:
        g += fade * value
    old1, old2 = tl.load(first + place, mask=mask, other=0.0), tl.load(second + place, mask=mask, other=0.0)
    new1 = old1 + rest1 * (g - old1)
    new2 = beta2 * old2 + rest2 * g * g
    c1, c2 = tl.load(corrections), tl.load(corrections + 1)
    new = new - rate / c1 * new1 / (tl.sqrt(new2 / c2) + eps)
    is_finite = tl.abs(new) < float("inf")  # false for NaN
    tl.atomic_min(finite + run, 0, mask=mask & (is_finite == 0))
    mask = mask & is_finite & (tl.load(alive + run, mask=mask, other=0) != 0)
    tl.store(p + place, new, mask=mask)
    tl.store(first + place, new1, mask=mask)
    tl.store(second + place, new2, mask=mask)


def moments(x: Tensor, about: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return the sums of x − about and of (x − about)² over the rows, each of shape (R, 1, h)."""
    n_runs, _, h = about.shape
    n = x.shape[1]
    sums = torch.empty(2, PARTS, n_runs, 1, h, device=x.device)
    grid = (triton.cdiv(h, COLUMNS), PARTS, n_runs)
    _moments[grid](x, about, sums, n, h, width, n_runs, triton.cdiv(n, PARTS), ROWS, COLUMNS)
    first, second = sums.sum(1)
    return first, second


def scale_shift_relu(x: Tensor, mean: Tensor, scale: Tensor, shift: Tensor, width: int) -> Tensor:
    """Return relu((x − mean)·scale + shift) of shape (R, n, h), in the type of x."""
    n_runs, _, h = scale.shape
    n = x.shape[1]
    out = torch.empty(n_runs, n, h, dtype=x.dtype, device=x.device)
    _scale_shift_relu[_elementwise(n, h, n_runs)](x, mean, scale, shift, out, n, h, width, ROWS, COLUMNS)
    return out


def normalize_gradient(
    x: Tensor, gradient: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, inverse: Tensor, width: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of `NormalizeReLU` with respect to x, γ and β."""
    n_runs, _, h = mean.shape
    n = x.shape[1]
    sums = torch.empty(2, PARTS, n_runs, 1, h, device=x.device)
    statistics = (gamma, beta, mean, inverse)
    grid = (triton.cdiv(h, COLUMNS), PARTS, n_runs)
    _gradient_sums[grid](x, gradient, *statistics, sums, n, h, width, n_runs, triton.cdiv(n, PARTS), ROWS, COLUMNS)
    d_beta, d_gamma = sums.sum(1)
    out = torch.empty_like(x)
    _gradient[_elementwise(n, h, n_runs)](x, gradient, *statistics, d_beta, d_gamma, out, n, h, width, ROWS, COLUMNS)
    return out, d_gamma, d_beta


def scores(hidden: Tensor, kernel: Tensor, bias: Tensor) -> Tensor:
    """Return scores of shape (R, n) from hidden units (R, n, h), kernels (R, h, 1) and biases (R, 1, 1)."""
    n_runs, n, h = hidden.shape
    out = torch.empty(n_runs, n, device=hidden.device)
    _scores[(triton.cdiv(n, ROWS), n_runs)](hidden, kernel, bias, out, n, h, ROWS, COLUMNS)
    return out


def scores_gradient(hidden: Tensor, kernel: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of `scores` with respect to the hidden units and the kernels."""
    n_runs, n, h = hidden.shape
    out = torch.empty_like(hidden)
    sums = torch.empty(PARTS, n_runs, h, 1, device=hidden.device)
    grid = (triton.cdiv(h, COLUMNS), PARTS, n_runs)
    _scores_gradient[grid](hidden, kernel, gradient, out, sums, n, h, n_runs, triton.cdiv(n, PARTS), ROWS, COLUMNS)
    return out, sums.sum(0)


def adam(
    p: Tensor,
    gradient: Tensor,
    slots: list[Tensor],
    per_run: tuple[Tensor, Tensor, Tensor, Tensor, Tensor],
    corrections: Tensor,
    width: int,
    settings: dict[str, Any],
    decoupled: bool,
) -> None:
    """Apply one Adam step in place; ``per_run`` contains lr, l2, weight decay, alive and finite, each of shape (R,)."""
    beta1, beta2 = settings["betas"]
    n, block, h = p.numel(), p[0].numel(), p.shape[2] // width
    _adam[(triton.cdiv(n, FLAT),)](
        p, gradient, *slots, *per_run, corrections, n, block, width, h,
        1 - beta1, beta2, 1 - beta2, settings["eps"], decoupled, FLAT,
    )  # fmt: skip


def _elementwise(n: int, h: int, n_runs: int) -> tuple[int, int, int]:
    """Return the launch grid: row blocks, column blocks and runs. Only the first axis may exceed 65,535."""
    return triton.cdiv(n, ROWS), triton.cdiv(h, COLUMNS), n_runs
