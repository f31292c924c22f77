"""A PyTorch Kineto trace of one rank, from its JSON file.

Spans come with `ts` and `dur` in microseconds, whole or with a fraction, and since 2024 counted
from `baseTimeNanoseconds`; they are kept to the nanosecond. What takes no time (instants, flows,
counters, frames of Python) is passed over: which call launched which kernel, the correlation says.
"""

from __future__ import annotations

import math
from array import array
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.errors import InputError
from paracosm.timeline.kineto.scan import Scanner, open_trace
from paracosm.timeline.kineto.trace import (
    CATEGORIES,
    Collective,
    Inputs,
    KinetoTrace,
    Lane,
    Synchronisation,
)
from paracosm.timeline.kineto.words import (
    CATEGORY_OF,
    SYNCHRONISATIONS,
    bytes_of,
    collective_of,
    is_annotation,
)

__all__ = ["is_kineto", "read_kineto"]

_DEVICE = {CATEGORIES.index(category) for category in ("kernel", "copy", "memset", "sync")}
_PASSED_OVER = {"trace", "python_function", "overhead", "gpu_user_annotation"}
_OP, _ANNOTATION, _SYNC = (CATEGORIES.index(each) for each in ("op", "annotation", "sync"))
_OTHER = CATEGORIES.index("other")


def read_kineto(path: Path, *, inputs: bool = False) -> KinetoTrace:
    """Read the trace of one rank, plain or gzipped, of any version and size.

    Args:
        path: of the file.
        inputs: whether the shapes and types of the ops' arguments are kept.

    Raises:
        InputError: it cannot be read, is cut off or damaged (with the byte), is no trace, or has a
            span without a time.
    """
    columns = _Columns(path, inputs)
    header: dict[str, Any] = {}
    with open_trace(path) as file:
        scanner = Scanner(file, path)
        if not scanner.peek():
            raise InputError(f"{path}: the file is empty")
        if scanner.peek() == "[":
            columns.read(scanner)
        else:
            for key in scanner.keys():  # not a mapping: it reads on  # noqa: SIM118
                if key == "traceEvents":
                    columns.read(scanner)
                else:
                    value = scanner.value()
                    if key in ("distributedInfo", "baseTimeNanoseconds"):
                        header[key] = value
        if scanner.peek():
            raise scanner.broken("there is more behind the end of the trace")
    if not columns.found:
        raise InputError(f'{path}: no Kineto trace: it lacks "traceEvents"')
    return columns.trace(header)


def is_kineto(path: Path) -> bool:
    """Whether a file looks like a trace, from how it begins; False if it cannot be read."""
    try:
        with open_trace(path) as file:
            head = file.read(1 << 16).decode("utf-8", "replace").lstrip()
    except (InputError, OSError, EOFError):
        return False
    if head.startswith("["):
        return '"ph"' in head
    known = ('"traceEvents"', '"deviceProperties"', '"distributedInfo"', '"traceName"')
    return head.startswith("{") and any(key in head for key in known)


class _Columns:
    """The columns of a trace, as its events are read."""

    def __init__(self, path: Path, inputs: bool) -> None:
        self.path = path
        self.found = False
        self._keeps_inputs = inputs
        self._begin, self._duration = array("q"), array("q")
        self._name, self._category, self._lane = array("i"), array("i"), array("i")
        self._correlation, self._record = array("q"), array("q")
        self._sequence = array("q")
        self._names: dict[str, int] = {}
        self._lanes: dict[Lane, int] = {}
        self._lane_keys: dict[tuple[Any, Any, Any], int] = {}
        self._kinds: dict[Any, int] = {}
        self._collectives: dict[int, Collective] = {}
        self._synchronisations: dict[int, Synchronisation] = {}
        self._inputs: dict[int, Inputs] = {}
        self._unfinished = 0
        self._uncorrelated = 0

    def read(self, scanner: Scanner) -> None:
        """Read the list of events that comes next."""
        self.found = True
        add = self._add
        for event in scanner.values():
            try:
                phase = event["ph"]
            except (TypeError, KeyError):
                raise scanner.broken('an event without "ph" ends here') from None
            if phase == "X":
                try:
                    add(event)
                except KeyError as error:
                    raise scanner.broken(f"a span ends here that lacks {error}") from None
                except (TypeError, ValueError, AttributeError, OverflowError):
                    raise scanner.broken(
                        "a span ends here whose times or arguments are none: "
                        f"{' '.join(str(event.get('name'))[:80].split())}"
                    ) from None

    def _add(self, event: dict[str, Any]) -> None:
        category = self._category_of(event.get("cat"))
        if category < 0:
            return
        name = event["name"]
        arguments = event.get("args") or {}
        if category == _OP and is_annotation(name):
            category = _ANNOTATION
        begin, duration = _nanoseconds(event["ts"]), _nanoseconds(event.get("dur", -1))
        if duration < 0:
            self._unfinished += 1
            duration = 0
        row = len(self._begin)
        self._begin.append(begin)
        self._duration.append(duration)
        self._name.append(self._names.setdefault(name, len(self._names)))
        self._category.append(category)
        get = arguments.get
        device = category in _DEVICE
        self._lane.append(
            self._lane_of(
                get("device") if device else None,
                event.get("pid"),
                get("stream", event.get("tid")) if device else event.get("tid"),
            )
        )
        correlation = get("correlation")
        if correlation is None:
            correlation = -1
            self._uncorrelated += device
        self._correlation.append(correlation)
        self._record.append(get("Record function id", -1))
        self._sequence.append(get("Sequence number", -1))
        if self._keeps_inputs and "Input Dims" in arguments:
            types = arguments.get("Input type") or ()
            self._inputs[row] = Inputs(tuple(arguments["Input Dims"]), tuple(types))
        if category == _SYNC:
            self._synchronisations[row] = _synchronisation(name, arguments)
        elif "Collective name" in arguments or name.startswith(("nccl", "record_param", "rccl")):
            self._collectives[row] = _collective(name, arguments)

    def _category_of(self, word: Any) -> int:
        """Return the number of a category in the file; -1 of those that are passed over."""
        found = self._kinds.get(word)
        if found is None:
            small = str(word).lower()
            known = CATEGORY_OF.get(small)
            if known is not None:
                found = CATEGORIES.index(known)
            else:
                found = -1 if word is None or small in _PASSED_OVER else _OTHER
            self._kinds[word] = found
        return found

    def _lane_of(self, device: Any, process: Any, number: Any) -> int:
        key = (device, process, number)
        found = self._lane_keys.get(key)
        if found is None:
            text = str(number).removeprefix("stream ")
            lane = (
                Lane("thread", str(process), text)
                if device is None and not str(number).startswith("stream ")
                else Lane("stream", str(process if device is None else device), text)
            )
            found = self._lane_keys[key] = self._lanes.setdefault(lane, len(self._lanes))
        return found

    def trace(self, header: dict[str, Any]) -> KinetoTrace:
        """Return what has been read."""
        if not len(self._begin):
            raise InputError(f"{self.path}: the trace has no spans: nothing was profiled")
        begin = np.frombuffer(self._begin, dtype=np.int64)
        duration = np.frombuffer(self._duration, dtype=np.int64)
        order = self._order(begin, duration)
        origin = int(begin[order[0]])
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        base = _number(header.get("baseTimeNanoseconds"), 0)
        distributed = header.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}

        def codes(column: array[int]) -> Any:
            return np.frombuffer(column, dtype=np.int32)[order]

        def numbers(column: array[int]) -> Any:
            return np.frombuffer(column, dtype=np.int64)[order]

        rank = distributed.get("rank")
        world = distributed.get("world_size")
        return KinetoTrace(
            path=self.path,
            rank=None if rank is None else _number(rank, 0),
            world_size=None if world is None else _number(world, 0),
            origin=origin + base,
            names=tuple(self._names),
            lanes=tuple(self._lanes),
            begin=np.asarray((begin[order] - origin) * 1e-9, dtype=np.float64),
            end=np.asarray((begin + duration - origin)[order] * 1e-9, dtype=np.float64),
            duration=np.asarray(duration[order] * 1e-9, dtype=np.float64),
            name=codes(self._name),
            category=codes(self._category),
            lane=codes(self._lane),
            correlation=numbers(self._correlation),
            record=numbers(self._record),
            sequence=numbers(self._sequence),
            collectives={int(place[row]): each for row, each in self._collectives.items()},
            synchronisations={
                int(place[row]): each for row, each in self._synchronisations.items()
            },
            inputs={int(place[row]): each for row, each in self._inputs.items()},
            missing=tuple(self._missing(distributed)),
        )

    def _order(self, begin: Any, duration: Any) -> Any:
        """Return the rows by begin; an op before what is in it, and calls as they were made."""
        category = np.frombuffer(self._category, dtype=np.int32)
        outer = np.where(np.isin(category, (_OP, _ANNOTATION)), -duration, 1)
        return np.lexsort((-duration, np.frombuffer(self._correlation, np.int64), outer, begin))

    def _missing(self, distributed: dict[str, Any]) -> list[str]:
        missing = []
        if "rank" not in distributed:
            missing.append("distributedInfo: which rank this is")
        if self._uncorrelated:
            missing.append(f"correlation of {self._uncorrelated:,} spans of the device")
        if self._unfinished:
            missing.append(f"dur of {self._unfinished:,} spans (0 is taken)")
        if not self._synchronisations:
            missing.append("cuda_sync: which stream waits for which is inferred")
        return missing


def _nanoseconds(microseconds: int | str) -> int:
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


def _number(value: Any, otherwise: int) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return otherwise


def _collective(name: str, arguments: dict[str, Any]) -> Collective:
    kind = str(arguments.get("Collective name", ""))
    elements = _number(arguments.get("In msg nelems"), -1)
    dtype = str(arguments.get("dtype", ""))
    if elements < 0 and (shapes := arguments.get("Input Dims")) and isinstance(shapes[0], list):
        elements, dtype = _elements(shapes[0]), str((arguments.get("Input type") or [""])[0])
    each = bytes_of(dtype)
    ranks = str(arguments.get("Process Group Ranks", "")).strip("[]")
    return Collective(
        kind=collective_of(kind) or collective_of(name) or kind.strip("_"),
        size=elements * each if elements > 0 and each > 0 else -1,
        group=str(arguments.get("Process Group Name", arguments.get("Process Group ID", ""))),
        group_size=_number(arguments.get("Group size"), 0),
        # A long list is shortened with an ellipsis: then it says nothing.
        ranks=() if not ranks or "..." in ranks else tuple(int(r) for r in ranks.split(",")),
    )


def _elements(shape: list[Any]) -> int:
    """Return the number of elements of a shape; -1 where it is none."""
    return math.prod(shape) if shape and all(type(size) is int for size in shape) else -1


def _synchronisation(name: str, arguments: dict[str, Any]) -> Synchronisation:
    kind = str(arguments.get("cuda_sync_kind", name)).lower()
    return Synchronisation(
        kind=SYNCHRONISATIONS.get(kind, kind),
        stream=_stream(arguments.get("stream")),
        on=_stream(arguments.get("wait_on_stream")),
        recorded=_number(arguments.get("wait_on_cuda_event_record_corr_id"), -1),
    )


def _stream(number: Any) -> str:
    return "" if number in (None, -1, 4294967295) else str(number)
