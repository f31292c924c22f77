"""All-reduces beside computing, at instants worked out by hand; and the fragments they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.engine import Simulator, Worker
from paracosm.errors import InputError
from paracosm.timeline import Timeline
from paracosm.training import TrainConfig, train
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.numerics.parameters import ParameterLayout, strided
from paracosm.training.numerics.store import Contribution
from paracosm.training.run_state import AllReduces, Topology
from paracosm.training.worker import TrainingWorker


class Bringer(Worker):
    """Computes for so long before each all-reduce, and then waits for all of them."""

    def __init__(self, all_reduces: AllReduces, log: list[Any], *computing: float) -> None:
        self._all_reduces = all_reduces
        self._log = log
        self._computing = computing
        self.over: list[float] = []  # when each was over

    async def run(self) -> None:
        ends = []
        for number, duration in enumerate(self._computing):
            await self.compute(duration)
            mine: Any = SimpleNamespace(
                worker=self.name, payload=(self.name, number), read_version=number
            )
            end = self._all_reduces.begin(self.name, 0, mine, self._combine)
            end.add_callback(lambda _: self.over.append(self.sim.now))
            ends.append(end)
        for end in ends:
            await end

    def _combine(self, brought: Sequence[Contribution]) -> None:
        self._log.append((self.sim.now, [each.payload for each in brought]))


def simulated(*computing: Sequence[float]) -> tuple[Simulator, AllReduces, list[Any]]:
    """Run workers that compute for so long before each of their all-reduces, of a second each."""
    sim = Simulator(timeline=Timeline())
    names = [f"w{index}" for index in range(len(computing))]
    all_reduces = AllReduces(
        sim, names, lambda part, ring, updates: 1.0, lambda part, combine, brought: combine(brought)
    )
    log: list[Any] = []
    for name, durations in zip(names, computing, strict=True):
        sim.add_worker(name, Bringer, all_reduces, log, *durations)
    sim.run()
    return sim, all_reduces, log


def test_it_begins_when_the_last_has_come_and_the_one_before_is_over() -> None:
    # Brought at 2 and 3 s, at 2.5 and 3.25 s, at 10 and 3.5 s; each takes a second.
    sim, all_reduces, log = simulated([2, 0.5, 7.5], [3, 0.25, 0.25])
    assert log == [
        (4.0, [("w0", 0), ("w1", 0)]),
        (5.0, [("w0", 1), ("w1", 1)]),
        (11.0, [("w1", 2), ("w0", 2)]),
    ]
    assert [worker.over for worker in sim.workers.values()] == [[4.0, 5.0, 11.0]] * 2
    assert all_reduces.busy == 3.0
    assert sim.timeline is not None
    for resource in ("send", "receive"):
        for name in ("w0", "w1"):
            held = [
                (span.begin, span.end)
                for span in sim.timeline.spans
                if (span.node, span.resource) == (name, resource)
            ]
            assert held == [(3.0, 4.0), (4.0, 5.0), (10.0, 11.0)]


def test_nobody_computes_longer_for_it() -> None:
    sim, _, _ = simulated([2, 0.5, 7.5], [3, 0.25, 0.25])
    assert sim.timeline is not None
    computing = [
        (span.node, span.begin, span.end)
        for span in sim.timeline.spans
        if span.resource == "compute"
    ]
    assert sorted(computing) == [
        *(("w0", 0.0, 2.0), ("w0", 2.0, 2.5), ("w0", 2.5, 10.0)),
        *(("w1", 0.0, 3.0), ("w1", 3.0, 3.25), ("w1", 3.25, 3.5)),
    ]


@dataclass(frozen=True)
class Both(Algorithm):
    """Means that workers do not wait for at once, and means that they do."""

    name: ClassVar[str] = "both"
    topologies: ClassVar[tuple[Topology, ...]] = ("all-reduce",)

    async def work(self, me: TrainingWorker) -> None:
        while True:
            gradient = await me.compute_gradient()
            under_way = me.all_reduce_begin(0, gradient.value)
            await me.all_reduce_gradient(await me.compute_gradient())
            assert under_way.done


def test_those_that_workers_wait_for_come_after_those_under_way() -> None:
    # A gradient takes a second, an all-reduce among two workers of 3 bytes 3 s: the first goes on
    # from 1 to 4 s, the second is come to at 2 s and goes on from 4 to 7 s.
    config = TrainConfig(
        algorithm=Both(),
        workers=2,
        compute="1s",
        message_size="3B",
        bandwidth="1B/s",
        updates=2,
        timing_only=True,
        timeline=True,
    )
    result = train(config)
    assert result.summary["virtual_time"] == 7
    assert result.timeline is not None
    sent = [
        (span.begin, span.end)
        for span in result.timeline.spans
        if (span.node, span.resource) == ("worker1", "send")
    ]
    assert sent == [(1, 4), (4, 7)]


@given(
    st.integers(1, 4).flatmap(
        lambda count: st.lists(
            st.lists(st.integers(0, 40).map(lambda n: n / 8), min_size=count, max_size=count),
            min_size=1,
            max_size=4,
        )
    )
)
def test_they_follow_one_another_in_order(computing: list[list[float]]) -> None:
    _, all_reduces, log = simulated(*computing)
    # Eighths of seconds are exact in floating point: the recursion is, too.
    end = 0.0
    for number, (over, brought) in enumerate(log):
        come = max(sum(durations[: number + 1]) for durations in computing)
        end = max(end, come) + 1.0
        assert over == end
        assert sorted(brought) == [(f"w{index}", number) for index in range(len(computing))]
    assert len(log) == len(computing[0]) == all_reduces.busy


NAMES = (
    *("embedding.weight", "layers.0.wq.weight", "layers.0.up.weight", "layers.1.wq.weight"),
    *("layers.1.up.weight", "layers.2.wq.weight", "layers.2.up.weight", "norm.weight"),
)


def test_layers_go_to_fragments_in_turn() -> None:
    # Layers: embedding, layers.0, layers.1, layers.2, norm.
    assert strided(NAMES, 1) == [list(range(8))]
    assert strided(NAMES, 2) == [[0, 3, 4, 7], [1, 2, 5, 6]]
    assert strided(NAMES, 5) == [[0], [1, 2], [3, 4], [5, 6], [7]]


def test_there_are_no_more_fragments_than_layers() -> None:
    with pytest.raises(InputError, match="6 fragments of a model of 5 layers") as caught:
        strided(NAMES, 6)
    assert "embedding, layers.0, layers.1, layers.2, norm" in str(caught.value)


def test_a_fragment_is_a_slice_of_the_flat_vector() -> None:
    from torch import nn

    module = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2), nn.Linear(2, 4))
    layout = ParameterLayout.of(module, fragments=2)
    assert layout.names == ("0.weight", "0.bias", "3.weight", "3.bias", "2.weight", "2.bias")
    assert layout.slices == (slice(0, 32), slice(32, 44))
    assert all(one.stop == other.start for one, other in pairwise(layout.slices))
    assert layout.bytes_per_server == (128, 48)
