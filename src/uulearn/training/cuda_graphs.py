"""Functions that run as CUDA graphs on CUDA devices and as plain calls on other devices."""

import functools
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

WARM_UP_CALLS = 2
"""Number of warm-up calls before the capture, during which libraries allocate their buffers."""


class GraphedFunction:
    """Function on static tensors that is replayed as a CUDA graph; each combination of arguments has its own graph.

    The function reads and writes tensors at fixed memory addresses, returns tensors or None, and has no other side
    effects. ``snapshot`` is called before the warm-up calls of a capture and returns a function that undoes their
    effects. The function and ``snapshot`` must be methods; only weak references to these methods are stored.
    """

    def __init__(
        self, function: Callable[..., Any], device: torch.device, snapshot: Callable[[], Callable[[], None]]
    ) -> None:
        self._function = weakref.WeakMethod(function)
        self._snapshot = weakref.WeakMethod(snapshot)
        self.device = device
        self._graphs: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, Any]] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Call the function; on CUDA, the next call overwrites the result."""
        function = self._function()
        assert function is not None  # the owner exists, because it is the caller
        if self.device.type != "cuda":
            return function(*arguments)
        with torch.cuda.device(self.device):
            if arguments not in self._graphs:
                self._graphs[arguments] = self._capture(function, arguments)
            graph, result = self._graphs[arguments]
            graph.replay()
        return result

    def clear(self) -> None:
        """Release the graphs and their memory; the next call captures a new graph."""
        self._graphs.clear()

    def _capture(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[torch.cuda.CUDAGraph, Any]:
        snapshot = self._snapshot()
        assert snapshot is not None
        restore = snapshot()
        stream = _capture_stream(self.device)
        stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_CALLS):
                function(*arguments)
        torch.cuda.current_stream(self.device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate pinned memory during the capture, which the default mode does not allow.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            result = function(*arguments)
        restore()
        return graph, result


@functools.cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the capture stream of a device, which is reused because cuBLAS allocates tens of megabytes per stream."""
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return stream


def snapshot_tensors(tensors: list[Tensor], optimizer: torch.optim.Optimizer | None = None) -> Callable[[], None]:
    """Copy the tensors and the optimizer's state, and return a function that restores the copies in place.

    The function sets optimizer state that was created after the copy to zero, its value before the first step.
    """
    copies = [(tensor, tensor.clone()) for tensor in [*tensors, *_state_of(optimizer)]]

    @torch.no_grad()
    def restore() -> None:
        for tensor in _state_of(optimizer):
            tensor.zero_()
        for tensor, value in copies:
            tensor.copy_(value)

    return restore


def _state_of(optimizer: torch.optim.Optimizer | None) -> list[Tensor]:
    states = [] if optimizer is None else optimizer.state.values()
    return [value for state in states for value in state.values() if isinstance(value, Tensor)]
