"""Seconds to measure throughput, and to predict it: figure 22."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from finding import Finding
from measured_jobs import SEED, MeasuredJob

from paracosm.prediction.parameter_servers.throughput import predict_throughput
from paracosm.simulation.simulate import simulate

__all__ = ["Cost", "cost_of", "judge_cost"]

WORKERS = range(1, 11)
MEASURED_STEPS, SIMULATED_STEPS = 100, 1000  # of each worker, section 4.5
PAPER = (581, 117)  # seconds: Inception-v3, batch 128


@dataclass(frozen=True)
class Cost:
    """Seconds of both ways for 1 to 10 workers.

    Attributes:
        name: of the job.
        measuring: by number of workers, 100 steps of each.
        runs: numbers of workers for which a run was measured; the others are predicted.
        profiling: 100 steps of one worker.
        simulating: 1,000 steps of each of 2 to 10 workers, by number of workers, on one core.
    """

    name: str
    measuring: dict[int, float]
    runs: set[int]
    profiling: float
    simulating: dict[int, float]

    @property
    def measured(self) -> float:
        """Seconds of measuring in all."""
        return sum(self.measuring.values())

    @property
    def predicted(self) -> float:
        """Seconds of profiling and simulating in all."""
        return self.profiling + sum(self.simulating.values())


def cost_of(job: MeasuredJob) -> Cost:
    """Time the simulations of a job here; take the rest from how fast it ran."""
    target = job.target(max(WORKERS))
    simulate(target.workload, target.system(target.settings.ports), target.drawn(10, 1, 0))
    measured = job.measured()
    measuring, simulating = {}, {}
    for workers in WORKERS:
        system = target.system(target.settings.ports.first(workers))
        drawn = target.drawn(workers, SIMULATED_STEPS, SEED)
        began = time.perf_counter()
        simulate(target.workload, system, drawn)
        if workers > 1:
            simulating[workers] = time.perf_counter() - began
        rate = measured.get(workers) or predict_throughput(target, workers, SEED).steps_per_second
        measuring[workers] = MEASURED_STEPS * workers / rate
    profile = job.profile
    return Cost(
        name=job.name,
        measuring=measuring,
        runs=set(measured) & set(WORKERS),
        profiling=MEASURED_STEPS * float(np.mean(profile.step_end - profile.step_begin)),
        simulating=simulating,
    )


def judge_cost(cost: Cost) -> list[Finding]:
    """Check that predicting is quicker than measuring."""
    runs = f"{min(cost.runs)} to {max(cost.runs)}" if len(cost.runs) > 1 else "1"
    return [
        Finding(
            "Figure 22",
            f"{cost.name}: {MEASURED_STEPS} steps with each of 1 to 10 workers ({runs} as measured,"
            f" others as predicted), beside {MEASURED_STEPS} steps of one and {SIMULATED_STEPS} "
            "simulated ones with each of 2 to 10",
            f"{PAPER[0]} s and {PAPER[1]} s",
            f"{cost.measured:,.0f} s and {cost.predicted:.0f} s, of which simulating "
            f"{sum(cost.simulating.values()):.1f} s",
            cost.predicted < cost.measured,
        )
    ]
