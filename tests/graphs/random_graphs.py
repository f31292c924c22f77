"""Graphs for tests: one by hand, and random ones."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Op, TensorArgument, encode_arguments

MATMUL = Op(
    "aten.mm.default",
    encode_arguments(
        [TensorArgument((64, 512), "float32"), TensorArgument((512, 10), "float32", (1, 512))], {}
    ),
    flops=655_360,
    bytes_read=151_552,
    bytes_written=2_560,
)
VIEW = Op("aten.t.default", encode_arguments([TensorArgument((10, 512), "float32")], {}))
REDUCE = Op("c10d.reduce_scatter_", "", 0, 5_120, 1_280)


def four_ops() -> list[Node]:
    """A step of four ops whose ids have gaps."""
    return [
        Node(3, VIEW, "fc", "forward", "host"),
        Node(4, MATMUL, "fc", "forward", dependencies=(3,), duration=1 / 3, allocates=((100, 7),)),
        Node(7, MATMUL, "fc", "backward", dependencies=(3, 4), allocates=((40, -1), (7, 7))),
        Node(8, REDUCE, "", "backward", "communication", (7,), (0, 2), 0.5, ((1_000, 8),)),
    ]


def four_op_graph() -> Graph:
    return build_graph(
        four_ops(),
        resident={"parameters": 20_480, "buffers": 1},
        provenance={"model": "fc", "batch": 64, "shape": [3, 32], "rate": 0.1, "seed": None},
        before=[(5, 4), (2, -1)],
    )


def assert_same(one: Graph, other: Graph) -> None:
    """Compare two graphs to the bit."""
    for name in ("ops", "names", "groups", "resident", "provenance"):
        assert getattr(one, name) == getattr(other, name), name
    columns = ("id", "op", "name", "phase", "resource", "group", "duration")
    for name in (*columns, "offsets", "dependencies"):
        assert_same_array(getattr(one, name), getattr(other, name))
    for name in ("size", "first", "last"):
        assert_same_array(getattr(one.storages, name), getattr(other.storages, name))


def assert_same_array(one: np.ndarray, other: np.ndarray) -> None:
    assert one.dtype == other.dtype
    np.testing.assert_array_equal(one, other)


texts = st.text(st.characters(codec="utf-8"), max_size=6)
sizes = st.integers(0, 2**55)
durations = st.one_of(st.just(math.nan), st.floats(0, 1e300))
ops = st.builds(Op, texts, texts, sizes, sizes, sizes)


@st.composite
def node_lists(draw: st.DrawFn) -> list[Node]:
    """Draw the nodes of a graph that is sound, in the order of their ids."""
    ids = sorted(draw(st.sets(st.integers(0, 2**63 - 1), max_size=8)))
    kinds = draw(st.lists(ops, min_size=1, max_size=3))
    nodes = []
    for position, node in enumerate(ids):
        before = st.lists(st.sampled_from(ids[:position]), max_size=4) if position else st.just([])
        last = st.sampled_from([*ids[position:], -1])
        nodes.append(
            Node(
                id=node,
                op=draw(st.sampled_from(kinds)),
                name=draw(texts),
                phase=draw(st.sampled_from(PHASES)),
                resource=draw(st.sampled_from(RESOURCES)),
                dependencies=tuple(draw(before)),
                group=tuple(draw(st.lists(st.integers(0, 9), max_size=3))),
                duration=draw(durations),
                allocates=tuple(draw(st.lists(st.tuples(sizes, last), max_size=2))),
            )
        )
    return nodes


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Draw a graph with resident memory, provenance and storages from before."""
    nodes = draw(node_lists())
    last = st.sampled_from([*(node.id for node in nodes), -1])
    return build_graph(
        nodes,
        resident=draw(st.dictionaries(texts, sizes, max_size=2)),
        provenance=draw(st.dictionaries(texts, st.one_of(texts, sizes, st.none()), max_size=2)),
        before=draw(st.lists(st.tuples(sizes, last), max_size=2)),
    )
