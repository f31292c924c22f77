"""PageRank as a map x = G(x) on processors that do not wait: no matrix is solved, G is iterated.

G(x)_i = (1 - d) / n + d * sum of x_j / outdegree_j over the pages j that link to i. Since d < 1, G
is a contraction in the 1-norm, and the asynchronous iteration converges whatever the delays. A
synchronous one that starts with the sum 1 keeps it, and is spared the slowest mode, of factor d; an
asynchronous one loses the sum on its way, and pays for it.

The pages are the 77 characters of "Les Miserables", linked as often as they appear together (Knuth,
"The Stanford GraphBase", 1993; the graph comes with NetworkX, whose own PageRank is the reference).
"""

from __future__ import annotations

from typing import Any

import networkx
import numba
import numpy as np

from paracosm.relaxation import relax_map

DAMPING, PROCESSORS = 0.85, 11

graph = networkx.les_miserables_graph()
names = list(graph)
PAGES = len(names)
together = networkx.to_scipy_sparse_array(graph, names, weight="weight", dtype=float)
into = (together / together.sum(axis=0)).tocsr()  # column j: what page j gives to each of its links
pointer, linking, share = into.indptr, into.indices, into.data


@numba.njit
def rank(x: Any, rows: Any, out: Any) -> None:
    for k, page in enumerate(rows):
        received = 0.0
        for link in range(pointer[page], pointer[page + 1]):
            received += share[link] * x[linking[link]]
        out[k] = (1 - DAMPING) / PAGES + DAMPING * received


even = np.full(PAGES, 1 / PAGES)
found = networkx.pagerank(graph, DAMPING, max_iter=1000, tol=1e-15, weight="weight")
power = np.array([found[name] for name in names])

for how, start, synchronous in (
    ("synchronous from 1/n", even, True),
    ("synchronous from 0", np.zeros(PAGES), True),
    ("asynchronous from 1/n", even, False),
):
    result = relax_map(
        rank, start, time=["lognormal(10, 1)"] * PROCESSORS, synchronous=synchronous,
        tolerance=1e-12, seed=1,
    )  # fmt: skip
    print(
        f"{how:22} {result.status}: {result.virtual_time:6,.0f} s, {result.sweeps[-1]:.0f} sweeps, "
        f"off NetworkX by {np.abs(result.x - power).max():.0e}"
    )
best = np.argsort(-power)[:3].tolist()
print("first:", ", ".join(f"{names[page]} ({power[page]:.4f})" for page in best))
