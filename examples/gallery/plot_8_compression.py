"""
What does compressing gradients cost?
=====================================

Top-k keeps the largest entries of each gradient; error feedback sends the rest later. On a slow link
the time saved is worth more than the accuracy of a step.
"""

import matplotlib.pyplot as plt
import numpy as np

import paracosm

job = dict(
    model="mlp",
    data="digits",
    algorithm="ssgd",
    workers=8,
    lr=0.1,
    batch=32,
    compute="20ms",
    bandwidth="10Mbit/s",
    updates=300,
    evaluate_every=20,
    seed=0,
)

fig, axis = plt.subplots(figsize=(7, 4))
for compress in (None, "topk(0.1)", "topk(0.01)", "topk(0.01, feedback=false)"):
    result = paracosm.train(**job, **({"compress": compress} if compress else {}))
    table = result.metrics
    loss = table.filter(np.asarray(table["name"]) == "loss")
    axis.plot(loss["virtual_time"], loss["value"], label=compress or "every entry")
    print(f"{compress}: {result.sentence}")
axis.set(xlabel="virtual time (s)", ylabel="training loss", ylim=(0, 2.4))
axis.legend()
fig.tight_layout()
plt.show()
