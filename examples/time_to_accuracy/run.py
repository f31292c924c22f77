"""Time to accuracy, measured and predicted: a real distributed training on this machine.

Processes of PyTorch, each in a network namespace, train a small network on the digits over shaped
links; computing is waiting, as on an accelerator, so that two cores serve eight workers. What they
do is predicted from the profile of one worker: the schedule, and real gradients over it.

    python run.py --measure quick          # some minutes
    python run.py --measure full           # over an hour; what has been measured is kept
    python run.py --out measured           # table and figure of what was measured before
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from cells import plan
from shaped_network import INSIDE, may_shape, prepare_namespaces, start_inside

from paracosm.errors import InputError
from paracosm.profiling.processes import WorkerError

sys.path.append(str(Path(__file__).parents[2] / "benchmarks" / "accuracy"))

UNSHAPED = (
    "Namespaces cannot be made here, so the processes talk over the loopback, and servers wait as "
    "long as a fair link would take: no TCP shares it, and there is no FIFO port."
)


def main() -> int:
    """Measure, predict and compare; return the exit code."""
    options = _options()
    try:
        if options.measure:
            _measure(options)
        _compare(options)
    except (InputError, WorkerError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: what has been measured is kept.", file=sys.stderr)
        return 130
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", choices=("quick", "full"), help="train for real first")
    parser.add_argument("--out", type=Path, default=Path("runs/time_to_accuracy"), help="folder")
    parser.add_argument("--rate", type=float, default=80.0, help="Mbit/s of the links (80)")
    return parser.parse_args()


def _measure(options: argparse.Namespace) -> None:
    from measuring import measure

    if not os.environ.get(INSIDE) and may_shape():
        start_inside(sys.argv)
    shaped = bool(os.environ.get(INSIDE))
    if shaped:
        prepare_namespaces()
    else:
        print(UNSHAPED)
    options.out.mkdir(parents=True, exist_ok=True)
    measure(plan(options.measure), options.out, options.rate, shaped)


def _compare(options: argparse.Namespace) -> None:
    from comparing import compare, draw, write_table

    rows = compare([*plan("quick"), *plan("full")], options.out)
    if not rows:
        raise InputError(f"{options.out}: nothing was measured: give --measure quick")
    print(write_table(rows))
    draw(rows, options.out / "loss.png")
    print(options.out / "loss.png")


if __name__ == "__main__":
    sys.exit(main())
