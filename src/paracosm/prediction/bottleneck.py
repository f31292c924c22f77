"""What an iteration waits for, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["bottleneck"]

WAITS = 0.1  # share of the iteration from which on waiting is worth the sentence


def bottleneck(
    iteration_time: float, lanes: Mapping[str, float], ops: Mapping[str, float], asynchronous: bool
) -> str:
    """Return what decides the iteration's time.

    Args:
        iteration_time: seconds.
        lanes: seconds that each lane is busy.
        ops: seconds by op name, the largest first.
        asynchronous: whether the host runs ahead of the device.
    """
    if not iteration_time > 0 or not ops:
        return "Nothing takes any time."
    name, time = next(iter(ops.items()))
    most = f"{name} takes {time / sum(ops.values()):.0%} of the ops' time"
    working = "compute" if asynchronous and "compute" in lanes else "host"
    idle = 1 - lanes[working] / iteration_time
    longest = max(lanes, key=lambda lane: lanes[lane])
    if longest not in (working, "host") and idle > WAITS:
        return f"{_LANES[longest]}: the device waits {idle:.0%} of the iteration; {most}."
    if working == "compute" and idle > WAITS:
        return (
            f"Launching: the device is idle {idle:.0%} of the iteration, because the host issues "
            f"ops more slowly than it computes; {most}."
        )
    return f"Computing: {most}."


_LANES = {"communication": "Communication", "memory": "Copies"}
