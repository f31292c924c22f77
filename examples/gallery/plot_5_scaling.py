"""
How far does data-parallel training scale?
==========================================

ResNet-50 on V100s that nobody here has, from the hardware catalogue: throughput against the number of
workers for two networks. How much of the answer is measured and how much assumed is part of it.
"""

import matplotlib.pyplot as plt

import paracosm

fig, axis = plt.subplots(figsize=(7, 4))
for bandwidth in ("10Gbit/s", "100Gbit/s"):
    result = paracosm.predict(
        model="resnet50",
        batch=64,
        hardware="v100-sxm-16gb",
        strategy="ddp",
        workers="1,2,4..512",
        bandwidth=bandwidth,
    )
    rows = result.summary.throughput
    workers = [row.workers for row in rows]
    axis.loglog(workers, [row.examples_per_second for row in rows], "o-", label=bandwidth)
    print(f"{bandwidth}: {result.sentence}")
one = rows[0].examples_per_second
axis.loglog(workers, [one * w for w in workers], color="grey", linestyle=":", label="ideal")
axis.set(xlabel="workers", ylabel="examples/s")
axis.legend()
fig.tight_layout()
plt.show()
