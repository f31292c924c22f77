"""Recomputation by hand: a layer's forward pass again before its backward pass."""

from __future__ import annotations

from four_ops import MB, layers, makespan, replayed, spans, two_layers

from paracosm.cluster import switch
from paracosm.graphs.job import STEPS
from paracosm.replay.job_memory import peak_memory_of_ranks


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


def test_embedding_and_head_are_not_computed_again() -> None:
    from test_strategy_layers import with_ends

    schedule = replayed(with_ends(), "recompute", switch(1))
    program = schedule.job.programs[0]
    assert (program.step == STEPS.index("recompute")).sum() == 2
    assert schedule.makespan == 4 + 4 * 2 + 2
