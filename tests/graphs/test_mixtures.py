"""Mixtures of experts of other people: published sizes, layers that differ, latent attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, Graph
from paracosm.graphs.transformer.architecture import Transformer, architecture
from paracosm.graphs.transformer.graph import transformer_graph
from paracosm.graphs.transformer.share import Split


@pytest.mark.parametrize(
    ("name", "billions", "active"),
    [
        ("mixtral-8x22b", 141, 39),  # Mistral AI, "Cheaper, Better, Faster, Stronger", 2024
        ("grok-1", 314, 314 / 4 + 5.2),  # x.ai, "Open Release of Grok-1": "25% of the weights"
        ("llama-4-scout", 109, 17),  # Meta, "The Llama 4 herd", 2025, with the vision encoder
        ("llama-4-maverick", 400, 17),
        ("qwen3-30b-a3b", 30.5, 3.3),  # Qwen Team, "Qwen3 Technical Report", 2025
        ("qwen3-235b-a22b", 235, 22),
        ("deepseek-moe-16b", 16.4, 2.8),  # the papers that architectures.yaml names
        ("deepseek-v2-lite", 15.7, 2.4),
        ("deepseek-v2", 236, 21),
        ("deepseek-v3", 671, 37),
    ],
)
def test_published_numbers_of_parameters(name: str, billions: float, active: float) -> None:
    """Within two percent; what a token meets within 12, as some do not count the tables."""
    model = replace(architecture(name), predictions=0)
    assert model.parameters / 1e9 == pytest.approx(billions, rel=0.02)
    assert model.active_parameters / 1e9 == pytest.approx(active, rel=0.12)


def gradients(graph: Graph) -> int:
    return int(graph.storages.size[graph.storages.last == len(graph)].sum())


@pytest.mark.parametrize(
    "name",
    ["deepseek-v2-lite", "deepseek-v3", "llama-4-scout", "llama-4-maverick", "qwen3-30b-a3b"],
)
def test_every_parameter_has_one_gradient_and_six_flops(name: str) -> None:
    """Of each token six flops for each weight that it meets, besides the embedding; the head once
    more for each prediction. Of attention, half of all pairs: two products forward and five
    backward, of keys' width or of values'."""
    model = replace(architecture(name), layers=5, sequence=1024, vocabulary=512)
    graph = transformer_graph(model, 2)
    assert gradients(graph) == 4 * model.parameters
    layers, head = model.layers + model.predictions, model.vocabulary * model.width
    norms = model.norm_parameters * (2 * layers + 1 + 2 * model.predictions)
    norms += layers * (model.latent + model.query_latent)
    weights = model.active_parameters - head - norms + model.predictions * head
    keys = model.head_width + model.rotary_head
    pairs = 2 * model.sequence**2 // 2 * model.heads * layers
    attention = 2 * pairs * (4 * keys + 3 * model.head_width)
    assert graph.flops.sum() == pytest.approx(6 * 2 * 1024 * weights + attention, rel=1e-9)


def places_with(graph: Graph, part: str) -> list[int]:
    names = {graph.names[code] for code in graph.name.tolist()}
    return sorted({int(name.split(".")[1]) for name in names if f".{part}." in f"{name}."})


def test_layers_have_experts_where_the_model_says() -> None:
    """DeepSeek-V3 from its fourth layer on, the prediction's too; Llama 4 Maverick every other."""
    deepseek = transformer_graph(replace(architecture("deepseek-v3"), layers=5, sequence=64), 1)
    assert places_with(deepseek, "experts") == [3, 4, 5]
    assert places_with(deepseek, "prediction") == [5]
    maverick = transformer_graph(replace(architecture("llama-4-maverick"), layers=6), 1)
    assert places_with(maverick, "experts") == [1, 3, 5]
    dense = architecture("llama-4-maverick").of_layer(0)
    assert (dense.experts, dense.shared, dense.inner) == (0, 0, 16384)
    assert dense == architecture("llama-4-maverick").of_layer(2)


def test_chunks_attend_to_themselves() -> None:
    """Three of four layers see a quarter of the pairs; the fourth all."""
    model = replace(architecture("llama-4-scout"), layers=4, sequence=32_768)
    graph = transformer_graph(model, 1)
    core = [graph.names[code].endswith("attention.core") for code in graph.name.tolist()]
    flops = graph.flops[np.array(core) & (graph.phase == PHASES.index("forward"))]
    whole = 2 * 32_768**2 * model.heads * 128
    assert sorted(flops.tolist()) == [whole // 4] * 3 + [whole]
    with pytest.raises(InputError, match="chunks of 8,192 of 32,768: only cp=1 is known"):
        transformer_graph(model, 1, Split(context=2))


SMALL = Transformer(
    *(1, 64, 8, 32, 100),
    gated=True,
    rotary=True,
    rms=True,
    bias=False,
    tied=False,
    fused_qkv=False,
    experts=8,
    active=2,
    recipe="compiled",
)


def exchanged(split: Split, model: Transformer = SMALL) -> dict[tuple[str, str], int]:
    """Return the bytes of each exchange of experts, forward, by place and group."""
    graph = transformer_graph(model, 1, split)
    found = {}
    for row in np.flatnonzero(graph.phase == PHASES.index("forward")).tolist():
        op, name = graph.ops[graph.op[row]], graph.names[graph.name[row]]
        if "experts" in name and op.name.startswith("_c10d"):
            group = op.arguments.rpartition('"group":"')[2].partition('"')[0]
            found[name.rpartition(".")[2], group] = max(op.bytes_read, op.bytes_written)
    return found


def test_ranks_that_share_an_expert_gather_tokens_where_they_arrive() -> None:
    """32 tokens choose two experts; of two ranks that share the layer each sends half of the
    choices. Experts that one rank has whole need no gather; those of four ranks one of four times
    what each has sent."""
    token = 2 * 64
    shared = Split(tensor=2, sequence=True, expert=4)
    assert exchanged(shared) == {
        ("dispatch", "expert"): 32 * token,
        ("gather", "tensor"): 64 * token,
        ("scatter", "tensor"): 64 * token,
        ("combine", "expert"): 32 * token,
    }
    whole = replace(shared, expert_tensor=1)
    assert exchanged(whole) == {
        ("dispatch", "expert"): 32 * token,
        ("combine", "expert"): 32 * token,
    }
    four = exchanged(replace(shared, expert_tensor=4))
    assert four["gather", "expert_tensor"] == 4 * 32 * token
    # Each rank does the same work, whoever shares what.
    flops = {transformer_graph(SMALL, 1, each).flops.sum() for each in (shared, whole)}
    assert len(flops) == 1


def test_shared_experts_compute_beside_exchanges_with_transformer_engine() -> None:
    """What they compute does not wait for the tokens of the others."""
    model = replace(SMALL, shared=1, recipe="transformer-engine")
    graph = transformer_graph(model, 1, Split(expert=4))
    names = [graph.names[code] for code in graph.name.tolist()]
    forward = graph.phase == PHASES.index("forward")
    rows = {
        name: [row for row in np.flatnonzero(forward) if names[row] == f"h.0.{name}"]
        for name in ("experts.dispatch", "mlp.up", "mlp.gelu", "experts.sort", "mlp.down")
    }
    (dispatch,) = rows["experts.dispatch"]
    assert all(dispatch not in graph.predecessors(row) for row in rows["mlp.up"])
    assert rows["mlp.gelu"][0] > dispatch
    assert dispatch in graph.predecessors(rows["experts.sort"][0])
    in_order = transformer_graph(replace(model, recipe="compiled"), 1, Split(expert=4))
    assert in_order.flops.sum() == graph.flops.sum()


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"experts": 0, "active": 0, "dense_layers": 1}, "dense_layers has no effect without"),
        ({"dense_layers": 1}, "dense_layers must be 0 to 0, not 1"),
        ({"experts_every": 0}, "experts_every must be 1 to 1, not 0"),
        ({"rotary_head": 8}, "rotary_head has no effect without latent"),
        ({"chunk": 5}, "chunks of 5 tokens do not divide a sequence of 32; 30 fits"),
    ],
)
def test_sizes_that_cannot_be_are_refused(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(SMALL, **sizes)  # type: ignore[arg-type]
