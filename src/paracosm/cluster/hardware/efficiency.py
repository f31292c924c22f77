"""The time of an op on a device, from its datasheet and the efficiency of ops of its class.

An op of a class c takes

    t + min(fixed_c, t)    where t = max(flops / (compute_c x peak), bytes / (memory_c x bandwidth))

the roofline t (Williams, Waterman, Patterson: "Roofline: an insightful visual performance model",
2009) with the measured efficiencies of the class at both roofs, and a fixed time for filling and
draining the device. An op that never fills the device does not drain it either: products of 0.03 to
4 Gflop in single precision take up to twice their roofline, and tiny ones a few microseconds. On
tensor cores, which are too fast to hide loads and stores, both times are
added. `efficiencies.yaml` has the measured efficiencies and their sources, written by
`benchmarks/accuracy/efficiencies.py`. A device without any has the geometric mean of the others',
and a wider interval.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from paracosm.cluster.hardware.catalogue import Device
from paracosm.data_files import read_packaged_yaml
from paracosm.validation import validated

OP_CLASSES: Mapping[str, str] = {
    "product": "",
    "batched product": "product",
    "convolution": "product",
    "tensor product": "product",
    "tensor batched product": "tensor product",
    "tensor convolution": "tensor product",
    "attention": "tensor product",
    "elementwise": "",
    "reduction": "elementwise",
    "embedding": "elementwise",
    "optimizer": "elementwise",
}
"""Classes of ops, each with the class whose efficiency stands in where nobody measured its own.
"tensor" is what runs on tensor cores: products of numbers shorter than 32 bits."""

UNMEASURED = math.log(1.5)
"""Half-width of the interval (of the logarithm) that is added where another class stands in."""

Share = Annotated[float, Field(gt=0, le=1.2)]


class Efficiency(BaseModel):
    """The efficiency of ops of one class on one device."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    compute: Share = Field(1.0, description="share of the peak")
    memory: Share = Field(1.0, description="share of the memory's bandwidth")
    fixed: float = Field(0.0, ge=0, description="seconds of an op that fills the device")
    spread: float = Field(ge=0, description="half-width of the 90 % interval of its logarithm")
    ops: int = Field(ge=0, description="distinct ops that it is from; 0: whole iterations")
    source: str = Field(description="who measured")


class Efficiencies(BaseModel):
    """Measured efficiencies by device, then by class."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    devices: dict[str, dict[str, Efficiency]]
    common: float = Field(
        ge=0, description="half-width of the interval of all ops of a device with efficiencies"
    )
    common_unmeasured: float = Field(ge=0, description="the same of a device without any")
    common_corrected: float = Field(
        ge=0, description="the same of a device that one measured iteration has corrected"
    )

    def has(self, name: str) -> bool:
        return name in self.devices

    def find(self, name: str, op_class: str) -> tuple[Efficiency, str]:
        """Return the efficiency of a class on a device, and its source.

        That is "measured" on this device, on "other devices", or "assumed": that of another class.
        """
        efficiency = self._of(name, op_class)
        if efficiency is not None:
            return efficiency
        stand_in = OP_CLASSES[op_class]
        while stand_in:
            efficiency = self._of(name, stand_in)
            if efficiency is not None:
                wide = efficiency[0].spread + UNMEASURED
                return efficiency[0].model_copy(update={"spread": wide}), "assumed"
            stand_in = OP_CLASSES[stand_in]
        raise KeyError(op_class)

    def _of(self, name: str, op_class: str) -> tuple[Efficiency, str] | None:
        efficiency = self.devices.get(name, {}).get(op_class)
        if efficiency is not None:
            return efficiency, "measured"
        others = [classes[op_class] for classes in self.devices.values() if op_class in classes]
        return (_pooled(others), "other devices") if others else None


def _pooled(found: Sequence[Efficiency]) -> Efficiency:
    """Return the geometric mean, with an interval that includes the farthest device."""
    compute, memory = (
        math.exp(fmean(math.log(getattr(efficiency, name)) for efficiency in found))
        for name in ("compute", "memory")
    )
    apart = max(
        abs(math.log(efficiency.compute / compute) + math.log(efficiency.memory / memory))
        for efficiency in found
    )
    return Efficiency(
        compute=compute,
        memory=memory,
        fixed=median(efficiency.fixed for efficiency in found),
        spread=apart + max(efficiency.spread for efficiency in found),
        ops=sum(efficiency.ops for efficiency in found),
        source="the mean of other devices",
    )


@dataclass(frozen=True, slots=True)
class OpTime:
    """How long an op takes on a device on which it was never timed."""

    seconds: float
    spread: float  # half-width of the 90 % interval of its logarithm
    # where it is from: the kernel was "timed" on the device; the efficiency of its class was
    # "measured" there, on "other devices", or is "assumed"
    known: str


def op_time(
    name: str,
    device: Device,
    efficiencies: Efficiencies,
    op_class: str,
    dtype: str,
    flops: float,
    moved: float,
) -> OpTime:
    """Return the time of an op.

    Args:
        name: of the device in the catalogue.
        device: its datasheet.
        efficiencies: of this device and others.
        op_class: one of `OP_CLASSES`, without "tensor": that follows from the type.
        dtype: of the numbers that are multiplied, one of `DTYPES`.
        flops: floating-point operations, a multiply-add counting as two.
        moved: bytes that are read and written.

    Raises:
        InputError: the device has no peak for such numbers.
    """
    on_tensor_cores = f"tensor {op_class}" in OP_CLASSES and dtype != "float32"
    efficiency, known = efficiencies.find(
        name, f"tensor {op_class}" if on_tensor_cores else op_class
    )
    computing = flops / (efficiency.compute * device.peak(dtype)) if flops else 0.0
    moving = moved / (efficiency.memory * device.memory_bandwidth)
    both = computing + moving if on_tensor_cores else max(computing, moving)
    return OpTime(both + min(efficiency.fixed, both), efficiency.spread, known)


@cache
def load_efficiencies() -> Efficiencies:
    path = Path(__file__).with_name("efficiencies.yaml")
    return validated(Efficiencies, read_packaged_yaml(path), str(path))
