"""Where an op ran: on the worker, or on a parameter server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from paracosm.errors import InputError
from paracosm.graphs.importers.tensorflow.step_ops import StepOp, is_stream

__all__ = ["Place", "check_places", "place_of"]

SERVERS = "ps"
"""The job of the parameter servers: `replica_device_setter` and TF_CONFIG call it so."""

_DEVICE = re.compile(r"/job:(?P<job>[^/]+)(/replica:\d+)?/task:(?P<task>\d+)(/|$)")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One process of the job, as devices name it: "/job:ps/task:0"."""

    job: str
    task: int

    @property
    def is_server(self) -> bool:
        """Whether it is a parameter server."""
        return self.job == SERVERS

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.task}"


def place_of(device: str) -> Place | None:
    """Return the place of a device; None of one that names no job, as a GPU's streams do."""
    found = _DEVICE.match(device)
    return None if found is None else Place(found["job"], int(found["task"]))


def check_places(ops: Iterable[StepOp], where: str) -> None:
    """Refuse a step that is not one of one worker and its servers.

    Raises:
        InputError: no worker, several workers, or nobody but the worker; with an op of it.
    """
    first: dict[Place, str] = {}
    for op in ops:
        place = place_of(op.device)
        if place is not None:
            first.setdefault(place, op.name)
        elif not is_stream(op.device):
            raise InputError(f'{where}: {op.name}: device "{op.device}" names no job and task')
    workers = sorted(place for place in first if not place.is_server)
    if not workers:
        raise InputError(f"{where}: no op of a worker was traced, only of /job:{SERVERS}")
    if len(workers) == len(first) == 1:
        raise InputError(
            f"{where}: all ops ran on {workers[0]}, so nothing was transferred: profile a job of "
            "one worker and a parameter server (paracosm graph import reads the step of one "
            "machine)"
        )
    for place in workers:
        if len(workers) > 1 or (place.job == "worker" and place.task > 0):
            raise InputError(
                f"{where}: {first[workers[-1]]} ran on {workers[-1]}: the job had several workers, "
                "which share links and servers: profile it with one"
            )
