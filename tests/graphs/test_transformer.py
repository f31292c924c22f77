"""The graph of a transformer against formulas of the papers it is from."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster import switch
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES, RESOURCES, Graph
from paracosm.graphs.summary import fingerprint, peak_memory
from paracosm.graphs.transformer.architecture import Recipe, Transformer, architecture
from paracosm.graphs.transformer.graph import transformer_graph
from paracosm.graphs.transformer.ops import GROUPED
from paracosm.graphs.transformer.share import CONTEXT_FORMS, Split, describe_routing, routed
from paracosm.jobs.job import KINDS
from paracosm.jobs.strategies.build import build_job
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import Replica

GPT = Transformer(layers=40, width=6144, heads=48, sequence=2048)  # the 18.4 B of Megatron-LM
SMALL = Transformer(layers=3, width=64, heads=8, sequence=16, vocabulary=1000)


COMMUNICATION = RESOURCES.index("communication")


def of_phase(graph: Graph, phase: str) -> np.ndarray:
    return graph.phase == PHASES.index(phase)


def kept_in(graph: Graph, layer: str) -> int:
    """Return bytes that a layer's forward pass leaves for its backward pass."""
    storages = graph.storages
    names = [graph.names[graph.name[row]] for row in storages.first.tolist()]
    own = [name.startswith(layer + ".") for name in names]
    forward = graph.phase[storages.first] == PHASES.index("forward")
    left = np.array(own) & forward & (storages.last < len(graph))
    left &= graph.phase[np.minimum(storages.last, len(graph) - 1)] == PHASES.index("backward")
    return int(storages.size[left].sum())


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
    of_state = graph.resident["optimizer"] + graph.resident["master weights"]
    assert of_state == 8 * graph.resident["parameters"]


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


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gpt2", 124_439_808),
        ("gpt2-xl", 1_557_611_200),
        ("mpt-760m", 760_470_528),  # as llm-foundry counts them
        ("mpt-13b", 12_853_954_560),
        ("llama-7b", 6_738_415_616),
        ("llama-8b", 8_030_261_248),
        ("llama3-70b", 70_553_706_496),
        ("llama-405b", 405_853_388_800),
        ("mixtral-8x7b", 46_702_792_704),
        ("mixtral-8x22b", 140_620_634_112),
    ],
)
def test_architectures_have_the_parameters_that_were_published(name: str, parameters: int) -> None:
    """As their checkpoints count them."""
    assert architecture(name).parameters == parameters


@pytest.mark.parametrize("name", ["opt-125m", "llama-8b", "mixtral-8x7b"])
@pytest.mark.parametrize("recipe", ["compiled", "eager"])
def test_every_parameter_has_one_gradient(name: str, recipe: Recipe) -> None:
    """In single precision, and six flops for each and each token but the tables', besides those of
    attention: 7 products of s x s x d by half, of which 2 are forward."""
    model = replace(architecture(name), layers=2, recipe=recipe)
    graph = transformer_graph(model, 1)
    assert gradients(graph) == 4 * model.parameters
    s = model.sequence
    head = model.vocabulary * model.width
    inner = (
        model.expert_parameters - ((model.matrices - 1) * model.inner + model.width) * model.bias
    )
    layer = (
        (model.attention_parameters - (4 * model.width if model.bias else 0))
        + (model.active + model.shared if model.experts else 1) * inner
        + model.experts * model.width
    )
    expected = 6 * s * (2 * layer + head) + 2 * 7 * s * s * model.width
    assert graph.flops.sum() == pytest.approx(expected, rel=1e-9)


def test_along_the_sequence_ranks_keep_a_part_of_all() -> None:
    """Korthikanti et al. 2022, equation 4: s b h (34 + 5 a s / h) / t bytes a layer; and two
    gathers and two reduce-scatters each way, with two gathers more backward."""
    b, t = 2, 4
    graph = transformer_graph(GPT, b, Split(tensor=t, sequence=True))
    s, h, a = GPT.sequence, GPT.width, GPT.heads
    assert kept_in(graph, "h.7") == s * b * h * (34 + 5 * a * s / h) / t
    names = [graph.names[code] for code in graph.name.tolist()]
    met = [
        (PHASES[graph.phase[row]], graph.ops[graph.op[row]].name.split(".")[1])
        for row in range(len(graph))
        if names[row].startswith("h.7.") and graph.resource[row] == COMMUNICATION
    ]
    assert Counter(met) == {
        ("forward", "all_gather_into_tensor"): 2,
        ("forward", "reduce_scatter_tensor"): 2,
        ("backward", "all_gather_into_tensor"): 4,
        ("backward", "reduce_scatter_tensor"): 2,
    }


LLAMA = replace(architecture("llama-8b"), layers=2, sequence=64, width=64, heads=8, kv_heads=4)


@pytest.mark.parametrize("context", [2, 4])
def test_a_ring_shares_the_work_and_passes_keys_on(context: int) -> None:
    """Flops are those of one rank over `context`, and each rank's keys and values, of 2 bytes, pass
    context - 1 times forward; backward with their gradients, and those once more."""
    whole, part = transformer_graph(LLAMA, 3), transformer_graph(LLAMA, 3, Split(context=context))
    assert part.flops.sum() * context == whole.flops.sum()
    keys = 2 * 2 * 3 * 64 * 4 * 8 // context
    sent = np.where(part.resource == COMMUNICATION, part.bytes_read, 0)
    assert sent[of_phase(part, "forward")].sum() == 2 * (context - 1) * keys
    assert sent[of_phase(part, "backward")].sum() == 2 * ((context - 1) * 2 + 1) * keys
    assert gradients(part) == gradients(whole)


def test_keys_come_beside_the_attention_to_those_that_are_there() -> None:
    """Of three: pass, attend, pass beside attend, attend; then pieces are merged."""
    graph = transformer_graph(replace(LLAMA, sequence=60), 1, Split(context=3))
    rows = [
        row
        for row in range(len(graph))
        if graph.names[graph.name[row]] == "h.1.attention.core" and graph.phase[row] == 0
    ]
    pass_1, core_0, pass_2, core_1, core_2, *merges = rows
    assert len(merges) == 3
    assert pass_1 not in graph.predecessors(core_0)
    assert set(graph.predecessors(pass_2)) == {core_0, pass_1}
    assert set(graph.predecessors(core_1)) == {core_0, pass_1}
    assert set(graph.predecessors(core_2)) == {core_1, pass_2}


def exchanges(split: Split, recipe: Recipe, phase: str) -> list[tuple[str, int, bool]]:
    """Return what is exchanged in a layer of two: kinds, bytes, whether attention waits for it."""
    graph = transformer_graph(replace(LLAMA, recipe=recipe), 1, split)
    cores = [
        row
        for row in np.flatnonzero(of_phase(graph, phase)).tolist()
        if graph.names[graph.name[row]] == "h.1.attention.core"
    ]
    found = []
    for row in cores:
        if graph.resource[row] == COMMUNICATION:
            op = graph.ops[graph.op[row]]
            later = [core for core in cores if core > row and graph.resource[core] != COMMUNICATION]
            waits = bool(later) and row in graph.predecessors(later[0])
            found.append((op.name.split(".")[1], max(op.bytes_read, op.bytes_written), waits))
    return found


WHOLE = 2 * 2 * 64 * 4 * 8
"""Bytes of keys and values of all 64 tokens: 4 heads of 8 numbers of 2 bytes."""


@pytest.mark.parametrize(
    ("form", "recipe", "forward", "backward"),
    [
        (
            "gather",
            "compiled",
            [("all_gather_into_tensor", WHOLE, True)],
            [("all_gather_into_tensor", WHOLE, True), ("reduce_scatter_tensor", WHOLE, False)],
        ),
        (  # queries are as large as keys and values together; a half of each is on a rank
            "ulysses",
            "compiled",
            [("all_to_all_single", WHOLE, True), ("all_to_all_single", WHOLE // 2, False)],
            [("all_to_all_single", WHOLE // 2, True), ("all_to_all_single", WHOLE, False)],
        ),
        (  # twice as many heads of keys; gradients in single precision, once for each piece
            "pieces",
            "compiled",
            [("all_gather_into_tensor", 2 * WHOLE, True)],
            [
                ("all_gather_into_tensor", 2 * WHOLE, True),
                ("permute_tensor", 2 * WHOLE, True),
                ("permute_tensor", 2 * WHOLE, True),
            ],
        ),
        (
            "pieces-ring",
            "eager",
            [("permute_tensor", WHOLE, False)],
            [
                ("permute_tensor", WHOLE, False),
                ("permute_tensor", 2 * WHOLE, False),
                ("permute_tensor", 2 * WHOLE, True),
            ],
        ),
    ],
)
def test_two_ranks_exchange_keys_and_values_as_the_form_says(
    form: str, recipe: Recipe, forward: list[Any], backward: list[Any]
) -> None:
    split = Split(context=2, context_form=form)
    assert exchanges(split, recipe, "forward") == forward
    assert exchanges(split, recipe, "backward") == backward


@pytest.mark.parametrize("form", CONTEXT_FORMS)
def test_each_form_does_its_part_of_attention(form: str) -> None:
    whole, part = (
        transformer_graph(LLAMA, 3, Split(context=context, context_form=form)) for context in (1, 4)
    )
    assert part.flops.sum() * 4 == whole.flops.sum()
    assert gradients(part) == gradients(whole)


def test_pieces_are_merged_in_single_precision() -> None:
    """Of an output of 64 / 4 tokens with 64 numbers: compiled, 10 bytes a number and merge, the
    last of which writes 2 instead of 4; op by op 38, and 6 for each cast, of 4 pieces and back."""
    numbers = 64 // 4 * 64
    recipes: tuple[Recipe, Recipe] = ("compiled", "eager")
    for recipe, expected in zip(recipes, (3 * 10 - 2, 3 * 32 + 5 * 6), strict=True):
        split = Split(context=4, context_form="pieces")
        graph = transformer_graph(replace(LLAMA, recipe=recipe, layers=1), 1, split)
        moved = sum(
            graph.ops[graph.op[row]].bytes_read + graph.ops[graph.op[row]].bytes_written
            for row in np.flatnonzero(of_phase(graph, "forward")).tolist()
            if graph.ops[graph.op[row]].name in ("context.merge", "context.cast")
        )
        assert moved == expected * numbers


MIXTRAL = replace(
    architecture("mixtral-8x7b"),
    layers=1,
    sequence=32,
    width=64,
    heads=8,
    kv_heads=8,
    inner=96,
    experts=4,
)


def experts_flops(graph: Graph) -> int:
    return int(graph.flops[[op.name == GROUPED for op in np.array(graph.ops)[graph.op]]].sum())


@pytest.mark.parametrize(
    ("routing", "capacity", "most", "sent"),
    [
        ("uniform", 0.0, 1 / 2, 1.0),
        ("5+1+1+1", 0.0, 6 / 8, 1.0),
        ("5+1+1+1", 1.5, 4 / 8, 6 / 8),  # an expert takes 3 of 8 at most: 2 are dropped
    ],
)
def test_the_busiest_rank_of_experts_counts(
    routing: str, capacity: float, most: float, sent: float
) -> None:
    """Two ranks of two experts and 2 x 32 tokens each, that choose two: 128 choices each."""
    split = Split(expert=2, routing=routing, capacity=capacity)
    graph = transformer_graph(MIXTRAL, 2, split)
    done = 256 * most
    assert experts_flops(graph) == 3 * 3 * 2 * done * 64 * 96
    exchanges = graph.resource == COMMUNICATION
    assert set(graph.bytes_read[exchanges].tolist()) == {2 * 64 * max(128 * sent, done)}
    assert exchanges.sum() == 4
    whole = transformer_graph(MIXTRAL, 2)
    lost = whole.flops.sum() - graph.flops.sum()
    assert lost == experts_flops(whole) - experts_flops(graph)


def test_drawn_loads_come_with_the_seed() -> None:
    def busiest(routing: str, seed: int, layer: int = 0) -> float:
        return routed(MIXTRAL, Split(expert=4, routing=routing, seed=seed), layer)[0]

    weights = np.array([1, 2**-1.5, 3**-1.5, 4**-1.5])
    assert busiest("zipf(1.5)", 0) == pytest.approx(1 / weights.sum())
    assert busiest("dirichlet(1)", 1) == busiest("dirichlet(1)", 1)
    assert len({busiest("dirichlet(1)", seed, layer) for seed in (0, 1) for layer in (0, 1)}) == 4
    assert busiest("dirichlet(90)", 0) < busiest("dirichlet(0.1)", 0) <= 1


def test_float8_takes_a_byte_a_number_and_casts() -> None:
    plain = transformer_graph(LLAMA, 1)
    cast = transformer_graph(LLAMA, 1, Split(float8="tensorwise"))
    names = Counter(op.name for op in np.array(cast.ops)[cast.op])
    assert names["aten._scaled_mm.default"] == 2 * 7 * 3  # layers, matrices, products of each
    assert names["float8.cast"] == 2 * (4 + 7 + 4)  # inputs, gradients, inputs once more
    assert names["float8.transpose"] == 2 * 7  # weights
    assert cast.flops.sum() == plain.flops.sum()
    assert gradients(cast) == gradients(plain)


def bytes_cast(scaling: str) -> int:
    graph = transformer_graph(LLAMA, 1, Split(float8=scaling))
    ops = np.array(graph.ops)[graph.op]
    return sum(op.bytes_read + op.bytes_written for op in ops if op.name == "float8.cast")


def test_what_casts_read_and_write_depends_on_how_numbers_are_scaled() -> None:
    """By hand, in bytes of two a number. Inputs of a layer: those of norms, twice, of the output
    projection, and the perceptron's inner one. Gradients of outputs: of all seven maps."""
    tokens, width, inner = 64, LLAMA.width, LLAMA.inner
    keys = LLAMA.kv_heads * LLAMA.head_width
    norms, others = 2 * 2 * tokens * width, 2 * tokens * (width + inner)
    gradients_ = 2 * tokens * (width + 2 * keys + width + 2 * inner + width)
    layers = LLAMA.layers
    # Read to find the largest, read, written in a byte; for the gradient of weights once more.
    tensorwise = 2 * 2.5 * (norms + others) + 3 * gradients_
    assert bytes_cast("tensorwise") == layers * tensorwise
    # By rows: read, written in a byte; by columns copied first. Weights as inputs are.
    weights = 2 * width * (width + 2 * keys + width + 3 * inner)
    rowwise = (1.5 + 3.5) * (norms + others + weights) + 4 * gradients_
    assert bytes_cast("rowwise") == layers * rowwise
    # Read once, written in both layouts; what norms make, in place of what they would write.
    assert bytes_cast("blockwise") == layers * 2 * (norms + others + gradients_)
    assert bytes_cast("delayed") == layers * 2 * (others + gradients_)


def test_experts_get_their_parts_of_a_sequence_from_each_rank_that_shares_a_layer() -> None:
    """Two ranks that share layers, two that share experts, 2 x 32 tokens that choose two of them:
    each sends half of 128 choices; where they arrive all are gathered."""
    token = 2 * MIXTRAL.width
    whole = transformer_graph(MIXTRAL, 2, Split(tensor=2, expert=2))
    parts = transformer_graph(MIXTRAL, 2, Split(tensor=2, sequence=True, expert=2))

    def sizes(graph: Graph, place: str, phase: int = 0) -> list[int]:
        rows = [
            row
            for row in range(len(graph))
            if graph.names[graph.name[row]] == f"h.0.{place}" and graph.phase[row] == phase
        ]
        ops = [graph.ops[graph.op[row]] for row in rows]
        return [max(op.bytes_read, op.bytes_written) for op in ops if "_c10d" in op.name]

    assert sizes(whole, "experts.dispatch") == [128 * token]
    assert sizes(whole, "experts.gather") == []
    for phase in (0, 1):
        assert sizes(parts, "experts.dispatch", phase) == [64 * token]
        assert sizes(parts, "experts.combine", phase) == [64 * token]
        assert sizes(parts, "experts.gather", phase) == [128 * token]
        assert sizes(parts, "experts.scatter", phase) == [128 * token]
    assert experts_flops(parts) == experts_flops(whole)


def test_what_the_optimizer_keeps_is_moved_and_held() -> None:
    """By hand: weights, gradients and two moments of 2 bytes, with a norm and a clipping, move 20
    bytes a parameter; in single precision beside weights of 2 bytes, 46."""
    single, half = (
        transformer_graph(LLAMA, 1, Split(states=states)) for states in ("float32", "bfloat16")
    )

    def moved(graph: Graph) -> int:
        return sum(
            (op.bytes_read + op.bytes_written) * count
            for op, count in zip(graph.ops, graph.count(), strict=True)
            if op.name == "pytorch.adamw"
        )

    assert moved(half) / moved(single) == 20 / 46
    assert half.resident["parameters"] == single.resident["parameters"]
    assert half.resident["optimizer"] * 2 == single.resident["optimizer"]
    assert single.resident["master weights"] == half.resident["optimizer"]
    assert "master weights" not in half.resident
    assert half.flops.sum() == single.flops.sum()
    assert not [op for op in half.ops if op.name == "aten._to_copy.default"]
    with pytest.raises(InputError, match="states=bfloat16: recipe megatron keeps float32"):
        transformer_graph(SMALL, 1, Split(states="bfloat16"))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (Split(context=16, context_form="ulysses"), "cp=16 does not divide 8 heads of a rank"),
        (Split(context=3), "cp=3: a sequence of 64 tokens has no 6 equal parts; 66 has"),
        (Split(expert=2), "ep=2, but the model has no experts"),
        (Split(tensor=3), "tensor=3 ranks do not divide 8 heads; 2 would"),
    ],
)
def test_splits_that_do_not_fit_are_refused(split: Split, message: str) -> None:
    with pytest.raises(InputError, match=message):
        transformer_graph(LLAMA, 1, split)


@pytest.mark.parametrize(
    ("routing", "message"),
    [
        ("zipf", "write uniform, zipf"),
        ("often", "write uniform, zipf"),
        ("zipf(0)", "must be above 0"),
        ("1+2", "2 loads for 4 experts"),
        ("1+a", "loads are numbers"),
    ],
)
def test_routing_that_cannot_be_read_is_refused(routing: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        transformer_graph(MIXTRAL, 1, Split(expert=2, routing=routing))
    with pytest.raises(InputError, match="has 4 experts: ep=2 fits"):
        transformer_graph(MIXTRAL, 1, Split(expert=3))


def test_unknown_architectures_are_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r'"lama-8b".*llama-8b'):
        architecture("lama-8b")
    assert architecture("llama-8b", 4096).sequence == 4096
    with pytest.raises(InputError, match="recipe megatron is of GPT alone"):
        replace(LLAMA, recipe="megatron")


def test_routing_is_described() -> None:
    """As above: 4 of 8 where an even share of two ranks is 4, and 2 of 8 are dropped."""
    split = Split(expert=2, routing="5+1+1+1", capacity=1.5)
    told = describe_routing(MIXTRAL, split)
    assert "busiest of 2 ranks has 1.00 times the mean to do, 25.0% of tokens' choices" in told


def test_heads_may_be_wider_than_their_part_of_the_stream() -> None:
    """Four projections of 64 x (8 heads of 16), and the perceptron, in place of 64 x 64."""
    wide = replace(SMALL, head=16, recipe="compiled")
    usual = replace(wide, head=0)
    assert wide.attention_parameters == 4 * 64 * 128 + (3 * 128 + 64)
    more = 6 * 3 * 4 * 64 * (128 - 64) * 2 * 16  # of three layers, for 2 x 16 tokens
    attention = 3 * 3.5 * 2 * 2 * 16**2 * (128 - 64)
    difference = transformer_graph(wide, 2).flops.sum() - transformer_graph(usual, 2).flops.sum()
    assert difference == more + attention


def test_adapters_alone_are_trained() -> None:
    """Hu et al., "LoRA", 2021, section 4.1: r (inputs + outputs) weights for each map; of frozen
    ones no gradients of weights, which are a third of a step's products."""
    rank, tokens = 4, 2 * LLAMA.sequence
    tuned, whole = (transformer_graph(replace(LLAMA, adapter=r), 2) for r in (rank, 0))
    keys = LLAMA.kv_heads * LLAMA.head_width
    maps = [(64, 64), (64, keys), (64, keys), (64, 64)]
    adapters = LLAMA.layers * sum(rank * (inputs + outputs) for inputs, outputs in maps)
    of_layer = LLAMA.attention_parameters + LLAMA.expert_parameters
    linear = LLAMA.layers * of_layer + LLAMA.vocabulary * LLAMA.width
    assert tuned.flops.sum() == whole.flops.sum() - 2 * tokens * linear + 6 * tokens * adapters
    assert tuned.resident == {
        "parameters": whole.resident["parameters"] + 2 * adapters,
        "master weights": 4 * adapters,
        "optimizer": 8 * adapters,
    }
    assert peak_memory(tuned) < peak_memory(whole)
    updates = of_phase(tuned, "optimizer")
    assert tuned.bytes_read[updates].sum() == 28 * adapters


def test_adapters_of_ranks_that_share_layers_have_collectives_of_their_own() -> None:
    """By hand, of 4 ranks, 128 tokens of width 64 and rank 8: queries, keys and values are gathered
    in half precision, and not again backward; A's 8 numbers a token are gathered or summed; the
    output's adapter exchanges a rank's 16 columns of all tokens. Nothing overlaps the sums backward
    with Transformer Engine, since frozen weights have no gradients."""
    split = Split(tensor=4, sequence=True, overlap=True, float8="delayed")
    model = replace(LLAMA, layers=1, recipe="transformer-engine", fused_qkv=True, adapter=8)
    graph = transformer_graph(model, 2, split)
    tokens, stream = 2 * 64, 2 * 2 * 64 * 64
    low, columns = 2 * tokens * 8, stream // 4
    sent = [
        (graph.ops[graph.op[row]].name.split(".")[1], max(read, written))
        for row, (read, written) in enumerate(
            zip(graph.bytes_read.tolist(), graph.bytes_written.tolist(), strict=True)
        )
        if graph.resource[row] == COMMUNICATION and "attention" in graph.names[graph.name[row]]
    ]
    gather, scatter = "all_gather_into_tensor", "reduce_scatter_tensor"
    assert sent == [
        *[(gather, stream), (gather, low), (scatter, stream)],
        *[("all_reduce", low), ("all_to_all_single", columns)],
        *[(gather, stream // 2), ("all_to_all_single", columns), ("all_reduce", low)],
        *[("all_reduce", low), (scatter, stream)],
    ]


def test_a_forward_pass_alone_has_no_updates() -> None:
    whole, forward = transformer_graph(LLAMA, 2), transformer_graph(LLAMA, 2, train=False)
    assert forward.flops.sum() == whole.flops[of_phase(whole, "forward")].sum()
    assert set(forward.phase.tolist()) == {PHASES.index("forward")}
    assert forward.resident == {"parameters": whole.resident["parameters"], "optimizer": 0}


def test_an_encoder_attends_to_all_and_predicts_what_is_masked() -> None:
    """Twice the attention of a decoder, and 15 % of the head's products (Devlin et al. 2018)."""
    bert, decoder = (
        replace(SMALL, recipe="compiled", causal=causal, scored=scored, sequence=20)
        for causal, scored in ((False, 0.15), (True, 1.0))
    )
    attention = 3 * 3.5 * 2 * 4 * 20**2 * 64 / 2  # of three layers, two examples, under a mask
    head = 6 * 40 * 1000 * 64
    graphs = transformer_graph(bert, 2), transformer_graph(decoder, 2)
    with pytest.raises(InputError, match="an encoder takes cp=1"):
        transformer_graph(bert, 2, Split(context=2))
    assert graphs[0].flops.sum() == graphs[1].flops.sum() + attention - 0.85 * head
