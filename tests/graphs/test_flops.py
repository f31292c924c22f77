"""Attention is counted in one way, whoever counts it: by hand, and captured beside written down."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu

from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.capture.calls import Effects, flops_of
from paracosm.graphs.capture.record import record
from paracosm.graphs.capture.step import TrainingStep
from paracosm.graphs.file import load_graph, save_graph
from paracosm.graphs.flops import CALLS, call_flops, counted_in_half
from paracosm.graphs.graph import PHASES, Graph, Op, TensorArgument, encode_arguments
from paracosm.graphs.transformer.architecture import Transformer
from paracosm.graphs.transformer.graph import transformer_graph
from paracosm.graphs.transformer.ops import flash
from paracosm.models import Workload
from paracosm.profiling.datasheets import class_of

BATCH, HEADS, TOKENS, HEAD = 2, 4, 8, 16
PRODUCT = 2 * BATCH * HEADS * TOKENS * TOKENS * HEAD
"""Operations of one product of all queries with all keys."""


@pytest.mark.parametrize("name", CALLS)
def test_arguments_are_where_pytorch_has_them(name: str) -> None:
    packet, _, overload = name.partition(".")
    if not hasattr(torch.ops.aten, packet):
        pytest.skip("of another version of PyTorch")
    schema = getattr(getattr(torch.ops.aten, packet), overload or "default")._schema
    names = [argument.name for argument in schema.arguments]
    call = CALLS[name]
    assert names[call.query : call.query + 3] == ["query", "key", "value"]
    assert names[call.causal] in ("is_causal", "custom_mask_type")
    assert call.backward == name.endswith("_backward")
    if call.bounds:
        assert names[call.bounds] in ("cum_seq_k", "cu_seqlens_k")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("kv_heads", [HEADS, 1])
def test_half_of_causal_attention_counts(name: str, causal: bool, kv_heads: int) -> None:
    """Two products forward and five backward, of every query with every key."""
    packet, _, overload = name.partition(".")
    if not hasattr(torch.ops.aten, packet):
        pytest.skip("of another version of PyTorch")
    function = getattr(getattr(torch.ops.aten, packet), overload or "default")
    call, args = CALLS[name], [None] * 20
    args[: len(function._schema.arguments)] = [0] * len(function._schema.arguments)
    order = (0, 2, 1, 3) if call.keys == -3 else (0, 1, 2, 3)
    query = torch.empty(BATCH, HEADS, TOKENS, HEAD, device="meta").permute(order)
    keys = torch.empty(BATCH, kv_heads, TOKENS, HEAD, device="meta").permute(order)
    args[call.query : call.query + 3] = [query, keys, keys]
    args[call.causal] = causal
    found = flops_of(function, args, {}, None, Effects([], [], []))
    assert found == (5 if call.backward else 2) * PRODUCT // (2 if causal else 1)


def test_packed_sequences_see_only_their_own_keys() -> None:
    """Three sequences of eight tokens, one after the other: three times 8 x 8, not 24 x 24."""
    shapes = [(24, HEADS, HEAD)] * 3 + [(4,), (4,)]
    values = [None] * 8 + [True]
    once = 2 * 3 * HEADS * 8 * 8 * HEAD
    assert call_flops("aten::_flash_attention_forward", shapes, values) == 2 * once // 2


class Attention(nn.Module):
    def __init__(self, causal: bool, kv_heads: int, masked: bool = False) -> None:
        super().__init__()
        self.causal, self.kv_heads, self.masked = causal, kv_heads, masked
        self.q = nn.Linear(HEADS * HEAD, HEADS * HEAD, bias=False)
        self.k = nn.Linear(HEADS * HEAD, kv_heads * HEAD, bias=False)
        self.v = nn.Linear(HEADS * HEAD, kv_heads * HEAD, bias=False)
        self.out = nn.Linear(HEADS * HEAD, HEADS * HEAD, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for layer in (self.q, self.k, self.v)
        )
        mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).tril() if self.masked else None
        y = scaled_dot_product_attention(
            *(q, k, v, mask),
            is_causal=self.causal,
            enable_gqa=self.kv_heads < HEADS,
        )
        return self.out(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A layer of a Llama: grouped queries, a gated perceptron."""

    def __init__(self, kv_heads: int, inner: int) -> None:
        super().__init__()
        width = HEADS * HEAD
        self.attention = Attention(True, kv_heads)
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(x)
        return x + self.down(silu(self.gate(x)) * self.up(x))


class Decoder(nn.Module):
    def __init__(self, kv_heads: int, inner: int, vocabulary: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, HEADS * HEAD)
        self.layers = nn.Sequential(*(Layer(kv_heads, inner) for _ in range(2)))
        self.head = nn.Linear(HEADS * HEAD, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.table(tokens)))


def captured(module: nn.Module, *inputs: Tensor, loss: object = torch.mean) -> Graph:
    return record(TrainingStep(Workload(module, inputs, loss, BATCH), None))  # type: ignore[arg-type]


def by_class(graph: Graph) -> dict[tuple[str, str], int]:
    """Return the flops of products and attention, forward and backward."""
    found: dict[tuple[str, str], int] = {}
    for code, phase in zip(graph.op.tolist(), graph.phase.tolist(), strict=True):
        op = graph.ops[code]
        if (kind := class_of(op.name)) in ("product", "attention"):
            key = kind, PHASES[phase]
            found[key] = found.get(key, 0) + op.flops
    return found


@pytest.mark.parametrize("kv_heads", [HEADS, 2, 1])
def test_a_captured_and_a_written_model_have_equal_flops_by_class(kv_heads: int) -> None:
    inner, vocabulary = 96, 50
    tokens = torch.zeros(BATCH, TOKENS, dtype=torch.int64)
    graph = captured(
        *(Decoder(kv_heads, inner, vocabulary), tokens),
        loss=lambda logits: cross_entropy(logits.flatten(0, 1), tokens.flatten()),
    )
    model = Transformer(
        *(2, HEADS * HEAD, HEADS, TOKENS, vocabulary, kv_heads, inner),
        gated=True,
        rotary=True,
        rms=True,
        bias=False,
        tied=False,
        fused_qkv=False,
        recipe="eager",
    )
    assert by_class(graph) == by_class(transformer_graph(model, BATCH))
    assert by_class(graph)["attention", "forward"] == 2 * 2 * PRODUCT // 2
    assert by_class(graph)["attention", "backward"] == 2 * 5 * PRODUCT // 2


@pytest.mark.parametrize("kv_heads", [HEADS, 1])
@pytest.mark.parametrize(
    ("causal", "masked", "part"), [(True, False, 2), (False, False, 1), (False, True, 1)]
)
def test_a_mask_that_is_a_tensor_is_added_to_all_scores(
    kv_heads: int, causal: bool, masked: bool, part: int
) -> None:
    x = torch.zeros(BATCH, TOKENS, HEADS * HEAD)
    found = by_class(captured(Attention(causal, kv_heads, masked), x))
    if ("attention", "forward") not in found:  # plain products of matrices, which are whole
        assert masked
        return
    assert found["attention", "forward"] == 2 * PRODUCT // part
    assert found["attention", "backward"] == 5 * PRODUCT // part


@given(
    batch=st.integers(1, 4),
    heads=st.sampled_from([2, 4]),
    kv_heads=st.sampled_from([1, 2]),
    tokens=st.integers(1, 64),
    width=st.sampled_from([8, 64]),
    backward=st.booleans(),
)
def test_written_down_attention_is_that_of_a_call(
    batch: int, heads: int, kv_heads: int, tokens: int, width: int, backward: bool
) -> None:
    op = flash(batch, heads, kv_heads, tokens, tokens, width, backward=backward)
    query, keys = (batch, heads, tokens, width), (batch, kv_heads, tokens, width)
    name = "_scaled_dot_product_flash_attention_for_cpu" + ("_backward" if backward else "")
    shapes = ([query] if backward else []) + [query, keys, keys]
    assert op.flops == call_flops(name, shapes, [], {"is_causal": True})
    products = 5 if backward else 2
    assert op.flops == products * batch * heads * tokens**2 * width


CALL = [TensorArgument((BATCH, HEADS, TOKENS, HEAD), "float32")] * 3
FUSED = "aten._scaled_dot_product_flash_attention_for_cpu.default"


def test_earlier_versions_counts_are_read_in_half(tmp_path: Path) -> None:
    """They counted causal attention in full; what has no mask, or is in half, stays what it is."""
    causal, plain = encode_arguments([*CALL, 0.0, True], {}), encode_arguments(CALL, {})
    old, new = Op(FUSED, causal, 2 * PRODUCT), Op(FUSED, causal, PRODUCT)
    assert counted_in_half(old) == counted_in_half(new) == new
    assert counted_in_half(Op(FUSED, plain, 2 * PRODUCT)).flops == 2 * PRODUCT
    assert counted_in_half(Op(FUSED, "not JSON", 7)).flops == 7
    file = tmp_path / "old.graph"
    save_graph(build_graph([Node(0, old, phase="forward")]), file)
    assert load_graph(file).ops == (new,)
