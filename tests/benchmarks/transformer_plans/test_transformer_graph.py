"""The graph of a transformer against formulas of the papers it is from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformer import Transformer, transformer_graph

from paracosm.cluster import switch
from paracosm.errors import InputError
from paracosm.graphs import PHASES, RESOURCES, Graph, fingerprint
from paracosm.graphs.summary import peak_memory
from paracosm.jobs import KINDS
from paracosm.jobs.strategies import Replica, Strategy, build_job

GPT = Transformer(layers=40, width=6144, heads=48, sequence=2048)  # the 18.4 B of Megatron-LM
SMALL = Transformer(layers=3, width=64, heads=8, sequence=16, vocabulary=1000)


def of_phase(graph: Graph, phase: str) -> np.ndarray:
    return graph.phase == PHASES.index(phase)


def kept_in(graph: Graph, layer: str) -> int:
    """Return bytes that a layer allocates and that do not outlive the step."""
    storages = graph.storages
    names = [graph.names[graph.name[row]] for row in storages.first.tolist()]
    own = [name.startswith(layer + ".") for name in names]
    return int(storages.size[np.array(own) & (storages.last < len(graph))].sum())


def gradients(graph: Graph) -> int:
    """Return bytes of storages that outlive the step."""
    return int(graph.storages.size[graph.storages.last == len(graph)].sum())


def test_parameters_of_known_models() -> None:
    """GPT-2 of 124 million (Radford et al. 2019) and GPT-3 (Brown et al. 2020)."""
    assert Transformer(12, 768, 12, 1024).parameters == 124_439_808
    assert GPT.parameters == pytest.approx(18.4e9, rel=0.005)
    assert Transformer(96, 12288, 96, 2048).parameters == pytest.approx(174.6e9, rel=0.001)


@given(st.sampled_from([1, 2, 4, 8]), st.integers(1, 4))
def test_flops_are_those_of_megatron(tensor: int, micro_batch: int) -> None:
    """Narayanan et al. 2021, section 5.1, without recomputation: 72 B s l h^2 (1 + s / (6 h) +
    V / (12 l h)), of which a third is forward; V is padded."""
    graph = transformer_graph(SMALL, micro_batch, tensor)
    b, s, layers, h = micro_batch, SMALL.sequence, SMALL.layers, SMALL.width
    vocabulary = SMALL.padded_vocabulary(tensor)
    whole = 72 * b * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (12 * layers * h))
    assert graph.flops.sum() == pytest.approx(whole / tensor)
    assert graph.flops[of_phase(graph, "forward")].sum() == pytest.approx(whole / tensor / 3)


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_activations_are_those_of_korthikanti(tensor: int) -> None:
    """Korthikanti et al. 2022, equation 2: s b h (10 + 24 / t + 5 a s / (h t)) bytes a layer."""
    b, s, h, a = 4, GPT.sequence, GPT.width, GPT.heads
    graph = transformer_graph(GPT, b, tensor)
    expected = s * b * h * (10 + 24 / tensor + 5 * a * s / (h * tensor))
    assert kept_in(graph, "h.7") == expected


@pytest.mark.parametrize("tensor", [1, 4])
def test_gradients_are_as_large_as_the_parameters(tensor: int) -> None:
    graph = transformer_graph(SMALL, 2, tensor)
    assert gradients(graph) == graph.resident["parameters"]
    padding = (SMALL.padded_vocabulary(tensor) - SMALL.vocabulary) * SMALL.width
    whole = 2 * (SMALL.parameters + padding)
    assert graph.resident["parameters"] == pytest.approx(whole / tensor, rel=0.1)
    if tensor == 1:
        assert graph.resident["parameters"] == whole
    assert graph.resident["optimizer"] == 8 * graph.resident["parameters"]


def test_a_layer_is_summed_twice_each_way() -> None:
    """Shoeybi et al. 2019; besides the embedding forward, and the head's input backward."""
    graph = transformer_graph(SMALL, 2, 4)
    sums = graph.resource == RESOURCES.index("communication")
    assert [int((sums & of_phase(graph, phase)).sum()) for phase in ("forward", "backward")] == [
        2 * SMALL.layers + 1,
        2 * SMALL.layers + 1,
    ]
    sizes = {graph.ops[code].bytes_read for code in graph.op[sums].tolist()}
    assert sizes == {2 * 2 * SMALL.sequence * SMALL.width}
    assert graph.groups == ((0, 1, 2, 3),)
    alone = transformer_graph(SMALL, 2, 1)
    assert not (alone.resource == RESOURCES.index("communication")).any()


def test_stages_hand_on_a_part_of_the_activation() -> None:
    """Three stages of four ranks: a quarter of 2 x 16 x 64 numbers passes each of two cuts, and is
    gathered once forward and once backward."""
    graph = transformer_graph(SMALL, 2, 4, stages=3)
    stream = 2 * 2 * SMALL.sequence * SMALL.width
    gathers = [row for row in range(len(graph)) if "all_gather" in graph.ops[graph.op[row]].name]
    found = [(PHASES[graph.phase[row]], graph.names[graph.name[row]]) for row in gathers]
    assert found == [
        ("forward", "h.1.take_over"),
        ("forward", "h.2.take_over"),
        ("backward", "h.1.hand_on"),
        ("backward", "h.0.hand_on"),
    ]
    assert {graph.ops[graph.op[row]].bytes_written for row in gathers} == {stream}
    replica = Replica(graph, np.zeros(len(graph)))
    strategy = Strategy(tensor=4, pipeline=3, cut=("h.1", "h.2"))
    job = build_job(replica, switch(12), strategy)
    sends = [program.size[program.kind == KINDS.index("send")] for program in job.programs]
    assert set(np.concatenate(sends).tolist()) == {stream // 4}
    assert graph.flops.sum() == transformer_graph(SMALL, 2, 4).flops.sum()


def test_ranks_of_their_own_hand_on_all_of_it() -> None:
    whole, cut = transformer_graph(SMALL, 2, 1), transformer_graph(SMALL, 2, 1, stages=3)
    assert fingerprint(whole) == fingerprint(cut)


def test_phases_follow_each_other_in_one_stream() -> None:
    graph = transformer_graph(SMALL, 1)
    assert np.all(np.diff(graph.phase) >= 0)
    assert [graph.predecessors(row).tolist() for row in range(3)] == [[], [0], [1]]
    assert graph.names[graph.name[0]] == "embedding"
    assert graph.names[graph.name[-1]] == "h.2.mlp.up"
    assert peak_memory(graph) > sum(graph.resident.values())


def test_the_vocabulary_is_padded_as_by_megatron() -> None:
    """50,257 tokens: 50,304 rows on one rank, 51,200 on eight."""
    assert [GPT.padded_vocabulary(tensor) for tensor in (1, 8)] == [50_304, 51_200]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 64, 8, 16), "layers must be 1 or more, not 0"),
        ((2, 64, 7, 16), "7 heads do not divide a width of 64"),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Transformer(*sizes)


def test_ranks_that_do_not_divide_the_heads_are_refused() -> None:
    with pytest.raises(InputError, match="tensor=3 ranks do not divide 8 heads; 2 would"):
        transformer_graph(SMALL, 1, 3)
    with pytest.raises(InputError, match="2 stages do not divide 3 layers; 1 would"):
        transformer_graph(SMALL, 1, 1, stages=2)
    with pytest.raises(InputError, match="micro_batch must be 1 or more, not 0"):
        transformer_graph(SMALL, 0)
