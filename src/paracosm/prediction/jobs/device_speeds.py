"""How much faster, or slower, the devices of a cluster's nodes are than the one that was timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paracosm.cluster import Cluster
from paracosm.errors import InputError
from paracosm.prediction.durations import find_durations
from paracosm.prediction.predict import Prediction, predict
from paracosm.prediction.replica import TimedReplica, choose_environment
from paracosm.profiling.environment import Environment


@dataclass(frozen=True)
class DeviceSpeeds:
    """Speeds of devices, relative to the one whose timings are used."""

    factor: dict[str, float]  # by the name that the cluster gives a device
    origin: dict[str, str]  # how each is known, in words


def device_of(cluster: Cluster) -> str | None:
    """Return the device of most workers; None where none has a name."""
    names = [cluster.node(worker).device for worker in cluster.workers]
    known = [name for name in names if name is not None]
    return max(dict.fromkeys(known), key=known.count, default=None)


def device_speeds(
    cluster: Cluster,
    replica: TimedReplica,
    alone: Prediction,
    path: Path,
    *,
    cache: str,
    seed: int,
) -> DeviceSpeeds:
    """Return the speed of every device that a worker's node names.

    A device that the database has timings of is as fast as the whole graph is on it; one that it
    knows nothing of is as fast as the one that was timed, and only the node's own speed counts.
    `alone` is the graph on the device that was timed, without communication.

    Raises:
        InputError: a device may be several environments of the database at `path`.
    """
    named = [cluster.node(worker).device for worker in cluster.workers]
    names = dict.fromkeys(name for name in named if name is not None)
    if replica.environment is None:
        told = "no timings: taken to be as fast as the graph's"
        return DeviceSpeeds(dict.fromkeys(names, 1.0), dict.fromkeys(names, told))
    from paracosm.profiling.database import ProfileDatabase

    with ProfileDatabase.open(path, readonly=True) as database:
        held = [(each, count) for each, count in database.environments() if count]
    found = DeviceSpeeds(dict.fromkeys(names, 1.0), {})
    for name in names:
        other = _environment(held, replica.environment, name, path)
        if other is None:
            found.origin[name] = f"no timings: taken for {replica.environment.hardware}"
        elif other != replica.environment:
            durations = find_durations(replica.graph, path, other, cache=cache, seed=seed).durations
            there = predict(replica.graph, durations, free_communication=True).duration.sum()
            factor = found.factor[name] = float(alone.duration.sum() / there)
            found.origin[name] = f"{factor:.3g} times as fast by the timings of {other.hardware}"
    return found


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
