"""How much faster, or slower, the devices of a cluster's nodes are than the one that was timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paracosm.cluster import Cluster
from paracosm.errors import InputError
from paracosm.graphs import Graph
from paracosm.prediction.durations import find_durations
from paracosm.prediction.environment import choose_environment
from paracosm.prediction.predict import predict
from paracosm.profiling.environment import Environment


@dataclass(frozen=True)
class DeviceSpeeds:
    """Speeds of devices, relative to the one whose timings are used.

    Attributes:
        factor: by the name that the cluster gives a device.
        origin: how each is known, in words.
    """

    factor: dict[str, float]
    origin: dict[str, str]


def device_of(cluster: Cluster) -> str | None:
    """Return the device of most workers; None where none has a name."""
    names = [cluster.node(worker).device for worker in cluster.workers]
    known = [name for name in names if name is not None]
    return max(dict.fromkeys(known), key=known.count, default=None)


def device_speeds(
    cluster: Cluster,
    graph: Graph,
    environment: Environment,
    time: float,
    path: Path,
    *,
    cache: str,
    seed: int,
) -> DeviceSpeeds:
    """Return the speed of every device that a worker's node names.

    A device that the database has timings of is as fast as the whole graph is on it; one that it
    knows nothing of is as fast as the one that was timed, and only the node's own speed counts.

    Args:
        environment: whose timings are used.
        time: seconds of the ops of the graph with them.
        path: the database.

    Raises:
        InputError: a device may be several environments of the database.
    """
    from paracosm.profiling.database import ProfileDatabase

    names = dict.fromkeys(cluster.node(worker).device for worker in cluster.workers)
    with ProfileDatabase.open(path, readonly=True) as database:
        held = [(each, count) for each, count in database.environments() if count]
    found = DeviceSpeeds({}, {})
    for name in names:
        if name is None:
            continue
        other = _environment(held, environment, name, path)
        if other == environment:
            factor, origin = 1.0, ""
        elif other is None:
            factor, origin = 1.0, f"no timings: taken for {environment.hardware}"
        else:
            durations = find_durations(graph, path, other, cache=cache, seed=seed).durations
            there = predict(graph, durations, free_communication=True).duration.sum()
            factor = float(time / there)
            origin = f"{factor:.3g} times as fast by the timings of {other.hardware}"
        found.factor[name] = factor
        if origin:
            found.origin[name] = origin
    return found


def unknown_devices(cluster: Cluster) -> DeviceSpeeds:
    """Return speeds of 1 for the devices that a worker's node names: there are no timings."""
    named = [cluster.node(worker).device for worker in cluster.workers]
    names = dict.fromkeys(name for name in named if name is not None)
    told = "no timings: taken to be as fast as the graph's"
    return DeviceSpeeds(dict.fromkeys(names, 1.0), dict.fromkeys(names, told))


def with_devices(cluster: Cluster, speeds: DeviceSpeeds) -> Cluster:
    """Return the cluster with the speeds of its nodes multiplied by those of their devices."""
    nodes = tuple(
        replace(node, speed=node.speed * speeds.factor.get(node.device or "", 1.0))
        for node in cluster.nodes
    )
    return replace(cluster, nodes=nodes)


def _environment(
    held: Sequence[tuple[Environment, int]], used: Environment, name: str, path: Path
) -> Environment | None:
    fits = [each for each, _ in held if name.lower() in f"{each.device}, {each}".lower()]
    if used in fits:
        return used
    if not fits:
        return None
    try:
        return choose_environment(held, None, name, str(path))
    except InputError as error:
        raise InputError(f"cluster: device {name}: {error}") from None
