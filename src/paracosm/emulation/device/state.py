"""The device that is not there, as the parts that answer for it share it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from paracosm.emulation.device.memory import DeviceMemory
from paracosm.emulation.device.modules import Modules
from paracosm.emulation.device.recording import RecordingWriter
from paracosm.emulation.device.step_graph import StepGraph
from paracosm.emulation.device.streams import Streams
from paracosm.emulation.device.surroundings import Surroundings
from paracosm.emulation.device.values import Values
from paracosm.graphs.graph import PHASES

FORWARD, BACKWARD, OPTIMIZER, OTHER = range(len(PHASES))

_backward_task: Any = torch._C._current_graph_task_id


def _fake_mode() -> FakeTensorMode:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode._allow_unsafe_data_ptr_access = False  # or extensions would write to address 0
    converter: Any = mode.fake_tensor_converter
    # Its weak references forbid that tensors are swapped, as Module.to does.
    converter.set_tensor_memo = lambda tensor, fake: None
    return mode


@dataclass(eq=False)
class Device:
    """A device, and what is kept of it."""

    writer: RecordingWriter
    streams: Streams
    memory: DeviceMemory
    values: Values
    modules: Modules
    graph: StepGraph | None = None  # of an iteration, where one is wanted
    kind: str = "cuda"  # or "cpu", where host and device are one
    surroundings: Surroundings | None = None  # of ops on a CPU
    in_optimizer: int = 0  # steps of optimizers under way
    is_silent: bool = False  # whether ops are followed for their values, and not recorded
    fake: FakeTensorMode = field(default_factory=_fake_mode)  # works out what ops make

    @property
    def phase(self) -> int:
        """What is under way, an index into `PHASES`."""
        if self.in_optimizer:
            return OPTIMIZER
        return BACKWARD if _backward_task() != -1 else FORWARD

    @property
    def kind_of_memory(self) -> str:
        """What tensors that are made now are for, as far as that is known."""
        if self.in_optimizer:
            return "optimizer"
        is_temporary = _backward_task() != -1 and not self.modules.under_way
        return "temporary" if is_temporary else "activations"

    def place(self) -> tuple[int, int]:
        """Return the module of a request, and 1 where its forward pass is computed again."""
        modules = self.modules
        again = modules.under_way and _backward_task() != -1
        return modules.current, int(again)
