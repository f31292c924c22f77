"""What can be measured: the rows of table 1 of Huang et al., and those that a CPU adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paracosm.errors import InputError, unknown

__all__ = ["COLLECTIVES", "DEVICE_KINDS", "ITEM", "KINDS", "USUAL", "Scenario", "scenarios"]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
DEVICE_KINDS = ("host to device", "device to host", "device to device")
KINDS = ("host copy", "shared memory", *DEVICE_KINDS, "send_recv", *COLLECTIVES)
"""Kinds of transfers; a kind has one or more scenarios."""

USUAL = ("host copy", "shared memory", *DEVICE_KINDS, "send_recv", "all_reduce")
"""What is measured where nobody says otherwise: table 1, and a message between processes."""

ITEM = 4
"""Bytes of one number of a message: collectives add 32-bit floats."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way to move a message.

    Attributes:
        kind: one of `KINDS`.
        name: which of several ways.
        ranks: processes or devices that take part.
        processes: worker processes that it needs.
        directions: messages under way at once, each on a path or in a direction of its own.
        backend: "gloo" or "nccl" for what goes through `torch.distributed`, else "".
        devices: CUDA devices that it needs.
    """

    kind: str
    name: str
    ranks: int
    processes: int = 1
    directions: int = 1
    backend: str = ""
    devices: int = 0

    def __str__(self) -> str:
        return f"{self.kind}, {self.name}"

    def message(self, size: int) -> int:
        """Return the bytes nearest below `size` that this scenario can send.

        Raises:
            InputError: there are none.
        """
        unit = ITEM * (self.ranks if self.kind == "reduce_scatter" else 1)
        if size < unit:
            raise InputError(f"{self}: a message has at least {unit} bytes, not {size}")
        return size // unit * unit

    def memory(self, size: int) -> int:
        """Return the bytes that all processes together hold for messages of `size` bytes."""
        buffers = {"shared memory": 4, "all_gather": 1 + self.ranks}.get(self.kind, 2)
        return buffers * size * self.processes


def scenarios(kinds: Sequence[str], ranks: Sequence[int]) -> list[Scenario]:
    """Return the scenarios of some kinds, those together that one team of workers can do.

    Args:
        kinds: of `KINDS`.
        ranks: numbers of processes that collectives run between.

    Raises:
        InputError: an unknown kind; fewer than two ranks.
    """
    for few in ranks:
        if few < 2:
            raise InputError(f"a collective needs at least 2 ranks, not {few}")
    found = [scenario for kind in kinds for scenario in _of_kind(kind, ranks)]
    return sorted(dict.fromkeys(found), key=lambda each: (each.processes, each.backend))


def _of_kind(kind: str, ranks: Sequence[int]) -> list[Scenario]:
    match kind:
        case "host copy":
            return [
                Scenario(kind, "uni-direct", 1),
                Scenario(kind, "bi-direct", 2, processes=2, directions=2),
            ]
        case "shared memory":
            return [
                Scenario(kind, "uni-direct", 2, processes=2),
                Scenario(kind, "bi-direct", 2, processes=2, directions=2),
            ]
        case "host to device" | "device to host":
            return [Scenario(kind, f"{memory} memory", 1, devices=1) for memory in _MEMORIES]
        case "device to device":
            return [
                Scenario(kind, "uni-direct", 2, devices=2),
                Scenario(kind, "bi-direct", 2, directions=2, devices=2),
            ]
        case "send_recv":
            return [Scenario(kind, "gloo 2 processes", 2, processes=2, backend="gloo")]
    if kind not in COLLECTIVES:
        raise unknown("kind of transfer", kind, KINDS)
    gloo = [
        Scenario(kind, f"gloo {few} processes", few, processes=few, backend="gloo") for few in ranks
    ]
    nccl = [
        Scenario(kind, f"nccl {few} devices", few, processes=few, backend="nccl", devices=few)
        for few in ranks
    ]
    return gloo + nccl


_MEMORIES = ("pinned", "pageable")
