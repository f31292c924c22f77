"""
How many workers do the parameter servers carry?
================================================

Steps per second of asynchronous workers, predicted from the profile of one worker of a real TensorFlow
job: op by op, sharing the server's link.
"""

from pathlib import Path

import matplotlib.pyplot as plt

import paracosm

root = next(p for p in Path.cwd().parents if (p / "tests" / "data").is_dir())
profile = root / "tests" / "data" / "psthroughput" / "profile.json.gz"

fig, axis = plt.subplots(figsize=(7, 4))
for bandwidth in ("100Mbit/s", "191.5Mbit/s", "1Gbit/s"):
    result = paracosm.predict(profile=str(profile), workers="1,2,4,6", bandwidth=bandwidth, seed=1)
    rows = result.summary.throughput
    axis.plot([r.workers for r in rows], [r.steps_per_second for r in rows], "o-", label=bandwidth)
    print(f"{bandwidth}: {result.sentence}")
axis.set(xlabel="workers", ylabel="steps/s", ylim=(0, None))
axis.legend(title="link of the server")
fig.tight_layout()
plt.show()
