"""`paracosm calibrate proxy`: the flow-control window between a worker and its server."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from paracosm.cli import calibration_file
from paracosm.cli.calibration_file import Out, Update
from paracosm.cli.capture_flags import duration
from paracosm.cli.display import printer
from paracosm.cli.host_port import host_and_port
from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError
from paracosm.study.plain import to_json
from paracosm.units import format_duration, format_size

__all__ = ["proxy"]


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
    from paracosm.profiling.nodes import Proxy, StreamWatch, calibration_of_window

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    known = calibration_file.check(out, update, force)
    limit = None if seconds is None else duration("--seconds", seconds)
    watches: list[StreamWatch] = []

    def watch() -> StreamWatch:
        watches.append(StreamWatch())
        return watches[-1]

    with Proxy(
        host_and_port("--to", to, "10.0.0.2:2222"), watch, host=host, port=listen
    ) as handing:
        if not (json or quiet):
            end = "Ctrl-C ends it" if limit is None else f"for {format_duration(limit)}"
            typer.echo(f"handing on {host}:{handing.address[1]} to {to}: {end}")
        _wait(limit)
    seen = _seen(watches, handing.failures)
    whole = calibration_of_window(seen["window"], f"announced last between here and {to}")
    whole = whole.over(known)
    if out is not None:
        whole = calibration_file.write(whole, out)
    if json:
        typer.echo(to_json(calibration_file.as_json(whole) | {"details": seen}), nl=False)
    elif not quiet:
        calibration_file.show(whole)
        _show(seen)
        if out is not None:
            printer()(str(out))
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


def _show(seen: dict[str, Any]) -> None:
    say = printer()
    announced = ", ".join(
        f"{format_size(each['bytes'])} after {format_duration(each['seconds'])}"
        for each in seen["announced"]
    )
    say(f"Windows announced for streams: {announced}.")
    say(
        f"{seen['streams']} streams, the largest of {format_size(seen['largest'])}; "
        f"{seen['interrupted']} were interrupted, {seen['stopped_at_their_window']} of them at "
        "their window."
    )
    for failure in seen["failures"]:
        say(f"failed: {failure}", style="red")
