"""How transfers of one direction share the ports of servers and workers.

All rules take the same, so that the paper's own can be put beside the one that holds for any ports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf, isfinite

from paracosm.errors import InputError

__all__ = ["Flow", "Ports", "Sharing", "equal_rates", "max_min", "two_server_rates"]

Flow = tuple[int, int]
"""The worker and the server of a transfer that is under way."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What limits the transfers of one direction, in bytes/s.

    Attributes:
        servers: bandwidth of each server's port.
        workers: bandwidth of each worker's port.
        background: flows beside the workers' through each server's port, which nothing else limits.
    """

    servers: tuple[float, ...]
    workers: tuple[float, ...]
    background: int = 0


Sharing = Callable[[Mapping[Flow, float], Ports], dict[Flow, float]]
"""A rule that gives flows, whose weights it gets, their rates in bytes/s."""


def max_min(flows: Mapping[Flow, float], ports: Ports) -> dict[Flow, float]:
    """Return the max-min fair rates: none can grow but at the cost of one that is no faster.

    By progressive filling (Bertsekas and Gallager, "Data Networks", 1992, section 6.5.2): all rates
    grow in proportion to the flows' weights until a port is full; its flows stay as they are, and
    the others grow on. In exact arithmetic and rounded once, so that flows in the same situation
    have the same rate.
    """
    servers = len(ports.servers)
    left = {
        port: Fraction(bandwidth)
        for port, bandwidth in enumerate((*ports.servers, *ports.workers))
        if isfinite(bandwidth)
    }
    weights: dict[object, Fraction] = {flow: Fraction(flows[flow]) for flow in flows}
    routes: dict[object, list[int]] = {flow: [flow[1], servers + flow[0]] for flow in flows}
    for server in range(servers):
        for number in range(ports.background):
            weights["background", server, number] = Fraction(1)
            routes["background", server, number] = [server]
    growing = {flow for flow in routes if left.keys() & routes[flow]}
    rates: dict[object, float] = dict.fromkeys(flows, inf)
    while growing:
        load = {
            port: sum((weights[flow] for flow in growing if port in routes[flow]), Fraction(0))
            for port in left
        }
        level = min(left[port] / load[port] for port in left if load[port] > 0)
        full = {port for port in left if load[port] > 0 and left[port] / load[port] == level}
        for flow in [flow for flow in growing if full & set(routes[flow])]:
            rates[flow] = float(level * weights[flow])
            growing.remove(flow)
            for port in left.keys() & routes[flow]:
                left[port] -= level * weights[flow]
    return {flow: rates[flow] for flow in flows}


def equal_rates(flows: Mapping[Flow, float], ports: Ports) -> dict[Flow, float]:
    """Return equal shares of the only server's bandwidth, whatever workers' ports and weights.

    `Share` of Algorithm 3.1 of Li et al. 2020, with background flows among the active ones.

    Raises:
        InputError: there are several servers.
    """
    if len(ports.servers) != 1:
        raise InputError(f"equal shares are those of one server's port, not of {ports.servers}")
    active = len(flows) + ports.background
    return dict.fromkeys(flows, ports.servers[0] / active) if flows else {}


def two_server_rates(flows: Mapping[Flow, float], ports: Ports) -> dict[Flow, float]:
    """Return the shares of two servers, all ports of one bandwidth, whatever the weights.

    Section 5 of Li et al. 2020: all connections with one server share its bandwidth equally; where
    a worker is the only one with a server and contends with n - 1 others for the other server, it
    has 1/n there, "but only up to 1 - 1/n" here, because its own port carries both.

    The paper does not say what a worker has that is alone with both servers; here, half of each.

    Raises:
        InputError: other than two servers, ports of several bandwidths, or background flows.
    """
    if len(ports.servers) != 2 or len({*ports.servers, *ports.workers}) != 1 or ports.background:
        raise InputError(
            "the rule of section 5 is for two servers, ports of one bandwidth and no background"
        )
    bandwidth = ports.servers[0]
    active = [sum(server == other for _, other in flows) for server in range(2)]
    rates = {}
    for worker, server in flows:
        n = active[1 - server]
        if active[server] == 1 and (worker, 1 - server) in flows:
            rates[worker, server] = bandwidth * (1 - 1 / max(n, 2))
        else:
            rates[worker, server] = bandwidth / active[server]
    return rates
