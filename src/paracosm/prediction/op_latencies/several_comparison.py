"""Runs on several GPUs beside what is predicted of them from the tables of their folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paracosm.cluster import Link
from paracosm.errors import InputError
from paracosm.jobs.strategies import Strategy
from paracosm.prediction.op_latencies.interconnect import link_between
from paracosm.prediction.op_latencies.several import SeveralGpus, Tables, predict_several
from paracosm.prediction.op_latencies.table import read_table, read_whole

__all__ = ["SeveralComparison", "compare_several"]


@dataclass(frozen=True, slots=True)
class SeveralComparison:
    """A model on several GPUs of one machine: seconds of an iteration.

    Attributes:
        device: the folder's name, which is the GPU's.
        model: the file's name, "gpt2_large-train-1024-4-dp4".
        strategy: how the GPUs share the work.
        link: between them.
        timed: batches of one GPU whose op latencies the prediction is from.
        measured, predicted: of the iteration.
        serial: by adding up the latencies of one GPU's share.
    """

    device: str
    model: str
    strategy: Strategy
    link: Link
    timed: tuple[int, ...]
    measured: float
    predicted: float
    serial: float

    @property
    def error(self) -> float:
        """Of the prediction, relative to what was measured; negative where it is too short."""
        return self.predicted / self.measured - 1

    @property
    def serial_error(self) -> float:
        """Of the sum of latencies, relative to what was measured."""
        return self.serial / self.measured - 1


def compare_several(
    file: Path,
    run: SeveralGpus,
    tables: Mapping[str, Path],
    wholes: Mapping[str, Path],
    link: Link | None,
) -> SeveralComparison:
    """Predict a run on several GPUs from the op latencies of one that are in the same folder.

    Args:
        file: what was measured.
        run: what its name says.
        tables, wholes: the CSV and JSON files of the folder by their names.
        link: between the GPUs; by the GPU's name where it is not given.

    Raises:
        InputError: there are none of this model, or they cannot be used.
    """
    pairs = {name: path for name, path in tables.items() if name in wholes}
    training = _batches(run.model, pairs)
    if not training:
        raise InputError(f"no op latencies of {run.model} on one GPU: there is no CSV file of it")
    inference = _batches(run.model.replace("-train-", "-inf-"), pairs)
    layers = {read_whole(wholes[path.stem]).layers for path in training.values()}
    if len(layers) > 1:
        raise InputError(f"tables of {run.model} have {sorted(layers)} layers: which is it?")
    device = file.resolve().parent.name
    used = link or link_between(device)
    predicted, serial_time = predict_several(
        run,
        Tables(
            {batch: read_table(path) for batch, path in training.items()},
            {batch: read_table(path) for batch, path in inference.items()},
            layers.pop(),
        ),
        used,
        str(file),
    )
    measured = read_whole(file).both
    if not measured > 0:
        raise InputError(f"{file}: e2e_latency: 0 is nothing to compare with")
    return SeveralComparison(
        device=device,
        model=file.stem,
        strategy=run.strategy,
        link=used,
        timed=tuple(sorted(training)),
        measured=measured,
        predicted=predicted,
        serial=serial_time,
    )


def _batches(model: str, tables: Mapping[str, Path]) -> dict[int, Path]:
    """Return the tables of a model ("gpt2_large-train-1024") by their batch."""
    return {
        int(batch): path
        for name, path in tables.items()
        for start, _, batch in [name.rpartition("-")]
        if start == model and batch.isdigit()
    }
