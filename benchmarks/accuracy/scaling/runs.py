"""Measured steps of one job on different numbers of GPUs, as Pollux (Qiao et al., OSDI 2021)
publishes them: CSV files, a row for each placement and batch size.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError

__all__ = ["Runs", "read_runs"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

PLACED = ("placement",)
COUNTED = ("num_nodes", "num_replicas")


@dataclass(frozen=True, eq=False)
class Runs:
    """n measured steps.

    Attributes:
        placement: n names: one digit for each node, how many GPUs of it take part ("44"); where
            that is not known, "6x24": nodes and GPUs.
        nodes, replicas: n numbers, of nodes and of GPUs, one replica on each.
        batch: n numbers of examples that one replica works on in a step.
        step: n seconds of a step.
        exposed: n seconds of it in which the replica only waits for gradients; NaN where nobody
            says.
    """

    placement: tuple[str, ...]
    nodes: Ints
    replicas: Ints
    batch: Floats
    step: Floats
    exposed: Floats

    def __len__(self) -> int:
        return len(self.placement)

    def where(self, flags: Flags) -> Runs:
        """Return the steps whose flag is set."""
        return Runs(
            tuple(np.array(self.placement, dtype=object)[flags]),
            self.nodes[flags],
            self.replicas[flags],
            self.batch[flags],
            self.step[flags],
            self.exposed[flags],
        )


def read_runs(path: Path) -> Runs:
    """Read steps from a CSV file with the columns `local_bsz`, `step_time`, and either `placement`
    or `num_nodes` and `num_replicas`; `sync_time`, where it is there, is what is exposed.

    Raises:
        InputError: it cannot be read, lacks a column, is cut off, or holds what is no such number.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            columns = tuple(reader.fieldnames or ())
            where = PLACED if "placement" in columns else COUNTED
            missing = [c for c in (*where, "local_bsz", "step_time") if c not in columns]
            if missing:
                raise InputError(f"{path}: lacks the column {', '.join(missing)}")
            rows = [_row(entry, where, f"{path}, line {reader.line_num}") for entry in reader]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not a CSV file: {error}") from None
    if not rows:
        raise InputError(f"{path}: has no rows")
    placement, nodes, replicas, batch, step, exposed = zip(*rows, strict=True)
    return Runs(
        placement,
        np.array(nodes, dtype=np.int64),
        np.array(replicas, dtype=np.int64),
        np.array(batch, dtype=np.float64),
        np.array(step, dtype=np.float64),
        np.array(exposed, dtype=np.float64),
    )


Row = tuple[str, int, int, float, float, float]


def _row(entry: dict[str, str | None], columns: Sequence[str], where: str) -> Row:
    if any(value is None for value in entry.values()):
        raise InputError(f"{where}: is cut off")
    text = {column: value or "" for column, value in entry.items()}
    if columns == PLACED:
        name = text["placement"]
        if not name.isdigit() or "0" in name:
            raise InputError(f'{where}: placement "{name}" is not one digit from 1 for each node')
        nodes, replicas = len(name), sum(map(int, name))
    else:
        nodes, replicas = (_whole(text[column], f"{where}, {column}") for column in COUNTED)
        name = f"{nodes}x{replicas}"
        if replicas < nodes:
            raise InputError(f"{where}: {replicas} replicas do not reach {nodes} nodes")
    return (
        name,
        nodes,
        replicas,
        _positive(text["local_bsz"], f"{where}, local_bsz"),
        _positive(text["step_time"], f"{where}, step_time"),
        _seconds(text["sync_time"], f"{where}, sync_time") if "sync_time" in text else math.nan,
    )


def _whole(text: str, where: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"{where}: {text!r} is no whole number from 1")
    return int(text)


def _positive(text: str, where: str) -> float:
    if not (value := _seconds(text, where)) > 0:
        raise InputError(f"{where}: {text} is not above 0")
    return value


def _seconds(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InputError(f"{where}: {text!r} is no number") from None
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{where}: {text} is not 0 or more")
    return value
