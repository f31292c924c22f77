"""Memory and totals of a graph, by hand."""

from __future__ import annotations

import networkx as nx
import numpy as np
from hypothesis import given, settings
from random_graphs import four_op_graph, graphs

from paracosm.graphs import Graph, Node, Op, build_graph
from paracosm.graphs.summary import longest_chain, memory_curve, peak_memory, summarize


def test_the_memory_of_four_ops_by_hand() -> None:
    # Resident 20,481. Before: 5 until node 4, 2 for ever. Node 4 allocates 100, until node 7;
    # node 7 allocates 40, for ever, and 7 for itself; node 8 allocates 1,000 for itself.
    expected = [20_481 + held for held in (7, 7 + 100, 2 + 100 + 40 + 7, 2 + 40 + 1_000)]
    graph = four_op_graph()
    assert memory_curve(graph).tolist() == expected
    assert peak_memory(graph) == 20_481 + 1_042
    assert peak_memory(build_graph([], resident={"inputs": 3}, before=[(4, -1)])) == 7


@settings(max_examples=40)
@given(graphs())
def test_what_is_held_is_the_sum_of_the_storages_that_live(graph: Graph) -> None:
    storages, resident = graph.storages, sum(graph.resident.values())
    for row, held in enumerate(memory_curve(graph)):
        lives = (storages.first <= row) & (storages.last >= row)
        assert held == np.int64(resident) + storages.size[lives].sum()


def test_the_summary_of_four_ops_by_hand() -> None:
    summary = summarize(four_op_graph(), largest=1)
    assert summary["nodes"] == 4
    assert summary["distinct_ops"] == 3
    assert summary["dependencies"] == 4
    assert summary["longest_chain"] == 4
    assert summary["flops"] == 2 * 655_360
    assert summary["bytes"] == 2 * (151_552 + 2_560) + 5_120 + 1_280
    assert summary["duration"] == 1 / 3 + 0.5
    assert summary["nodes_with_duration"] == 2
    assert summary["peak_memory_at"] == "node 8 (c10d.reduce_scatter_)"
    assert summary["phases"]["backward"] == {"nodes": 2, "flops": 655_360, "bytes": 160_512}
    assert summary["resources"]["host"] == {"nodes": 1, "flops": 0, "bytes": 0}
    assert list(summary["ops"]) == ["aten.mm.default", "c10d.reduce_scatter_", "aten.t.default"]
    assert summary["ops"]["aten.mm.default"]["nodes"] == 2
    assert [each["name"] for each in summary["largest_ops"]] == ["aten.mm.default"]


def test_a_graph_that_knows_of_no_storages_has_no_peak() -> None:
    assert summarize(build_graph([Node(0, Op("a"))]))["peak_memory"] is None


@settings(max_examples=40)
@given(graphs())
def test_the_longest_chain_is_that_of_networkx(graph: Graph) -> None:
    known = nx.DiGraph()
    known.add_nodes_from(range(len(graph)))
    known.add_edges_from(
        (int(before), row) for row in range(len(graph)) for before in graph.predecessors(row)
    )
    assert longest_chain(graph) == len(nx.dag_longest_path(known))
