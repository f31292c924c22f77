"""The job of many traces, or of large ones, in parts that fit in memory."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from paracosm.backends import Backend
from paracosm.errors import InputError
from paracosm.replays.account import Account
from paracosm.replays.job import common_steps, job_of_traces
from paracosm.replays.reading import backend_for, open_files
from paracosm.replays.traced import TracedJob
from paracosm.timeline.kineto.communication import BY_NAME, NamedKernels
from paracosm.timeline.kineto.faults import mark_faults, repeated_marks, step_faults
from paracosm.timeline.kineto.read import KinetoFile
from paracosm.timeline.kineto.trace import KinetoTrace, Step, chosen_steps, step_marks, steps_of

LARGE = 1 << 20  # spans of all ranks up to which a job is played as a whole
BLOCK = 1 << 16  # spans of all ranks in a part of a larger one, if it has more than one step


def read_parts(
    paths: Sequence[Path],
    steps: Sequence[int] | None = None,
    alone: bool = False,
    account: Account | None = None,
    named: NamedKernels = BY_NAME,
    backend: Backend | None = None,
    passed: Callable[[float], object] = lambda share: None,
) -> Iterator[TracedJob]:
    """Yield the job of the traces, in parts: runs of steps that are whole on all ranks.

    Of large traces they are of some steps each. Where a part begins with a step that follows the
    last one of the part before, that one is played once more and not counted: what the device is
    behind is then there. Where no step is whole, all are played. The other arguments and errors are
    those of `read_job`.

    Args:
        account: takes what is left out.
        named: what the user says of kernels that communicate.
        backend: where traces are read; by default on as many cores as are worth it.
        passed: called with how often all traces have been gone through: once to open them, and once
            to take them apart, step by step.

    Raises:
        InputError: a pattern of `named` is about no kernel.
    """
    account = Account() if account is None else account
    if twice := next((path for path, times in Counter(paths).items() if times > 1), None):
        raise InputError(f"{twice} is given twice: give one trace of each rank")
    backend = backend_for(paths) if backend is None else backend
    files = open_files(paths, named, backend, lambda count: passed(count / len(paths)))
    _check_named(files, named)
    marks = {file.path: file.marks() for file in files}
    marked = {path: steps_of(trace) for path, trace in marks.items()}
    if not any(marked.values()):
        traces = [file.whole() for file in files]
        for trace in traces:
            account.add_trace(trace)
        yield job_of_traces(
            traces,
            steps,
            alone,
            backend=backend,
            done=lambda count: passed(1 + count / len(paths)),
        )
        return
    numbers = common_steps(marked) if steps is None else tuple(sorted(set(steps)))
    windows = [chosen_steps(file.path, marked[file.path], numbers) for file in files]
    ranks = _names_of_ranks(files)
    if steps is None:
        account.steps |= _not_common(marked, numbers, ranks)
    for path, trace in marks.items():
        for note in repeated_marks(trace):
            account.add(path, note)
        for number, fault in mark_faults(trace).items():
            if steps is None or number in numbers:
                account.steps[number] = f"{ranks[path]}{fault}"
    reading = _Reading(files, marks, numbers, windows, ranks, alone, account, backend, passed)
    is_found = False
    for part in reading.parts(only_whole=True):
        is_found = True
        yield part
    if not is_found:
        account.all_faulty = True
        yield from reading.parts(only_whole=False)


def _check_named(files: Sequence[KinetoFile], named: NamedKernels) -> None:
    for pattern, _ in named.patterns:
        if not any(file.kernels(partial(named.matches, pattern)) for file in files):
            names = {name for file in files for name in file.kernels(lambda name: True)}
            few = sorted(name[:60] for name in names)[:8]
            has = ", ".join(few) + (", ..." if len(names) > len(few) else "") or "none"
            raise InputError(
                f'communication "{pattern}" has no effect: no kernel has such a name; there are '
                f"{has}"
            )


class _Reading:
    """Files whose steps are played in parts."""

    def __init__(
        self,
        files: Sequence[KinetoFile],
        marks: Mapping[Path, KinetoTrace],
        numbers: Sequence[int],
        windows: Sequence[Sequence[Step]],
        ranks: Mapping[Path, str],
        alone: bool,
        account: Account,
        backend: Backend,
        passed: Callable[[float], object],
    ) -> None:
        self._files, self._numbers, self._windows = files, numbers, windows
        self._ranks, self._alone, self._account = ranks, alone, account
        self._backend, self._passed = backend, passed
        self._marks = [
            np.array([step.begin for step in step_marks(trace)]) for trace in marks.values()
        ]
        self._whole: list[KinetoTrace] = []

    def parts(self, only_whole: bool) -> Iterator[TracedJob]:
        for first, last in self._blocks():
            # The step before is there if it is played before; then it is played once more.
            warm = int(first > 0 and self._follow(first))
            traces = self._read(first - warm, last)
            faults = self._faults(traces, first - warm, last)
            if only_whole:
                self._account.steps |= {
                    number: fault
                    for number, fault in faults.items()
                    if number in self._numbers[first:last]
                }
            bad = set(faults) if only_whole else set()
            for begin, end in self._runs(first - warm, last, bad):
                lead = int(warm and begin < first)
                if end - begin > lead:
                    yield job_of_traces(
                        traces,
                        self._numbers[begin:end],
                        self._alone,
                        lead,
                        self._backend,
                        partial(self._taken_apart, begin, end),
                    )

    def _taken_apart(self, begin: int, end: int, count: int) -> None:
        steps = begin + (end - begin) * count / len(self._files)
        self._passed(1 + steps / len(self._numbers))

    def _read(self, first: int, last: int) -> Sequence[KinetoTrace]:
        if sum(map(len, self._files)) > LARGE:
            traces = [
                file.part(window[first].begin, window[last - 1].end)
                for file, window in zip(self._files, self._windows, strict=True)
            ]
        else:
            if not self._whole:
                self._whole = [file.whole() for file in self._files]
                for trace in self._whole:
                    self._account.add_outside(trace, steps_of(trace))
            traces = self._whole
        for trace in traces:
            self._account.add_trace(trace)
        return traces

    def _blocks(self) -> Iterator[tuple[int, int]]:
        if sum(map(len, self._files)) <= LARGE:
            yield 0, len(self._numbers)
            return
        sizes = np.zeros(len(self._numbers), dtype=np.int64)
        for file, window in zip(self._files, self._windows, strict=True):
            sizes += file.counts([*(step.begin for step in window), window[-1].end])
        yield from _blocks(sizes.tolist())

    def _faults(self, traces: Sequence[KinetoTrace], first: int, last: int) -> dict[int, str]:
        faults: dict[int, str] = {}
        for trace, window in zip(traces, self._windows, strict=True):
            for number, fault in step_faults(trace, window[first:last]).items():
                faults.setdefault(number, f"{self._ranks[trace.path]}{fault}")
        return faults

    def _runs(self, first: int, last: int, bad: set[int]) -> Iterator[tuple[int, int]]:
        """Yield the first and the end of steps that follow one another, without the bad ones."""
        begin = first
        for at in range(first, last):
            if self._numbers[at] in bad:
                yield begin, at
                begin = at + 1
            elif at > begin and not self._follow(at):
                yield begin, at
                begin = at
        yield begin, last

    def _follow(self, at: int) -> bool:
        """Whether a step follows the one before it on every rank: no mark is between them."""
        if self._numbers[at] != self._numbers[at - 1] + 1:
            return False
        return all(
            not ((marks >= window[at - 1].end) & (marks < window[at].begin)).any()
            for marks, window in zip(self._marks, self._windows, strict=True)
        )


def _names_of_ranks(files: Sequence[KinetoFile]) -> dict[Path, str]:
    """Return how messages name the rank of each file: not at all if there is one."""
    if len(files) == 1:
        return {files[0].path: ""}
    known = {file.path: file.rank for file in files}
    return {
        path: f"rank {number if rank is None else rank}: "
        for number, (path, rank) in enumerate(known.items())
    }


def _not_common(
    marked: Mapping[Path, Sequence[Step]], numbers: Sequence[int], ranks: Mapping[Path, str]
) -> dict[int, str]:
    """Return the steps that some traces lack, and which."""
    known = {path: {step.number for step in steps} for path, steps in marked.items()}
    return {
        number: "; ".join(
            f"{ranks[path]}its trace has no such step"
            for path in sorted(known, key=lambda path: ranks[path])
            if number not in known[path]
        )
        for number in sorted(set().union(*known.values()).difference(numbers))
    }


def _blocks(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of steps that have some `BLOCK` spans together, or one step."""
    first, together = 0, 0
    for number, size in enumerate(sizes):
        if number > first and together + size > BLOCK:
            yield first, number
            first, together = number, 0
        together += size
    yield first, len(sizes)
