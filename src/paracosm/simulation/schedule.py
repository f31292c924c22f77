"""Schedules: who reads and updates which tensor, and when, independent of the values. `scheduling`
makes them.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Ints
from paracosm.columns import number_column, numbers_in, rows_with, text_column
from paracosm.data_files import parse_json
from paracosm.errors import InputError
from paracosm.files import sealing
from paracosm.tables import columns_of, read_parquet

Rows = npt.NDArray[np.void]

BusyTimes = dict[str, dict[str, float]]
"""Seconds by node and resource: "compute", "send", "receive"."""

READ = np.dtype(
    [("time", "i8"), ("worker", "i4"), ("step", "i4"), ("tensor", "i4"), ("version", "i4")]
)
UPDATE = np.dtype([*READ.descr, ("read", "i4")])
STEP = np.dtype(
    [("worker", "i4"), ("step", "i4"), ("begin", "i8"), ("end", "i8"), ("accepted", "i1")]
)
FAILURE = np.dtype([("time", "i8"), ("worker", "i4")])

ROWS = {"reads": READ, "updates": UPDATE, "steps": STEP, "failures": FAILURE}
"""The tables of a schedule."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Reads, updates and steps. Times are whole picoseconds; all else counts from 0."""

    # time, worker, step, tensor, version: as of which the tensor was read for a step (with no
    # entry: version 0, as it is at the start), in the order of time
    reads: Rows
    # time, worker, step, tensor, version, read: gradients that were applied; the tensor's version
    # after it, and the one that the gradient was computed from
    updates: Rows
    # worker, step, begin, end, accepted: from the begin of computing until the tensors for the next
    # step are there, or of steps op by op from first to last op, or to the failure of its worker;
    # whether some gradient of it was taken or, with a worker that failed, all of them. Steps that
    # the end interrupted are not there.
    steps: Rows
    end: int  # when the answers to the last updates had arrived, or the last op had ended
    dropped: int  # gradients that came too late
    busy: BusyTimes  # seconds for which each node computed, sent and received until then
    tensors: tuple[str, ...] = ()  # their names, in the order of their numbers; () without names
    # time, worker: failures of single workers, each of which lost the step that was under way
    failures: Rows = field(default_factory=lambda: np.zeros(0, FAILURE))

    @property
    def staleness(self) -> Ints:
        """Updates of its tensor between the read of each gradient and its own update."""
        between: Ints = self.updates["version"].astype(np.int64) - 1 - self.updates["read"]
        return between

    def write(self, path: Path) -> None:
        """Write reads, updates and steps to a Parquet file: one long table, by "what"."""
        import pyarrow
        import pyarrow.parquet

        tables = []
        for what in ROWS:
            rows = getattr(self, what)
            columns = {name: number_column(rows[name]) for name in rows.dtype.names}
            columns["what"] = text_column([what] * len(rows))
            tables.append(pyarrow.table(columns))
        table = pyarrow.concat_tables(tables, promote_options="default")
        facts = {name: getattr(self, name) for name in ("end", "dropped", "tensors")}
        described = {name.encode(): json.dumps(fact).encode() for name, fact in facts.items()}
        with sealing(path) as unfinished:
            pyarrow.parquet.write_table(table.replace_schema_metadata(described), unfinished)


_WAY_OUT = "paracosm train --timing-only --no-timeline --out RUN writes RUN/schedule.parquet"


def read_schedule(path: Path) -> Schedule:
    """Return a schedule that `Schedule.write` has written; without busy times."""
    import pyarrow

    table = read_parquet(path, "schedule", _WAY_OUT)
    columns_of(table, pyarrow.schema([("what", pyarrow.string())]), path, "schedule", _WAY_OUT)
    described = table.schema.metadata or {}
    facts = {name: parse_json(fact, str(path)) for name, fact in described.items()}
    found: list[Rows] = []
    for what, dtype in ROWS.items():
        kinds = [
            pyarrow.field(name, pyarrow.from_numpy_dtype(dtype[name]), nullable=False)
            for name in dtype.names or ()
        ]
        columns = rows_with(table, "what", what)
        columns = columns_of(columns, pyarrow.schema(kinds), path, "schedule", _WAY_OUT)
        rows = np.zeros(len(columns), dtype)
        for name in dtype.names or ():
            rows[name] = numbers_in(columns[name])
        if len(rows) and min(rows[name].min() for name in rows.dtype.names or ()) < 0:
            raise InputError(f"{path}: a damaged schedule: a number in it is negative")
        found.append(rows)
    reads, updates, steps, failed = found
    end, dropped, tensors = (facts.get(name) for name in (b"end", b"dropped", b"tensors"))
    if type(end) is not int or type(dropped) is not int or not isinstance(tensors, list):
        raise InputError(f"{path}: a damaged schedule: end, dropped or tensors is damaged")
    return Schedule(reads, updates, steps, end, dropped, {}, tuple(tensors), failed)


def join_schedules(blocks: Iterable[Schedule]) -> Schedule:
    """Concatenate consecutive blocks into one schedule, without busy times."""
    parts = list(blocks)
    if not parts:
        raise ValueError("no block of a schedule to join")
    return Schedule(
        reads=np.concatenate([part.reads for part in parts]),
        updates=np.concatenate([part.updates for part in parts]),
        steps=np.concatenate([part.steps for part in parts]),
        end=parts[-1].end,
        dropped=sum(part.dropped for part in parts),
        busy={},
        tensors=parts[-1].tensors,
        failures=np.concatenate([part.failures for part in parts]),
    )
