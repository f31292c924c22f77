"""How the cost of a command grows with the ranks of its job: those of traces, and emulated ones.

    python benchmarks/ranks.py [--traces 8,64,256,1000] [--worlds 100,10000,100000]

The traces are those of DLRM that the tests have, eight of them, copied as those of more ranks.
Emulated is the DDP script of the README. Time is that of all processors, as in `commands.py`, and
that of the clock, which is shorter for a replay on several cores, and longer beside other programs.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from pathlib import Path

from commands import ROOT, cost_of
from stored_results import store_result

DLRM = ROOT / "tests" / "data" / "kineto" / "dlrm"
SCRIPT = ROOT / "examples" / "emulation" / "ddp.py"


def main() -> None:
    """Print and store what each number of ranks costs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--traces", default="8,64,256,1000", help="numbers of ranks to replay")
    parser.add_argument("--worlds", default="100,10000,100000", help="numbers of ranks to emulate")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        replay = []
        for ranks in map(int, arguments.traces.split(",")):
            paths = copies(folder / str(ranks), ranks)
            replay.append((ranks, ["paracosm", "replay", *map(str, paths)]))
        compare(
            "replay of traces of DLRM by the command, 1,460 spans each: of {} ranks", replay, folder
        )
        links = ["--bandwidth", "10Gbit/s", "--latency", "20us", str(SCRIPT)]
        compare(
            "emulation of the README's DDP script by the command: of {} ranks",
            [
                (int(world), ["paracosm", "emulate", "--world-size", world, *links])
                for world in arguments.worlds.split(",")
            ],
            folder,
        )


def copies(folder: Path, ranks: int) -> list[Path]:
    """Write traces of so many ranks, and return their paths."""
    texts = [gzip.decompress(path.read_bytes()).decode() for path in sorted(DLRM.glob("*.gz"))]
    folder.mkdir()
    paths = []
    for rank in range(ranks):
        number = rank % len(texts)
        of_copied, of_rank = (
            f'"rank": {own}, "world_size": {world}'
            for own, world in ((number, len(texts)), (rank, ranks))
        )
        text = texts[number].replace(of_copied, of_rank, 1)
        paths.append(folder / f"rank{rank}.json.gz")
        paths[-1].write_bytes(gzip.compress(text.encode()))
    return paths


def compare(about: str, commands: list[tuple[int, list[str]]], folder: Path) -> None:
    """Run a command for several numbers of ranks; store all of its costs as one result."""
    costs = []
    for ranks, command in commands:
        cost = cost_of(command, folder)
        seconds = f"{cost.processor:.1f} s ({cost.clock:.1f} by the clock)"
        costs.append(f"{seconds}, {cost.memory / 1e6:,.0f} MB")
        print(f"{about.format(f'{ranks:,}')}: {costs[-1]}", flush=True)
    store_result(about.format(", ".join(f"{ranks:,}" for ranks, _ in commands)), "; ".join(costs))


if __name__ == "__main__":
    main()
