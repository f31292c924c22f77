"""TensorFlow's traces as job profiles: by hand, and of TensorFlow 2.21."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced_steps import WORKER, Op, graph, op, plain_step, receive, run_metadata, server

from paracosm.errors import InputError
from paracosm.profiling.jobs.job_profile import DOWNLINK, RESOURCES, UPLINK, JobProfile
from paracosm.profiling.jobs.tensorflow.read import clock_offset, read_steps

DATA = Path(__file__).parents[2] / "data" / "tensorflow_job"
PERIOD = 3000.0  # microseconds from step to step
Write = Callable[[Sequence[Sequence[Op]]], list[Path]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write steps one after the other, a file each."""

    def written(steps: Sequence[Sequence[Op]]) -> list[Path]:
        paths = [tmp_path / f"step-{number}.pb" for number in range(len(steps))]
        for number, (path, step) in enumerate(zip(paths, steps, strict=True)):
            path.write_bytes(run_metadata(step, after=number * PERIOD))
        return paths

    return written


def without(step: Sequence[Op], name: str) -> list[Op]:
    return [each for each in step if name not in (each.name, each.label.split(" ")[2])]


def changed(step: Sequence[Op], name: str, **values: float | None) -> list[Op]:
    return [replace(each, **values) if each.name == name else each for each in step]  # type: ignore[arg-type]


def waits(profile: JobProfile) -> dict[str, set[str]]:
    return {
        name: {profile.names[other] for other in profile.waits_for(number)}
        for number, name in enumerate(profile.names)
    }


def test_a_step_becomes_ops_with_resources_bytes_dependencies_and_times(write: Write) -> None:
    profile = read_steps(write([plain_step()] * 3))
    assert waits(profile) == {
        "x": set(),
        "w": set(),
        "w/read": {"w"},
        "edge_7_w/read": {"w/read"},
        "y": {"x", "edge_7_w/read"},
        "gradients/y": {"x", "y"},
        "edge_9_gradients/y": {"gradients/y"},
        "update": {"w", "edge_9_gradients/y"},
    }
    resources = {n: RESOURCES[r] for n, r in zip(profile.names, profile.resource, strict=True)}
    assert resources == {
        **dict.fromkeys(("x", "y", "gradients/y"), "worker"),
        **dict.fromkeys(("w", "w/read", "update"), "server"),
        "edge_7_w/read": "downlink",
        "edge_9_gradients/y": "uplink",
    }
    assert profile.size[profile.resource == DOWNLINK].tolist() == [4000]
    assert profile.size.sum() == 8000
    y, down = profile.names.index("y"), profile.names.index("edge_7_w/read")
    np.testing.assert_allclose(profile.begin[:, y], 410e-6, atol=1e-9)
    np.testing.assert_allclose(profile.end[:, y], 1410e-6, atol=1e-9)
    np.testing.assert_allclose(profile.end[:, down], 400e-6, atol=1e-9)
    # From the worker's first op to the end of the update; the next begins 3 ms after this one.
    np.testing.assert_allclose(profile.step_begin, [0, 3000e-6, 6000e-6], atol=1e-9)
    np.testing.assert_allclose(profile.step_end - profile.step_begin, 2360e-6, atol=1e-9)
    assert profile.dropped == {}


def test_one_step_is_a_profile_and_so_is_one_that_is_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "step.pb.gz"
    path.write_bytes(gzip.compress(run_metadata(plain_step())))
    assert (read_steps([path]).steps, read_steps([path]).ops) == (1, 8)


def test_steps_that_were_not_traced_one_after_the_other_have_the_usual_gap(tmp_path: Path) -> None:
    paths = []
    for number, after in enumerate((0, PERIOD, 100 * PERIOD)):
        paths.append(tmp_path / f"{number}.pb")
        paths[-1].write_bytes(run_metadata(plain_step(), after=after))
    profile = read_steps(paths[::-1])  # in whichever order they are given
    np.testing.assert_allclose(profile.step_begin, [0, 3000e-6, 6000e-6], atol=1e-9)


def test_the_partitioned_graph_names_what_a_node_receives(tmp_path: Path) -> None:
    # Two outputs of one node, whose numbers are crossed: names alone would take 7 to S3.
    step = [
        *without(plain_step(), "edge_7_w/read"),
        receive(server(), WORKER, "edge_7_w/read", 4000, 64, 400),
        receive(server(), WORKER, "edge_8_w/read", 8, 64, 300),
        op(WORKER, "z", "Sum", "w/read_S4", 500, 510),
    ]
    at_server = [
        ("w", "VariableV2", "", ""),
        ("w/read", "Identity", "w", ""),
        ("w/read_S1", "_Send", "w/read:0", "edge_8_w/read"),
        ("w/read_S2", "_Send", "w/read:1", "edge_7_w/read"),
        ("gradients/y_S5", "_Recv", "", "edge_9_gradients/y"),
        ("update", "ApplyGradientDescent", "w gradients/y_S5", ""),
    ]
    at_worker = [
        ("x", "RandomUniform", "", ""),
        ("w/read_S3", "_Recv", "", "edge_8_w/read"),
        ("w/read_S4", "_Recv", "", "edge_7_w/read"),
        ("between", "NoOp", "x", ""),
        ("y", "MatMul", "w/read_S3 ^between", ""),
        ("z", "Sum", "w/read_S4", ""),
        ("gradients/y", "MatMul", "y", ""),
        ("gradients/y_S4", "_Send", "gradients/y", "edge_9_gradients/y"),
    ]
    graphs = [graph(server(), at_server), graph(WORKER, at_worker)]
    path = tmp_path / "step.pb"
    path.write_bytes(run_metadata(step, graphs=graphs))
    profile = read_steps([path])
    found = waits(profile)
    assert profile.provenance["inputs_not_traced"] == 0
    assert (found["y"], found["z"]) == ({"edge_8_w/read", "x"}, {"edge_7_w/read"})
    assert found["edge_8_w/read"] == {"w/read"}
    path.write_bytes(run_metadata(step))
    assert waits(read_steps([path]))["z"] == {"edge_8_w/read"}
    # A tensor that nobody sends, one that nobody receives: counted, and nothing waits for them.
    lost = [*at_worker, ("s", "_Send", "x", "edge_20_x"), ("r", "_Recv", "", "edge_21_u")]
    lost[5] = ("z", "Sum", "w/read_S4 r", "")
    path.write_bytes(run_metadata(step, graphs=[graphs[0], graph(WORKER, lost)]))
    profile = read_steps([path])
    assert profile.provenance["inputs_not_traced"] == 2
    assert waits(profile)["z"] == {"edge_7_w/read"}


def test_a_clock_that_is_ahead_is_set_back(write: Write) -> None:
    # Through the same 2 us to the receiver each way, the offset is found exactly.
    step = changed(plain_step(), "w/read", end=398.0)
    step = changed(step, "gradients/y", end=2298.0)
    usual = read_steps(write([step] * 3))
    for ahead in (5e6, -2e5):
        late = [
            replace(each, begin=each.begin + ahead, end=(each.end or 0) + ahead)
            if each.device == server() else each for each in step
        ]  # fmt: skip
        profile = read_steps(write([late] * 3))
        assert profile.provenance["clocks_ahead"] == {"/job:ps/task:0": pytest.approx(ahead / 1e6)}
        computing = np.flatnonzero(~np.isin(profile.resource, (DOWNLINK, UPLINK)))
        same = [usual.names.index(profile.names[each]) for each in computing]
        np.testing.assert_allclose(profile.begin[:, computing], usual.begin[:, same], atol=1e-6)
        assert (profile.end >= profile.begin).all()
    assert usual.provenance["clocks_ahead"] == {}


@given(
    st.floats(-10, 10),
    st.lists(st.tuples(st.floats(1e-6, 0.5), st.floats(1e-6, 0.5)), min_size=1, max_size=9),
)
def test_an_offset_is_found_to_half_of_what_the_ways_differ(
    ahead: float, taken: list[tuple[float, float]]
) -> None:
    down = [np.array([d - ahead, d - ahead + 1]) for d, _ in taken]
    up = [np.array([u + ahead + 0.2, u + ahead]) for _, u in taken]
    worst = max(abs(d - u) for d, u in taken) / 2
    found = clock_offset(down, up)
    if found == 0.0:  # only where it cannot be seen in most steps
        hidden = sum(abs(ahead) <= max(d, u) + 1e-3 for d, u in taken)
        assert 2 * hidden >= len(taken)
    else:
        assert abs(found - ahead) <= worst + 1e-9


def test_steps_that_cannot_be_are_left_out_and_counted(write: Write) -> None:
    good = plain_step()
    steps = [
        good,
        without(good, "x"),
        [*good, op(WORKER, "summary", "MergeSummary", "y", 1500, 1510)],
        changed(good, "y", end=None),
        changed(good, "update", begin=-5000.0, end=-4900.0),
        changed(good, "y", begin=0),
        good,
        good,
    ]
    # A length that is negative wraps around in protobuf, as in a clock that goes backwards.
    steps[5] = changed(good, "y", end=100.0)
    profile = read_steps(write(steps))
    assert profile.steps == 3
    assert profile.dropped == {
        "ops are missing": 1,
        "other ops ran": 1,
        "no end": 1,
        "ends before it begins": 1,
        "begins before its step": 1,
    }


def test_a_tensor_that_came_before_it_was_sent_spoils_its_step(write: Write) -> None:
    good = plain_step()
    bad = [replace(each, begin=-9000.0, end=-8000.0) if "edge_9" in each.label else each
           for each in good]  # fmt: skip
    assert read_steps(write([good, bad, good])).dropped == {"a tensor came before it was sent": 1}
    with pytest.raises(InputError, match=r"step-0.pb: a tensor arrives before it is sent"):
        read_steps(write([bad] * 2))


def test_a_step_that_two_files_tell_of_counts_once(tmp_path: Path) -> None:
    paths = [tmp_path / "a.pb", tmp_path / "b.pb"]
    for path in paths:
        path.write_bytes(run_metadata(plain_step()))
    profile = read_steps(paths)
    assert (profile.steps, profile.dropped) == (1, {"also in another file": 1})


def test_times_of_transfers_may_be_missing(write: Write) -> None:
    good = plain_step()
    profile = read_steps(write([good, without(good, "edge_9_gradients/y"), good]))
    up = int(np.flatnonzero(profile.resource == UPLINK)[0])
    np.testing.assert_array_equal(np.isnan(profile.end[:, up]), [False, True, False])
    assert profile.provenance["transfers_not_traced"] == 1
    # In no step: between the op that sends and the one that waits; bytes of the tensor's own.
    never = without(good, "edge_9_gradients/y")
    with pytest.raises(InputError, match="gradients/y_S5: its size is in no file"):
        read_steps(write([never] * 2))
    sized = [replace(each, size=3000) if each.name == "gradients/y" else each for each in never]
    profile = read_steps(write([sized] * 2))
    assert profile.provenance["transfers_never_traced"] == ["gradients/y_S5"]
    up = profile.names.index("gradients/y_S5")
    assert profile.size[up] == 3000
    np.testing.assert_allclose(profile.begin[:, up], 1920e-6, atol=1e-9)
    np.testing.assert_allclose(profile.end[:, up], 2310e-6, atol=1e-9)


def test_a_receive_without_a_sender(write: Write) -> None:
    orphan = receive(WORKER, server(), "edge_11_lost", 8, 100, 200)
    with pytest.raises(InputError, match=r"edge_11_lost goes from /job:worker/task:0 to .*no op"):
        read_steps(write([[*plain_step(), orphan]]))
    # Parameters that are there from the begin need none.
    down = receive(server(), WORKER, "edge_12_lost", 8, 100, 200)
    profile = read_steps(write([[*plain_step(), down]]))
    assert waits(profile)["edge_12_lost"] == set()


def test_a_node_that_runs_again_and_again_waits_for_its_last_run_before(write: Write) -> None:
    turns = [op(WORKER, "while/add", "Add", "x", 1500 + 10 * i, 1505 + 10 * i) for i in range(3)]
    uses = [op(WORKER, "while/mul", "Mul", "while/add", 1506 + 10 * i, 1509 + 10 * i)
            for i in range(3)]  # fmt: skip
    profile = read_steps(write([[*plain_step(), *turns, *uses]] * 2))
    found = waits(profile)
    assert found["while/mul"] == {"while/add"}
    assert found["while/mul #2"] == {"while/add #2"}
    assert found["while/mul #3"] == {"while/add #3"}


def test_an_accelerators_op_lasts_as_long_as_its_kernels(write: Write) -> None:
    gpu, stream = WORKER.replace("CPU", "GPU"), "/device:GPU:0/stream:all"
    step = [replace(each, device=gpu) if each.name == "y" else each for each in plain_step()]
    step += [Op(stream, "y:MatMul", "y:MatMul@@kernel", 600, 900),
             Op(stream, "y:MatMul", "y:MatMul@@kernel", 950, 1300)]  # fmt: skip
    profile = read_steps(write([step]))
    y = profile.names.index("y")
    assert RESOURCES[profile.resource[y]] == "worker"
    assert profile.begin[0, y] == pytest.approx(600e-6)
    assert profile.end[0, y] == pytest.approx(1300e-6)


def test_an_op_of_one_server_waits_for_that_of_another(write: Write) -> None:
    step = [
        *plain_step(),
        receive(server(0), server(1), "edge_20_update", 0, 2370, 2400),
        op(server(1), "update_S9", "Identity", "update_S8", 2405, 2406),
        op(server(1), "count", "AssignAdd", "^update_S9", 2410, 2420),
    ]
    profile = read_steps(write([step]))
    found = waits(profile)
    assert (found["count"], found["update_S9"]) == ({"update_S9"}, {"update"})
    assert "edge_20_update" not in found
    assert profile.provenance["between_servers"] == {"transfers": 1, "bytes": 0}
    assert profile.servers == 2


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ([op("/job:localhost/replica:0/task:0/device:CPU:0", "a", "Add", "", 0, 1)],
         "all ops ran on /job:localhost/task:0, so nothing was transferred"),
        ([*plain_step(), op(WORKER.replace("task:0", "task:1"), "b", "Add", "", 0, 1)],
         "b ran on /job:worker/task:1: the job had several workers"),
        ([op(server(), "c", "Add", "", 0, 1)], "no op of a worker was traced"),
        ([op(WORKER, "d", "Add", "", 0, 1), op(server(), "c", "Add", "", 0, 1)],
         "no op of the downlink"),
        ([*plain_step(), op("CPU:0", "d", "Add", "", 0, 1)],
         'd: device "CPU:0" names no job and task'),
    ],
)  # fmt: skip
def test_what_is_no_job_of_one_worker_is_refused(step: list[Op], why: str, write: Write) -> None:
    with pytest.raises(InputError, match=why):
        read_steps(write([step]))


def test_a_file_that_is_cut_off_or_something_else_is_refused_by_name(tmp_path: Path) -> None:
    data = run_metadata(plain_step())
    path = tmp_path / "step.pb"
    for size in (len(data) - 1, len(data) // 2, 40):
        path.write_bytes(data[:size])
        with pytest.raises(InputError, match=r"step.pb: cut off or damaged: its bytes are no Run"):
            read_steps([path])
    path.write_text("hello")
    with pytest.raises(InputError, match=r"step.pb: unrecognised format"):
        read_steps([path])
    with pytest.raises(InputError, match="no file of a step"):
        read_steps([])
    with pytest.raises(InputError, match="no such file"):
        read_steps([tmp_path / "gone.pb"])


def test_damaged_bytes_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    data, random = run_metadata(plain_step()), np.random.default_rng(0)
    path, said = tmp_path / "step.pb", []
    for _ in range(200):
        damaged = bytearray(data)
        for place in random.integers(0, len(data), random.integers(1, 4)):
            damaged[place] = random.integers(0, 256)
        path.write_bytes(bytes(damaged))
        try:
            read_steps([path])
        except InputError as error:
            said.append(str(error))
    assert len(said) > 50
    assert not any("\n" in each for each in said)


def test_no_step_is_like_the_others(write: Write) -> None:
    steps = [[*plain_step(), op(WORKER, f"only-{n}", "Add", "", 20, 30)] for n in range(3)]
    with pytest.raises(InputError, match=r"step has only-0 on /job:worker/task:0, other than most"):
        read_steps(write(steps))


def test_a_real_job_of_tensorflow() -> None:
    profile = read_steps([DATA / "mlp.pb.gz"])
    assert (profile.steps, profile.ops, profile.servers) == (1, 65, 1)
    assert profile.dropped == {}
    assert profile.provenance["tensors_matched"] == "by the partitioned graph"
    # 784 x 512 + 512, 512 x 256 + 256, 256 x 10 + 10 numbers of 4 bytes; up goes the rate as well.
    parameters = 4 * (785 * 512 + 513 * 256 + 257 * 10)
    assert profile.size[profile.resource == DOWNLINK].sum() == parameters
    assert profile.size[profile.resource == UPLINK].sum() == parameters + 4
    found = waits(profile)
    weights = "edge_14_hidden1/MatMul/ReadVariableOp"
    assert found[weights] == {"hidden1/MatMul/ReadVariableOp"}
    assert weights in found["Relu"]
    gradient = "gradients/hidden1/MatMul_grad/MatMul_1"
    (up,) = (name for name in profile.names if name.startswith("edge_") and gradient in name)
    assert found[up] == {gradient}
    applied = "GradientDescent/update_hidden1/weights/ResourceApplyGradientDescent"
    assert up in found[applied]
    # Nothing begins before what it waits for has ended, but for what clocks round.
    for op_, name in enumerate(profile.names):
        for other in profile.waits_for(op_):
            late = profile.begin[:, op_] - profile.end[:, other]
            assert (late > -1e-4).all(), (name, profile.names[other])


def test_two_real_servers_have_their_shares_and_control_tensors() -> None:
    profile = read_steps([DATA / "two_servers.pb.gz"])
    assert profile.servers == 2
    down = profile.resource == DOWNLINK
    assert set(profile.server[down].tolist()) == {0, 1}
    found = waits(profile)
    control = "edge_81_GradientDescent/update/NoOp"
    assert profile.size[profile.names.index(control)] == 0
    assert all("ctrl_S" in name for name in found[control])
    (waiting,) = (name for name, others in found.items() if control in others)
    assert waiting.startswith("GradientDescent/update/NoOp_S")
