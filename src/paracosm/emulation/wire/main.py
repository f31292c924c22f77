"""The emulator's process: `python -m paracosm.emulation.wire.main`; see its environment."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from paracosm.emulation.communication import communication_of
from paracosm.emulation.config import EmulateConfig, Setting
from paracosm.emulation.peers import peers_of
from paracosm.emulation.records import Note, RecordWriter
from paracosm.emulation.wire.announcements import Announcements
from paracosm.emulation.wire.answers import answers_of
from paracosm.emulation.wire.connection import Loop, Pair
from paracosm.emulation.wire.emulator import Emulator
from paracosm.emulation.wire.rendezvous import Rendezvous
from paracosm.errors import InputError
from paracosm.processes import end_with_parent, on_interrupt

_TIMEOUT = 30.0  # seconds for a handshake
_LOOK = 0.05  # seconds between looks for operations that stand still or whose end does not show
_ACCOUNT = 1.0  # seconds between records of what has been moved
_GRACE = 0.3  # seconds for which a job without connections may still make new ones


def main() -> int:
    """Emulate the peers of a job until its real ranks have left, or SIGTERM or SIGINT arrives."""
    setting = Setting.from_environment()
    end_with_parent(signal.SIGTERM, setting.launcher)
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    on_interrupt(lambda number, frame: stop.set())
    try:
        done = emulate_peers(
            setting.config, setting.seed, setting.records, "127.0.0.1", address, stop
        )
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        for sign in (signal.SIGTERM, signal.SIGINT):
            signal.signal(sign, signal.SIG_IGN)  # on its way out, which may take a second
    return 0 if done else 1


def emulate_peers(
    config: EmulateConfig,  # what is emulated
    seed: int,  # of everything that is random
    records: Path,  # file that is written: groups, collectives, what was moved, notes
    host: str,  # our own address, if rank 0 is emulated
    address: tuple[str, int],  # host and port of the job's store
    stop: threading.Event,  # ends the emulation in good order
) -> bool:
    communication = communication_of(config)
    writer = RecordWriter(records)
    announcements = Announcements(records, config.rank)
    try:
        with _signals_of(records) as signals:
            loop = Loop(
                answers_of(writer.append_lines, lambda text: writer.append(Note(-1, False, text)))
            )
            emulator = Emulator(
                loop,
                communication,
                peers_of(config, config.rank[0], seed),
                announcements,
                writer.append,
                measured=communication.is_measured,
                pace=config.shared if config.is_paced else None,
            )
            loop.watch(signals.fileno(), lambda events: _handle_signals(signals, emulator))
            arrivals: deque[Pair] = deque()
            failures: list[Note] = []

            def put(pair: Pair) -> None:
                arrivals.append(pair)
                loop.wake()

            def note(text: Note) -> None:
                writer.append(text)
                if text.grave:
                    failures.append(text)
                    loop.stop()

            rendezvous = Rendezvous(config.world, config.rank, address, host, put, note, _TIMEOUT)
            rendezvous.start()
            gc.freeze()  # what is here stays: collecting garbage takes long among it
            try:
                loop.run(_run_loop(loop, emulator, arrivals, stop, rendezvous))
            except Exception as error:
                writer.append(Note(-1, True, f"the emulator failed: {error!r}"))
                raise
            finally:
                rendezvous.close()
                emulator.finish_all()
                emulator.account()
            return not emulator.failed and not failures
    finally:
        announcements.close()
        writer.close()


def _run_loop(
    loop: Loop,
    emulator: Emulator,
    arrivals: deque[Pair],
    stop: threading.Event,
    rendezvous: Rendezvous,
) -> Callable[[], None]:
    looked = accounted = time.monotonic()
    alone_since: float | None = None

    def around() -> None:
        nonlocal looked, accounted, alone_since
        while arrivals:
            emulator.add(arrivals.popleft())
        now = time.monotonic()
        if stop.is_set():
            loop.stop()
        if now - looked < _LOOK:
            return
        looked = now
        emulator.check_progress()
        if now - accounted > _ACCOUNT:
            emulator.account()
            accounted = now
        if not emulator.is_alone:
            alone_since = None
        elif alone_since is None:
            alone_since = now
        elif now - alone_since > _GRACE and rendezvous.over:
            loop.stop()

    return around


@contextlib.contextmanager
def _signals_of(records: Path) -> Iterator[socket.socket]:
    path = Path(f"{records}.signals")
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as opened:
        with contextlib.suppress(OSError):  # a path that is too long: then there are no signals
            opened.bind(str(path))
        opened.setblocking(False)
        try:
            yield opened
        finally:
            path.unlink(missing_ok=True)


def _handle_signals(signals: socket.socket, emulator: Emulator) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            event = signals.recv(16)
            if event == b"w":
                emulator.resumed(time.monotonic())
            elif event == b"i":
                emulator.iteration_ended(time.monotonic())


if __name__ == "__main__":
    sys.exit(main())
