"""A PyTorch Kineto trace of one rank, from its JSON file.

Spans come with `ts` and `dur` in microseconds, whole or with a fraction, and since 2024 counted
from `baseTimeNanoseconds`; they are kept to the nanosecond. What takes no time (instants, flows,
counters, frames of Python) is passed over: which call launched which kernel, the correlation says.
"""

from __future__ import annotations

import codecs
import gzip
import json
import math
import re
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from paracosm.errors import InputError
from paracosm.timeline.kineto.trace import (
    CATEGORIES,
    CATEGORY_OF,
    SYNCHRONISATIONS,
    Collective,
    Inputs,
    KinetoTrace,
    Lane,
    Synchronisation,
    bytes_of,
    collective_of,
    is_annotation,
)

_DEVICE = {CATEGORIES.index(category) for category in ("kernel", "copy", "memset", "sync")}
_PASSED_OVER = {"trace", "python_function", "overhead", "gpu_user_annotation"}
_OP, _ANNOTATION, _SYNC = (CATEGORIES.index(each) for each in ("op", "annotation", "sync"))
_OTHER = CATEGORIES.index("other")
_COMMUNICATION = ("nccl", "record_param_comms", "rccl")  # ops and ranges around their launches


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
        elif "Collective name" in arguments or (not device and name.startswith(_COMMUNICATION)):
            self._collectives[row] = _collective(name, arguments)

    def _category_of(self, word: Any) -> int:
        """Return the number of a category in the file; -1 of those that are passed over."""
        found = self._kinds.get(word)
        if found is None:
            small = str(word).lower()
            known = CATEGORY_OF.get(small)
            otherwise = -1 if word is None or small in _PASSED_OVER else _OTHER
            found = self._kinds[word] = otherwise if known is None else CATEGORIES.index(known)
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
        begin = np.asarray(self._begin)
        duration = np.asarray(self._duration)
        order = self._order(begin, duration)
        origin = int(begin[order[0]])
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        base = _number(header.get("baseTimeNanoseconds"), 0)
        distributed = header.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}

        def in_order(column: array[int]) -> Any:
            return np.asarray(column)[order]

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
            name=in_order(self._name),
            category=in_order(self._category),
            lane=in_order(self._lane),
            correlation=in_order(self._correlation),
            record=in_order(self._record),
            sequence=in_order(self._sequence),
            collectives={int(place[row]): each for row, each in self._collectives.items()},
            synchronisations={
                int(place[row]): each for row, each in self._synchronisations.items()
            },
            inputs={int(place[row]): each for row, each in self._inputs.items()},
            missing=tuple(self._missing(distributed)),
        )

    def _order(self, begin: Any, duration: Any) -> Any:
        """Return the rows by begin; an op before what is in it, and calls as they were made."""
        category = np.asarray(self._category)
        outer = np.where(np.isin(category, (_OP, _ANNOTATION)), -duration, 1)
        return np.lexsort((-duration, np.asarray(self._correlation), outer, begin))

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
    group_size = _number(arguments.get("Group size"), 0)
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


_ENDS = re.compile(r"nccl:(?:send|recv) \d+(?:->|<-)(\d+)")  # places in the group: own, the other's


def _ranks(arguments: dict[str, Any], count: int) -> tuple[int, ...]:
    text = str(arguments.get("Process Group Ranks", "")).strip("[]")
    if text and "..." not in text:
        return tuple(int(rank) for rank in text.split(","))
    # A long list is shortened with an ellipsis; new traces say by which rule it goes on.
    first = _number(arguments.get("Global rank start"), -1)
    stride = _number(arguments.get("Global rank stride"), 0)
    return tuple(range(first, first + count * stride, stride)) if first >= 0 and stride > 0 else ()


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


CHUNK = 1 << 22  # bytes, unpacked
LONGEST_WORD = 9  # "-Infinity"
LONGEST = 1 << 30  # characters of one value: what is longer is no event, but a file out of joint

_BLANK = re.compile(r"[ \t\r\n]*")
_NEXT_MAPPING = re.compile(r"[ \t\r\n]*,[ \t\r\n]*(?=\{)")
_WORDS = ("true", "false", "null", "NaN", "Infinity", "-Infinity")


def open_trace(path: Path) -> IO[bytes]:
    """Open a file, unpacking it if it is gzipped, whatever its name ends in."""
    try:
        file = path.open("rb")
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    return gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[return-value]


class Scanner:
    """The values of a file, one by one: a file of any size is never held as a whole.

    It is unpacked and decoded in chunks. Each value is taken from the text at hand by the JSON
    decoder of the standard library; one that does not end there is tried again with more text.
    Numbers with a point are left as text, because a nanosecond of the year 2024 does not fit in a
    float.

    Raises:
        InputError: from every method, where the file cannot be unpacked, ends too early, or is no
            JSON; with the position in bytes, unpacked.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.path = path
        self._file = file
        # Names of kernels are not always UTF-8; what is not survives as it is.
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        decoder: Any = json.JSONDecoder(parse_float=str, strict=False)
        self._scan = decoder.scan_once
        self._text = ""
        self._at = 0
        self._before = 0  # bytes of the text that is no longer held
        self._ended = False

    def peek(self) -> str:
        """Return the next character that is not blank; "" at the end."""
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def take(self, wanted: str, what: str) -> None:
        """Go past the character that must come next in `what`."""
        found = self.peek()
        if found != wanted:
            raise self.broken(f"{what} goes on with {found!r}, not {wanted!r}", bool(found))
        self._at += 1

    def value(self) -> Any:
        """Return the next value, with numbers that have a point as text."""
        self.peek()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except StopIteration as stop:
                reason, place = "no value", int(stop.value)
            except json.JSONDecodeError as error:
                reason, place = error.msg, error.pos
            except RecursionError:
                raise self.broken("nested too deeply") from None
            else:
                # A number that ends where the text ends may go on behind it.
                if end < len(self._text) or self._text[end - 1] in '}]"' or not self._more():
                    self._at = end
                    return value
                continue
            # What is wrong before the last word does not become right with more of the text.
            open_text = reason.startswith(("Unterminated", "Invalid \\"))
            if (place + LONGEST_WORD < len(self._text) and not open_text) or not self._more():
                cut_off = self._ended and (open_text or self._ends_with_part_of_a_word(place))
                self._at = len(self._text) if cut_off else place
                raise self.broken(f"not JSON: {reason}", known=not cut_off)

    def values(self) -> Iterator[Any]:
        """Yield the values of the list that comes next."""
        self.take("[", "a list")
        scan, go_on = self._scan, _NEXT_MAPPING.match
        while True:
            if self.peek() == "]":
                self._at += 1
                return
            yield self.value()
            # The short way, as long as there is text enough.
            while after := go_on(self._text, self._at):
                try:
                    value, end = scan(self._text, after.end())
                except (StopIteration, json.JSONDecodeError, RecursionError):
                    break
                self._at = end
                yield value
            if self.peek() != "]":
                self.take(",", "a list")

    def keys(self) -> Iterator[str]:
        """Yield the keys of the mapping that comes next; after each, its value must be taken."""
        self.take("{", "a mapping")
        if self.peek() == "}":
            self._at += 1
            return
        while True:
            key = self.value()
            if not isinstance(key, str):
                raise self.broken("a mapping has a key that is no text")
            self.take(":", "a mapping")
            yield key
            if self.peek() == "}":
                self._at += 1
                return
            self.take(",", "a mapping")

    def broken(self, why: str, known: bool = True) -> InputError:
        """Return the error at the place that is reached; the file is cut off if it is not known."""
        passed = self._text[: self._at].encode("utf-8", "surrogateescape")
        place = self._before + len(passed)
        if not known:
            return InputError(f"{self.path}: cut off at byte {place:,}: the trace is not complete")
        return InputError(f"{self.path}: byte {place:,}: {why}")

    def _ends_with_part_of_a_word(self, place: int) -> bool:
        rest = self._text[place:]
        return any(word.startswith(rest) for word in _WORDS)

    def _more(self) -> bool:
        """Read on, as much as is held already at least; return whether there was anything."""
        if self._ended:
            return False
        held = len(self._text) - self._at
        if held > LONGEST:
            raise self.broken(f"a value of more than {LONGEST:,} characters")
        try:
            raw = self._file.read(max(CHUNK, held))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            passed = self._before + len(self._text.encode("utf-8", "surrogateescape"))
            what = "cut off" if isinstance(error, EOFError) else "damaged"
            raise InputError(
                f"{self.path}: {what} after byte {passed:,} (unpacked): the gzip file does not "
                "unpack to its end"
            ) from None
        except OSError as error:
            raise InputError(f"{self.path}: cannot be read: {error.strerror}") from None
        self._ended = not raw
        self._before += len(self._text[: self._at].encode("utf-8", "surrogateescape"))
        self._text = self._text[self._at :] + self._decoder.decode(raw, final=not raw)
        self._at = 0
        return bool(raw)
