"""The program `paracosm`: its options, and how an error looks to its user.

Exit codes: 0 done; 1 a run failed, diverged, ran out of memory or was interrupted; 2 bad input.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from typer import Option
from typer.exceptions import TyperException

import paracosm
from paracosm.cli.verbs import SETTINGS, Program
from paracosm.errors import InputError, MissingExtraError
from paracosm.profiling.allocator import restart_pinned

TIMED = (["profile"], ["predict"], ["measure"])  # what times, and what predicts from timings

app = typer.Typer(
    name="paracosm",
    cls=Program,
    help="Run a distributed job on a cluster you don't have.",
    add_completion=False,
    no_args_is_help=True,
    context_settings=SETTINGS,
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"paracosm {paracosm.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Run a distributed job on a cluster you don't have."""


def main(arguments: list[str] | None = None) -> int:
    """Run the program and return its exit code."""
    if arguments is None and sys.argv[1:2] in TIMED:
        restart_pinned()
    try:
        code = app(arguments, prog_name="paracosm", standalone_mode=False)
    except (InputError, MissingExtraError) as error:
        return _say(str(error), 2)
    except TyperException as error:
        return _say(error.format_message() or "see paracosm --help", 2)
    except typer.Abort as interrupt:
        return _say(str(interrupt) or "interrupted", 1)
    except MemoryError as error:
        return _say(f"out of memory: {error}" if str(error) else "out of memory", 1)
    if code == _INTERRUPTED:
        return _say("interrupted", 1)
    return code if isinstance(code, int) else 0


_INTERRUPTED = 130  # what Typer makes of Ctrl-C; no command returns it


def _say(message: str, code: int) -> int:
    print(f"paracosm: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
