"""`paracosm predict` on a cluster: flags, study files, refusals, numbers by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_database import CONV, CPU, GPU, KNOWN, RELU, make_database, make_graph, op, timing

from paracosm.cli import main
from paracosm.errors import InputError
from paracosm.graphs import Graph, Node, build_graph
from paracosm.graphs.capture import CaptureOptions
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.job import JobPrediction, predict_job
from paracosm.prediction.run import run_prediction
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.samples import LinkTiming, spread_of
from paracosm.studies import RunFolder

Capture = pytest.CaptureFixture[str]
ALONE = 500e-6  # seconds of the fake graph: two convolutions and a ReLU
GRADIENTS = 4000  # bytes
LINEAR = op("aten.mm.default", 1000, 10**6)


@pytest.fixture
def asked(tmp_path: Path) -> list[str]:
    """Return the flags of a prediction that needs neither PyTorch nor this machine."""
    database = make_database(tmp_path / "a.db", KNOWN)
    graph = make_graph(tmp_path / "a.graph")
    return ["predict", "--graph", str(graph), "--db", str(database), "--hardware", "Old Chip"]


def summary_of(flags: list[str], capsys: Capture) -> dict[str, Any]:
    capsys.readouterr()
    assert main([*flags, "--json"]) == 0, capsys.readouterr().err
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    return summary


def cluster_file(tmp_path: Path, **changed: Any) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump({"topology": "switch", "workers": 4, **changed}))
    return str(path)


def test_over_a_free_network_workers_add_up(asked: list[str], capsys: Capture) -> None:
    summary = summary_of([*asked, "--workers", "1,2,4..16", "--bandwidth", "inf"], capsys)
    assert summary["workers"] == 16
    assert summary["iteration_time"] == pytest.approx(ALONE)
    assert summary["efficiency"] == pytest.approx(1)
    assert [row["workers"] for row in summary["throughput"]] == [1, 2, 4, 8, 16]
    for row in summary["throughput"]:
        assert row["examples_per_second"] == pytest.approx(8 * row["workers"] / ALONE)
        assert row["steps_per_second"] == pytest.approx(row["workers"] / ALONE)
        assert row["ideal"] == pytest.approx(row["workers"] / ALONE)
    assert summary["breakdown"]["mean"]["compute"] == pytest.approx(ALONE)


def test_a_ring_all_reduce_of_the_last_bucket_is_exposed(asked: list[str], capsys: Capture) -> None:
    # Ring over p ranks: 2 (p - 1) steps, each latency + (bytes / p) / bandwidth. The only gradient
    # comes with the last op, so that nothing hides it.
    flags = ["--strategy", "ddp, all_reduce=ring", "--workers", "1,4", "--latency", "10us"]
    summary = summary_of([*asked, *flags, "--bandwidth", "100MB/s"], capsys)
    expected = 6 * (10e-6 + GRADIENTS / 4 / 100e6)
    assert summary["iteration_time"] == pytest.approx(ALONE + expected)
    assert summary["breakdown"]["mean"]["exposed_communication"] == pytest.approx(expected)
    first, last = summary["throughput"]
    assert first["iteration_time"] == pytest.approx(ALONE)
    assert last["efficiency"] == pytest.approx(ALONE / (ALONE + expected))
    assert summary["interval"]["low"] <= summary["iteration_time"] <= summary["interval"]["high"]


def test_what_ddp_was_measured_to_cost_a_core_is_counted(
    asked: list[str], tmp_path: Path, capsys: Capture
) -> None:
    """By what two processes took on this processor; those of another do not count."""
    flags = [*asked, "--workers", "2", "--bandwidth", "inf"]
    with ProfileDatabase.open(tmp_path / "a.db") as database:
        for each, seconds in ((replace(CPU, hardware="other"), 1.0), (CPU, 2e-3)):
            database.add_links([LinkTiming("ddp", "gloo", 100, 2, each, spread_of([seconds]))])
    summary = summary_of(flags, capsys)
    cost = 2e-3 / 100
    assert summary["iteration_time"] == pytest.approx(ALONE + cost * GRADIENTS)
    assert summary["breakdown"]["mean"]["compute"] == pytest.approx(ALONE + cost * GRADIENTS)
    said = summary["durations"]["computing beside collectives"]
    assert said == "measured: 20 s of a rank's core for each MB"


def test_a_given_slow_down_holds_beside_communication(asked: list[str], capsys: Capture) -> None:
    """The only reduction is behind all computing: it slows nothing that it does not wait for."""
    flags = [*asked, "--strategy", "ddp, all_reduce=ring", "--workers", "2", "--bandwidth"]
    expected = ALONE + GRADIENTS / 100e6
    summary = summary_of([*flags, "100MB/s", "--slowdown", "1.25"], capsys)
    assert summary["iteration_time"] == pytest.approx(expected)
    said = summary["durations"]["computing beside collectives"]
    assert said == "given: computing takes 1.25 times as long"


def test_the_parts_of_every_kind_of_rank_add_up(asked: list[str], capsys: Capture) -> None:
    flags = ["--workers", "8", "--bandwidth", "1Gbit/s", "--what-if", "worker 3: compute 2x slower"]
    summary = summary_of([*asked, *flags], capsys)
    ranks = summary["breakdown"]["ranks"]
    assert [(rank["first"], rank["ranks"]) for rank in ranks] == [("worker0", 7), ("worker3", 1)]
    parts = list(summary["breakdown"]["mean"])
    for rank in ranks:
        picoseconds = sum(round(rank[part] * 1e12) for part in parts)
        assert picoseconds == round(summary["iteration_time"] * 1e12)
    assert ranks[0]["waiting"] == pytest.approx(ALONE)
    assert ranks[1]["compute"] == pytest.approx(2 * ALONE)
    share = 7 / 8 * ALONE / summary["iteration_time"]
    assert (
        summary["bottleneck"] == f"Waiting: workers wait {share:.0%} of the iteration for worker3."
    )
    # Seven and a half workers' worth of speed.
    assert summary["ideal"] == pytest.approx(7.5 * 8 / ALONE)


def test_a_cluster_file_and_the_same_in_a_study(
    asked: list[str], tmp_path: Path, capsys: Capture
) -> None:
    links = {"default": {"bandwidth": "1Gbit/s", "latency": "5us"}}
    path = cluster_file(tmp_path, links=links)
    from_flags = summary_of([*asked, "--cluster", path], capsys)
    assert from_flags["workers"] == 4
    study = tmp_path / "study.yaml"
    cluster = {"topology": "switch", "workers": 4, "links": links}
    predict = {"graph": asked[2], "db": asked[4], "hardware": "Old Chip", "cluster": cluster}
    study.write_text(yaml.safe_dump({"predict": {**predict, "workers": [2, 4]}}))
    from_study = summary_of(["predict", str(study)], capsys)
    assert [row["workers"] for row in from_study["throughput"]] == [2, 4]
    assert from_study["iteration_time"] == from_flags["iteration_time"]


def test_a_study_varies_the_strategy(asked: list[str], tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    predict = {"graph": asked[2], "db": asked[4], "hardware": "Old Chip", "bandwidth": "1Gbit/s"}
    over = {"strategy": ["ddp", "ddp, bucket=1MiB"], "workers": [2, 4]}
    study.write_text(yaml.safe_dump({"predict": predict, "over": over}))
    assert main(["predict", str(study), "--out", str(tmp_path / "sweep"), "--quiet"]) == 0
    rows = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [row["workers"] for row in rows] == [2, 4, 2, 4]


def test_a_job_that_does_not_fit_says_so(asked: list[str], tmp_path: Path, capsys: Capture) -> None:
    nodes = [{"count": 2, "memory": "20kB"}, {"count": 2, "memory": "10kB"}]
    path = cluster_file(tmp_path, workers=nodes)
    summary = summary_of([*asked, "--cluster", path], capsys)
    assert summary["peak_memory"] == 12000
    assert summary["fits"] is False
    assert summary["bottleneck"].endswith("Does not fit: needs 12 kB of 10 kB on worker2.")
    assert [row["fits"] for row in summary["throughput"]] == [False]
    smaller = summary_of([*asked, "--cluster", path, "--workers", "2"], capsys)
    assert smaller["fits"] is True
    unknown = summary_of([*asked, "--workers", "2", "--bandwidth", "inf"], capsys)
    assert unknown["fits"] is None


def test_devices_are_as_fast_as_their_own_timings(
    asked: list[str], tmp_path: Path, capsys: Capture
) -> None:
    there = [timing(CONV, 50e-6, GPU), timing(RELU, 25e-6, GPU)]
    make_database(tmp_path / "a.db", there)
    nodes = [{"count": 3, "device": "Old Chip"}, {"device": "H100"}, {"device": "Abacus"}]
    path = cluster_file(tmp_path, workers=nodes)
    without = [each for each in asked if each not in ("--hardware", "Old Chip")]
    summary = summary_of([*without, "--cluster", path], capsys)
    assert summary["environment"].startswith("Old Chip 7")
    compute = {each["first"]: each["compute"] for each in summary["breakdown"]["ranks"]}
    assert compute == {"worker0": pytest.approx(ALONE), "worker3": pytest.approx(ALONE / 4)}
    assert "4 times as fast by the timings of NVIDIA H100" in summary["devices"]["H100"]
    assert summary["devices"]["Abacus"].startswith("no timings")


def test_a_device_without_timings_is_refused_unless_others_are_asked_for(
    asked: list[str], tmp_path: Path, capsys: Capture
) -> None:
    path = cluster_file(tmp_path, workers=[{"count": 4, "device": "Abacus"}])
    assert main([*asked[:-2], "--cluster", path]) == 2
    said = capsys.readouterr().err
    assert "cluster: device Abacus: " in said
    assert "give --hardware to use other timings" in said
    assert said.count("\n") == 1
    assert main([*asked, "--cluster", path]) == 0


def test_a_run_folder_gives_a_report_and_a_trace_of_chosen_ranks(
    asked: list[str], tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "run"
    flags = [*asked, "--workers", "2,4..16", "--bandwidth", "1Gbit/s", "--timeline-ranks", "0,5"]
    assert main([*flags, "--out", str(out)]) == 0
    assert "Scaling" in capsys.readouterr().out
    assert RunFolder.open(out).study["predict"]["workers"] == [2, 4, 8, 16]
    assert main(["trace", str(out), "--out", str(tmp_path / "trace.json"), "--quiet"]) == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert sorted(named) == ["worker0", "worker5"]
    again = tmp_path / "again"
    assert main(["predict", str(out / "study.yaml"), "--out", str(again), "--quiet"]) == 0
    assert RunFolder.open(again).summary == RunFolder.open(out).summary


def test_an_interrupted_sweep_keeps_what_it_has(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def interrupted(replica: Any, cluster: Any, *rest: Any, **more: Any) -> JobPrediction:
        if len(cluster.workers) > most:
            raise KeyboardInterrupt
        return predict_job(replica, cluster, *rest, **more)

    monkeypatch.setattr("paracosm.prediction.run.predict_job", interrupted)
    flags = [*asked, "--workers", "1,2..16", "--bandwidth", "1Gbit/s", "--timeline-ranks", "9"]
    out, most = tmp_path / "run", 4
    assert main([*flags, "--out", str(out)]) == 130
    assert "The run was interrupted. These are the predictions up to" in capsys.readouterr().out
    summary = RunFolder.open(out).summary
    assert summary is not None
    assert summary["status"] == "interrupted"
    assert [row["workers"] for row in summary["throughput"]] == [1, 2, 4]
    assert (out / "report.html").exists()
    most = 0
    assert main(flags) == 130
    assert capsys.readouterr().err == "paracosm: interrupted\n"


def test_a_sweep_says_how_many_predictions_are_done(asked: list[str]) -> None:
    database, graph = asked[4], asked[2]
    config = PredictConfig.model_validate(
        {"graph": graph, "db": database, "hardware": "Old Chip"}
        | {"workers": "1,2..8", "bandwidth": "inf"}
    )
    done: list[int] = []
    run_prediction(config, 0, lambda number, virtual_time: done.append(number))
    assert done == [1, 2, 3, 4]
    assert config.predictions == len(done)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--workers", "4"], "link bandwidth not specified: add --bandwidth 10Gbit/s"),
        (["--strategy", "ddp"], "ddp needs a number of workers: add --workers 8"),
        (
            ["--strategy", "ps", "--workers", "1"],
            "link bandwidth not specified: add --bandwidth 10Gbit/s",
        ),
        (["--strategy", "dddp", "--workers", "4"], 'unknown name "dddp": did you mean "ddp"'),
        (["--strategy", "dp=3, tp=2", "--workers", "8"], "dp=3 x tp=2 = 6 ranks"),
        (["--workers", "1,2,x"], 'workers: cannot read "x" as numbers of workers'),
        (["--workers", "0"], "workers: a job has at least 1 worker"),
        (["--bandwidth", "1Gbit/s"], "bandwidth: has no effect, leave it out: only a job uses it"),
        (["--duration-cv", "0.1"], "duration_cv: has no effect, leave it out: only a job uses it"),
        (["--what-if", "latency: 2x"], "what_if: has no effect, leave it out: only a job uses it"),
        (["--workers", "2", "--bandwidth", "fast"], 'bandwidth: cannot read "fast"'),
        (["--workers", "2", "--bandwidth", "0"], "bandwidth: input should be greater than 0"),
        (
            ["--workers", "2", "--bandwidth", "25"],
            'bandwidth: "25" has no unit: write a bandwidth as',
        ),
        (
            ["--workers", "2", "--bandwidth", "inf", "--latency", "1e-3"],
            'latency: "1e-3" has no unit',
        ),
        (["--workers", "2", "--bandwidth", "inf", "--strategy", " "], "strategy: empty: write ddp"),
        (
            ["--workers", "1000000000"],
            "workers: a job has at most 1,000,000 workers, not 1,000,000,000",
        ),
        (["--workers", ","], "workers: cannot read"),
        (["--workers", ""], "workers: cannot read"),
        (["--strategy", "dp=1000001"], "workers: a job has 1,000,000 at most"),
        (
            ["--strategy", "ps", "--workers", "2", "--servers", "1000001"],
            "servers: input should be",
        ),
        (["--strategy", "ps, servers=1000001", "--workers", "2"], "at most 1,000 servers"),
        (["--cluster", "nowhere.yaml"], 'no cluster file at "nowhere.yaml"'),
        (["--workers", "2", "--bandwidth", "inf", "--servers", "2"], "servers: has no effect"),
        (
            ["--workers", "2", "--bandwidth", "inf", "--what-if", "worker 2: compute 2x slower"],
            'what_if "worker 2: compute 2x slower": there are workers 0 to 1, not 2',
        ),
        (
            ["--workers", "2", "--bandwidth", "inf", "--what-if", "worker1 x0.5"],
            'what_if "worker1 x0.5": write SUBJECT: CHANGE',
        ),
        (
            ["--workers", "2", "--bandwidth", "inf", "--timeline-ranks", "0,2"],
            "timeline_ranks: there is no rank 2",
        ),
        (
            ["--workers", "2", "--bandwidth", "inf", "--timeline-ranks", "0..99999999999"],
            "timeline_ranks: there is no rank 99999999999: ranks are 0 to 1",
        ),
        (
            ["--workers", "2", "--bandwidth", "inf", "--duration-cv", "-1"],
            "duration_cv: input should be",
        ),
    ],
)
def test_bad_input_is_answered_in_one_line(
    asked: list[str], flags: list[str], message: str, capsys: Capture
) -> None:
    assert main([*asked, *flags]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_more_workers_than_the_cluster_has(
    asked: list[str], tmp_path: Path, capsys: Capture
) -> None:
    path = cluster_file(tmp_path)
    assert main([*asked, "--cluster", path, "--workers", "2,4..8"]) == 2
    assert "8 workers of a cluster that has 4: give 1 to 4" in capsys.readouterr().err
    assert main([*asked, "--cluster", path, "--bandwidth", "1Gbit/s"]) == 2
    assert (
        "bandwidth: has no effect, leave it out: the cluster file defines it"
        in capsys.readouterr().err
    )


def test_workers_without_a_path_between_them(
    asked: list[str], tmp_path: Path, capsys: Capture
) -> None:
    path = cluster_file(tmp_path, topology="star", servers=1)
    assert main([*asked, "--cluster", path]) == 2
    assert 'no link joins "worker0" and "worker1" in the star' in capsys.readouterr().err


def test_a_model_that_cannot_be_captured_split_is_split_by_estimate(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    pytest.importorskip("torch")
    nodes: list[Node] = []
    for layer, phase in ((0, "forward"), (1, "forward"), (1, "backward"), (0, "backward")):
        number = len(nodes)
        held = ((GRADIENTS, -1),) if phase == "backward" else ()
        before = (number - 1,) if nodes else ()
        name = f"h.{layer}.mlp.linear"
        nodes.append(Node(number, LINEAR, name, phase, dependencies=before, allocates=held))
    make_database(tmp_path / "a.db", [timing(LINEAR, 1e-3)])
    asked_for: list[str] = []

    def capture(options: CaptureOptions) -> Graph:
        asked_for.append(options.parallel)
        if options.parallel == "tensor":
            raise InputError("gpt2: its 12 heads cannot be split between 8 ranks")
        return build_graph(nodes, provenance={"examples": 8})

    monkeypatch.setattr("paracosm.graphs.capture.capture", capture)
    flags = ["predict", "--model", "gpt2", "--db", asked[4], "--hardware", "Old Chip"]
    job = ["--strategy", "tp=8", "--bandwidth", "inf"]
    assert main([*flags, *job]) == 0
    printed = capsys.readouterr().out
    assert asked_for == ["tensor", "none"]
    assert "12 heads cannot be split between 8 ranks. Each layer is split into 8 by" in printed
    summary = summary_of([*flags, *job], capsys)
    assert summary["iteration_time"] == pytest.approx(4e-3 / 8)
    assert "8" in summary["durations"]["splitting layers"]


def test_a_host_that_issues_ops_is_a_part_of_its_own(
    tmp_path: Path, asked: list[str], capsys: Capture
) -> None:
    make_database(tmp_path / "a.db", [timing(CONV, 50e-6, GPU), timing(RELU, 25e-6, GPU)])
    flags = [*asked[:-1], "H100", "--launch", "100us", "--workers", "2", "--bandwidth", "inf"]
    summary = summary_of(flags, capsys)
    assert summary["breakdown"]["mean"]["compute"] == pytest.approx(125e-6)
    # Three launches, and the last op: it computes in the shadow of the others.
    assert summary["iteration_time"] == pytest.approx(350e-6)
    assert summary["breakdown"]["mean"]["launch"] == pytest.approx(225e-6)
    assert summary["bottleneck"].startswith("Launching: the device is idle 64% of the iteration")


def test_servers_are_those_of_the_cluster(
    asked: list[str], tmp_path: Path, capsys: Capture
) -> None:
    path = cluster_file(tmp_path, servers=2)
    flags = [*asked, "--cluster", path, "--strategy"]
    assert summary_of([*flags, "ps"], capsys)["servers"] == 2
    assert summary_of([*flags, "ddp"], capsys)["servers"] == 0
    assert main([*flags, "ps, servers=3"]) == 2
    assert "servers=3, but the cluster has 2 servers" in capsys.readouterr().err


def test_a_server_has_rows_messages_and_memory_of_its_own(
    asked: list[str], tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "run"
    flags = [*asked, "--strategy", "ps", "--workers", "2", "--bandwidth", "100MB/s"]
    summary = summary_of([*flags, "--out", str(out)], capsys)
    assert summary["servers"] == 1
    kinds = [(each["first"], each["is_worker"]) for each in summary["breakdown"]["ranks"]]
    assert kinds == [("worker0", True), ("server0", False)]
    # The two workers share the server's link in, and then out.
    assert summary["iteration_time"] == pytest.approx(ALONE + 4 * GRADIENTS / 100e6)
    assert main(["trace", str(out), "--out", str(tmp_path / "trace.json"), "--quiet"]) == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert sorted(named) == ["server0", "worker0", "worker1"]
    assert [event["ph"] for event in events if event["ph"] in "sf"].count("f") == 4


LINKS = ["--workers", "4", "--latency", "10us", "--bandwidth", "100MB/s"]
RING = ["--strategy", "ddp, all_reduce=ring", *LINKS]
STEP = 10e-6 + GRADIENTS / 4 / 100e6  # of the 6 of a ring


def test_the_answer_says_what_twice_the_bandwidth_brings(asked: list[str], capsys: Capture) -> None:
    summary = summary_of([*asked, *RING], capsys)
    gain = summary["throughput"][-1]["if_twice_as_fast"]["links"]
    assert gain == pytest.approx((ALONE + 6 * STEP) / (ALONE + 6 * (10e-6 + 5e-6)) - 1)
    assert main([*asked, *RING]) == 0
    said = capsys.readouterr().out.splitlines()[1]  # after what is known of the timings
    # 4 x 8 examples in 500 + 6 x 20 us, of 4 x 8 in 500 us; 90 us of the 620 in place of 120.
    assert said.startswith(
        "4 workers give 51,613 examples/s, 80.6 % of ideal: an iteration takes 620 us"
    )
    assert said.endswith("Links twice as fast: +5%.")
    # Nobody waits for links without a limit, and nothing is asked of them.
    free = ["--strategy", "ddp", "--workers", "4", "--bandwidth", "inf"]
    assert "if_twice_as_fast" not in summary_of([*asked, *free], capsys)["throughput"][-1]


def test_the_answer_says_up_to_how_many_workers_half_of_ideal_is_kept(
    asked: list[str], capsys: Capture
) -> None:
    """Over links of 10 MB/s a ring of W takes 2 (W - 1) (10 us + 4 kB / W / 10 MB/s)."""
    flags = ["--strategy", "ddp, all_reduce=ring", "--latency", "10us", "--bandwidth", "10MB/s"]
    summary = summary_of([*asked, *flags, "--workers", "1,2,4"], capsys)
    ring = [2 * (w - 1) * (10e-6 + GRADIENTS / w / 10e6) for w in (1, 2, 4)]
    shares = [ALONE / (ALONE + each) for each in ring]
    assert [row["efficiency"] for row in summary["throughput"]] == pytest.approx(shares)
    assert shares[1] > 0.5 > shares[2]
    assert main([*asked, *flags, "--workers", "1,2,4"]) == 0
    assert "Efficiency is at least 50% up to 2 workers." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        (["links: bandwidth 2x"], ALONE + 6 * (10e-6 + GRADIENTS / 4 / 200e6)),
        (["bandwidth: 2x slower"], ALONE + 6 * (10e-6 + GRADIENTS / 4 / 50e6)),
        (["latency: 50 us"], ALONE + 6 * (STEP + 40e-6)),
        (["overhead: +1 us"], ALONE + 6 * (STEP + 1e-6)),
        # Every step waits for the slowest link.
        (["link 0-1: latency +5 us"], ALONE + 6 * (STEP + 5e-6)),
        (["all_reduce: +2 ms"], ALONE + 6 * STEP + 2e-3),
        (["collectives: 2x slower"], ALONE + 12 * STEP),
        (["all_reduce: none"], ALONE),
        # A tree over 4: log2(4) steps up, and as many down, of all bytes.
        (["all_reduce: algorithm tree"], ALONE + 4 * (10e-6 + GRADIENTS / 100e6)),
        (["compute: 2x faster"], ALONE / 2 + 6 * STEP),
        (["rank 2: compute 1.5x slower"], 1.5 * ALONE + 6 * STEP),
        (["workers 1..2: compute 3x slower", "latency: +1 us"], 3 * ALONE + 6 * (STEP + 1e-6)),
        (["workers: 8"], ALONE + 14 * (10e-6 + GRADIENTS / 8 / 100e6)),
    ],
)
def test_changes_beside_the_unchanged_prediction(
    asked: list[str], changes: list[str], seconds: float, capsys: Capture
) -> None:
    flags = [flag for change in changes for flag in ("--what-if", change)]
    summary = summary_of([*asked, *RING, *flags], capsys)
    assert summary["iteration_time"] == pytest.approx(seconds, abs=1e-9)
    assert summary["what_if"] == changes
    assert summary["unchanged"]["iteration_time"] == pytest.approx(ALONE + 6 * STEP, abs=1e-9)
    plain = summary_of([*asked, *RING], capsys)
    assert {key: plain[key] for key in summary["unchanged"]} == summary["unchanged"]
    assert "unchanged" not in plain


def test_changes_of_servers_and_of_a_sweep(asked: list[str], capsys: Capture) -> None:
    """At 1 MB/s 4 kB take 4 ms each way, shared by all; over the slow link 32 ms."""
    flags = ["--strategy", "ps", "--bandwidth", "1MB/s", "--workers", "1,2,4"]
    summary = summary_of(
        [
            *asked,
            *flags,
            "--what-if",
            "link worker3-server0: bandwidth 8x slower",
            "--what-if",
            "workers 2..3: compute 1.5x slower",
        ],
        capsys,
    )
    times = [row["iteration_time"] for row in summary["throughput"]]
    before = [row["iteration_time"] for row in summary["unchanged"]["throughput"]]
    assert before == pytest.approx([ALONE + 8e-3 * workers for workers in (1, 2, 4)])
    # The slower workers and the slow link are not among the first two.
    assert times[:2] == pytest.approx(before[:2])
    assert times[2] == pytest.approx(1.5 * ALONE + 64e-3)


def test_the_cluster_is_described_with_units(asked: list[str], capsys: Capture) -> None:
    flags = [
        *RING,
        "--overhead",
        "1us",
        "--duplex",
        "half",
        "--no-pipelined",
        "--sharing",
        "serial",
    ]
    summary = summary_of([*asked, *flags, "--what-if", "latency: 2x"], capsys)
    links = {"bandwidth": "800 Mbit/s", "latency": "20 us", "overhead": "1 us", "duplex": "half"}
    assert summary["cluster"]["links"] == {**links, "pipelined": "no", "sharing": "serial"}
    assert summary["unchanged"]["cluster"]["links"]["latency"] == "10 us"
    assert main([*asked, *flags, "--what-if", "latency: 2x"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "unchanged" in said
    assert "(with the changes +" in said
    assert "links of 800 Mbit/s, latency 20 us, overhead 1 us a message, half duplex" in said


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("worker 3: +10 ms", "predict cannot change that; it can change how fast"),
        ("copies: 2x faster", "predict cannot change that; it can change how fast"),
        ("compute: none", "predict cannot change that; it can change how fast"),
        ("server 0: compute 2x slower", "the cluster has no servers on nodes of their own"),
        ("worker 4: compute 2x slower", "there are workers 0 to 3, not 4"),
        ("all_gather: +2 ms", "has no effect: the job has all_reduce"),
        ("all_reduce: algorithm rong", 'unknown algorithm for all_reduce "rong"'),
        ("overhead: 2x", "has no effect: there is no overhead"),
        ("workers: 1000000001", "a job has 1 to 1,000,000 workers"),
    ],
)
def test_changes_that_cannot_be_made(
    asked: list[str], change: str, reason: str, capsys: Capture
) -> None:
    assert main([*asked, *RING, "--what-if", change]) == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1


def test_a_number_of_workers_is_no_change_of_a_sweep(asked: list[str], capsys: Capture) -> None:
    flags = ["--workers", "2,4", "--bandwidth", "inf", "--what-if", "workers: 8"]
    assert main([*asked, *flags]) == 2
    assert 'what_if "workers: 8": workers already lists several numbers' in capsys.readouterr().err
