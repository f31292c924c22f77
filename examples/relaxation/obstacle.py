"""A membrane over an obstacle: a nonlinear problem, on a cluster whose links take time.

Find the lowest u >= psi with -laplace u >= f: projected Jacobi, u_i <- max(psi_i, (f_i h^2 + sum of
the neighbours) / 4), converges asynchronously (Baudet, "Asynchronous iterative methods for
multiprocessors", Journal of the ACM 25(2), 1978; monotone maps). The solution that it is compared
with is found by a primal-dual active set method, which solves linear systems (Hintermueller, Ito,
Kunisch, SIAM Journal on Optimization 13(3), 2002).
"""

from typing import Any

import numba
import numpy as np
from scipy.sparse import diags_array
from scipy.sparse.linalg import spsolve

from paracosm.relaxation import relax_map
from paracosm.relaxation.problems import load_problem

SIDE, PROCESSORS = 20, 10
A = load_problem(f"laplace2d:{SIDE}").A  # 4 and -1: minus the Laplacian times h^2
pointer, neighbour = A.indptr, A.indices
across = np.linspace(-1, 1, SIDE + 2)[1:-1]
psi = (0.5 - across[:, None] ** 2 - across[None, :] ** 2).ravel()  # a bump
load = np.full(SIDE**2, -2.0 * (across[1] - across[0]) ** 2)  # the membrane is pressed down


@numba.njit
def membrane(u: Any, rows: Any, out: Any) -> None:
    for k, row in enumerate(rows):
        total = load[row]
        for entry in range(pointer[row], pointer[row + 1]):
            if neighbour[entry] != row:
                total += u[neighbour[entry]]
        out[k] = max(psi[row], total / 4)


def active_set() -> Any:
    u, force = psi.copy(), np.zeros(psi.size)
    for _ in range(100):
        touches = force + (psi - u) > 0
        free = diags_array((~touches).astype(float))
        held = diags_array(touches.astype(float))
        u = spsolve((free @ A + held).tocsc(), np.where(touches, psi, load))
        before, force = touches, np.where(touches, A @ u - load, 0.0)
        if np.array_equal(before, force + (psi - u) > 0):
            return u
    raise RuntimeError("the active set does not settle")


expected = active_set()
for name, network in (("shared memory", {}), ("messages", {"latency": "30s", "reads": A})):
    found = relax_map(
        membrane, np.maximum(psi, 0), processors=PROCESSORS, time="normal(10, 2)", norm="inf",
        tolerance=1e-10, **network,
    )  # fmt: skip
    contact, off = np.sum(found.x == psi), np.abs(found.x - expected).max()
    print(
        f"{name:13} {found.status} after {found.virtual_time:,.0f} s, {found.sweeps[-1]:.0f} "
        f"sweeps: touches at {contact} of {psi.size} points (active set: "
        f"{np.sum(expected == psi)}), off it by {off:.0e}"
    )
