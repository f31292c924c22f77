"""The power of a node, and the resulting energy."""

from dataclasses import dataclass

from paracosm.errors import InputError
from paracosm.units import format_power, real


@dataclass(frozen=True)
class Power:
    """The power of a node, in watts; InputError unless 0 <= off <= idle <= busy, all finite."""

    busy: float  # while it computes
    idle: float  # while it is on and computes nothing
    off: float = 0.0  # while it is stopped

    def __post_init__(self) -> None:
        for state in ("busy", "idle", "off"):
            object.__setattr__(self, state, real(getattr(self, state)))
        if not 0 <= self.off <= self.idle <= self.busy < float("inf"):
            raise InputError(f"power: a node draws 0 W <= off <= idle <= busy, not {self}")

    def __str__(self) -> str:
        watts = {"busy": self.busy, "idle": self.idle, "off": self.off}
        return ", ".join(f"{state} {format_power(value)}" for state, value in watts.items())

    def energy(self, time: float, busy: float, off: float = 0.0) -> float:
        """Return the joules of `time` seconds, of which it was busy and off for so many."""
        return self.busy * busy + self.idle * (time - busy - off) + self.off * off
