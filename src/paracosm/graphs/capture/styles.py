"""How a layer is split between the ranks of a group, as models say it in `tensor_parallel`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

__all__ = ["STYLES"]


class SharedInput(ParallelStyle):
    """The first input of a module goes to several split layers: its gradients are summed once.

    Without, each of those layers has its own share of the gradient summed over the ranks.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def replicated(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            first, *rest = inputs
            if isinstance(first, Tensor) and not isinstance(first, DTensor):
                first = DTensor.from_local(first, device_mesh, (Replicate(),), run_check=False)
            return first, *rest

        module.register_forward_pre_hook(replicated)
        return module


STYLES: Mapping[str, Callable[[], ParallelStyle]] = {
    "column": ColwiseParallel,
    "row": RowwiseParallel,
    "input": SharedInput,
}
"""Split by outputs, without communication; by inputs, with a sum over the ranks; not at all."""
