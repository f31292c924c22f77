"""What a script makes on the host, beside a GPU that is not there, and a CPU as the device itself.

Beside a GPU it is really made. A model that is made on the CPU and then moved may be larger than
this machine's memory: that is said before it is made, with what to write instead.

Where a CPU is the device, host and device are one, and PyTorch takes a CPU's paths. Parameters hold
no numbers, so whatever is computed with them is worked out and recorded, not computed; what a
script makes without them, its data above all, is really made, and recorded too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from paracosm.emulation.device.state import Device
from paracosm.emulation.device.values import MOST_KNOWN
from paracosm.emulation.rank.call_site import call_site, line_of_script
from paracosm.profiling.environment import free_memory
from paracosm.units import format_size

ADVICE = (
    "make the model within \"with torch.device('cuda'):\" (or 'meta', and to_empty), where it "
    "takes no memory of this machine"
)
_LARGE = 16 << 20  # bytes from which a tensor is looked at
_KEPT_FREE = 256 << 20  # bytes

_aten: Any = torch.ops.aten
_MAKERS = frozenset(
    (
        *(_aten.empty.memory_format, _aten.empty_strided.default, _aten.full.default),
        *(_aten.zeros.default, _aten.ones.default, _aten.randn.default, _aten.rand.default),
    )
)


class HostMemory:
    """Watches large tensors of the host as they are made."""

    def __init__(self, refuse: Callable[[str], Exception]) -> None:
        self._refuse = refuse
        self._made = 0  # bytes of large tensors so far

    def before(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Refuse what this machine cannot hold, before it is made."""
        if func not in _MAKERS or str(kwargs.get("device") or "cpu") != "cpu":
            return
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        size = math.prod(args[0]) * dtype.itemsize
        if size < _LARGE:
            return
        free = free_memory()
        if free is not None and size > free - _KEPT_FREE:
            line = line_of_script()
            place = f", for {line}" if line and line != call_site() else ""
            raise self._refuse(
                f"a tensor of {format_size(size)} on the host{place}, after "
                f"{format_size(self._made)} in large tensors, where {format_size(max(free, 0))} of "
                "memory is left,"
            )
        self._made += size


def make_parameters_fake(device: Device) -> None:
    """Let parameters that are made on the host from now on hold no numbers; small ones keep them.

    Their memory is never touched, so that a model may be larger than this machine's memory.
    """
    parameters: Any = torch.nn.Parameter
    make = parameters.__new__

    def new(kind: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if type(data) in (Tensor, parameters) and data.device.type == "cpu":
            data = _fake_of(device, data)
        return make(kind, data, requires_grad)

    parameters.__new__ = new


def _fake_of(device: Device, data: Tensor) -> FakeTensor:
    with device.fake:
        made: Any = torch.empty_strided(data.size(), data.stride(), dtype=data.dtype)
    device.memory.see(made, "parameters")
    if data.numel() <= MOST_KNOWN:
        with _disable_current_modes():
            device.values.keep(made, data.detach().clone())
    return made  # type: ignore[no-any-return]
