"""A synchronous job that fails, tick by tick."""

from __future__ import annotations

from collections.abc import Sequence


def failing_job(
    iteration: int, count: int, interval: int, cost: int, restart: int, failures: Sequence[int]
) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Return when each of the iterations that count has ended, and what failures wasted.

    Args:
        iteration: ticks that each of the `count` iterations takes.
        interval: ticks of work after which a checkpoint is saved, as soon as an iteration is over.
        cost, restart: ticks of a checkpoint and of a restart, 1 or more.
        failures: ticks at which the job fails; what ends at one has ended.

    Returns:
        Ticks, and for each failure outside of restarts when the job went on, ticks of work that
        were lost, and ticks spent on a checkpoint that was never done.
    """
    saved: list[int] = []
    unsaved: list[int] = []
    wasted: list[tuple[int, int, int]] = []
    doing, left, lost, now = "working", iteration, (0, 0), 0
    while True:
        if now in failures:
            if doing == "working":
                lost = (len(unsaved) * iteration + iteration - left, 0)
            elif doing == "saving":
                lost = (len(unsaved) * iteration, cost - left)
            unsaved, doing, left = [], "restarting", restart
        now, left = now + 1, left - 1
        if left > 0:
            continue
        if doing == "working":
            unsaved.append(now)
            if len(saved) + len(unsaved) == count:
                return saved + unsaved, wasted
        elif doing == "saving":
            saved, unsaved = saved + unsaved, []
        else:
            wasted.append((now, *lost))
        is_due = doing == "working" and len(unsaved) * iteration >= interval
        doing, left = ("saving", cost) if is_due else ("working", iteration)
