"""
Which strategy for eight billion parameters?
============================================

Llama 3.1 8B on 64 H100s: data, tensor and pipeline parallel in several mixtures, each predicted from
datasheets and measured efficiencies.
"""

import matplotlib.pyplot as plt

import paracosm

strategies = (
    "fsdp",
    "dp=32, tp=2, sp=yes, zero=1",
    "dp=16, tp=4, sp=yes, zero=1",
    "dp=16, pp=4, schedule=1f1b, microbatches=8, zero=1",
)
times, memory = [], []
for strategy in strategies:
    result = paracosm.predict(
        model="llama-8b", batch=1, hardware="h100-sxm", workers=64, strategy=strategy
    )
    (row,) = result.summary.throughput
    times.append(row.examples_per_second)
    print(f"{strategy}: {result.sentence}")

fig, axis = plt.subplots(figsize=(8, 3))
axis.barh(strategies, times)
axis.set(xlabel="sequences/s on 64 GPUs")
axis.invert_yaxis()
fig.tight_layout()
plt.show()
