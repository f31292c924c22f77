"""Messages between two ranks: which kernels are their ends, and when each went.

A message shows in the traces of both ranks, as a kernel of each. Where the sender's has ended
before the receiver's begins, the data has waited in a buffer: the sender waits for nobody, and the
receiver takes it from there. Otherwise each waits for the other, and the message goes from when the
second one has come until the first one ends. One kernel may send and receive several; it ends with
the last of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paracosm.errors import InputError
from paracosm.prediction.traces.traced import Segment
from paracosm.timeline.kineto.trace import Collective

AGREE = 10e-6  # seconds, to which the clocks of ranks on one machine do


@dataclass(frozen=True, slots=True)
class Message:
    """What goes from one rank to another one."""

    source: int
    target: int
    group: str  # name of the process group, or ""
    sent: Segment
    received: Segment
    size: int  # bytes; 0 where no trace says it


@dataclass(frozen=True, slots=True)
class Passage:
    """When a message went, in seconds of the job: of the sender, then of the receiver."""

    buffered: bool  # the sender does not wait for the receiver
    begin: tuple[float, float]
    end: tuple[float, float]


def messages_of(
    segments: Mapping[int, Sequence[Segment]], paths: Mapping[int, Path]
) -> list[Message]:
    """Return the messages of the ranks' segments, which are in the order of issue.

    The k-th message that a rank sends another one in a process group is the k-th that this one
    receives from it.

    Raises:
        InputError: a trace does not say with whom a rank exchanges messages, the other's trace is
            not there, or what one sends the other does not receive.
    """
    ends: dict[tuple[str, int, int], tuple[list[_End], list[_End]]] = {}
    for rank in sorted(segments):
        for segment in segments[rank]:
            for call in segment.calls:
                if call.is_message:
                    peer = _peer(call, rank, segments, paths[rank])
                    sends = call.kind == "send"
                    key = (call.group, *((rank, peer) if sends else (peer, rank)))
                    ends.setdefault(key, ([], []))[not sends].append((segment, call))
    found = []
    for (group, source, target), (sent, received) in sorted(ends.items()):
        if len(sent) != len(received):
            where = f" in group {group}" if group else ""
            raise InputError(
                f"{paths[target]}: {len(received)} messages from rank {source}{where}, which sends "
                f"{len(sent)}: the traces are not of the same steps"
            )
        for (one, call), (other, _) in zip(sent, received, strict=True):
            if source != target:
                found.append(Message(source, target, group, one, other, max(call.size, 0)))
    return found


_End = tuple[Segment, Collective]


def _peer(call: Collective, rank: int, there: Mapping[int, object], path: Path) -> int:
    others = [other for other in call.ranks or tuple(there) if other != rank]
    peer = call.peer
    if peer < 0 and len(others) == 1:
        peer = others[0]
    way = f"{call.kind} {'to' if call.kind == 'send' else 'from'}"
    if peer < 0:
        raise InputError(
            f"{path}: {way} a rank that the trace does not name: newer versions of PyTorch do; "
            "--alone takes messages as long as they were"
        )
    if peer not in there:
        raise InputError(
            f"{path}: {way} rank {peer}, and there is no trace of rank {peer}: give one of every "
            "rank, or --alone to take messages as long as they were"
        )
    return peer


def passage(message: Message, offset: Mapping[int, float]) -> Passage:
    """Return when a message went; `offset` are seconds to add to the times of each rank."""
    by, to = offset[message.source], offset[message.target]
    sent, received = message.sent, message.received
    came, left = (sent.begin + by, received.begin + to), (sent.end + by, received.end + to)
    if left[0] + AGREE <= came[1]:
        # What else a kernel waits for does not count: not longer than the other end took.
        times = left[0] - came[0], left[1] - came[1]
        longest = [
            time if len(segment.calls) == 1 else min(times)
            for segment, time in zip((sent, received), times, strict=True)
        ]
        return Passage(True, came, (came[0] + longest[0], came[1] + longest[1]))
    begin = max(came)
    end = max(begin, min(left))
    return Passage(False, (begin, begin), (end, end))
