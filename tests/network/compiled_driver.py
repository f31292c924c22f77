"""The compiled network played from Python: messages that are asked for at instants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paracosm.cluster.link import Sharing
from paracosm.compiled import compiled_whole
from paracosm.network.clock import LAST_INSTANT
from paracosm.network.compiled import (
    change_background,
    make_traffic,
    next_end,
    pop_end,
    request,
    settle,
)

__all__ = ["Message", "play"]


@dataclass(frozen=True)
class Message:
    """When it is asked for (ps), over which route, for how much, with which weight."""

    at: int
    route: int
    demand: float
    weight: float = 1.0


@compiled_whole
def _play(traffic: Any, at: Any, route: Any, demand: Any, weight: Any, order: Any) -> Any:
    ended, asked = 0, 0
    while True:
        now = next_end(traffic)
        if asked < at.size:
            now = min(now, at[asked])
        if now == LAST_INSTANT:
            return ended
        message = pop_end(traffic, now)
        while message >= 0:
            order[ended, 0], order[ended, 1] = message, now
            ended += 1
            message = pop_end(traffic, now)
        while asked < at.size and at[asked] == now:
            request(traffic, route[asked], asked, demand[asked], now, weight[asked])
            asked += 1
        settle(traffic, now)


@compiled_whole
def _background(traffic: Any, station: Any, weight: Any) -> None:
    change_background(traffic, station, weight)


def play(
    sharing: Sharing,
    messages: Sequence[Message],
    routes: Sequence[Sequence[int]],
    capacity: Sequence[float],
    background: dict[int, float] | None = None,
) -> list[tuple[int, int]]:
    """Return (message, picosecond of its end), in the order of ends; `capacity` in bytes/ps.

    Messages come in the order of their instants.
    """
    room = np.bincount([message.route for message in messages], minlength=len(routes)).tolist()
    others = background or {}
    traffic = make_traffic(sharing, routes, [each * 1e12 for each in capacity], room, list(others))
    for station, weight in others.items():
        _background(traffic, station, weight)
    order = np.zeros((len(messages), 2), dtype=np.int64)
    ended = _play(
        traffic,
        np.array([message.at for message in messages], dtype=np.int64),
        np.array([message.route for message in messages], dtype=np.int64),
        np.array([message.demand for message in messages], dtype=np.float64),
        np.array([message.weight for message in messages], dtype=np.float64),
        order,
    )
    return [(int(message), int(instant)) for message, instant in order[:ended]]
