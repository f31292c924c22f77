"""Streams that take turns at ports, one turn after the other, in exact arithmetic.

The plain program that `paracosm.network.packets` is held to. Rates are max-min fair, worked out
anew whenever a message begins or ends; the first port that limits a stream serves it. Messages end
at whole picoseconds, as soon as all but what 1/1024 ps brings has been served.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

__all__ = ["Asked", "ends_of"]

FORGIVEN = Fraction(1, 1024)


@dataclass(frozen=True)
class Asked:
    """A message: when it is asked for (ps), the number of its stream, and its bytes."""

    at: int
    stream: int
    size: int


@dataclass
class _Message:
    stream: int
    left: Fraction
    turn: Fraction
    port: int = -1


@dataclass
class _Port:
    line: list[int] = field(default_factory=list)  # messages; the first one is served
    rate: Fraction = Fraction(0)
    stream: int = -1  # whose message ended last, when, with so much left of its turn
    ended: int = -1
    rest: Fraction = Fraction(0)


def ends_of(
    asked: Sequence[Asked], ways: Sequence[Sequence[int]], capacity: Sequence[int], quantum: int
) -> dict[int, int]:
    """Return the picosecond at which each message ends.

    Args:
        asked: in the order of their instants.
        ways: ports that each stream passes.
        capacity: bytes/ps of each port.
        quantum: bytes of a turn.
    """
    messages: dict[int, _Message] = {}
    ports = [_Port() for _ in capacity]
    ends: dict[int, int] = {}
    now = begun = 0
    while len(ends) < len(asked):
        dues = [_next_end(port, messages, now, quantum) for port in ports if port.line]
        then = min([*dues, *(each.at for each in asked[begun : begun + 1])])
        over = [
            number
            for port in ports
            for number in _serve(port, messages, Fraction(then - now), quantum, then)
        ]
        now = then
        for number in over:
            message, each = messages.pop(number), asked[number]
            narrowest = min(capacity[port] for port in ways[message.stream])
            ends[number] = max(now, ceil(each.at + Fraction(each.size, narrowest) - FORGIVEN))
        while begun < len(asked) and asked[begun].at == now:
            each = asked[begun]
            messages[begun] = _Message(each.stream, Fraction(each.size), Fraction(quantum))
            begun += 1
        _arrange(ports, messages, ways, capacity, now)
    return ends


def _next_end(port: _Port, messages: dict[int, _Message], now: int, quantum: int) -> int:
    """Play a port's turns until one of its messages ends."""
    line = [(number, messages[number].left, messages[number].turn) for number in port.line]
    served = Fraction(0)
    while True:
        number, left, turn = line.pop(0)
        served += min(left, turn)
        if left <= turn:
            return now + max(0, ceil(served / port.rate - FORGIVEN))
        line.append((number, left - turn, Fraction(quantum)))


def _serve(
    port: _Port, messages: dict[int, _Message], lasts: Fraction, quantum: int, now: int
) -> list[int]:
    """Serve one turn after the other; return the messages that end."""
    amount, forgiven = port.rate * lasts, port.rate * FORGIVEN
    over = []
    while port.line:
        head = messages[port.line[0]]
        if head.left <= min(amount + forgiven, head.turn):
            over.append(port.line.pop(0))
            amount = max(Fraction(0), amount - head.left)
            port.stream, port.ended, port.rest = head.stream, now, head.turn - head.left
        elif head.turn <= amount and amount > 0:
            amount -= head.turn
            head.left -= head.turn
            head.turn = Fraction(quantum)
            port.line.append(port.line.pop(0))
        else:
            head.left -= amount
            head.turn -= amount
            break
    return over


def _arrange(
    ports: list[_Port],
    messages: dict[int, _Message],
    ways: Sequence[Sequence[int]],
    capacity: Sequence[int],
    now: int,
) -> None:
    """Let every message wait at the port that limits it, and set the rates of ports."""
    limits, rates = _max_min(
        {at: ways[message.stream] for at, message in messages.items()}, capacity
    )
    for number, message in sorted(messages.items()):
        if message.port == limits[number]:
            continue
        is_new = message.port < 0
        if not is_new:
            ports[message.port].line.remove(number)
        port = ports[limits[number]]
        message.port = limits[number]
        if is_new and port.ended == now and port.stream == message.stream and port.rest > 0:
            message.turn, port.stream = port.rest, -1
            port.line.insert(0, number)
        else:
            port.line.append(number)
    for port in ports:
        port.rate = sum((rates[number] for number in port.line), Fraction(0))


def _max_min(
    ways: dict[int, Sequence[int]], capacity: Sequence[int]
) -> tuple[dict[int, int], dict[int, Fraction]]:
    """Return the first port that limits each flow, and its max-min fair rate."""
    limits: dict[int, int] = {}
    rates: dict[int, Fraction] = {}
    left = [Fraction(each) for each in capacity]
    while len(rates) < len(ways):
        growing = [flow for flow in ways if flow not in rates]
        share = {
            port: left[port] / load
            for port in range(len(capacity))
            if (load := sum(port in ways[flow] for flow in growing))
        }
        level = min(share.values())
        narrow = {port for port in share if share[port] == level}
        for flow in growing:
            if narrow & set(ways[flow]):
                limits[flow], rates[flow] = min(narrow & set(ways[flow])), level
                for port in ways[flow]:
                    left[port] -= level
    return limits, rates
