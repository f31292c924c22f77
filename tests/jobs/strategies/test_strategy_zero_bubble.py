"""Zero-bubble pipelines: ZB-H1 of Qi et al. 2023 against their formulas, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from four_ops import MB, layers, replayed
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.cluster import Link, switch
from paracosm.graphs import Node, Op, build_graph
from paracosm.jobs.strategies import Replica
from paracosm.jobs.strategies.rank import order_of
from paracosm.simulation.memory import memory_over_time


def halves(count: int, forward: float, inputs: float, weights: float) -> Replica:
    """Return layers whose backward pass is a node for each half; 3 MB are kept for the second."""
    op, nodes, times = Op("layer", bytes_written=1 * MB), [], []
    for layer in range(count):
        held = ((3 * MB, 3 * count - 1 - 2 * layer),)
        before = (layer - 1,) if layer else ()
        nodes.append(Node(layer, op, f"h.{layer}", "forward", "compute", before, allocates=held))
        times.append(forward)
    handed = count - 1
    for layer in reversed(range(count)):
        row = len(nodes)
        nodes.append(Node(row, op, f"h.{layer}", "backward", "compute", (handed,)))
        gradient = ((4 * MB, -1),)
        place = f"h.{layer}.weight"
        nodes.append(Node(row + 1, op, place, "backward", "compute", (handed,), allocates=gradient))
        times += [inputs, weights]
        handed = row
    return Replica(build_graph(nodes), np.array(times))


def shown(stage: int, stages: int, microbatches: int) -> str:
    words = []
    for each in order_of("zero-bubble", stage, stages, microbatches):
        first = "A" if each.weights else "a" if each.backward else "0"
        words.append(chr(ord(first) + each.microbatch))
    return "".join(words)


def test_order() -> None:
    """The later the stage, the later its gradients of weights."""
    assert shown(0, 4, 5) == "0123aA4bBcCdDeE"
    assert shown(3, 4, 5) == "0a1b2c3dA4eBCDE"
    assert shown(2, 3, 1) == "0aA"


@pytest.mark.parametrize(("forward", "inputs", "weights"), [(1, 1, 1), (2, 2, 1), (3, 2, 2)])
@pytest.mark.parametrize("stages", [2, 4])
def test_the_bubble_is_that_of_zb_h1(
    forward: float, inputs: float, weights: float, stages: int
) -> None:
    """Qi et al. 2023, section 3.1: (p - 1) (F + B - W), where 1F1B has (p - 1) (F + B + W)."""
    replica, m = halves(stages, forward, inputs, weights), 2 * stages
    free = switch(stages, link=Link())
    whole = m * (forward + inputs + weights)
    usual = replayed(replica, f"pp={stages}, microbatches={m}", free)
    assert usual.makespan == whole + (stages - 1) * (forward + inputs + weights)
    shorter = replayed(replica, f"zero-bubble, pp={stages}, microbatches={m}", free)
    assert shorter.makespan == whole + (stages - 1) * (forward + inputs - weights)


def test_halves_are_estimated_where_one_node_has_both() -> None:
    """Layers of 1 s and 2 s: (p - 1) (1 + 1 - 1) s, and half of the backward pass is put off."""
    schedule = replayed(layers(3), "zero-bubble, pp=3, microbatches=6", switch(3, link=Link()))
    assert schedule.makespan == 6 * 3 + 2 * 1


@given(st.integers(2, 4), st.integers(1, 9))
@settings(max_examples=20, deadline=None)
def test_no_more_activations_are_held_than_by_1f1b(stages: int, microbatches: int) -> None:
    """The stage with the most holds those of as many micro-batches as there are stages; besides,
    the last one has received a megabyte, and the first one has not."""
    peaks = []
    for schedule in ("1f1b", "zero-bubble"):
        text = f"{schedule}, pp={stages}, microbatches={microbatches}"
        found = replayed(halves(stages, 1, 1, 1), text, switch(stages, link=Link()))
        held = [memory_over_time(found, rank)[1] for rank in range(stages)]
        assert all(each[-1] == held[0][-1] for each in held)
        peaks.append(max(int(each.max()) for each in held))
    assert peaks[1] <= peaks[0] + 1 * MB


def test_gradients_are_reduced_when_those_of_weights_are_there() -> None:
    """One micro-batch of two stages, 4 s of all-reduce for each of two layers a stage."""
    text = "zero-bubble, dp=2, pp=2, first_bucket=1B, bucket=1B"
    schedule = replayed(halves(2, 1, 1, 1), text, switch(4, link=Link(bandwidth=1.0 * MB)))
    # 1 + 1 to send + 1 + 1 + 1 to send + 1 + 1, then 2 steps of 2 MB
    assert schedule.makespan == 7 + 4
