"""From which share of the iteration on waiting is the bottleneck."""

from __future__ import annotations

import pytest

from paracosm.prediction.iteration import bottleneck
from paracosm.replays.outcome import Breakdown, bottleneck_of

OPS = {"mm": 3.0, "add": 1.0}
COMPUTING = "Computing: mm takes 75% of the ops' time."


@pytest.mark.parametrize(("busy", "waits"), [(0.91, False), (0.89, True)])
def test_an_idle_device_is_the_bottleneck_from_a_tenth_of_the_iteration_on(
    busy: float, waits: bool
) -> None:
    lanes = {"host": 1.0, "compute": busy}
    launching = (
        "Launching: the device is idle 11% of the iteration, because the host issues ops more "
        "slowly than it computes; mm takes 75% of the ops' time."
    )
    assert bottleneck(1.0, lanes, OPS, asynchronous=True) == (launching if waits else COMPUTING)
    # What a synchronous device does, its host does: it waits for nothing but other lanes.
    assert bottleneck(1.0, lanes, OPS, asynchronous=False) == COMPUTING


@pytest.mark.parametrize(("busy", "waits"), [(0.91, False), (0.89, True)])
def test_a_busier_lane_is_the_bottleneck_from_a_tenth_of_the_iteration_on(
    busy: float, waits: bool
) -> None:
    lanes = {"host": busy, "communication": 0.95}
    communication = (
        "Communication: the device waits 11% of the iteration; mm takes 75% of the ops' time."
    )
    found = bottleneck(1.0, lanes, OPS, asynchronous=False)
    assert found == (communication if waits else COMPUTING)
    copies = bottleneck(1.0, {"host": busy, "memory": 0.95}, OPS, asynchronous=False)
    assert copies.startswith("Copies: ") == waits


@pytest.mark.parametrize(("loading", "limit"), [(0.4, "The host: "), (0.5, "Data loading: ")])
def test_of_a_traced_rank_loading_is_the_bottleneck_where_it_is_most_of_the_hosts_part(
    loading: float, limit: str
) -> None:
    rank = Breakdown(1.0, 0.0, 0.0, host=9.0, data_loading=10 * loading)
    assert bottleneck_of([rank], None).startswith(limit)


def test_of_traced_ranks_the_largest_part_is_the_bottleneck() -> None:
    ranks = [Breakdown(1.0, 3.0, 2.0, 1.0, 0.0), Breakdown(2.0, 0.0, 5.0, 1.0, 0.0)]
    assert bottleneck_of(ranks, 4) == (
        "Waiting for other ranks: 47% of the ranks' time, for rank 4 most often."
    )
    assert bottleneck_of(ranks[:1], 4) == "Communication: 43% of the time is exposed."
    assert bottleneck_of([Breakdown(0.0, 0.0, 0.0, 0.0, 0.0)], None) == "Nothing takes time."
