"""The command of a kind of run. What runs it is imported when it is called: a help needs neither
runs nor reports.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from paracosm.cli.options import EXPORT, LOG, with_run_flags
from paracosm.errors import InputError
from paracosm.results.kind import Kind


def verb_of(kind: Kind) -> Callable[..., int]:
    """Return the command of a kind of run."""
    has_script = "arguments" in kind.fields
    of_script = "; or, with --script, the script's arguments" if has_script else ""
    file: Any = Annotated[Path | None, Argument(help=kind.file)]
    if has_script:
        file = Annotated[list[str] | None, Argument(help=f"{kind.file}{of_script}")]

    def command(study: Any = None, **arguments: Any) -> int:
        from paracosm.cli.run_verb import run_verb

        if has_script and arguments.get("script") is not None:
            return run_verb(kind.verb, None, {**arguments, "arguments": study or None})
        if isinstance(study, list):
            if len(study) > 1:
                raise InputError(f'"{study[1]}": one file at most comes before the flags')
            study = Path(study[0])
        return run_verb(kind.verb, study or None, arguments)

    command.__doc__ = f"{kind.help}\n\n" + "\n\n".join(
        f"Example: paracosm {example}" for example in kind.examples
    )
    command.__annotations__["study"] = file
    flags = [*[LOG] * kind.logs, *[EXPORT] * bool(kind.exports)]
    positional = ("arguments",) if has_script else ()
    made = with_run_flags(
        *kind.models, positional=positional, scalars=kind.has_metrics, others=flags
    )
    return made(command)
