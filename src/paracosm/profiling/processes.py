"""Processes that stand by for orders, and what is said when one of them dies or hangs."""

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self

from paracosm.errors import InputError
from paracosm.files import FULL, temporary_folder
from paracosm.processes import python_module
from paracosm.profiling.environment import free_memory
from paracosm.units import format_size

_GRACE = 1.0  # seconds in which the process that died first is distinguished from later failures


class WorkerError(RuntimeError):
    """A process failed; the message is one line."""


_MEMORY = 150 << 20  # bytes that a process of PyTorch or TensorFlow takes at least


def check_memory_for(processes: int) -> None:
    """Refuse more processes than this machine has memory for."""
    free = free_memory()
    if free is not None and processes * _MEMORY > free:
        raise InputError(
            f"{processes:,} processes take at least {format_size(processes * _MEMORY)} of memory, "
            f"and {format_size(free)} are free here: give fewer servers"
        )


class Processes:
    """Python processes, each running one module, that get orders and answer, a line of JSON each.

    An answer with an `error` is a failure, one with `refused` an `InputError`. As a context manager
    it ends all of them in any case. Until then the output of process i is in "i.txt" of `folder`.
    """

    def __init__(self, module: str, timeout: float) -> None:
        """Start with no processes; `timeout` is seconds for any one answer."""
        self._module, self._timeout = module, timeout
        self._workers: list[subprocess.Popen[bytes]] = []
        self._names: list[str] = []
        self._heard: list[bytes] = []

    def __enter__(self) -> Self:
        self._kept = ExitStack()
        self.folder = self._kept.enter_context(temporary_folder())
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._kept.close()

    def start(
        self,
        name: str,
        setup: Mapping[str, Any],
        *,
        inherited: Sequence[int] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        command = [*prefix, *python_module(self._module), json.dumps(setup)]
        with self._messages(len(self._workers)).open("wb") as errors:
            worker = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=inherited,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for us; we end them
            )
        self._workers.append(worker)
        self._names.append(name)
        self._heard.append(b"")

    @property
    def pids(self) -> list[int]:
        """Their process ids, in the order of their start."""
        return [worker.pid for worker in self._workers]

    def order(self, orders: Mapping[int, Mapping[str, Any]]) -> None:
        """Send orders, by the number of the process in the order of their start."""
        for number, order in orders.items():
            with contextlib.suppress(BrokenPipeError):  # `answers` finds out why
                pipe = _pipe(self._workers[number].stdin)
                pipe.write((json.dumps(order) + "\n").encode())
                pipe.flush()

    def answers(
        self, what: str, of: Sequence[int] | None = None, seconds: float = 0.0
    ) -> list[dict[str, Any]]:
        """Return one answer of each process, or of those numbered."""
        deadline = time.monotonic() + seconds + self._timeout
        awaited = range(len(self._workers)) if of is None else of
        received: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for number, worker in enumerate(self._workers):
                selector.register(_pipe(worker.stdout), selectors.EVENT_READ, number)
            while True:
                for number in awaited:
                    if (
                        number not in received
                        and (answer := self._complete_message(number)) is not None
                    ):
                        received[number] = answer
                if len(received) == len(awaited):
                    return [received[number] for number in awaited]
                ready = selector.select(deadline - time.monotonic())
                if not ready:
                    late = next(number for number in awaited if number not in received)
                    raise WorkerError(
                        f"{self._names[late]} did not answer within "
                        f"{seconds + self._timeout:g} s ({what})"
                    )
                for key, _ in ready:
                    self._receive(key.data)

    def end(self) -> None:
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.wait()
            _pipe(worker.stdout).close()
            with contextlib.suppress(BrokenPipeError):
                _pipe(worker.stdin).close()
        self._workers.clear()

    def _messages(self, number: int) -> Path:
        return self.folder / f"{number}.txt"

    def _receive(self, number: int) -> None:
        more = os.read(_pipe(self._workers[number].stdout).fileno(), 1 << 16)
        self._heard[number] += more
        if not more:
            raise self._failure(number, "ended")
        # One that nobody waits for says nothing but that it failed.
        if self._heard[number].startswith((b'{"error"', b'{"refused"')):
            self._complete_message(number)

    def _complete_message(self, number: int) -> dict[str, Any] | None:
        line, newline, rest = self._heard[number].partition(b"\n")
        if not newline:
            return None
        self._heard[number] = rest
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            raise InputError(str(answer["refused"]))
        if "error" in answer:
            raise self._failure(number, str(answer["error"]))
        return answer

    def _failure(self, number: int, reason: str) -> Exception:
        text = self._failure_text(number, reason)
        full = next((code for code in FULL if os.strerror(code) in text), None)
        return WorkerError(text) if full is None else OSError(full, text)

    def _failure_text(self, number: int, reason: str) -> str:
        """Describe the first failure: the others only report a closed connection."""
        deadline = time.monotonic() + _GRACE
        while time.monotonic() < deadline:
            for each, worker in enumerate(self._workers):
                if code := worker.poll():
                    said = self._messages(each).read_text(errors="replace").strip().splitlines()
                    last_words = f": {said[-1].strip()}" if said else ""
                    ended = f"ended with exit code {code}"
                    if code < 0:
                        ended = f"was ended by {signal.Signals(-code).name}"
                    return f"{self._names[each]} {ended}{last_words}"
            time.sleep(0.02)
        return f"{self._names[number]}: {reason}"


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


Answer = Callable[..., None]
"""Writes its keywords, a line of JSON; also from several threads."""


def answering() -> Answer:
    """Return a writer of answers to standard output, and redirect other output to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**content: object) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    return answer


def free_ports(count: int) -> list[int]:
    """Return TCP ports of loopback that are free now, for servers of TensorFlow."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(socket.getsockname()[1]) for socket in sockets]


def loopback() -> str:
    """Return the network interface that gloo and NCCL use for processes of one machine."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in names if name.startswith("lo")), names[0])
