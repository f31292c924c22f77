"""A PyTorch Kineto trace of one rank, from its JSON file.

Spans come with `ts` and `dur` in microseconds, whole or with a fraction, and since 2024 counted
from `baseTimeNanoseconds`; they are kept to the nanosecond. What takes no time (instants, flows,
counters, frames of Python) is passed over: which call launched which kernel, the correlation says.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.arrays import Ints
from paracosm.errors import InputError
from paracosm.files import open_unpacked, read_bytes
from paracosm.timeline.kineto.rows import Rows, Table
from paracosm.timeline.kineto.scan import Scanner
from paracosm.timeline.kineto.trace import (
    CATEGORIES,
    CATEGORY_OF,
    SYNCHRONISATIONS,
    Collective,
    Inputs,
    KinetoTrace,
    Lane,
    Step,
    Synchronisation,
    bytes_of,
    collective_of,
    is_annotation,
    is_step,
    steps_of,
)

_DEVICE = {CATEGORIES.index(category) for category in ("kernel", "copy", "memset", "sync")}
_PASSED_OVER = {"trace", "python_function", "overhead", "gpu_user_annotation"}
_OP, _ANNOTATION, _SYNC = (CATEGORIES.index(each) for each in ("op", "annotation", "sync"))
_OTHER = CATEGORIES.index("other")
_COMMUNICATION = ("nccl", "record_param_comms", "rccl")  # ops and ranges around their launches


def read_kineto(path: Path, *, inputs: bool = False) -> KinetoTrace:
    """Read the trace of one rank, plain or gzipped, of any version.

    Args:
        path: of the file.
        inputs: whether the shapes and types of the ops' arguments are kept.

    Raises:
        InputError: it cannot be read, is cut off or damaged (with the byte), is no trace, or has a
            span without a time.
    """
    return open_kineto(path, inputs=inputs).whole()


def open_kineto(path: Path, *, inputs: bool = False) -> "KinetoFile":
    """Read the trace of one rank, of any size; the arguments and errors are `read_kineto`'s.

    More than a million spans are kept on disk, in the folder for temporary files.
    """
    file = KinetoFile(path, inputs)
    header: dict[str, Any] = {}
    found = False
    with open_unpacked(path) as opened:
        scanner = Scanner(opened, path)
        if not scanner.peek():
            raise InputError(f"{path}: the file is empty")
        if scanner.peek() == "[":
            found = True
            file.read(scanner)
        else:
            for key in scanner.keys():  # not a mapping: it reads on  # noqa: SIM118
                if key == "traceEvents":
                    found = True
                    file.read(scanner)
                else:
                    value = scanner.value()
                    if key in ("distributedInfo", "baseTimeNanoseconds"):
                        header[key] = value
        if scanner.peek():
            raise scanner.broken("there is more behind the end of the trace")
    if not found:
        raise InputError(f'{path}: no Kineto trace: it lacks "traceEvents"')
    file.finish(header)
    return file


def is_kineto(path: Path) -> bool:
    """Whether a file looks like a trace, from how it begins; False if it cannot be read."""
    try:
        head = read_bytes(path, 1 << 16).decode("utf-8", "replace").lstrip()
    except InputError:
        return False
    if head.startswith("["):
        return '"ph"' in head
    known = ('"traceEvents"', '"deviceProperties"', '"distributedInfo"', '"traceName"')
    return head.startswith("{") and any(key in head for key in known)


class KinetoFile:
    """The content of a file, of which parts can be extracted as traces."""

    def __init__(self, path: Path, inputs: bool) -> None:
        self.path = path
        self.rank: int | None = None
        self.world_size: int | None = None
        self.missing: tuple[str, ...] = ()
        self._rows = Rows()
        self._keeps_inputs = inputs
        self._names: dict[str, int] = {}
        self._lanes: dict[Lane, int] = {}
        self._lane_keys: dict[tuple[Any, ...], int] = {}
        self._kinds: dict[Any, int] = {}
        self._details: dict[Collective | Synchronisation, int] = {}
        self._inputs: dict[int, Inputs] = {}
        self._base = 0  # nanoseconds
        self._unfinished = 0
        self._uncorrelated = 0

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, scanner: Scanner) -> None:
        """Read the list of events that comes next."""
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
                except InputError as error:  # a full disk
                    raise InputError(f"{self.path}: {error}") from None
                except (TypeError, ValueError, AttributeError, OverflowError):
                    raise scanner.broken(
                        "a span ends here whose times or arguments are none: "
                        f"{' '.join(str(event.get('name'))[:80].split())}"
                    ) from None

    def _add(self, event: dict[str, Any]) -> None:
        word = event.get("cat")
        category = self._kinds.get(word)
        if category is None:
            category = self._kinds[word] = _category(word)
        if category < 0:
            return
        name = event["name"]
        if not isinstance(name, str):
            raise TypeError
        arguments = event.get("args") or {}
        if category == _OP and is_annotation(name):
            category = _ANNOTATION
        begin, duration = _nanoseconds(event["ts"]), _nanoseconds(event.get("dur", -1))
        if duration < 0:
            self._unfinished += 1
            duration = 0
        get = arguments.get
        device = category in _DEVICE
        place: tuple[Any, ...] = event.get("pid"), event.get("tid")
        if device:
            place = place[0], get("stream", place[1]), get("device")
        lane = self._lane_keys.get(place)
        if lane is None:
            lane = self._lane_keys[place] = self._lane_of(*place)
        correlation = get("correlation")
        if correlation is None:
            correlation = -1
            self._uncorrelated += device
        record, detail = get("Record function id", -1), -1
        if category == _SYNC:
            wait, record = _synchronisation(name, arguments)
            detail = self._details.setdefault(wait, len(self._details))
        elif "Collective name" in arguments or (not device and name.startswith(_COMMUNICATION)):
            detail = self._details.setdefault(_collective(name, arguments), len(self._details))
        if self._keeps_inputs and "Input Dims" in arguments:
            types = arguments.get("Input type") or ()
            self._inputs[len(self._rows)] = Inputs(tuple(arguments["Input Dims"]), tuple(types))
        code = self._names.setdefault(name, len(self._names))
        sequence = get("Sequence number", -1)
        self._rows.append(
            begin, duration, correlation, record, sequence, code, lane, detail, category
        )

    def _lane_of(self, process: Any, number: Any, device: Any = None) -> int:
        text = str(number).removeprefix("stream ")
        lane = (
            Lane("thread", str(process), text)
            if device is None and not str(number).startswith("stream ")
            else Lane("stream", str(process if device is None else device), text)
        )
        return self._lanes.setdefault(lane, len(self._lanes))

    def finish(self, header: dict[str, Any]) -> None:
        """Record what is outside of the events."""
        if not len(self._rows):
            raise InputError(f"{self.path}: the trace has no spans: nothing was profiled")
        distributed = header.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        for key in ("rank", "world_size"):
            value = distributed.get(key)
            number = None if value is None else _number(value, -1)
            if value is not None and (
                isinstance(value, float) or not 0 <= (number or 0) <= _MOST_RANKS
            ):
                raise InputError(
                    f"{self.path}: distributedInfo: {key} is {value!r:.40}, no whole number from 0 "
                    f"to {_MOST_RANKS:,}"
                )
            setattr(self, key, number)
        self._base = _number(header.get("baseTimeNanoseconds"), 0)
        waits = any(isinstance(each, Synchronisation) for each in self._details)
        missing = {
            "distributedInfo: which rank this is": "rank" not in distributed,
            f"correlation of {self._uncorrelated:,} spans of the device": self._uncorrelated,
            f"dur of {self._unfinished:,} spans (0 is taken)": self._unfinished,
            "cuda_sync: which stream waits for which is inferred": not waits,
        }
        self.missing = tuple(what for what, lacks in missing.items() if lacks)

    def whole(self) -> KinetoTrace:
        return self._trace(self._rows.all())

    def steps(self) -> tuple[Step, ...]:
        """Return the steps that the profiler marked on the host, in order."""
        codes = [code for name, code in self._names.items() if is_step(name)]
        marks = self._rows.where(lambda rows: np.isin(rows["name"], codes))
        return steps_of(self._trace(marks)) if len(marks) else ()

    def counts(self, edges: Sequence[float]) -> Ints:
        """Return how many spans begin between edges, which are seconds from the origin."""
        return self._rows.counts([self._rows.origin + round(edge * 1e9) for edge in edges])

    def part(self, begin: float, end: float) -> KinetoTrace:
        """Return the spans that touch a time, in seconds from the origin, and related ones.

        These are what its calls launched, and the calls that had launched what ran in it.
        """
        first, last = (self._rows.origin + round(time * 1e9) for time in (begin, end))
        touched = self._rows.where(
            lambda rows: (rows["begin"] <= last) & (rows["begin"] + rows["duration"] >= first),
            times=(first, last),
        )
        known = touched["correlation"][touched["correlation"] >= 0]
        if not len(known):
            return self._trace(touched)
        low, high = int(known.min()), int(known.max())
        others = self._rows.where(
            lambda rows: (
                (rows["correlation"] >= low)
                & (rows["correlation"] <= high)
                & ((rows["begin"] > last) | (rows["begin"] + rows["duration"] < first))
            ),
            correlations=(low, high),
        )
        return self._trace(np.concatenate((touched, others)))

    def _trace(self, rows: Table) -> KinetoTrace:
        order = _order(rows)
        origin = self._rows.origin
        begin, duration = rows["begin"][order], rows["duration"][order]
        detail, record, category = (rows[each][order] for each in ("detail", "record", "category"))
        place = np.empty(len(order) if self._inputs else 0, dtype=np.int64)
        if self._inputs:  # then these are all rows
            place[order] = np.arange(len(order))
        collectives, waits = {}, {}
        texts = list(self._details)
        for row in np.flatnonzero(detail >= 0).tolist():
            what = texts[detail[row]]
            if isinstance(what, Collective):
                collectives[row] = what
            else:
                waits[row] = replace(what, recorded=int(record[row]))
        return KinetoTrace(
            path=self.path,
            rank=self.rank,
            world_size=self.world_size,
            origin=origin + self._base,
            names=tuple(each.encode("utf-8", "replace").decode() for each in self._names),
            lanes=tuple(self._lanes),
            begin=(begin - origin) * 1e-9,
            end=(begin + duration - origin) * 1e-9,
            duration=duration * 1e-9,
            name=rows["name"][order],
            category=category.astype(np.int32),
            lane=rows["lane"][order],
            correlation=rows["correlation"][order],
            record=np.where(category == _SYNC, -1, record),
            sequence=rows["sequence"][order],
            collectives=collectives,
            synchronisations=waits,
            inputs={int(place[row]): each for row, each in self._inputs.items()},
            missing=self.missing,
        )


def _category(word: Any) -> int:
    small = str(word).lower()
    known = CATEGORY_OF.get(small)
    if known is None:
        return -1 if word is None or small in _PASSED_OVER else _OTHER
    return CATEGORIES.index(known)


def _order(rows: Table) -> Ints:
    """Return the rows by begin; an op before those within it, and calls in their order."""
    outer = np.where(np.isin(rows["category"], (_OP, _ANNOTATION)), -rows["duration"], 1)
    return np.lexsort((-rows["duration"], rows["correlation"], outer, rows["begin"]))


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
    except (TypeError, ValueError, OverflowError):
        return otherwise


def _collective(name: str, arguments: dict[str, Any]) -> Collective:
    kind = str(arguments.get("Collective name", ""))
    elements = _number(arguments.get("In msg nelems"), -1)
    dtype = str(arguments.get("dtype", ""))
    if elements < 0 and (shapes := arguments.get("Input Dims")) and isinstance(shapes[0], list):
        elements, dtype = _elements(shapes[0]), str((arguments.get("Input type") or [""])[0])
    each = bytes_of(dtype)
    group_size = _number(arguments.get("Group size"), 0)
    if group_size > _MOST_RANKS:
        raise ValueError
    ends = _ENDS.match(name)
    return Collective(
        kind=collective_of(kind) or collective_of(name) or kind.strip("_"),
        size=elements * each if elements > 0 and each > 0 else -1,
        group=str(arguments.get("Process Group Name", arguments.get("Process Group ID", ""))),
        group_size=group_size,
        ranks=_ranks(arguments, group_size),
        peer=_number(arguments.get("Dst Rank", arguments.get("Src Rank")), -1),
        place=-1 if ends is None else int(ends[1]),
    )


_MOST_RANKS = 1_000_000
_ENDS = re.compile(r"nccl:(?:send|recv) \d+(?:->|<-)(\d+)")  # places in the group: own, the other's


def _ranks(arguments: dict[str, Any], count: int) -> tuple[int, ...]:
    text = str(arguments.get("Process Group Ranks", "")).strip("[]")
    if text and "..." not in text:
        return tuple(int(rank) for rank in text.split(","))
    # A long list is shortened with an ellipsis; new traces say by which rule it goes on.
    first = _number(arguments.get("Global rank start"), -1)
    stride = _number(arguments.get("Global rank stride"), 0)
    return _strided(first, count, stride) if first >= 0 and stride > 0 else ()


@lru_cache(maxsize=64)
def _strided(first: int, count: int, stride: int) -> tuple[int, ...]:
    """Return the ranks of a group, once for all of its collectives."""
    return tuple(range(first, first + count * stride, stride))


def _elements(shape: list[Any]) -> int:
    return math.prod(shape) if shape and all(type(size) is int for size in shape) else -1


def _synchronisation(name: str, arguments: dict[str, Any]) -> tuple[Synchronisation, int]:
    """Return a wait, without the call that recorded its event, and the correlation of that."""
    kind = str(arguments.get("cuda_sync_kind", name)).lower()
    wait = Synchronisation(
        kind=SYNCHRONISATIONS.get(kind, kind),
        stream=_stream(arguments.get("stream")),
        on=_stream(arguments.get("wait_on_stream")),
        recorded=-1,
    )
    return wait, _number(arguments.get("wait_on_cuda_event_record_corr_id"), -1)


def _stream(number: Any) -> str:
    return "" if number in (None, -1, 4294967295) else str(number)
