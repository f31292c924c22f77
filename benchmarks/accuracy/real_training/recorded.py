"""What a real training did: its schedule, its losses, and its parameters on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.data_files import read_json
from paracosm.errors import InputError
from paracosm.simulation.schedule import READ, STEP, UPDATE, Schedule

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.void]
Arrays = Mapping[str, npt.NDArray[Any]]

MICROSECOND = 1_000_000
"""Picoseconds, the unit of schedules; recorded times are whole microseconds."""

EVENT = np.dtype([("time", "i8"), ("worker", "i4"), ("tensor", "i4")])
"""Microseconds, and who changed which tensor; tensor -1 - s: who read all tensors of server s."""


@dataclass(frozen=True, eq=False)
class RecordedRun:
    """A training that really ran. Times count from the instant at which it was to begin."""

    # Times of reads and updates were taken under the lock of the tensor's server; a step is from
    # the request for parameters until all servers had said that its updates were made
    schedule: Schedule
    losses: tuple[Floats, ...]  # by worker, of the minibatch of each step
    snapshot_times: Ints  # picoseconds, (snapshots,): those of server 0
    # (snapshots, parameters), flat in the order of `schedule.tensors`; no columns if it was loaded
    snapshots: Floats
    # What was asked for and how it went: "workers", "servers", "synchronous", ... as JSON has it
    facts: Mapping[str, Any]
    # By name, a metric's values at the snapshots, from whoever has evaluated them
    metrics: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        """Write all but the parameters, which `load_run` reads, into a folder that is made.

        The times, workers and tensors of events say everything about a schedule: versions are
        numbers of updates. In the order of workers an event takes some two bytes.
        """
        import pyarrow
        import pyarrow.parquet

        folder.mkdir(parents=True, exist_ok=True)
        events = _events(self.schedule, self.facts["servers"])
        steps = np.sort(self.schedule.steps, order=("worker", "step"))
        first, last = map(np.concatenate, zip(*_ends(events, len(self.losses)), strict=True))
        events = events[np.argsort(events["worker"], kind="stable")]
        times = self.snapshot_times // MICROSECOND
        for name, columns in {
            "events": {
                "delta": np.diff(events["time"], prepend=0),
                "worker": events["worker"],
                "tensor": events["tensor"],
            },
            "steps": {
                "worker": steps["worker"],
                "before_read": first - steps["begin"] // MICROSECOND,
                "after_updates": steps["end"] // MICROSECOND - last,
                "loss": np.concatenate(self.losses),
            },
            "snapshots": {"delta": np.diff(times, prepend=0), **self.metrics},
        }.items():
            packed = [key for key, column in columns.items() if column.dtype == np.int64]
            pyarrow.parquet.write_table(
                pyarrow.table(columns),
                folder / f"{name}.parquet",
                compression="zstd",
                compression_level=19,
                use_dictionary=[key for key in ("worker", "tensor") if key in columns],
                column_encoding=dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
            )
        facts = {**self.facts, "tensors": self.schedule.tensors, "dropped": self.schedule.dropped}
        (folder / "run.json").write_text(json.dumps(facts, indent=1) + "\n")


def load_run(folder: Path) -> RecordedRun:
    """Return a run that `RecordedRun.save` has written; without parameters.

    Raises:
        InputError: there is none in the folder.
    """
    import pyarrow.parquet

    if not (folder / "run.json").is_file():
        raise InputError(f"{folder}: no recorded run: it has no run.json")
    facts = read_json(folder / "run.json", "recorded run")
    found = {}
    for name in ("events", "steps", "snapshots"):
        table = pyarrow.parquet.read_table(folder / f"{name}.parquet")
        found[name] = {key: table[key].to_numpy() for key in table.column_names}
    events = np.zeros(len(found["events"]["delta"]), EVENT)
    events["time"] = np.cumsum(found["events"]["delta"])
    events["worker"], events["tensor"] = found["events"]["worker"], found["events"]["tensor"]
    events = _in_order(events, facts["servers"])
    its, workers = found["steps"], facts["workers"]
    own = [np.flatnonzero(its["worker"] == worker) for worker in range(workers)]
    schedule = recorded_schedule(
        events,
        [
            (first - its["before_read"][rows], last + its["after_updates"][rows])
            for rows, (first, last) in zip(own, _ends(events, workers), strict=True)
        ],
        facts.pop("tensors"),
        facts["servers"],
        workers if facts["synchronous"] else 1,
        facts.pop("dropped"),
    )
    times = np.cumsum(found["snapshots"].pop("delta"), dtype=np.int64) * MICROSECOND
    losses = tuple(its["loss"][rows] for rows in own)
    nothing = np.zeros((len(times), 0), np.float32)
    return RecordedRun(schedule, losses, times, nothing, facts, found["snapshots"])


def run_of_servers(
    noted: Sequence[Arrays],
    answers: Sequence[Mapping[str, Any]],
    begin: int,
    tensors: Mapping[str, int],
    facts: Mapping[str, Any],
) -> RecordedRun:
    """Return the run that servers and workers have noted.

    Args:
        noted: by server, as `Store.write` has written it.
        answers: by worker, "begin", "end" (seconds) and "loss" of its steps.
        begin: of the training, microseconds of the machine's clock, as are all times noted.
        tensors: names, and how many elements each has.

    Raises:
        RuntimeError: versions that a server noted are not the numbers of updates before.
    """
    servers = len(noted)
    parts = []
    for server, arrays in enumerate(noted):
        reads, updates = arrays["reads"], arrays["updates"]
        rows = np.zeros(len(reads) + len(updates), EVENT)
        rows["time"] = np.concatenate([reads[:, 0], updates[:, 0]]) - begin
        rows["worker"] = np.concatenate([reads[:, 1], updates[:, 1]])
        rows["tensor"] = np.concatenate([np.full(len(reads), -1 - server), updates[:, 2]])
        parts.append(rows)
    events = _in_order(np.concatenate(parts), servers)
    dropped = sum(int(arrays["dropped"]) for arrays in noted)
    pushes = facts["workers"] if facts["synchronous"] else 1
    steps = _steps(answers, begin)
    schedule = recorded_schedule(events, steps, list(tensors), servers, pushes, dropped)
    _check_versions(schedule, noted)
    # Of servers that were asked to end between two snapshots one may have one more.
    count = min(len(arrays["snapshots"]) for arrays in noted)
    chosen = [*range(count - 1), -1]
    ends = np.cumsum(list(tensors.values()))
    snapshots = np.zeros((count, ends[-1]), np.float32)
    for server, arrays in enumerate(noted):
        own = np.zeros(ends[-1], bool)
        for number in range(server, len(tensors), servers):
            own[ends[number] - [*tensors.values()][number] : ends[number]] = True
        snapshots[:, own] = arrays["snapshots"][chosen]
    times = (noted[0]["snapshot_times"][chosen] - begin) * MICROSECOND
    return RecordedRun(schedule, _losses(answers), times, snapshots, facts)


def run_of_iterations(
    noted: Sequence[Arrays],
    answers: Sequence[Mapping[str, Any]],
    begin: int,
    tensors: Mapping[str, int],
    facts: Mapping[str, Any],
) -> RecordedRun:
    """Return a run without servers: all tensors are updated where the first worker has done so.

    Args:
        noted: "snapshot_times" and "snapshots" of the first worker, alone in the sequence.
        answers: by worker, also "updated", when each step's update was made (microseconds).
    """
    workers, count = len(answers), len(tensors)
    read = np.rint(np.array([answer["begin"] for answer in answers]) * 1e6).astype(np.int64)
    updated = np.array([answer["updated"] for answer in answers]).min(axis=0)
    rows = [(at, worker, -1) for worker in range(workers) for at in read[worker].tolist()]
    each = [(worker, tensor) for tensor in range(count) for worker in range(workers)]
    rows += [(at, *its) for at in updated.tolist() for its in each]
    events = np.array(rows, EVENT)
    events["time"] -= begin
    events = _in_order(events, 1)
    schedule = recorded_schedule(events, _steps(answers, begin), list(tensors), 1, workers, 0)
    times = (noted[0]["snapshot_times"] - begin) * MICROSECOND
    return RecordedRun(schedule, _losses(answers), times, noted[0]["snapshots"], facts)


def _steps(answers: Sequence[Mapping[str, Any]], begin: int) -> list[tuple[Ints, Ints]]:
    def relative(seconds: Sequence[float]) -> Ints:
        return np.rint(np.array(seconds) * 1e6).astype(np.int64) - begin

    return [(relative(answer["begin"]), relative(answer["end"])) for answer in answers]


def _losses(answers: Sequence[Mapping[str, Any]]) -> tuple[Floats, ...]:
    return tuple(np.array(answer["loss"], np.float32) for answer in answers)


def _check_versions(schedule: Schedule, noted: Sequence[Arrays]) -> None:
    for server, arrays in enumerate(noted):
        reads, updates = (
            rows[rows["tensor"] % len(noted) == server]
            for rows in (schedule.reads, schedule.updates)
        )
        found = np.stack([updates["version"], updates["read"]], axis=1)
        if not (
            np.array_equal(reads["version"], arrays["reads"][:, 2:].ravel())
            and np.array_equal(found, arrays["updates"][:, 3:])
        ):
            raise RuntimeError(f"server {server}: versions do not count the updates before them")


def recorded_schedule(
    events: Rows,
    steps: Sequence[tuple[Ints, Ints]],
    tensors: Sequence[str],
    servers: int,
    pushes: int,
    dropped: int,
) -> Schedule:
    """Return the schedule of events, of which those of one server are in their order.

    Args:
        steps: by worker, begin and end of each step, microseconds.
        tensors: names; tensor i is on server i modulo their number.
        pushes: gradients that make an update.
        dropped: gradients that made none.
    """
    workers = len(steps)
    version, gathered = [0] * len(tensors), [0] * len(tensors)
    read = [[0] * len(tensors) for _ in range(workers)]
    step = [[-1] * servers for _ in range(workers)]
    reads: list[tuple[int, ...]] = []
    updates: list[tuple[int, ...]] = []
    for time, worker, tensor in events.tolist():
        at = time * MICROSECOND
        if tensor < 0:
            server = -1 - tensor
            step[worker][server] += 1
            for each in range(server, len(tensors), servers):
                read[worker][each] = version[each]
                reads.append((at, worker, step[worker][server], each, version[each]))
        else:
            its_step = step[worker][tensor % servers]
            own = (version[tensor] + 1, read[worker][tensor])
            updates.append((at, worker, its_step, tensor, *own))
            gathered[tensor] = (gathered[tensor] + 1) % pushes
            version[tensor] += not gathered[tensor]
    accepted = {row[1:3] for row in updates}
    rows = sorted(
        (int(end), worker, number, int(begin))
        for worker, its in enumerate(steps)
        for number, begin, end in zip(count(), *its, strict=False)
    )
    made = [
        (worker, number, begin * MICROSECOND, end * MICROSECOND, (worker, number) in accepted)
        for end, worker, number, begin in rows
    ]
    return Schedule(
        reads=np.array(reads, READ),
        updates=np.array(updates, UPDATE),
        steps=np.array(made, STEP),
        end=max((row[3] for row in made), default=0),
        dropped=dropped,
        busy={},
        tensors=tuple(tensors),
    )


def _events(schedule: Schedule, servers: int) -> Rows:
    """Return the events of a recorded schedule, in their order."""
    reads = schedule.reads[schedule.reads["tensor"] < servers]
    events = np.zeros(len(reads) + len(schedule.updates), EVENT)
    for name in ("time", "worker", "tensor"):
        events[name] = np.concatenate([reads[name], schedule.updates[name]])
    events["time"] //= MICROSECOND
    events["tensor"][: len(reads)] = -1 - reads["tensor"]
    return _in_order(events, servers)


def _in_order(events: Rows, servers: int) -> Rows:
    """Sort events by time; on one server only those of one update have the same."""
    tensor = events["tensor"]
    server = np.where(tensor < 0, -1 - tensor, tensor % servers)
    return events[np.lexsort((events["worker"], tensor, server, events["time"]))]


def _ends(events: Rows, workers: int) -> list[tuple[Ints, Ints]]:
    """Return by worker when each step read from server 0, and when its last event was."""
    found = []
    for worker in range(workers):
        own = events[events["worker"] == worker]
        is_read = own["tensor"] == -1
        first: Ints = own["time"][is_read]
        last = first.copy()
        np.maximum.at(last, np.maximum(np.cumsum(is_read) - 1, 0), own["time"])
        found.append((first, last))
    return found
