"""What a node and its link add to a transfer of n bytes: the numbers a simulation asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

__all__ = ["QUANTITIES", "Found", "NodeCalibration"]


@dataclass(frozen=True, slots=True)
class Found:
    """How a quantity was found.

    Attributes:
        how: "measured" or "estimated" (from a profile).
        by: in words, "3 rounds of 3 s to 10.0.0.2:5201", "TensorFlow 2.21 on loopback".
        when: date and time, ISO 8601.
        spread: relative: (largest - smallest) / median of rounds; of alpha and beta the mean error
            of their line; of what is estimated the mean error of the ends of streams; None where
            nobody knows; of `uneven` (larger - smaller) / value of the two ways.
        loopback: there was no network in it.
    """

    how: str
    by: str
    when: str
    spread: float | None = None
    loopback: bool = False


@dataclass(frozen=True, slots=True)
class NodeCalibration:
    """Bandwidth, parsing overhead and flow control of a node (Li et al. 2020, section 3).

    Each quantity is None where it is not known.

    Attributes:
        bandwidth_out: bytes/s of payload that this node can send to the other one.
        bandwidth_in: bytes/s of payload that it can receive.
        duplex: what both ways carry at once, relative to the sum of what each carries alone: 1 of
            a full-duplex link, 0.5 of a half-duplex one.
        round_trip: seconds of a small message there and back.
        uneven: how unevenly connections that send at once share the link: standard deviation of
            ln(share / equal share); 0 of fair queueing.
        burst: bytes that the link lets through at once after a pause.
        alpha: seconds a byte of parsing what was received (section 3.2.1).
        beta: seconds of parsing anything received.
        window: bytes of a stream that are sent before another one has its turn (WIN, section
            3.2.2); infinite where streams are not interrupted.
        found: by the names of quantities, how each was found.
        environment: versions, processor and the like.
    """

    bandwidth_out: float | None = None
    bandwidth_in: float | None = None
    duplex: float | None = None
    round_trip: float | None = None
    uneven: float | None = None
    burst: float | None = None
    alpha: float | None = None
    beta: float | None = None
    window: float | None = None
    found: Mapping[str, Found] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def bandwidth(self) -> float | None:
        """That of a link: the smaller one of the two ways, bytes/s; None if neither is known.

        What was found over loopback is none of a link.
        """
        ways = {"bandwidth_out": self.bandwidth_out, "bandwidth_in": self.bandwidth_in}
        known = (value for name, value in ways.items() if not self.over_loopback(name))
        return min((value for value in known if value is not None), default=None)

    def over_loopback(self, name: str) -> bool:
        """Return whether a quantity was found without a network."""
        found = self.found.get(name)
        return found is not None and found.loopback

    def over(self, older: NodeCalibration) -> NodeCalibration:
        """Return what this one knows, and where it does not, what the older one does.

        What was found over loopback does not take the place of what was found over a network.
        """
        missing = [
            name
            for name in QUANTITIES
            if getattr(self, name) is None
            or (
                self.over_loopback(name)
                and not older.over_loopback(name)
                and getattr(older, name) is not None
            )
        ]
        kept = {name: older.found[name] for name in missing if name in older.found}
        own = {name: each for name, each in self.found.items() if name not in missing}
        return replace(
            self,
            **{name: getattr(older, name) for name in missing},
            found={**kept, **own},
            environment={**older.environment, **self.environment},
        )


QUANTITIES = tuple(
    each.name for each in fields(NodeCalibration) if each.name not in ("found", "environment")
)
"""The names of what is calibrated."""
