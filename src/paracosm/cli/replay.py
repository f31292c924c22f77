"""`paracosm replay`: traces of a real job replayed, with changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from paracosm.cli.options import Force, Json, Quiet, check_folder
from paracosm.cli.run_verb import show_summary


def replay(
    traces: Annotated[
        list[Path], Argument(help="Kineto traces, one for each rank: .json or .json.gz")
    ],
    what_if: Annotated[
        list[str] | None,
        Option(
            help='a change, repeatable: "links: bandwidth 2x", "worker 3: compute '
            '1.5x faster", "data loading: none", "kernel *gemm*: 2x slower"'
        ),
    ] = None,
    steps: Annotated[str | None, Option(help="of the profiler, such as 5..9 [all]")] = None,
    alone: Annotated[
        bool,
        Option(
            "--alone",
            help="replay one rank of several; its collectives keep their recorded durations",
        ),
    ] = False,
    communication: Annotated[
        list[str] | None,
        Option(
            help="kernels that communicate, beside those of known libraries; repeatable: "
            '"my_ring*", with a kind "my_ring*=all_reduce", or "ring_norm*=none" if they do not'
        ),
    ] = None,
    out: Annotated[Path | None, Option(help="run folder to write")] = None,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Replay traces of PyTorch's profiler, unchanged and with what-if changes.

    Example: paracosm replay rank0.json.gz rank1.json.gz --what-if "links: bandwidth 2x"
    """
    from paracosm import api

    check_folder(out, force)
    changes = what_if or []
    summary = api.replay(
        traces,
        what_if=changes,
        steps=steps,
        alone=alone,
        communication=communication or [],
        out=out,
        force=force,
    ).summary
    if not quiet:
        show_summary(summary, out, json)
    return 0
