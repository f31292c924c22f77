"""The phases of one worker's step as coarse models see them: one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.arrays import Floats
from paracosm.prediction.parameter_servers.target import TargetJob
from paracosm.profiling.jobs import DOWNLINK, UPLINK, WORKER
from paracosm.simulation.simulate import Simulated, simulate

FIRST = 1e-3
"""Share of a direction's bytes that may pass before its phase begins: a learning rate that is sent
ahead of all gradients is not what anyone sees of an uplink."""


@dataclass(frozen=True)
class Phases:
    """Mean durations of one worker's step, in seconds."""

    downlink: float  # from the first transfer's begin to the last one's end
    worker: float  # from there to the begin of the uplink; 0 where they overlap
    uplink: float  # the same of the uplink, but not before the downlink's end
    server: float  # from there to the end of the step
    rest: float  # between the end of a step and the next one's downlink
    computing: float  # of all ops of the worker
    carried: Floats  # bytes of a step by server, the larger of both directions, (servers,)

    @property
    def step(self) -> float:
        return self.downlink + self.worker + self.uplink + self.server + self.rest


def phases_of(job: TargetJob) -> Phases:
    """Return the phases of a worker of speed 1, the first one, that has the servers to itself.

    They are those of every profiled step once, simulated on the cluster's links, as somebody sees
    them who watches the network only (Li et al. 2020, section 1).
    """
    workload = job.workload
    drawn = np.arange(workload.steps)[None]
    system = job.asynchronous().system(job.settings.ports.only(0))
    simulated = simulate(workload, system, drawn, keep_chunks=True)
    down = _intervals(job, simulated, DOWNLINK)
    up = _intervals(job, simulated, UPLINK)
    begin, end = simulated.step_begin[0], simulated.step_end[0]
    up_begin = np.maximum(up[0], down[1])
    up_end = np.maximum(up[1], up_begin)
    seconds = workload.seconds[:, workload.resource == WORKER].sum(axis=1)
    return Phases(
        downlink=float((down[1] - down[0]).mean()),
        worker=float((up_begin - down[1]).mean()),
        uplink=float((up_end - up_begin).mean()),
        server=float(np.maximum(end - up_end, 0.0).mean()),
        rest=float((down[0] - begin).mean() + workload.gap.mean()),
        computing=float(seconds.mean() / job.settings.ports.speed[0]),
        carried=np.maximum(*(job.by_server(way, workload.size) for way in (DOWNLINK, UPLINK))),
    )


def _intervals(job: TargetJob, simulated: Simulated, way: int) -> tuple[Floats, Floats]:
    """Return when a direction's phase begins and ends in each step."""
    workload, chunks = job.workload, simulated.chunks
    chosen = chunks[workload.resource[chunks["op"]] == way]
    chosen = chosen[np.lexsort((chosen["begin"], chosen["step"]))]
    step = chosen["step"]
    starts = np.flatnonzero(np.diff(step, prepend=-1))
    passed = np.cumsum(np.where(chosen["turn"] == 0, workload.size[chosen["op"]], 0.0))
    whole = workload.size[workload.resource == way].sum()
    sizes = workload.size[chosen["op"]]
    before = np.repeat(passed[starts] - sizes[starts], np.diff([*starts, len(step)]))
    visible = np.where((passed - before > FIRST * whole) | (whole == 0), chosen["begin"], np.inf)
    return np.minimum.reduceat(visible, starts), np.maximum.reduceat(chosen["end"], starts)


def lin(phases: Phases, workers: int) -> Floats:
    """Return the steps/s of 1, 2, ... workers, (workers,).

    Lin, Paolieri, Chou, Golubchik (MASCOTS 2018), "A Model-Based Approach to Streamlining
    Distributed Training for Asynchronous SGD": a closed queueing network in which every worker goes
    through downlink and uplink, whose bandwidth all share, the server, and its own computing,
    solved exactly. As Li et al. (2020, sections 1 and 4.4) use it, each phase lasts as it does for
    one worker. Several servers have links of their own, on which a worker spends its phases in
    the proportion of their bytes.
    """
    total = float(phases.carried.sum())
    shares = phases.carried / total if total > 0 else np.ones(1)
    shared = np.array([phases.downlink, phases.uplink, phases.server])
    demands = np.outer(shares, shared).ravel()
    return mean_value_analysis(demands.tolist(), phases.worker + phases.rest, workers)


def mean_value_analysis(demands: Sequence[float], delay: float, customers: int) -> Floats:
    """Return the cycles/s of 1, 2, ... customers of a closed product-form network, (customers,).

    Exact mean-value analysis (Reiser and Lavenberg 1980, section 2): a customer finds the stations
    as they are with one customer less. Stations serve one customer at a time or share their
    processor, which comes to the same. `demands` are seconds of service of a cycle at each station,
    `delay` those for which a customer waits for nobody.
    """
    service = np.asarray(demands, dtype=np.float64)
    queue = np.zeros(len(service))
    rates = np.zeros(customers)
    for number in range(1, customers + 1):
        residence = service * (1 + queue)
        cycle = delay + float(residence.sum())
        rates[number - 1] = number / cycle if cycle > 0 else np.inf
        queue = residence * rates[number - 1]
    return rates


def cynthia(phases: Phases, bandwidth: float, workers: int, *, duplex: bool = False) -> float:
    """Return the steps/s of a number of workers.

    Zheng et al. (ICPP 2019), as Li et al. (2020, section 1) give it: the examples/s of W workers
    with batch K are W K / (T_P max(1, W U_1) + 2 T_C), where T_P is the time of processing a batch,
    T_C that of transmitting the model or its update, and U_1 the network's utilisation with one
    worker: 2 T_C over the time of its step. Of several servers, the one with most bytes counts.
    `bandwidth` is bytes/s of each server's port; `duplex` halves T_C, as both directions are
    networks of their own (Li et al., section 4.4).
    """
    transmission = float(phases.carried.max()) / bandwidth / (2 if duplex else 1)
    used = 2 * transmission / phases.step
    return workers / (phases.computing * max(1.0, workers * used) + 2 * transmission)
