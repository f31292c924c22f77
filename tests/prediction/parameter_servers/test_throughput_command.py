"""`paracosm predict` on a job profile: flags, study files, refusals, what is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from profiled_jobs import serial_profile, two_parameters

from paracosm.cli import main
from paracosm.prediction import run as prediction_run
from paracosm.profiling.jobs.file import save_job_profile
from paracosm.studies import RunFolder
from paracosm.timeline.analysis import check

Capture = pytest.CaptureFixture[str]
LINK = ["--bandwidth", "1kB/s"]
FEW = ["--steps", "100"]


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "job.profile"
    save_job_profile(replace(serial_profile(), batch=32), path)
    return str(path)


@pytest.fixture
def divisible(tmp_path: Path) -> str:
    path = tmp_path / "divisible.profile"
    save_job_profile(two_parameters(), path)
    return str(path)


def summary_of(capsys: Capture, *flags: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["predict", *flags, *FEW, "--json"]) == 0, capsys.readouterr().err
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    return summary


def test_throughput_by_workers_and_coarse_models(profile: str, capsys: Capture) -> None:
    summary = summary_of(capsys, profile, "--workers", "1..3", "--measure", "35s", *LINK)
    assert summary["status"] == "done"
    rows = summary["throughput"]
    assert [row["workers"] for row in rows] == [1, 2, 3]
    for row in rows:
        number = row["workers"]
        # No less than in lock-step, no more than with the link for oneself.
        assert number / (2 * number + 3) - 1e-9 <= row["steps_per_second"] <= number / 5 + 1e-9
        assert row["examples_per_second"] == pytest.approx(32 * row["steps_per_second"])
        assert row["ideal"] == pytest.approx(number / 5)
        assert row["bottleneck"] in row["if_twice_as_fast"]
    one = rows[0]
    assert one["steps_per_second"] == pytest.approx(1 / 5)
    assert one["spread"] == pytest.approx(0, abs=1e-9)
    assert one["standard_error"] == pytest.approx(0, abs=1e-9)
    assert one["bottleneck"] == "worker"
    lin, cynthia = (summary["baselines"][name] for name in ("lin", "cynthia"))
    assert lin[1]["steps_per_second"] == pytest.approx(2 / 5.6)
    assert lin[1]["examples_per_second"] == pytest.approx(64 / 5.6)
    assert cynthia[2]["steps_per_second"] == pytest.approx(3 / 4.4)
    assert summary["steps_per_second"] == rows[-1]["steps_per_second"]
    assert summary["saturation"] is None
    assert summary["bottleneck"].startswith("Throughput grows up to the largest number of workers")


def test_where_it_saturates_and_why(tmp_path: Path, capsys: Capture) -> None:
    # A pull takes 1 s and a push 0.1: 4 s a step alone, and never more than one step a second.
    path = tmp_path / "downlink.profile"
    save_job_profile(serial_profile(size=np.array([1000, 0, 100, 0])), path)
    summary = summary_of(capsys, str(path), "--workers", "1,2,4..32", *LINK)
    saturation = summary["saturation"]
    assert saturation["because"] == "downlink"
    assert saturation["workers"] in (4, 8)
    assert summary["throughput"][-1]["steps_per_second"] == pytest.approx(1.0, rel=0.05)
    assert summary["bottleneck"].startswith(
        f"Saturates at {saturation['workers']} workers: the downlink of the servers"
    )


def test_a_profile_knows_its_own_bandwidth(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "known.profile"
    save_job_profile(serial_profile(bandwidth=1000.0), path)
    summary = summary_of(capsys, str(path), "--workers", "1")
    assert summary["steps_per_second"] == pytest.approx(1 / 5)
    summary = summary_of(capsys, str(path), "--workers", "1", "--bandwidth", "2kB/s")
    assert summary["steps_per_second"] == pytest.approx(1 / 4)


def test_a_node_says_bandwidth_parsing_and_window(
    profile: str, tmp_path: Path, capsys: Capture
) -> None:
    from paracosm.profiling.nodes.calibration import NodeCalibration, save_calibration

    known = {"bandwidth_out": 1000.0, "bandwidth_in": 2000.0, "alpha": 1e-4, "beta": 0.2}
    save_calibration(NodeCalibration(**known, window=700.0), tmp_path / "node.yaml")
    node = ["--node", str(tmp_path / "node.yaml")]
    summary = summary_of(capsys, profile, "--workers", "1", *node)
    # Each of two transfers is parsed for 0.1 + 0.2 s.
    assert summary["steps_per_second"] == pytest.approx(1 / 5.6)
    assert summary["target"]["window"] == 700.0
    flags = ["--flow-control-window", "5kB", *LINK]
    assert summary_of(capsys, profile, "--workers", "1", *node, *flags)["target"][
        "window"
    ] == pytest.approx(5000.0)
    whole = summary_of(capsys, profile, "--workers", "1", *node, "--no-flow-control")
    assert whole["target"]["window"] is None


def test_a_node_that_only_knows_loopback_says_nothing_about_links(
    profile: str, tmp_path: Path, capsys: Capture
) -> None:
    from paracosm.profiling.nodes.calibration import Found, NodeCalibration, save_calibration

    def saved(loopback: bool, uneven: float) -> list[str]:
        found = Found("measured", "by hand", "2020-04-20T00:00:00+00:00", loopback=loopback)
        both = {"bandwidth_in": found, "uneven": found}
        node = NodeCalibration(bandwidth_in=1000.0, uneven=uneven, found=both)
        save_calibration(node, tmp_path / "node.yaml")
        return [profile, "--workers", "2", "--node", str(tmp_path / "node.yaml")]

    flags = saved(True, 0.4)
    assert main(["predict", *flags]) == 2
    error = capsys.readouterr().err
    assert "link bandwidth not specified" in error
    assert "--bandwidth 10Gbit/s, or measure it between two hosts" in error
    assert "paracosm calibrate --peer" in error
    assert error.count("\n") == 1
    assert summary_of(capsys, *flags, *LINK)["target"]["uneven"] == 0
    flags = saved(False, 0.4)
    assert summary_of(capsys, *flags)["target"]["uneven"] == 0.4
    assert summary_of(capsys, *flags, "--uneven", "0")["target"]["uneven"] == 0
    flags = saved(False, 4.2)
    assert main(["predict", *flags]) == 2
    assert "node.yaml has 4.2, at which connections starve; at most 3" in (capsys.readouterr().err)
    assert summary_of(capsys, *flags, "--uneven", "3")["target"]["uneven"] == 3


def test_more_servers_divide_the_parameters(divisible: str, capsys: Capture) -> None:
    summary = summary_of(capsys, divisible, "--workers", "4", "--servers", "2", *LINK)
    (row,) = summary["throughput"]
    held = row["utilisation_by_server"]["downlink"]
    assert held[0] / held[1] == pytest.approx(600 / 400)
    alone = summary_of(capsys, divisible, "--workers", "4", *LINK)
    assert summary["steps_per_second"] > alone["steps_per_second"]


def test_an_order_by_name_file_and_list(divisible: str, tmp_path: Path, capsys: Capture) -> None:
    given = [divisible, "--workers", "1", *LINK, "--no-flow-control"]
    for order in ("tic", "tac", "reverse", "random", "scheduled"):
        assert summary_of(capsys, *given, "--order", order)["target"]["order"] == order
    names = tmp_path / "order.txt"
    names.write_text("pull1\n\npull0\n")
    listed = summary_of(capsys, *given, "--order", str(names))
    assert listed["target"]["order"] == ["pull1", "pull0"]
    study = tmp_path / "study.yaml"
    predict = {"profile": divisible, "workers": 1, "bandwidth": "1kB/s", "flow_control": False}
    study.write_text(yaml.safe_dump({"predict": predict | {"order": ["pull1", "pull0"]}}))
    assert summary_of(capsys, str(study))["throughput"] == listed["throughput"]


def test_a_cluster_file_with_a_slower_worker(profile: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "cluster.yaml"
    said = {
        "topology": "star",
        "workers": [{"count": 1}, {"speed": 0.5}],
        "servers": 1,
        "links": {"default": {"bandwidth": "1kB/s"}},
    }
    path.write_text(yaml.safe_dump(said))
    summary = summary_of(capsys, profile, "--cluster", str(path))
    assert summary["workers"] == 2
    assert summary["throughput"][-1]["ideal"] == pytest.approx(1 / 5 + 1 / 7)
    flags = ["--workers", "2", "--what-if", "worker 1: compute 2x slower", *LINK]
    changed = summary_of(capsys, profile, *flags)
    assert changed["throughput"] == summary["throughput"]
    before = summary_of(capsys, profile, "--workers", "2", *LINK)
    del before["defaults"]  # those of the changed run stand beside it
    assert changed["unchanged"] == before
    assert changed["cluster"]["speeds"] == "0.5 to 1"


def test_a_run_folder_can_be_run_again(profile: str, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "run"
    flags = ["predict", profile, "--workers", "1,2", *LINK, *FEW, "--start", "together"]
    assert main([*flags, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "bottleneck" in printed
    assert (out / "report.html").is_file()
    folder = RunFolder.open(out)
    timeline = folder.timeline()
    assert timeline is not None
    assert check(timeline, ("downlink", "compute", "uplink", "server")) == []
    assert main(["trace", str(out)]) == 0
    assert (out / "trace.json.gz").is_file()
    assert "batch" not in folder.study["predict"]
    capsys.readouterr()
    assert main(["predict", str(out / "study.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["throughput"] == folder.summary["throughput"]


def test_an_interrupt_keeps_the_numbers_that_are_done(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    real, most = prediction_run.predict_throughput, 2

    def until(job: Any, workers: int, seed: int) -> Any:
        if workers > most:
            raise KeyboardInterrupt
        return real(job, workers, seed)

    monkeypatch.setattr(prediction_run, "predict_throughput", until)
    flags = ["predict", profile, "--workers", "1..4", *LINK, *FEW, "--out", str(tmp_path / "run")]
    assert main(flags) == 130
    assert "up to 2 workers" in capsys.readouterr().out
    summary = RunFolder.open(tmp_path / "run").summary
    assert summary is not None
    assert summary["status"] == "interrupted"
    assert [row["workers"] for row in summary["throughput"]] == [1, 2]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--workers", "2"], "link bandwidth not specified: add --bandwidth 10Gbit/s"),
        (["--workers", "2"], "paracosm calibrate"),
        (LINK, "missing number of workers: add --workers 8"),
        (["--workers", "2", "--bandwidth", "inf"], "bandwidth: throughput is predicted on links"),
        (["--workers", "2", *LINK, "--model", "gpt2"], "model: cannot be combined with profile"),
        (
            ["--workers", "2", *LINK, "--strategy", "ps"],
            "strategy: cannot be combined with",
        ),
        (["--workers", "2", *LINK, "--duration-cv", "0.1"], "duration_cv: cannot be combined with"),
        (["--workers", "2", *LINK, "--global-batch", "64"], "global_batch: cannot be combined"),
        (
            ["--workers", "2", *LINK, "--hardware", "H100"],
            "hardware: cannot be combined with",
        ),
        (["--workers", "2", *LINK, "--batch", "64"], "has 32 examples, not 64"),
        (["--workers", "2", *LINK, "--order", "tik"], 'unknown order "tik": did you mean "tic"'),
        (["--workers", "2", *LINK, "--servers", "2"], "servers: 2 servers for 1 parameters"),
        (["--workers", "2", *LINK, "--backup", "1"], "backup: has no effect, leave it out"),
        (
            ["--workers", "2", *LINK, "--synchronous", "--backup", "2"],
            "backup: must be below the number of workers",
        ),
        (["--workers", "2", *LINK, "--stagger", "2s"], "stagger: has no effect, leave it out"),
        (["--workers", "2", *LINK, "--repeats", "9"], "repeats: has no effect, leave it out"),
        (
            ["--workers", "2", *LINK, "--start", "together", "--repeats", "10001"],
            "repeats: input should be less than or equal to 10000",
        ),
        (
            ["--workers", "2", *LINK, "--no-flow-control", "--flow-control-window", "1MB"],
            "flow_control_window: has no effect, leave it out: there is no flow control",
        ),
        (["--workers", "2", *LINK, "--flow-control-window", "16"], '"16" has no unit'),
        (["--workers", "2", *LINK, "--background", "much"], 'background: cannot read "much"'),
        (
            ["--workers", "2", *LINK, "--what-if", "worker 9: compute 2x slower"],
            "there are workers 0 to 1, not 9",
        ),
        (
            ["--workers", "2", *LINK, "--what-if", "all_reduce: +2 ms"],
            "predict cannot change that; it can change how fast workers and servers compute, links",
        ),
        (
            ["--workers", "2", *LINK, "--sharing", "serial", "--background", "2"],
            "background: has an effect only with fair sharing",
        ),
        (
            ["--workers", "2", *LINK, "--sharing", "packets(16KiB)", "--uneven", "0.3"],
            "uneven: has an effect only with fair sharing: leave it out, or leave sharing packets",
        ),
        (["--workers", "2", *LINK, "--steps", "10"], "steps: input should be greater than"),
        (["--workers", "20000", *LINK], "workers: of a profile 10,000 at most"),
        (["--workers", "10000", *LINK, "--steps", "5000"], "steps: 5,000 of 10,000 workers"),
        (["--workers", "2", *LINK, "--node", "none.yaml"], "none.yaml"),
        (["--workers", "2", *LINK, "--profile", "other"], "--profile names another"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    profile: str, flags: list[str], message: str, capsys: Capture
) -> None:
    assert main(["predict", profile, *flags]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_too_many_nodes_are_refused_before_their_cluster_is_built(
    profile: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("paracosm.prediction.parameter_servers.config.star", None)
    assert main(["predict", profile, "--workers", "1000000", *LINK]) == 2
    assert "workers: of a profile 10,000 at most, not 1,000,000" in capsys.readouterr().err
    assert main(["predict", profile, "--workers", "2", "--servers", "1000000", *LINK]) == 2
    assert "servers: 1,000,000 servers for" in capsys.readouterr().err


def test_what_is_no_profile_is_refused(tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other.profile"
    other.write_text("nothing of the kind")
    assert main(["predict", "--profile", str(other), "--workers", "2", *LINK]) == 2
    assert "and no job profile: paracosm profile job writes one" in capsys.readouterr().err
    assert main(["predict", "--profile", str(tmp_path / "none"), "--workers", "2", *LINK]) == 2
    assert "none: no such file" in capsys.readouterr().err


def test_without_a_profile_its_options_are_refused(capsys: Capture) -> None:
    assert main(["predict", "--model", "gpt2", "--order", "tic"]) == 2
    assert "order: cannot be combined with model" in capsys.readouterr().err


def test_a_measurement_shorter_than_a_step_is_refused(profile: str, capsys: Capture) -> None:
    flags = [profile, "--workers", "1..3", "--measure", "4s", *LINK, *FEW]
    assert main(["predict", *flags]) == 2
    error = capsys.readouterr().err
    assert error == (
        "paracosm: measure: 4 s is too short: a step takes 5 s alone, and a measurement needs "
        "many\n"
    )


def test_of_one_number_of_workers_no_growth_is_said(profile: str, capsys: Capture) -> None:
    said = summary_of(capsys, profile, "--workers", "2", *LINK)["bottleneck"]
    assert said.startswith("With 2 workers, the ")
    assert "grows" not in said
