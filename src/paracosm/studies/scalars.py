"""The metrics of runs as scalars for TensorBoard and MLflow."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paracosm.errors import InputError, require
from paracosm.files import check_database, check_name, check_no_link, check_plain
from paracosm.studies.run_folder import RunFolder

_FILES = "events.out.tfevents.*"


def check_scalars(path: Path, force: bool) -> None:
    """Refuse a folder that has scalars, unless `force` says that they are to be replaced.

    Raises:
        InputError: it has, or it cannot be made.
        MissingExtraError: TensorBoard is not installed.
    """
    require("tensorboard", "tensorboard", "--tensorboard")
    _check_place(path, "--tensorboard")
    if not force and any(path.rglob(_FILES)):
        raise InputError(f"{path}: has scalars of another run: choose another folder, or --force")


def write_scalars(runs: Mapping[str, RunFolder], path: Path) -> None:
    """Write a file of events for each run, in a folder of its name; "" is the folder itself.

    A metric of the whole job has its name for a tag, one of a node "staleness/worker3". The wall
    time of an event is its virtual time, so that TensorBoard's "Relative" shows virtual time.
    """
    for name in filter(None, runs):
        check_no_link(path / name)
    for earlier in path.rglob(_FILES):
        earlier.unlink()
    events = require("tensorboard.compat.proto.event_pb2", "tensorboard", "--tensorboard")
    values = require("tensorboard.compat.proto.summary_pb2", "tensorboard", "--tensorboard")
    module = "tensorboard.summary.writer.event_file_writer"
    files = require(module, "tensorboard", "--tensorboard")
    for name, run in runs.items():
        writer = files.EventFileWriter(str(path / name))
        for row in run.metrics().to_pylist():
            value = values.Summary.Value(tag=_tag(row), simple_value=row["value"])
            summary, step = values.Summary(value=[value]), row["step"]
            event = events.Event(wall_time=row["virtual_time"], step=step, summary=summary)
            writer.add_event(event)
        writer.close()


def check_mlflow(where: str) -> None:
    """Refuse what needs MLflow where it is not installed, and a folder that cannot be made.

    Raises:
        InputError: it cannot.
        MissingExtraError: MLflow is not installed.
    """
    require("mlflow.tracking", "mlflow", "--mlflow")
    if "://" not in where:
        _check_place(Path(where), "--mlflow")


def _check_place(path: Path, flag: str) -> None:
    """Refuse a path that is no folder, or below what is none."""
    check_name(path)
    place = next(parent for parent in (path, *path.absolute().parents) if os.path.lexists(parent))
    if not place.is_dir():
        raise InputError(f"{flag}: {place} is not a folder: choose another one")


def log_to_mlflow(runs: Mapping[str, RunFolder], where: str) -> None:
    """Log each run to MLflow, in its experiment "paracosm": arguments as parameters, metrics.

    The names of metrics are TensorBoard's tags; their timestamps are virtual time, in
    milliseconds, from 0.

    Args:
        runs: by name; "" is named as its folder.
        where: the address of a tracking server or of a database, or a folder for mlflow.db.

    Raises:
        InputError: MLflow cannot write there.
    """
    mlflow = require("mlflow.tracking", "mlflow", "--mlflow")
    entities = require("mlflow.entities", "mlflow", "--mlflow")
    uri = where
    if "://" not in where:
        Path(where).mkdir(parents=True, exist_ok=True)
        database = Path(where).resolve() / "mlflow.db"
        check_plain(database)
        check_database(database)
        uri = f"sqlite:///{database}"
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        known = client.get_experiment_by_name("paracosm")
        experiment = known.experiment_id if known else client.create_experiment("paracosm")
        for name, run in runs.items():
            started = client.create_run(experiment, run_name=name or run.path.name)
            identity = started.info.run_id
            arguments = {"seed": run.study.get("seed"), **run.study.get(run.kind or "", {})}
            for key, value in arguments.items():
                client.log_param(identity, key, value)
            logged = [
                entities.Metric(
                    _UNNAMEABLE.sub("_", _tag(row)), row["value"],
                    round(1000 * row["virtual_time"]), row["step"],
                )
                for row in run.metrics().to_pylist()
            ]  # fmt: skip
            for start in range(0, len(logged), _MOST):
                client.log_batch(identity, metrics=logged[start : start + _MOST])
            client.set_terminated(identity)
    except Exception as error:  # of MLflow, or of whatever driver the address names
        raise InputError(f"--mlflow: {where}: cannot be written: {str(error)[:200]}") from None


_UNNAMEABLE = re.compile(r"[^\w\-. /]")
_MOST = 1000  # metrics in a request of MLflow


def _tag(row: Mapping[str, Any]) -> str:
    return f"{row['name']}/{row['node']}" if row["node"] else str(row["name"])
