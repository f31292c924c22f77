"""Job profiles from Kineto traces written by hand, with times that are known."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kineto_by_hand import (
    Event,
    backward,
    forward,
    gradient,
    kernel,
    launch,
    mark,
    span,
    step_of,
    without,
    written,
)
from profile_totals import moved, seconds

from paracosm.cli import main
from paracosm.errors import InputError
from paracosm.profiling.jobs import DOWNLINK, SERVER, UPLINK, WORKER
from paracosm.profiling.jobs.file import load_job_profile
from paracosm.profiling.jobs.kineto import job_profile_of_trace


def test_two_layers_by_hand(tmp_path: Path) -> None:
    profile = job_profile_of_trace(written(tmp_path, step_of(0, 0) + step_of(1, 103)))
    assert profile.names == (
        *("pull first 3x2", "pull second 5x3"),
        *("host", "aten::first", "host#2", "aten::second", "host#3", "MmBackward0", "host#4"),
        *("torch::autograd::AccumulateGrad", "host#5", "MmBackward0#2", "host#6"),
        *("torch::autograd::AccumulateGrad#2", "host#7", "host#8"),
        *("push second 5x3", "push first 3x2", "update second 5x3", "update first 3x2"),
    )
    assert profile.size.tolist() == [24, 60, *[0] * 14, 60, 24, 0, 0]
    assert [profile.waits_for(op).tolist() for op in range(profile.ops)] == [
        *([], [], [], [2, 0], [3], [4, 1]),
        *([op - 1] for op in range(6, 15)),
        # What follows the optimizer waits for the updates.
        *([14, 18, 19], [9], [13], [16], [17]),
    ]
    # 10 us of the optimizer: 60 of 84 bytes, and 24 of them.
    long, short = 10 * 60 / 84, 10 * 24 / 84
    begin = [0, 0, 0, 5, 15, 20, 40, 40, 60, 60, 70, 72, 80, 80, 85, 85 + short + 1 - 1]
    end = [0, 0, 5, 15, 20, 40, 40, 60, 60, 70, 72, 80, 80, 85, 86, 85 + short + 4]
    for times, worker, servers in (
        (profile.begin, begin, [70, 85, 70, 85]),
        (profile.end, end, [70, 85, 70 + long, 85 + short]),
    ):
        for step in times:
            assert step * 1e6 == pytest.approx([*worker, *servers])
    assert profile.step_begin * 1e6 == pytest.approx([0, 85 + short + 4 + 3])
    assert profile.step_end * 1e6 == pytest.approx([85 + short + 4, 2 * (85 + short + 4) + 3])
    assert profile.provenance["placed"] == {"sequence number": 2}


def test_servers_get_parameters_by_bytes(tmp_path: Path) -> None:
    profile = job_profile_of_trace(written(tmp_path, step_of(0, 0)), servers=2)
    # The first layer's 24 bytes go to the first server, the second's 60 to the other.
    assert profile.server[:2].tolist() == [0, 1]
    assert profile.server[-4:].tolist() == [1, 0, 1, 0]
    with pytest.raises(InputError, match="servers: 0, but at least 1 is needed"):
        job_profile_of_trace(written(tmp_path, step_of(0, 0)), servers=0)


def test_a_trace_without_an_optimizer_has_updates_of_no_time(tmp_path: Path) -> None:
    events = [each for each in step_of(0, 0) if "Optimizer" not in each["name"]]
    profile = job_profile_of_trace(written(tmp_path, events))
    assert seconds(profile, SERVER).tolist() == [0]
    assert seconds(profile, WORKER) == pytest.approx([100e-6])
    assert "no optimizer" in profile.provenance["updates"]


def test_steps_of_other_ops_are_left_out_and_counted(tmp_path: Path) -> None:
    odd = [*step_of(1, 100), span("aten::item", 197, 1)]
    bare = [each for each in step_of(3, 300) if "Accumulate" not in each["name"]]
    events = [*step_of(0, 0), *odd, *step_of(2, 200), *bare]
    profile = job_profile_of_trace(written(tmp_path, events))
    assert profile.provenance["steps"] == [0, 2]
    assert profile.dropped == {"no gradients": 1, "other ops than in most steps": 1}


def test_on_a_device_the_worker_is_what_ran_there(tmp_path: Path) -> None:
    """The device is 100 us behind the host: its first step is longer by that."""

    def launched(step: int) -> list[Event]:
        at, first = 100 * step, 10 * step
        return [
            # The first layer launches two kernels, of which the other's stream is beside the first,
            # the gradients' ops none; the optimizer's range has one.
            *(launch(at + 6, first), launch(at + 8, first + 1), launch(at + 21, first + 2)),
            *(launch(at + 41, first + 3), launch(at + 73, first + 4), launch(at + 88, first + 5)),
            kernel("a", at + 110, 10, first),
            kernel("b", at + 115, 10, first + 1, stream=8),
            kernel("c", at + 130, 20, first + 2),
            kernel("d", at + 150, 15, first + 3),
            kernel("e", at + 165, 20, first + 4),
            kernel("f", at + 185, 15, first + 5),
        ]

    events = [*step_of(0, 0), *launched(0), *step_of(1, 100), *launched(1)]
    profile = job_profile_of_trace(written(tmp_path, events))
    assert profile.provenance["device"] == "cuda"
    work = profile.resource == WORKER
    assert [name for name, mine in zip(profile.names, work, strict=True) if mine] == [
        *("host", "aten::first", "host#2", "aten::second", "host#3", "MmBackward0"),
        *("host#4", "MmBackward0#2", "host#5", "host#6"),
    ]
    lasted = (profile.end - profile.begin)[:, work] * 1e6
    assert lasted[0] == pytest.approx([110, 15, 5, 20, 0, 15, 0, 20, 0, 0])
    # The second step begins on the device when it has done the first: 200 us from the origin.
    assert lasted[1] == pytest.approx([10, 15, 5, 20, 0, 15, 0, 20, 0, 0])
    assert seconds(profile, SERVER) == pytest.approx([15e-6, 15e-6])
    waits = {
        profile.names[op]: [profile.names[d] for d in profile.waits_for(op)]
        for op in range(profile.ops)
    }
    assert waits["aten::first"] == ["host", "pull first 3x2"]
    assert waits["aten::second"] == ["host#2", "pull second 5x3"]
    assert waits["push second 5x3"] == ["MmBackward0"]
    assert waits["push first 3x2"] == ["MmBackward0#2"]
    assert waits["host#6"] == ["host#5", "update second 5x3", "update first 3x2"]


@pytest.mark.parametrize("damage", ["dropped", "ts 0"])
def test_a_step_whose_kernels_were_not_recorded_is_left_out(
    damage: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The steps of 15 us on the device stay; that of one kernel is none of them."""
    events = []
    for number in range(3):
        at, first = 1000 + 100 * number, 3 * number
        bad = number == 1
        last = kernel("c", at + 60, 10, first + 2)
        if bad and damage == "ts 0":
            last |= {"ts": 0, "dur": 0}
        events += [
            *step_of(number, at),
            *(launch(at + 6, first), launch(at + 21, first + 1), launch(at + 41, first + 2)),
            *(kernel("a", at + 10, 5, first), kernel("b", at + 30, 10, first + 1)),
            *([] if bad and damage == "dropped" else [last]),
        ]
    path = written(tmp_path, events)
    profile = job_profile_of_trace(path)
    assert profile.provenance["steps"] == [0, 2]
    assert list(profile.dropped.values()) == [1]
    assert main(["profile", "import", str(path), "--out", str(tmp_path / "job.profile")]) == 0
    assert "left out: 1 step: 1 of 3 launches" in capsys.readouterr().out


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, step_of(0, 0) + step_of(1, 103))
    out = tmp_path / "job.profile"
    assert (
        main(["profile", "import", str(path), "--servers", "2", "--out", str(out), "--quiet"]) == 0
    )
    kept, made = load_job_profile(out), job_profile_of_trace(path, servers=2)
    assert kept.names == made.names
    assert kept.provenance == made.provenance
    assert np.array_equal(kept.server, made.server)
    assert np.array_equal(kept.end, made.end)
    capsys.readouterr()
    written(tmp_path, step_of(0, 0), distributedInfo={"rank": 1, "world_size": 4})
    assert main(["profile", "import", str(path), "--out", str(tmp_path / "other")]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"paracosm: {path}: rank 1 of a job of 4 ranks")


def test_one_step_without_marks(tmp_path: Path) -> None:
    profile = job_profile_of_trace(written(tmp_path, without(step_of(0, 0), "ProfilerStep")))
    assert profile.steps == 1
    assert moved(profile, UPLINK) == 84


def test_a_trace_that_is_cut_off(tmp_path: Path) -> None:
    path = written(tmp_path, step_of(0, 0))
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="cut off at byte"):
        job_profile_of_trace(path)
    packed = tmp_path / "trace.json.gz"
    packed.write_bytes(gzip.compress(whole))
    assert job_profile_of_trace(packed).ops == 20


Layer = tuple[list[int], list[int], float]


def microseconds(least: float, most: float) -> st.SearchStrategy[float]:
    """Return durations of whole nanoseconds."""
    return st.integers(round(1e3 * least), round(1e3 * most)).map(lambda each: each / 1e3)


@settings(deadline=None, max_examples=40)
@example(layers=[([1], [], 1.9)], between=0.0, update=1.0, servers=1)  # 3.8 + 1.9 = 5.699999...
@given(
    layers=st.lists(
        st.tuples(
            st.lists(st.integers(1, 9), min_size=1, max_size=4),
            # Which layers before it are used once more by this one; their parameters' gradients
            # are whole where they were used first.
            st.lists(st.integers(0, 20), max_size=2),
            microseconds(0.5, 20),
        ),
        min_size=1,
        max_size=6,
    ),
    between=microseconds(0, 3),
    update=microseconds(0.5, 50),
    servers=st.integers(1, 3),
)
def test_any_chain_of_layers(
    layers: list[Layer],
    between: float,
    update: float,
    servers: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("chain")
    profile = job_profile_of_trace(written(path, chain(layers, between, update)), servers=servers)
    sizes = [4 * int(np.prod(shape)) for shape, _, _ in layers]
    pulls, pushes, updates, work = (
        np.flatnonzero(profile.resource == each) for each in (DOWNLINK, UPLINK, SERVER, WORKER)
    )
    assert profile.size[pulls].tolist() == sizes
    assert profile.size[pushes].tolist() == sizes[::-1]
    for at, pull in enumerate(pulls):
        needers = [profile.names[op] for op in work if pull in profile.waits_for(op)]
        assert needers == [f"aten::layer{at}"]
    makers = [int(profile.waits_for(push)[0]) for push in pushes]
    assert makers == sorted(makers)
    assert {profile.kinds[op] for op in makers} == {"torch::autograd::AccumulateGrad"}
    # Nothing is lost: worker and optimizer are the whole step, to the nanosecond of each span.
    spans = 4 * len(layers) + 2
    assert seconds(profile, SERVER)[0] == pytest.approx(update * 1e-6, abs=2e-9)
    total = seconds(profile, WORKER)[0] + seconds(profile, SERVER)[0]
    assert total == pytest.approx(length(layers, between, update) * 1e-6, abs=2e-9 * spans)
    for op in range(profile.ops):
        for before in profile.waits_for(op):
            assert profile.end[0, before] <= profile.begin[0, op] + 1e-12
    # Servers are given bytes evenly, up to one parameter.
    held = [
        int(profile.size[pulls][profile.server[pulls] == each].sum()) for each in range(servers)
    ]
    assert max(held) - min(held) <= max(sizes)
    assert np.array_equal(np.sort(profile.server[pushes]), np.sort(profile.server[updates]))


def length(layers: list[Layer], between: float, update: float) -> float:
    computing = sum(3 * taken for _, _, taken in layers)
    return computing + between * (3 * len(layers) + 1) + update


def chain(layers: list[Layer], between: float, update: float) -> list[Event]:
    """Return a step of layers one after another; backward takes as long as forward, twice."""
    now, events = 0.0, []

    def after(taken: float) -> float:
        nonlocal now
        begin = round(now + between, 3)  # to the nanosecond, as PyTorch writes it
        now = round(begin + taken, 3)
        return begin

    for at, (shape, again, taken) in enumerate(layers):
        used = [shape, *(layers[each][0] for each in again if each < at)]
        events.append(forward(f"aten::layer{at}", after(taken), taken, at, [4, 4], *used))
    for at, (shape, _, taken) in reversed(list(enumerate(layers))):
        events.append(backward(after(taken), taken, at))
        events += gradient(after(taken), taken, shape)
    events.append(mark("Optimizer.step#SGD.step", after(update), update))
    return [mark("ProfilerStep#0", 0, now), *events]
