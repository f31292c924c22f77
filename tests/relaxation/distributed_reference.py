"""Distributed relaxation event by event, in plain Python and exact numbers: slow, and independent.

Nothing of the simulator is used but its random numbers. A message is a dict; ports are names.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from fractions import Fraction
from math import ceil, inf
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from paracosm.cluster import Cluster
from paracosm.cluster.link import Hierarchical

PS = 10**12


def ports_of(cluster: Cluster, source: int, target: int) -> dict[str, Fraction]:
    """Return the ports of messages between two workers, with bytes/s."""
    names = [node.name for node in cluster.nodes]
    link = cluster.link(names[source], names[target])
    topology = cluster.topology

    def leaves(a: int, b: int) -> bool:
        return isinstance(topology, Hierarchical) and topology.group(a) != topology.group(b)

    outer = leaves(source, target)

    def fastest(node: int) -> float:
        common = topology.outer if outer and isinstance(topology, Hierarchical) else topology.link
        found = [common.bandwidth]
        for a, b, own in cluster.overrides:
            ends = names.index(a), names.index(b)
            if node in ends and leaves(*ends) == outer:
                found.append(own.bandwidth)
        return max(found)

    found = {
        f"{source}.send.{outer}": fastest(source),
        f"{target}.receive.{outer}": fastest(target),
    }
    if link.duplex == "half":
        found |= {
            f"{source}.receive.{outer}": fastest(source),
            f"{target}.send.{outer}": fastest(target),
        }
    if link.sharing == "fair":
        pair = sorted((source, target)) if link.duplex == "half" else [source, target]
        found[f"between {pair}"] = link.bandwidth
        if link.bandwidth == inf:
            return {}
    return {name: room if room == inf else Fraction(room) for name, room in found.items()}


class Network:
    """All messages under way; `ended(link)` is called when one has left its ports."""

    def __init__(self, sharing: str, ended: Callable[[int, int], None]) -> None:
        self.sharing, self.ended = sharing, ended
        self.now = 0
        self.under_way: list[dict[str, Any]] = []  # in the order of requests

    def request(self, link: int, ports: dict[str, Any], seconds: float, work: Fraction) -> None:
        message = {"link": link, "ports": ports, "left": work, "due": None, "rate": None}
        if self.sharing == "serial" or not ports:
            message["lasts"] = round(seconds * PS)
        if not ports:
            message["due"] = self.now + message["lasts"]
        self.under_way.append(message)
        if self.sharing == "serial":
            self.start()

    def start(self) -> None:
        """Serial: let everybody who can start do so, the one who asked first before others."""
        for message in self.under_way:
            busy = {port for m in self.under_way if m["due"] is not None for port in m["ports"]}
            if message["due"] is None and not busy & message["ports"].keys():
                message["due"] = self.now + message["lasts"]

    def share(self) -> None:
        """Fair: fill all flows alike until a port is full, and so on (max-min)."""
        flows = [m for m in self.under_way if m["ports"]]
        left = {name: room for m in flows for name, room in m["ports"].items() if room != inf}
        open_ = list(flows)
        while open_:
            level, _ = min(
                (room / sum(name in m["ports"] for m in open_), name)
                for name, room in left.items()
                if any(name in m["ports"] for m in open_)
            )
            full = {
                name
                for name, room in left.items()
                if (users := sum(name in m["ports"] for m in open_)) and room / users == level
            }
            fixed = [m for m in open_ if full & m["ports"].keys()]
            for message in fixed:
                message["rate"] = level / PS
                for name in message["ports"].keys() & left.keys():
                    left[name] -= level
            open_ = [m for m in open_ if m not in fixed]
        for message in flows:
            least = message["left"] / message["rate"] - Fraction(1, 1024)
            message["due"] = self.now + max(ceil(least), 0)

    def play(self, until: int) -> None:
        while True:
            if self.sharing == "fair":
                self.share()
            due = min((m["due"] for m in self.under_way if m["due"] is not None), default=None)
            if due is None or due > until:
                self.move(until)
                return
            self.move(due)
            for message in [m for m in self.under_way if m["due"] == due]:
                self.under_way = [m for m in self.under_way if m is not message]
                if self.sharing == "serial":
                    self.start()
                self.ended(message["link"], due)

    def move(self, instant: int) -> None:
        for message in self.under_way:
            if message["rate"] is not None:
                message["left"] -= message["rate"] * (instant - self.now)
        self.now = instant


def relaxed(
    A: csr_array,
    b: Any,
    x0: Any,
    blocks: list[Any],
    cluster: Cluster,
    duration: Callable[[int, int], float],
    late: Callable[[int, int], float],
    until: float,
    at_start: bool,
    tree: int = 0,
    snapshot: int = 0,
) -> tuple[Any, list[tuple[float, int]], int, list[tuple[float, float, float]]]:
    """Return x, (instant, processor) of all updates, how many messages left, and what processor 0
    was told: (instant, sum of squared residuals, true one).

    A snapshot's messages say which one they are of: a request (2) goes down the tree, recorded
    rows (3) to who reads them, and a sum (1) up the tree.

    Args:
        duration: (processor, number of its update) -> seconds.
        late: (number of the link, of its message) -> seconds that it is late besides.
        tree: updates between two sums of residuals that go from i to (i - 1) // 2; 0: none do.
        snapshot: processor 0 asks for one at every so many updates, unless one is under way.
    """
    names = [node.name for node in cluster.nodes]
    owner = np.empty(b.size, int)
    for who, rows in enumerate(blocks):
        owner[rows] = who
    wanted: dict[tuple[int, int], set[int]] = {}
    for i, j in zip(*A.nonzero(), strict=True):
        if owner[i] != owner[j]:
            wanted.setdefault((int(owner[j]), int(owner[i])), set()).add(int(j))
    links = [(*pair, 0) for pair in wanted]
    if tree or snapshot:
        links += [(child, (child - 1) // 2, 1) for child in range(1, len(blocks))]
    if snapshot:
        links += [((child - 1) // 2, child, 2) for child in range(1, len(blocks))]
        links += [(*pair, 3) for pair in wanted]
    links.sort()
    pairs, kinds = [link[:2] for link in links], [link[2] for link in links]
    rows_of = [np.array(sorted(wanted.get(pair, [0]))) for pair in pairs]
    rows_of = [
        rows[:1] if kind in (1, 2) else rows for rows, kind in zip(rows_of, kinds, strict=True)
    ]
    keys = np.argsort(np.argsort(kinds, kind="stable")).tolist()
    waiting: list[Any] = [None] * len(pairs)
    on_wire: list[Any] = [None] * len(pairs)
    arrived: list[list[tuple[float, Any]]] = [[] for _ in pairs]
    sent = [0] * len(pairs)

    def ask(link: int) -> None:
        """Let the values that wait for a link be its message."""
        channel = cluster.link(*(names[end] for end in pairs[link]))
        size = 8 * rows_of[link].size
        on_wire[link], waiting[link] = waiting[link], None
        held = Fraction(channel.overhead) + (0 if channel.pipelined else Fraction(channel.latency))
        work = Fraction(0)
        if channel.bandwidth < inf:
            work = size + held * Fraction(channel.bandwidth)
        seconds = float(held) + size / channel.bandwidth
        network.request(link, ports_of(cluster, *pairs[link]), seconds, work)

    def ended(link: int, now: int) -> None:
        channel = cluster.link(*(names[end] for end in pairs[link]))
        there = now + (round(channel.latency * PS) if channel.pipelined else 0)
        # A link keeps the order of its messages.
        before = arrived[link][-1][0] if arrived[link] else 0.0
        arrived[link].append(
            (max(before, there / PS + late(keys[link], sent[link])), on_wire[link])
        )
        sent[link] += 1
        on_wire[link] = None
        if waiting[link] is not None:
            ask(link)

    network = Network(cluster.sharing, ended)
    knows = [x0.copy() for _ in blocks]
    pending = [np.zeros(0)] * len(blocks)
    counts, updates = [0] * len(blocks), []
    own: list[Any] = [None] * len(blocks)
    told = []
    # By processor: what of which snapshot it has heard, by kind and sender; its own part of which
    # it has recorded; whether it is to record with the update in flight; snapshots it is done with.
    heard: list[dict[tuple[int, int, int], Any]] = [{} for _ in blocks]
    recorded: list[dict[int, Any]] = [{} for _ in blocks]
    asked, done = [False] * len(blocks), [0] * len(blocks)

    def take_part(who: int) -> None:
        number, p = done[who], len(blocks)
        if own[who] is not None or asked[who]:
            return
        if number not in recorded[who]:
            by_parent = (number, 2, (who - 1) // 2) in heard[who]
            asked[who] = counts[0] % snapshot == 0 if who == 0 else by_parent
            return
        sources = [source for source, target in wanted if target == who]
        children = [child for child in (2 * who + 1, 2 * who + 2) if child < p]
        needed = [(number, 3, source) for source in sources]
        needed += [(number, 1, child) for child in children]
        if all(each in heard[who] for each in needed):
            x = np.full(b.size, np.nan)
            x[blocks[who]] = recorded[who][number]
            for source in sources:
                x[sorted(wanted[source, who])] = heard[who][number, 3, source]
            own[who] = np.sum((b - A @ x)[blocks[who]] ** 2)
            own[who] += sum(heard[who][number, 1, child] for child in children)

    def read(who: int, now: float) -> None:
        network.play(round(now * PS))
        below = 0.0
        for link, (source, target) in enumerate(pairs):
            if target == who:
                newest = inf
                for there, values in arrived[link]:
                    if there <= round(now * PS) / PS:
                        newest = values
                        if kinds[link] == 0:
                            knows[who][rows_of[link]] = values
                        elif snapshot:
                            heard[who][values[0], kinds[link], source] = values[1]
                below += newest if tree and kinds[link] == 1 else 0.0
        rows = blocks[who]
        if snapshot:
            take_part(who)
        if tree and counts[who] % tree == 0:
            own[who] = below + np.sum((b - A @ knows[who])[rows] ** 2)
        pending[who] = knows[who][rows] + (b - A @ knows[who])[rows] / A.diagonal()[rows]

    def iterate() -> Any:
        x = np.empty(b.size)
        for who, rows in enumerate(blocks):
            x[rows] = knows[who][rows]
        return x

    def write(who: int, now: float) -> None:
        network.play(round(now * PS))
        knows[who][blocks[who]] = pending[who]
        for link, (source, _) in enumerate(pairs):
            says = kinds[link] == 0 or (own[who] is not None if kinds[link] == 1 else asked[who])
            if source == who and says:
                values = own[who] if kinds[link] == 1 else knows[who][rows_of[link]].copy()
                waiting[link] = (done[who], values) if snapshot and kinds[link] else values
                if on_wire[link] is None:
                    ask(link)
        network.play(round(now * PS))
        if asked[who]:
            recorded[who][done[who]] = knows[who][blocks[who]].copy()
            asked[who] = False
        if own[who] is not None:
            done[who] += 1
            if who == 0:
                told.append((now, own[who]))
        own[who] = None
        updates.append((now, who))
        counts[who] += 1
        heapq.heappush(due, (now + duration(who, counts[who]), who))

    due = [(duration(who, 0), who) for who in range(len(blocks))]
    heapq.heapify(due)
    for who in range(len(blocks)):
        read(who, 0.0)
    while due[0][0] <= until:
        now, together = due[0][0], []
        while due[0][0] == now:
            _, who = heapq.heappop(due)
            if not at_start:
                read(who, now)
            write(who, now)
            together.append(who)
        if at_start:
            for who in together:
                read(who, now)
        if told and told[-1][0] == now:
            told[-1] = (*told[-1], np.sum((b - A @ iterate()) ** 2))
    in_ports = sum(message is not None for message in on_wire)
    return iterate(), updates, sum(sent) + in_ports, told
