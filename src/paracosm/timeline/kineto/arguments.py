"""What the arguments of an event say: times, collectives, waits."""

import math
import re
from functools import lru_cache
from typing import Any

from paracosm.timeline.kineto.communication import collective_of
from paracosm.timeline.kineto.trace import (
    SYNCHRONISATIONS,
    Collective,
    Synchronisation,
    bytes_of,
)


def nanoseconds(microseconds: int | str) -> int:
    """Return a time to the nanosecond; the scanner leaves a fraction as text."""
    if type(microseconds) is int:
        return microseconds * 1000
    whole, point, fraction = microseconds.partition(".")  # type: ignore[union-attr]
    if point and fraction.isdigit() and len(whole) > 0 and whole[0] != "-":
        return int(whole) * 1000 + int((fraction + "00")[:3])
    value = float(microseconds)
    if not math.isfinite(value):
        raise ValueError
    return round(value * 1000)


def number_of(value: Any, otherwise: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise


def collective(name: str, arguments: dict[str, Any]) -> Collective:
    kind = str(arguments.get("Collective name", ""))
    elements = number_of(arguments.get("In msg nelems"), -1)
    dtype = str(arguments.get("dtype", ""))
    if elements < 0 and (shapes := arguments.get("Input Dims")) and isinstance(shapes[0], list):
        elements, dtype = _elements(shapes[0]), str((arguments.get("Input type") or [""])[0])
    element_bytes = bytes_of(dtype)
    group_size = number_of(arguments.get("Group size"), 0)
    if group_size > MOST_RANKS:
        raise ValueError
    ends = _ENDS.match(name)
    return Collective(
        kind=collective_of(kind) or collective_of(name) or kind.strip("_"),
        size=elements * element_bytes if elements > 0 and element_bytes > 0 else -1,
        group=str(arguments.get("Process Group Name", arguments.get("Process Group ID", ""))),
        group_size=group_size,
        ranks=_ranks(arguments, group_size),
        peer=number_of(arguments.get("Dst Rank", arguments.get("Src Rank")), -1),
        place=_other_place(name, arguments) if ends is None else int(ends[1]),
    )


MOST_RANKS = 1_000_000
_ENDS = re.compile(r"nccl:(?:send|recv) \d+(?:->|<-)(\d+)")  # places in the group: own, the other's


_MESSAGE = re.compile("c10d::(?:send|recv_)$")  # (tensors, group, place of the other, tag)


def _other_place(name: str, arguments: dict[str, Any]) -> int:
    """Return the place in its group of the other end of a message; -1 where the op lacks it."""
    values = arguments.get("Concrete Inputs")
    if _MESSAGE.match(name) is None or not isinstance(values, list) or len(values) < 3:
        return -1
    return number_of(values[2], -1)


def _ranks(arguments: dict[str, Any], count: int) -> tuple[int, ...]:
    text = str(arguments.get("Process Group Ranks", "")).strip("[]")
    if text and "..." not in text:
        return tuple(int(rank) for rank in text.split(","))
    # A long list is shortened with an ellipsis; new traces say by which rule it goes on.
    first = number_of(arguments.get("Global rank start"), -1)
    stride = number_of(arguments.get("Global rank stride"), 0)
    return _strided(first, count, stride) if first >= 0 and stride > 0 else ()


@lru_cache(maxsize=64)
def _strided(first: int, count: int, stride: int) -> tuple[int, ...]:
    """Return the ranks of a group, once for all of its collectives."""
    return tuple(range(first, first + count * stride, stride))


def _elements(shape: list[Any]) -> int:
    return math.prod(shape) if shape and all(type(size) is int for size in shape) else -1


def synchronisation(name: str, arguments: dict[str, Any]) -> tuple[Synchronisation, int]:
    """Return a wait, without the call that recorded its event, and the correlation of that."""
    kind = str(arguments.get("cuda_sync_kind", name)).lower()
    wait = Synchronisation(
        kind=SYNCHRONISATIONS.get(kind, kind),
        stream=_stream(arguments.get("stream")),
        on=_stream(arguments.get("wait_on_stream")),
        recorded=-1,
    )
    return wait, number_of(arguments.get("wait_on_cuda_event_record_corr_id"), -1)


def _stream(number: Any) -> str:
    return "" if number in (None, -1, 4294967295) else str(number)
