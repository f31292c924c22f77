"""Random jobs with parameter servers, the systems they run on, and what is drawn.

Their shape comes from Hypothesis; numbers from a generator, so that nothing happens at one time by
chance, and simulations that round differently agree on what comes first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import numpy as np
from hypothesis import strategies as st
from plain_systems import port_routes

from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER
from paracosm.simulation.system import System, Workload

USUAL = np.zeros((4, 4), bool)
"""Whether the ops of one resource are waited for by those of another in jobs as they are."""
for before, after in (
    *((DOWNLINK, WORKER), (WORKER, WORKER), (WORKER, UPLINK)),
    *((UPLINK, SERVER), (SERVER, SERVER)),
):
    USUAL[before, after] = True


@dataclass(frozen=True)
class Case:
    workload: Workload
    system: System
    drawn: np.ndarray


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    most_workers: int = 5,
    most_servers: int = 3,
    plain: bool = False,
) -> Case:
    """Return any job on any system; a plain one has equal ports, no background and no delays."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    servers = draw(st.integers(1, most_servers))
    workers = draw(st.integers(1, most_workers))
    workload = draw(workloads(rng, servers, plain=plain))
    drawn = rng.integers(workload.steps, size=(workers, draw(st.integers(1, 4))))
    system = draw(systems(rng, workload, servers, workers, plain=plain))
    if not plain and draw(st.booleans()):
        system = replace(system, weight=rng.uniform(0.5, 2.0, drawn.shape))
    return Case(workload, system, drawn)


@st.composite
def workloads(
    draw: st.DrawFn, rng: np.random.Generator, servers: int, *, plain: bool = False
) -> Workload:
    """Return steps of one random graph of ops; a third of numbers may be 0."""
    ops = draw(st.integers(1, 14))
    steps = draw(st.integers(1, 3))
    zeros = 0.0 if plain else draw(st.sampled_from([0.0, 0.3]))
    resource = rng.integers(4, size=ops).astype(np.int8)
    transfer = np.isin(resource, (DOWNLINK, UPLINK))
    edges = np.triu(rng.random((ops, ops)) < draw(st.sampled_from([0.1, 0.3])), 1)
    if draw(st.booleans()):
        edges &= USUAL[np.ix_(resource, resource)]
    # Ops are numbered at random, not as they depend on each other.
    number = rng.permutation(ops)
    edges = edges[np.ix_(number, number)]
    roots = np.flatnonzero(~edges.any(axis=0))
    rows = [rng.permutation(np.flatnonzero(row)) for row in edges]
    seconds = _numbers(rng, (steps, ops), zeros)
    delays = not plain and draw(st.booleans())
    seconds[:, transfer] *= 0.2 if delays else 0.0
    late = not plain and draw(st.booleans())
    release = np.sort(_numbers(rng, (steps, len(roots)), 0.5), axis=1) * late
    return Workload(
        resource=resource,
        server=np.where(resource == WORKER, 0, rng.integers(servers, size=ops)),
        size=np.where(transfer, _numbers(rng, (ops,), zeros), 0.0),
        seconds=seconds,
        waits=edges.sum(axis=0).astype(np.int64),
        first_dependent=np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64),
        dependents=np.concatenate(rows).astype(np.int64),
        roots=np.array([rng.permutation(roots) for _ in range(steps)], np.int64),
        release=release,
        gap=_numbers(rng, (steps,), zeros),
    )


@st.composite
def systems(
    draw: st.DrawFn,
    rng: np.random.Generator,
    workload: Workload,
    servers: int,
    workers: int,
    *,
    plain: bool = False,
) -> System:
    """Return a random system for the workload."""

    def ports(number: int) -> np.ndarray:
        return rng.uniform(0.3, 3.0, number) if uneven else np.ones(number)

    uneven = not plain and draw(st.booleans())
    wide = not plain and draw(st.booleans())
    changes = 0 if plain else draw(st.integers(0, 3))
    return System(
        routes=port_routes(
            ports(servers),
            ports(servers),
            np.full(workers, inf) if wide else ports(workers),
            np.full(workers, inf) if wide else ports(workers),
            np.zeros(workers) if plain else _numbers(rng, (workers,), 0.5) * 0.1,
        ),
        speed=np.ones(workers) if plain else rng.uniform(0.5, 2.0, workers),
        start=_numbers(rng, (workers,), 0.0) * draw(st.sampled_from([0.1, 3.0])),
        window=draw(st.sampled_from([inf, 0.7])),
        priority=draw(st.sampled_from([None, rng.integers(4, size=workload.ops).astype(float)])),
        cores=draw(st.integers(0, 2)),
        backup=draw(st.sampled_from([None, *range(min(workers, 3))])),
        background_times=np.sort(_numbers(rng, (changes,), 0.0) * 4),
        background_down=rng.integers(4, size=changes),
        background_up=rng.integers(4, size=changes),
    )


def whole_numbers(rng: np.random.Generator) -> Workload:
    """Return two steps of a dozen ops in layers, whose bytes and seconds are 0 to 4."""
    ops = 12
    resource = rng.integers(4, size=ops).astype(np.int8)
    edges = np.triu(rng.random((ops, ops)) < 0.2, 1)
    if rng.random() < 0.5:
        edges &= USUAL[np.ix_(resource, resource)]
    transfer = resource % 2 == 0
    roots = np.flatnonzero(~edges.any(axis=0))
    rows = [np.flatnonzero(row) for row in edges]
    seconds = rng.integers(5, size=(2, ops)).astype(float)
    seconds[:, transfer] = np.where(rng.random((2, transfer.sum())) < 0.5, 0.0, 1.0)
    return Workload(
        resource=resource,
        server=np.zeros(ops, np.int64),
        size=np.where(transfer, rng.integers(5, size=ops), 0).astype(float),
        seconds=seconds,
        waits=edges.sum(axis=0).astype(np.int64),
        first_dependent=np.cumsum([0, *(len(row) for row in rows)], dtype=np.int64),
        dependents=np.concatenate(rows).astype(np.int64),
        roots=np.array([rng.permutation(roots) for _ in range(2)], np.int64),
        release=np.sort(rng.integers(3, size=(2, len(roots))), axis=1).astype(float),
        gap=rng.integers(3, size=2).astype(float),
    )


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], zeros: float) -> np.ndarray:
    """Return numbers around 1, some of them 0."""
    return np.where(rng.random(shape) < zeros, 0.0, rng.uniform(0.2, 2.0, shape))
