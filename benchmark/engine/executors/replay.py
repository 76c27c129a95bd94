"""Carrying out one and the same step again and again.

A step is a function without arguments that reads and writes tensors which stay where they are. On a CUDA
device it is captured once as a CUDA graph, and a replay launches all of its kernels by one call; everywhere
else it is simply called. Both run the same function on the same tensors, so what the tests hold equal to the
loop on a CPU is what a GPU replays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from pfl_benchmark.engine.executors.memory import ran_out

WARM_UPS = 3  # PyTorch's documentation: a few steps on a side stream before a capture


class Recorder:
    """Makes replays of steps for one device; `record` returns a function that carries the step out once."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # Nothing in a graph's private memory outlives a replay: all graphs can share one pool.
        self._pool: Any = None
        self._stream: Any = None  # for warm-ups and captures; a new one each time would want memory each time
        self._noted = False

    def record(self, step: Callable[[], None], reset: Callable[[], None]) -> Callable[[], None]:
        """A replay of `step`.

        Args:
            step: does not synchronise with the host and takes no decision by values of tensors.
            reset: brings the step's tensors into a state in which it can be tried out.
        """
        if self.device.type != "cuda":
            return step
        try:
            return self._capture(step, reset)
        except RuntimeError as error:
            self.forget()  # a capture that was broken off may leave its pool unusable
            if ran_out(error):
                raise
            torch.cuda.synchronize(self.device)
            if not self._noted:
                self._noted = True
                reason = str(error).splitlines()[0]
                print(f"stacked: a step cannot be captured as a CUDA graph, goes on without ({reason})",
                      file=sys.stderr)  # fmt: skip
            return step

    def forget(self) -> None:
        """Every replay made so far is gone: later ones start with memory of their own."""
        self._pool = None

    def _capture(self, step: Callable[[], None], reset: Callable[[], None]) -> Callable[[], None]:
        # A capture that fails leaves its stream behind as the current one; the second context puts it back.
        with torch.cuda.device(self.device), torch.cuda.stream(torch.cuda.current_stream(self.device)):
            if self._stream is None:
                self._stream = torch.cuda.Stream()
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    reset()
                    step()
            torch.cuda.current_stream().wait_stream(self._stream)
            if self._pool is None:
                self._pool = torch.cuda.graph_pool_handle()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._pool, stream=self._stream):
                step()
        return graph.replay
