"""Jobs that really run, on the loopback: what is profiled, what is learnt, and how they fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from paracosm.errors import InputError
from paracosm.profiling.jobs.job_profile import (
    DOWNLINK,
    SERVER,
    UPLINK,
    WORKER,
    JobProfile,
    check_job_profile,
)
from paracosm.profiling.jobs.pytorch.job import Job, profile_module, started
from paracosm.profiling.jobs.pytorch.options import JobOptions, Node, Setup
from paracosm.profiling.processes import WorkerError

TINY = """
import torch
from torch import nn

def make(batch):
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Linear(4, 3))
    return module, torch.randn(batch, 6)

def fail():
    raise OSError("no data here")
"""
SIZES = {"0.weight": 120, "0.bias": 20, "2.weight": 80, "2.bias": 16, "3.weight": 48, "3.bias": 12}
LAYERS = ("0", "2", "3")
PROCESS = "paracosm.profiling.jobs.pytorch.process"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> JobOptions:
    file = tmp_path_factory.mktemp("model") / "tiny_for_servers.py"
    file.write_text(TINY)
    return JobOptions(f"{file}:make", batch=4, lr=0.1, waiting=(0.006, 0.012), timeout=300)


@pytest.fixture(scope="module")
def two_servers(options: JobOptions) -> Iterator[tuple[Job, JobProfile]]:
    def interrupt(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    two = replace(options, servers=2)
    with started(two, 1, PROCESS) as processes:
        job = Job(two, processes)
        yield job, job.profile(1000, interrupt)


def test_a_profile_has_every_op_with_its_bytes_and_what_it_waits_for(
    two_servers: tuple[Job, JobProfile],
) -> None:
    profile = two_servers[1]
    assert check_job_profile(profile, "own") is profile
    assert min(profile.provenance["goodput"].values()) > 1e6
    assert (profile.steps, profile.batch, profile.servers) == (3, 4, 2)
    place = {name: op for op, name in enumerate(profile.names)}
    resource = {"pull": DOWNLINK, "forward": WORKER, "backward": WORKER}
    resource |= {"push": UPLINK, "update": SERVER}
    assert profile.resource.tolist() == [resource[n.split("/")[0]] for n in profile.names]
    for number, (name, size) in enumerate(SIZES.items()):
        for what, carried in (("pull", size), ("push", size), ("update", 0)):
            assert profile.size[place[f"{what}/{name}"]] == carried
            assert profile.server[place[f"{what}/{name}"]] == number % 2
    waits = {
        name: {profile.names[other] for other in profile.waits_for(op)}
        for name, op in place.items()
    }
    before = "forward/inputs"
    for layer in LAYERS:
        pulls = {f"pull/{layer}.weight", f"pull/{layer}.bias"}
        assert waits[f"forward/{layer}"] == {before, *pulls}
        before = f"forward/{layer}"
    backward = [name for name in profile.names if name.startswith("backward/")]
    assert {name.split("/")[1] for name in backward} == set(SIZES)
    for name in backward:  # one line after the other
        assert waits[name] == {before}
        before = name
    for name in SIZES:
        assert waits[f"push/{name}"] == {f"backward/{name}"}
        assert waits[f"update/{name}"] == {f"push/{name}"}
        assert waits[f"pull/{name}"] == set()


def test_no_op_of_a_profile_begins_before_what_it_waits_for_has_ended(
    two_servers: tuple[Job, JobProfile],
) -> None:
    profile = two_servers[1]
    for op in range(profile.ops):
        for other in profile.waits_for(op):
            assert (profile.begin[:, op] >= profile.end[:, other]).all()
    assert (profile.end >= profile.begin).all()
    assert (profile.end <= (profile.step_end - profile.step_begin)[:, None]).all()
    assert (profile.step_begin[1:] >= profile.step_end[:-1]).all()


def test_the_passes_take_the_seconds_that_are_waited_shared_by_their_flops(
    two_servers: tuple[Job, JobProfile],
) -> None:
    profile = two_servers[1]
    seconds = (profile.end - profile.begin).min(axis=0)
    taken = dict(zip(profile.names, seconds, strict=True))
    # The layers multiply with 30, 20 and 12 numbers for each of the examples.
    for layer, share in zip(LAYERS, (30 / 62, 20 / 62, 12 / 62), strict=True):
        assert taken[f"forward/{layer}"] >= 0.006 * share
    backward = [name for name in taken if name.startswith("backward/")]
    assert sum(taken[name] for name in backward) >= 0.012


@pytest.mark.slow
def test_a_port_by_waiting_makes_transfers_as_long_as_their_bytes(options: JobOptions) -> None:
    profile = profile_module(replace(options, port=10_000.0), 3)
    total = sum(SIZES.values())
    taken = profile.end - profile.begin
    pulls = [op for op, name in enumerate(profile.names) if name.startswith("pull/")]
    assert (taken[:, pulls].max(axis=1) >= total / 10_000).all()
    for name, size in SIZES.items():
        assert (taken[:, profile.names.index(f"push/{name}")] >= size / 10_000).all()
    assert profile.bandwidth == 10_000


def test_ctrl_c_keeps_the_steps_that_there_are(two_servers: tuple[Job, JobProfile]) -> None:
    profile = two_servers[1]
    assert profile.steps == 3
    assert profile.provenance["ended"] == "interrupted"


@contextmanager
def death_of(job: Job, number: int) -> Iterator[None]:
    """End a process of the job a little later."""
    killing = threading.Timer(0.3, os.kill, (job.processes.pids[number], signal.SIGKILL))
    killing.start()
    yield
    killing.join()


# This one ends the job of the fixture: it comes after all that use it.
def test_a_server_that_dies_is_named_in_one_line(two_servers: tuple[Job, JobProfile]) -> None:
    job = two_servers[0]

    def go_on() -> None:  # with the steps that nobody waits for since the interruption
        for step in range(1000):
            job.processes.answers(f"step {step}", [2])

    with death_of(job, 1), pytest.raises(WorkerError, match=r"^server 1 was ended by SIGKILL$"):
        go_on()


def test_a_failing_model_ends_all_processes_with_its_own_message(options: JobOptions) -> None:
    processes: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def noted(*arguments: object, **settings: object) -> subprocess.Popen[bytes]:
        processes.append(popen(*arguments, **settings))  # type: ignore[call-overload]
        return processes[-1]

    failing = replace(options, model=options.model.replace(":make", ":fail"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", noted)
        with pytest.raises(InputError, match="failed: OSError: no data here"):
            profile_module(failing, 3)
    assert len(processes) == 2
    assert all(process.poll() is not None for process in processes)


@pytest.mark.slow
def test_a_process_ends_with_who_started_it(options: JobOptions, tmp_path: Path) -> None:
    """It waits for others that never come; its input ends when the one that it serves does."""
    setup = Setup(options, rank=1, workers=1, interface=None, store=str(tmp_path / "store"))
    command = [sys.executable, "-m", PROCESS, json.dumps(asdict(setup))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    until = time.monotonic() + 60
    while not Path(setup.store).exists() and time.monotonic() < until:
        time.sleep(0.02)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.2)
    process.communicate(timeout=300)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": "resnet19"}, 'unknown model "resnet19": did you mean "resnet18"?'),
        ({"model": "nowhere/train.py:make"}, "no such file: nowhere/train.py"),
        (
            {"model": "train.py"},
            "name the function that makes it: train.py:make_model",
        ),
        ({"servers": 0}, "servers: 0, but at least 1 is needed"),
        ({"lr": float("nan")}, "lr: nan, not above 0"),
        ({"port": 0.0}, "port: 0 bytes/s, not above 0"),
        ({"noise": 0.1}, "noise: it is that of the waiting"),
        ({"data": "digitz"}, 'unknown data set "digitz": did you mean "digits"?'),
        ({"data": "digits", "classes": 10}, 'classes: the data set "digits" has its own'),
        ({"data_dir": "here"}, "data_dir: no effect without data"),
        ({"waiting": (0.1, -1.0)}, "waiting: give the seconds"),
        ({"batch": 0}, "batch: 0, but at least 1 is needed"),
        ({"threads": 10**6}, "cores, not 1000000"),
        ({"batch": 10**9}, "batch: 1,000,000,000, but 1,000,000 examples at most"),
    ],
)
def test_what_cannot_be_is_refused_at_once(changed: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as refused:
        JobOptions(**{"model": "mlp", **changed})  # type: ignore[arg-type]
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_too_few_nodes_and_steps_are_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("something was started"))
    options = JobOptions("mlp", nodes=(Node(), Node()))
    with (
        pytest.raises(InputError, match="nodes: 2, but 3 are needed"),
        started(options, 2, PROCESS),
    ):
        pass
    with pytest.raises(InputError, match="steps: 0, but at least 1 is needed"):
        profile_module(options, 0)
