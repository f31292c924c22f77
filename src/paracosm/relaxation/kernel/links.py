"""Which processors read whose rows: the links of distributed memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paracosm.errors import InputError
from paracosm.network import Connection, Stations
from paracosm.network.compiled import make_traffic
from paracosm.relaxation.kernel.arrays import Halos, Ports
from paracosm.relaxation.spec import RunSpec
from paracosm.rng import RelaxationStream, stream_keys

__all__ = ["BYTES", "halo_links", "no_links", "with_more_room"]

BYTES = 8  # of one value
_CAPACITY = 4  # messages under way on a link, to begin with


def no_links() -> Halos:
    """Return the halos of shared memory: none."""
    w, f = np.zeros(0, np.int64), np.zeros(0)
    keys, flags = np.zeros(0, np.uint64), np.zeros(1, np.bool_)
    return Halos(
        w, w, f, f, f, w, w, w, w, w, w, f, f, w, keys, flags, f, f, f, w, np.zeros((0, 0)),
        np.zeros((0, 0), np.int64), np.zeros((0, 0)), np.zeros((0, 0), np.int64),
        np.zeros((0, 0), np.int64), w, np.zeros(1, np.int64), w, w, w, f,
    )  # fmt: skip


def halo_links(spec: RunSpec, jitter: int) -> tuple[Halos, Ports | None]:
    """Return the links of the run's pattern, every processor knowing the first iterate.

    And the ports that they share; None where nothing is shared.

    Args:
        spec: a run in distributed memory.
        jitter: row of the table of distributions that adds to latencies, or -1.

    Raises:
        InputError: a pattern whose blocks overlap or change hands.
    """
    problem, pattern, cluster, ticks = spec.problem, spec.pattern, spec.cluster, spec.ticks
    assert cluster is not None
    names = cluster.workers
    A, n = problem.A, problem.n
    if pattern.choice != "fixed" or pattern.rows.size != n:
        raise InputError(
            f"distributed memory: pattern {pattern.name} lets several processors write a row; "
            "use one whose blocks do not overlap and stay"
        )
    processors = pattern.processors
    owner = np.empty(n, np.int64)
    owner[pattern.rows] = np.repeat(np.arange(processors), np.diff(pattern.pointer))
    reader = np.repeat(owner, np.diff(A.indptr))
    writer = owner[A.indices]
    outside = np.flatnonzero(reader != writer)
    # One place for each (reader, row) that is read from outside, grouped by link.
    wanted = np.stack([writer[outside], reader[outside], A.indices[outside].astype(np.int64)])
    places, inverse = np.unique(wanted, axis=1, return_inverse=True)
    source = A.indices.astype(np.int64)
    source[outside] = -1 - inverse.ravel()
    pairs, first = np.unique(places[:2], axis=1, return_index=True)
    links = pairs.shape[1]
    link = np.append(first, places.shape[1]).astype(np.int64)
    stations = Stations(cluster)
    channels = [stations.connect(names[a], names[b]) for a, b in pairs.T.tolist()]
    sizes = (BYTES * np.diff(link)).tolist()
    into = np.argsort(pairs[1], kind="stable")
    shape = (links, _CAPACITY)
    halos = Halos(
        pointer=A.indptr.astype(np.int64),
        source=source,
        data=A.data.copy(),
        residual=np.zeros(n),
        have=problem.x0[places[2]].copy(),
        link=link,
        rows=places[2].astype(np.int64),
        out_pointer=_pointer(pairs[0], processors),
        out=np.arange(links, dtype=np.int64),
        into_pointer=_pointer(pairs[1], processors),
        into=into.astype(np.int64),
        occupancy=np.array(
            [c.link.occupancy(size) for c, size in zip(channels, sizes, strict=True)],
            np.float64,
        )
        * ticks,
        latency=np.array(
            [c.link.propagation(size) for c, size in zip(channels, sizes, strict=True)], np.float64
        )
        * ticks,
        jitter=np.full(links, jitter, np.int64),
        streams=stream_keys(spec.seed, RelaxationStream.MESSAGES, links),
        ordered=np.array([spec.config.order == "ordered"]),
        ticks=np.array([ticks]),
        free_at=np.full(links, -np.inf),
        waiting=np.zeros(places.shape[1]),
        wait_count=np.full(links, -1, np.int64),
        payload=np.zeros((_CAPACITY, places.shape[1])),
        buffer=np.tile(np.arange(_CAPACITY, dtype=np.int64), (links, 1)),
        arrival=np.zeros(shape),
        number=np.zeros(shape, np.int64),
        news=np.zeros(shape, np.int64),
        under_way=np.zeros(links, np.int64),
        fullest=np.zeros(1, np.int64),
        sent=np.zeros(links, np.int64),
        version=np.full(links, -1, np.int64),
        missed=np.full(links, -1, np.int64),
        last_arrival=np.full(links, -np.inf),
    )
    return halos, _ports(stations, channels, sizes)


def _ports(
    stations: Stations, channels: Sequence[Connection], sizes: Sequence[int]
) -> Ports | None:
    """Return the ports of the links; None where no message ever waits for another one's bytes."""
    demand = [channel.demand(size) for channel, size in zip(channels, sizes, strict=True)]
    if not any(channel.stations and asked for channel, asked in zip(channels, demand, strict=True)):
        return None
    return Ports(
        traffic=make_traffic(
            stations.sharing, stations.routes, stations.capacity, [1] * len(channels)
        ),
        route=np.array(
            [channel.number if channel.stations else -1 for channel in channels], np.int64
        ),
        demand=np.array(demand, np.float64),
        propagation=np.array(
            [c.propagation(size) for c, size in zip(channels, sizes, strict=True)], np.int64
        ),
        unsettled=np.array([-1], np.int64),
    )


def with_more_room(halos: Halos) -> Halos:
    """Return the same halos with room for twice as many messages under way."""
    links, capacity = halos.arrival.shape

    def doubled(array: np.ndarray, axis: int) -> np.ndarray:
        return np.concatenate([array, np.zeros_like(array)], axis=axis)

    buffer = np.tile(np.arange(2 * capacity, dtype=np.int64), (links, 1))
    buffer[:, :capacity] = halos.buffer
    return halos._replace(
        payload=doubled(halos.payload, 0),
        buffer=buffer,
        arrival=doubled(halos.arrival, 1),
        number=doubled(halos.number, 1),
        news=doubled(halos.news, 1),
    )


def _pointer(who: np.ndarray, processors: int) -> np.ndarray:
    counts = np.bincount(who, minlength=processors)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
