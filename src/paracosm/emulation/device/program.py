"""A job from recordings: what its ranks' hosts, streams and groups do, and when.

Host, streams and groups of a rank are lanes. The host takes a row for each request; an op begins
on its stream once the host has asked for it, the ops before it are done, and what its stream waits
for has come. Collectives run on a lane for each group, as NCCL has a stream for each communicator,
messages on one for each pair and direction. Only what a script waits for, it waits for: a stream
by an event or a collective's handle, the host by a synchronisation or a value that it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paracosm.arrays import Ints
from paracosm.cluster import Cluster
from paracosm.cluster.changes import Change
from paracosm.cluster.collectives import collective_times, message_link, shares_ports
from paracosm.emulation.device.durations import DeviceDurations
from paracosm.emulation.device.recording import (
    COLLECTIVE,
    COPY,
    DEVICE,
    EVENT,
    GRAPH,
    HOST,
    OP,
    RECORD,
    STREAM,
    WAIT,
    WAIT_EVENT,
    Call,
    Recording,
    iterations_of,
)
from paracosm.emulation.kinds import groups_like
from paracosm.emulation.records import MESSAGES, ROOTED
from paracosm.errors import InputError
from paracosm.graphs.graph import PHASES
from paracosm.jobs.job import STEPS, Job
from paracosm.jobs.strategies.work import COMMUNICATION, COMPUTE
from paracosm.jobs.strategies.work import HOST as HOST_LANE
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job

_REPEATED = 2  # times that the last iteration is played again, as the steady state


@dataclass(frozen=True, eq=False)
class ScriptJob:
    """A job of recorded ranks, and where their iterations end."""

    job: Job  # of all ranks; of the recorded ones alone where groups do not show the others'
    recorded: tuple[int, ...]  # ranks of the job that were recorded, in the order of recordings
    ends: tuple[Ints, ...]  # of each recording, the rows at which iterations end
    collectives: tuple[Mapping[Call, float], ...]  # seconds of each distinct one, by recording
    is_whole: bool  # whether it has all ranks


@dataclass(frozen=True)
class HostCosts:
    """Seconds of the host for what it asks of the device."""

    op: float = 5e-6
    collective: float = 5e-6
    in_optimizer: float | None = None  # for an op of the optimizer; None for that of any op
    is_device: bool = False  # whether it computes itself: a CPU


def script_job(
    recordings: Sequence[Recording],
    durations: Sequence[DeviceDurations],
    cluster: Cluster,
    *,
    host: HostCosts | None = None,
    factor: float = 1.0,
    slowdown: float = 1.0,
    algorithm: str = "auto",
    changes: Sequence[Change] = (),
) -> ScriptJob:
    """Return the job of recordings, of which each stands for all ranks that do the same.

    Args:
        recordings: one for each rank that is played; messages are between these.
        durations: of their ops.
        cluster: whose worker i is rank i.
        host: what the host takes for a request.
        factor: by which all ops take longer.
        slowdown: of computing while collectives of the largest group are under way.
        algorithm: of collectives.
        changes: of collectives.

    Raises:
        InputError: a message to or from a rank that was not recorded; an algorithm that is unknown.
    """
    books = Codebook([COMPUTE, HOST_LANE]), Codebook([HOST_LANE, COMPUTE]), Codebook()
    costs = CollectiveCosts(cluster, algorithm, tuple(changes))
    world = _World.of(recordings, len(cluster.workers))
    count = min(len(iterations_of(recording)) for recording in recordings)
    writers, ends = [], []
    for place, (recording, times) in enumerate(zip(recordings, durations, strict=True)):
        writer = ProgramWriter(*books)
        seconds = (times.seconds * factor).tolist()
        rank = _Rank(recording, writer, seconds, costs, lanes_of(recording), host or HostCosts())
        iterations = iterations_of(recording)[:count]
        played = [iterations[-1], *iterations, *[iterations[-1]] * _REPEATED]
        ends.append(np.array([rank.play(iteration) for iteration in played], dtype=np.int64))
        writers.append(writer)
        world.join(place, recording)
    speeds = [cluster.node(cluster.workers[rank]).speed for rank in world.ranks]
    job = write_job(
        writers,
        world.program,
        write_communicators(world.members),
        world.of_role,
        speed=speeds,
        labels=[f"rank {rank}" for rank in world.ranks],
    )
    if slowdown > 1:
        job = replace(job, slowdown=slowdown)
    return ScriptJob(
        job=job,
        recorded=tuple(world.ranks.index(recording.rank) for recording in recordings),
        ends=tuple(ends),
        collectives=tuple(costs.of_rank(recording.rank) for recording in recordings),
        is_whole=len(world.ranks) == len(cluster.workers),
    )


class CollectiveCosts:
    """Seconds of collectives and messages on a cluster, with the changes of what-ifs."""

    def __init__(self, cluster: Cluster, algorithm: str, changes: Sequence[Change]) -> None:
        self._cluster, self._algorithm, self._changes = cluster, algorithm, changes
        self._known: dict[tuple[int, Call], float] = {}

    def of(self, call: Call, members: Sequence[int], rank: int) -> float:
        """Return the seconds of a collective between these ranks, once all have come."""
        key = rank, call
        if key not in self._known:
            self._known[key] = self._changed(call.kind, self._collective(call, tuple(members)))
        return self._known[key]

    def of_message(self, call: Call, rank: int) -> tuple[float, float]:
        """Return the seconds for which a message of a rank is sent, and those until it arrives."""
        source, target = (rank, call.peer) if call.kind == "send" else (call.peer, rank)
        link = message_link(self._cluster, source, target)
        if link.duplex == "half":
            raise InputError(
                "duplex: half: the messages of a script go both ways at once, so it takes "
                "full-duplex links"
            )
        whole = self._known[rank, call] = self._changed("send", link.transfer_time(call.size))
        later = min(link.propagation(call.size), whole)
        return whole - later, later

    def of_rank(self, rank: int) -> Mapping[Call, float]:
        return {call: time for (own, call), time in self._known.items() if own == rank}

    def _collective(self, call: Call, members: tuple[int, ...]) -> float:
        if len(members) < 2:
            return 0.0
        first = members.index(call.peer) if call.kind in ROOTED and call.peer in members else 0
        workers = members[first:] + members[:first]
        algorithm = self._algorithm
        for change in self._changes:
            if call.kind in change.kinds and change.what == "algorithm":
                algorithm = str(change.value)
        others = None
        if shares_ports(self._cluster):
            like = groups_like(workers, len(self._cluster.workers))
            if like is not None and len(like) > 1:
                others = like[like[:, 0] != min(workers)]
        times = collective_times(self._cluster, workers, call.kind, algorithm, others)
        return min(time_of(call.size) for time_of in times.values())

    def _changed(self, kind: str, seconds: float) -> float:
        for change in self._changes:
            if kind in change.kinds and change.what == "time":
                seconds = max(seconds * change.factor + float(change.added), 0.0)
        return seconds


def lanes_of(recording: Recording) -> dict[str, str]:
    """Return the lane of each group's collectives.

    That which slows computing down is of the group with most ranks, of equal ones that which moves
    most bytes: where replicas, or their shards, meet.
    """
    moved: dict[str, int] = {}
    for code in recording.code[recording.kind == COLLECTIVE].tolist():
        call = recording.calls[code]
        if call.kind not in MESSAGES:
            moved[call.group] = moved.get(call.group, 0) + call.size
    widest = max(moved, key=lambda name: (len(recording.groups[name]), moved[name]), default="")
    return {
        name: COMMUNICATION if name == widest else f"{COMMUNICATION} {name}"
        for name in recording.groups
    }


@dataclass(eq=False)
class _World:
    """Which ranks are played, which recording each follows, and with whom it communicates."""

    ranks: list[int]
    program: list[int]  # of each rank, the number of its recording
    groups: Mapping[tuple[int, ...], Ints]  # those like one, by its members
    members: list[list[int]] = field(default_factory=list)  # of communicators
    of_role: list[dict[str, int]] = field(default_factory=list)
    _numbers: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    _place: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, recordings: Sequence[Recording], world: int) -> _World:
        """Return all ranks where groups show what those do that were not recorded."""
        used = {
            tuple(recording.groups[recording.calls[code].group])
            for recording in recordings
            for code in np.unique(recording.code[recording.kind == COLLECTIVE]).tolist()
        }
        groups: dict[tuple[int, ...], Ints] = {}
        for members in used:
            like = groups_like(members, world)
            if like is not None:
                groups[members] = like
        program = _assigned(recordings, groups, world) if len(groups) == len(used) else None
        if program is None:
            ranks = [recording.rank for recording in recordings]
            program = list(range(len(ranks)))
            groups = {
                members: np.array([[rank for rank in members if rank in ranks]]) for members in used
            }
        else:
            ranks = list(range(world))
        made = cls(ranks, program, groups, of_role=[{} for _ in ranks])
        made._place = {rank: place for place, rank in enumerate(ranks)}
        return made

    def join(self, number: int, recording: Recording) -> None:
        """Give the ranks that follow a recording their communicators."""
        used = np.unique(recording.code[recording.kind == COLLECTIVE]).tolist()
        calls = {
            (call.group, call.peer if call.kind in MESSAGES else -1, call.kind)
            for call in (recording.calls[code] for code in used)
        }
        for group, peer, kind in sorted(calls):
            members = recording.groups[group]
            equal = [name for name, ranks in recording.groups.items() if ranks == members]
            place = equal.index(group)  # of the groups of these ranks, whatever ranks call them
            for row in self.groups[members].tolist():
                if kind in MESSAGES:
                    self._join_message(number, recording.rank, peer, kind, members, row)
                    continue
                communicator = self._number(str(place), tuple(row))
                for rank in row:
                    if self.program[self._place[rank]] == number:
                        self.of_role[self._place[rank]][_role_of(group)] = communicator

    def _join_message(
        self,
        number: int,
        own: int,
        peer: int,
        kind: str,
        members: tuple[int, ...],
        row: list[int],
    ) -> None:
        whole = sorted(members)
        if len(row) == len(whole):
            one, other = row[whole.index(own)], row[whole.index(peer)]
        else:
            one, other = own, peer
        for rank in (one, other):
            if rank not in self._place:
                raise InputError(
                    f"rank {own} exchanges messages with rank {peer}, which was not recorded"
                )
        if self.program[self._place[one]] != number:
            return
        ends = (one, other) if kind == "send" else (other, one)
        role = _message_role(own, peer, kind)
        self.of_role[self._place[one]][role] = self._number("message", ends)

    def _number(self, sort: str, ranks: tuple[int, ...]) -> int:
        key = sort, ranks
        if key not in self._numbers:
            self._numbers[key] = len(self.members)
            self.members.append([self._place[rank] for rank in ranks])
        return self._numbers[key]


def _assigned(
    recordings: Sequence[Recording], groups: Mapping[tuple[int, ...], Ints], world: int
) -> list[int] | None:
    """Return which recording each rank follows: that of its place among those it messages."""
    if len(recordings) == 1:
        return [0] * world
    ranks = np.full(world, -1)
    for recording in recordings:
        for code in np.unique(recording.code[recording.kind == COLLECTIVE]).tolist():
            call = recording.calls[code]
            members = tuple(recording.groups[call.group])
            if call.kind not in MESSAGES:
                continue
            for number, other in enumerate(recordings):
                if other.rank in members:
                    ranks[groups[members][:, sorted(members).index(other.rank)]] = number
    return None if (ranks < 0).any() else [int(number) for number in ranks]


def _role_of(group: str) -> str:
    return f"group {group}"


def _message_role(own: int, peer: int, kind: str) -> str:
    return f"{own} to {peer}" if kind == "send" else f"{peer} to {own}"


@dataclass(eq=False)
class _Rank:
    """Writes the rows of one rank."""

    recording: Recording
    writer: ProgramWriter
    seconds: list[float]
    costs: CollectiveCosts
    lanes: Mapping[str, str]  # of collectives, by group
    host: HostCosts
    _last: dict[int, int] = field(default_factory=dict)  # row of the last op, by stream
    _awaited: dict[int, list[int]] = field(default_factory=dict)  # rows, by stream
    _events: dict[int, list[int]] = field(default_factory=dict)
    _collectives: dict[int, int] = field(default_factory=dict)
    _host_awaits: list[int] = field(default_factory=list)
    _is_launched: bool = True  # whether the host launches the request under way by itself
    _graph: tuple[int, int] = (-1, 0)  # row of its launch, and how many of its requests are left

    def play(self, iteration: Recording) -> int:
        """Write an iteration, and return the row at which it ends.

        Events and collectives are numbered from the first one of the iteration, so that those of
        the iteration before have the numbers below 0, also where one iteration is played again.
        """
        events = _renumbered(iteration, RECORD, (RECORD, WAIT_EVENT, EVENT), self._events)
        collectives = _renumbered(iteration, COLLECTIVE, (COLLECTIVE, WAIT), self._collectives)
        numbers = np.where(np.isin(iteration.kind, (COLLECTIVE, WAIT)), collectives, events)
        numbers = np.where(iteration.kind == GRAPH, iteration.number, numbers)
        columns = zip(
            iteration.kind.tolist(),
            iteration.code.tolist(),
            iteration.stream.tolist(),
            iteration.phase.tolist(),
            numbers.tolist(),
            strict=True,
        )
        for kind, code, stream, phase, number in columns:
            row, left = self._graph
            self._graph = row, max(left - 1, 0)
            self._is_launched = left == 0
            if kind in (OP, COPY):
                self._op(code, stream, phase)
            elif kind == COLLECTIVE:
                self._collective(code, stream, number)
            elif kind == GRAPH:
                self._graph = self._on_host("launch graph", self.host.op), number
            elif kind == WAIT and number in self._collectives:
                self._wait(stream, [self._collectives[number]])
            elif kind == RECORD:
                self._events[number] = self._done(stream)
            elif kind == WAIT_EVENT:
                self._wait(stream, self._events.get(number, []))
            elif kind == STREAM:
                self._wait(HOST, self._done(stream))
            elif kind == EVENT:
                self._wait(HOST, self._events.get(number, []))
            elif kind == DEVICE:
                self._wait(HOST, [row for lane in list(self._last) for row in self._done(lane)])
        return self._on_host("iteration", 0.0)

    def _done(self, stream: int) -> list[int]:
        """Return the rows after which all that a stream was given is done."""
        last = [self._last[stream]] if stream in self._last else []
        return [*last, *self._awaited.get(stream, ())]

    def _wait(self, stream: int, rows: list[int]) -> None:
        if stream == HOST:
            self._host_awaits += rows
        else:
            self._awaited.setdefault(stream, []).extend(rows)

    def _launched(self, name: str, seconds: float) -> int:
        """Return the row of the host after which a request may begin."""
        return self._on_host(f"launch {name}", seconds) if self._is_launched else self._graph[0]

    def _on_host(self, name: str, seconds: float) -> int:
        after, self._host_awaits = self._host_awaits, []
        return self.writer.add(name, HOST_LANE, seconds, after)

    def _op(self, code: int, stream: int, phase: int) -> None:
        name = self.recording.ops[code].name
        cost = self.host.op
        if self.host.in_optimizer is not None and PHASES[phase] == "optimizer":
            cost = self.host.in_optimizer
        issued = self._launched(name, cost)
        after = [issued, *self._awaited.pop(stream, ())]
        step = PHASES[phase] if PHASES[phase] in STEPS else "other"
        lane = COMPUTE if stream == 0 else f"stream {stream}"
        if stream in self._last:
            after.append(self._last[stream])
        self._last[stream] = self.writer.add(name, lane, self.seconds[code], after, step=step)
        if self.host.is_device:
            self._wait(HOST, [self._last[stream]])

    def _collective(self, code: int, stream: int, number: int) -> None:
        call = self.recording.calls[code]
        issued = self._launched(call.kind, self.host.collective)
        after = [issued, *(self._done(stream) if stream != HOST else ())]
        if call.kind in MESSAGES:
            row = self._message(call, after)
        else:
            row = self.writer.add(
                call.kind,
                self.lanes[call.group],
                self.costs.of(call, self.recording.groups[call.group], self.recording.rank),
                after,
                step="communication",
                kind="collective",
                role=_role_of(call.group),
                size=call.size,
            )
        self._collectives[number] = row

    def _message(self, call: Call, after: list[int]) -> int:
        rank, other = self.recording.rank, call.peer
        sent, later = self.costs.of_message(call, rank)
        is_send = call.kind == "send"
        return self.writer.add(
            f"{call.kind} {'to' if is_send else 'from'} {other}",
            f"{'send to' if is_send else 'receive from'} {other}",
            sent if is_send else later,
            after,
            step="communication",
            kind="send" if is_send else "receive",
            role=_message_role(rank, other, call.kind),
            size=call.size,
        )


def _renumbered(
    iteration: Recording, makes: int, kinds: tuple[int, ...], known: dict[int, Any]
) -> Ints:
    """Return the numbers of an iteration from its first one on, and shift the known ones below."""
    made = iteration.number[iteration.kind == makes]
    first = int(made.min()) if len(made) else 0
    of_last = max(known, default=-1) + 1
    before = {number - of_last: row for number, row in known.items() if number >= 0}
    known.clear()
    known.update(before)
    return np.where(np.isin(iteration.kind, kinds), iteration.number - first, -1)
