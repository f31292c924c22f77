"""What a pipeline stage exchanges with its emulated neighbours besides activations."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from types import ModuleType
from typing import Any, Protocol

import torch

from paracosm.emulation.rank.on_import import on_import
from paracosm.emulation.records import PipelineStep
from paracosm.errors import InputError

_SCHEDULES = {"ScheduleGPipe": True, "Schedule1F1B": False}  # whether all goes forward first


def watch_steps(rank: int, now: Callable[[], float], note: Callable[[PipelineStep], None]) -> None:
    """Report the beginning of each step of a schedule that passes one tensor at a time."""

    def change(schedules: Any) -> None:
        took: dict[str, list[float]] = {"forward_one_chunk": [], "backward_one_chunk": []}
        begin = schedules.PipelineScheduleSingle._initialize_stage

        def begun(schedule: Any, *args: Any, **options: Any) -> None:
            begin(schedule, *args, **options)
            stage, name = schedule._stage, type(schedule).__name__
            gets, gives = len(stage.args_recv_info[0]), len(stage.act_send_info)
            if (
                name in _SCHEDULES
                and (stage.is_first or gets == 1)
                and (stage.is_last or gives == 1)
            ):
                group = torch.distributed.get_process_group_ranks(stage.group)
                places = stage.stage_index_to_group_rank
                ranks = tuple(group[places[index]] for index in range(stage.num_stages))
                times = (sum(seconds) / (len(seconds) or 1) for seconds in took.values())
                schedule_kind = ranks, schedule._n_microbatches, _SCHEDULES[name]
                note(PipelineStep(rank, now(), *schedule_kind, *times))
            for seconds in took.values():
                seconds.clear()

        def timed(name: str) -> None:
            call = getattr(schedules._PipelineStageBase, name)

            @wraps(call)
            def timing(*args: Any, **options: Any) -> Any:
                since = now()
                done = call(*args, **options)
                took[name].append(now() - since)
                return done

            setattr(schedules._PipelineStageBase, name, timing)

        schedules.PipelineScheduleSingle._initialize_stage = begun
        for name in took:
            timed(name)

    on_import("torch.distributed.pipelining.schedules", change)


_NEEDED = ("_StageForwardMeta", "_StageBackwardMeta", "_derive_grad_metas")


class Neighbours(Protocol):
    """What is known of stages of other ranks that were or will be recorded."""

    def has_next(self, source: int) -> bool:
        """Whether the next message of a rank is known."""

    def expect(self, source: int, message: Any) -> None:
        """Let the next message of a rank be this tensor, or this object."""

    def shaped_like(self, source: int, sent: Any) -> Any:
        """Return what a rank tells of its outputs, given what a stage of this one has told."""


def tell_stages(real: Collection[int] | None = None, neighbours: Neighbours | None = None) -> None:
    """Make `PipelineStage` of PyTorch infer shapes from itself instead of emulated neighbours.

    Gradients from the next stage are shaped like this stage's outputs. What the previous stage
    sends is known if the script declares it (`PipelineStage(..., input_args=...)`), or if that
    rank was recorded. `real` are the real ranks of wire mode, where neighbours also vote as this
    stage does.
    """
    on_import("torch.distributed.pipelining.stage", lambda stage: _change(stage, real, neighbours))


def _change(stage: ModuleType, real: Collection[int] | None, neighbours: Neighbours | None) -> None:
    if not all(hasattr(stage, name) for name in _NEEDED):
        return  # its stages exchange something else
    receive, send = stage.PipelineStage._recv_meta, stage.PipelineStage._send_meta
    vote: Any = getattr(stage.PipelineStage, "_warmup_forward_vote", None)  # before PyTorch 2.15
    sent: list[Any] = []  # what this rank has told of the outputs of a stage

    def is_real(self: Any, other: int) -> bool:
        return real is not None and self._resolve_peer_global_rank(other) in real

    def received(self: Any, source: int) -> Any:
        if is_real(self, source):
            return receive(self, source)
        if neighbours is None:
            return inferred(self, source)
        rank = self._resolve_peer_global_rank(source)
        if not neighbours.has_next(rank):
            neighbours.expect(rank, inferred(self, source))
        return receive(self, source)

    def inferred(self: Any, source: int) -> Any:
        if source > self.stage_index:
            gradients = stage._derive_grad_metas(self._stage_meta.outputs)
            return stage._StageBackwardMeta(backward_metas=gradients)
        if self._user_meta.inputs is not None:
            return stage._StageForwardMeta(forward_metas=self._user_meta.inputs)
        if neighbours is not None:
            rank = self._resolve_peer_global_rank(source)
            return neighbours.shaped_like(rank, sent[-1] if sent else None)
        raise InputError(
            f"pipeline stage {self.stage_index} would learn the shape of its inputs from stage "
            f"{source}, whose rank is emulated: PipelineStage(..., input_args=...) tells it"
        )

    def told(self: Any, meta: Any, target: int) -> None:
        if target > self.stage_index:
            sent.append(meta)
        send(self, meta, target)

    def voted(self: Any, has_backward: bool, received_acc: Any = None) -> Any:
        before, is_same_rank = self.stage_index - 1, self._is_same_rank
        if before < 0 or is_same_rank(before) or is_real(self, before):
            return vote(self, has_backward, received_acc)
        yes = torch.ones(1, dtype=torch.int32, device="cpu")
        if neighbours is not None:
            rank = self._resolve_peer_global_rank(before)
            if not neighbours.has_next(rank):
                neighbours.expect(rank, yes)
            return vote(self, has_backward, received_acc)
        # What an emulated stage says is here already, as if it were on this rank.
        self._is_same_rank = lambda other: other == before or is_same_rank(other)
        try:
            return vote(self, has_backward, yes.to(self.device))
        finally:
            del self._is_same_rank

    stage.PipelineStage._recv_meta, stage.PipelineStage._send_meta = received, told
    if vote and (real is not None or neighbours is not None):
        stage.PipelineStage._warmup_forward_vote = voted
