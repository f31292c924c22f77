"""Signals that arrive where Python drops what their handler raises."""

from __future__ import annotations

import ctypes
import signal
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from paracosm.cli import app


class Thing:
    """What a weak reference can be to."""


class Sender:
    """Sends a signal when it is removed."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        signal.raise_signal(self.number)


def when_removed(number: int) -> None:
    sender = Sender(number)
    del sender


def in_a_weak_reference(number: int) -> None:
    thing = Thing()
    reference = weakref.ref(thing, lambda _: signal.raise_signal(number))
    del thing
    assert reference() is None


def from_c(number: int) -> None:
    ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(number))()


def within_another(number: int) -> None:
    class Slow:
        def __del__(self) -> None:  # in which the signal comes once more, and is lost again
            when_removed(number)
            time.sleep(0.1)

    slow = Slow()
    del slow


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    return found


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("place", [when_removed, in_a_weak_reference, from_c, within_another])
def test_a_signal_that_is_lost_comes_again(
    place: Callable[[int], None],
    number: int,
    code: int,
    printed: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def verb(*_: object, **__: object) -> int:
        place(number)
        time.sleep(20)
        return 0

    monkeypatch.setattr(app, "app", verb)
    hook = sys.unraisablehook
    assert app.main([]) == code
    assert capsys.readouterr().err == "paracosm: interrupted\n"
    assert printed == []
    assert sys.unraisablehook == hook


def test_other_errors_that_python_drops_are_still_printed(
    printed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def __del__(self) -> None:
            raise ValueError("mine")

    def verb(*_: object, **__: object) -> int:
        broken = Broken()
        del broken
        return 0

    monkeypatch.setattr(app, "app", verb)
    assert app.main([]) == 0
    assert [lost.exc_type for lost in printed] == [ValueError]
