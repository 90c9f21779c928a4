"""Work that is captured as a CUDA graph where there is CUDA, and called as it is elsewhere."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

WARM_UP = 2


class Captured:
    """Calls a function of static tensors; on CUDA, by replaying a graph of its kernels, one for each argument.

    The function reads and writes tensors that stay where they are, returns tensors or nothing, and has no other
    effect. Capturing takes warm-up calls; ``protect`` is called before them and returns what undoes their effects.
    Both are methods of the object that keeps this one, and held weakly: with a cycle of references, the memory of the
    object would stay taken until Python happens to look for cycles.
    """

    def __init__(
        self, function: Callable[..., Any], device: torch.device, protect: Callable[[], Callable[[], None]]
    ) -> None:
        self._function = weakref.WeakMethod(function)
        self._protect = weakref.WeakMethod(protect)
        self.device = device
        self._graphs: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """The function's result; on CUDA in tensors that the next call overwrites."""
        function = self._function()
        assert function is not None  # its object is the caller
        if self.device.type != "cuda":
            return function(*arguments)
        with torch.cuda.device(self.device):
            if arguments not in self._graphs:
                self._graphs[arguments] = self._capture(function, arguments)
            graph, result = self._graphs[arguments]
            graph.replay()
        return result

    def clear(self) -> None:
        """Give back the graphs and their memory; the next call captures again."""
        self._graphs.clear()

    def _capture(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[torch.cuda.CUDAGraph, Any]:
        protect = self._protect()
        assert protect is not None
        undo = protect()
        stream = _capturing_stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                function(*arguments)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may go on allocating pinned memory meanwhile, which the default mode would refuse.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            result = function(*arguments)
        undo()
        return graph, result


@functools.cache
def _capturing_stream(device: torch.device) -> torch.cuda.Stream:
    """One stream a device: cuBLAS keeps tens of megabytes for each stream it has worked on."""
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return stream


def protect_tensors(tensors: list[Tensor]) -> Callable[[], None]:
    """Copies the tensors, and returns what writes the copies back in place."""
    kept = [(tensor, tensor.clone()) for tensor in tensors]

    def undo() -> None:
        with torch.no_grad():
            for tensor, value in kept:
                tensor.copy_(value)

    return undo


def protect_optimizer(optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """Copies the optimizer's state; undoing sets what did not exist yet to zero, its value before a first step."""
    known = {
        (parameter, name): value.clone()
        for parameter, state in optimizer.state.items()
        for name, value in state.items()
        if isinstance(value, Tensor)
    }

    def undo() -> None:
        with torch.no_grad():
            for parameter, state in optimizer.state.items():
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        value.copy_(known[parameter, name]) if (parameter, name) in known else value.zero_()

    return undo
