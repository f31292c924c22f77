"""`paracosm calibrate serve`: the other end of a bandwidth measurement."""

from __future__ import annotations

from typing import Annotated

import typer

from paracosm.cli.capture_flags import duration
from paracosm.cli.options import Quiet

__all__ = ["serve"]


def serve(
    port: Annotated[int, typer.Option(min=0, max=65535, help="to listen on; 0: any")] = 5201,
    host: Annotated[
        str, typer.Option(help="name or address to listen on; 0.0.0.0: all of this machine")
    ] = "127.0.0.1",
    timeout: Annotated[str, typer.Option(help="after which a silent client is given up")] = "10s",
    quiet: Quiet = False,
) -> int:
    """Wait for one paracosm calibrate --peer, and send and receive as it asks.

    Example: paracosm calibrate serve --host 0.0.0.0 --port 5201
    """
    from paracosm.profiling.nodes import listen, serve_one

    wait = duration("--timeout", timeout)
    listener = listen(host, port)
    if not quiet:
        at = listener.getsockname()[1]
        typer.echo(f"listening on {host}:{at}: paracosm calibrate --peer HOST:{at}")
    came = (lambda peer: None) if quiet else (lambda peer: typer.echo(f"client {peer}"))
    done = serve_one(listener, wait, came)
    if not quiet:
        typer.echo(f"{done} rounds")
    return 0
