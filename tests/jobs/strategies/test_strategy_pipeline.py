"""Pipelines by hand: bubbles, messages, memory, cuts."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from four_ops import MB, bytes_of, layers, makespan, names_of, replayed, spans, two_layers
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.cluster import Link, switch
from paracosm.errors import InputError
from paracosm.graphs import Node, Op, build_graph
from paracosm.jobs.check import check_job
from paracosm.jobs.strategies import Replica, build_job, parse_strategy
from paracosm.jobs.strategies.rank import order_of
from paracosm.simulation import replay_job
from paracosm.simulation.memory import peak_memory_of_ranks


def free(ranks: int):  # a cluster on which messages cost nothing
    return switch(ranks)


@given(
    schedule=st.sampled_from(["gpipe", "1f1b"]),
    stages=st.integers(2, 6),
    microbatches=st.integers(1, 9),
    forward=st.integers(1, 5),
    backward=st.integers(1, 5),
)
@settings(max_examples=40, deadline=None)
def test_equal_stages_have_the_bubble_of_the_papers(
    schedule: str, stages: int, microbatches: int, forward: int, backward: int
) -> None:
    """(m + p - 1) (f + b): Huang et al. 2019, section 2.3; Narayanan et al. 2021, section 2.2."""
    replica = layers(stages, forward, backward)
    text = f"pp={stages}, schedule={schedule}, microbatches={microbatches}"
    expected = (microbatches + stages - 1) * (forward + backward)
    assert makespan(replica, text, free(stages)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("stages", "chunks", "turns"), [(2, 2, 2), (4, 2, 2), (4, 3, 3), (3, 2, 4)]
)
def test_interleaving_divides_the_bubble_by_the_chunks(
    stages: int, chunks: int, turns: int
) -> None:
    """m (f + b) + (p - 1) (f + b) / v (Narayanan et al. 2021, section 2.2)."""
    replica = layers(stages * chunks, forward=1.0, backward=2.0)
    m = stages * turns
    text = f"pp={stages}, schedule=interleaved, chunks={chunks}, microbatches={m}"
    whole = 3.0 * chunks
    expected = m * whole + (stages - 1) * whole / chunks
    assert makespan(replica, text, free(stages)) == pytest.approx(expected)


@pytest.mark.parametrize(("pipelined", "sent", "arrived"), [(True, 2.0, 5.0), (False, 5.0, 5.0)])
def test_latency_of_a_message(pipelined: bool, sent: float, arrived: float) -> None:
    """A forward pass of 1 s, a message of 1 s and 3 s of latency; the second one follows it."""
    link = Link(bandwidth=1.0 * MB, latency=3.0, pipelined=pipelined)
    schedule = replayed(two_layers(), "pp=2, microbatches=2, schedule=gpipe", switch(2, link=link))
    sends = spans(schedule, 0, "send")
    assert sends[0] == ("send activations", 1.0, sent)
    assert spans(schedule, 1, "receive")[0][2] == arrived
    assert sends[1][1] == max(2.0, sent)
    assert spans(schedule, 1, "receive")[1][2] == max(2.0, sent) + 4.0


def test_half_duplex_links_are_refused_between_stages() -> None:
    half = switch(2, link=Link(bandwidth=1.0 * MB, duplex="half"))
    with pytest.raises(InputError, match="duplex: half of worker0 and worker1: stages of a pipe"):
        replayed(two_layers(), "pp=2, microbatches=2", half)


def test_two_stages_by_hand() -> None:
    """A message takes a second: the first gradient is back at 1 + 1 + 1 + 2 + 1."""
    schedule = replayed(two_layers(), "pp=2, microbatches=2")
    assert spans(schedule, 0, "compute") == [
        ("layer", 0, 1),
        ("layer", 1, 2),
        ("layer", 6, 8),
        ("layer", 9, 11),
    ]
    assert spans(schedule, 1, "compute") == [
        ("layer", 2, 3),
        ("layer", 3, 5),
        ("layer", 5, 6),
        ("layer", 6, 8),
    ]
    assert spans(schedule, 0, "send") == [("send activations", 1, 2), ("send activations", 2, 3)]
    assert spans(schedule, 1, "send") == [("send gradients", 5, 6), ("send gradients", 8, 9)]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("rank", [0, 3])
def test_the_pictures_show_what_is_replayed(schedule: str, rank: int) -> None:
    schedule_of = replayed(layers(4), f"pp=4, schedule={schedule}, microbatches=8", free(4))
    line = ["."] * round(schedule_of.makespan)
    forward, backward = iter("01234567"), iter("abcdefgh")
    for _, begin, end in spans(schedule_of, rank, "compute"):
        mark = next(forward if end - begin == 1 else backward)
        line[round(begin) : round(end)] = mark * round(end - begin)
    drawn = f"rank {rank} |{''.join(line)}|"
    assert drawn in inspect.cleandoc(str(order_of.__doc__))


def test_without_overlap_a_stage_waits_until_it_has_sent() -> None:
    """As above, but rank 0 sends before its second pass, and rank 1 a gradient before its third."""
    schedule = replayed(two_layers(), "pp=2, microbatches=2, overlap=no")
    assert [begin for _, begin, _ in spans(schedule, 0, "compute")] == [0, 2, 6, 10]
    assert [begin for _, begin, _ in spans(schedule, 1, "compute")] == [2, 3, 6, 7]
    assert schedule.makespan == 12


def test_orders_of_four_ranks_and_eight_micro_batches() -> None:
    """Figure 4 of Narayanan et al. 2021, counted there: warm-ups of 3, 2, 1 and 0."""

    def written(schedule: str, stage: int, chunks: int = 1) -> str:
        order = order_of(schedule, stage, 4, 8, chunks)
        return " ".join(
            f"{'b' if each.backward else 'f'}{each.microbatch + 1}{'ab'[each.chunk]}"
            for each in order
        )

    assert written("1f1b", 3).startswith("f1a b1a f2a b2a f3a b3a")
    assert written("1f1b", 0).startswith("f1a f2a f3a f4a b1a f5a b2a f6a b3a")
    assert written("1f1b", 0).endswith("b5a b6a b7a b8a")
    assert written("gpipe", 2).startswith("f1a f2a f3a f4a f5a f6a f7a f8a b1a")
    # The first rank: 2 x 3 + 4 forward passes before the first backward pass.
    assert written("interleaved", 0, 2).startswith(
        "f1a f2a f3a f4a f1b f2b f3b f4b f5a f6a f7a b1b f8a b2b f5b b3b f6b b4b f7b b1a"
    )
    assert written("interleaved", 3, 2).startswith(
        "f1a f2a f3a f4a f1b b1b f2b b2b f3b b3b f4b b4b"
    )


@given(
    schedule=st.sampled_from(["gpipe", "1f1b", "interleaved"]),
    stages=st.integers(2, 5),
    turns=st.integers(1, 3),
    chunks=st.integers(2, 3),
)
@settings(max_examples=30, deadline=None)
def test_every_pass_is_done_once_and_after_its_forward_pass(
    schedule: str, stages: int, turns: int, chunks: int
) -> None:
    count = chunks if schedule == "interleaved" else 1
    m = stages * turns
    for stage in range(stages):
        order = order_of(schedule, stage, stages, m, count)
        assert len(set(order)) == len(order) == 2 * m * count
        for place, each in enumerate(order):
            if each.backward:
                twin = type(each)(False, each.microbatch, each.chunk)
                assert order.index(twin) < place
    text = f"pp={stages}, schedule={schedule}, microbatches={m}"
    text += f", chunks={chunks}" if count > 1 else ""
    check_job(build_job(layers(stages * count), free(stages), parse_strategy(text)))


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_activations_of_as_many_micro_batches_as_the_schedule_keeps(schedule: str) -> None:
    """3 MB for every micro-batch between its passes, 1 MB that came for it; 1 MB of gradient."""
    stages, m = 4, 6
    replica = layers(stages, gradient=0)
    text = f"pp={stages}, schedule={schedule}, microbatches={m}"
    job = build_job(replica, free(stages), parse_strategy(text))
    kept = [m] * stages if schedule == "gpipe" else [min(m, stages - stage) for stage in range(4)]
    peaks = peak_memory_of_ranks(replay_job(job))
    assert peaks.tolist() == [
        (kept[stage] * (3 + (stage > 0)) + (stage < stages - 1)) * MB for stage in range(stages)
    ]


def test_stages_hold_their_parts_of_what_is_resident() -> None:
    """Two layers of 4 MB: parameters 4, optimizer 8, and 4 in which micro-batches add up."""
    job = replayed(two_layers(), "pp=2, microbatches=2").job
    assert [program.resident for program in job.programs] == [16 * MB, 16 * MB]
    job = replayed(two_layers(), "pp=2").job
    assert [program.resident for program in job.programs] == [12 * MB, 12 * MB]


def test_stages_are_cut_where_the_longest_is_shortest() -> None:
    times = [3.0, 1.0, 1.0, 1.0, 1.0, 3.0]
    op = Op("layer", bytes_written=MB)
    graph = build_graph(
        Node(i, op, f"h.{i}", "forward", dependencies=(i - 1,) if i else ()) for i in range(6)
    )
    replica = Replica(graph, np.array(times))

    def lengths(text: str) -> list[int]:
        schedule = replayed(replica, text)
        return [len(spans(schedule, rank, "compute")) for rank in range(schedule.job.ranks)]

    assert lengths("pp=2") == [3, 3]
    assert lengths("pp=3") == [2, 3, 1]
    assert lengths("pp=2, cut=h.1") == [1, 5]
    assert lengths("pp=3, cut=h.4+h.5") == [4, 1, 1]
    with pytest.raises(InputError, match=r'unknown layer "h.7": did you mean "h.'):
        replayed(replica, "pp=2, cut=h.7")
    with pytest.raises(InputError, match="layers must be in the model's order"):
        replayed(replica, "pp=3, cut=h.4+h.2")
    with pytest.raises(InputError, match="7 stages of 6 layers: pp x chunks may be 6 at most"):
        replayed(replica, "pp=7")


def test_a_shortcut_over_the_cut_is_sent_as_well() -> None:
    """Layer 2 looks at layers 0 and 1: both pass from stage 0 to stage 1."""
    small, large = Op("small", bytes_written=MB), Op("large", bytes_written=5 * MB)
    graph = build_graph(
        [
            Node(0, small, "h.0", "forward"),
            Node(1, large, "h.1", "forward", dependencies=(0,)),
            Node(2, small, "h.2", "forward", dependencies=(0, 1)),
            Node(3, small, "h.3", "forward", dependencies=(2,)),
        ]
    )
    job = replayed(Replica(graph, np.ones(4)), "pp=2, cut=h.2").job
    assert bytes_of(job, 0, "send") == {"send activations": 6 * MB}
    assert bytes_of(job, 1, "receive") == {"receive activations": 6 * MB}


def test_gradients_of_a_stage_are_reduced_between_its_replicas() -> None:
    schedule = replayed(two_layers(update=1.0), "dp=2, pp=2, microbatches=2")
    assert bytes_of(schedule.job, 0, "collective") == {"all-reduce 0 of stage 0": 4 * MB}
    assert bytes_of(schedule.job, 3, "collective") == {"all-reduce 0 of stage 1": 4 * MB}
    # As in `test_two_stages_by_hand`; the last gradients of stage 0 are there at 11.
    assert spans(schedule, 0, "communication") == [("all-reduce 0 of stage 0", 11, 15)]
    assert spans(schedule, 0, "compute")[-1] == ("layer", 15, 16)
    assert spans(schedule, 3, "communication") == [("all-reduce 0 of stage 1", 8, 12)]


def test_chunks_wrap_around_from_the_last_rank_to_the_first() -> None:
    schedule = replayed(layers(4), "pp=2, schedule=interleaved, chunks=2, microbatches=2")
    assert names_of(spans(schedule, 1, "send")).count("send activations") == 2
    assert names_of(spans(schedule, 0, "receive")).count("receive activations") == 2
    assert names_of(spans(schedule, 0, "send")).count("send activations") == 4


@pytest.mark.parametrize("microbatches", [3, 6])
def test_messages_of_all_sizes_come_in_the_order_in_which_they_are_sent(microbatches: int) -> None:
    """Every layer hands on another number of bytes: sizes are compared, message by message."""
    nodes = [
        Node(
            i,
            Op("layer", str(i), bytes_written=1 + i),
            f"h.{min(i, 17 - i)}",
            "forward" if i < 9 else "backward",
            dependencies=(i - 1,) if i else (),
        )
        for i in range(18)
    ]
    replica = Replica(build_graph(nodes), np.ones(len(nodes)))
    text = f"pp=3, schedule=interleaved, chunks=3, microbatches={microbatches}"
    job = build_job(replica, free(3), parse_strategy(text))
    check_job(job)
    # Ranks send what layers 0, 3, 6 (and 1, 4, 7; 2, 5) have written, for each micro-batch.
    sent = [bytes_of(job, rank, "send")["send activations"] for rank in range(3)]
    assert sent == [microbatches * size for size in (1 + 4 + 7, 2 + 5 + 8, 3 + 6)]


def test_a_forward_pass_alone_goes_through_a_pipeline() -> None:
    """3 micro-batches through 2 stages of a second each."""
    graph = build_graph(
        Node(i, Op("layer"), f"h.{i}", "forward", dependencies=(i - 1,) if i else ())
        for i in range(2)
    )
    replica = Replica(graph, np.ones(2))
    assert makespan(replica, "pp=2, microbatches=3", switch(2, link=Link())) == 4.0
