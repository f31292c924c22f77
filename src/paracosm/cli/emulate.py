"""`paracosm emulate`: an unmodified training script as one rank of any world."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from paracosm.cli.options import Force, Jobs, Json, Out, Quiet, Seed, with_fields_of
from paracosm.cli.run_verb import run_verb
from paracosm.cli.verbs import Verb
from paracosm.emulation.config import EmulateConfig

__all__ = ["COMMAND", "emulate"]

_STUDIES = (".yaml", ".yml")


class _Emulate(Verb):
    """What comes behind the script is the script's; behind a study file come flags, as ever."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the arguments, after a look at what is to be run."""
        ctx.allow_interspersed_args = False
        values, *_ = self.make_parser(ctx).parse_args(args=list(args))
        ctx.allow_interspersed_args = str(values.get("script")).endswith(_STUDIES)
        return super().parse_args(ctx, args)


COMMAND = _Emulate

Script = Annotated[
    Path,
    typer.Argument(
        help="the training script, module:NAME as python -m takes it, or a study file (.yaml), "
        "which flags take the place of"
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(help="of the script: everything behind it", show_default=False),
]


@with_fields_of(EmulateConfig, positional=("script", "arguments"))
def emulate(
    script: Script,
    arguments: Arguments = None,
    *,
    seed: Seed = None,
    out: Out = None,
    force: Force = False,
    jobs: Jobs = 1,
    json: Json = False,
    quiet: Quiet = False,
    **fields: Any,
) -> int:
    """Run an unmodified training script as one rank of a world whose other ranks are emulated.

    Example: paracosm emulate --world-size 16 --bandwidth 10Gbit/s examples/emulation/ddp.py
    """
    is_study = script.suffix in _STUDIES
    given = {name: value for name, value in fields.items() if value not in (None, [])}
    if not is_study:
        given["script"] = str(script)
    if arguments:
        given["arguments"] = arguments
    if json or quiet:
        given.setdefault("output", "stderr" if json else "none")
    study = script if is_study else None
    return run_verb("emulate", study, given, seed, out, force, jobs, json, quiet)
