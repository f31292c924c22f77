"""What `iperf3 -J` has measured, as a calibration.

From its client, `iperf3 -c HOST -J`, come the bandwidth out, and with -R the bandwidth in: bytes
that the receiver counted after `--omit`, divided by its seconds. With -R and several connections
(-P) the intervals also say how unevenly these share the link. Intervals of a sender say when its
socket took the bytes, not when they crossed the link, and are not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from paracosm.data_files import read_json
from paracosm.errors import InputError
from paracosm.files import read_bytes
from paracosm.profiling.nodes.calibration import NodeCalibration, found_by, unevenness
from paracosm.validation import validated

_HEAD = 1 << 16  # bytes of a file within which iperf3 names its version
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Bytes = Annotated[int, Field(ge=0, lt=2**63)]


class _Connection(BaseModel):
    remote_host: str


class _Timestamp(BaseModel):
    timesecs: Annotated[int, Field(ge=0, lt=2**33)]


class _Test(BaseModel):
    protocol: str
    num_streams: Annotated[int, Field(ge=1)]
    reverse: Literal[0, 1]


class _Start(BaseModel):
    version: str
    connected: Annotated[list[_Connection], Field(min_length=1)]
    timestamp: _Timestamp
    test_start: _Test


class _Stream(BaseModel):
    bytes: _Bytes
    omitted: bool


class _Interval(BaseModel):
    streams: list[_Stream]


class _Total(BaseModel):
    bytes: Annotated[int, Field(gt=0, lt=2**63)]
    seconds: _Positive


class _End(BaseModel):
    sum_received: _Total
    sum_received_bidir_reverse: _Total | None = None


class _Report(BaseModel):
    start: _Start
    intervals: list[_Interval]
    end: _End


def is_iperf3(path: Path) -> bool:
    """Return whether a file looks like the output of `iperf3 -J`."""
    head = read_bytes(path, _HEAD)
    return head.lstrip().startswith(b"{") and b'"iperf 3' in head


def calibration_of_iperf3(path: Path) -> NodeCalibration:
    """Return bandwidth in one direction, and with -R and -P how unevenly connections share it.

    Raises:
        InputError: the test failed, was one of UDP or of both directions at once, or carried no
            bytes; the file is no report of iperf3's client.
    """
    content = read_json(path, "report of iperf3")
    if not isinstance(content, Mapping):
        raise InputError(f"{path}: a report of iperf3 has keys and values")
    if error := content.get("error"):
        raise InputError(f"{path}: iperf3 failed: {str(error)[:200]}")
    report = validated(_Report, content, str(path))
    test = report.start.test_start
    if test.protocol != "TCP":
        raise InputError(f"{path}: iperf3 measured {test.protocol[:20]}: run it with TCP")
    if report.end.sum_received_bidir_reverse is not None:
        raise InputError(
            f"{path}: iperf3 --bidir measured both directions at once: run it once without "
            "--bidir, and once with -R"
        )
    total = report.end.sum_received
    way = "bandwidth_in" if test.reverse else "bandwidth_out"
    values: dict[str, tuple[float, float | None]] = {way: (total.bytes / total.seconds, None)}
    if test.reverse and test.num_streams > 1:
        values["uneven"] = (_unevenness(report, path), None)
    host = report.start.connected[0].remote_host
    connections = "1 connection" if test.num_streams == 1 else f"{test.num_streams} connections"
    return found_by(
        "measured",
        f"{report.start.version}, {connections}, {total.seconds:.3g} s to {host}",
        values,
        loopback=_is_loopback(host, path),
        when=datetime.fromtimestamp(report.start.timestamp.timesecs, UTC).isoformat(),
    )


def _unevenness(report: _Report, path: Path) -> float:
    carried = [
        [stream.bytes for stream in interval.streams]
        for interval in report.intervals
        if not any(stream.omitted for stream in interval.streams)
    ]
    if not carried or {len(row) for row in carried} != {report.start.test_start.num_streams}:
        raise InputError(f"{path}: some interval lacks one of the connections")
    return unevenness(carried)


def _is_loopback(host: str, path: Path) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        raise InputError(f'{path}: start.connected: "{host[:60]}" is no address') from None
