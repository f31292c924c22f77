"""Sequences, experts, shards and the host's memory: by hand, on links of a second a megabyte."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from four_ops import MB, SLOW, layers, replayed, spans, two_layers

from paracosm.cluster import Link, switch
from paracosm.cluster.hardware import HostRates
from paracosm.errors import InputError
from paracosm.graphs import Graph, Node, Op, build_graph
from paracosm.graphs.graph import encode_arguments
from paracosm.graphs.transformer.architecture import Transformer
from paracosm.graphs.transformer.graph import transformer_graph
from paracosm.graphs.transformer.share import Split
from paracosm.jobs.job import STEPS
from paracosm.jobs.strategies import Replica, build_job, parse_strategy
from paracosm.simulation.breakdown import causes_of, parts_of
from paracosm.simulation.memory import peak_memory_of_ranks
from paracosm.simulation.replay import replay_job
from paracosm.simulation.static import JobSchedule

FREE = Link()


def met(schedule: JobSchedule, rank: int = 0) -> Counter[tuple[str, int]]:
    """Return how often a rank communicates in which role, and the bytes."""
    program = schedule.job.programs[schedule.job.program[rank]]
    roles = [schedule.job.roles[code] for code in program.role[program.role >= 0].tolist()]
    return Counter(zip(roles, program.size[program.role >= 0].tolist(), strict=True))


def test_along_the_sequence_a_sum_is_scattered_and_gathered() -> None:
    """Two layers of one node, that two ranks sum twice each way: 1 MB in 2 steps of half of it.

    An all-reduce takes as long as both; what is not split of a layer of one node is nothing.
    """
    usual, along = (replayed(two_layers(), text) for text in ("tp=2", "tp=2, sp=yes"))
    assert usual.makespan == along.makespan == 2 * (1 + 2) / 2 + 8 * 1.0
    names = Counter(along.job.names[code] for code in along.job.programs[0].name.tolist())
    assert names["reduce-scatter"] == names["all-gather"] == 8


def test_along_the_sequence_norms_are_divided_too() -> None:
    """A norm of 1 s and a product of 1 s each way: 4 s on one rank, 3 s and 2 s on two."""
    nodes = [
        Node(0, Op("norm", bytes_written=MB), "h.0.norm", "forward", allocates=((2 * MB, 3),)),
        Node(1, Op("mm", bytes_written=MB), "h.0.mlp", "forward", dependencies=(0,)),
        Node(2, Op("mm", bytes_written=MB), "h.0.mlp", "backward", dependencies=(1,)),
        Node(3, Op("norm", bytes_written=MB), "h.0.norm", "backward", dependencies=(2,)),
    ]
    replica = Replica(build_graph(nodes), np.ones(4))
    free = switch(2, link=FREE)
    assert replayed(replica, "tp=2", free).makespan == 3
    along = replayed(replica, "tp=2, sp=yes", free)
    assert along.makespan == 2
    assert peak_memory_of_ranks(along).tolist() == [MB, MB]
    assert peak_memory_of_ranks(replayed(replica, "tp=2", free)).tolist() == [2 * MB, 2 * MB]


def ring(steps: int, attend: float, size: int) -> Replica:
    """Return attention to the keys of each of `steps` ranks, those of the next coming beside it."""
    permute = Op(
        "_c10d_functional.permute.default",
        encode_arguments([], {"group": "context"}),
        bytes_read=size,
        bytes_written=size,
    )
    nodes, handed = [Node(0, Op("norm"), "h.0.norm", "forward")], (0,)
    for step in range(steps):
        row = len(nodes)
        if step < steps - 1:
            group = tuple(range(steps))
            nodes.append(Node(row, permute, "h.0.core", "forward", "communication", handed, group))
        core = len(nodes)
        nodes.append(Node(core, Op("core"), "h.0.core", "forward", dependencies=handed))
        handed = (core, row) if step < steps - 1 else (core,)
    times = [0.0 if node.resource == "communication" else attend for node in nodes]
    times[0] = 0.0
    return Replica(build_graph(nodes, provenance={"cp": steps}), np.array(times))


@pytest.mark.parametrize(("attend", "seconds"), [(5.0, 4 * 5.0), (1.0, 3 * 2.0 + 1.0)])
def test_a_ring_takes_the_longer_of_attending_and_passing(attend: float, seconds: float) -> None:
    """Four ranks: four times attention, and three times 2 MB to the next one beside it."""
    replica = ring(4, attend, 2 * MB)
    assert replayed(replica, "cp=4", switch(4, link=SLOW)).makespan == seconds


def test_ranks_that_share_sequences_sum_gradients() -> None:
    replica = made("cp=2", micro_batch=1)
    schedule = replayed(replica, "cp=2, dp=2", switch(4, link=FREE))
    sizes = met(schedule)
    reduced = sum(size * count for (role, size), count in sizes.items() if role == "data")
    assert reduced == 4 * TINY.parameters
    assert {role for role, _ in sizes} == {"data", "context"}
    groups = {schedule.job.communicators.ranks(n) for n in range(len(schedule.job.communicators))}
    assert groups == {(0, 1, 2, 3), (0, 1), (2, 3)}
    assert schedule.job.examples == 2


TINY = Transformer(
    *(2, 64, 8, 32, 128),
    gated=True,
    rotary=True,
    rms=True,
    bias=False,
    tied=False,
    fused_qkv=False,
    experts=4,
    active=2,
    recipe="compiled",
)

GPT = Transformer(layers=2, width=64, heads=8, sequence=32, vocabulary=100)


def graph_of(text: str, micro_batch: int) -> Graph:
    return transformer_graph(TINY, micro_batch, parse_strategy(text).split())


def made(text: str, micro_batch: int = 1) -> Replica:
    graph = graph_of(f"dp=4, {text}" if "ep" in text else text, micro_batch)
    return Replica(graph, np.full(len(graph), 0.001))


def test_experts_are_summed_by_those_that_have_the_same() -> None:
    """Four ranks, two of which share four experts: the others' gradients are half as many, and
    only two ranks sum them; tokens go out and back in either pass."""
    schedule = replayed(made("ep=2"), "dp=4, ep=2", switch(4, link=FREE))
    sizes = met(schedule)
    experts = 4 * 2 * 2 * TINY.expert_parameters  # bytes, layers, experts of this rank
    others = 4 * (TINY.parameters - 2 * 4 * TINY.expert_parameters)
    summed = Counter[str]()
    for (role, size), count in sizes.items():
        summed[role] += size * count
    assert summed["expert data"] == experts
    assert summed["data"] == others
    assert summed["expert"] == 2 * 4 * (2 * 32 * 64 * 2)  # layers, exchanges, bytes
    job = schedule.job
    code = job.roles.index("expert data")
    assert job.communicators.ranks(int(job.communicator[0, code])) == (0, 2)


@pytest.mark.parametrize("sharding", [0, 1, 2, 3])
def test_experts_are_divided_between_fewer_ranks(sharding: int) -> None:
    """Each of four ranks holds a quarter of what all have, and half of its own experts'."""
    schedule = replayed(made("ep=2"), f"dp=4, ep=2, zero={sharding}", switch(4, link=FREE))
    program = schedule.job.programs[0]
    experts = 2 * 2 * TINY.expert_parameters
    others = TINY.parameters - 2 * 4 * TINY.expert_parameters
    whole, part = experts + others, experts / 2 + others / 4
    expected = 2 * (part if sharding == 3 else whole) + 12 * (part if sharding else whole)
    assert program.resident == pytest.approx(expected, abs=2)


def test_all_ranks_wait_for_the_busiest_expert() -> None:
    """Uneven routing takes longer, by what the busiest rank has more to do; capacity bounds it."""

    def seconds(text: str) -> float:
        graph = graph_of(f"dp=2, {text}", 1)
        job = build_job(Replica(graph, graph.flops * 1e-9), switch(2, link=FREE), parse(text))
        return replay_job(job).makespan

    def parse(text: str):  # type: ignore[no-untyped-def]
        return parse_strategy(f"dp=2, {text}")

    even = seconds("ep=2")
    uneven = seconds("ep=2, routing=5+1+1+1")
    bounded = seconds("ep=2, routing=5+1+1+1, capacity=1.5")
    tokens, flops = 2 * 32 * 2, 3 * 2 * 64 * 4 * 64  # choices of both ranks; of one, one pass
    assert uneven - even == pytest.approx(2 * 3 * tokens * (6 / 8 - 4 / 8) * flops * 1e-9)
    assert bounded == pytest.approx(even)


def test_groups_of_shards_are_replicas() -> None:
    """Four ranks, two of which share a layer of 4 MB: gathers of it twice, a scatter, and then the
    sum of a half over the two groups, all between two ranks: 2 s a gather or scatter, 2 s a sum."""
    text = "fsdp, dp=4, shard=2, prefetch=0"
    schedule = replayed(layers(1), text, switch(4, link=SLOW))
    assert met(schedule) == {("shard", 4 * MB): 3, ("replicate", 2 * MB): 1}
    assert schedule.makespan == 2 + 1 + 2 + 2 + 2 + 2
    held = schedule.job.programs[0].resident
    assert held == replayed(layers(1), "fsdp, dp=2", switch(2, link=SLOW)).job.programs[0].resident


def test_activations_wait_with_the_host() -> None:
    """Three layers of 1 s and 2 s leave 3 MB each, which take 1 s to the host or back.

    Out: 1 to 2, 2 to 3, 3 to 4. The last one is needed at once: back from 4 to 5, its backward pass
    to 7, with the next one beside it; then no more is waited for.
    """
    replica = layers(3)
    alone = switch(1)
    schedule = replayed(replica, "offload=3MB/s", alone)
    assert schedule.makespan == 5 + 3 * 2
    slow = replayed(replica, "offload=1MB/s", alone)  # out to 1 + 9, back from 10 on, 3 s each
    assert slow.makespan == 10 + 3 * 3 + 2
    held, kept = (peak_memory_of_ranks(replayed(layers(8), t, alone))[0] for t in OFFLOADED)
    assert kept - held == (8 - 2) * 3 * MB  # one in use, and one that comes or goes


OFFLOADED = ("offload=3MB/s, microbatches=2", "microbatches=2")


HOST = HostRates(update=1.0 * MB, copy=4.0 * MB)


def test_the_host_updates_while_weights_go_back() -> None:
    """Two layers of 1 s and 2 s make 4 MB of gradients each, copied in 1 s: from 4 on and from 6
    on. Then each is updated for 1 s, and its weights go back in 1 s beside the next one.

    Two ranks reduce and scatter 4 MB in 2 s, from 4 and from 6 on, and copy, update and copy back
    halves; from 10 on they gather 8 MB in 4 s.
    """
    replica = replace(layers(2, update=1.0), host_rates=HOST)
    alone = replayed(replica, "offload_optimizer=yes", switch(1))
    assert spans(alone, 0, "offload") == [
        ("offload gradients 0", 4, 5),
        ("offload gradients 1", 6, 7),
    ]
    assert spans(alone, 0, "update on the host") == [("update h.0", 7, 8), ("update h.1", 8, 9)]
    assert alone.makespan == 10
    program = alone.job.programs[0]
    assert program.throughout == {"parameters": 8 * MB}
    assert program.on_host == {"optimizer": 16 * MB, "gradients": 8 * MB}
    causes = causes_of(alone, 0, pipelined=False)
    assert causes["updates on the host"] == 2e12
    assert parts_of(causes)["copies"] == 4  # a copy before, and one after
    two = replayed(replica, "zero1, dp=2, offload_optimizer=yes", switch(2, link=SLOW))
    assert spans(two, 0, "offload")[-1] == ("offload gradients 1", 8, 8.5)
    assert spans(two, 0, "reload")[-1] == ("reload h.1", 9.5, 10)
    assert two.makespan == 14
    assert two.job.programs[0].on_host == {"optimizer": 8 * MB, "gradients": 4 * MB}


def test_a_host_that_nothing_is_known_of_is_not_guessed() -> None:
    with pytest.raises(InputError, match="nothing says how fast the host updates: add --hardware"):
        replayed(layers(2, update=1.0), "offload_optimizer=yes", switch(1))
    with pytest.raises(InputError, match="has no effect: the graph has no updates"):
        replayed(replace(layers(2), host_rates=HOST), "offload_optimizer=yes", switch(1))


def test_what_is_computed_again_is_chosen_by_op() -> None:
    """Of Llama's 7 products in a layer the second, fourth and sixth; of attention nothing."""
    graph = transformer_graph(replace(TINY, experts=0), 1)
    schedule = replayed(Replica(graph, np.ones(len(graph))), "recompute=selective", switch(1))
    program = schedule.job.programs[0]
    again = [
        schedule.job.names[code].split(".")[1] for code in program.name[program.step == 2].tolist()
    ]
    assert Counter(again)["mm"] == 2 * 3
    assert not any("attention" in name for name in again)
    with pytest.raises(InputError, match="recompute=latent has no effect"):
        replayed(Replica(graph, np.ones(len(graph))), "recompute=latent", switch(1))


def test_all_but_products_is_computed_again() -> None:
    """As under JAX's "dots_with_no_batch_dims_saveable": two norms, the rotation, attention, the
    activation and the sum in each layer; no product, and nothing is gathered or summed again."""
    graph = transformer_graph(replace(TINY, experts=0), 1, Split(tensor=2, sequence=True))
    replica = Replica(graph, np.ones(len(graph)), tensor=2)

    def again(kind: str) -> Counter[str]:
        schedule = replayed(replica, f"tp=2, sp=yes, recompute={kind}", switch(2))
        program = schedule.job.programs[0]
        return Counter(schedule.job.names[code] for code in program.name[program.step == 2])

    fused = {"compiled.rms_norm": 4, "compiled.rotary": 2, "compiled.silu_mul": 2}
    assert again("elementwise") == fused
    attention = "aten._scaled_dot_product_flash_attention.default"
    assert again("except-products") == fused | {attention: 2}
    assert again("attention") == {attention: 2}


def test_attention_that_writes_its_scores_is_computed_again() -> None:
    """Korthikanti et al. 2022, section 5: 5 a s^2 b bytes a layer are not kept."""
    graph = transformer_graph(GPT, 2)
    replica = Replica(graph, np.ones(len(graph)))
    left = []
    for text in ("microbatches=2", "microbatches=2, recompute=attention"):
        program = replayed(replica, text, switch(1)).job.programs[0]
        forward = (program.step == 0) & (program.microbatch == 0)
        left.append(int((program.allocated - program.released)[forward].sum()))
    assert left[0] - left[1] == 2 * 5 * 8 * 32**2 * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cp=2", "cp=2, but the graph is made for cp=1"),
        ("dp=2, ep=2", "ep=2, but the graph is made for ep=1"),
        ("float8=yes, dp=2", "float8=tensorwise, but the graph is made for float8=no"),
    ],
)
def test_what_only_a_written_graph_can_do_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        replayed(two_layers(), text)


def test_numbers_of_one_byte_are_gathered_as_such() -> None:
    """Linear maps' parameters in a byte each; of the tables and norms outside layers, in two."""
    small, sizes = replace(TINY, experts=0), []
    for float8 in ("", "tensorwise"):
        graph = transformer_graph(small, 1, Split(float8=float8))
        text = "fsdp, dp=2" + (", float8=yes" if float8 else "")
        found = met(replayed(Replica(graph, np.ones(len(graph))), text, switch(2, link=FREE)))
        sizes.append(sum(size * count for (_, size), count in found.items()))
    assert sizes[0] - sizes[1] == 2 * 2 * small.layer_parameters  # gathered twice, a byte less


def test_computing_again_stops_where_no_more_is_needed() -> None:
    """Of Llama's layer all but the last product and sum, as PyTorch does; of a GPT by Megatron's
    recipe, which keeps the mask of the last dropout, all."""
    found = {}
    for recipe, plain in (("compiled", replace(TINY, experts=0)), ("megatron", GPT)):
        graph = transformer_graph(plain, 1)
        schedule = replayed(Replica(graph, np.ones(len(graph))), "recompute", switch(1))
        program = schedule.job.programs[0]
        again = program.name[program.step == STEPS.index("recompute")]
        of_layer = [
            row
            for row in range(len(graph))
            if graph.phase[row] == 0 and graph.names[graph.name[row]].startswith("h.")
        ]
        found[recipe] = len(of_layer) - len(again)
    assert found == {"compiled": 2 * 2, "megatron": 0}
