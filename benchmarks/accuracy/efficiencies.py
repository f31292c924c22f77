"""What ops of a class reach of the datasheet's roofline, from latencies that others measured.

    python benchmarks/accuracy/efficiencies.py [FOLDER] [--write FILE]

FOLDER has NeuSight's tables (a folder for each GPU); without it, `neusight` in the folder that
PARACOSM_DATA names. Only latencies of single ops are used, never that of a model. `--write` writes
the table that is part of the package, `src/paracosm/cluster/hardware/efficiencies.yaml`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from op_work import passes_of
from printing import folder_of, print_table
from scipy.optimize import least_squares

from paracosm.cluster.hardware import Device, Efficiencies, Efficiency, load_catalogue, op_time
from paracosm.errors import InputError
from paracosm.graphs import Op
from paracosm.prediction.datasheets import COUNTED, class_of
from paracosm.prediction.op_latencies import read_table, reading_of

__all__ = ["Sample", "measured_table", "read_samples"]

SOURCE = "op latencies of NeuSight (Lee, Phanishayee, Mahajan, ASPLOS 2025)"
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
    folder = folder_of(parsed, "neusight", "op latencies")
    if folder is None:
        return 2
    try:
        table = measured_table(read_samples(folder))
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
                f"{found.compute:.3f}" if op_class in COUNTED else "",
                f"{found.memory:.3f}",
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
    catalogue = load_catalogue()
    named = {
        driver.replace(" ", "_"): name
        for name, device in catalogue.devices.items()
        for driver in device.reported_as
    }
    found: dict[str, list[Sample]] = {}
    for each in sorted(path for path in folder.iterdir() if path.is_dir()):
        if each.name not in named:
            raise InputError(f"{each}: no device of the catalogue is reported as {each.name}")
        samples = [sample for file in sorted(each.glob("*.csv")) for sample in _samples(file)]
        found[named[each.name]] = samples
    return found


def _samples(file: Path) -> list[Sample]:
    rows = read_table(file)
    reading = reading_of(rows)
    return [
        Sample(file.stem, class_of(op.name, phase), op, reading.time(interval))
        for _, phase, op, interval in passes_of(rows)
        if interval > SHORTEST
    ]


def measured_table(samples: Mapping[str, Sequence[Sample]]) -> Efficiencies:
    """Return the efficiencies of each device and class, with intervals from models left out."""
    catalogue = load_catalogue().devices
    devices = {name: _classes(catalogue[name], found) for name, found in samples.items()}
    table = Efficiencies(devices=devices, common=0, common_unmeasured=0, common_corrected=0)
    own, foreign, corrected = [], [], []
    for name, found in samples.items():
        models = sorted({sample.model for sample in found})
        errors = [_total_error(name, catalogue[name], table, found, model) for model in models]
        own += errors
        without = table.without(name)
        foreign += [_total_error(name, catalogue[name], without, found, m) for m in models]
        corrected += [a - b for a in errors for b in errors if a is not b]
    return table.model_copy(
        update={
            "common": _half_width(own),
            "common_unmeasured": _half_width(foreign),
            "common_corrected": _half_width(corrected),
        }
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
        ops=len({each.op for each in samples}),
        source=SOURCE,
    )


def _roofline(device: Device, op_class: str, op: Op) -> float:
    flops = op.flops if op_class in COUNTED else 0
    moved = op.bytes_read + op.bytes_written
    return max(flops / device.peak("float32"), moved / device.memory_bandwidth)


def _seconds(device: Device, op_class: str, op: Op, fitted: tuple[float, float]) -> float:
    share, fixed = fitted
    return fixed + _roofline(device, op_class, op) / share


def _fit(device: Device, op_class: str, samples: Sequence[Sample]) -> tuple[float, float]:
    """Return the share and the fixed seconds with the least robust error of the logarithm.

    An op counts by the seconds that it took: what a model takes in all is to be right.
    """
    roof = np.array([_roofline(device, op_class, each.op) for each in samples])
    seconds = np.array([each.seconds for each in samples])
    weight = np.sqrt(seconds / seconds.sum())

    def residuals(parameters: np.ndarray) -> np.ndarray:
        share, fixed = np.exp(parameters)
        return np.asarray(weight * np.log((fixed + roof / share) / seconds))

    start = np.log([min(float(roof.sum() / seconds.sum()), 1.0), 1e-6])
    bounds = (np.log([0.01, 1e-9]), np.log([1.2, 1e-3]))
    found = least_squares(
        residuals, start, bounds=bounds, loss="soft_l1", f_scale=OUTLIER / math.sqrt(len(samples))
    )
    share, fixed = np.exp(found.x)
    return float(share), float(fixed)


def _total_error(
    name: str, device: Device, table: Efficiencies, samples: Sequence[Sample], model: str
) -> float:
    """Return the logarithm of what a model's ops took in all over what they are predicted to."""
    own = [sample for sample in samples if sample.model == model]
    predicted = sum(
        op_time(
            *(name, device, table, each.op_class, "float32"),
            each.op.flops if each.op_class in COUNTED else 0,
            each.op.bytes_read + each.op.bytes_written,
        ).seconds
        for each in own
    )
    return math.log(sum(each.seconds for each in own) / predicted)


def _half_width(errors: Iterable[float]) -> float:
    """Return what the next error lies within with probability 0.9: the largest of fewer than 10."""
    sizes = sorted(map(abs, errors))
    if not sizes:
        return math.log(1.5)
    return sizes[min(math.ceil((len(sizes) + 1) * LEVEL), len(sizes)) - 1]


if __name__ == "__main__":
    sys.exit(main())
