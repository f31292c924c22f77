"""
How stale are gradients?
========================

Eight asynchronous workers share one parameter server. No model is needed to see how old the
parameters are that a gradient was computed from: only who computes when, and what the network takes.
"""

import matplotlib.pyplot as plt
import numpy as np

import paracosm

# %%
# One worker is slower than the others: its gradients are staler, and theirs a little fresher.

fig, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
for axis, slow in zip(axes, (1, 4), strict=True):
    result = paracosm.train(
        algorithm="asgd",
        workers=8,
        timing_only=True,
        compute="lognormal(20ms, 0.1)",
        message_size="1MB",
        bandwidth="10Gbit/s",
        what_if=[f"worker 7: compute {slow}x slower"] if slow > 1 else [],
        updates=4000,
        seed=1,
    )
    table = result.metrics
    staleness = table.filter(np.asarray(table["name"]) == "staleness")["value"].to_numpy()
    counts = np.bincount(staleness.astype(int))
    axis.bar(np.arange(len(counts)), counts / counts.sum())
    axis.set(xlabel="staleness of an update", title=f"worker 7: {slow} times the computing")
axes[0].set_ylabel("share of updates")
fig.tight_layout()
plt.show()

# %%
# In a closed loop of W workers the mean staleness is W - 1, whatever their speeds.

print(f"mean staleness {staleness.mean():.2f}")
