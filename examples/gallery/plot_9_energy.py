"""
What does it cost not to wait?
==============================

Energy to solution of Jacobi's iteration on 10 simulated processors that draw 250 W while they
compute and 60 W while they wait. On the left one processor is slow. When it is twice as slow as the
others, asynchronous updates reach the solution sooner, but synchronous ones take less energy; from
a factor of four on both take about the same. On the right faults strike, and the energy depends on
how often x is saved.
"""

import matplotlib.pyplot as plt
import numpy as np

import paracosm

cluster = {
    "topology": "switch",
    "workers": {"count": 10, "power": {"busy": "250 W", "idle": "60 W", "off": "5 W"}},
}
job = dict(problem="laplace2d:10", cluster=cluster, memory="shared", time="normal(10, 1)")

fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4))
slower = [1.01, 2, 4, 8]
for synchronous in (False, True):
    label = "synchronous" if synchronous else "asynchronous"
    runs = [
        paracosm.relax(
            **job, synchronous=synchronous, what_if=[f"processor 3: compute {factor}x slower"]
        ).summary
        for factor in slower
    ]
    left.plot(slower, [run.energy / 1e6 for run in runs], "o-", label=f"{label}, energy (MJ)")
    left.plot(slower, [run.virtual_time / 1e3 for run in runs], "x:", label=f"{label}, time (ks)")
left.set(xlabel="times slower than the others", ylabel="to solution")
left.loglog()
left.legend()

intervals = [5, 10, 20, 40, 80, 160, 320]
median, young = [], None
for interval in intervals:
    policy = f"alpha=2, omega={interval}s, cost=1s"
    runs = [
        paracosm.relax(
            **job,
            fault=["uniform(-100, 100) every 1000s"],
            checkpoint=policy,
            baseline=False,
            seed=seed,
        ).summary
        for seed in range(8)
    ]
    median.append(float(np.median([run.energy for run in runs])) / 1e6)
    young = runs[0].checkpoints["suggested_interval_young"]
right.semilogx(intervals, median, "o-", label="median of 8 seeds")
right.axvline(young, ls=":", label="Young's interval")
right.set(xlabel="time between checkpoints (s)", ylabel="energy to solution (MJ)")
right.legend()
fig.tight_layout()
plt.show()
print("energy by interval (MJ):", dict(zip(intervals, np.round(median, 2).tolist(), strict=True)))
