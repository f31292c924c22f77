"""Table 1: copies and all-reduces, as far as this machine has what they go between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kept import Kept, Progress
from plan import Plan

from paracosm.profiling.links.measure import LinkSettings, Row, measure_links, rows

__all__ = ["PAPER", "Copies", "Place", "Throughput", "measure_copies"]

Place = tuple[str, str]
"""Kind and scenario of a transfer."""

PAPER: dict[str, tuple[tuple[float | None, ...], Place, Place]] = {
    "GPU to GPU uni-direct": (
        (10948.81, 10270.59, 13181.03),
        ("device to device", "uni-direct"),
        ("shared memory", "uni-direct"),
    ),
    "GPU to GPU bi-direct": (
        (16475.93, 19325.81, 25037.41),
        ("device to device", "bi-direct"),
        ("shared memory", "bi-direct"),
    ),
    "Host to GPU": (
        (11956.69, 12027.22, 12347.09),
        ("host to device", "pinned memory"),
        ("host copy", "uni-direct"),
    ),
    "GPU to Host": (
        (13200.21, 13201.87, 13121.95),
        ("device to host", "pinned memory"),
        ("host copy", "uni-direct"),
    ),
    "NCCL-AllReduce 2GPUs": (
        (6178.68, 9162.42, 11598.12),
        ("all_reduce", "nccl 2 devices"),
        ("all_reduce", "gloo 2 processes"),
    ),
    "NCCL-AllReduce 4GPUs": (
        (None, None, 8048.35),
        ("all_reduce", "nccl 4 devices"),
        ("all_reduce", "gloo 4 processes"),
    ),
}
"""The paper's rows: MB/s through QPI, root complex and PCIe switch; the same transfer here; and the
one of the host that is nearest to it."""

KINDS = (
    *("host copy", "shared memory", "host to device", "device to host", "device to device"),
    "all_reduce",
)


@dataclass(frozen=True)
class Throughput:
    """One transfer of this machine.

    Attributes:
        kind, scenario: which.
        rate: by size of the message in bytes, bytes/s, of both directions together.
        error: standard error of the largest one's mean, relative.
    """

    kind: str
    scenario: str
    rate: dict[int, float]
    error: float

    @property
    def largest(self) -> float:
        """Bytes/s of the largest message."""
        return self.rate[max(self.rate)]


@dataclass(frozen=True)
class Copies:
    """Table 1 of this machine.

    Attributes:
        found: transfers by kind and scenario.
        missing: why others are not there.
        size: bytes of the message that counts.
    """

    found: dict[Place, Throughput]
    missing: dict[str, str]
    size: int


def measure_copies(kept: Kept, plan: Plan) -> Copies:
    """Time what this machine has of table 1."""
    stored = kept.part("table 1", lambda progress: _measure(kept, plan, progress))
    wanted = set(stored["timings"])
    timings = [link for link in kept.database.links() if link.key in wanted]
    largest = max(plan.sizes)
    errors = {(t.kind, t.scenario): t.time.standard_error for t in timings if t.size == largest}
    return Copies(
        {(row.kind, row.scenario): _throughput(row, errors) for row in rows(timings)},
        stored["missing"],
        largest,
    )


def _measure(kept: Kept, plan: Plan, progress: Progress) -> dict[str, Any]:
    settings = LinkSettings(KINDS, sizes=plan.sizes, ranks=plan.ranks, seconds=plan.seconds)
    done = measure_links(settings, "paper table 1", lambda t: _add(kept, t), progress)
    if done.interrupted:
        raise KeyboardInterrupt
    return {
        "timings": [timing.key for timing in done.timings],
        "missing": {**done.left_out, **done.failed},
    }


def _add(kept: Kept, timing: Any) -> None:
    kept.database.add_links([timing])


def _throughput(row: Row, errors: dict[Place, float]) -> Throughput:
    place = (row.kind, row.scenario)
    rate = {size: row.throughput(size) for size in row.seconds}
    return Throughput(*place, rate, errors.get(place, 0.0))
