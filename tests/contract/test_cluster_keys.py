"""Every key of the cluster file through every command: the time by hand, or a refusal by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from one_step import ALL_REDUCE, ASYNCHRONOUS_STEP, CLUSTERS

from paracosm.cli import main
from paracosm.emulation.communication import communication_of
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.device import recording
from paracosm.emulation.device.config import DeviceEmulateConfig
from paracosm.emulation.device.durations import device_durations
from paracosm.emulation.device.recording import (
    COLLECTIVE,
    OP,
    WAIT,
    Call,
    RecordingWriter,
)
from paracosm.emulation.device.summary import played
from paracosm.emulation.ports import Ports
from paracosm.errors import InputError
from paracosm.graphs import Node, Op, build_graph, save_graph
from paracosm.prediction.parameter_servers.config import ThroughputConfig
from paracosm.prediction.parameter_servers.target import target_job
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER, JobProfile
from paracosm.profiling.jobs.file import save_job_profile
from paracosm.simulation.simulate import simulate

Capture = pytest.CaptureFixture[str]


def summary_of(capsys: Capture, *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    code = main([str(argument) for argument in (*arguments, "--json")])
    out, err = capsys.readouterr()
    assert code == 0, err
    summary: dict[str, Any] = json.loads(out)
    return summary


# The kernels of jobs are compiled for each rule of sharing, which takes longer than all else here.
# The rules themselves are held to plain programs in tests/network, and packets to training below.
JOBS = [
    pytest.param(name, marks=pytest.mark.slow if "packets" in name else ()) for name in CLUSTERS
]


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(CLUSTERS[request.param]))
    return request.param, path


@pytest.fixture
def timed_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A step of 50 ms forward and 50 ms backward with one gradient of 100 kB."""
    monkeypatch.chdir(tmp_path)  # where no database is
    gradient = ((100_000, -1),)
    nodes = [
        Node(0, Op("matmul"), phase="forward", duration=0.05),
        Node(1, Op("grad"), phase="backward", dependencies=(0,), duration=0.05, allocates=gradient),
    ]
    path = tmp_path / "step.graph"
    save_graph(build_graph(nodes, provenance={"examples": 1}), path)
    return path


def flags_of(name: str) -> list[str] | None:
    """Return the flags that describe the same links; None where there are none for it."""
    mapping = CLUSTERS[name]
    links = mapping["links"]
    if mapping["topology"] != "switch" or mapping["workers"] != 2 or "placement" in mapping:
        return None
    if "overrides" in links:
        return None
    flags = []
    for key, value in links["default"].items():
        no = "no-" if value is False else ""
        flags += [f"--{no}{key}"] if isinstance(value, bool) else [f"--{key}", value]
    return flags


BY_FLAGS = [name for name in CLUSTERS if flags_of(name) is not None]


def without_servers(name: str, path: Path) -> Path:
    """Write the cluster without its servers; a link of its own then joins the workers."""
    mapping = {k: v for k, v in CLUSTERS[name].items() if k not in ("servers", "placement")}
    if "overrides" in mapping["links"]:
        slow = {"overrides": [{"between": ["worker0", "worker1"], "bandwidth": "250kB/s"}]}
        mapping = mapping | {"links": mapping["links"] | slow}
    path.write_text(yaml.safe_dump(mapping))
    return path


STEP = ("--algorithm", "asgd", "--compute", "100ms", "--message-size", "100kB")


@pytest.mark.parametrize("engine", [False, True], ids=["compiled", "engine"])
def test_train(cluster: tuple[str, Path], engine: bool, capsys: Capture) -> None:
    name, path = cluster
    how = "--timeline" if engine else "--no-timeline"
    # Where the server is on a's node, a has made a second update before b's first.
    updates = ("--updates", 3 if "placement" in name else 2)
    summary = summary_of(capsys, "train", "--cluster", path, *STEP, *updates, "--timing-only", how)
    assert summary["virtual_time"] == pytest.approx(ASYNCHRONOUS_STEP[name], rel=1e-9)


@pytest.mark.parametrize("cluster", JOBS, indirect=True)
def test_parameter_server_strategy(
    cluster: tuple[str, Path],
    timed_graph: Path,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    name, path = cluster
    summary = summary_of(
        capsys,
        "predict",
        "--graph",
        timed_graph,
        "--strategy",
        "ps-async, iterations=1",
        "--cluster",
        path,
    )
    assert summary["iteration_time"] == pytest.approx(ASYNCHRONOUS_STEP[name], rel=1e-9)


def test_all_reduce_strategy(
    cluster: tuple[str, Path],
    timed_graph: Path,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    name, path = cluster
    without_servers(name, path)
    strategy = ("--strategy", "ddp, all_reduce=ring")
    summary = summary_of(capsys, "predict", "--graph", timed_graph, *strategy, "--cluster", path)
    compute = 0.25 if name == "speed" else 0.1
    assert summary["iteration_time"] == pytest.approx(compute + ALL_REDUCE[name], rel=1e-9)


@pytest.mark.parametrize("name", BY_FLAGS)
def test_train_by_flags(name: str, capsys: Capture) -> None:
    flags = (*(flags_of(name) or ()), "--workers", 2)
    summary = summary_of(capsys, "train", *flags, *STEP, "--updates", 2, "--timing-only")
    assert summary["virtual_time"] == pytest.approx(ASYNCHRONOUS_STEP[name], rel=1e-9)


@pytest.mark.parametrize("name", BY_FLAGS)
def test_strategies_by_flags(name: str, timed_graph: Path, capsys: Capture) -> None:
    flags = ("predict", "--graph", timed_graph, *(flags_of(name) or ()), "--workers", 2)
    servers = summary_of(capsys, *flags, "--strategy", "ps-async, iterations=1")
    assert servers["iteration_time"] == pytest.approx(ASYNCHRONOUS_STEP[name], rel=1e-9)
    ring = summary_of(capsys, *flags, "--strategy", "ddp, all_reduce=ring")
    assert ring["iteration_time"] == pytest.approx(0.1 + ALL_REDUCE[name], rel=1e-9)


def compute_first(tmp_path: Path) -> Path:
    """Write a profile of one step that computes, pushes, waits for the update, and pulls."""
    profile = JobProfile(
        names=("compute", "push", "update", "pull"),
        kinds=("MatMul", "Recv", "Apply", "Recv"),
        resource=np.array([WORKER, UPLINK, SERVER, DOWNLINK], np.int8),
        server=np.zeros(4, np.int64),
        size=np.array([0, 100_000, 0, 100_000]),
        first_dependency=np.array([0, 0, 1, 2, 3]),
        dependencies=np.array([0, 1, 2]),
        begin=np.array([[0.0, 0.1, 1.1, 1.1]]),
        end=np.array([[0.1, 1.1, 1.1, 2.1]]),
        step_begin=np.array([0.0]),
        step_end=np.array([2.1]),
    )
    path = tmp_path / "job.profile"
    save_job_profile(profile, path)
    return path


REFUSED_BY_PROFILES = {"placement": "placement", "hierarchical": "hierarchical"}


@pytest.mark.parametrize("cluster", JOBS, indirect=True)
def test_job_profile(cluster: tuple[str, Path], tmp_path: Path, capsys: Capture) -> None:
    """The first step of both workers in the simulation that throughput is measured in."""
    name, path = cluster
    profile = compute_first(tmp_path)
    for part, key in REFUSED_BY_PROFILES.items():
        if part in name:
            command = ["predict", str(profile), "--cluster", str(path), "--no-flow-control"]
            assert main(command) == 2
            assert key in capsys.readouterr().err
            return
    config = ThroughputConfig(profile=profile, cluster=path, flow_control=False)
    job = target_job(config.job_profile, config.settings, seed=0)
    simulated = simulate(job.workload, job.system(config.settings.ports), np.zeros((2, 1), int))
    assert simulated.step_end.max() == pytest.approx(ASYNCHRONOUS_STEP[name], rel=1e-9)


def test_emulate(cluster: tuple[str, Path], capsys: Capture) -> None:
    """An all-reduce of both ranks, from when both have come to it."""
    name, path = cluster
    config = EmulateConfig(world_size=2, cluster=without_servers(name, path), algorithm="ring")
    cost = communication_of(config).cost("all_reduce", (0, 1), 100_000, 0, -1)
    done = Ports(config.shared).ask("group", "all", 1, 0.0, 0.0, cost).done
    assert done == pytest.approx(ALL_REDUCE[name], rel=1e-9)


def test_emulate_hardware(
    cluster: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An op and an all-reduce of both ranks that its stream waits for, from a recording."""
    name, path = cluster
    config = DeviceEmulateConfig(
        hardware="h100-sxm",
        world_size=2,
        cluster=without_servers(name, path),
        algorithm="ring",
        launch=0.0,
    )
    if "packets" in name:
        with pytest.raises(InputError, match="sharing packets"):
            config.resolve_cluster()
        return
    writer = RecordingWriter(0, 2, "h100-sxm", groups={"all": (0, 1)})
    code = writer.op_code(Op("aten.add.Tensor", "", 0, 1 << 30, 1 << 30))
    for number in range(3):
        writer.add(OP, 0, code=code, phase=0)
        call = Call("all_reduce", 100_000, "all")
        writer.add(COLLECTIVE, 0, code=writer.call_code(call), number=number)
        writer.add(WAIT, 0, number=number)
        writer.add(recording.STEP, 0)
    made = writer.recording([])
    compute = device_durations(made, config.device).seconds[code]
    slowest = compute / 0.4 if name == "speed" else compute
    time = played(config, [made]).iteration_time
    assert time == pytest.approx(slowest + ALL_REDUCE[name], rel=1e-9)


NO_USE_FOR_SERVERS = {
    "relax": ["relax", "--problem", "laplace2d:4"],
    "emulate": ["emulate"],
    "emulate --hardware": ["emulate", "--hardware", "h100-sxm"],
}


@pytest.mark.parametrize("command", NO_USE_FOR_SERVERS)
def test_servers_that_nobody_can_use_are_refused(
    command: str, tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(CLUSTERS["fair"]))
    arguments = [*NO_USE_FOR_SERVERS[command], "--cluster", str(path)]
    if command.startswith("emulate"):
        arguments += [__file__]  # what follows the script is the script's own
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "servers" in line
