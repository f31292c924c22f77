"""`paracosm calibrate link`, `paracosm emulate --calibrate-link`: the link between two ranks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from paracosm.cli.display import show_result
from paracosm.cli.options import ForceFile, Json, Quiet, check_output, check_writable, duration
from paracosm.profiling.links.pair import calibrate_link, write_calibration


def link(
    file: Annotated[Path, Argument(help="file of values to write, for emulate --calibration")],
    seconds: Annotated[str, Option(help="of all-reduces of each size")] = "0.5s",
    timeout: Annotated[str, Option(help="to wait for a silent rank before giving up")] = "1min",
    force: ForceFile = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Measure what messages and bytes cost between two ranks of gloo: here, or over a network.

    With RANK, WORLD_SIZE=2, MASTER_ADDR and MASTER_PORT set, as by torchrun, this process is one of
    the two ranks; otherwise it starts both on this machine.

    Example: paracosm calibrate link link.yaml
    """
    check_output(file, force)
    check_writable(file)
    calibration = calibrate_link(duration("--seconds", seconds), duration("--timeout", timeout))
    if calibration is None:  # rank 1
        return 0
    write_calibration(calibration, file)
    summary = {"status": "done", **asdict(calibration)}
    show_result(summary, json, quiet, lambda: typer.echo(calibration.text(), nl=False))
    return 0
