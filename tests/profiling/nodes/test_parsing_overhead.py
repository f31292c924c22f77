"""alpha and beta of making tensors of received bytes."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest

from paracosm.errors import InputError
from paracosm.profiling.nodes import parsing as module
from paracosm.profiling.nodes.calibration import calibration_of_parsing
from paracosm.profiling.nodes.parsing import fit_parsing, measure_parsing

SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 22)


def test_a_known_line_is_found_again() -> None:
    found = fit_parsing({size: 2e-4 + 1e-9 * size for size in SIZES})
    assert found.alpha == pytest.approx(1e-9, rel=1e-3)
    assert found.beta == pytest.approx(2e-4, rel=1e-3)
    assert found.worst < 1e-4
    calibration = calibration_of_parsing(found, "by hand")
    assert (calibration.alpha, calibration.beta) == (found.alpha, found.beta)
    assert calibration.found["alpha"].how == "measured"
    assert calibration.window is None


def test_a_parser_of_known_speed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 ms and 10 ns a byte, by a clock of its own, without the second that a socket takes."""
    now = [0.0]

    class Slow(socket.socket):
        def recv_into(self, *arguments: Any) -> int:
            now[0] += 1.0
            return super().recv_into(*arguments)

    def pair() -> tuple[socket.socket, socket.socket]:
        sending, receiving = socket.socketpair()
        return sending, Slow(fileno=receiving.detach())

    def parse(received: bytearray) -> None:
        now[0] += 1e-2 + 1e-8 * len(received)

    clock = SimpleNamespace(perf_counter=lambda: now[0], monotonic=time.monotonic)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "socket", SimpleNamespace(socketpair=pair))
    monkeypatch.setattr(module, "_parser", lambda _: parse)
    found = measure_parsing("numpy", SIZES, seconds=0.01)
    assert found.beta == pytest.approx(1e-2, rel=1e-3)
    assert found.alpha == pytest.approx(1e-8, rel=1e-3)


@pytest.mark.parametrize("parser", ["numpy", "torch"])
def test_parsers_are_given_what_was_sent(parser: str) -> None:
    if parser == "torch":
        pytest.importorskip("torch")
    done: list[int] = []
    found = measure_parsing(parser, (1024, 1 << 20), seconds=0.01, progress=done.append)
    assert done == [1, 2]
    assert list(found.seconds) == [1024, 1 << 20]
    assert all(0 < second < 1 for second in found.seconds.values())


@pytest.mark.parametrize(
    ("parser", "sizes", "why"),
    [
        ("nmpy", SIZES, 'unknown parser "nmpy": did you mean "numpy"?'),
        ("numpy", (1023, 4096), "a multiple of 4 bytes, not 1023"),
        ("numpy", (0, 4096), "a multiple of 4 bytes, not 0"),
        ("numpy", (4096,), "need two sizes or more"),
    ],
)
def test_what_cannot_be_measured_is_refused(parser: str, sizes: tuple[int, ...], why: str) -> None:
    with pytest.raises(InputError) as caught:
        measure_parsing(parser, sizes, seconds=0.01)
    assert why in str(caught.value)
