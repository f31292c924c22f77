"""`paracosm calibrate`: what a node and its link add to a transfer, measured or from a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paracosm.cli import calibration_file
from paracosm.cli.calibration_file import Out, Update, host_and_port
from paracosm.cli.capture_flags import duration, named
from paracosm.cli.display import grid, printer, progress_bar
from paracosm.cli.options import Json, Quiet
from paracosm.errors import InputError, unknown
from paracosm.units import format_duration, format_size, parse_bandwidth

if TYPE_CHECKING:
    from paracosm.profiling.nodes.calibration import (
        BandwidthSettings,
        NodeCalibration,
        Shares,
        ShareSettings,
    )
    from paracosm.profiling.nodes.parsing import Parsing


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
    from paracosm.profiling.nodes.calibration import BandwidthSettings, ShareSettings
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
            for flag, value in (("--peer", peer), ("--parsing", parsing)):
                if value is not None:
                    raise InputError(
                        f"{flag}: a profile is estimated from, and nothing measured; --out with "
                        "--update puts several together"
                    )
            found, details = _estimated(profile, bandwidth)
        else:
            if bandwidth is not None:
                raise InputError("--bandwidth is that of a profile's link: give a profile as well")
            found, details = _measured(
                peer, parsing or "numpy", settings, sharing, wait, json or quiet
            )
    except WorkerError as error:
        raise typer.Abort(str(error)) from None
    calibration_file.finish(found.over(known), out, details, _show, json, quiet)
    return 0


def _estimated(path: Path, bandwidth: str | None) -> tuple[NodeCalibration, dict[str, Any]]:
    from paracosm.prediction.parameter_servers.stream_fit import calibration_of, fit_streams
    from paracosm.profiling.jobs import load_job_profile

    given = None if bandwidth is None else named("--bandwidth", parse_bandwidth, bandwidth)
    fit = fit_streams(load_job_profile(path), bandwidth=given)
    details = {
        "largest": fit.largest,
        "errors": asdict(fit.errors),
        "errors_without_a_window": asdict(fit.without),
    }
    return calibration_of(fit, str(path.name)), {"streams": details}


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
    found, details = _measured_link(peer, settings, sharing, timeout, hidden)
    if parsing == "none":
        return found, details
    more, parsed = _tensorflow(hidden) if parsing == "tensorflow" else _parsed(parsing, hidden)
    return more.over(found), details | parsed


def _measured_link(
    peer: str | None,
    settings: BandwidthSettings,
    sharing: ShareSettings | None,
    timeout: float,
    hidden: bool,
) -> tuple[NodeCalibration, dict[str, Any]]:
    """Measure bandwidth and its sharing with HOST:PORT, or another process of this machine."""
    from paracosm.profiling.nodes.calibration import (
        calibration_of_goodput,
        calibration_of_shares,
        measure_goodput,
        measure_shares,
    )
    from paracosm.profiling.nodes.exchange import connected, connected_here

    reached = (
        connected_here(timeout)
        if peer is None
        else connected(*host_and_port("--peer", peer, "10.0.0.2:5201"), timeout)
    )
    before, ways = 3 * settings.rounds, 0 if sharing is None else 2
    with progress_bar(before + ways, hidden=hidden, unit="rounds") as shown, reached as other:
        goodput = measure_goodput(other, settings, lambda done: shown(done, None))
        shares = None
        if sharing is not None:
            shares = measure_shares(other, sharing, lambda done: shown(before + done, None))
    where = "two processes on loopback" if peer is None else f"to {peer}"
    if other.loopback:
        where += ", no network"
    times = "1 round" if settings.rounds == 1 else f"{settings.rounds} rounds"
    by = f"{where}, {times} of {format_duration(settings.seconds)}"
    found = calibration_of_goodput(goodput, by, loopback=other.loopback)
    details: dict[str, Any] = {"goodput": asdict(goodput)}
    if shares is None:
        return found, details
    details["shares"] = _share_details(shares)
    each = format_duration(shares.interval)
    by = f"{where}, {len(shares.sent[0])} connections, {len(shares.sent)} intervals of {each}"
    more = calibration_of_shares(shares, by, loopback=other.loopback)
    return more.over(found), details


def _share_details(shares: Shares) -> dict[str, Any]:
    from paracosm.profiling.nodes.calibration import correlation, counted, unevenness

    ways = {"out": shares.sent, "in": shares.received}
    return {
        "interval": shares.interval,
        "uneven": {way: unevenness(carried) for way, carried in ways.items()},
        "correlation": {way: correlation(carried) for way, carried in ways.items()},
        "counted": {way: int(counted(carried).sum()) for way, carried in ways.items()},
        "nothing": {
            way: sum(
                row.count(0)
                for row, counts in zip(carried, counted(carried), strict=True)
                if counts
            )
            for way, carried in ways.items()
        },
        "bytes": ways,
    }


def _parsed(parser: str, hidden: bool) -> tuple[NodeCalibration, dict[str, Any]]:
    from paracosm.profiling.nodes.calibration import calibration_of_parsing
    from paracosm.profiling.nodes.parsing import PARSING_SIZES, measure_parsing

    with progress_bar(len(PARSING_SIZES), hidden=hidden, unit="sizes") as shown:
        found = measure_parsing(parser, progress=lambda done: shown(done, None))
    by = {"numpy": "NumPy, a copy", "torch": "PyTorch, frombuffer and clone"}[parser]
    return calibration_of_parsing(found, by), {"parsing": _parsing_details(found)}


def _tensorflow(hidden: bool) -> tuple[NodeCalibration, dict[str, Any]]:
    from paracosm.profiling.nodes.calibration import calibration_of_parsing, calibration_of_window
    from paracosm.profiling.nodes.parsing import measure_transfers

    with progress_bar(None, hidden=hidden, unit="fetches") as shown:
        seen = measure_transfers(progress=lambda done: shown(done, None))
    by = f"TensorFlow {seen.version} on loopback"
    window = calibration_of_window(seen.window, f"{by}, announced last")
    return calibration_of_parsing(seen.parsing, by).over(window), {
        "parsing": _parsing_details(seen.parsing),
        "windows": {
            "announced": [{"seconds": when, "bytes": size} for when, size in seen.windows],
            "streams": len(seen.streams),
            "interrupted": sum(len(each.turns) > 1 for each in seen.streams),
        },
    }


def _parsing_details(found: Parsing) -> dict[str, Any]:
    return {"seconds": found.seconds, "error": found.error, "worst": found.worst}


def _show(details: Mapping[str, Any]) -> None:
    for name, value in details.items():
        if name in _SHOWN:
            printer()()
            _SHOWN[name](value)


def _show_shares(details: Mapping[str, Any]) -> None:
    rows = [["shares", ">intervals", ">uneven", ">correlation", ">got nothing"]]
    for way, uneven in details["uneven"].items():
        follows = details["correlation"][way]
        written = "" if follows is None else f"{follows:.2f}"
        counts, nothing = (str(details[name][way]) for name in ("counted", "nothing"))
        rows.append([way, counts, f"{uneven:.3f}", written, nothing])
    printer()(grid(rows))
    printer()(
        f"Correlation is that of a connection's shares in consecutive intervals of "
        f"{format_duration(details['interval'])}: 1 keeps its share, 0 draws it anew each time."
    )


def _show_parsing(details: Mapping[str, Any]) -> None:
    rows = [[">size", ">parsing"]]
    rows += [[format_size(size), format_duration(t)] for size, t in details["seconds"].items()]
    printer()(grid(rows))
    printer()(
        f"The line misses these times by {details['error']:.0%} in the mean, "
        f"{details['worst']:.0%} at most."
    )


def _show_windows(details: Mapping[str, Any]) -> None:
    printer()(
        f"{calibration_file.windows_in_words(details['announced'])} {details['interrupted']} of "
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
    "shares": _show_shares,
    "parsing": _show_parsing,
    "windows": _show_windows,
    "streams": _show_streams,
}
