"""`paracosm calibrate proxy`: the flow-control window between a worker and its server."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from paracosm.cli import calibration_file
from paracosm.cli.calibration_file import Out, Update, host_and_port
from paracosm.cli.capture_flags import duration
from paracosm.cli.display import printer
from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError
from paracosm.units import format_duration, format_size

__all__ = ["proxy", "serve"]


def proxy(
    to: Annotated[str, typer.Option(help="HOST:PORT of the server")],
    listen: Annotated[int, typer.Option(min=0, max=65535, help="port; 0: any")] = 0,
    host: Annotated[str, typer.Option(help="name or address to listen on")] = "127.0.0.1",
    seconds: Annotated[
        str | None, typer.Option(help="after which it ends (Ctrl-C)", show_default=False)
    ] = None,
    out: Out = None,
    update: Update = False,
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Hand on a worker's gRPC connections to its server, and read their flow-control windows.

    Example: paracosm calibrate proxy --listen 2222 --to 10.0.0.2:2222 --out node.yaml
    """
    from paracosm.profiling.nodes.calibration import calibration_of_window
    from paracosm.profiling.nodes.proxy import Proxy, StreamWatch

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    known = calibration_file.check(out, update, force)
    limit = None if seconds is None else duration("--seconds", seconds)
    target = host_and_port("--to", to, "10.0.0.2:2222")
    with Proxy(target, StreamWatch, host=host, port=listen) as handing:
        if not (json or quiet):
            end = "Ctrl-C ends it" if limit is None else f"for {format_duration(limit)}"
            typer.echo(f"handing on {host}:{handing.address[1]} to {to}: {end}")
        _wait(limit)
    seen = _seen(handing.watches, handing.failures)
    found = calibration_of_window(seen["window"], f"announced last between here and {to}")
    calibration_file.finish(found.over(known), out, seen, _show_proxy, json, quiet)
    return 0


def _wait(limit: float | None) -> None:
    """Wait for so long, or for Ctrl-C."""
    try:
        if limit is not None:
            time.sleep(limit)
        while limit is None:
            time.sleep(3600)
    except KeyboardInterrupt:
        pass


def _seen(watches: list[Any], failures: list[str]) -> dict[str, Any]:
    """Return the windows and streams of all connections.

    Raises:
        InputError: none of them was HTTP/2.
    """
    windows = sorted(each for watch in watches for each in watch.windows)
    streams = [stream for watch in watches for stream in watch.ended]
    if not windows:
        why = failures[0] if failures else "no connection said how large its windows are"
        raise InputError(f"no flow-control window was seen: {why}")
    interrupted = [stream for stream in streams if len(stream.turns) > 1]
    return {
        "window": windows[-1][1],
        "connections": len(watches),
        "announced": [{"seconds": when - windows[0][0], "bytes": size} for when, size in windows],
        "streams": len(streams),
        "largest": max((stream.size for stream in streams), default=0),
        "interrupted": len(interrupted),
        "stopped_at_their_window": sum(stream.stopped for stream in interrupted),
        "failures": failures,
    }


def _show_proxy(seen: Mapping[str, Any]) -> None:
    say = printer()
    say(calibration_file.windows_in_words(seen["announced"]))
    say(
        f"{seen['streams']} streams, the largest of {format_size(seen['largest'])}; "
        f"{seen['interrupted']} were interrupted, {seen['stopped_at_their_window']} of them at "
        "their window."
    )
    for failure in seen["failures"]:
        say(f"failed: {failure}", style="red")


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
    from paracosm.profiling.nodes.exchange import listen, serve_one

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
