"""Which faults were noticed, and which rollbacks were for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paracosm.errors import InputError

__all__ = ["DetectionScore", "score"]


@dataclass(frozen=True)
class DetectionScore:
    """Faults and rollbacks held against each other.

    Args:
        detected: faults that a rollback followed within the window.
        undetected: the other faults.
        false_alarms: rollbacks that followed no fault.
        repeats: further rollbacks for a fault detected already (only where they are told apart).
        detection_rate: detected / faults; None without faults.
        false_alarm_rate: false alarms / rollbacks; None without rollbacks.
    """

    detected: int
    undetected: int
    false_alarms: int
    repeats: int
    detection_rate: float | None
    false_alarm_rate: float | None


def score(
    fault_times: Sequence[float],
    rollback_times: Sequence[float],
    window: float,
    *,
    allow_repeats: bool = False,
) -> DetectionScore:
    """Match each rollback, in time order, to the latest unmatched fault within `window` before it.

    Args:
        fault_times, rollback_times: seconds of virtual time, in any order.
        window: seconds; 0 or more. A fault at the very instant of the rollback counts.
        allow_repeats: a rollback with none but matched faults in its window is a repeat, not a
            false alarm. Where blocks roll back one by one, a fault that struck several needs this.

    Raises:
        InputError: a window that is negative or NaN.
    """
    if not window >= 0:
        raise InputError(f"the window of a detection must be 0 or more, not {window}")
    unmatched = sorted(fault_times)
    matched: list[float] = []
    repeats = 0
    for rollback in sorted(rollback_times):
        if (fault := _latest(unmatched, rollback, window)) is not None:
            unmatched.remove(fault)
            matched.append(fault)
        elif allow_repeats and _latest(sorted(matched), rollback, window) is not None:
            repeats += 1
    false_alarms = len(rollback_times) - len(matched) - repeats
    return DetectionScore(
        detected=len(matched),
        undetected=len(unmatched),
        false_alarms=false_alarms,
        repeats=repeats,
        detection_rate=_rate(len(matched), len(fault_times)),
        false_alarm_rate=_rate(false_alarms, len(rollback_times)),
    )


def _latest(ascending: list[float], rollback: float, window: float) -> float | None:
    fitting = (time for time in reversed(ascending) if 0 <= rollback - time <= window)
    return next(fitting, None)


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None
