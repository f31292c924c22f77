"""`paracosm calibrate`: what a node and its link add to a transfer, measured or estimated."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from paracosm.addresses import host_port, is_local
from paracosm.cli.display import aligned, counter, paragraph, printer, show_result
from paracosm.cli.options import Details, ForceFile, Json, Quiet, check_writable, duration, named
from paracosm.errors import InputError, unknown
from paracosm.file_kinds import HEAD, kind_by_content
from paracosm.files import read_bytes
from paracosm.profiling.nodes.calibration import (
    QUANTITIES,
    BandwidthSettings,
    NodeCalibration,
    Shares,
    ShareSettings,
    calibration_of_goodput,
    calibration_of_parsing,
    calibration_of_shares,
    correlation,
    counted,
    load_calibration,
    measure_goodput,
    measure_shares,
    save_calibration,
    unevenness,
)
from paracosm.profiling.nodes.iperf3 import calibration_of_iperf3, is_iperf3
from paracosm.profiling.nodes.parsing import PARSERS, PARSING_SIZES, measure_parsing
from paracosm.profiling.processes import WorkerError
from paracosm.quantities import read_bandwidth
from paracosm.studies.run_folder import describe_environment
from paracosm.units import (
    format_bandwidth,
    format_duration,
    format_size,
    parse_whole,
)

_SILENCE = 10.0  # seconds without a word of the peer, after which it is given up

MOST_TOKEN = 2**53 - 1  # the protocol carries it as a float64

Out = Annotated[Path | None, Option(help="calibration file to write (YAML)")]
Update = Annotated[
    bool, Option("--update", help="keep values of the file that this run does not determine")
]


def calibrate(
    profile: Annotated[
        Path | None,
        Argument(
            help="instead of measuring: job profile to estimate from, or what iperf3 -J has "
            "measured"
        ),
    ] = None,
    out: Out = None,
    peer: Annotated[
        str | None,
        Option(
            help="HOST:PORT of another host that runs paracosm calibrate serve; without it two "
            "processes here talk over loopback"
        ),
    ] = None,
    parsing: Annotated[
        str | None,
        Option(
            help="library that parses received bytes into tensors: numpy, torch, or none (numpy)"
        ),
    ] = None,
    bandwidth: Annotated[
        str | None,
        Option(help="payload bandwidth of the profiled link, such as 200Mbit/s (estimated)"),
    ] = None,
    seconds: Annotated[str | None, Option(help="of sending in a round (3s)")] = None,
    connections: Annotated[
        int | None,
        Option(min=1, help="that share the link, to measure fairness; 1: not measured (4)"),
    ] = None,
    interval: Annotated[
        str | None, Option(help="over which shares are compared, about one step of a job (1s)")
    ] = None,
    token: Annotated[
        int | None, Option(min=1, max=MOST_TOKEN, help="what the peer's serve has printed")
    ] = None,
    update: Update = False,
    force: ForceFile = False,
    json: Json = False,
    details: Details = False,
    quiet: Quiet = False,
) -> int:
    """Measure bandwidth, how connections share it, and how long a node parses received bytes.

    Example: paracosm calibrate --peer 10.0.0.2:5201 --out node.yaml
    """
    known = _read_known(out, update, force)
    if token is not None and peer is None:
        raise InputError("--token is that of a --peer: give it as well")
    if profile is not None:
        measuring: dict[str, object] = {"--peer": peer, "--parsing": parsing, "--seconds": seconds}
        measuring |= {"--connections": connections, "--interval": interval}
        _refuse(
            measuring,
            "a file: nothing is measured; --out with --update combines several results",
        )
    elif connections == 1:
        _refuse({"--interval": interval}, "--connections 1: how connections share is not measured")
    settings = BandwidthSettings(_duration("--seconds", seconds, "3s"))
    sharing = None
    if connections != 1:
        sharing = ShareSettings(connections or 4, _duration("--interval", interval, "1s"))
    more: dict[str, Any] = {}
    if profile is not None and is_iperf3(profile):
        _refuse({"--bandwidth": bandwidth}, "the output of iperf3, which has one")
        calibration = calibration_of_iperf3(profile)
    elif profile is not None:
        calibration, more = _estimate(profile, bandwidth)
    elif bandwidth is not None:
        raise InputError("--bandwidth is the bandwidth of a profile's link: give a profile as well")
    elif (parser := parsing or "numpy") not in (*PARSERS, "none"):
        raise unknown("parser", parser, (*PARSERS, "none"))
    else:
        try:
            calibration, more = _measured_link(
                *(peer, settings, sharing, token or 0, json or quiet)
            )
            if parser != "none":
                parsing_of, parsed = _measured_parsing(parser, json or quiet)
                calibration, more = parsing_of.over(calibration), more | parsed
        except WorkerError as error:
            raise typer.Abort(str(error)) from None
    _write_and_show(calibration.over(known), out, more, json=json, details=details, quiet=quiet)
    return 0


def _refuse(flags: Mapping[str, object], why: str) -> None:
    for flag, value in flags.items():
        if value is not None:
            raise InputError(f"{flag} has no effect with {why}")


def _duration(flag: str, text: str | None, usual: str) -> float:
    return duration(flag, usual if text is None else text)


def _estimate(path: Path, bandwidth: str | None) -> tuple[NodeCalibration, dict[str, Any]]:
    from paracosm.prediction.parameter_servers.stream_fit import calibration_of, fit_streams
    from paracosm.profiling.jobs.file import is_job_profile, load_job_profile

    fixed = None if bandwidth is None else named("--bandwidth", read_bandwidth, bandwidth)
    if not is_job_profile(path):
        kind = kind_by_content(read_bytes(path, HEAD))
        begin = f"{kind[0]}, and " if kind else ""
        raise InputError(
            f"{path}: {begin}neither a job profile (paracosm profile job writes one) nor what "
            "iperf3 -J has measured"
        )
    fit = fit_streams(load_job_profile(path), bandwidth=fixed)
    details = {
        "largest": fit.largest,
        "errors": asdict(fit.errors),
        "errors_without_a_window": asdict(fit.without),
    }
    return calibration_of(fit, str(path.name)), {"streams": details}


def _measured_link(
    peer: str | None,
    settings: BandwidthSettings,
    sharing: ShareSettings | None,
    token: int,
    hidden: bool,
) -> tuple[NodeCalibration, dict[str, Any]]:
    """Measure bandwidth and its sharing with HOST:PORT, or another process of this machine."""
    from paracosm.profiling.nodes.exchange import connected, connected_here

    reached = (
        connected_here(_SILENCE)
        if peer is None
        else connected(*_host_and_port("--peer", peer, "10.0.0.2:5201"), _SILENCE, token)
    )
    before, ways = 3 * settings.rounds, 0 if sharing is None else 2
    with counter(before + ways, hidden=hidden, unit="rounds") as shown, reached as other:
        goodput = measure_goodput(other, settings, shown)
        shares = None
        if sharing is not None:
            shares = measure_shares(other, sharing, lambda done: shown(before + done, None))
    where = "two processes on loopback" if peer is None else f"to {peer}"
    if other.loopback:
        where += ", no network"
    times = "1 round" if settings.rounds == 1 else f"{settings.rounds} rounds"
    by = f"{where}, {times} of {format_duration(settings.seconds)}"
    calibration = calibration_of_goodput(goodput, by, loopback=other.loopback)
    details: dict[str, Any] = {"goodput": asdict(goodput)}
    if shares is None:
        return calibration, details
    details["shares"] = _share_details(shares)
    interval = format_duration(shares.interval)
    by = f"{where}, {len(shares.sent[0])} connections, {len(shares.sent)} intervals of {interval}"
    more = calibration_of_shares(shares, by, loopback=other.loopback)
    return more.over(calibration), details


def _share_details(shares: Shares) -> dict[str, Any]:
    ways = {"out": shares.sent, "in": shares.received}
    return {
        "interval": shares.interval,
        "uneven": {way: unevenness(carried) for way, carried in ways.items()},
        "correlation": {way: correlation(carried) for way, carried in ways.items()},
        "counted": {way: int(counted(carried).sum()) for way, carried in ways.items()},
        "nothing": {way: _without_bytes(carried) for way, carried in ways.items()},
        "bytes": ways,
    }


def _without_bytes(carried: Sequence[Sequence[int]]) -> int:
    known = zip(carried, counted(carried), strict=True)
    return sum(row.count(0) for row, counts in known if counts)


def _measured_parsing(parser: str, hidden: bool) -> tuple[NodeCalibration, dict[str, Any]]:
    with counter(len(PARSING_SIZES), hidden=hidden, unit="sizes") as shown:
        parsing = measure_parsing(parser, progress=shown)
    by = {"numpy": "NumPy, a copy", "torch": "PyTorch, frombuffer and clone"}[parser]
    line = {"seconds": parsing.seconds, "error": parsing.error, "worst": parsing.worst}
    return calibration_of_parsing(parsing, by), {"parsing": line}


def _show_details(details: Mapping[str, Any]) -> None:
    say = printer()
    if shares := details.get("shares"):
        rows = [["shares", ">intervals", ">uneven", ">correlation", ">got none"]]
        for way, uneven in shares["uneven"].items():
            follows = shares["correlation"][way]
            written = "" if follows is None else f"{follows:.2f}"
            counts, nothing = (str(shares[name][way]) for name in ("counted", "nothing"))
            rows.append([way, counts, f"{uneven:.3f}", written, nothing])
        say()
        say(aligned(rows))
        say(
            paragraph(
                f"Correlation is that of a connection's shares in consecutive intervals of "
                f"{format_duration(shares['interval'])}: at 1 it keeps its share, at 0 its shares "
                "are independent."
            )
        )
    if parsing := details.get("parsing"):
        rows = [[">size", ">parsing"]]
        rows += [[format_size(size), format_duration(t)] for size, t in parsing["seconds"].items()]
        say()
        say(aligned(rows))
        say(
            paragraph(
                f"The fitted line has a mean error of {parsing['error']:.0%} and a largest error "
                f"of {parsing['worst']:.0%}."
            )
        )
    if streams := details.get("streams"):
        rows = [["ends of downlink streams", ">average", ">median", ">95 %", ">maximum"]]
        for title, name in (("this model", "errors"), ("no window", "errors_without_a_window")):
            values = (streams[name][k] for k in ("average", "median", "percentile_95", "maximum"))
            rows.append([title, *(f"{value:.2%}" for value in values)])
        say()
        say(aligned(rows))
        count, largest = streams["errors"]["streams"], format_size(streams["largest"])
        say(
            paragraph(
                f"{count} streams; a window of {largest} (the largest stream) or more cannot be "
                "distinguished from none."
            )
        )


def serve(
    port: Annotated[int, Option(min=0, max=65535, help="to listen on; 0: any")] = 5201,
    host: Annotated[
        str, Option(help="name or address to listen on; 0.0.0.0: all of this machine")
    ] = "127.0.0.1",
    timeout: Annotated[str, Option(help="to wait for a silent client before giving up")] = "10s",
    quiet: Quiet = False,
) -> int:
    """Wait for one paracosm calibrate --peer, and send and receive at its request.

    Whoever says something else is given up with one line, and the next one awaited. Beyond loopback
    a client has to know the token that is printed.

    Example: paracosm calibrate serve --host 0.0.0.0 --port 5201
    """
    from paracosm.profiling.nodes.exchange import listen, serve_one

    wait = duration("--timeout", timeout)
    token = 0 if is_local(host) else secrets.randbelow(MOST_TOKEN) + 1
    if token and quiet:
        raise InputError("--quiet would hide the token that a client needs: leave it out")
    listener = listen(host, port)
    say: Callable[[str], None] = (lambda text: None) if quiet else typer.echo
    at = listener.getsockname()[1]
    needed = f" --token {token}" if token else ""
    say(f"listening on {host_port(host, at)}: paracosm calibrate --peer HOST:{at}{needed}")
    done = serve_one(
        listener,
        wait,
        came=lambda peer: say(f"client {peer}"),
        token=token,
        failed=lambda why: typer.echo(f"paracosm: {why}: waiting for another client", err=True),
    )
    say(f"{done} rounds")
    return 0


def _read_known(path: Path | None, update: bool, force: bool) -> NodeCalibration:
    """Return the values already in the file, after checking that it may and can be written."""

    if path is None:
        if update or force:
            flag = "--update" if update else "--force"
            raise InputError(f"{flag} applies to the file of --out: give --out as well")
        return NodeCalibration()
    if update and force:
        raise InputError("--update keeps values of the file and --force does not: give one of them")
    if path.exists() and not (update or force):
        raise InputError(f"{path} exists: --force replaces it, --update adds to it")
    check_writable(path)
    return load_calibration(path) if update and path.exists() else NodeCalibration()


def _write_and_show(
    whole: NodeCalibration,
    out: Path | None,
    more: Mapping[str, Any],
    *,
    json: bool,
    details: bool,
    quiet: bool,
) -> None:
    """Write a calibration to `out`, if any, and print it, perhaps with more of its measurement."""
    if out is not None:
        here: dict[str, Any] = describe_environment()
        known = {name: here[name] for name in ("platform", "processor", "cores")} | here["versions"]
        now = {name: str(value) for name, value in known.items()}
        whole = replace(whole, environment={**whole.environment, **now})
        save_calibration(whole, out)

    def show() -> None:
        _show_quantities(whole)
        if details:
            _show_details(more)
        elif more:
            printer()("more: --details")
        if out is not None:
            printer()(str(out))

    show_result(_as_json(whole) | {"details": more}, json, quiet, show)


def _show_quantities(calibration: NodeCalibration) -> None:
    rows = [["quantity", ">value", ">spread", "how"]]
    for name in QUANTITIES:
        value = getattr(calibration, name)
        if value is None:
            continue
        source = calibration.found.get(name)
        spread = "" if source is None or source.spread is None else f"{source.spread:.1%}"
        how = "" if source is None else f"{source.how}: {source.by}"
        rows.append([name.replace("_", " "), _UNITS[name](value), spread, how])
    if len(rows) > 1:
        printer()(aligned(rows))


def _as_json(calibration: NodeCalibration) -> dict[str, Any]:
    """Return quantities (SI units; null: unknown, and an infinite window is "inf") and sources."""
    known = {name: getattr(calibration, name) for name in QUANTITIES}
    return {
        **{name: "inf" if value == float("inf") else value for name, value in known.items()},
        "found": {name: asdict(source) for name, source in calibration.found.items()},
    }


_UNITS: Mapping[str, Callable[[float], str]] = {
    "bandwidth_out": format_bandwidth,
    "bandwidth_in": format_bandwidth,
    "duplex": lambda value: f"{value:.2f}",
    "round_trip": format_duration,
    "uneven": lambda value: f"{value:.3f}",
    "burst": format_size,
    "alpha": lambda value: f"{format_duration(value)}/B",
    "beta": format_duration,
    "window": format_size,
}


def _host_and_port(flag: str, text: str, example: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    number = parse_whole(port, 65535)
    if not colon or not host or not number:
        raise InputError(f'{flag}: write HOST:PORT, such as {example}, not "{text}"')
    return host.strip("[]"), number
