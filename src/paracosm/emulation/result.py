"""The result of an emulated job: summary, timeline and tables, made from its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Protocol

import numpy as np

from paracosm.arrays import Floats
from paracosm.emulation.check import compare_with
from paracosm.emulation.compose import compose
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.rank_records import RankRecords, by_rank, is_measured, measured_iterations
from paracosm.emulation.recordings import of_one_rank
from paracosm.emulation.records import (
    MEASUREMENT,
    MESSAGES,
    Collective,
    Iteration,
    Record,
    Wait,
    write_records,
)
from paracosm.emulation.summary import summarise
from paracosm.files import sealing
from paracosm.results import EmulationSummary
from paracosm.timeline import Labels, Timeline, union
from paracosm.timeline.analysis import exposed_of_each, exposure_between
from paracosm.units import format_size

Files = Mapping[str, Callable[[Path], None]]
"""Further files of a run folder, by name, with the functions that write them."""


@dataclass(frozen=True)
class EmulationResult:
    summary: EmulationSummary  # the key numbers, as `summary.json` names them
    timeline: Timeline | None  # of the real ranks; None where several runs were made
    files: Files = field(default_factory=dict)
    records: Sequence[Record] = ()  # of the job


def result_of(
    config: EmulateConfig,
    recorded: Sequence[Record],  # what the processes recorded
    exit_code: int | None,
    seed: int,  # of all that is random about the emulated ranks
    emulator: int | None = None,
    interrupted: bool = False,
) -> EmulationResult:
    """Return the result of a run; if it measured computing alone, its job is composed first."""
    records = compose(config, seed, recorded) if is_measured(recorded) else recorded
    summary = summarise(config, records, exit_code, measured=recorded)
    if records is not recorded:
        summary = replace(summary, efficiency=_efficiency(config, seed, recorded, summary))
    if emulator or interrupted:
        summary = replace(summary, status="interrupted" if interrupted else "failed")
    if config.compare is not None:
        summary = replace(summary, beside=compare_with(config.compare, summary))
    files: dict[str, Callable[[Path], None]] = {
        "collectives.parquet": lambda path: _save_collectives(records, path)
    }
    if records is not recorded:
        files[MEASUREMENT] = lambda path: write_records(recorded, path)
    return EmulationResult(summary, timeline_of(records), files, records)


def _efficiency(
    config: EmulateConfig, seed: int, recorded: Sequence[Record], summary: EmulationSummary
) -> float | None:
    """Return the job's throughput over that of so many ranks which each have nobody to wait for.

    None for jobs whose ranks do different things, as the stages of a pipeline.
    """
    time = summary.iteration_time
    kinds = summary.collectives or {}
    if time is None or len(config.rank) > 1 or not kinds.keys().isdisjoint(MESSAGES):
        return None
    alone = by_rank(compose(config, seed, of_one_rank(recorded)))[0]
    one = float(np.median(measured_iterations(alone.iterations).time))
    return min(one / time.median, 1.0) if time.median else None


class Sink(Protocol):
    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None: ...


_BEGINS = {Collective: attrgetter("asked"), Wait: attrgetter("begin"), Iteration: attrgetter("end")}


class Metrics:
    """Writes rows for every iteration of every real rank, and counts them for a progress bar.

    Rows: `iteration_time` in seconds, from the second iteration on; `cpu`, processor seconds per
    second; and at the end `exposed` and `hidden`, seconds of communication in the iteration. Both
    times of a row are seconds since the job's first record.
    """

    def __init__(
        self, sink: Sink | None, progress: Callable[[int, float | None], None] | None = None
    ) -> None:
        self._sink = sink
        self._progress = progress
        self._last: dict[int, Iteration] = {}
        self._begun: float | None = None
        self._done = 0
        self._is_measured = False

    def unwritten(self) -> Metrics:
        return Metrics(None, self._progress)

    def restart(self) -> None:
        """Begin another run of the script: its first iteration follows no other."""
        self._last.clear()

    def add(self, records: Sequence[Record]) -> None:
        """Write rows as a run proceeds; a measuring run's follow once it is composed."""
        self._is_measured = self._is_measured or is_measured(records)
        self._write(records)

    def end(self, result: EmulationResult) -> None:
        """Write the rows that are known only at the end of a run."""
        if self._is_measured:
            self._is_measured, self._progress = False, None
            self._last.clear()
            self._write(result.records)
            self._is_measured = True
        self._exposure(result.records)

    def _write(self, records: Sequence[Record]) -> None:
        for record in records:
            if self._begun is None and (time_of := _BEGINS.get(type(record))):
                self._begun = time_of(record)
            if isinstance(record, Iteration):
                self._iteration(record)

    def _exposure(self, records: Sequence[Record]) -> None:
        if self._sink is None or self._begun is None:
            return
        for records_of_rank in by_rank(records):
            iterations = measured_iterations(records_of_rank.iterations)
            parts = exposure_between(
                iterations.begin, iterations.end, records_of_rank.spans, records_of_rank.waits
            )
            for name, seconds in (("exposed", parts.exposed), ("hidden", parts.hidden)):
                rows = zip(iterations.number, iterations.end - self._begun, seconds, strict=True)
                for number, time, value in rows:
                    row = (float(time), float(time), f"rank{records_of_rank.rank}", name)
                    self._sink.metric(*row, float(value), int(number))

    def _iteration(self, record: Iteration) -> None:
        before = self._last.get(record.rank)
        self._last[record.rank] = record
        if before is not None and self._sink is not None and not self._is_measured:
            time = record.end - (self._begun or 0.0)
            took = record.end - before.end
            node = f"rank{record.rank}"
            self._sink.metric(time, time, node, "iteration_time", took, record.number)
            if took > 0:
                share = (record.cpu - before.cpu) / took
                self._sink.metric(time, time, node, "cpu", share, record.number)
        if record.rank == min(self._last):
            self._done += 1
            if self._progress is not None:
                self._progress(self._done, None)


_TIMES = ("asked", "entered", "begun", "done")


def _save_collectives(records: Sequence[Record], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    ranks = by_rank(records)
    start = min((rank.first for rank in ranks), default=0.0)
    rows = []
    for records_of_rank in ranks:
        exposed = exposed_of_each(records_of_rank.spans, records_of_rank.waits)
        for collective, seconds in zip(records_of_rank.collectives, exposed.tolist(), strict=True):
            row = asdict(collective)
            row |= {name: row[name] - start for name in _TIMES}
            row |= {"exposed": seconds, "hidden": row["done"] - row["asked"] - seconds}
            rows.append(row)
    whole = ("rank", "number", "size", "peer", "worker")
    types = {"group": pa.string(), "kind": pa.string(), "site": pa.string()}
    names = ("rank", "group", "number", "kind", "size", "peer", *_TIMES, "worker", "site")
    types |= dict.fromkeys(whole, pa.int64())
    columns = (*names, "exposed", "hidden")
    schema = pa.schema([(name, types.get(name, pa.float64())) for name in columns])
    with sealing(path) as unfinished:
        parquet.write_table(pa.Table.from_pylist(rows, schema=schema), unfinished)


def timeline_of(records: Sequence[Record]) -> Timeline:
    """Return what each real rank computed, waited for and communicated.

    A rank is a node, "rank0". Its resources are "compute", with a span for each stretch of an
    iteration between waits, "wait", and one for each comm worker of a process group, "comm
    default_pg 0", with a span from when the worker took a collective until it was done. Time 0 is
    the first record.
    """
    timeline = Timeline()
    rank_records = by_rank(records)
    start = min((records.first for records in rank_records), default=np.inf)
    for records_of_rank in rank_records:
        if np.isfinite(records_of_rank.first):
            _add(timeline, records_of_rank, start)
    return timeline


def _add(timeline: Timeline, own: RankRecords, start: float) -> None:
    node = f"rank{own.rank}"
    since, until = union(*own.waits.T)
    names, begin, end = _computing(own, since, until)
    timeline.extend(node, "compute", names, begin - start, end - start, where=end > begin)
    results = sorted(own.collectives, key=lambda each: each.done)
    done = np.array([result.done for result in results])
    # What came last in a wait is what it was for; a message may still be on its way.
    words = [*(f"wait for {_name(result)}" for result in results), "wait for collective"]
    last = np.searchsorted(done, until, side="right") - 1
    known = (last >= 0) & (done[last] >= since) if len(done) else np.zeros(len(last), dtype=bool)
    labels = Labels(np.where(known, last, len(results)), words)
    timeline.extend(node, "wait", labels, since - start, until - start)
    for collective in own.collectives:
        resource = f"comm {collective.group} {collective.worker}"
        timeline.span(
            node, resource, _name(collective), collective.begun - start, collective.done - start
        )


def _computing(own: RankRecords, since: Floats, until: Floats) -> tuple[Labels, Floats, Floats]:
    """Return names, begins and ends of the stretches between waits, cut where iterations end."""
    ends = np.array([iteration.end for iteration in own.iterations])
    # As many waits have begun as have ended: it is none that this end of an iteration lies in.
    cuts = ends[np.searchsorted(since, ends) == np.searchsorted(until, ends)]
    begin = np.sort(np.concatenate([[own.first], until, cuts]))
    end = np.sort(np.concatenate([since, cuts, [own.last]]))
    words = [*(f"iteration {iteration.number}" for iteration in own.iterations), "end"]
    return Labels(np.searchsorted(ends, begin, side="right"), words), begin, end


def _name(collective: Collective) -> str:
    size = f" {format_size(collective.size)}" if collective.size else ""
    return f"{collective.kind}{size}"
