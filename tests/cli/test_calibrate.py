"""`paracosm calibrate`, and its verb `serve`: what they print, write and refuse."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from paracosm.cli import main
from paracosm.profiling.jobs import DOWNLINK, UPLINK, WORKER, JobProfile, save_job_profile
from paracosm.profiling.nodes.calibration import (
    BandwidthSettings,
    Goodput,
    Shares,
    ShareSettings,
    load_calibration,
)
from paracosm.profiling.nodes.parsing import fit_parsing

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Measure nothing: 100 MB/s each way, 150 at once, the first connection gets twice what the
    other does out and as much in; 1 us and 1 ns a byte. Returns the calls."""
    asked: list[object] = []
    found = Goodput((9e7, 1e8, 1.1e8), (1e8,) * 3, ((5e7, 1e8),) * 3, 2e-4)

    @contextmanager
    def here(timeout: float) -> Iterator[object]:
        asked.append(timeout)
        yield SimpleNamespace(loopback=True)

    @contextmanager
    def there(host: str, port: int, timeout: float, token: int) -> Iterator[object]:
        asked.append((host, port, token) if token else (host, port))
        yield SimpleNamespace(loopback=False)

    def goodput(peer: object, settings: BandwidthSettings, progress: object) -> Goodput:
        asked.append(settings)
        return found

    def shares(peer: object, settings: ShareSettings, progress: object) -> Shares:
        asked.append(settings)
        return Shares(settings.interval, ((2_000_000, 1_000_000),) * 2, ((1_000_000,) * 2,) * 2)

    def parsing(parser: str, progress: object) -> object:
        asked.append(parser)
        return fit_parsing({size: 1e-6 + 1e-9 * size for size in (1000, 100_000, 10_000_000)})

    monkeypatch.setattr("paracosm.profiling.nodes.exchange.connected_here", here)
    monkeypatch.setattr("paracosm.profiling.nodes.exchange.connected", there)
    monkeypatch.setattr("paracosm.cli.calibrate.measure_shares", shares)
    monkeypatch.setattr("paracosm.cli.calibrate.measure_goodput", goodput)
    monkeypatch.setattr("paracosm.cli.calibrate.measure_parsing", parsing)
    return asked


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Return a profile of whole streams, one after the other at 10 MB/s, parsed at 1 ns a byte."""
    size = np.array([4_000_000, 1_000_000, 2_000_000])
    begin = np.array([[0.0, 1e-3, 2e-3], [2e-3, 1e-3, 0.0]])
    order = np.argsort(begin, axis=1)
    sent = np.take_along_axis(np.cumsum(size[order], axis=1) / 1e7, np.argsort(order), axis=1)
    computing = np.full((2, 1), 0.8)
    path = tmp_path / "job.profile"
    save_job_profile(
        JobProfile(
            names=("a", "b", "c", "step", "push"),
            kinds=("RecvTensor", "RecvTensor", "RecvTensor", "MatMul", "RecvTensor"),
            resource=np.array([DOWNLINK, DOWNLINK, DOWNLINK, WORKER, UPLINK], np.int8),
            server=np.zeros(5, np.int64),
            size=np.array([*size, 0, 1000]),
            first_dependency=np.array([0, 0, 0, 0, 3, 4]),
            dependencies=np.array([0, 1, 2, 3]),
            begin=np.hstack([begin, computing, computing + 0.05]),
            end=np.hstack([sent + 1e-9 * size, computing + 0.05, computing + 0.1]),
            step_begin=np.array([0.0, 1.0]),
            step_end=np.array([0.9, 1.9]),
        ),
        path,
    )
    return path


def test_what_is_measured_is_printed_and_written(
    pretended: list[object], tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "node.yaml"
    assert main(["calibrate", "--seconds", "1s", "--out", str(out), "--details"]) == 0
    assert pretended == [10.0, BandwidthSettings(1.0, 3), ShareSettings(4, 1.0, 10), "numpy"]
    printed = " ".join(capsys.readouterr().out.split())
    assert "two processes on loopback, no network, 2 connections, 2 intervals of 1 s" in printed
    assert "Correlation is that of a connection's shares in consecutive intervals of 1 s" in printed
    assert "800 Mbit/s" in printed
    assert "two processes on loopback, no network, 3 rounds of 1 s" in printed
    found = load_calibration(out)
    assert (found.bandwidth_out, found.bandwidth_in, found.duplex) == (1e8, 1e8, 0.75)
    assert found.alpha == pytest.approx(1e-9, rel=1e-3)
    assert found.beta == pytest.approx(1e-6, rel=1e-2)
    assert found.window is None
    assert found.uneven == pytest.approx(np.log(2) / 2)  # root mean square of ln(2) / sqrt(2) and 0
    assert found.over_loopback("uneven")
    assert found.bandwidth is None  # of a link
    assert found.found["bandwidth_out"].spread == pytest.approx(0.2)
    assert "numpy" in found.environment


def test_a_file_is_kept_unless_told_otherwise_and_added_to(
    pretended: list[object], profile: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "node.yaml"
    assert main(["calibrate", str(profile), "--out", str(out), "--quiet"]) == 0
    estimated = load_calibration(out)
    assert estimated.bandwidth_out is None
    assert estimated.bandwidth_in == pytest.approx(1e7, rel=1e-3)
    assert estimated.window == float("inf")
    assert main(["calibrate", "--out", str(out)]) == 2
    assert capsys.readouterr().err == (
        f"paracosm: {out} exists: --force replaces it, --update adds to it\n"
    )
    assert pretended == []
    flags = ["--peer", "10.0.0.2:5201", "--parsing", "none", "--out", str(out), "--quiet"]
    assert main(["calibrate", *flags, "--update"]) == 0
    assert pretended == [("10.0.0.2", 5201), BandwidthSettings(3.0, 3), ShareSettings(4, 1.0, 10)]
    both = load_calibration(out)
    assert (both.bandwidth_in, both.window) == (1e8, estimated.window)
    assert both.found["alpha"] == estimated.found["alpha"]
    assert both.found["bandwidth_in"].how == "measured"
    assert main(["calibrate", *flags, "--force"]) == 0
    assert load_calibration(out).window is None


def test_connections_that_share_can_be_chosen_or_left_out(
    pretended: list[object], capsys: Capture
) -> None:
    flags = ["--peer", "a:1", "--parsing", "none", "--json"]
    chosen = ["--connections", "8", "--interval", "200ms"]
    assert main(["calibrate", *flags, *chosen]) == 0
    assert pretended[-1] == ShareSettings(8, 0.2, 10)
    summary = json.loads(capsys.readouterr().out)
    shares = summary["details"]["shares"]
    assert shares["uneven"] == {"out": pytest.approx(np.log(2) / 2**0.5), "in": 0}
    assert shares["correlation"] == {"out": pytest.approx(1), "in": None}
    assert shares["bytes"]["out"] == [[2_000_000, 1_000_000]] * 2
    assert summary["found"]["uneven"]["loopback"] is False
    assert main(["calibrate", *flags, "--connections", "1"]) == 0
    assert isinstance(pretended[-1], BandwidthSettings)
    assert json.loads(capsys.readouterr().out)["uneven"] is None


def test_a_profile_tells_its_link_and_how_well_the_model_fits(
    profile: Path, capsys: Capture
) -> None:
    assert main(["calibrate", str(profile), "--bandwidth", "80Mbit/s", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["bandwidth_in"] == 1e7
    assert summary["window"] == "inf"
    assert summary["alpha"] == pytest.approx(1e-9, rel=0.05)
    assert summary["found"]["alpha"]["how"] == "estimated"
    streams = summary["details"]["streams"]
    assert streams["errors"]["streams"] == 6
    assert streams["errors"]["average"] < 1e-3
    assert streams["largest"] == 4e6
    assert main(["calibrate", str(profile)]) == 0
    printed = capsys.readouterr().out
    assert "ends of downlink" not in printed
    assert "more: --details" in printed
    assert main(["calibrate", str(profile), "--details"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "ends of downlink streams" in printed
    assert "a window of 4 MB (the largest stream) or more cannot be distinguished" in printed


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--peer", "nowhere"], '--peer: write HOST:PORT, such as 10.0.0.2:5201, not "nowhere"'),
        (["--peer", "a:99999"], "--peer: write HOST:PORT"),
        (["--parsing", "trch"], 'unknown parser "trch": did you mean "torch"?'),
        (["--bandwidth", "1Gbit/s"], "--bandwidth is the bandwidth of a profile's link"),
        (["--seconds", "soon"], '--seconds: cannot read "soon" as a duration'),
        (["--seconds", "1h"], "a round lasts 50 ms to 60 s"),
        (["--connections", "65"], "2 to 64 connections share a link, not 65"),
        (["--interval", "10s"], "60 s at most, not 10 of 10 s"),
        (["--connections", "1", "--interval", "2s"], "--interval has no effect with --connec"),
        (["--json", "--quiet"], "give one of them"),
        (["--force"], "--force applies to the file of --out"),
        (["--update"], "--update applies to the file of --out"),
        (["--update", "--force", "--out", "x.yaml"], "give one"),
        (["--out", "nowhere/x.yaml"], "nowhere/x.yaml: cannot be written"),
        (["none.profile"], "none.profile"),
    ],
)
def test_what_cannot_be_calibrated_is_refused_in_one_line(
    pretended: list[object], flags: list[str], why: str, capsys: Capture
) -> None:
    assert main(["calibrate", *flags]) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
    assert pretended == []


def test_a_profile_and_a_measurement_are_not_asked_for_at_once(
    profile: Path, capsys: Capture
) -> None:
    for flag, value in (("--parsing", "numpy"), ("--seconds", "2s")):
        assert main(["calibrate", str(profile), flag, value]) == 2
        assert f"{flag} has no effect with a file" in capsys.readouterr().err
    assert main(["calibrate", str(profile), "--bandwidth", "fast"]) == 2
    assert '--bandwidth: cannot read "fast"' in capsys.readouterr().err


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_serve_and_peer_measure_with_each_other(tmp_path: Path, capsys: Capture) -> None:
    port, out, codes = free_port(), tmp_path / "node.yaml", []
    serve = ["calibrate", "serve", "--port", str(port)]
    thread = threading.Thread(target=lambda: codes.append(main(serve)))
    thread.start()
    flags = ["--peer", f"127.0.0.1:{port}", "--parsing", "none", "--out", str(out), "--quiet"]
    until = time.monotonic() + 20
    quick = ["--seconds", "0.1s", "--interval", "50ms"]
    while main(["calibrate", *flags, *quick]) != 0:
        assert time.monotonic() < until
        time.sleep(0.05)  # it does not listen yet
    thread.join(timeout=300)
    assert codes == [0]
    printed = capsys.readouterr().out
    assert f"listening on 127.0.0.1:{port}: paracosm calibrate --peer HOST:{port}" in printed
    assert printed.endswith("11 rounds\n")
    found = load_calibration(out)
    assert found.bandwidth_in is not None
    assert found.bandwidth_in > 1e6
    assert found.over_loopback("bandwidth_in")
    assert found.uneven is not None
    assert found.alpha is None


def test_serve_gives_up_a_bad_client_and_beyond_loopback_asks_for_a_token(capsys: Capture) -> None:
    port = free_port()
    codes: list[int] = []
    serve = ["calibrate", "serve", "--port", str(port), "--host", "0.0.0.0"]
    thread = threading.Thread(target=lambda: codes.append(main(serve)))
    thread.start()
    until, said = time.monotonic() + 20, ""
    while "waiting for another client" not in said:
        assert time.monotonic() < until
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
            client.recv(16)
        time.sleep(0.05)
        printed, error = capsys.readouterr()
        said += printed + error
    assert "is not paracosm calibrate" in said
    (token,) = re.findall(r"--peer HOST:\d+ --token (\d+)\n", said)
    flags = ["--peer", f"127.0.0.1:{port}", "--parsing", "none", "--connections", "1", "--quiet"]
    quick = ["--seconds", "0.1s"]
    assert main(["calibrate", *flags, *quick]) == 2
    assert "give the --token it printed" in capsys.readouterr().err
    while not codes:
        assert time.monotonic() < until
        main(["calibrate", *flags, *quick, "--token", token])
        thread.join(timeout=0.5)
    assert codes == [0]


def test_a_token_that_nobody_asks_for_or_sees_is_refused(capsys: Capture) -> None:
    assert main(["calibrate", "--token", "5"]) == 2
    assert "--token is that of a --peer" in capsys.readouterr().err
    assert main(["calibrate", "serve", "--host", "0.0.0.0", "--quiet"]) == 2
    assert "--quiet would hide the token" in capsys.readouterr().err
