"""The real rank as a member of a process group, and which comm workers it has there."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Member"]


@dataclass
class Member:
    """The real rank as a member of one process group.

    Attributes:
        name: of the group.
        rank: in the group.
        members: global ranks of all.
        asked: backend that the script asked for, as "gloo" or "cpu:gloo,cuda:nccl".
        timeout: seconds after which a collective of a real group fails.
        comm_workers: how many the user wants; None for as many as the backend asked for has.
        count: of collectives so far.
    """

    name: str
    rank: int
    members: tuple[int, ...]
    asked: str
    timeout: float
    comm_workers: int | None
    count: int = 0

    def pool(self, kind: str, peer: int, device: str) -> tuple[object, int]:
        """Return which comm workers take a collective, and how many there are.

        Messages with one peer wait for each other and for nothing else: gloo needs no comm worker
        for them, NCCL has a stream for each pair.

        Args:
            kind: as in `records.Collective`.
            peer: rank in the group.
            device: type of the tensors' device.
        """
        if kind in ("send", "recv"):
            return (id(self), kind, peer), 1
        return (id(self), device), self.comm_workers or _comm_workers(self.asked, device)


def _comm_workers(asked: str, device: str) -> int:
    """Return 2 for gloo, which has two threads for a group, and 1 for NCCL, which has a stream."""
    asked = asked.lower()
    if ":" in asked:
        asked = dict(pair.split(":", 1) for pair in asked.split(",")).get(device, "")
    if asked in ("", "undefined"):
        asked = "gloo" if device == "cpu" else "nccl"
    return 2 if asked == "gloo" else 1
