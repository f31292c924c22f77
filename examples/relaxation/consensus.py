"""Consensus ADMM: owners of parts of the data agree on one least-squares fit, and do not wait.

Minimise the sum over owners i of |B_i x - c_i|^2 / 2. In one variable an owner, w_i = x_i + u_i of
scaled ADMM (Boyd et al., "Distributed Optimization and Statistical Learning via ADMM", 2011,
section 7.1), ADMM is the map

    z = mean of w,   x_i = argmin |B_i x - c_i|^2 / 2 + rho |x - (2 z - w_i)|^2 / 2,
    w_i <- w_i + x_i - z,

whose asynchronous iteration Peng et al. ("ARock", SIAM Journal on Scientific Computing 38(5), 2016)
treat. Every owner reads the w of all others: their values travel. One owner is four times slower
than the others; waiting for it takes longer, and less energy. The fit is compared with NumPy's
lstsq.
"""

from typing import Any

import numpy as np

from paracosm.relaxation import relax_map

OWNERS, FEATURES, ROWS, RHO = 8, 5, 30, 20.0

rng = np.random.default_rng(0)
B = rng.normal(size=(OWNERS, ROWS, FEATURES))
c = B @ np.arange(1.0, FEATURES + 1) + rng.normal(size=(OWNERS, ROWS))
inverse = np.linalg.inv(np.swapaxes(B, 1, 2) @ B + RHO * np.eye(FEATURES))
target = np.einsum("irf,ir->if", B, c)


def admm(w: Any, rows: Any, out: Any) -> None:
    owner = rows[0] // FEATURES  # a processor's rows are its owner's
    own, z = w[rows], w.reshape(OWNERS, FEATURES).mean(axis=0)
    out[:] = own + inverse[owner] @ (target[owner] + RHO * (2 * z - own)) - z


def all_owners(w: Any, rows: Any, out: Any) -> None:
    """Write the map for one owner, or for all where convergence is confirmed."""
    for first in range(0, rows.size, FEATURES):
        admm(w, rows[first : first + FEATURES], out[first : first + FEATURES])


expected = np.linalg.lstsq(B.reshape(-1, FEATURES), c.ravel(), rcond=None)[0]
size = OWNERS * FEATURES
power = {"busy": "250 W", "idle": "60 W"}
workers = [{"count": 7, "power": power}, {"count": 1, "speed": 0.25, "power": power}]
links = {"default": {"latency": "1s"}}
for synchronous in (True, False):
    found = relax_map(
        all_owners, np.zeros(size), reads=np.ones((size, size)), time="lognormal(10, 0.2)",
        cluster={"topology": "switch", "workers": workers, "links": links},
        synchronous=synchronous, tolerance=1e-10,
    )  # fmt: skip
    agreed = found.x.reshape(OWNERS, FEATURES).mean(axis=0)
    print(
        f"{'synchronous' if synchronous else 'asynchronous':12} {found.status} after "
        f"{found.virtual_time:,.0f} s and {(found.energy or 0) / 1e6:.3g} MJ, "
        f"{found.messages:,} messages: off lstsq by {np.abs(agreed - expected).max():.0e}"
    )
