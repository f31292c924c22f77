"""The metrics of runs as scalars for TensorBoard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paracosm.errors import InputError, require
from paracosm.studies.run_folder import RunFolder

_FILES = "events.out.tfevents.*"


def check_scalars(path: Path, force: bool) -> None:
    """Refuse a folder that has scalars, unless `force` says that they are to be replaced.

    Raises:
        InputError: it has.
        MissingExtraError: TensorBoard is not installed.
    """
    require("tensorboard", "tensorboard", "--tensorboard")
    if not force and any(path.rglob(_FILES)):
        raise InputError(f"{path}: has scalars of another run: choose another folder, or --force")


def write_scalars(runs: Mapping[str, RunFolder], path: Path) -> None:
    """Write a file of events for each run, in a folder of its name; "" is the folder itself.

    A metric of the whole job has its name for a tag, one of a node "staleness/worker3". The wall
    time of an event is its virtual time, so that TensorBoard's "Relative" shows virtual time.
    """
    for earlier in path.rglob(_FILES):
        earlier.unlink()
    events = require("tensorboard.compat.proto.event_pb2", "tensorboard", "--tensorboard")
    values = require("tensorboard.compat.proto.summary_pb2", "tensorboard", "--tensorboard")
    module = "tensorboard.summary.writer.event_file_writer"
    files = require(module, "tensorboard", "--tensorboard")
    for name, run in runs.items():
        writer = files.EventFileWriter(str(path / name))
        for row in run.metrics().to_pylist():
            tag = f"{row['name']}/{row['node']}" if row["node"] else row["name"]
            value = values.Summary.Value(tag=tag, simple_value=row["value"])
            summary, step = values.Summary(value=[value]), row["step"]
            event = events.Event(wall_time=row["virtual_time"], step=step, summary=summary)
            writer.add_event(event)
        writer.close()
