"""PageRank as a map x = G(x) on processors that do not wait: no matrix is solved, G is iterated.

G(x)_i = (1 - d) / n + d * sum of x_j / outdegree_j over the pages j that link to i. Since d < 1, G
is a contraction in the 1-norm, and the asynchronous iteration converges whatever the delays. A
synchronous one that starts with the sum 1 keeps it, and is spared the slowest mode, of factor d; an
asynchronous one loses the sum on its way, and pays for it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from scipy.sparse import csr_array

from paracosm.relaxation import relax_map

PAGES, LINKS, DAMPING, PROCESSORS = 2_000, 8, 0.85, 20

rng = np.random.default_rng(0)
# Older pages get more links: page k with a density that falls as 1 / sqrt(k).
targets = (rng.random((PAGES, LINKS)) ** 2 * PAGES).astype(np.int64)
source = np.repeat(np.arange(PAGES), LINKS)
into = csr_array((np.full(source.size, 1 / LINKS), (targets.ravel(), source)), (PAGES, PAGES))
pointer, linking, share = into.indptr, into.indices, into.data


@numba.njit
def rank(x: Any, rows: Any, out: Any) -> None:
    for k, page in enumerate(rows):
        received = 0.0
        for link in range(pointer[page], pointer[page + 1]):
            received += share[link] * x[linking[link]]
        out[k] = (1 - DAMPING) / PAGES + DAMPING * received


even = np.full(PAGES, 1 / PAGES)
power = even
for _ in range(200):  # the textbook's power iteration
    power = (1 - DAMPING) / PAGES + DAMPING * (into @ power)

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
        f"off the power iteration by {np.abs(result.x - power).max():.0e}"
    )
best = np.argsort(-power)[:3].tolist()
print("first pages:", ", ".join(f"{page} ({power[page]:.4f})" for page in best))
