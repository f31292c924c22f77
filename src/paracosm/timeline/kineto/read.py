"""A PyTorch Kineto trace of one rank, from its JSON file.

Spans come with `ts` and `dur` in microseconds, whole or with a fraction, and since 2024 counted
from `baseTimeNanoseconds`; they are kept to the nanosecond. What takes no time (instants, flows,
counters, frames of Python) is passed over: which call launched which kernel, the correlation says.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.arrays import Bools, Ints
from paracosm.errors import InputError
from paracosm.file_kinds import HEAD
from paracosm.files import open_unpacked, read_bytes
from paracosm.timeline.kineto.arguments import (
    MOST_RANKS,
    collective,
    nanoseconds,
    number_of,
    synchronisation,
)
from paracosm.timeline.kineto.categories import CATEGORIES, ON_DEVICE, ON_STREAM, category_of
from paracosm.timeline.kineto.communication import (
    BY_NAME,
    HOST_BACKENDS,
    NamedKernels,
    is_on_gloo_thread,
    looks_like_communication,
)
from paracosm.timeline.kineto.process_groups import groups_of_threads, process_groups
from paracosm.timeline.kineto.rows import Rows, Table
from paracosm.timeline.kineto.scan import Scanner
from paracosm.timeline.kineto.trace import (
    Collective,
    Inputs,
    KinetoTrace,
    Lane,
    ProcessGroup,
    Synchronisation,
    counted,
    is_annotation,
    is_step,
)
from paracosm.timeline.other_files import refuse_other_files

_CODES = {category: code for code, category in enumerate(CATEGORIES)} | {"": -1}
_DEVICE = {_CODES[category] for category in ON_DEVICE}
_OP, _ANNOTATION, _SYNC = (_CODES[name] for name in ("op", "annotation", "sync"))
_KERNEL = _CODES["kernel"]
_CALLS = (_CODES["runtime"], _CODES["other"])
_RUN = tuple(_DEVICE - {_SYNC})
_NO_TIME = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
# Nanoseconds.
_LATEST = 1 << 62
_FAR = 1_000_000_000_000  # from all other spans: no trace is silent for so long
_CLOCKS = 5_000  # by which clocks of host and device may differ
_LONG_BEFORE = 100_000_000  # by which they never do
_ON_HOST = tuple(f"{backend}:" for backend in HOST_BACKENDS)
# Ops and ranges around launches, and what is done on the host.
_COMMUNICATION = ("nccl", "record_param_comms", "rccl", "c10d::send", "c10d::recv_", *_ON_HOST)


def read_kineto(path: Path, *, inputs: bool = False, named: NamedKernels = BY_NAME) -> KinetoTrace:
    """Read the trace of one rank, plain or gzipped, of any version.

    Args:
        path: of the file.
        inputs: whether the shapes and types of the ops' arguments are kept.
        named: what the user says of kernels that communicate.

    Raises:
        InputError: it cannot be read, is cut off or damaged (with the byte), is no trace, or has a
            span without a time.
    """
    return open_kineto(path, inputs=inputs, named=named).whole()


def open_kineto(
    path: Path,
    *,
    inputs: bool = False,
    named: NamedKernels = BY_NAME,
    folder: Path | None = None,
) -> "KinetoFile":
    """Read the trace of one rank, of any size; the arguments and errors are `read_kineto`'s.

    More than a million spans are kept on disk: in a `folder`, from which another process that the
    result is sent to takes them over, or else among the temporary files of this one.
    """
    refuse_other_files(path)
    file = KinetoFile(path, inputs, named, folder)
    header: dict[str, Any] = {}
    is_found, keys = False, []
    with open_unpacked(path) as opened:
        scanner = Scanner(opened, path)
        first = scanner.peek()
        if not first:
            raise InputError(f"{path}: the file is empty")
        if first not in "[{":
            raise scanner.broken(
                f"no JSON: it begins with {first!r}; a trace of PyTorch's profiler begins with "
                "'{' or '['"
            )
        if first == "[":
            is_found = True
            file.read(scanner)
        else:
            for key in scanner.keys():  # not a mapping: it reads on  # noqa: SIM118
                if key == "traceEvents":
                    is_found = True
                    file.read(scanner)
                else:
                    keys.append(key)
                    value = scanner.value()
                    if key in ("distributedInfo", "baseTimeNanoseconds"):
                        header[key] = value
        if scanner.peek() == "{" and not is_found:
            raise InputError(
                f"{path}: JSON objects one after another (NDJSON): write them as one list, "
                "[{...}, {...}]"
            )
        if scanner.peek():
            raise scanner.broken("there is more behind the end of the trace")
    if not is_found:
        raise InputError(f'{path}: no Kineto trace: it lacks "traceEvents"{_instead(keys)}')
    file.finish(header)
    return file


_OTHER_KEYS = {
    "nodes": "an execution trace, which `paracosm graph import` reads",
    "workload_graph": "a Chakra trace, which `paracosm graph import` reads",
    "paracosm_jaxpr": "a jaxpr, which `paracosm graph import` reads",
    "paracosm_graph": "a graph in Chakra's format, which `paracosm graph import` reads",
    "profiles": "a profile for speedscope",
    "stackFrames": "a profile of stacks",
}


def _instead(keys: Sequence[str]) -> str:
    """Say what a mapping of these keys is."""
    for key in keys:
        if key in _OTHER_KEYS:
            return f": it is {_OTHER_KEYS[key]}"
    few = ", ".join(f'"{key[:40]}"' for key in keys[:5])
    return f" and has {few}" if few else ""


def is_kineto(path: Path) -> bool:
    """Whether a file looks like a trace, from how it begins; False if it cannot be read."""
    try:
        head = read_bytes(path, HEAD).decode("utf-8-sig", "replace").lstrip()
    except InputError:
        return False
    if head.startswith("["):
        return '"ph"' in head
    known = ('"traceEvents"', '"deviceProperties"', '"distributedInfo"', '"traceName"')
    return head.startswith("{") and any(key in head for key in known)


class KinetoFile:
    """The content of a file, of which parts can be extracted as traces."""

    def __init__(
        self, path: Path, inputs: bool, named: NamedKernels, folder: Path | None = None
    ) -> None:
        self.path, self.named = path, named
        self.rank: int | None = None
        self.world_size: int | None = None
        self.missing: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()
        self._rows = Rows(folder)
        self._keeps_inputs = inputs
        self._names: dict[str, int] = {}
        self._texts: tuple[str, ...] = ()  # the names, without what is no letter
        self._lanes: dict[Lane, int] = {}
        self._lane_keys: dict[tuple[Any, ...], int] = {}
        self._kinds: dict[Any, int] = {}  # codes of categories that are known
        self._unknown: dict[tuple[str, bool], int] = {}  # spans by category, and if on a device
        self._details: dict[Collective | Synchronisation, int] = {}
        self._inputs: dict[int, Inputs] = {}
        self._base = 0  # nanoseconds
        self._groups: tuple[ProcessGroup, ...] = ()
        self._group_of_thread: dict[int, ProcessGroup] = {}  # by lane
        self._between = (-_LATEST, _LATEST)  # nanoseconds in which spans begin
        self._unfinished = 0
        self._uncorrelated = 0
        self._left_out, self._first_left_out = 0, ""  # spans without a time
        self._untimed: set[int] = set()  # correlations of those of a device
        self._phases: dict[Any, int] = {}  # of events that are no spans
        self._begun: dict[tuple[str, str], list[dict[str, Any]]] = {}  # by process and thread
        self._unpaired = 0

    def __len__(self) -> int:
        return len(self._rows)

    def read(self, scanner: Scanner) -> None:
        """Read the list of events that comes next."""
        add = self._add
        for event in scanner.values():
            try:
                phase = event["ph"]
                count = self._phases.get(phase, 0)
            except (TypeError, KeyError):
                raise scanner.broken(
                    'a list that is none of events: one without "ph" ends here'
                ) from None
            if phase != "X":
                self._phases[phase] = count + 1
                event = self._paired(event, phase) if phase in ("B", "E") else None
            if event is not None:
                try:
                    add(event)
                except KeyError as error:
                    raise scanner.broken(f"a span ends here that lacks {error}") from None
                except InputError as error:  # a full disk
                    raise InputError(f"{self.path}: {error}") from None
                except (TypeError, ValueError, AttributeError, OverflowError):
                    raise scanner.broken(
                        "a span ends here whose name or arguments are none: "
                        f"{' '.join(str(event.get('name'))[:80].split())}"
                    ) from None

    def _paired(self, event: dict[str, Any], phase: str) -> dict[str, Any] | None:
        """Return the span that an event ends: the last that its thread began, of its name."""
        begun = self._begun.setdefault((str(event.get("pid")), str(event.get("tid"))), [])
        if phase == "B":
            begun.append(event)
            return None
        names = [event.get("name") for event in begun]
        if not begun:
            self._unpaired += 1
            return None
        name = event.get("name", names[-1])
        at = len(names) - 1 - names[::-1].index(name) if name in names else len(names) - 1
        self._unpaired += len(names) - 1 - at
        first = begun[at]
        del begun[at:]
        try:
            took = repr((nanoseconds(event["ts"]) - nanoseconds(first["ts"])) / 1000)
        except _NO_TIME:
            took = "no time"
        arguments = {**(first.get("args") or {}), **(event.get("args") or {})}
        return {**first, "dur": took, "args": arguments}

    def _add(self, event: dict[str, Any]) -> None:
        word = event.get("cat")
        category = self._kinds.get(word)
        if category is None:
            category = self._category(event, word)
        if category < 0:
            return
        name = event["name"]
        if not isinstance(name, str):
            raise TypeError
        arguments = event.get("args") or {}
        if category == _OP and is_annotation(name):
            category = _ANNOTATION
        on_stream = category == _ANNOTATION and str(word).lower() == ON_STREAM
        if on_stream and not is_step(name):
            return
        device = category in _DEVICE
        get = arguments.get
        correlation = get("correlation")
        if correlation is None:
            correlation = -1
        try:
            begin, duration = nanoseconds(event["ts"]), nanoseconds(event.get("dur", -1))
            timed = -_LATEST < begin < _LATEST and duration < _LATEST
        except _NO_TIME:
            timed = False
        if not timed or (device and duration < 0 and category != _SYNC):
            self._leave_out(name, correlation if device else -1)
            return
        if duration < 0:
            self._unfinished += 1
            duration = 0
        place: tuple[Any, ...] = event.get("pid"), event.get("tid")
        if device:
            place = place[0], get("stream", place[1]), get("device")
            self._uncorrelated += correlation == -1
        elif on_stream:
            place = place[0], get("stream", place[1]), get("device", place[0])
        lane = self._lane_keys.get(place)
        if lane is None:
            lane = self._lane_keys[place] = self._lane_of(device or on_stream, *place)
        record, detail = get("Record function id", -1), -1
        if category == _SYNC:
            wait, record = synchronisation(name, arguments)
            detail = self._details.setdefault(wait, len(self._details))
        elif "Collective name" in arguments or (not device and name.startswith(_COMMUNICATION)):
            detail = self._details.setdefault(collective(name, arguments), len(self._details))
        if self._keeps_inputs and "Input Dims" in arguments:
            types = arguments.get("Input type") or ()
            self._inputs[len(self._rows)] = Inputs(tuple(arguments["Input Dims"]), tuple(types))
        code = self._names.setdefault(name, len(self._names))
        sequence = get("Sequence number", -1)
        self._rows.append(
            begin, duration, correlation, record, sequence, code, lane, detail, category
        )

    def _category(self, event: dict[str, Any], word: Any) -> int:
        place, arguments = event.get("tid"), event.get("args") or {}
        category = category_of(word, event.get("name"), place, arguments)
        code = _CODES[category.name]
        if category.always:
            self._kinds[word] = code
        if not category.known:
            key = "" if word is None else str(word)[:60], code in _DEVICE
            self._unknown[key] = self._unknown.get(key, 0) + 1
        return code

    def _leave_out(self, name: str, correlation: Any) -> None:
        self._left_out += 1
        self._first_left_out = self._first_left_out or " ".join(name[:60].split())
        if type(correlation) is int and correlation >= 0:
            self._untimed.add(correlation)

    def _lane_of(self, on_device: bool, process: Any, number: Any, device: Any = None) -> int:
        text = str(number).removeprefix("stream ")
        lane = (
            Lane("thread", str(process), text)
            if not on_device and not str(number).startswith("stream ")
            else Lane("stream", str(process if device is None else device), text)
        )
        return self._lanes.setdefault(lane, len(self._lanes))

    def finish(self, header: dict[str, Any]) -> None:
        """Record what is outside of the events."""
        self._find_outliers()
        self._unpaired += sum(map(len, self._begun.values()))
        self._texts = tuple(
            name if name.isascii() else name.encode("utf-8", "replace").decode()
            for name in self._names
        )
        if not len(self._rows):
            raise InputError(f"{self.path}: {self._nothing()}")
        distributed = header.get("distributedInfo")
        distributed = distributed if isinstance(distributed, dict) else {}
        for key in ("rank", "world_size"):
            value = distributed.get(key)
            number = None if value is None else number_of(value, -1)
            if value is not None and (
                isinstance(value, float) or not 0 <= (number or 0) <= MOST_RANKS
            ):
                raise InputError(
                    f"{self.path}: distributedInfo: {key} is {value!r:.40}, no whole number from 0 "
                    f"to {MOST_RANKS:,}"
                )
            setattr(self, key, number)
        self._groups = process_groups(distributed.get("pg_config"))
        self._group_of_thread = self._groups_of_threads()
        self._base = number_of(header.get("baseTimeNanoseconds"), 0)
        waits = any(isinstance(detail, Synchronisation) for detail in self._details)
        missing = {
            "distributedInfo: which rank this is": "rank" not in distributed,
            f"correlation of {self._uncorrelated:,} spans of the device": self._uncorrelated,
            f"dur of {self._unfinished:,} spans (0 is taken)": self._unfinished,
            "cuda_sync: which stream waits for which is inferred": not waits,
        }
        self.missing = tuple(what for what, lacks in missing.items() if lacks)
        self.notes = tuple(self._noted())

    def _groups_of_threads(self) -> dict[int, ProcessGroup]:
        codes = [code for name, code in self._names.items() if is_on_gloo_thread(name)]
        if not codes or not self._groups:
            return {}
        on_gloo = np.unique(self._rows.where(lambda rows: np.isin(rows["name"], codes))["lane"])
        lanes = tuple(self._lanes)
        return groups_of_threads(
            self._groups, {number: lanes[number] for number in on_gloo.tolist()}, lanes
        )

    def _nothing(self) -> str:
        """Say why there are no spans."""
        if self._left_out:
            return f"no span has a time: ts or dur of {counted(self._left_out, 'span')} is none"
        if self._unpaired:
            return (
                "no span both begins and ends: "
                f"{counted(self._unpaired, 'event')} (ph B, E) without the other one"
            )
        others = [f"{count:,} of ph {phase}" for phase, count in list(self._phases.items())[:6]]
        if others:
            return f"the trace has no spans (ph X, or B and E), but {', '.join(others)}"
        return "the trace has no spans: nothing was profiled"

    def _noted(self) -> Iterator[str]:
        if self._left_out:
            yield (
                f"{counted(self._left_out, 'span')} left out whose times are none, negative or "
                f"far from all others: {self._first_left_out}"
            )
        if self._unpaired:
            yield f"{counted(self._unpaired, 'event')} left out that begin or end nothing (ph B, E)"
        if asynchronous := sum(self._phases.get(phase, 0) for phase in ("b", "n", "e")):
            yield f"{counted(asynchronous, 'event')} left out that are asynchronous (ph b, n, e)"
        for (word, on_device), count in sorted(self._unknown.items()):
            spans = (
                f'{counted(count, "span")} of the category "{word}"'
                if word
                else (f"{counted(count, 'span')} without a category")
            )
            yield f"{spans} taken for work of {'the device' if on_device else 'the host'}"
        if self._unfinished:
            yield f"{counted(self._unfinished, 'span')} of the host without a duration taken for 0"
        if self._uncorrelated:
            yield (
                f"{counted(self._uncorrelated, 'span')} of the device without the call that "
                "launched them (correlation): they begin when they did"
            )

        if not any(lane.kind == "stream" for lane in self._lanes):
            yield "no span of a device: the ops of the host are taken for the computing"
        if alike := self._alike():
            first = max(alike, key=lambda name: alike[name])
            others = f" and {len(alike) - 1} more names" if len(alike) > 1 else ""
            yield (
                f"{counted(sum(alike.values()), 'kernel')} that look like communication taken for "
                f'computing: "{" ".join(first[:80].split())}"{others} (--communication "PATTERN" '
                "says which communicate)"
            )

    def kernels(self, wanted: Callable[[str], bool]) -> dict[str, int]:
        """Return how many kernels have each of the names that are wanted."""
        return self._count(wanted, (_KERNEL,))

    def _count(self, wanted: Callable[[str], bool], categories: Sequence[int]) -> dict[str, int]:
        codes = {code: name for name, code in self._names.items() if wanted(name)}
        if not codes:
            return {}
        chosen = self._rows.where(
            lambda rows: np.isin(rows["name"], list(codes)) & np.isin(rows["category"], categories)
        )
        numbers, counts = np.unique(chosen["name"], return_counts=True)
        pairs = zip(numbers.tolist(), counts.tolist(), strict=True)
        return {codes[number]: count for number, count in pairs}

    def _alike(self) -> dict[str, int]:
        """Return the kernels that look like communication, and of which nobody says what they are,
        by name."""
        return self.kernels(
            lambda name: (
                looks_like_communication(name)
                and not self.named.kind_of(name)
                and not self.named.says(name)
            )
        )

    def _find_outliers(self) -> None:
        """Find spans that are far from all others: with a clock that was never read."""
        counts = self._rows.counts_by(_FAR)
        if len(counts) < 2:
            return
        times = sorted(counts)
        clusters = [[times[0]]]
        for time in times[1:]:
            if time > clusters[-1][-1] + 1:
                clusters.append([])
            clusters[-1].append(time)
        if len(clusters) == 1:
            return
        most = max(clusters, key=lambda each: sum(counts[time] for time in each))
        self._between = most[0] * _FAR, (most[-1] + 1) * _FAR
        far = self._rows.where(lambda rows: ~self._is_near(rows))
        names = list(self._names)
        for row in far:
            on_device = int(row["category"]) in _DEVICE
            self._leave_out(names[row["name"]], int(row["correlation"]) if on_device else -1)
        self._rows.origin = self._rows.first(self._is_near)

    def _is_near(self, rows: Table) -> Bools:
        first, last = self._between
        begin, duration = rows["begin"], rows["duration"]
        is_near: Bools = (begin >= first) & (begin < last) & (duration <= last - begin + _FAR)
        return is_near

    def whole(self) -> KinetoTrace:
        return self._trace(self._rows.all())

    def marks(self) -> KinetoTrace:
        """Return the marks of steps alone."""
        codes = [code for name, code in self._names.items() if is_step(name)]
        return self._trace(self._rows.where(lambda rows: np.isin(rows["name"], codes)))

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
        displaced = _displaced(rows)
        wanted = np.flatnonzero(self._is_near(rows) & ~displaced)
        order = wanted[_order(rows[wanted])]
        origin = self._rows.origin
        begin, duration = rows["begin"][order], rows["duration"][order]
        detail, record, category = (rows[name][order] for name in ("detail", "record", "category"))
        place = np.full(len(rows) if self._inputs else 0, -1, dtype=np.int64)
        if self._inputs:  # then these are all rows
            place[order] = np.arange(len(order))
        collectives, waits = {}, {}
        texts = list(self._details)
        has_device = any(lane.kind == "stream" for lane in self._lanes)
        on_host = [code for name, code in self._names.items() if name.startswith(_ON_HOST)]
        # Beside a device, a range of the host's may be open while something else is launched.
        passed_over = np.isin(rows["name"][order], on_host) & has_device
        only_group = self._groups[0].ranks if len(self._groups) == 1 else ()
        for row in np.flatnonzero((detail >= 0) & ~passed_over).tolist():
            call = texts[detail[row]]
            if isinstance(call, Collective):
                silent = not (call.ranks or call.group or call.group_size)
                collectives[row] = replace(call, ranks=only_group) if silent else call
            else:
                waits[row] = replace(call, recorded=int(record[row]))
        return KinetoTrace(
            path=self.path,
            rank=self.rank,
            world_size=self.world_size,
            origin=origin + self._base,
            names=self._texts,
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
            inputs={
                int(place[row]): inputs for row, inputs in self._inputs.items() if place[row] >= 0
            },
            missing=self.missing,
            notes=self.notes,
            named=self.named,
            groups=self._groups,
            group_of_thread=self._group_of_thread,
            untimed=frozenset(self._untimed.union(rows["correlation"][displaced].tolist())),
        )


def _displaced(rows: Table) -> Bools:
    """Return which spans of a device cannot have run when they say.

    CUPTI leaves times at 0 that it could not take. The clocks of host and device differ by some
    microseconds, and a launched kernel takes time: one that takes none before it was launched has
    not run then, and neither has one long before its launch.
    """
    displaced = np.zeros(len(rows), dtype=bool)
    calls = rows[np.isin(rows["category"], _CALLS) & (rows["correlation"] >= 0)]
    if not len(calls):
        return displaced
    calls = calls[np.lexsort((calls["begin"], calls["correlation"]))]
    numbers, first = np.unique(calls["correlation"], return_index=True)
    on_device = np.flatnonzero(np.isin(rows["category"], _RUN) & (rows["correlation"] >= 0))
    spans = rows[on_device]
    place = np.minimum(np.searchsorted(numbers, spans["correlation"]), len(numbers) - 1)
    known = numbers[place] == spans["correlation"]
    early = calls["begin"][first[place]] - spans["begin"]
    limit = np.where(spans["duration"] == 0, _CLOCKS, _LONG_BEFORE)
    displaced[on_device] = known & (early > limit)
    return displaced


def _order(rows: Table) -> Ints:
    """Return the rows by begin; an op before those within it, and calls in their order."""
    outer = np.where(np.isin(rows["category"], (_OP, _ANNOTATION)), -rows["duration"], 1)
    return np.lexsort((-rows["duration"], rows["correlation"], outer, rows["begin"]))
