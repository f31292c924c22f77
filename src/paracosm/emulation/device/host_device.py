"""A CPU as the device that is not there: host and device are one.

PyTorch then takes a CPU's paths. Parameters hold no numbers, so whatever is computed with them is
worked out and recorded, not computed; what a script makes without them, its data above all, is
really made, and recorded too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from paracosm.emulation.device.state import Device
from paracosm.emulation.device.values import MOST_KNOWN


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
