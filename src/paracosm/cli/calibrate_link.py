"""`paracosm calibrate`: what is measured with a peer, the bandwidth and how evenly it is shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paracosm.cli.display import grid, printer, progress_bar
from paracosm.cli.host_port import host_and_port
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.profiling.nodes import (
        BandwidthSettings,
        NodeCalibration,
        Shares,
        ShareSettings,
    )

__all__ = ["measured_link", "show_shares"]


def measured_link(
    peer: str | None,
    settings: BandwidthSettings,
    sharing: ShareSettings | None,
    timeout: float,
    hidden: bool,
) -> tuple[NodeCalibration, dict[str, Any]]:
    """Return what the link to a peer is found to be, and the details.

    Args:
        peer: HOST:PORT; None: another process of this machine.
        settings: of the bandwidth.
        sharing: of how evenly connections share it; None: not measured.
        timeout: seconds after which a silent peer is given up.
        hidden: no progress is shown.

    Raises:
        InputError, WorkerError: the peer is not there, left early, or does not keep to the
            protocol.
    """
    from paracosm.profiling.nodes import (
        calibration_of_goodput,
        calibration_of_shares,
        connected,
        connected_here,
        measure_goodput,
        measure_shares,
    )

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


def show_shares(details: Mapping[str, Any]) -> None:
    """Print how evenly connections shared the link."""
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


def _share_details(shares: Shares) -> dict[str, Any]:
    from paracosm.profiling.nodes import correlation, counted, unevenness

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
