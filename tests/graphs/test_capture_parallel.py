"""Rank 0 of many: collectives counted by hand."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.graphs.graph import PHASES, RESOURCES, Graph
from paracosm.graphs.summary import fingerprint, peak_memory

GATHER, SCATTER = "c10d._allgather_base_.default", "c10d._reduce_scatter_base_.default"
REDUCE = "_c10d_functional.all_reduce.default"
WEIGHT = 4 * 8 * 16  # bytes of one of the four matrices of `two_layers`


def collectives(graph: Graph) -> list[tuple[str, str, str, int, int]]:
    """Return phase, module, op, bytes read and written of every collective."""
    return [
        (
            PHASES[graph.phase[row]],
            graph.names[graph.name[row]],
            op.name,
            op.bytes_read,
            op.bytes_written,
        )
        for row in range(len(graph))
        if RESOURCES[graph.resource[row]] == "communication"
        for op in [graph.ops[graph.op[row]]]
    ]


def test_sharded_parameters_are_gathered_twice_and_gradients_scattered_once() -> None:
    graph = capture(CaptureOptions("tiny_models:two_layers", batch=4, ranks=4, parallel="fsdp2"))
    block, part = 2 * WEIGHT, 2 * WEIGHT // 4
    gather = (GATHER, part, block)
    # The next block is fetched while one computes; the root has no parameters of its own.
    assert collectives(graph) == [
        ("forward", "blocks.0", *gather),
        ("forward", "blocks.1", *gather),
        ("backward", "blocks.1", *gather),
        ("backward", "blocks.0", *gather),
        ("backward", "blocks.1", SCATTER, block, part),
        ("backward", "blocks.0", SCATTER, block, part),
    ]
    assert graph.groups == ((0, 1, 2, 3),)
    assert graph.resident["parameters"] == WEIGHT  # a quarter of the four matrices


def test_split_layers_are_summed_once_each_way() -> None:
    graph = capture(CaptureOptions("tiny_models:two_layers", batch=4, ranks=4, parallel="tensor"))
    activations = 4 * 4 * 8
    found = collectives(graph)
    # Outputs of both blocks; the gradient of the second block's input, the first one's has none.
    assert [(phase, *rest) for phase, _, *rest in found] == [
        ("forward", REDUCE, activations, activations),
        ("forward", REDUCE, activations, activations),
        ("backward", REDUCE, activations, activations),
    ]
    assert [name for phase, name, *_ in found if phase == "forward"] == ["blocks.0", "blocks.1"]
    assert graph.resident["parameters"] == WEIGHT


def test_a_wait_is_no_second_collective_and_its_user_waits() -> None:
    graph = capture(CaptureOptions("tiny_models:two_layers", batch=4, ranks=4, parallel="tensor"))
    names = [graph.ops[op].name for op in graph.op]
    reduce, wait = names.index(REDUCE), names.index("_c10d_functional.wait_tensor.default")
    assert RESOURCES[graph.resource[wait]] == "host"
    product = names.index("aten.mm.default", wait)
    assert reduce in graph.predecessors(product)


def test_layers_that_share_an_input_have_its_gradient_summed_once() -> None:
    """Two layers of llama: queries, keys and values share one, so do both halves of a gate."""
    options = CaptureOptions("tiny_models:llama", batch=1, ranks=2, parallel="tensor")
    found = collectives(capture(options))
    activations = 4 * 8 * 32
    assert [(phase, *rest) for phase, _, *rest in found] == [
        (phase, REDUCE, activations, activations)
        for phase in ("forward", "backward")
        for _ in range(4)
    ]


@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_split_and_sharded_layers_have_groups_of_their_own() -> None:
    graph = capture(
        CaptureOptions(
            "tiny_models:two_layers",
            batch=4,
            ranks=16,
            parallel="fsdp2+tensor",
            tensor_ranks=4,
            optimizer="adam",
            foreach=True,
        )
    )
    groups = {
        graph.ops[op].name: graph.groups[group]
        for op, group in zip(graph.op, graph.group, strict=True)
        if group >= 0
    }
    assert groups == {GATHER: (0, 4, 8, 12), SCATTER: (0, 4, 8, 12), REDUCE: (0, 1, 2, 3)}
    assert graph.resident["parameters"] == WEIGHT // 4


def test_rank_0_of_1024_gathers_a_layer_at_a_time() -> None:
    ranks = 1024
    graph = capture(CaptureOptions("tiny_models:gpt", batch=1, ranks=ranks, parallel="fsdp2"))
    names = [name for _, _, name, _, _ in collectives(graph)]
    # Forward: the root and two layers. Backward: the layers, for the root keeps what it gathered.
    assert (names.count(GATHER), names.count(SCATTER)) == (5, 3)
    assert graph.groups == (tuple(range(ranks)),)


def test_gathered_parameters_are_freed_again() -> None:
    """Two blocks are never there whole at a time for longer than the next one is fetched."""
    options = {"batch": 1, "shape": (8,), "ranks": 64}
    sharded = capture(CaptureOptions("gpt-small", parallel="fsdp2", **options))  # type: ignore[arg-type]
    whole = capture(CaptureOptions("gpt-small", batch=1, shape=(8,)))
    layer = 4 * 12 * 384 * 384
    buffers = sharded.storages.size > layer
    held = sharded.storages.last[buffers] - sharded.storages.first[buffers]
    assert sum(held < len(sharded) / 2) > 12  # six layers, gathered twice
    assert peak_memory(sharded) < 2.5 * peak_memory(whole)


def test_captures_leave_no_process_group_behind() -> None:
    options = CaptureOptions("tiny_models:two_layers", batch=4, ranks=4, parallel="fsdp2")
    first = fingerprint(capture(options))
    assert not dist.is_initialized()
    with pytest.raises(InputError):
        capture(CaptureOptions("tiny_models:failing", batch=4, ranks=4, parallel="fsdp2"))
    assert not dist.is_initialized()
    assert fingerprint(capture(options)) == first


def test_a_process_that_is_a_rank_is_left_alone() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())  # type: ignore[no-untyped-call]
    try:
        with pytest.raises(InputError, match="this process is a rank already"):
            capture(CaptureOptions("mlp", ranks=2, parallel="fsdp2"))
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:FSDP2-wrapped module")
def test_rank_0_of_1024_with_70_billion_parameters() -> None:
    graph = capture(
        CaptureOptions(
            "llama-70b",
            shape=(128,),
            dtype="bfloat16",
            ranks=1024,
            parallel="fsdp2+tensor",
            tensor_ranks=8,
        )
    )
    names = [name for _, _, name, _, _ in collectives(graph)]
    layers = 80
    assert names.count(REDUCE) == 4 * layers
    assert (names.count(GATHER), names.count(SCATTER)) == (2 * layers + 1, layers + 1)
    assert set(graph.groups) == {tuple(range(8)), tuple(range(0, 1024, 8))}
