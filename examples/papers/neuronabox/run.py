"""The paper on NeuronaBox, measured: real ranks beside emulated ones, on a shaped link.

    python run.py                       # three quarters of an hour
    python run.py --quick               # some eight minutes
    python run.py --only table1 cost    # parts: table1, table3, cost, modelled, figure4
    python run.py --again measured      # tables and figures of what was measured before

Each part is written to OUT/measured as soon as it is complete. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cost import measure_cost
from document import TITLES, draw, put_into, results
from figure4 import measure_figure4
from jobs import JobError
from modelled import measure_modelled
from network import INSIDE, NO_RIGHTS, Network, build, loopback, may_shape, start_inside
from table1 import measure_table1
from table3 import measure_table3

from paracosm.errors import InputError

__all__ = ["main", "measure_parts"]

Say = Callable[[str], None]


def main() -> int:
    """Measure what was asked for and write tables and figures; return the exit code."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process is left behind
    failed: list[str] = []
    try:
        if options.again is None:
            network = _network(options.rate, options.loopback)
            failed = measure_parts(network, options.only, options.quick, options.out / "measured")
        folder = options.out / "measured" if options.again is None else options.again
        measured = load(folder)
        text = results(measured)
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "results.md").write_text(text, encoding="utf-8")
        pictures = draw(measured, options.out / "figures")
        print(text)
        print(*(options.out / "results.md", *pictures), sep="\n")
        if options.document is not None:
            put_into(options.document, text, pictures, folder)
    except InputError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 1 if failed else 0


def _network(rate: float, on_loopback: bool) -> Network:
    """Make the network, in namespaces into which the program starts itself again."""
    if on_loopback:
        return loopback("As asked for, all ran on the loopback")
    if not os.environ.get(INSIDE) and may_shape():
        start_inside(sys.argv)
    return build(rate) if os.environ.get(INSIDE) else loopback(NO_RIGHTS)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter measurements")
    parser.add_argument("--only", nargs="+", choices=TITLES, default=list(TITLES), metavar="PART")
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="of an earlier measurement")
    parser.add_argument("--out", type=Path, default=Path("runs/neuronabox"), help="folder to write")
    parser.add_argument("--rate", type=float, default=1000.0, help="Mbit/s of the links (1000)")
    parser.add_argument("--loopback", action="store_true", help="make no network")
    parser.add_argument("--document", type=Path, metavar="PAGE", help="to put results into")
    return parser.parse_args()


def measure_parts(network: Network, parts: Sequence[str], quick: bool, folder: Path) -> list[str]:
    """Measure some parts, and write each to a folder; return those that failed."""
    measure: dict[str, Callable[[], dict[str, Any]]] = {
        "table1": lambda: measure_table1(network, quick, say),
        "table3": lambda: measure_table3(network, quick, say),
        "cost": lambda: measure_cost(network, quick, say),
        "modelled": lambda: measure_modelled(network, quick, say),
        "figure4": lambda: measure_figure4(quick, say),
    }
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for part in parts:
        about = {"environment": environment(), "network": network.about, "quick": quick}
        try:
            found = measure[part]()
        except JobError as error:
            say(f"{part} failed: {error}")
            failed.append(part)
            continue
        text = json.dumps({**about, **found}, default=float)
        (folder / f"{part}.json").write_text(text + "\n", encoding="utf-8")
    return failed


def load(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what was measured, by part.

    Raises:
        InputError: there is nothing.
    """
    files = {part: folder / f"{part}.json" for part in TITLES}
    found = {part: json.loads(path.read_text()) for part, path in files.items() if path.is_file()}
    if not found:
        raise InputError(f"{folder}: nothing measured: {', '.join(f.name for f in files.values())}")
    return found


def environment() -> str:
    """Return what it runs on, in a line."""
    import torch

    kernel = ".".join(platform.release().split(".")[:2])
    load = os.getloadavg()[0]
    return (
        f"PyTorch {torch.__version__}, {os.cpu_count()} cores, {platform.system()} {kernel}, "
        f"load average {load:.1f} at the beginning"
    )


def say(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
