"""An accelerator for tests: PyTorch's private backend, computed by the CPU.

Tensors on the device "testgpu" hold their values in a CPU tensor out of the program's sight. An operation
that mixes them with tensors of the host is refused as on a GPU; everything else is computed by the CPU's own
kernels, so a run on this device must give the same figures as one on the CPU. What passes between host and
device is counted, and refused within `traffic.refused`.

Not shown: graph capture, kernels of a real device, and their rounding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_iter, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

__all__ = ["DEVICE", "DeviceTensor", "traffic"]

_setup_privateuseone_for_python_backend("testgpu")
DEVICE = torch.device("testgpu", 0)


class Traffic:
    """Counts what passes between host and device: `up`, `down`, and tensors `made` there by the host."""

    def __init__(self) -> None:
        self.counts = {"up": 0, "down": 0, "made": 0}
        self._refused: list[tuple[str, tuple[str, ...]]] = []
        self.float64 = True  # whether the device has such tensors

    def charge(self, what: str, name: str) -> None:
        for where, kinds in self._refused:
            if what in kinds:
                raise AssertionError(f"{name} ({what}) within {where}")
        self.counts[what] += 1

    @contextlib.contextmanager
    def refused(self, where: str, *kinds: str) -> Iterator[None]:
        """Let nothing of these kinds pass; `where` is for the message."""
        self._refused.append((where, kinds))
        try:
            yield
        finally:
            self._refused.pop()


traffic = Traffic()


class DeviceTensor(Tensor):
    """A tensor of the device; `values` are on the CPU."""

    values: Tensor

    @staticmethod
    def __new__(cls, values: Tensor) -> DeviceTensor:
        if values.dtype == torch.float64 and not traffic.float64:
            raise TypeError("the device has no float64")
        made = Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=DEVICE,
            requires_grad=False,
        )
        made.values = values
        return made

    def __repr__(self, **_: Any) -> str:
        return f"DeviceTensor({self.values!r})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, *, force: bool = False) -> Any:
        raise TypeError("a tensor of the device has no NumPy array; copy it to the host first")

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.overloadpacket.__name__
        if name in ("_to_copy", "copy_"):
            return _copied(function, name, args, kwargs)
        if name in _READ:
            traffic.charge("down", name)
        if name.startswith("index") and any(
            isinstance(t, Tensor) and t.dtype == torch.bool for t in tree_iter(args[1])
        ):
            traffic.charge("down", f"{name} by a mask")
        _check_devices(name, args, kwargs)
        device = torch.device(kwargs.get("device") or DEVICE)
        if device == DEVICE and "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        compute = _REPLACED.get(name, function)
        out = compute(*tree_map(_values, args), **tree_map(_values, kwargs))
        if device != DEVICE:  # "meta", say
            return out
        wrapped = tree_map(lambda t: DeviceTensor(t) if isinstance(t, Tensor) else t, out)
        return return_and_correct_aliasing(function, args, kwargs, wrapped)


def _lstm_cell(
    inputs: Tensor, hidden: Tensor, cell: Tensor, bias: Tensor | None = None, other: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """PyTorch's fused cell, which it takes on every device but the CPU and which CPUs lack."""
    gates = inputs + hidden
    for shift in (bias, other):
        gates = gates if shift is None else gates + shift
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = f * cell + i * g
    return o * after.tanh(), after, torch.cat([i, f, g, o], 1)


def _lstm_cell_backward(
    grad_hidden: Tensor | None,
    grad_after: Tensor | None,
    cell: Tensor,
    after: Tensor,
    gates: Tensor,
    bias: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = gates.chunk(4, 1)
    grad_hidden = torch.zeros_like(cell) if grad_hidden is None else grad_hidden
    total = grad_hidden * o * (1 - after.tanh() ** 2)
    total = total if grad_after is None else total + grad_after
    grads = torch.cat(
        [
            total * g * i * (1 - i),
            total * cell * f * (1 - f),
            total * i * (1 - g**2),
            grad_hidden * after.tanh() * o * (1 - o),
        ],
        1,
    )
    return grads, total * f, grads.sum(0) if bias else None


# Operations whose result depends on values that the host has to know: shapes, errors, decisions.
_READ = (
    *("_local_scalar_dense", "allclose", "equal", "is_nonzero", "nonzero", "masked_select", "bincount"),
    *("unique_dim", "_unique2", "unique_consecutive", "repeat_interleave"),
    *("linalg_inv_ex", "linalg_cholesky_ex"),
)

_JOINING = ("cat", "stack", "_foreach_copy_")  # a single number of the host is no operand of these

_REPLACED = {
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
}


def _values(item: Any) -> Any:
    return item.values if isinstance(item, DeviceTensor) else item


def _check_devices(name: str, args: Any, kwargs: Any) -> None:
    """Like a GPU: tensors of the host only where they are scalars, or the indices of an indexing."""
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        if not isinstance(args[0], DeviceTensor):
            raise RuntimeError(f"{name}: a tensor of the host is indexed by one of the device")
        for index in tree_iter(args[1]):
            if isinstance(index, Tensor) and not isinstance(index, DeviceTensor):
                traffic.charge("up", f"{name} by a tensor of the host")
        args = (args[0], *args[2:])
    for item in tree_iter((args, kwargs)):
        on_host = isinstance(item, Tensor) and not isinstance(item, DeviceTensor)
        if on_host and (item.dim() or name in _JOINING or item is _changed(name, args)):
            raise RuntimeError(f"{name}: tensors of host and device {tuple(item.shape)} are mixed")


def _changed(name: str, args: Any) -> Any:
    """The tensor that an operation in place changes."""
    return args[0] if name.endswith("_") and args else None


def _copied(function: Any, name: str, args: Any, kwargs: Any) -> Any:
    if name == "copy_":
        target, source = args[0], args[1]
        if isinstance(target, DeviceTensor) and not isinstance(source, DeviceTensor):
            traffic.charge("up", name)
        if isinstance(source, DeviceTensor) and not isinstance(target, DeviceTensor):
            traffic.charge("down", name)
        _values(target).copy_(_values(source))
        return target
    device = kwargs.get("device")
    rest = {
        key: value for key, value in kwargs.items() if key not in ("device", "non_blocking", "pin_memory")
    }
    out = function(args[0].values, **rest)
    if device is not None and torch.device(device).type == "cpu":
        traffic.charge("down", name)
        return out
    return DeviceTensor(out)


def _factory(name: str) -> None:
    """Let a factory function make tensors on the device."""
    operator = getattr(torch.ops.aten, name.split(".")[0])
    overload = getattr(operator, name.split(".")[1] if "." in name else "default")

    def make(*args: Any, **kwargs: Any) -> Tensor:
        traffic.charge("made", name)
        kwargs = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
        return DeviceTensor(overload(*args, **kwargs, device="cpu"))

    _LIBRARY.impl(name, make, "PrivateUse1")


_LIBRARY = torch.library.Library("aten", "IMPL")
for _name in ("empty.memory_format", "empty_strided"):
    _factory(_name)


def _copy_from(source: Tensor, target: Tensor, non_blocking: bool = False) -> Tensor:
    """What ``torch.tensor(list, device=…)`` ends with."""
    traffic.charge("up", "a tensor made from a list")
    _values(target).copy_(_values(source))
    return target


_LIBRARY.impl("_copy_from", _copy_from, "PrivateUse1")
