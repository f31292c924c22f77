"""Parameters divided between two servers: figures 23 and 25."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from finding import Finding
from measured_jobs import SEED, MeasuredJob, link_ports
from synthetic_models import layers_of, profile_of

from paracosm.prediction.parameter_servers.config import Ports, Settings
from paracosm.prediction.parameter_servers.target import target_job
from paracosm.prediction.parameter_servers.throughput import predict_throughput
from paracosm.profiling.jobs import DOWNLINK, JobProfile
from paracosm.profiling.jobs.job_profile import smallest_first

__all__ = ["Divided", "Gains", "divide", "gains_of", "judge_division", "judge_gains", "model_gains"]

MIB = 2**20
WORKERS = 10
TEN_GBIT = 10e9 / 8
PAPER = {"VGG-11": (407.0, 100.0)}  # MB of 2^20 bytes


@dataclass(frozen=True)
class Divided:
    """Figure 23: who holds which parameters.

    Attributes:
        name: of the model.
        names, sizes: of its parameters, bytes, in the order in which they were made.
        server: of each of them.
    """

    name: str
    names: Sequence[str]
    sizes: Sequence[float]
    server: Sequence[int]

    @property
    def held(self) -> tuple[float, float]:
        """Bytes on each of both servers."""
        held = np.bincount(self.server, weights=self.sizes, minlength=2)
        return float(held[0]), float(held[1])


@dataclass(frozen=True)
class Gains:
    """Figure 25: steps/s of 1, 2, ... workers.

    Attributes:
        name: of the job.
        rates: by "1 server", "2 servers" and "2 servers, if even": one server with twice the
            bandwidth, while workers keep theirs.
        share: of the bytes on the fuller of two servers.
    """

    name: str
    rates: Mapping[str, Sequence[float]]
    share: float


def divide(jobs: Sequence[MeasuredJob]) -> list[Divided]:
    """Divide the parameters of the jobs, and of VGG-11 layer by layer, between two servers."""
    found = []
    for job in jobs:
        profile = job.profile
        chosen = np.flatnonzero((profile.resource == DOWNLINK) & (profile.size > 0))
        names = [_parameter(profile.names[op]) for op in chosen]
        found.append(_divided(job.name, names, profile.size[chosen].astype(float).tolist()))
    layers = layers_of("vgg11")
    found.append(
        _divided("VGG-11", [layer.name for layer in layers], [sum(layer.sizes) for layer in layers])
    )
    return found


def gains_of(job: MeasuredJob, steps: int | None) -> Gains:
    """Predict a job with one server and with two, from so many steps of each worker."""
    return _gains(job.name, job.profile, float(job.settings.ports.server[0]), steps)


def model_gains(name: str, title: str, computing: float, steps: int | None) -> Gains:
    """Predict a model that nobody profiled, on links of 10 Gbit/s, with one server and with two.

    Args:
        name: of the model.
        title: how it is called.
        computing: seconds of a step's computing, divided in proportion to FLOPs.
        steps: simulated ones of each worker; None: as `Settings` has it.
    """
    return _gains(title, profile_of(layers_of(name), computing), TEN_GBIT, steps)


def judge_division(divided: Sequence[Divided]) -> list[Finding]:
    """Check how uneven the division is."""
    findings = []
    for each in divided:
        first, second = (size / MIB for size in each.held)
        expected = PAPER.get(each.name)
        findings.append(
            Finding(
                "Figure 23",
                f"{each.name}: parameters on two servers, each layer to the one that holds less",
                f"{expected[0]:.0f} and {expected[1]:.0f} MB" if expected else "uneven",
                f"{first:.1f} and {second:.1f} MB (of 2^20 bytes)",
                abs(first / expected[0] - 1) < 0.05 and abs(second / expected[1] - 1) < 0.05
                if expected
                else max(first, second) > 1.05 * min(first, second),
            )
        )
    return findings


def judge_gains(gains: Sequence[Gains]) -> list[Finding]:
    """Check what a second server brings."""
    findings = []
    for each in gains:
        one, two, even = (np.array(rates) for rates in each.rates.values())
        gain, ideal = float((two / one)[-1]), float((even / one)[-1])
        findings.append(
            Finding(
                "Figure 25",
                f"{each.name}, {WORKERS} workers: what a second server brings with "
                f"{each.share:.0%} of the bytes on one, and with as many on both",
                "a second server helps; little where the split is uneven",
                f"{gain - 1:+.0%}, and {ideal - 1:+.0%} (by the bytes of the fuller one: "
                f"{1 / each.share - 1:+.0%}); with fewer workers {(two / one).min() - 1:+.0%} at "
                "least",
                1.05 < gain < ideal,
            )
        )
    return findings


def _gains(name: str, profile: JobProfile, bandwidth: float, steps: int | None) -> Gains:
    one = link_ports(WORKERS, 1, bandwidth)
    cases = {
        "1 server": one,
        "2 servers": link_ports(WORKERS, 2, bandwidth),
        "2 servers, if even": _with_fast_servers(one),
    }
    sizes = profile.size[(profile.resource == DOWNLINK) & (profile.size > 0)].astype(float)
    held = np.bincount(smallest_first(sizes.tolist(), 2), weights=sizes)
    rates = {title: _rates(profile, ports, steps) for title, ports in cases.items()}
    return Gains(name, rates, float(held.max() / held.sum()))


def _with_fast_servers(ports: Ports) -> Ports:
    """Return the ports with those of servers twice as wide, and workers' as they were."""
    capacity = ports.routes.capacity.copy()
    capacity[ports.routes.ports.ravel()] *= 2
    return replace(ports, routes=replace(ports.routes, capacity=capacity))


def _rates(profile: JobProfile, ports: Ports, steps: int | None) -> list[float]:
    job = target_job(profile, Settings(ports=ports, steps=steps), SEED)
    return [
        predict_throughput(job, workers, SEED).steps_per_second for workers in range(1, WORKERS + 1)
    ]


def _divided(name: str, names: Sequence[str], sizes: Sequence[float]) -> Divided:
    return Divided(name, names, sizes, smallest_first(sizes, 2))


def _parameter(name: str) -> str:
    """Return "fc6/w" of an op that reads "m/fc6/w/read"."""
    return "/".join(name.removesuffix("/read").split("/")[-2:])
