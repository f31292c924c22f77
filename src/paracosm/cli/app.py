"""The program `paracosm`: its options, and how it reports errors. Exit codes: 0 done; 1 a run
failed or diverged, or memory or disk ran out; 2 bad input; 130 interrupted by Ctrl-C, 143 by
SIGTERM, 129 by SIGHUP, with the results so far.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer import Option

import paracosm
from paracosm.cli.verbs import COMMAND_LINE_ERROR, INTERRUPTED, SETTINGS, Program
from paracosm.errors import InputError, MissingExtraError, on_one_line
from paracosm.factory import failure, users_place

app = typer.Typer(
    name="paracosm",
    cls=Program,
    help="Run a distributed job on a cluster you don't have.",
    invoke_without_command=True,
    context_settings=SETTINGS,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paracosm {paracosm.__version__}")
        raise typer.Exit


def _questions() -> str:
    """Return which command answers which question."""
    from paracosm.studies.kinds import KINDS

    answered = [(KINDS.question(verb), verb) for verb in KINDS]
    answered.append(("How long does each op take on this machine?", "profile ops"))
    width = max(len(question) for question, _ in answered)
    lines = [f"  {question:{width}}  paracosm {verb}" for question, verb in answered]
    return "\n".join(
        [
            "Run a distributed job on a cluster you don't have.",
            "",
            *lines,
            "",
            "Try: paracosm train --algorithm asgd --workers 8 --updates 300 --out runs/first",
            "All commands: paracosm --help. Check the installation: paracosm doctor",
        ]
    )


@app.callback()
def _options(
    ctx: typer.Context,
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="show the version")
    ] = False,
) -> None:
    """Run a distributed job on a cluster you don't have."""
    if ctx.invoked_subcommand is None:
        typer.echo(_questions())


def main(arguments: list[str] | None = None) -> int:
    """Run the program and return its exit code."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (for good)
    with _signals_raise_interrupt() as received:
        code = _run(arguments)
    return 128 + received[0] if code == INTERRUPTED and received else code


def _run(arguments: list[str] | None) -> int:
    try:
        _check_folder()
        code = app(arguments, prog_name="paracosm", standalone_mode=False)
        sys.stdout.flush()
    except (InputError, MissingExtraError) as error:
        return _print_error(str(error), 2)
    except COMMAND_LINE_ERROR as error:
        return _print_error(error.format_message() or "see paracosm --help", 2)
    except (typer.Abort, KeyboardInterrupt) as interrupt:
        return _print_error(str(interrupt) or "interrupted", INTERRUPTED)
    except (Exception, SystemExit) as error:  # the user's own code may exit
        return _failure(error)
    return code if isinstance(code, int) else 0


def _failure(error: BaseException) -> int:
    """Report an error of this machine, of the user's own code, or of ours; return the exit code."""
    place = users_place(error)
    # Typer exits after a shell's completion, and at a closed pipe.
    if place is None and isinstance(error, SystemExit):
        raise error
    broken = isinstance(error, BrokenPipeError) or (
        isinstance(error, OSError | ValueError | AttributeError)
        and getattr(error, "filename", None) is None
        and _is_output_broken()
    )
    if broken and (place is None or not place.raises):  # else the user's code has opened a file
        return _discard_output()
    if os.environ.get("PARACOSM_DEBUG"):
        raise error
    return _print_error(*failure(error))


class _Ended(KeyboardInterrupt):
    """A signal as an interrupt. Within `exec`, as of Numba and data classes, Python notes that a
    KeyboardInterrupt itself was raised, and ends by SIGINT whatever the exit code.
    """


@contextmanager
def _signals_raise_interrupt() -> Iterator[list[int]]:
    """Make SIGTERM and SIGHUP end a verb as Ctrl-C does; yield the list of signals received."""
    received: list[int] = []

    def end(number: int, frame: Any) -> None:
        received.append(number)
        handler = signal.getsignal(signal.SIGINT)
        # Or ignored, as in the background of a shell.
        if handler is signal.default_int_handler or not callable(handler):
            raise _Ended
        handler(signal.SIGINT, frame)

    ours = []
    if threading.current_thread() is threading.main_thread():
        numbers = (getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP"))
        ours = [
            number for number in numbers if number and signal.getsignal(number) is signal.SIG_DFL
        ]
    for number in ours:
        signal.signal(number, end)
    try:
        with _lost_interrupts_come_back(received):
            yield received
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _lost_interrupts_come_back(received: list[int]) -> Iterator[None]:
    """Send a signal again where Python has dropped what its handler raised, rather than print that.

    It drops what is raised within `__del__`, a weak reference's callback, or a callback from C.
    """
    usual = sys.unraisablehook

    def notice(lost: Any) -> None:
        here = threading.get_ident()
        if isinstance(lost.exc_value, KeyboardInterrupt) and here == threading.main_thread().ident:
            number = received[-1] if isinstance(lost.exc_value, _Ended) else signal.SIGINT
            # From a thread, since here it would be lost again, and one that takes no lock of
            # Python's, which the main thread may hold.
            _thread.start_new_thread(_send_later, (here, number))
        else:
            usual(lost)

    sys.unraisablehook = notice
    try:
        yield
    finally:
        sys.unraisablehook = usual


_SOON = 0.01  # seconds, in which a callback has mostly returned; if not, the signal comes once more


def _send_later(thread: int, number: int) -> None:
    time.sleep(_SOON)
    if callable(signal.getsignal(number)):  # else the verb has ended meanwhile
        signal.pthread_kill(thread, number)


def _is_output_broken() -> bool:
    """Whether standard output can no longer be written: it is closed, or its disk is full."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError, AttributeError):  # the last where the user's code has set None
        return True
    return False


def _discard_output() -> int:
    """Drop buffered output that cannot be written, so that Python does not report it at exit."""
    if sys.stdout is not None and not sys.stdout.closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1


def _check_folder() -> None:
    """Refuse a working directory that has been removed, in which PyTorch ends the process."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("the working directory no longer exists: change to another") from None


def _print_error(message: str, code: int) -> int:
    print(f"paracosm: {on_one_line(message)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
