"""The files of many traces, read and taken apart on all cores."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from paracosm.backends import Backend, on_all_cores
from paracosm.errors import InputError
from paracosm.files import temporary_folder
from paracosm.replays.segments import segments_of
from paracosm.replays.traced import Segments
from paracosm.timeline.kineto.communication import NamedKernels
from paracosm.timeline.kineto.read import KinetoFile, open_kineto
from paracosm.timeline.kineto.trace import KinetoTrace

T = TypeVar("T")

SHARE = 10e6  # bytes of JSON that take longer than the start of a process: 1.4 s against 0.5 s
_UNPACKED = 10  # times as long as a gzipped file, or more, is what it unpacks to
_BATCHES = 16  # for each process, so that all end at about the same time

Done = Callable[[int], object]
"""Called from time to time with how many of the traces are done."""


def backend_for(paths: Sequence[Path]) -> Backend:
    """Return where these files are read: in one process if they are few or short."""
    size = 0
    for path in paths:
        with suppress(OSError):  # who opens it says what is wrong
            size += path.stat().st_size * (_UNPACKED if path.suffix == ".gz" else 1)
    return on_all_cores(min(len(paths), int(size / SHARE)))


def open_files(
    paths: Sequence[Path], named: NamedKernels, backend: Backend, done: Done
) -> list[KinetoFile]:
    """Open the traces of all ranks; the errors are those of `open_kineto`, of the first bad one."""
    with nullcontext() if backend.jobs == 1 else temporary_folder() as folder:
        open_one = partial(open_kineto, named=named, folder=folder)
        return _answers(open_one, paths, backend, done)


def take_apart(
    traces: Sequence[KinetoTrace], steps: Sequence[int], backend: Backend, done: Done
) -> list[Segments]:
    """Return what each rank did; steps and errors are those of `segments_of`."""
    return _answers(partial(segments_of, steps=steps), traces, backend, done)


def _answers(
    function: Callable[[Any], T], items: Sequence[Any], backend: Backend, done: Done
) -> list[T]:
    size = 1 if backend.jobs == 1 else max(len(items) // (backend.jobs * _BATCHES), 1)
    batches = [(function, items[at : at + size]) for at in range(0, len(items), size)]
    answers: list[T] = []
    for batch in backend.each(_tried, batches, in_order=True):
        for answer in batch:
            if isinstance(answer, InputError):
                raise answer
            answers.append(answer)
        done(len(answers))
    return answers


def _tried(function: Callable[[Any], T], items: Sequence[Any]) -> list[T | InputError]:
    """Return the answers up to the first error, which counts if those before have none."""
    answers: list[T | InputError] = []
    for item in items:
        try:
            answers.append(function(item))
        except InputError as error:
            return [*answers, error]
    return answers
