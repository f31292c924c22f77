"""The ops of a job profile: runs of nodes on the worker and the servers, transfers between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from paracosm.errors import InputError
from paracosm.profiling.jobs.job_profile import DOWNLINK, SERVER, UPLINK, WORKER
from paracosm.profiling.jobs.tensorflow.places import Place
from paracosm.profiling.jobs.tensorflow.records import Key, Records
from paracosm.profiling.jobs.tensorflow.structure import Structure, Transfer

__all__ = ["Columns", "Sent", "columns_of"]


@dataclass(frozen=True, slots=True)
class Sent:
    """One transfer of a step.

    Attributes:
        transfer: what is sent from where to where.
        number: which time of it in the step.
        size: bytes.
        senders: columns of the ops that make it.
        receivers: columns of the ops that wait for it.
    """

    transfer: Transfer
    number: int
    size: int
    senders: frozenset[int]
    receivers: frozenset[int]

    @property
    def resource(self) -> int:
        """Which link it takes."""
        return DOWNLINK if self.transfer.source.is_server else UPLINK

    @property
    def server(self) -> int:
        """Its parameter server."""
        ends = (self.transfer.source, self.transfer.target)
        return next(place.task for place in ends if place.is_server)


@dataclass(frozen=True, slots=True)
class Columns:
    """What the columns of a profile are: all runs, then all transfers.

    Attributes:
        keys: the runs.
        kinds: their ops' types.
        sent: the transfers.
        waits: of each column, those that it waits for.
        between_servers: transfers and bytes from server to server: for these, an op of one waits
            for that of the other.
    """

    keys: Sequence[Key]
    kinds: Sequence[str]
    sent: Sequence[Sent]
    waits: Sequence[frozenset[int]]
    between_servers: tuple[int, int]

    def names(self) -> list[str]:
        """Return names, each once: "w/read", "while/add #2", "x on /job:ps/task:1"."""
        plain = [f"{name} #{run + 1}" if run else name for _, name, run in self.keys]
        plain += [
            f"{each.transfer.tensor} #{each.number + 1}" if each.number else each.transfer.tensor
            for each in self.sent
        ]
        places: list[Place] = [key[0] for key in self.keys]
        places += [each.transfer.target for each in self.sent]
        often = Counter(plain)
        return [f"{name} on {place}" if often[name] > 1 else name
                for name, place in zip(plain, places, strict=True)]  # fmt: skip

    def resources(self) -> list[int]:
        """Return what each column keeps busy, as indices into RESOURCES."""
        computes = [SERVER if place.is_server else WORKER for place, _, _ in self.keys]
        return computes + [each.resource for each in self.sent]

    def servers(self) -> list[int]:
        """Return the server of each column; 0 of the worker's."""
        computes = [place.task if place.is_server else 0 for place, _, _ in self.keys]
        return computes + [each.server for each in self.sent]

    def sizes(self) -> list[int]:
        """Return bytes of each column."""
        return [0] * len(self.keys) + [each.size for each in self.sent]


def columns_of(structure: Structure, reference: Records, steps: Sequence[Records]) -> Columns:
    """Return the columns of steps that ran the same nodes.

    Args:
        structure: who waits for whom.
        reference: the step that the structure was read from.
        steps: all, which tell bytes of tensors.

    Raises:
        InputError: the bytes of a tensor are in no step; an uplink's sender was not traced.
    """
    keys = list(reference.runs)
    column = {key: number for number, key in enumerate(keys)}
    waits = [{column[other] for other in structure.waits[key]} for key in keys]
    sent: list[Sent] = []
    between = [0, 0]
    for transfer in structure.transfers:
        received = {edge: each for edge, each in reference.receives.items()
                    if edge[:3] == (transfer.source, transfer.target, transfer.tensor)}  # fmt: skip
        if not received and not transfer.receivers:
            continue
        _check_sender(transfer, reference)
        size = _size(transfer, steps)
        times = sorted(each.end for each in received.values())
        if transfer.source.is_server and transfer.target.is_server:
            between = [between[0] + 1, between[1] + size]
            for key in sorted(transfer.receivers):
                found = _last_before(transfer.senders, reference.runs[key].begin, reference)
                waits[column[key]] |= {column[other] for other in found}
            continue
        by_number = _by_number(transfer.receivers, times, reference)
        for number in range(max(len(times), 1)):
            ends = times[number] if times else float("inf")
            senders = _last_before(transfer.senders, ends, reference)
            receivers = frozenset(column[key] for key in by_number.get(number, ()))
            for each in receivers:
                waits[each].add(len(keys) + len(sent))
            makers = frozenset(column[key] for key in senders)
            sent.append(Sent(transfer, number, size, makers, receivers))
    return Columns(
        keys,
        [reference.runs[key].kind for key in keys],
        sent,
        [*map(frozenset, waits), *(each.senders for each in sent)],
        (between[0], between[1]),
    )


def _check_sender(transfer: Transfer, reference: Records) -> None:
    if not transfer.senders and not transfer.source.is_server:
        raise InputError(
            f"{reference.step.where}: {transfer.tensor} goes from {transfer.source} to "
            f"{transfer.target}, but no op there was traced that sends it: trace with FULL_TRACE"
        )


def _size(transfer: Transfer, steps: Sequence[Records]) -> int:
    """Return the bytes of a tensor, as most steps have it."""
    edge = (transfer.source, transfer.target, transfer.tensor, 0)
    seen = Counter(step.receives[edge].size for step in steps if edge in step.receives)
    if not seen and transfer.orders:
        return 0
    if not seen:
        names = sorted({name for _, name, _ in transfer.senders})
        seen = Counter(
            step.step.sizes[name] for step in steps for name in names if name in step.step.sizes
        )
    if not seen:
        raise InputError(
            f"{steps[0].step.where}: {transfer.tensor}: no file tells how many bytes it has: write "
            "timelines with show_memory=True, or add one RunMetadata of the same job"
        )
    return seen.most_common(1)[0][0]


def _last_before(keys: Iterable[Key], time: float, reference: Records) -> list[Key]:
    """Return of each node among some runs the last that began before a time, or its first."""
    last: dict[tuple[Place, str], Key] = {}
    for key in sorted(keys, key=lambda key: (reference.runs[key].begin, key)):
        if key[:2] not in last or reference.runs[key].begin < time:
            last[key[:2]] = key
    return sorted(last.values())


def _by_number(
    receivers: Iterable[Key], times: Sequence[float], reference: Records
) -> Mapping[int, list[Key]]:
    """Return the runs that wait for each time that a tensor came: for the last before them."""
    found: dict[int, list[Key]] = {}
    for key in sorted(receivers):
        before = sum(end <= reference.runs[key].begin for end in times)
        found.setdefault(max(before - 1, 0), []).append(key)
    return found
