"""What can go wrong in a simulation, beyond bad input, and how a walker is told to stop."""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.errors import InputError

__all__ = ["Cancelled", "DeadlockError", "FutureCancelledError", "Interrupt", "duration_error"]

_LINES_OF_A_REPORT = 20


class Cancelled(BaseException):
    """Thrown into a walker that is cancelled, so that it can clean up.

    Not an `Exception`, so that `except Exception` does not swallow it by accident.
    """


class Interrupt(Exception):  # noqa: N818
    """Thrown into a walker by `Walker.interrupt`; `cause` is what was given there."""

    def __init__(self, cause: object = None) -> None:
        super().__init__(cause)
        self.cause = cause


class FutureCancelledError(RuntimeError):
    """What was awaited was cancelled, so that it will never have a result."""


class DeadlockError(RuntimeError):
    """Nothing is scheduled any more, and yet walkers wait.

    Attributes:
        time: the virtual time at which everything stood still, in seconds.
        waiting: (name of the walker, what it waits for), in the order of their registration.
    """

    def __init__(self, time: float, waiting: Sequence[tuple[str, str]]) -> None:
        lines = [f"{name} waits for {what}" for name, what in waiting[:_LINES_OF_A_REPORT]]
        if len(waiting) > len(lines):
            lines.append(f"and {len(waiting) - len(lines)} more")
        super().__init__(
            f"deadlock at {time:g} s: nothing is scheduled, and these wait "
            "(a server that may wait at the end is added with daemon=True):\n  "
            + "\n  ".join(lines)
        )
        self.time = time
        self.waiting = tuple(waiting)


def duration_error(what: str, value: object) -> InputError:
    """Return the error for a `value` that is not a number of seconds, finite and not negative."""
    return InputError(f"{what} must be a finite number of seconds, 0 or more, not {value!r}")
