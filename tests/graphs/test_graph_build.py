"""Graphs from nodes: rows in the order of ids, distinct ops once, and what is refused."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import MATMUL, REDUCE, VIEW, assert_same, four_op_graph, four_ops, node_lists

from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.check import check, find_cycle
from paracosm.graphs.graph import Graph, Op
from paracosm.graphs.summary import fingerprint

A = Op("a")


def refusal(nodes: list[Node], **settings: object) -> str:
    with pytest.raises(InputError) as raised:
        build_graph(nodes, **settings)  # type: ignore[arg-type]
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_rows_and_distinct_things_are_numbered_in_the_order_of_the_ids() -> None:
    graph = build_graph(reversed(four_ops()))
    assert graph.ops == (VIEW, MATMUL, REDUCE)
    assert graph.id.tolist() == [3, 4, 7, 8]
    assert graph.op.tolist() == [0, 1, 1, 2]
    assert (graph.names, graph.name.tolist()) == (("fc", ""), [0, 0, 0, 1])
    assert (graph.groups, graph.group.tolist()) == (((0, 2),), [-1, -1, -1, 0])
    assert graph.offsets.tolist() == [0, 0, 1, 3, 4]
    assert graph.dependencies.tolist() == [0, 0, 1, 2]
    assert graph.count().tolist() == [1, 2, 1]


def test_storages_stand_in_the_order_of_allocation_and_end_with_their_last_user() -> None:
    storages = four_op_graph().storages
    assert storages.size.tolist() == [5, 2, 100, 40, 7, 1_000]
    assert storages.first.tolist() == [-1, -1, 1, 2, 2, 3]
    assert storages.last.tolist() == [1, 4, 2, 4, 2, 3]


def test_a_dependency_that_is_named_twice_counts_once() -> None:
    graph = build_graph([Node(0, A), Node(1, A), Node(2, A, dependencies=(1, 0, 1))])
    assert graph.predecessors(2).tolist() == [0, 1]


def test_no_nodes_are_a_graph() -> None:
    assert len(build_graph([])) == 0


@settings(max_examples=40)
@given(node_lists(), st.randoms(use_true_random=False))
def test_the_order_in_which_nodes_come_does_not_matter(
    nodes: list[Node], order: random.Random
) -> None:
    graph = build_graph(nodes)
    shuffled = random.Random(order.random()).sample(nodes, len(nodes))
    assert_same(build_graph(shuffled), graph)
    assert fingerprint(build_graph(shuffled)) == fingerprint(graph)


def test_a_cycle_is_named_by_its_nodes() -> None:
    nodes = [Node(0, A), *(Node(i, A, f"n{i}", dependencies=(1 + i % 3,)) for i in (1, 2, 3))]
    assert refusal(nodes, where="x.graph") == (
        "x.graph: a cycle of dependencies: node 1 (a, n1) waits for node 2 (a, n2) waits for "
        "node 3 (a, n3), and so again for node 1 (a, n1)"
    )
    assert refusal([Node(5, A, dependencies=(5,))]) == "graph: node 5 (a) depends on itself"


def test_a_long_cycle_is_not_named_in_full() -> None:
    nodes = [Node(i, A, dependencies=((i + 1) % 99,)) for i in range(99)]
    assert "waits for 93 more" in refusal(nodes)


def test_a_node_that_waits_for_a_later_one_would_block_an_in_order_stream() -> None:
    message = refusal([Node(0, A, "x", dependencies=(1,)), Node(1, A, "y")])
    assert "node 0 (a, x) waits for node 1 (a, y), which is issued after it" in message


REFUSED = {
    "node 4 (a) depends on node 9, which does not exist": [Node(4, A, dependencies=(9,))],
    "node 1 (a, x) and node 1 (a, y) have the same id": [Node(1, A, "x"), Node(1, A, "y")],
    'node 2 (a): unknown phase "forwards": did you mean "forward"?': [Node(2, A, phase="forwards")],
    'node 2 (a): unknown resource "gpu"': [Node(2, A, resource="gpu")],
    "node -3 (a): ids must not be negative": [Node(-3, A)],
    "ids must be below 2**63": [Node(2**63, A)],
    "node 0 (a): duration -1.0 s": [Node(0, A, duration=-1)],
    "node 0 (a): duration inf s": [Node(0, A, duration=math.inf)],
    "the op b has -1 flops": [Node(0, Op("b", flops=-1))],
    "the op b has 9223372036854775808 bytes_read": [Node(0, Op("b", bytes_read=2**63))],
    "node 0 (a) allocates what is released by node 7, which does not exist": [
        Node(0, A, allocates=((4, 7),))
    ],
    "node 0 (a) is the last to use a storage of 4 bytes that node 1 (a) allocates only after it": [
        Node(0, A),
        Node(1, A, allocates=((4, 0),)),
    ],
    "storage 0 has -4 bytes": [Node(0, A, allocates=((-4, 0),))],
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_a_graph_is_refused_with_the_node(message: str) -> None:
    assert message in refusal(REFUSED[message])


def test_the_rest_of_a_graph_is_checked_too() -> None:
    assert "-1 resident bytes of parameters" in refusal([], resident={"parameters": -1})
    assert "provenance must be plain JSON" in refusal([], provenance={"model": A})
    assert "a storage from before the graph" in refusal([Node(0, A)], before=[(4, 9)])


DAMAGED = {
    "there is no op 9, only 3": {"op": [0, 9, 1, 2]},
    "there is no name 2, only 2": {"name": [0, 0, 0, 2]},
    "there is no phase 4, only 4": {"phase": [0, 0, 4, 0]},
    "there is no resource -1, only 4": {"resource": [0, 0, -1, 0]},
    "there is no group 1, only 1": {"group": [-1, -1, -1, 1]},
    "name has 1 entries for 4 nodes": {"name": [0]},
    "offsets has 2 entries for 4 nodes, not 5": {"offsets": [0, 4]},
    "offsets must ascend from 0 to the 4 dependencies": {"offsets": [0, 0, 3, 1, 4]},
    "node 4 (aten.mm.default, fc) depends on row 4": {"dependencies": [4, 0, 1, 2]},
    "its dependencies must ascend, each but once": {"dependencies": [0, 1, 0, 2]},
    "node 4 (aten.mm.default, fc) follows node 9 (aten.t.default, fc)": {"id": [9, 4, 7, 8]},
}


@pytest.mark.parametrize("message", DAMAGED)
def test_columns_of_a_graph_made_by_hand_are_checked(message: str) -> None:
    graph = four_op_graph()
    for name, values in DAMAGED[message].items():
        column = np.array(values, dtype=getattr(graph, name).dtype)
        graph = dataclasses.replace(graph, **{name: column})
    with pytest.raises(InputError) as raised:
        check(graph)
    assert message in str(raised.value)


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=14))
def test_a_cycle_is_found_where_there_is_one(edges: set[tuple[int, int]]) -> None:
    ordered = sorted(edges)
    counts = np.bincount([row for row, _ in ordered], minlength=8)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    cycle = find_cycle(offsets, np.array([before for _, before in ordered], dtype=np.int64))
    known = nx.DiGraph(ordered)
    assert bool(cycle) == (not nx.is_directed_acyclic_graph(known))
    if cycle:
        assert {*zip(cycle, [*cycle[1:], cycle[0]], strict=True)} <= edges
        assert len(set(cycle)) == len(cycle)
        on_cycles = {
            row
            for component in nx.strongly_connected_components(known)
            for row in component
            if len(component) > 1
        } | {row for row, before in edges if row == before}
        assert cycle[0] == min(on_cycles)


def changed(node: int, **settings: object) -> Graph:
    nodes = four_ops()
    nodes[node] = nodes[node]._replace(**settings)  # type: ignore[arg-type]
    return build_graph(nodes)


def test_the_fingerprint_is_of_ops_order_and_dependencies_alone() -> None:
    known = fingerprint(build_graph(four_ops()))
    assert fingerprint(four_op_graph()) == known  # provenance, resident, before
    assert fingerprint(changed(0, duration=3.0, name="other", allocates=((1, -1),))) == known
    assert fingerprint(build_graph(four_ops()[:3])) != known
    others = [
        changed(0, op=MATMUL),
        changed(2, dependencies=(4,)),
        changed(3, group=(0, 1)),
        changed(3, op=dataclasses.replace(REDUCE, bytes_read=1)),
    ]
    assert len({known, *map(fingerprint, others)}) == 5


def test_the_work_of_an_op_with_arguments_is_not_in_the_fingerprint() -> None:
    counted = dataclasses.replace(VIEW, flops=1)
    assert fingerprint(changed(0, op=counted)) == fingerprint(build_graph(four_ops()))


@pytest.mark.parametrize(
    "changes",
    [
        {"id": 1.5},
        {"id": "1"},
        {"dependencies": (0.5,)},
        {"allocates": ((1.7, -1),)},
        {"allocates": ((1, 0.5),)},
        {"allocates": ((math.nan, -1),)},
    ],
)
def test_nothing_is_rounded_to_a_whole_number(changes: dict[str, Any]) -> None:
    told = refusal([Node(0, A), Node(**{"id": 1, "op": A, **changes})])
    assert "must be whole numbers, not" in told


def test_numbers_without_a_fraction_are_whole() -> None:
    node = Node(0.0, Op("b", bytes_written=4e6), allocates=((3e6, -1),))  # type: ignore[arg-type]
    graph = build_graph([node], resident={"parameters": np.int64(5)})
    assert graph.storages.size.tolist() == [3_000_000]
    assert graph.bytes_written.tolist() == [4_000_000]
    assert graph.resident == {"parameters": 5}


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([Node(0, Op("b", flops=1.5))], "has 1.5 flops; give a whole number"),  # type: ignore[arg-type]
        ([Node(0, Op(5))], "name and arguments of an op are texts"),  # type: ignore[arg-type]
        ([Node(0, A, 5)], "the name of a node is a text, not 5"),  # type: ignore[arg-type]
        ([Node(0, A, dependencies=0)], "a node has a name, seconds"),  # type: ignore[arg-type]
        ([Node(0, A, allocates=(5,))], "a node has a name, seconds"),  # type: ignore[arg-type]
    ],
)
def test_values_of_other_types_are_refused(nodes: list[Node], words: str) -> None:
    assert words in refusal(nodes)


def test_resident_bytes_are_whole() -> None:
    assert "resident bytes must be whole numbers" in refusal([], resident={"parameters": 1.9})


def test_the_batch_is_that_of_the_provenance() -> None:
    assert build_graph([Node(0, A)], provenance={"batch": 8}).examples == 8
    assert build_graph([Node(0, A)], provenance={"batch": 8, "examples": 16}).examples == 16
    assert build_graph([Node(0, A)], provenance={"batch": -8}).examples is None
