"""ZeRO and FSDP by hand: what is gathered and scattered, when, and what is held."""

from __future__ import annotations

import pytest
from four_ops import MB, SLOW, bytes_of, layers, machines, makespan, replayed, spans, two_layers

from paracosm.cluster import switch
from paracosm.simulation.memory import peak_memory_of_ranks


def test_zero_1_scatters_updates_a_share_and_gathers() -> None:
    """Scatters: 1 step of 2 MB each, at 4 and 6. Updates: half of a second each. Gather of 8 MB."""
    schedule = replayed(two_layers(update=1.0), "zero1, dp=2")
    assert spans(schedule, 0, "communication") == [
        ("reduce-scatter 0", 4, 6),
        ("reduce-scatter 1", 6, 8),
        ("all-gather parameters", 9, 13),
    ]
    assert spans(schedule, 0, "compute")[-2:] == [("layer", 8, 8.5), ("layer", 8.5, 9)]


def test_zero_2_reduces_every_micro_batch_and_zero_1_the_last() -> None:
    def reduced(name: str) -> int:
        job = replayed(two_layers(), f"{name}, dp=2, microbatches=3").job
        return sum(
            size for what, size in bytes_of(job, 0, "collective").items() if "scatter" in what
        )

    assert (reduced("zero1"), reduced("zero2"), reduced("zero3")) == (8 * MB, 24 * MB, 24 * MB)


@pytest.mark.parametrize("ranks", [2, 4, 5])
@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("zero=0", 2),
        ("zero=1", 2),
        ("zero=2", 2),
        ("zero=3", 3),
        ("zero=1, microbatches=3", 2),
        ("zero=2, microbatches=3", 3 + 1),
        ("zero=3, microbatches=3", 3 * 3),
    ],
)
def test_bytes_on_the_wire(text: str, volume: int, ranks: int) -> None:
    """In parameters sent by each rank, times (p - 1) / p: Rajbhandari et al. 2020, section 7."""
    schedule = replayed(layers(3, update=1.0), f"dp={ranks}, {text}")
    busy = sum(end - begin for _, begin, end in spans(schedule, 0, "communication"))
    assert busy == pytest.approx(volume * 12 * (ranks - 1) / ranks, abs=1e-9)  # 1 MB/s


def test_fsdp_by_hand() -> None:
    """Gathers of 2 s; with a prefetch of 1 two layers are there at a time.

    Layer 1 of the backward pass is gathered when layer 0 has been dropped (at 3) and the lane is
    free (at 4); layer 0 when layer 1 of the forward pass has been dropped (at 5), at 6.
    """
    schedule = replayed(two_layers(), "fsdp, dp=2")
    assert spans(schedule, 0, "communication") == [
        ("all-gather h.0", 0, 2),
        ("all-gather h.1", 2, 4),
        ("all-gather h.1", 4, 6),
        ("all-gather h.0", 6, 8),
        ("reduce-scatter 0", 8, 10),
        ("reduce-scatter 1", 10, 12),
    ]
    assert spans(schedule, 1, "compute") == [
        ("layer", 2, 3),
        ("layer", 4, 5),
        ("layer", 6, 8),
        ("layer", 8, 10),
    ]


def test_without_prefetch_a_gather_waits_for_the_layer_before() -> None:
    """Layer 1 is gathered when layer 0 is done, at 3, and so on: nothing overlaps but scatters."""
    schedule = replayed(two_layers(), "fsdp, dp=2, prefetch=0")
    assert spans(schedule, 0, "communication") == [
        ("all-gather h.0", 0, 2),
        ("all-gather h.1", 3, 5),
        ("all-gather h.1", 6, 8),
        ("reduce-scatter 0", 10, 12),
        ("all-gather h.0", 12, 14),
        ("reduce-scatter 1", 16, 18),
    ]


@pytest.mark.parametrize("prefetch", [0, 1, 2, 5])
def test_no_more_layers_are_there_than_the_prefetch_allows(prefetch: int) -> None:
    """Parameters of a layer are 4 MB: shards of 6 layers, the gathered ones, and activations."""
    replica = layers(6, gradient=4 * MB, activation=0)
    schedule = replayed(replica, f"fsdp, dp=2, prefetch={prefetch}", switch(2))
    job, whole = schedule.job, 6 * 4 * MB
    resident = (whole + 2 * whole) // 2  # parameters, optimizer
    assert job.programs[0].resident == resident
    # Of the gradients one layer's, and at most the shards of all.
    gathered = peak_memory_of_ranks(schedule)[0] - resident - 4 * MB - whole // 2
    assert gathered <= 4 * MB * (prefetch + 1)
    program = job.programs[0]
    assert program.allocated.sum() - program.released.sum() == whole // 2


def test_what_each_stage_of_zero_divides() -> None:
    """4 ranks; parameters 8 MB, optimizer 16 MB, gradients 8 MB added up over 2 micro-batches."""

    def resident(text: str) -> float:
        return replayed(two_layers(), f"{text}, dp=4, microbatches=2").job.programs[0].resident / MB

    assert [resident(f"zero={stage}") for stage in range(4)] == [
        8 + 8 + 16,
        8 + 8 + 16 / 4,
        8 + 8 / 4 + 16 / 4,
        8 / 4 + 8 / 4 + 16 / 4,
    ]


def test_sharding_on_a_free_network_costs_nothing() -> None:
    for name in ("zero1", "zero2", "fsdp", "fsdp, prefetch=0"):
        assert makespan(two_layers(), f"{name}, dp=4", switch(4)) == 6.0


def test_shards_of_a_stage() -> None:
    """Every stage gathers its own layer for every micro-batch, forward and backward."""
    job = replayed(two_layers(), "fsdp, dp=2, pp=2, microbatches=3").job
    assert bytes_of(job, 0, "collective") == {
        "all-gather h.0 of stage 0": 6 * 4 * MB,
        "reduce-scatter 0 of stage 0": 3 * 4 * MB,
    }


def test_gathers_across_machines_take_the_hierarchy() -> None:
    """2 machines of 2, free within: a quarter of 4 MB goes across, instead of three."""
    schedule = replayed(two_layers(), "fsdp, dp=4", machines(4, 2, SLOW))
    assert spans(schedule, 0, "communication")[0] == ("all-gather h.0", 0, 1.0)
