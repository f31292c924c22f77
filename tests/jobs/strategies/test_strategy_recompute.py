"""Recomputation by hand: a layer's forward pass again before its backward pass."""

from __future__ import annotations

import numpy as np
import pytest
from four_ops import MB, bytes_of, layers, makespan, replayed, spans, two_layers

from paracosm.cluster import switch
from paracosm.graphs import Node, Op, build_graph
from paracosm.jobs.job import STEPS
from paracosm.jobs.strategies import Replica
from paracosm.simulation.memory import peak_memory_of_ranks


def test_each_layer_is_computed_again_before_its_backward_pass() -> None:
    schedule = replayed(two_layers(), "recompute", switch(1))
    assert [end for _, _, end in spans(schedule, 0, "compute")] == [1, 2, 3, 5, 6, 8]
    program = schedule.job.programs[0]
    steps = [STEPS[step] for step in program.step]
    assert steps == ["forward", "forward", "recompute", "backward", "recompute", "backward"]


def test_a_stage_computes_its_layers_again() -> None:
    """(m + p - 1) (f + f + b), as of stages whose backward pass is longer by the forward pass."""
    text = "pp=3, microbatches=5, recompute=yes"
    assert makespan(layers(6), text, switch(3)) == (5 + 2) * 2 * (1.0 + 1.0 + 2.0)


def test_only_what_layers_hand_on_is_kept() -> None:
    """Six layers keep 3 MB each; computed again, what one hands to the next and one of them.

    Whether they are storages of their own, or those of a layer of one node, which writes 1 MB.
    """
    from test_strategy_layers import with_inner

    replica = with_inner(6, handed=1 * MB, inner=2 * MB)
    whole = peak_memory_of_ranks(replayed(replica, "microbatches=1", switch(1)))[0]
    again = peak_memory_of_ranks(replayed(replica, "recompute", switch(1)))[0]
    assert whole == 6 * 3 * MB
    assert again == 6 * 1 * MB + 2 * MB
    coarse = layers(6, gradient=0, activation=1 * MB)
    again = peak_memory_of_ranks(replayed(coarse, "recompute", switch(1)))[0]
    assert again == 5 * 1 * MB + 3 * MB  # the last layer hands on nothing


@pytest.mark.parametrize("text", ["dp=2, recompute", "fsdp, dp=2", "ps, dp=2, recompute"])
@pytest.mark.parametrize("bucket", ["1B", "3MB", "1GB"])
def test_gradients_fill_buckets_in_the_order_in_which_layers_go_back(
    text: str, bucket: str
) -> None:
    """Part of layer 0's backward pass stands before layer 1's in the graph: a shortcut."""
    op, gradient = Op("layer", bytes_written=MB), ((1 * MB, -1),)
    nodes = [
        Node(0, op, "h.0", "forward"),
        Node(1, op, "h.1", "forward", dependencies=(0,)),
        Node(2, op, "h.0", "backward", dependencies=(0,), allocates=gradient),
        Node(3, op, "h.1", "backward", dependencies=(1,), allocates=gradient),
        Node(4, op, "h.0", "backward", dependencies=(3, 2), allocates=gradient),
    ]
    if "fsdp" not in text:
        text += f", bucket={bucket}, first_bucket={bucket}"
    cluster = switch(2, servers=1 if "ps" in text else 0)
    job = replayed(Replica(build_graph(nodes), np.ones(5)), text, cluster).job
    kind = "send" if "ps" in text else "collective"
    reduced = {name: size for name, size in bytes_of(job, 0, kind).items() if "gather" not in name}
    assert sum(reduced.values()) == 3 * MB


def test_embedding_and_head_are_not_computed_again() -> None:
    from test_strategy_layers import with_ends

    schedule = replayed(with_ends(), "recompute", switch(1))
    program = schedule.job.programs[0]
    assert (program.step == STEPS.index("recompute")).sum() == 2
    assert schedule.makespan == 4 + 4 * 2 + 2
