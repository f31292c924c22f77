"""A progress bar on standard error, with updates per second and the time left."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from paracosm.units import format_duration

__all__ = ["progress_bar"]

_REFRESH = 0.1


class _Speed(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} {self._unit}/s" if task.speed else "", style="cyan")


@contextlib.contextmanager
def progress_bar(
    total: int | None, hidden: bool, unit: str = "updates"
) -> Iterator[Callable[[int, float | None], None]]:
    """Yield a function of the number done and the virtual time, cheap enough to call often.

    `total` is None where nobody knows beforehand.
    """
    console = Console(stderr=True)
    if hidden or not console.is_terminal:
        yield lambda done, virtual_time: None
        return
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        _Speed(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[clock]}"),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=total, clock="")
        drawn = 0.0

        def progress(done: int, virtual_time: float | None) -> None:
            nonlocal drawn
            now = time.perf_counter()
            if now - drawn < _REFRESH and done != total:
                return
            drawn = now
            clock = "" if virtual_time is None else f"virtual time {format_duration(virtual_time)}"
            bar.update(task, completed=done, clock=clock)

        yield progress
