"""DiLoCo by fragments, each exchanged at a time of its own, while workers compute on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import count
from typing import ClassVar

from paracosm.engine import Future
from paracosm.errors import InputError
from paracosm.training.algorithms.diloco import DiLoCo
from paracosm.training.failures import Recovery
from paracosm.training.named import below_1
from paracosm.training.team import Topology
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class StreamingDiLoCo(DiLoCo):
    """DiLoCo of each fragment p of the parameters, every `steps` steps from step t_p on.

    The mean of theta_p - theta_{i,p} is sent for at step t; when it is there, theta_p makes its
    outer step. At step t + `overlap` worker i takes it, and waits for it if it is late:
    theta_{i,p} <- mixing theta_{i,p} + (1 - mixing) theta_p. Fragment p of P has every P-th layer,
    from layer p on, and t_p = p steps / P, rounded down (0 is `steps`, the end of a round). An
    update, in the count of the run, is one of every fragment; what is evaluated are the shared
    theta_p. Douillard et al., "Streaming DiLoCo with overlapping communication", 2025, algorithm 2.
    """

    name: ClassVar[str] = "streaming-diloco"
    topologies: ClassVar[tuple[Topology, ...]] = ("all-reduce",)
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ("restart",)
    fragments: int = 2
    overlap: int = 1
    mixing: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.fragments <= self.steps:
            raise InputError(
                f"{self.name}: fragments must be between 1 and the number of steps, {self.steps}, "
                f"got {self.fragments}"
            )
        if not 0 <= self.overlap < self.steps:
            raise InputError(
                f"{self.name}: overlap must be at least 0 and below the number of steps, "
                f"{self.steps}, got {self.overlap}"
            )
        below_1(self, "mixing")

    async def work(self, me: TrainingWorker) -> None:
        under_way: dict[int, Future] = {}
        made = 0
        for step, is_taken, fragment in self._exchanges():
            if step > made:
                change = await me.local_steps(step - made, of=self.steps)
                me.parameters = change.result().parameters
                made = step
            if is_taken:
                await under_way.pop(fragment)
                mine, shared = me.part(fragment), me.shared_part(fragment)
                me.replace_part(fragment, self.mixing * mine + (1 - self.mixing) * shared)
            else:
                change = me.shared_part(fragment) - me.part(fragment)
                under_way[fragment] = me.all_reduce_begin(fragment, change)

    def _exchanges(self) -> Iterator[tuple[int, bool, int]]:
        """Yield step, whether the mean is taken (or sent for), and fragment, in order, for ever."""

        def at(delay: int, is_taken: bool) -> Iterator[tuple[int, bool, int]]:
            for begin in count(0, self.steps):
                for fragment in range(self.fragments):
                    step = begin + fragment * self.steps // self.fragments
                    if step:
                        yield step + delay, is_taken, fragment

        return merge(at(0, False), at(self.overlap, True))
