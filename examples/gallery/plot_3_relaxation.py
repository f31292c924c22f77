"""
Does asynchronous relaxation pay?
=================================

Jacobi's iteration for Laplace's equation on 50 simulated processors, one of them ten times slower.
A synchronous sweep waits for it; asynchronous updates do not.
"""

import matplotlib.pyplot as plt
import numpy as np

import paracosm

job = dict(
    problem="laplace2d:30",
    method="jacobi",
    processors=50,
    time="normal(10, 1)",
    what_if=["worker 7: compute 10x slower"],
    tolerance=1e-6,
    seed=0,
)

fig, axis = plt.subplots(figsize=(7, 4))
for synchronous in (False, True):
    result = paracosm.relax(synchronous=synchronous, **job)
    table = result.metrics
    residual = table.filter(np.asarray(table["name"]) == "residual")
    label = "synchronous" if synchronous else "asynchronous"
    axis.semilogy(residual["virtual_time"], residual["value"], label=label)
    print(f"{label}: {result.sentence}")
axis.set(xlabel="virtual time (s)", ylabel="residual, relative to the first")
axis.legend()
fig.tight_layout()
plt.show()
