"""Time to accuracy, measured and predicted: a real distributed training on this machine.

Processes of PyTorch, each in a network namespace, train a small network on the digits over shaped
links; computing is waiting, as on an accelerator, so that two cores serve eight workers.

    python run.py --measure quick    # some minutes
    python run.py --measure full     # over an hour; what has been measured is not measured again
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from cells import plan
from measuring import measure
from network import INSIDE, may_shape, prepare_namespaces, start_inside

from paracosm.errors import InputError
from paracosm.profiling.processes import WorkerError


def main() -> int:
    """Measure and compare; return the exit code."""
    options = _options()
    try:
        if options.measure:
            _measure(options)
    except (InputError, WorkerError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted: what has been measured is kept.", file=sys.stderr)
        return 130
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", choices=("quick", "full"), help="train for real")
    parser.add_argument("--out", type=Path, default=Path("runs/time_to_accuracy"), help="folder")
    parser.add_argument("--rate", type=float, default=80.0, help="Mbit/s of the links (80)")
    return parser.parse_args()


def _measure(options: argparse.Namespace) -> None:
    if not os.environ.get(INSIDE) and may_shape():
        start_inside(sys.argv)
    shaped = bool(os.environ.get(INSIDE))
    if shaped:
        prepare_namespaces()
    options.out.mkdir(parents=True, exist_ok=True)
    measure(plan(options.measure), options.out, options.rate, shaped)


if __name__ == "__main__":
    sys.exit(main())
