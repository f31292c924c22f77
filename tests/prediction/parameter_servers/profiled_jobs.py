"""Profiles of small jobs, and clusters, whose throughput can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from paracosm.cluster import Link, star
from paracosm.prediction.parameter_servers.config import Settings, ports_of
from paracosm.prediction.parameter_servers.target import (
    TargetJob,
    target_job,
)
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile

BANDWIDTH = 1000.0  # bytes/s, ports_of


def serial_profile(**changes: Any) -> JobProfile:
    """Return one step of: pull 1 s, compute 2 s, push 1 s, update 1 s, without a pause."""
    fields: dict[str, Any] = {
        "names": ("pull", "compute", "push", "update"),
        "kinds": ("Recv", "MatMul", "Recv", "Apply"),
        "resource": np.array([DOWNLINK, WORKER, UPLINK, SERVER], np.int8),
        "server": np.zeros(4, np.int64),
        "size": np.array([1000, 0, 1000, 0]),
        "first_dependency": np.array([0, 0, 1, 2, 3]),
        "dependencies": np.array([0, 1, 2]),
        "begin": np.array([[0.0, 1.0, 3.0, 4.0]]),
        "end": np.array([[1.0, 3.0, 4.0, 5.0]]),
        "step_begin": np.array([0.0]),
        "step_end": np.array([5.0]),
    }
    return JobProfile(**(fields | changes))


def two_parameters(sizes: tuple[int, int] = (600, 400)) -> JobProfile:
    """Return one step that pulls two parameters, computes with both, and pushes both.

    Each parameter has a variable on the server that its pull reads and its update writes; both
    updates wait for a learning rate, and a last op for both of them.
    """
    names = ("v0", "v1", "pull0", "pull1", "compute", "rate", "push0", "push1", "u0", "u1", "last")
    resource = [SERVER, SERVER, DOWNLINK, DOWNLINK, WORKER, UPLINK, UPLINK, UPLINK, *[SERVER] * 3]
    waits = [[], [], [0], [1], [2, 3], [], [4], [4], [0, 5, 6], [1, 5, 7], [8, 9]]
    seconds = np.array([[0, 0, 0.6, 0.4, 1, 0, 0.6, 0.4, 0, 0, 0]], float)
    begin = np.array([[0, 0, 0, 0, 1, 0, 2, 2, 3, 3, 3]], float)
    return JobProfile(
        names=names,
        kinds=names,
        resource=np.array(resource, np.int8),
        server=np.zeros(len(names), np.int64),
        size=np.array([0, 0, *sizes, 0, 1, *sizes, 0, 0, 0]),
        first_dependency=np.cumsum([0, *map(len, waits)]),
        dependencies=np.array([op for wait in waits for op in wait], np.int64),
        begin=begin,
        end=begin + seconds,
        step_begin=np.zeros(1),
        step_end=np.full(1, 3.0),
    )


def job_of(
    profile: JobProfile, workers: int = 4, servers: int = 1, latency: float = 0.0, **habits: Any
) -> TargetJob:
    """Return the job on alike workers and servers, 200 steps each, streams sent as a whole."""
    cluster = star(workers, servers, Link(BANDWIDTH, latency))
    settings = Settings(ports_of(cluster), **({"steps": 200} | habits))
    return target_job(profile, settings, seed=0)
