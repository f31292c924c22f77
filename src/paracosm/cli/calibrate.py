"""`paracosm calibrate`: what a node and its link add to a transfer, measured or from a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paracosm.cli import calibration_file
from paracosm.cli.calibrate_link import measured_link, show_shares
from paracosm.cli.calibration_file import Out, Update
from paracosm.cli.capture_flags import duration, named
from paracosm.cli.display import grid, printer, progress_bar
from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError, unknown
from paracosm.study.plain import to_json
from paracosm.units import format_duration, format_size, parse_bandwidth

if TYPE_CHECKING:
    from paracosm.prediction.parameter_servers.stream_fit import StreamFit
    from paracosm.profiling.nodes import (
        BandwidthSettings,
        NodeCalibration,
        Parsing,
        ShareSettings,
    )
    from paracosm.profiling.nodes.tensorflow import Transfers

__all__ = ["calibrate"]

_PARSING = ("numpy", "torch", "tensorflow", "none")


def calibrate(
    profile: Annotated[
        Path | None,
        typer.Argument(
            help="job profile to estimate from, instead of measuring", show_default=False
        ),
    ] = None,
    out: Out = None,
    peer: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of another host that runs paracosm calibrate serve; without it two "
            "processes here talk over loopback",
            show_default=False,
        ),
    ] = None,
    parsing: Annotated[
        str | None,
        typer.Option(
            help="who makes tensors of received bytes: numpy, torch, tensorflow (which shows its "
            "flow-control window, too), or none (numpy)",
            show_default=False,
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        typer.Option(
            help="payload of the link that the profile was made on, such as 200Mbit/s (estimated)",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[str, typer.Option(help="of sending in a round")] = "3s",
    rounds: Annotated[int, typer.Option(min=1, help="out, in, and both ways at once")] = 3,
    connections: Annotated[
        int, typer.Option(min=1, help="that share the link, to see how evenly; 1: not measured")
    ] = 4,
    interval: Annotated[
        str, typer.Option(help="in which shares are compared, about as long as a step of a job")
    ] = "1s",
    intervals: Annotated[int, typer.Option(min=1, help="of them, each way")] = 10,
    timeout: Annotated[str, typer.Option(help="after which a silent peer is given up")] = "10s",
    update: Update = False,
    force: Annotated[bool, typer.Option("--force", help="replace the file")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Measure bandwidth and its sharing, parsing overhead and flow-control window of a node.

    Example: paracosm calibrate --peer 10.0.0.2:5201 --out node.yaml
    """
    from paracosm.profiling.nodes import BandwidthSettings, ShareSettings
    from paracosm.profiling.processes import WorkerError

    if json and quiet:
        raise InputError("--json prints and --quiet does not: give one of them")
    known = calibration_file.check(out, update, force)
    settings = BandwidthSettings(duration("--seconds", seconds), rounds)
    each = duration("--interval", interval)
    sharing = None if connections == 1 else ShareSettings(connections, each, intervals)
    wait = duration("--timeout", timeout)
    try:
        if profile is not None:
            _only("a profile is estimated from, and nothing measured", peer, parsing)
            found, details = _estimated(profile, bandwidth)
        else:
            if bandwidth is not None:
                raise InputError("--bandwidth is that of a profile's link: give a profile as well")
            found, details = _measured(
                peer, parsing or "numpy", settings, sharing, wait, json or quiet
            )
    except WorkerError as error:
        raise typer.Abort(str(error)) from None
    whole = found.over(known)
    if out is not None:
        whole = calibration_file.write(whole, out)
    if json:
        typer.echo(to_json(calibration_file.as_json(whole) | {"details": details}), nl=False)
    elif not quiet:
        calibration_file.show(whole)
        _show(details)
        if out is not None:
            printer()(str(out))
    return 0


def _only(why: str, peer: str | None, parsing: str | None) -> None:
    for flag, value in (("--peer", peer), ("--parsing", parsing)):
        if value is not None:
            raise InputError(f"{flag}: {why}; --out with --update puts several together")


def _estimated(path: Path, bandwidth: str | None) -> tuple[NodeCalibration, dict[str, Any]]:
    from paracosm.prediction.parameter_servers.stream_fit import calibration_of, fit_streams
    from paracosm.profiling.jobs import load_job_profile

    given = None if bandwidth is None else named("--bandwidth", parse_bandwidth, bandwidth)
    fit = fit_streams(load_job_profile(path), bandwidth=given)
    return calibration_of(fit, str(path.name)), {"streams": _stream_details(fit)}


def _stream_details(fit: StreamFit) -> dict[str, Any]:
    return {
        "largest": fit.largest,
        "errors": asdict(fit.errors),
        "errors_without_a_window": asdict(fit.without),
    }


def _measured(
    peer: str | None,
    parsing: str,
    settings: BandwidthSettings,
    sharing: ShareSettings | None,
    timeout: float,
    hidden: bool,
) -> tuple[NodeCalibration, dict[str, Any]]:
    if parsing not in _PARSING:
        raise unknown("parser", parsing, _PARSING)
    found, details = measured_link(peer, settings, sharing, timeout, hidden)
    if parsing == "none":
        return found, details
    more, parsed = _tensorflow(hidden) if parsing == "tensorflow" else _parsed(parsing, hidden)
    return more.over(found), details | parsed


def _parsed(parser: str, hidden: bool) -> tuple[NodeCalibration, dict[str, Any]]:
    from paracosm.profiling.nodes import calibration_of_parsing, measure_parsing
    from paracosm.profiling.nodes.parsing import PARSING_SIZES

    with progress_bar(len(PARSING_SIZES), hidden=hidden, unit="sizes") as shown:
        found = measure_parsing(parser, progress=lambda done: shown(done, None))
    by = {"numpy": "NumPy, a copy", "torch": "PyTorch, frombuffer and clone"}[parser]
    return calibration_of_parsing(found, by), {"parsing": _parsing_details(found)}


def _tensorflow(hidden: bool) -> tuple[NodeCalibration, dict[str, Any]]:
    from paracosm.profiling.nodes import calibration_of_parsing, calibration_of_window
    from paracosm.profiling.nodes.tensorflow import measure_transfers

    with progress_bar(None, hidden=hidden, unit="fetches") as shown:
        seen = measure_transfers(progress=lambda done: shown(done, None))
    by = f"TensorFlow {seen.version} on loopback"
    window = calibration_of_window(seen.window, f"{by}, announced last")
    return calibration_of_parsing(seen.parsing, by).over(window), {
        "parsing": _parsing_details(seen.parsing),
        "windows": _window_details(seen),
    }


def _window_details(seen: Transfers) -> dict[str, Any]:
    return {
        "announced": [{"seconds": when, "bytes": size} for when, size in seen.windows],
        "streams": len(seen.streams),
        "interrupted": sum(len(each.turns) > 1 for each in seen.streams),
    }


def _parsing_details(found: Parsing) -> dict[str, Any]:
    return {"seconds": found.seconds, "error": found.error, "worst": found.worst}


def _show(details: Mapping[str, Any]) -> None:
    for name, value in details.items():
        if name in _SHOWN:
            printer()()
            _SHOWN[name](value)


def _show_parsing(details: Mapping[str, Any]) -> None:
    rows = [[">size", ">parsing"]]
    rows += [[format_size(size), format_duration(t)] for size, t in details["seconds"].items()]
    printer()(grid(rows))
    printer()(
        f"The line misses these times by {details['error']:.0%} in the mean, "
        f"{details['worst']:.0%} at most."
    )


def _show_windows(details: Mapping[str, Any]) -> None:
    announced = ", ".join(
        f"{format_size(each['bytes'])} after {format_duration(each['seconds'])}"
        for each in details["announced"]
    )
    printer()(
        f"Windows announced for streams: {announced}. {details['interrupted']} of "
        f"{details['streams']} streams were interrupted."
    )


def _show_streams(details: Mapping[str, Any]) -> None:
    rows = [["ends of downlink streams", ">average", ">median", ">95 %", ">maximum"]]
    for title, name in (("this model", "errors"), ("no window", "errors_without_a_window")):
        each = details[name]
        values = (each[key] for key in ("average", "median", "percentile_95", "maximum"))
        rows.append([title, *(f"{value:.2%}" for value in values)])
    printer()(grid(rows))
    printer()(
        f"{details['errors']['streams']} streams; a window of {format_size(details['largest'])}, "
        "the largest stream, or more cannot be told from none."
    )


_SHOWN: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "shares": show_shares,
    "parsing": _show_parsing,
    "windows": _show_windows,
    "streams": _show_streams,
}
