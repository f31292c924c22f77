"""The order of passes, against the rules of Megatron-LM's schedules written down as they are there.

Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM",
2021, section 2.2; the rules for a step of the loop are those of `megatron/core/pipeline_parallel/
schedules.py`: which chunk and which micro-batch virtual micro-batch k is, and how many forward
passes come before the first backward pass.
"""

from __future__ import annotations

import pytest
from four_ops import layers
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.cluster import switch
from paracosm.jobs.strategies import build_job, parse_strategy
from paracosm.jobs.strategies.rank import order_of
from paracosm.simulation import replay_job

Passes = list[tuple[str, int, int]]
"""(forward or backward, micro-batch, chunk)."""


def chunk_id(k: int, forward: bool, stages: int, chunks: int) -> int:
    within = k % (stages * chunks)
    chunk = within // stages
    return chunk if forward else chunks - chunk - 1


def megatron(rank: int, stages: int, microbatches: int, chunks: int) -> Passes:
    """Warm-up, steady state and cool-down, with a counter of micro-batches for each chunk."""
    total = microbatches * chunks
    usual, interleaved = stages - rank - 1, (stages - rank - 1) * 2 + (chunks - 1) * stages
    warm_up = min(usual if chunks == 1 else interleaved, total)
    done = {"f": [0] * chunks, "b": [0] * chunks}
    passes: Passes = []

    def step(k: int, kind: str) -> None:
        chunk = chunk_id(k, kind == "f", stages, chunks)
        passes.append((kind, done[kind][chunk], chunk))
        done[kind][chunk] += 1

    for k in range(warm_up):
        step(k, "f")
    for k in range(total - warm_up):
        step(k + warm_up, "f")
        step(k, "b")
    for k in range(total - warm_up, total):
        step(k, "b")
    return passes


@given(stages=st.integers(2, 8), turns=st.integers(1, 4), chunks=st.integers(1, 4))
def test_every_rank_goes_through_its_passes_as_in_megatron(
    stages: int, turns: int, chunks: int
) -> None:
    microbatches = stages * turns
    schedule = "1f1b" if chunks == 1 else "interleaved"
    for rank in range(stages):
        order = order_of(schedule, rank, stages, microbatches, chunks)
        ours = [("b" if each.backward else "f", each.microbatch, each.chunk) for each in order]
        assert ours == megatron(rank, stages, microbatches, chunks)


@given(stages=st.integers(2, 5), microbatches=st.integers(1, 12))
def test_1f1b_takes_any_number_of_micro_batches(stages: int, microbatches: int) -> None:
    for rank in range(stages):
        order = order_of("1f1b", rank, stages, microbatches)
        ours = [("b" if each.backward else "f", each.microbatch, 0) for each in order]
        assert ours == megatron(rank, stages, microbatches, 1)


@pytest.mark.parametrize("stages", [2, 4])
@given(turns=st.integers(1, 3), chunks=st.integers(2, 3), back=st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_the_bubble_of_interleaving_is_a_share_of_the_ideal_time(
    stages: int, turns: int, chunks: int, back: int
) -> None:
    """Bubble over ideal time: (p - 1) / (v m) (the paper, end of section 2.2)."""
    m = stages * turns
    text = f"pp={stages}, schedule=interleaved, chunks={chunks}, microbatches={m}"
    replica = layers(stages * chunks, forward=1.0, backward=float(back))
    job = build_job(replica, switch(stages), parse_strategy(text))
    ideal = m * chunks * (1.0 + back)
    bubble = replay_job(job).makespan - ideal
    assert bubble / ideal == pytest.approx((stages - 1) / (chunks * m))
