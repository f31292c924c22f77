"""Tensor-parallel ranks that the model cannot be split between, and what fits."""

from __future__ import annotations

import numpy as np
import pytest
from four_ops import layers, replayed

from paracosm.errors import InputError
from paracosm.graphs import Graph
from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.jobs.strategies import Replica
from paracosm.jobs.strategies.layers import check_divides


@pytest.fixture(scope="module")
def gpt() -> Graph:
    """Six heads; matrices of 384 x 1152, 384 x 384, 384 x 1536."""
    return capture(CaptureOptions("gpt-small", batch=1, shape=(8,)))


@pytest.mark.parametrize("ranks", [7, 12, 64])
def test_every_rank_has_a_head(gpt: Graph, ranks: int) -> None:
    replica = Replica(gpt, np.full(len(gpt), 1e-5))
    message = f"strategy: tp={ranks} is more than the 6 heads of the model: tp=6 fits"
    with pytest.raises(InputError, match=message):
        replayed(replica, f"tp={ranks}")
    replayed(replica, "tp=6")


def test_heads_stay_whole(gpt: Graph) -> None:
    """Of 6 heads on 4 ranks two have 2: attention takes a third, the rest a quarter."""
    replica = Replica(gpt, np.full(len(gpt), 1e-5))
    done = replayed(replica, "tp=4")
    [program] = done.job.programs
    lengths = {
        done.job.names[program.name[row]]: program.duration[row] for row in range(len(program))
    }
    attention = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    assert lengths[attention] == pytest.approx(1e-5 / 3)
    assert lengths["aten.gelu.default"] == pytest.approx(1e-5 / 4)


def graph_of(op: Op) -> Graph:
    from paracosm.graphs import Node, build_graph

    return build_graph([Node(0, op, "h.0.mlp", "forward")])


def product(*shape: int) -> Op:
    tensors = [TensorArgument((64, shape[0]), "float32"), TensorArgument(shape, "float32")]
    return Op("aten.mm.default", encode_arguments(tensors, {}))


def test_a_matrix_is_split_along_one_of_its_sides() -> None:
    """12 x 50 between 4 ranks by rows, between 5 by columns; between 8 or 7 by none."""
    graph = graph_of(product(12, 50))
    for ranks in (1, 2, 4, 5, 12, 25):
        check_divides(graph, [0], ranks)
    for ranks, fits in ((8, 6), (7, 6), (100, 50)):
        with pytest.raises(InputError, match=f"a matrix of 12 x 50 of the model: tp={fits} fits"):
            check_divides(graph, [0], ranks)


def test_keys_that_several_queries_share_stay_whole_too() -> None:
    """Grouped-query attention: 32 heads of queries, 8 of keys."""
    shapes = [(1, heads, 16, 64) for heads in (32, 8, 8)]
    arguments = encode_arguments([TensorArgument(shape, "float32") for shape in shapes], {})
    graph = graph_of(Op("aten._scaled_dot_product_flash_attention.default", arguments))
    check_divides(graph, [0], 8)
    with pytest.raises(InputError, match="tp=16 is more than the 8 heads"):
        check_divides(graph, [0], 16)


def test_a_graph_that_does_not_say_sets_no_limit() -> None:
    assert replayed(layers(2), "tp=7").job.ranks == 7
