"""All-reduces that NCCL measured, beside models of collectives.

    python benchmarks/accuracy/nccl.py [FOLDER]

FOLDER has sweeps as vTrain publishes them: files AR_GPU<ranks>_..., one line for each size with
bytes, count, type, nanoseconds and bus bandwidth out of place, and the same in place. Without it,
`vtrain` in the folder that the variable PARACOSM_DATA names. Folders below it count as well, each
for the machine that it is named after.

Constants are fitted to every other size, or to powers of two alone, and only the other sizes are
predicted. "One ring" is a latency and a bandwidth (alpha-beta); "switched" two of them, below and
above a size that is fitted as well. Then the fewest GPUs predict all others, where it is known how
the GPUs of the machine are joined: with one link, and with the latencies that NCCL reckons with,
its rule when to change the protocol, and the share of the bandwidth that the protocol for small
messages reaches in the sweeps of the other numbers of GPUs.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median

from printing import folder_of, mape, print_table
from ring_packing import rings_within
from switched_ring import fit_ring, fit_switched_ring, nccl_link

from paracosm.cluster.collectives import ring_all_reduce
from paracosm.cluster.link import Link
from paracosm.errors import InputError

FEWEST = 4  # sizes, of which every other one is fitted
SMALL = 32 * 2**20  # bytes; where a latency counts
FEW_SMALL = 2 * 2**20  # bytes up to which a sweep from 1 MiB has too few sizes for a line
FIGURE = "0.1-2.5 %, worse at small sizes"  # of one ring, to beat


Links = Mapping[tuple[int, int], int]

CUBE_MESH = ("", "1", "12", "212", "2000", "02001", "001012", "0001212")
"""NVLinks between the eight V100 of a DGX-1V or its like, of each one to those before it: the lower
half of what `nvidia-smi topo -m` prints."""

MACHINES: Mapping[str, Links] = {
    "v100": {
        (low, high): int(links)
        for high, line in enumerate(CUBE_MESH)
        for low, links in enumerate(line)
        if links != "0"
    }
}


@dataclass(frozen=True)
class Sweep:
    """Bytes and seconds of all-reduces between so many GPUs, sizes ascending."""

    ranks: int
    sizes: Sequence[float]
    seconds: Sequence[float]


def main() -> int:
    """Print how far each model is off."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of sweeps")
    folder = folder_of(parser.parse_args(), "vtrain", "sweeps")
    if folder is None:
        return 2
    machines = {
        place.name: sweeps
        for place in sorted({file.parent for file in folder.rglob("AR_GPU*")})
        if (sweeps := read_sweeps(place))
    }
    if not machines:
        print(f"{folder}: no sweeps: files named AR_GPU<ranks>_...")
        return 2
    for name, sweeps in machines.items():
        print(
            f"{name}: mean absolute error of the sizes that were not fitted (up to 32 MiB of them)"
        )
        _print_sizes(sweeps)
        print(f"the figure to beat, of one ring: {FIGURE}\n")
        if len(sweeps) > 1 and name in MACHINES:
            _print_ranks(sweeps, MACHINES[name])
    return 0


def read_sweeps(folder: Path) -> list[Sweep]:
    """Return the sweeps of a folder by their number of GPUs.

    Raises:
        InputError: a line that is not of that form.
    """
    found = []
    for file in folder.glob("AR_GPU*"):
        if file.is_file() and (ranks := re.match(r"AR_GPU(\d+)", file.name)):
            times: dict[float, float] = {}
            for number, line in enumerate(file.read_text().splitlines()[1:], start=2):
                try:
                    cells = line.split(",")
                    times[float(cells[0])] = float(cells[3]) * 1e-9
                except (ValueError, IndexError):
                    raise InputError(f"{file}, line {number}: bytes,count,type,ns,...") from None
            if len(times) < FEWEST:
                raise InputError(f"{file}: {len(times)} sizes: a fit needs {FEWEST}")
            found.append(Sweep(int(ranks[1]), *zip(*sorted(times.items()), strict=True)))
    return sorted(found, key=lambda sweep: sweep.ranks)


def _print_sizes(sweeps: Sequence[Sweep]) -> None:
    chosen: Mapping[str, Callable[[int, float], bool]] = {
        "every other size": lambda index, size: index % 2 == 0,
        "powers of two": lambda index, size: (int(size) & (int(size) - 1)) == 0,
    }
    header = [
        "GPUs",
        *(f"{model}, {which}" for which in chosen for model in ("one ring", "switched")),
    ]
    rows = []
    for sweep in sweeps:
        cells = [str(sweep.ranks)]
        for chooses in chosen.values():
            fitted = [i for i, size in enumerate(sweep.sizes) if chooses(i, size)]
            cells += [_errors(sweep, fitted, model) for model in (_one, _switched)]
        rows.append(cells)
    print_table(header, rows, left=0)


Model = Callable[[int, Sequence[float], Sequence[float]], Callable[[float], float]]


def _one(ranks: int, sizes: Sequence[float], seconds: Sequence[float]) -> Callable[[float], float]:
    link = fit_ring(ranks, sizes, seconds)
    return lambda size: ring_all_reduce(ranks, size, link)


def _switched(
    ranks: int, sizes: Sequence[float], seconds: Sequence[float]
) -> Callable[[float], float]:
    link = fit_switched_ring(ranks, sizes, seconds)
    return lambda size: ring_all_reduce(ranks, size, link)


def _errors(sweep: Sweep, fitted: Sequence[int], model: Model) -> str:
    predict = model(
        sweep.ranks,
        [sweep.sizes[index] for index in fitted],
        [sweep.seconds[index] for index in fitted],
    )
    others = sorted(set(range(len(sweep.sizes))) - set(fitted))
    errors = {index: predict(sweep.sizes[index]) / sweep.seconds[index] - 1 for index in others}
    small = [error for index, error in errors.items() if sweep.sizes[index] <= SMALL]
    return (
        f"{mape(errors.values()):.2%} ({mape(small):.1%})"
        if small
        else f"{mape(errors.values()):.2%}"
    )


def _print_ranks(sweeps: Sequence[Sweep], joined: Links) -> None:
    """Predict every sweep but the first from the first: its link, and as many rings as fit."""
    first = sweeps[0]
    link = fit_ring(first.ranks, first.sizes, first.seconds)
    each = link.bandwidth / max(rings_within(joined, first.ranks), 1)
    rows = []
    shares = _shares_of_small_messages(sweeps)
    for sweep in sweeps[1:]:
        own = fit_ring(sweep.ranks, sweep.sizes, sweep.seconds)
        rings = rings_within(joined, sweep.ranks)
        shared = Link(bandwidth=rings * each, latency=link.latency) if rings else None
        others = [share for ranks, share in shares.items() if ranks != sweep.ranks]
        reckoned = nccl_link(sweep.ranks, rings * each, median(others)) if rings else None
        errors = [_all_errors(sweep, used) for used in (link, shared, reckoned)]
        small = [_all_errors(sweep, used, SMALL) for used in (shared, reckoned)]
        rows.append(
            (
                str(sweep.ranks),
                str(rings),
                "-" if shared is None else f"{shared.bandwidth / 1e9:.1f} GB/s",
                f"{own.bandwidth / 1e9:.1f} GB/s",
                *("-" if found is None else f"{mape(found):.1%}" for found in (*errors, *small)),
            )
        )
    print(f"from {first.ranks} GPUs to more, by the rings that fit on the machine's NVLinks")
    header = (
        "GPUs",
        "rings",
        "predicted",
        "fitted",
        "error, same link",
        "rings",
        "NCCL's constants",
    )
    print_table((*header, "rings, to 32 MiB", "NCCL's"), rows, left=0)
    known = ", ".join(f"{ranks}: {share:.2f}" for ranks, share in shares.items())
    print(f"LL128's share of the bandwidth: {known}; median {median(shares.values()):.3f}")


def _shares_of_small_messages(sweeps: Sequence[Sweep]) -> dict[int, float]:
    """Return the share of the bandwidth that small messages have, by the number of GPUs.

    Of sweeps that have enough of them: in which NCCL changes its protocol above 2 MiB.
    """
    shares = {}
    for sweep in sweeps:
        found = fit_switched_ring(sweep.ranks, sweep.sizes, sweep.seconds)
        if sweep.ranks * nccl_link(sweep.ranks, found.bandwidth).threshold > FEW_SMALL:
            shares[sweep.ranks] = found.small.bandwidth / found.bandwidth
    return shares


def _all_errors(sweep: Sweep, link: Link | None, largest: float = inf) -> list[float] | None:
    if link is None:
        return None
    return [
        ring_all_reduce(sweep.ranks, size, link) / time - 1
        for size, time in zip(sweep.sizes, sweep.seconds, strict=True)
        if size <= largest
    ]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(error)
        sys.exit(2)
