"""`paracosm replay`: traces of a real job replayed, with changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from paracosm.cli.options import Details, Force, Json, Out, Quiet, with_fields_of
from paracosm.cli.run_verb import run_verb
from paracosm.errors import InputError
from paracosm.replays.config import ReplayConfig


@with_fields_of(ReplayConfig, positional=("traces",))
def replay(
    traces: Annotated[
        list[Path],
        Argument(help="Kineto traces, one for each rank: .json or .json.gz; or a study file"),
    ],
    *,
    out: Out = None,
    force: Force = False,
    json: Json = False,
    details: Details = False,
    quiet: Quiet = False,
    **fields: Any,
) -> int:
    """Replay traces of PyTorch's profiler, unchanged and with what-if changes.

    Example: paracosm replay rank0.json.gz rank1.json.gz --what-if "links: bandwidth 2x"
    """
    arguments = {name: value for name, value in fields.items() if value not in (None, [])}
    arguments |= {"out": out, "force": force, "json": json, "details": details, "quiet": quiet}
    for folder in filter(Path.is_dir, traces):
        raise InputError(f"{folder}: a folder: give its traces: paracosm replay {folder}/*.json*")
    if len(traces) == 1 and traces[0].suffix in (".yaml", ".yml"):
        return run_verb("replay", traces[0], arguments)
    return run_verb("replay", None, {**arguments, "traces": traces})
