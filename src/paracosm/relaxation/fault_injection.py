"""Injection of faults into a running iteration."""

from collections.abc import Iterator
from math import inf, nan

import numpy as np

from paracosm.errors import InputError
from paracosm.faults.fault import (
    Fault,
    OnProcessor,
    choose_components,
    choose_processor,
    fault_times,
)
from paracosm.faults.models import DataFault, Stale, Stop
from paracosm.relaxation.kernel import arrays as k
from paracosm.relaxation.kernel.arrays import rows_of
from paracosm.relaxation.kernel.tournament_tree import set_key
from paracosm.relaxation.methods import method_gain
from paracosm.relaxation.state import (
    Run,
    ask_durations,
    ask_rows,
    ask_values,
    begin_update,
    compute_residual,
    norm,
    schedule_update,
    set_largest,
)
from paracosm.rng import RelaxationStream, generator

MOST_FAULTS = 100_000  # each costs a residual of all rows
MOST_IN_VAIN = 10_000  # while no update is written
_MOST_READ = 1e9  # numbers that their residuals read, some seconds


def schedule_faults(run: Run) -> None:
    """Put the first occurrence of each of the configured faults on the run's agenda."""
    spec = run.spec
    for index, fault in enumerate(spec.config.fault):
        rng = generator(spec.seed, RelaxationStream.FAULTS, index)
        _schedule_next(run, fault, rng, fault_times(fault, spec.horizon, rng))


def _schedule_next(
    run: Run, fault: Fault, rng: np.random.Generator, instants: Iterator[float]
) -> None:
    instant = next(instants, None)
    if instant is None:
        return

    def act() -> None:
        _inject(run, fault, rng)
        _schedule_next(run, fault, rng, instants)

    run.at(instant, act)


def _inject(run: Run, fault: Fault, rng: np.random.Generator) -> None:
    a, before = run.arrays, norm(run)
    if isinstance(fault.model, DataFault):
        words = _corrupt(run, fault, fault.model, rng)
    else:
        words = _hit_processor(run, fault, rng)
    if not words:
        return  # there was nothing to corrupt
    if isinstance(fault.model, DataFault):
        compute_residual(run)
        set_largest(run, max(float(a.gauges[k.SQUARE]), run.initial_residual**2))
    run.struck += 1
    relaxations = int(a.counters[k.RELAXATIONS])
    run.in_vain = run.in_vain + 1 if relaxations == run.relaxed else 0
    run.relaxed = relaxations
    most = min(MOST_IN_VAIN, _MOST_READ / max(1, run.spec.problem.A.nnz))
    if run.struck > MOST_FAULTS or run.in_vain > max(100.0, most):
        meanwhile = ", between two updates" if run.struck <= MOST_FAULTS else ""
        raise InputError(
            f'fault "{fault}": more than {run.struck - 1:,} faults in {run.virtual_time:g} s of '
            f"virtual time{meanwhile}: give a longer interval"
        )
    if a.counters[k.MARKS] < a.history.marks.shape[0]:
        run.faults.append((words, before, isinstance(fault.model, DataFault)))
    run.enter(k.MARK_FAULT)


def _hit_processor(run: Run, fault: Fault, rng: np.random.Generator) -> str:
    processor = choose_processor(fault.where, run.spec.processors, rng)
    assert isinstance(fault.model, Stop | Stale)
    until = run.virtual_time + fault.model.duration
    if isinstance(fault.model, Stop):
        _stop(run, processor, until)
    else:
        _make_stale(run, processor, until)
    return f"{fault.model} on processor {processor}"


def _stop(run: Run, processor: int, until: float) -> None:
    clock, flight = run.arrays.clock, run.arrays.flight
    run.stops.append((processor, max(run.virtual_time, run.down.get(processor, 0.0)), until))
    if run.spec.barrier is not None:
        flight.end[processor] += (until - run.virtual_time) * run.ticks
        # Everybody waits for it at the barrier.
        first = clock.winner.size // 2
        clock.key[first : first + run.spec.processors] += (until - run.virtual_time) * run.ticks
        run.enter(k.REBUILD)
        return
    set_key.py_func(clock, processor, inf)
    now = float(run.arrays.gauges[k.NOW])
    run.arrays.tally.busy[processor] -= max(0.0, flight.end[processor] - now)  # the update is lost
    flight.end[processor] = now
    run.down[processor] = max(run.down.get(processor, 0.0), until)
    if run.down[processor] < inf:
        run.at(until, lambda: _restart(run, processor), revives=True)


def _restart(run: Run, processor: int) -> None:
    if run.virtual_time < run.down[processor] * (1 - 1e-12):
        return  # another fault keeps it down for longer
    if run.arrays.rules.at_start and not run.arrays.rules.after_copy:
        _read(run, processor)
    # A Python function has said the duration after that of the update that was lost.
    run.arrays.flight.given[processor] = nan
    ask_durations(run)
    schedule_update(run, processor)
    ask_durations(run)


def _make_stale(run: Run, processor: int, until: float) -> None:
    """Make a processor continue with the values that it reads now."""
    flight = run.arrays.flight
    if not flight.stale[processor]:
        _read(run, processor)
    flight.stale[processor] = True
    run.stale[processor] = max(run.stale.get(processor, 0.0), until)

    def recover() -> None:
        if run.virtual_time >= run.stale[processor] * (1 - 1e-12):
            run.arrays.flight.stale[processor] = False

    run.at(until, recover)


def _read(run: Run, processor: int) -> None:
    a = run.arrays
    a.flight.due[0] = processor
    a.counters[k.DUE] = 1
    ask_rows(run)
    begin_update(run, processor)
    ask_values(run)
    a.counters[k.DUE] = 0


def _corrupt(run: Run, fault: Fault, model: DataFault, rng: np.random.Generator) -> str:
    """Corrupt numbers where they are; return what was done, or nothing if none were there."""
    a, pattern = run.arrays, run.spec.pattern
    processor = choose_processor(fault.where, run.spec.processors, rng)
    owned = pattern.block(processor % pattern.blocks)
    rows = None
    if fault.target == "halo":
        return _corrupt_message(run, fault, model, rng, processor)
    values = {"x": a.iterate.x, "b": a.matrix.b, "A": a.matrix.data}[fault.target]
    if fault.target == "A":
        rows = a.matrix.row.astype(np.int64)
    place = choose_components(fault.where, values.size, rng, rows=rows, owned=owned)
    with np.errstate(all="ignore"):
        touched = model.corrupt(values, place, rng)
    if fault.target == "A":
        _apply_changed_matrix(run)
    run.corrupted = run.corrupted or fault.target in ("A", "b")
    return f"{model} in {fault.target}: {_components(touched.size)}"


def _apply_changed_matrix(run: Run) -> None:
    from scipy.sparse import csc_array

    a, shape = run.arrays, run.A.shape
    A = csc_array((a.matrix.data, a.matrix.row, a.matrix.pointer), shape).tocsr()
    A.sort_indices()
    run.A = A
    if a.rows_of_a.data.size:
        run.arrays = a._replace(rows_of_a=rows_of(A))
    if a.halos.data.size:
        a.halos.data[:] = A.data
    if run.spec.method is not None:
        with np.errstate(all="ignore"):
            a.matrix.gain[:] = method_gain(run.spec.method, A)


def _corrupt_message(
    run: Run, fault: Fault, model: DataFault, rng: np.random.Generator, processor: int
) -> str:
    """Corrupt the newest message under way to a processor, else the values it received last."""
    halos = run.arrays.halos
    links = halos.into[halos.into_pointer[processor] : halos.into_pointer[processor + 1]]
    links = links[halos.kind[links] == k.HALO]
    if links.size == 0:
        return ""
    link = int(rng.choice(links))
    values = halos.have
    if halos.under_way[link] > 0:
        values = halos.payload[halos.buffer[link, halos.under_way[link] - 1]]
    message = values[halos.link[link] : halos.link[link + 1]]
    rows = halos.rows[halos.link[link] : halos.link[link + 1]]
    where = None if isinstance(fault.where, OnProcessor) else fault.where
    place = choose_components(where, message.size, rng, rows=rows)
    if place is not None and place.size == 0:
        return ""
    with np.errstate(all="ignore"):
        touched = model.corrupt(message, place, rng)
    return f"{model} in a message to processor {processor}: {_components(touched.size)}"


def _components(count: int) -> str:
    return f"{count} component{'s' if count != 1 else ''}"
