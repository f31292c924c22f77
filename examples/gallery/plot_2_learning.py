"""
When does asynchronous SGD stop learning?
=========================================

Real gradients on real handwritten digits, in virtual time: with more asynchronous workers each
gradient is staler, until the model does not learn at all. Weighting a gradient by its staleness
repairs that.
"""

import matplotlib.pyplot as plt
import numpy as np

import paracosm

job = dict(
    model="mlp",
    data="digits",
    lr=0.2,
    batch=32,
    compute="lognormal(20ms, 0.1)",
    latency="1ms",
    bandwidth="10Gbit/s",
    updates=1500,
    keep_going=True,
    seed=0,
)

fig, axis = plt.subplots(figsize=(7, 4))
for algorithm, workers in (("asgd", 1), ("asgd", 4), ("asgd", 16), ("staleness-aware", 16)):
    result = paracosm.train(algorithm=algorithm, workers=workers, **job)
    table = result.metrics
    loss = table.filter(np.asarray(table["name"]) == "loss")
    axis.plot(loss["virtual_time"], loss["value"], label=f"{algorithm}, {workers} workers")
    print(f"{algorithm}, {workers}: {result.sentence}")
axis.axhline(np.log(10), color="grey", linestyle=":", label="guessing")
axis.set(xscale="log", xlabel="virtual time (s)", ylabel="training loss", ylim=(0, 3))
axis.legend()
fig.tight_layout()
plt.show()
