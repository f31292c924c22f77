"""`paracosm measure link`: what it prints, writes and refuses."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from paracosm.cli import main, measure_link
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.environment import Environment
from paracosm.profiling.links.measure import Links, LinkSettings
from paracosm.profiling.samples import LinkTiming, spread_of

Capture = pytest.CaptureFixture[str]

HERE = Environment("cpu", "a chip", "torch 2", 1, "malloc pinned", "flushed")


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> list[LinkSettings]:
    """Measure nothing: every message takes 1 ms and 1 ns a byte. Returns what was asked for."""
    asked: list[LinkSettings] = []

    def measure(settings: LinkSettings, keep: object = None, progress: object = None) -> Links:
        asked.append(settings)
        done = Links(left_out={"host to device, pinned memory": "needs a CUDA device, here are 0"})
        for kind in settings.kinds:
            for size in settings.sizes:
                time = spread_of([1e-3 + size * 1e-9])
                done.timings.append(LinkTiming(kind, "gloo 2 processes", size, 2, HERE, time))
                if callable(keep):
                    keep(done.timings[-1])
        return done

    monkeypatch.setattr("paracosm.cli.measure_link.measure_links", measure)
    return asked


def test_ctrl_c_has_its_exit_code(
    pretended: list[LinkSettings], monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    done = measure_link.measure_links(LinkSettings(kinds=["send_recv"]))
    done.interrupted = True
    monkeypatch.setattr(measure_link, "measure_links", lambda *_, **__: done)
    assert main(["measure", "link", "--kinds", "send-recv"]) == 130
    assert "Interrupted: these are" in capsys.readouterr().out


def test_flags_become_settings_and_timings_a_table_and_rows_of_the_database(
    pretended: list[LinkSettings], tmp_path: Path, capsys: Capture
) -> None:
    db = tmp_path / "profiles.db"
    flags = ["--kinds", "send-recv, all_reduce", "--sizes", "1MB,1kB", "--ranks", "3,2"]
    assert main(["measure", "link", *flags, "--seconds", "2ms", "--db", str(db)]) == 0
    (asked,) = pretended
    assert (asked.kinds, asked.sizes, asked.ranks) == (
        ["send_recv", "all_reduce"],
        [1000, 1_000_000],
        [2, 3],
    )
    assert asked.seconds == 2e-3
    printed = capsys.readouterr().out
    # 1 MB in 2 ms; the link of send_recv is the line itself.
    assert "send_recv, gloo 2 processes" in printed
    assert "500.00" in printed
    assert "latency: 1 ms, bandwidth: 8 Gbit/s" in printed
    assert "left out (needs a CUDA device, here are 0): host to device, pinned memory" in printed
    with ProfileDatabase.open(db) as database:
        assert len(database.links()) == 4


def test_json_is_the_summary_and_nothing_else(
    pretended: list[LinkSettings], capsys: Capture
) -> None:
    assert main(["measure", "link", "--kinds", "all-reduce", "--sizes", "1kB,1MB", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    (row,) = summary["scenarios"]
    assert summary["status"] == "done"
    assert summary["environments"] == [asdict(HERE)]
    assert row["line"]["latency"] == pytest.approx(1e-3, rel=1e-4)
    assert row["link"]["latency"] == pytest.approx(0.5e-3, rel=1e-4)
    assert row["seconds"]["1000"] == pytest.approx(1.001e-3)


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (
            ["--kinds", "allreduce"],
            'unknown kind of transfer "allreduce": did you mean "all-reduce',
        ),
        (["--ranks", "two"], '--ranks: write numbers such as 2,4, not "two"'),
        (["--ranks", "1_0"], '--ranks: write numbers such as 2,4, not "1_0"'),
        (["--kinds", "host-copy", "--ranks", "2"], "--ranks has no effect: host-copy has no coll"),
        (["--sizes", "1parsec"], '--sizes: unknown size unit "parsec"'),
        (["--seconds", "soon"], '--seconds: cannot read "soon" as a duration'),
        (["--sizes", "0"], "a message has at least one byte"),
        (["--sizes", "1e19B"], "and fewer than 2^63"),
        (["--sizes", ""], "at least one size"),
        (["--precision", "0"], "precision must be above 0"),
        (["--json", "--quiet"], "give one of them"),
    ],
)
def test_what_cannot_be_measured_is_refused_in_one_line(
    pretended: list[LinkSettings], flags: list[str], why: str, capsys: Capture
) -> None:
    assert main(["measure", "link", *flags]) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
    assert pretended == []


def test_what_failed_is_said_and_the_exit_code_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    failed = Links(failed={"all_reduce, gloo 2 processes": "worker 1 of 2 was ended by SIGKILL"})
    monkeypatch.setattr("paracosm.cli.measure_link.measure_links", lambda *_, **__: failed)
    assert main(["measure", "link"]) == 1
    printed = capsys.readouterr().out
    assert "failed: all_reduce, gloo 2 processes: worker 1 of 2 was ended by SIGKILL" in printed


def test_where_nothing_can_be_measured_the_exit_code_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    nothing = Links(left_out={"host to device, pinned memory": "needs 1 CUDA device, here are 0"})
    monkeypatch.setattr("paracosm.cli.measure_link.measure_links", lambda *_, **__: nothing)
    assert main(["measure", "link", "--kinds", "host-to-device"]) == 1
    assert capsys.readouterr().out == (
        "nothing was measured\n\n"
        "left out (needs 1 CUDA device, here are 0): host to device, pinned memory\n"
    )
