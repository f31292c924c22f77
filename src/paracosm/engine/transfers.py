"""What becomes of a transfer: it gets its ports and gives them back. See `ports`."""

from __future__ import annotations

from heapq import heappush
from typing import TYPE_CHECKING

from paracosm.engine.mailbox import deliver

if TYPE_CHECKING:
    from paracosm.engine.ports import Port, Transfer
    from paracosm.engine.walker import Continuation

__all__ = ["complete", "hand_over", "request"]


def request(transfer: Transfer) -> None:
    """Start the transfer, or let it wait at a port that it needs and that is busy."""
    route = transfer.route
    if route.half:
        for port in route.ports:
            if port.busy is not None:
                port.park(transfer)
                return
        for port in route.ports:
            port.busy = transfer
    else:
        # The same for two ports, without the loops.
        incoming, outgoing = route.incoming, route.outgoing
        if outgoing.busy is not None:
            outgoing.park(transfer)
            return
        if incoming.busy is not None:
            incoming.park(transfer)
            return
        incoming.busy = outgoing.busy = transfer
    sim = route.sim
    now = transfer.began = sim.now
    heappush(sim._near, (now + transfer.occupancy, sim._tick(), sim._complete, transfer))


def hand_over(transfer: Transfer) -> Transfer:
    """Let a message arrive within its node, at once."""
    sim = transfer.route.sim
    transfer.number = sim._tick()
    transfer.occupancy = 0.0
    transfer.began = sim.now
    sim._deliver(transfer)
    return transfer


def complete(transfer: Transfer) -> Continuation | None:
    """Give the ports back, let those that wait for them start, and deliver the message.

    Returns:
        The continuation of the walker that gets the message, for the loop to resume; None if there
        is none, or if it is resumed in another way.
    """
    route = transfer.route
    route.transfers += 1
    route.bytes += transfer.size
    route.busy_time += transfer.occupancy
    incoming, outgoing = route.incoming, route.outgoing
    incoming.busy = outgoing.busy = None
    if route.half:
        for port in route.ports:
            port.busy = None
        _serve(route.ports)
    elif outgoing.waiting:
        _serve(route.ports)
    else:
        # `_serve` where only the receive port is asked for. Nobody can come to wait at the send
        # port meanwhile: it is free.
        while incoming.waiting and incoming.busy is None:
            request(incoming.pop())
    if transfer.propagation:
        sim = route.sim
        heappush(sim._near, (sim.now + transfer.propagation, sim._tick(), sim._deliver, transfer))
        return None
    # `deliver` for the common case: the first walker takes it, and nobody awaits its arrival.
    mailbox = route.mailbox
    first = mailbox.first
    if first is not None and transfer.awaited is None:
        tag = mailbox.first_tag
        if tag is None or tag == transfer.tag:
            mailbox.first = first.place = None
            transfer.arrived = route.sim.now
            return first
    deliver(transfer)
    return None


def _serve(ports: tuple[Port, ...]) -> None:
    """Let those that wait at any of `ports` start or move on, in the order of their requests."""
    while True:
        oldest = None
        for port in ports:
            if port.waiting and port.busy is None and (oldest is None or port.first < oldest.first):
                oldest = port
        if oldest is None:
            return
        request(oldest.pop())
