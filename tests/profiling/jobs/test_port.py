"""A port by waiting shares its rate as a fluid link does, worked out by hand."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from paracosm.profiling.jobs.pytorch.server import Port

LATE = 0.1  # seconds that a busy machine may wake somebody up too late


def ends(port: Port, flows: dict[int, tuple[float, int]]) -> dict[int, float]:
    """By worker, the seconds after which its bytes have passed; each begins at its own time."""
    begin = time.monotonic()

    def carried(worker: int) -> float:
        start, size = flows[worker]
        time.sleep(max(0.0, begin + start - time.monotonic()))
        port.carry(worker, size)
        return time.monotonic() - begin

    with ThreadPoolExecutor(len(flows)) as pool:
        return dict(zip(flows, pool.map(carried, flows), strict=True))


@pytest.mark.parametrize(
    ("flows", "expected"),
    [
        ({0: (0.0, 30_000)}, {0: 0.3}),
        # Both have half until the shorter one ends; the longer one then has all of it.
        ({0: (0.0, 30_000), 1: (0.0, 10_000)}, {0: 0.4, 1: 0.2}),
        # Alone until 0.2 s (20 kB), half until 0.4 s (10 kB more); the other has 10 kB left.
        ({0: (0.0, 30_000), 1: (0.2, 20_000)}, {0: 0.4, 1: 0.5}),
        ({0: (0.0, 10_000), 1: (0.0, 10_000), 2: (0.0, 20_000)}, {0: 0.3, 1: 0.3, 2: 0.4}),
    ],
)
def test_flows_end_when_a_fluid_link_would_have_carried_them(
    flows: dict[int, tuple[float, int]], expected: dict[int, float]
) -> None:
    # Who wakes up late delays the others too: of three tries the best counts.
    tries = [ends(Port(100_000.0), flows) for _ in range(3)]
    for worker, seconds in expected.items():
        found = [each[worker] for each in tries]
        assert seconds - 0.02 < min(found) < seconds + LATE


def test_bytes_one_after_the_other_take_as_long_as_all_of_them() -> None:
    def took() -> float:
        port, begin = Port(100_000.0), time.monotonic()
        for _ in range(10):
            port.carry(0, 2_000)
        return time.monotonic() - begin

    assert 0.2 - 1e-6 <= min(took() for _ in range(3)) < 0.2 + LATE
