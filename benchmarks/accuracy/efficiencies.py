"""What ops of a class reach of the datasheet's roofline, from latencies that others measured.

    python benchmarks/accuracy/efficiencies.py [FOLDER] [--write FILE]

FOLDER has NeuSight's tables (`neusight`, a folder for each GPU) and the throughput of MPT (`mpt`);
without it, it is the one that PARACOSM_DATA names. Shares in single precision are from latencies of
single ops, never from that of a model; what products and attention reach on tensor cores, of which
there are no such latencies, from whole iterations of two models that no benchmark predicts. Only
the intervals that all ops of a device share look at whole models: each as predicted without its own
family of models, or its own device. `--write` writes the table that is part of the package,
`src/paracosm/cluster/hardware/efficiencies.yaml`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import mpt
import numpy as np
import yaml
from op_latencies import read_table, read_whole, reading_of, repeated
from op_work import graph_of_shapes, passes_of
from printing import folder_of, print_table
from scipy.optimize import least_squares

from paracosm.cluster.hardware.catalogue import Device, Hardware, find_hardware, load_catalogue
from paracosm.cluster.hardware.efficiency import Efficiencies, Efficiency, load_efficiencies
from paracosm.errors import InputError
from paracosm.graphs import Graph, Op
from paracosm.prediction.iteration import Prediction, predict
from paracosm.profiling.datasheets import COUNTED, NONE, class_of, common_error, durations_on

__all__ = ["Whole", "measured_table", "predicted_wholes", "read_samples"]

SOURCE = "op latencies of NeuSight (Lee, Phanishayee, Mahajan, ASPLOS 2025)"
LAUNCH = 5e-6  # seconds of the host for an op
SHORTEST = 50e-6  # seconds: shorter intervals are mostly the host's
OUTLIER = 0.1  # of a logarithm, from which on a residual counts less than its square
LEVEL = 0.9


@dataclass(frozen=True)
class Sample:
    """An op of one model on one device, and the seconds that it took."""

    model: str
    op_class: str
    op: Op
    seconds: float


def main() -> int:
    """Print efficiencies by device and class, with their intervals; write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of op latencies")
    parser.add_argument("--write", type=Path, help="the table of the package")
    parsed = parser.parse_args()
    folder = folder_of(parsed, ".", "op latencies")
    if folder is None:
        return 2
    try:
        table = with_intervals(folder / "neusight")
        rows = mpt.read_rows(folder / "mpt" / "training_throughput.csv")
        table = mpt.tensor_efficiencies(rows, table)
    except InputError as error:
        print(error)
        return 2
    print_table(
        ("device", "class", "ops", "of peak", "of bandwidth", "fixed", "90 %"),
        (
            (
                name,
                op_class,
                str(found.ops),
                f"{found.compute:.3f}" if found.compute != 1 else "",
                f"{found.memory:.3f}" if found.memory != 1 else "",
                f"{found.fixed * 1e6:.1f} us",
                f"x {math.exp(found.spread):.2f}",
            )
            for name, classes in table.devices.items()
            for op_class, found in classes.items()
        ),
        left=2,
    )
    print(
        f"all ops of a device: x {math.exp(table.common):.2f}, of one that nobody measured "
        f"x {math.exp(table.common_unmeasured):.2f}, corrected by a model of its own "
        f"x {math.exp(table.common_corrected):.2f}"
    )
    if parsed.write is not None:
        text = yaml.safe_dump(table.model_dump(), sort_keys=False, width=110)
        parsed.write.write_text(f"# Written by benchmarks/accuracy/efficiencies.py\n{text}")
    return 0


def read_samples(folder: Path) -> dict[str, list[Sample]]:
    """Return the timed ops of every device of the catalogue that a folder has tables of."""
    named, found = _named(), dict[str, list[Sample]]()
    for each in sorted(path for path in folder.iterdir() if path.is_dir()):
        if each.name not in named:
            raise InputError(f"{each}: no device of the catalogue is reported as {each.name}")
        samples = [sample for file in sorted(each.glob("*.csv")) for sample in _samples(file)]
        found[named[each.name]] = samples
    return found


def _named() -> dict[str, str]:
    """Return names of devices by the names of NeuSight's folders."""
    return {
        driver.replace(" ", "_"): name
        for name, device in load_catalogue().devices.items()
        for driver in device.reported_as
    }


def _samples(file: Path) -> list[Sample]:
    rows = read_table(file)
    reading = reading_of(rows)
    return [
        Sample(file.stem, class_of(op.name, phase), op, reading.time(interval))
        for _, phase, op, interval in passes_of(rows)
        if interval > SHORTEST
    ]


def measured_table(samples: Mapping[str, Sequence[Sample]]) -> Efficiencies:
    """Return the efficiencies of each device and class; common errors are 0."""
    catalogue = load_catalogue().devices
    devices = {name: _classes(catalogue[name], found) for name, found in samples.items()}
    return Efficiencies(devices=devices, common=0, common_unmeasured=0, common_corrected=0)


def with_intervals(folder: Path) -> Efficiencies:
    """Return the table of NeuSight's devices, with what whole models err by in common."""
    wholes = predicted_wholes(folder)
    own = [math.log(each.measured / each.predicted) for each in wholes]
    foreign = [math.log(each.measured / each.by_others) for each in wholes]
    corrected = [
        a - b
        for (a, first), (b, second) in product(zip(own, wholes, strict=True), repeat=2)
        if first.device == second.device and first.family != second.family
    ]
    return measured_table(read_samples(folder)).model_copy(
        update={
            "common": _half_width(own),
            "common_unmeasured": _half_width(foreign),
            "common_corrected": _half_width(corrected),
        }
    )


@dataclass(frozen=True)
class Whole:
    """A whole model on a device: seconds as measured, and as predicted by two tables."""

    device: str
    model: str
    measured: float
    predicted: float  # by op latencies of the device, without those of the model's family
    by_others: float  # by op latencies of other devices
    inside: bool  # whether the measured one is in the predicted interval
    inside_by_others: bool

    @property
    def family(self) -> str:
        return self.model.partition("-")[0]


def predicted_wholes(folder: Path) -> list[Whole]:
    """Return every model of NeuSight's folders, each by tables that it had no part in."""
    samples, found = read_samples(folder), []
    everything = measured_table(samples).model_copy(update=_common())
    for path in sorted(each for each in folder.iterdir() if each.is_dir()):
        device = _named()[path.name]
        hardware = find_hardware(device)
        for file in sorted(path.glob("*.csv")):
            layers, whole = read_whole(file.with_suffix(".json"))
            graph = graph_of_shapes(repeated(read_table(file), layers, str(file)))
            family = file.stem.partition("-")[0] + "-"
            rest = {
                name: [each for each in own if not each.model.startswith(family)]
                for name, own in samples.items()
            }
            without = measured_table(rest).model_copy(update=_common())
            elsewhere = {each: of for each, of in everything.devices.items() if each != device}
            tables = without, everything.model_copy(update={"devices": elsewhere})
            ours, others = (_predicted(graph, hardware, table) for table in tables)
            found.append(
                Whole(
                    *(device, file.stem, whole.both, ours.iteration_time, others.iteration_time),
                    *(
                        each.interval[0] <= whole.both <= each.interval[1]
                        for each in (ours, others)
                    ),
                )
            )
    return found


def _common() -> dict[str, float]:
    """Return the common errors of the table of the package, which widen intervals alone."""
    table = load_efficiencies()
    return {
        name: getattr(table, name) for name in ("common", "common_unmeasured", "common_corrected")
    }


def _predicted(graph: Graph, hardware: Hardware, table: Efficiencies) -> Prediction:
    return predict(
        graph,
        durations_on(graph, hardware, efficiencies=table),
        asynchronous=True,
        launch=LAUNCH,
        common=common_error(hardware, NONE, table),
    )


def _classes(device: Device, samples: Sequence[Sample]) -> dict[str, Efficiency]:
    by_class: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_class[sample.op_class].append(sample)
    return {name: _efficiency(device, name, by_class[name]) for name in sorted(by_class)}


def _efficiency(device: Device, op_class: str, samples: Sequence[Sample]) -> Efficiency:
    fitted = _fit(device, op_class, samples)
    models = sorted({sample.model for sample in samples})
    errors = []
    for model in models:
        rest = [sample for sample in samples if sample.model != model]
        if rest:
            left_out = _fit(device, op_class, rest)
            own = [sample for sample in samples if sample.model == model]
            predicted = sum(_seconds(device, op_class, each.op, left_out) for each in own)
            errors.append(math.log(sum(each.seconds for each in own) / predicted))
    share, fixed = fitted
    return Efficiency(
        compute=round(share, 4) if op_class in COUNTED else 1.0,
        memory=1.0 if op_class in COUNTED else round(share, 4),
        fixed=round(fixed, 8),
        spread=round(_half_width(errors), 3),
        ops=len({sample.op for sample in samples}),
        source=SOURCE,
    )


def _roofline(device: Device, op_class: str, op: Op) -> float:
    flops = op.flops if op_class in COUNTED else 0
    moved = op.bytes_read + op.bytes_written
    return max(flops / device.peak("float32"), moved / device.memory_bandwidth)


def _seconds(device: Device, op_class: str, op: Op, fitted: tuple[float, float]) -> float:
    share, fixed = fitted
    time = _roofline(device, op_class, op) / share
    return time + min(fixed, time)


def _fit(device: Device, op_class: str, samples: Sequence[Sample]) -> tuple[float, float]:
    """Return the share and the fixed seconds with the least robust error of the logarithm.

    An op counts by the seconds that it took: what a model takes in all is to be right.
    """
    roof = np.array([_roofline(device, op_class, sample.op) for sample in samples])
    seconds = np.array([sample.seconds for sample in samples])
    weight = np.sqrt(seconds / seconds.sum())

    def residuals(parameters: np.ndarray) -> np.ndarray:
        share, fixed = np.exp(parameters)
        times = roof / share + np.minimum(fixed, roof / share)
        return np.asarray(weight * np.log(times / seconds))

    start = np.log([min(float(roof.sum() / seconds.sum()), 1.0), 1e-6])
    bounds = (np.log([0.01, 1e-9]), np.log([1.2, 1e-3]))
    found = least_squares(
        residuals, start, bounds=bounds, loss="soft_l1", f_scale=OUTLIER / math.sqrt(len(samples))
    )
    share, fixed = np.exp(found.x)
    return float(share), float(fixed)


def _half_width(errors: Iterable[float]) -> float:
    """Return what the next error lies within with probability 0.9: the largest of fewer than 10."""
    sizes = sorted(map(abs, errors))
    if not sizes:
        return math.log(1.5)
    return sizes[min(math.ceil((len(sizes) + 1) * LEVEL), len(sizes)) - 1]


if __name__ == "__main__":
    sys.exit(main())
