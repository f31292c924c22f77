"""The file that a measurement is kept in: JSON, durations in whole nanoseconds.

See docs/measuring-threads.md for what each key says.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.relaxation.threads.interruptions import Interruptions
from paracosm.relaxation.threads.measurement import Case, Measurement, RunTimes, ThreadTimes
from paracosm.relaxation.threads.recording import Recording

__all__ = ["load_measurement", "save_measurement"]

_FORMAT, _VERSION = "paracosm measured threads", 1
_PHASES = ("copy", "compute", "update")
_CHECK = ("copy", "check")


def save_measurement(measurement: Measurement, path: str | Path) -> None:
    """Write the measurement to a file.

    Raises:
        InputError: it cannot be written.
    """
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "problem": dict(measurement.problem),
        "tolerance": measurement.tolerance,
        "relative": measurement.relative,
        "threshold": measurement.threshold,
        "seed": measurement.seed,
        "clock_overhead": measurement.clock_overhead,
        "environment": dict(measurement.environment),
        "cases": [_case_out(case) for case in measurement.cases],
    }
    try:
        Path(path).write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def load_measurement(path: str | Path) -> Measurement:
    """Read a measurement from a file that `Measurement.save` wrote.

    Raises:
        InputError: the file is missing, cannot be read, or is no such file; a key is missing.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{path}: no such file; paracosm relax measure --out {path} writes it"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise InputError(f"{path}: not a measurement that paracosm relax measure wrote")
    if content.get("version") != _VERSION:
        raise InputError(
            f"{path}: version {content.get('version')} of the format; this is for {_VERSION}"
        )
    try:
        return Measurement(
            content["problem"],
            float(content["tolerance"]),
            bool(content["relative"]),
            float(content["threshold"]),
            int(content["seed"]),
            float(content["clock_overhead"]),
            content["environment"],
            tuple(_case_in(case) for case in content["cases"]),
        )
    except KeyError as error:
        raise InputError(f"{path}: the key {error} is missing") from None
    except (TypeError, ValueError, zlib.error) as error:
        raise InputError(f"{path}: not as paracosm relax measure wrote it: {error}") from None


def _case_out(case: Case) -> dict[str, Any]:
    return {
        "variant": case.variant,
        "threads": case.threads,
        "runs": [dict(vars(run)) for run in case.runs],
        "workers": [_thread_out(worker, _PHASES) for worker in case.workers],
        "residual": None if case.residual is None else _thread_out(case.residual, _CHECK),
        "interruptions": {
            "slices": [float(f"{length:.6g}") for length in case.interruptions.slices],
            "share": case.interruptions.share,
            "load": case.interruptions.load,
        },
        "recording": None if case.recording is None else _recording_out(case.recording),
    }


def _case_in(case: Mapping[str, Any]) -> Case:
    seen = case["interruptions"]
    return Case(
        case["variant"],
        int(case["threads"]),
        tuple(RunTimes(**run | {"iterations": tuple(run["iterations"])}) for run in case["runs"]),
        tuple(_thread_in(worker, _PHASES) for worker in case["workers"]),
        None if case["residual"] is None else _thread_in(case["residual"], _CHECK),
        Interruptions(tuple(seen["slices"]), float(seen["share"]), float(seen["load"])),
        None if case["recording"] is None else _recording_in(case["recording"]),
    )


def _thread_out(thread: ThreadTimes, phases: tuple[str, ...]) -> dict[str, Any]:
    return {
        "iterations": thread.count,
        "mean": dict(zip((*phases, "whole"), thread.mean, strict=True)),
        "sd": dict(zip((*phases, "whole"), thread.sd, strict=True)),
        "nanoseconds": {
            phase: thread.samples[:, column].tolist() for column, phase in enumerate(phases)
        },
    }


def _thread_in(thread: Mapping[str, Any], phases: tuple[str, ...]) -> ThreadTimes:
    columns = [thread["nanoseconds"][phase] for phase in phases]
    if len({len(column) for column in columns}) > 1:
        raise ValueError(f"{', '.join(phases)} must have equally many nanoseconds")
    samples = np.array(columns, np.int64).T
    if not samples.size or samples.min() < 0:
        raise ValueError("nanoseconds must be there, and none below 0")
    return ThreadTimes(
        int(thread["iterations"]),
        tuple(float(thread["mean"][phase]) for phase in (*phases, "whole")),
        tuple(float(thread["sd"][phase]) for phase in (*phases, "whole")),
        np.ascontiguousarray(samples),
    )


def _recording_out(recording: Recording) -> dict[str, Any]:
    return {
        "pointer": recording.pointer.tolist(),
        "iterations": list(recording.iterations),
        "workers": [_packed(_differences(stamps)) for stamps in recording.workers],
        "checks": _packed(_differences(recording.checks)),
        "norms": _packed(recording.norms),
        "detecting": recording.detecting,
    }


def _recording_in(recording: Mapping[str, Any]) -> Recording:
    return Recording(
        np.array(recording["pointer"], np.int64),
        tuple(_stamps(_unpacked(text, np.int64), 4) for text in recording["workers"]),
        tuple(recording["iterations"]),
        _stamps(_unpacked(recording["checks"], np.int64), 3),
        _unpacked(recording["norms"], np.float64),
        int(recording["detecting"]),
    )


def _differences(stamps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return stamps, which never fall, as steps from one to the next, and the first one."""
    return np.diff(stamps.ravel(), prepend=0)


def _stamps(steps: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    return np.cumsum(steps).reshape(-1, width)


def _packed(values: NDArray[Any]) -> str:
    data = values.astype(values.dtype.newbyteorder("<")).tobytes()
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _unpacked(text: str, kind: type[Any]) -> NDArray[Any]:
    data = zlib.decompress(base64.b64decode(text))
    return np.frombuffer(data, np.dtype(kind).newbyteorder("<")).astype(kind)
