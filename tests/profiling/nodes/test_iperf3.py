"""Reports of iperf3 as calibrations: values by hand, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from math import log, sqrt
from pathlib import Path
from typing import Any

import pytest

from paracosm.cli import main
from paracosm.errors import InputError
from paracosm.profiling.nodes.calibration import load_calibration
from paracosm.profiling.nodes.iperf3 import calibration_of_iperf3

DATA = Path(__file__).parents[2] / "data" / "iperf3"
Change = Callable[[dict[str, Any]], object]


def changed(folder: Path, name: str, change: Change) -> Path:
    """Return a file with a changed report."""
    report = json.loads((DATA / name).read_text())
    change(report)
    path = folder / name
    path.write_text(json.dumps(report))
    return path


def test_a_report_is_the_bandwidth_of_its_direction() -> None:
    """The receiver's bytes by its seconds: 37,748,736 in 3.000708 s, 29,884,416 in 1.999982 s."""
    out = calibration_of_iperf3(DATA / "out.json")
    assert out.bandwidth_out == pytest.approx(12_579_943.1, rel=1e-8)
    assert (out.bandwidth_in, out.uneven, out.round_trip) == (None, None, None)
    found = out.found["bandwidth_out"]
    assert found.by == "iperf 3.12, 2 connections, 3 s to 127.0.0.1"
    assert (found.when, found.loopback) == ("2026-11-29T06:38:33+00:00", True)
    back = calibration_of_iperf3(DATA / "in.json")
    assert back.bandwidth_in == pytest.approx(14_942_342.5, rel=1e-8)
    assert back.bandwidth_out is None
    assert back.uneven == 0  # both connections were held to the same rate


def test_connections_that_share_unevenly_say_so(tmp_path: Path) -> None:
    """One gets twice what the other does: ln 2 apart, a sample deviation of ln 2 / sqrt 2. The
    omitted interval, here with nothing for the first, does not count."""

    def share(report: dict[str, Any]) -> None:
        first, *counted = report["intervals"]
        first["streams"][0]["bytes"] = 0
        for interval in counted:
            interval["streams"][0]["bytes"] = 2_000_000
            interval["streams"][1]["bytes"] = 1_000_000
        report["start"]["connected"][0]["remote_host"] = "10.0.0.2"

    calibration = calibration_of_iperf3(changed(tmp_path, "in.json", share))
    assert calibration.uneven == pytest.approx(log(2) / sqrt(2))
    assert not calibration.found["uneven"].loopback


def test_the_command_puts_both_directions_into_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "node.yaml"
    assert main(["calibrate", str(DATA / "out.json"), "--out", str(out)]) == 0
    assert main(["calibrate", str(DATA / "in.json"), "--out", str(out), "--update"]) == 0
    assert "measured: iperf 3.12, 2 connections, 2 s to 127.0.0.1" in capsys.readouterr().out
    calibration = load_calibration(out)
    assert calibration.bandwidth_out == pytest.approx(12_579_943.1, rel=1e-8)
    assert calibration.bandwidth_in == pytest.approx(14_942_342.5, rel=1e-8)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda r: r.update(error="unable to connect"), "iperf3 failed: unable to connect"),
        (lambda r: r["start"]["test_start"].update(protocol="UDP"), "measured UDP: run it with TC"),
        (
            lambda r: r["end"].update(sum_received_bidir_reverse=r["end"]["sum_received"]),
            "iperf3 --bidir measured both directions at once",
        ),
        (lambda r: r["end"].pop("sum_received"), "sum_received"),
        (lambda r: r["end"]["sum_received"].update(bytes=0), "greater than 0"),
        (lambda r: r["end"]["sum_received"].update(seconds=float("inf")), "finite"),
        (lambda r: r["start"].update(connected=[]), "connected"),
        (lambda r: r["start"]["connected"][0].update(remote_host="there"), "is no address"),
        (lambda r: r["intervals"][1]["streams"].pop(), "some interval lacks one"),
    ],
)
def test_what_tells_no_bandwidth_is_refused_in_one_line(
    change: Change, why: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=why) as refused:
        calibration_of_iperf3(changed(tmp_path, "in.json", change))
    assert "in.json: " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("flags", [("--bandwidth", "1Gbit/s"), ("--seconds", "1s")])
def test_flags_of_other_ways_have_no_effect(
    flags: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", str(DATA / "out.json"), *flags]) == 2
    assert f"{flags[0]} has no effect with" in capsys.readouterr().err
