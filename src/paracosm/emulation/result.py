"""What an emulated job came to: summary, timeline and tables, made of its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Protocol

from paracosm.emulation.check import compare_with
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.rank_records import by_rank, measured_iterations
from paracosm.emulation.records import Collective, Iteration, Record, Wait
from paracosm.emulation.summary import summarise
from paracosm.emulation.timeline_of import timeline_of
from paracosm.results import EmulationSummary
from paracosm.timeline import Timeline
from paracosm.timeline.analysis import exposed_of_each, exposure_between


@dataclass(frozen=True)
class EmulationResult:
    summary: EmulationSummary  # the key numbers, as `summary.json` names them
    timeline: Timeline | None  # of the real ranks; None where several runs were made
    # Further files of the run folder, with what writes them
    files: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)


def result_of(
    config: EmulateConfig,
    records: Sequence[Record],
    exit_code: int | None,
    emulator: int | None = None,
    interrupted: bool = False,
) -> EmulationResult:
    summary = summarise(config, records, exit_code)
    if emulator:
        summary = replace(summary, status="failed")
    if interrupted:
        summary = replace(summary, status="interrupted")
    if config.beside is not None:
        found = compare_with(config.beside, summary)
        summary = replace(summary, beside=found)
    files = {"collectives.parquet": lambda path: _save_collectives(records, path)}
    return EmulationResult(summary, timeline_of(records), files)


class Sink(Protocol):
    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None: ...


_BEGINS = {Collective: attrgetter("asked"), Wait: attrgetter("begin"), Iteration: attrgetter("end")}


class Metrics:
    """Writes rows for every iteration of every real rank, and counts them for a progress bar.

    Rows: `iteration_time` in seconds, from the second iteration on; `cpu`, processor seconds per
    second; and in the end `exposed` and `hidden`, seconds of communication in the iteration. Both
    times of a row are seconds since the first record of the job.
    """

    def __init__(
        self, sink: Sink | None, progress: Callable[[int, float | None], None] | None = None
    ) -> None:
        self._sink = sink
        self._progress = progress
        self._last: dict[int, Iteration] = {}
        self._begun: float | None = None
        self._done = 0

    def restart(self) -> None:
        """Begin with another run of the script: its first iteration follows none of the last."""
        self._last.clear()

    def hear(self, records: Sequence[Record]) -> None:
        for record in records:
            if self._begun is None and (time_of := _BEGINS.get(type(record))):
                self._begun = time_of(record)
            if isinstance(record, Iteration):
                self._iteration(record)

    def exposure(self, records: Sequence[Record]) -> None:
        """Add how much communication was exposed and hidden in every iteration of a whole run."""
        if self._sink is None or self._begun is None:
            return
        for own in by_rank(records):
            iterations = measured_iterations(own.iterations)
            parts = exposure_between(iterations.begin, iterations.end, own.spans, own.waits)
            for name, seconds in (("exposed", parts.exposed), ("hidden", parts.hidden)):
                rows = zip(iterations.number, iterations.end - self._begun, seconds, strict=True)
                for number, time, value in rows:
                    row = (float(time), float(time), f"rank{own.rank}", name)
                    self._sink.metric(*row, float(value), int(number))

    def _iteration(self, record: Iteration) -> None:
        before = self._last.get(record.rank)
        self._last[record.rank] = record
        if before is not None and self._sink is not None:
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
    """Write the collectives of all real ranks, rank by rank as they were asked for, as Parquet.

    Columns: rank, group, number, kind, size (bytes), peer (-1 for none), asked, entered, begun,
    done (seconds since the first record of the job), worker, site, and exposed and hidden
    (seconds).
    """
    import pyarrow as pa
    from pyarrow import parquet

    ranks = by_rank(records)
    start = min((each.first for each in ranks), default=0.0)
    rows = []
    for own in ranks:
        exposed = exposed_of_each(own.spans, own.waits)
        for collective, seconds in zip(own.collectives, exposed.tolist(), strict=True):
            row = asdict(collective)
            row |= {name: row[name] - start for name in _TIMES}
            row |= {"exposed": seconds, "hidden": row["done"] - row["asked"] - seconds}
            rows.append(row)
    whole = ("rank", "number", "size", "peer", "worker")
    types = {"group": pa.string(), "kind": pa.string(), "site": pa.string()}
    names = ("rank", "group", "number", "kind", "size", "peer", *_TIMES, "worker", "site")
    schema = pa.schema(
        [
            (name, pa.int64() if name in whole else types.get(name, pa.float64()))
            for name in (*names, "exposed", "hidden")
        ]
    )
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), path)
