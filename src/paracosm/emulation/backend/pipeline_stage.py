"""What a pipeline stage would be told about tensors by the stages beside it, which are emulated."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from paracosm.emulation.rank.on_import import on_import
from paracosm.errors import InputError

__all__ = ["tell_stages"]

_NEEDED = ("_StageForwardMeta", "_StageBackwardMeta", "_derive_grad_metas")


def tell_stages() -> None:
    """Have `PipelineStage` of PyTorch learn shapes from itself instead of from its neighbours.

    The gradients that the next stage sends back look like this stage's outputs. What the previous
    stage sends is known where the script says so: `PipelineStage(..., input_args=...)`.

    A PyTorch whose stages exchange something else is left as it is.
    """
    on_import("torch.distributed.pipelining.stage", _change)


def _change(stage: ModuleType) -> None:
    if not all(hasattr(stage, name) for name in _NEEDED):
        return

    def told(self: Any, source: int) -> Any:
        if source > self.stage_index:
            gradients = stage._derive_grad_metas(self._stage_meta.outputs)
            return stage._StageBackwardMeta(backward_metas=gradients)
        if self._user_meta.inputs is None:
            raise InputError(
                f"pipeline stage {self.stage_index} would learn the shape of its inputs from "
                f"stage {source}, whose rank is emulated: PipelineStage(..., input_args=...) tells "
                "it"
            )
        return stage._StageForwardMeta(forward_metas=self._user_meta.inputs)

    stage.PipelineStage._recv_meta = told
