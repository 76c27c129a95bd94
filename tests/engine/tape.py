"""A stand-in for CUDA graphs on CPUs: operations are recorded once and only they are replayed.

What a capture would lose is lost here too: decisions of the host, values read from tensors, tensors that are
made anew for every step.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only


class Tape(TorchDispatchMode):
    """Records every operation under it; calling it carries them out again, on the same buffers."""

    def __init__(self):
        super().__init__()
        self.operations, self._keep, self._made = [], [], {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function is not torch.ops.aten._local_scalar_dense.default, "the host looks at a value"
        results = function(*args, **(kwargs or {}))
        inputs, places = tree_map_only(torch.Tensor, self._name, (args, kwargs or {})), []
        for result in tree_flatten(results)[0]:
            if isinstance(result, torch.Tensor):
                self._keep.append(result)
                # In-place operations return what they were given, which may be a buffer.
                places.append(self._made.setdefault(id(result), len(self._made)) if id(result) not in
                              {id(t) for t in tree_flatten((args, kwargs))[0]} else None)  # fmt: skip
            else:
                places.append(None)
        self.operations.append((function, inputs, places))
        return results

    def _name(self, tensor):
        """A result of an earlier operation by its number, a buffer by itself."""
        self._keep.append(tensor)
        return _Result(self._made[id(tensor)]) if id(tensor) in self._made else _Buffer(tensor)

    @torch.no_grad()
    def __call__(self):
        made = {}

        def value(leaf):
            return made[leaf.number] if isinstance(leaf, _Result) else leaf.tensor

        for function, inputs, places in self.operations:
            args, kwargs = tree_map_only((_Result, _Buffer), value, inputs)
            results = tree_flatten(function(*args, **kwargs))[0]
            for place, result in zip(places, results, strict=True):
                if place is not None:
                    made[place] = result


class _Result:
    def __init__(self, number):
        self.number = number


class _Buffer:
    def __init__(self, tensor):
        self.tensor = tensor


class TapeRecorder:
    """In the place of `Recorder`: captures a step on zeros, as a CUDA device does."""

    def __init__(self, device):
        self.recorded = 0

    def forget(self):
        pass

    def record(self, step, reset):
        for _ in range(2):  # a warm-up, then the capture
            reset()
            tape = Tape()
            with tape:
                step()
        reset()
        self.recorded += 1
        assert tape.operations
        return tape
