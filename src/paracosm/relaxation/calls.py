"""Calls of the user's plain Python functions, where the loop asks for them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np

from paracosm.errors import InputError
from paracosm.relaxation.kernel.halo import exchange
from paracosm.relaxation.kernel.loop import rows_in_flight
from paracosm.relaxation.kernel.scalars import DUE
from paracosm.relaxation.slots import grow_slots
from paracosm.relaxation.state import Run
from paracosm.timing.compiled import uniform

__all__ = ["ask_durations", "ask_rows", "ask_values"]


def ask_rows(run: Run) -> None:
    """Ask the pattern function which rows those who are due update next.

    Raises:
        InputError: if it does not return rows.
    """
    function, n = run.functions.python_rows, run.spec.problem.n
    if function is None:
        return
    for who in _due(run):
        flight = run.arrays.flight
        number = int(flight.updates[who])
        where = f"pattern function: processor {who}, update {number}"
        rows = np.asarray(function(who, number, uniform(run.arrays.choices[who], number)))
        if rows.ndim != 1 or rows.size == 0 or rows.dtype.kind not in "iu":
            raise InputError(f"{where}: it has to return a list of one row or more")
        if rows.min() < 0 or rows.max() >= n:
            raise InputError(f"{where}: rows are 0 to {n - 1}, not {rows.min()} to {rows.max()}")
        while rows.size > flight.slot[who + 1] - flight.slot[who]:
            grow_slots(run.arrays)
            flight = run.arrays.flight
        flight.chosen[flight.slot[who] : flight.slot[who] + rows.size] = rows
        flight.size[who] = rows.size


def ask_values(run: Run) -> None:
    """Ask the update function for the new values of those who are due.

    Raises:
        InputError: if it returns something else than one value a row.
    """
    function = run.functions.python_values
    if function is None:
        return
    for who in _due(run):
        _ask_values_of(run, function, who)


def _ask_values_of(run: Run, function: Callable[..., Any], who: int) -> None:
    a = run.arrays
    first, end, chosen = rows_in_flight(a.blocks, a.flight, who)
    rows = (a.flight.chosen if chosen else a.blocks.rows)[first:end]
    slot = a.flight.slot[who]
    out = a.flight.values[slot : slot + end - first]
    arguments = (out,) if run.spec.problem.map is not None else (run.A, a.matrix.b, out)
    if a.rules.distributed:
        exchange(a.iterate, a.halos, who)
    a.iterate.x.flags.writeable = False  # what the loop keeps is not for others to change
    try:
        given = function(a.iterate.x, rows, *arguments)
    finally:
        a.iterate.x.flags.writeable = True
        if a.rules.distributed:
            exchange(a.iterate, a.halos, who)
    if given is None:
        return
    try:
        values = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"update function: processor {who}: it returned no numbers") from None
    if values.shape != out.shape:
        raise InputError(
            f"update function: processor {who}: it returned values of shape {values.shape} "
            f"for {out.size} rows"
        )
    out[:] = values


def ask_durations(run: Run) -> None:
    """Ask the time function for the next duration of everyone whose last one is used up."""
    function = run.functions.python_time
    if function is None:
        return
    a = run.arrays
    leaves = a.clock.key.size // 2
    for who in np.flatnonzero(np.isnan(a.flight.given[: run.spec.processors])).tolist():
        # Whose update is in flight has its duration already: the next one is asked for.
        in_flight = a.clock.key[leaves + who] < inf
        number = int(a.flight.updates[who]) + int(in_flight)
        given = function(who, number, uniform(a.streams[who], number))
        try:
            duration = float(given)
        except (TypeError, ValueError):
            raise InputError(
                f"time function: processor {who}, update {number}: {given!r} is no number"
            ) from None
        if duration != duration:
            raise InputError(f"time function: processor {who}, update {number}: it returned NaN")
        a.flight.given[who] = duration


def _due(run: Run) -> list[int]:
    a = run.arrays
    due = a.flight.due[: a.counters[DUE]].tolist()
    return [who for who in due if who < run.spec.processors and not a.flight.stale[who]]
