"""From a step that can run to the graph of what it runs."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from paracosm.graphs.build import build_graph
from paracosm.graphs.capture.places import Places, owners_of
from paracosm.graphs.capture.recorder import Recorder
from paracosm.graphs.capture.step import TrainingStep
from paracosm.graphs.capture.storages import Ledger
from paracosm.graphs.graph import Graph

__all__ = ["record"]


def record(
    step: TrainingStep, device: str = "cpu", provenance: Mapping[str, Any] | None = None
) -> Graph:
    """Run `step` once and return its graph.

    A step that has run before has its optimizer's state, as all but the first have. Works on real
    tensors and under fake ones.
    """
    ledger = Ledger()
    step.drop_gradients()
    _hold_residents(ledger, step)
    places = Places(step.workload.module)
    recorder = Recorder(ledger, places, device)
    was_enabled = gc.isenabled()
    gc.disable()  # so that memory is freed by reference counts alone, at the same op every time
    try:
        with places.followed(), ledger.resizing_followed(), recorder:
            step.run(recorder.enter)
    finally:
        if was_enabled:
            gc.enable()
    ledger.close()
    gc.collect(0)  # all that the step left behind is young
    return build_graph(
        recorder.nodes(), ledger.resident, provenance or {}, where=f"the step on {device}"
    )


def _hold_residents(ledger: Ledger, step: TrainingStep) -> None:
    module = step.workload.module
    owners = owners_of(module)
    for parameter, owner in owners.items():
        ledger.hold("parameters", [_local(parameter)], owner)
        if parameter.grad is not None:
            ledger.hold("gradients", [_local(parameter.grad)], owner)
    ledger.hold("buffers", (_local(buffer) for buffer in module.buffers()))
    if step.optimizer is not None:
        for parameter, state in step.optimizer.state.items():
            tensors = (_local(value) for value in state.values() if isinstance(value, Tensor))
            ledger.hold("optimizer", tensors, owners.get(parameter, ""))
    inputs = (value for value in step.workload.inputs if isinstance(value, Tensor))
    ledger.hold("inputs", (_local(value) for value in inputs))


def _local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor that the ranks share."""
    from torch.distributed.tensor import DTensor

    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor
