"""Folders of op latencies: from the ops to the whole model, beside what that was measured at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paracosm.cluster import Link
from paracosm.errors import InputError
from paracosm.prediction.op_latencies.iteration import Times, graph_of, replayed, serial
from paracosm.prediction.op_latencies.latencies import Reading, reading_of
from paracosm.prediction.op_latencies.layers import repeated
from paracosm.prediction.op_latencies.several import parse_name
from paracosm.prediction.op_latencies.several_comparison import SeveralComparison, compare_several
from paracosm.prediction.op_latencies.table import read_table, read_whole

__all__ = ["Comparison", "Folder", "compare", "mean_error", "read_folder"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A model on a GPU: seconds as measured, as predicted, and by adding up all latencies.

    Attributes:
        device: the folder's name, which is the GPU's.
        model: the file's name, "gpt2_large-train-1024-4".
        layers: how often the layer was repeated; 0 where the graph is the whole model.
        measured, predicted, serial: of the whole model.
        reading: floor and launch time of the file.
    """

    device: str
    model: str
    layers: int
    measured: Times
    predicted: Times
    serial: Times
    reading: Reading

    @property
    def error(self) -> float:
        """Of the prediction, relative to what was measured; negative where it is too short."""
        return self.predicted.both / self.measured.both - 1

    @property
    def serial_error(self) -> float:
        """Of the sum of all latencies, relative to what was measured."""
        return self.serial.both / self.measured.both - 1


@dataclass(frozen=True)
class Folder:
    """What a folder holds.

    Attributes:
        comparisons: one for each model and GPU, sorted.
        several: one for each run on several GPUs, sorted.
        left_out: why a file was not used, by its path within the folder.
    """

    comparisons: tuple[Comparison, ...]
    several: tuple[SeveralComparison, ...]
    left_out: Mapping[str, str]


def read_folder(path: Path, link: Link | None = None) -> Folder:
    """Predict every model in a folder of one GPU, or in the folders of several GPUs below it.

    Args:
        path: the folder.
        link: between the GPUs of a machine; by the GPU's name where it is not given.

    Raises:
        InputError: it is no folder, or there is nothing in it that can be used; with the first
            file's reason.
    """
    if not path.is_dir():
        raise InputError(f"{path}: no such folder")
    comparisons: list[Comparison] = []
    several: list[SeveralComparison] = []
    left_out: dict[str, str] = {}
    for folder in [path, *sorted(each for each in path.iterdir() if each.is_dir())]:
        tables = {file.stem: file for file in folder.glob("*.csv")}
        wholes = {file.stem: file for file in folder.glob("*.json")}
        for name in sorted(tables.keys() | wholes.keys()):
            file = tables.get(name) or wholes[name]
            try:
                if name in wholes and (run := parse_name(name)) is not None:
                    several.append(compare_several(wholes[name], run, tables, wholes, link))
                    continue
                if (reason := _unused(name, tables, wholes)) is not None:
                    raise InputError(reason)
                comparisons.append(compare(tables[name], wholes[name]))
            except InputError as error:
                reason = str(error).replace(f"{folder}/", "").removeprefix(file.name)
                left_out[str(file.relative_to(path))] = reason.lstrip(":, ")
    if not comparisons:
        told = "; ".join(f"{file}: {reason}" for file, reason in list(left_out.items())[:1])
        more = f": {told}" if told else ", and no folder below it has"
        raise InputError(f"{path}: no op latencies (a CSV and a JSON file of one name){more}")
    return Folder(tuple(comparisons), tuple(several), left_out)


def compare(table: Path, whole: Path) -> Comparison:
    """Predict one model from its op latencies and compare it with what it took.

    Raises:
        InputError: a file cannot be used.
    """
    rows, measured = read_table(table), read_whole(whole)
    if not measured.both > 0:
        raise InputError(f"{whole}: e2e_latency: 0 is nothing to compare with")
    model = repeated(rows, measured.layers, str(table))
    reading = reading_of(rows)
    predicted, _ = replayed(graph_of(model, reading), reading)
    return Comparison(
        device=table.resolve().parent.name,
        model=table.stem,
        layers=measured.layers,
        measured=Times(measured.forward, measured.both - measured.forward),
        predicted=predicted,
        serial=serial(model),
        reading=reading,
    )


def mean_error(errors: Iterable[float]) -> float:
    """Return the mean absolute error."""
    values: Sequence[float] = [abs(error) for error in errors]
    return sum(values) / len(values)


def _unused(name: str, tables: Mapping[str, Path], wholes: Mapping[str, Path]) -> str | None:
    """Return why a name is not used: half of the pair is missing."""
    if name not in tables:
        return "no op latencies: there is no CSV file of this name"
    if name not in wholes:
        return "no latency of the whole model: there is no JSON file of this name"
    return None
