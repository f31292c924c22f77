"""Collectives that NCCL and RCCL were timed at, beside what the catalogue's clusters take.

    python benchmarks/accuracy/collectives.py [FOLDER]

FOLDER has `collectives.csv`, a size a row: the GPU, how many of how many nodes, what joins them,
bytes and microseconds; without it, the folder `stacks` of the one that PARACOSM_DATA names. No row
sets anything: bandwidths of links are those of the catalogue, and all else is what NCCL itself
reckons with (`cluster/nccl.py`). Networks that are not a node's own are other entries of the
catalogue, as fast as the table names them. Beside the prediction stands that by algorithms that go
over a machine's links and its cards one after the other.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from printing import folder_of, mape, print_table, signed

from paracosm.cluster.cluster import Cluster
from paracosm.cluster.collectives import collective_time
from paracosm.cluster.hardware.catalogue import Hardware, find_hardware, load_catalogue
from paracosm.cluster.link import Hierarchical
from paracosm.errors import InputError

DEVICES = {
    "A100": "a100-sxm-80gb",
    "B200": "b200-sxm",
    "GB200": "gb200",
    "H100": "h100-sxm",
    "H200": "h200-sxm",
    "MI300X": "mi300x",
}
"""Devices of the catalogue, by the beginning of their names in the table."""

CARDS = re.compile(r"(\d+) x (\d+) (Gbit|GB)/s")
DECADES = (
    ("below 1 MB", 0.0, 1e6),
    ("to 64 MiB", 1e6, 65e6),
    ("to 1 GB", 65e6, 1e9),
    ("above", 1e9, 1e15),
)


@dataclass(frozen=True)
class Timing:
    """A collective of a size on a system."""

    system: str
    collective: str
    size: float
    seconds: float
    predicted: float
    one_after_the_other: float  # predicted by algorithms that do not overlap links and cards


def main() -> int:
    """Print how far each system is off, by size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of the table collectives.csv")
    folder = folder_of(parser.parse_args(), "stacks", "timed collectives")
    if folder is None:
        return 2
    file = folder / "collectives.csv"
    if not file.is_file():
        print(f"{file}: is not there: a table of timed collectives")
        return 2
    timings = read_timings(file)
    systems = defaultdict[str, list[Timing]](list)
    for timing in timings:
        systems[timing.system].append(timing)
        systems["all"].append(timing)
    names = [name for name in systems if name != "all"] + ["all"]
    print_table(
        (
            "",
            "rows",
            *(title for title, *_ in DECADES),
            "bias of the largest",
            "one after the other",
        ),
        (
            (
                name,
                str(len(systems[name])),
                *(_error(systems[name], low, high) for _, low, high in DECADES),
                _bias([each for each in systems[name] if each.size >= 1e9]),
                _error(systems[name], 65e6, 1e15, overlaps=False),
            )
            for name in names
        ),
    )
    print("\nthe last column is of sizes above 64 MiB")
    return 0


def read_timings(file: Path) -> list[Timing]:
    """Return the rows of a table; InputError for one that cannot be read."""
    found = []
    with file.open(encoding="utf-8", newline="") as lines:
        reader = csv.DictReader(lines)
        for entry in reader:
            try:
                found.append(_timing(entry))
            except (KeyError, ValueError) as error:
                raise InputError(f"{file}, line {reader.line_num}: {error}") from None
    return found


def _timing(entry: Mapping[str, str]) -> Timing:
    name = re.split(r"[- ]", entry["gpu"])[0]
    ranks = int(entry["gpus"])
    hardware = _with_network(find_hardware(DEVICES[name]), entry["interconnect"])
    cluster = hardware.cluster(ranks)
    size = float(entry["bytes"])
    seconds = [
        collective_time(each, range(ranks), entry["collective"], size)
        for each in (cluster, _without_overlap(cluster))
    ]
    source = entry["source"].partition("/")[0]
    return Timing(
        f"{ranks} {name}, {entry['interconnect'][:34]}, {entry['collective']} ({source[:14]})",
        entry["collective"],
        size,
        float(entry["time_us"]) * 1e-6,
        *seconds,
    )


def _with_network(hardware: Hardware, words: str) -> Hardware:
    """Return hardware with the network cards that a table names, if it names any."""
    if "TCPX " in words:
        return find_hardware("a3-highgpu-8g")
    match = CARDS.search(words.replace("3200 Gbit/s EFA", "8 x 400 Gbit/s EFA"))
    if match is None or hardware.node is None:
        return hardware
    cards, speed = int(match[1]), int(match[2]) * (8 if match[3] == "GB" else 1)
    return replace(
        hardware,
        node=hardware.node.model_copy(update={"cards": cards, "outer": f"ethernet-{speed}"}),
        outer=load_catalogue().interconnects[f"ethernet-{speed}"],
    )


def _without_overlap(cluster: Cluster) -> Cluster:
    topology = cluster.topology
    assert isinstance(topology, Hierarchical)
    return replace(cluster, topology=replace(topology, nccl=None))


def _error(timings: Sequence[Timing], low: float, high: float, *, overlaps: bool = True) -> str:
    errors = [
        (timing.predicted if overlaps else timing.one_after_the_other) / timing.seconds - 1
        for timing in timings
        if low <= timing.size < high
    ]
    return f"{mape(errors):.0%}" if errors else ""


def _bias(timings: Sequence[Timing]) -> str:
    errors = [timing.predicted / timing.seconds - 1 for timing in timings]
    return signed(sum(errors) / len(errors)) if errors else ""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(error)
        sys.exit(2)
