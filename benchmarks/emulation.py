"""What emulation costs and how true it is, beside PyTorch's own groups, in the same run.

    python benchmarks/emulation.py [--full]

1. Backend mode: a call beside one of PyTorch's fake process group, in one process in turns; how
   late a modelled delay ends.
2. Wire mode: all-reduces between one real and one emulated rank, beside two real ranks of gloo, in
   turns, on a link of 1 Gbit/s where network namespaces can be made, else on the loopback; and the
   processor time of the emulator beside that of the real rank in whose place it is.
3. One real rank and 15 or 63 emulated ones.

The programs are those of examples/papers/neuronabox, whose page has tables of longer runs, of four
ranks and of training. `--full` takes as long as those.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "examples" / "papers" / "neuronabox"))

import cost
import modelled
import table1
from jobs import JobError
from network import INSIDE, NO_RIGHTS, build, loopback, may_shape, start_inside
from run import environment, say

from paracosm.errors import InputError

RATE = 1000.0  # Mbit/s
SIZES = (1 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20)


def main() -> int:
    """Print the tables; return 1 if a job failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="more rounds and longer turns")
    quick = not parser.parse_args().full
    if not os.environ.get(INSIDE) and may_shape():
        start_inside(sys.argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left behind
    network = build(RATE) if os.environ.get(INSIDE) else loopback(NO_RIGHTS)
    print(f"{environment()}\n{network.about}\n")
    try:
        for table in modelled.tables_of(modelled.measure_modelled(network, quick, say)):
            print(f"\n{table.markdown()}")
        compared = table1.compare_calls(
            network, 2, {"E": {"communication": "none"}}, quick, say, ("all_reduce",), SIZES
        )
        calls = {"settings": [compared]}
        for table in table1.tables_of(calls):
            print(f"\n{table.markdown()}")
        for table in cost.tables_of(cost.measure_cost(network, quick, say), calls):
            print(f"\n{table.markdown()}")
    except (JobError, InputError) as error:
        print(f"emulation.py: {error}", file=sys.stderr)
        return 1
    met = [cell.holds for cell in table1.cells_of(compared["rows"])]
    print(f"wire mode: {sum(met)} of {len(met)} aims met (they are for a link of 1 Gbit/s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
