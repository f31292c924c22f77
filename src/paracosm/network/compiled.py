"""Messages that share a network, for compiled loops: one interface to all rules of sharing.

A loop plays an instant by calling `pop_end` until no message ends any more, `request` for whatever
begins, in order of request, then `settle`; and repeats this while `next_end` is still that instant.
Ends and requests may alternate within an instant; rates are undefined until `settle`. The rule is
known when the loop is compiled: there is nothing to choose at run time.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

from numba.extending import overload

from paracosm.cluster.link import Packets, Sharing
from paracosm.network import compiled_fair, compiled_packets, compiled_serial
from paracosm.network.compiled_fair import Fair, fair_traffic
from paracosm.network.compiled_packets import Queues, packet_traffic
from paracosm.network.compiled_serial import Serial, serial_traffic

__all__ = [
    "Traffic",
    "change_background",
    "earliest_end",
    "make_traffic",
    "next_end",
    "pop_end",
    "request",
    "settle",
]

Traffic = Fair | Serial | Queues


def make_traffic(
    sharing: Sharing,
    routes: Sequence[Sequence[int]],
    capacity: Sequence[float],
    room: Sequence[int],
    background: Collection[int] = (),
) -> Traffic:
    """Return the traffic of an idle network.

    Args:
        sharing: the rule.
        routes: stations of each route, as indices into `capacity`; each once in a route. Messages
            of one route are a stream of packets.
        capacity: bytes/s of each station; with serial sharing only their number counts.
        room: how many messages of each route wait or are under way at once, at most.
        background: stations for which `change_background` will be called (fair).
    """
    if isinstance(sharing, Packets):
        return packet_traffic(routes, capacity, room, sharing.quantum)
    if sharing == "serial":
        return serial_traffic(routes, capacity, room)
    return fair_traffic(routes, capacity, room, background)


_OPTIONS: Any = {
    "strict": False,
    "jit_options": {
        "forceinline": True,
        "_nrt": False,
        "nogil": True,
        "error_model": "numpy",
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
    },
}
_overload = cast(Callable[..., Callable[[Any], Any]], overload)


def _rule(traffic: Any) -> Any:
    """Return the module with the functions for a type of traffic."""
    rules = {Fair: compiled_fair, Serial: compiled_serial, Queues: compiled_packets}
    return rules[traffic.instance_class]


def request(
    traffic: Any, route: Any, message: Any, demand: Any, now: Any, weight: Any = 1.0
) -> Any:
    """Start a message, and return a number for it that `earliest_end` understands.

    Args:
        traffic: of `make_traffic`.
        route: its index. Concurrent messages of one sender to one receiver share like others:
            callers serialise them if needed.
        message: a number of the caller's, 0 or more.
        demand: picoseconds for which it holds its stations (serial) or that pass (over no station);
            bytes (fair, packets).
        now: picoseconds.
        weight: fair: rates of flows that share a station are in proportion to it.
    """
    raise NotImplementedError


def next_end(traffic: Any) -> Any:
    """Return the instant at which the next message ends; `LAST_INSTANT` if none is under way."""
    raise NotImplementedError


def earliest_end(traffic: Any, number: Any, now: Any) -> Any:
    """Return an instant before which a message that is under way or waits cannot end."""
    raise NotImplementedError


def pop_end(traffic: Any, now: Any) -> Any:
    """Return a message whose transfer ends at `now`, the one requested first; -1 for none.

    With serial sharing its stations go to waiting messages.
    """
    raise NotImplementedError


def settle(traffic: Any, now: Any) -> None:
    """Update rates after all begins and ends of an instant."""
    raise NotImplementedError


def change_background(traffic: Any, station: Any, weight: Any) -> None:
    """Set the sum of weights of background flows at one of `background` (fair)."""
    raise NotImplementedError


@_overload(request, **_OPTIONS)
def _request(
    traffic: Any, route: Any, message: Any, demand: Any, now: Any, weight: Any = 1.0
) -> Any:
    rule = _rule(traffic).request
    return lambda traffic, route, message, demand, now, weight=1.0: rule(
        traffic, route, message, demand, now, weight
    )


@_overload(next_end, **_OPTIONS)
def _next_end(traffic: Any) -> Any:
    rule = _rule(traffic).next_end
    return lambda traffic: rule(traffic)


@_overload(earliest_end, **_OPTIONS)
def _earliest_end(traffic: Any, number: Any, now: Any) -> Any:
    rule = _rule(traffic).earliest_end
    return lambda traffic, number, now: rule(traffic, number, now)


@_overload(pop_end, **_OPTIONS)
def _pop_end(traffic: Any, now: Any) -> Any:
    rule = _rule(traffic).pop_end
    return lambda traffic, now: rule(traffic, now)


@_overload(settle, **_OPTIONS)
def _settle(traffic: Any, now: Any) -> Any:
    rule = _rule(traffic).settle
    return lambda traffic, now: rule(traffic, now)


@_overload(change_background, **_OPTIONS)
def _change_background(traffic: Any, station: Any, weight: Any) -> Any:
    rule = _rule(traffic).change_background
    return lambda traffic, station, weight: rule(traffic, station, weight)
