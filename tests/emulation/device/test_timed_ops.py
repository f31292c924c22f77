"""Durations of a script's ops from a database; on a CPU with what surrounds them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from recordings import iterations, recording
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from paracosm.cli.app import main
from paracosm.cluster.hardware import find_hardware
from paracosm.emulation.device.durations import device_durations
from paracosm.emulation.device.program import HostCosts
from paracosm.emulation.device.recording import (
    OP,
    Context,
    Recording,
    RecordingWriter,
    iterations_of,
    load_recording,
    reuse_index,
)
from paracosm.emulation.device.surroundings import Surroundings
from paracosm.emulation.device.timed_ops import far_share
from paracosm.errors import InputError
from paracosm.graphs.capture.calls import encode_call
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.profiling import Environment, OpTiming, ProfileDatabase
from paracosm.profiling.durations import work_of
from paracosm.profiling.samples import spread_of

SCRIPTS = Path(__file__).parent / "scripts"
H100 = Environment("cuda", "NVIDIA H100 80GB HBM3", "torch 2.13.0", 0, "cuda caching", "kept")
KIB = 1 << 10


def op(name: str, *rest: object) -> Op:
    arguments = encode_arguments([TensorArgument((1024, 1024), "float32"), *rest], {})
    return Op(f"aten.{name}", arguments, 0, 4 << 20, 4 << 20)


RELU, STEP_1, STEP_2 = op("relu.default"), op("div.Tensor", 0.5), op("div.Tensor", 0.07064)
GELU = op("gelu.default")


def database(path: Path, *timed: tuple[Op, float], environment: Environment = H100) -> Path:
    with ProfileDatabase.open(path, create=True) as profiles:
        profiles.add(
            OpTiming(each, environment, cache, spread_of([seconds] * 3), measured_at="2026-01-02")
            for each, seconds in timed
            for cache in ("cold", "warm")
        )
    return path


def test_an_op_takes_what_it_was_timed_at_and_others_what_datasheets_say(tmp_path: Path) -> None:
    """One of the same work with another factor too: an optimizer's changes with every step."""
    rows = iterations([(OP, 0, RELU), (OP, 0, GELU), (OP, 0, STEP_2)])
    made, hardware = recording(rows), find_hardware("h100-sxm")
    path = database(tmp_path / "ops.db", (RELU, 3e-3), (STEP_1, 1e-3))
    found = device_durations(made, hardware, path)
    sheet = device_durations(made, hardware)
    assert found.seconds.tolist() == pytest.approx([3e-3, sheet.seconds[1], 1e-3])
    assert found.sources["exact"] == pytest.approx(4e-3 / found.seconds.sum())
    assert sum(found.sources.values()) == pytest.approx(1)
    assert set(sheet.sources) == {"efficiency"}


@pytest.mark.parametrize(
    ("hardware", "message"),
    [
        (
            "a100-sxm-80gb",
            r"ops.db: no timings of NVIDIA A100 .*: it has those of NVIDIA H100 80GB",
        ),
        ("cpu-2-core", r"ops.db: no timings of two x86 cores .*: it has those of NVIDIA H100 80GB"),
    ],
)
def test_timings_of_another_device_are_refused(hardware: str, message: str, tmp_path: Path) -> None:
    path = database(tmp_path / "ops.db", (RELU, 3e-3))
    made = recording(iterations([(OP, 0, RELU)]))
    with pytest.raises(InputError, match=message):
        device_durations(made, find_hardware(hardware), path)


def test_all_ops_may_be_timed(tmp_path: Path) -> None:
    path = database(tmp_path / "ops.db", (RELU, 3e-3))
    durations = device_durations(
        recording(iterations([(OP, 0, RELU)])), find_hardware("h100-sxm"), path
    )
    assert durations.seconds.tolist() == pytest.approx([3e-3])


def test_a_script_without_an_op_on_the_device_is_refused() -> None:
    with pytest.raises(InputError, match="move model and data to cuda, or leave out --hardware"):
        device_durations(recording(iterations([])), find_hardware("h100-sxm"))


def test_timings_of_several_environments_are_not_mixed(tmp_path: Path) -> None:
    other = replace(H100, framework="torch 2.14.0")
    path = database(tmp_path / "ops.db", (RELU, 3e-3))
    database(path, (RELU, 2e-3), environment=other)
    made = recording(iterations([(OP, 0, RELU)]))
    with pytest.raises(InputError, match=r"in several environments: .*2.13.0.*; .*2.14.0"):
        device_durations(made, find_hardware("h100-sxm"), path)


def test_ops_of_which_a_number_decides_are_not_the_same_work() -> None:
    assert work_of(STEP_1) == work_of(STEP_2)
    assert work_of(op("pow.Tensor_Scalar", 0.5)) != work_of(op("pow.Tensor_Scalar", 2.5))
    assert work_of(op("sum.dim_IntList", [0])) != work_of(op("sum.dim_IntList", [1]))
    resized = op("upsample_bilinear2d.vec", None, False, [2.0, 2.0])
    assert work_of(resized) != work_of(replace(resized, bytes_written=16 << 20))


def test_data_is_in_the_cache_if_less_than_its_size_was_in_use_since() -> None:
    """Of 100 KiB each: a, then b, then a again: 200 KiB between its uses, itself included."""
    writer = RecordingWriter(0, 1, "cpu-2-core")
    around = Surroundings(writer)
    a, b = (torch.empty(25 * KIB) for _ in range(2))
    around.op(0, False, [a], [])
    around.op(1, False, [b], [])
    around.op(2, False, [a], [])
    around.op(-1, True, [a], [])  # a view
    around.iteration_ended()
    assert writer.context is not None
    assert writer.context.of_host == (0, 1)
    assert writer.context.reuse[2] == {reuse_index(200 * KIB): 100 * KIB}
    assert far_share(writer.context, 2, 256 * KIB) == 0
    assert far_share(writer.context, 2, 128 * KIB) == 1
    assert far_share(writer.context, 0, 1 << 40) == 1  # never in use before
    half = Context(reuse={0: {reuse_index(1): 3, reuse_index(1 << 30): 1}})
    assert far_share(half, 0, 1 << 20) == 0.25


def test_a_host_that_computes_itself_runs_ahead_of_nothing() -> None:
    from test_script_program import MS, OPS, time_of

    rows = [*OPS, (OP, 0, "aten.mm")]
    host = HostCosts(MS / 2, is_device=True)
    assert time_of(rows, host=host) == pytest.approx(1.5 * len(rows))


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What PyTorch itself dispatches in a real run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.seen[work_of(Op(str(func), encode_call(func, args, kwargs or {}, "cpu")))[:2]] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "cpu"
    command = ["emulate", "--hardware", "cpu-2-core", "--world-size", "1", "--out", str(folder)]
    assert main([*command, "--output", "none", str(SCRIPTS / "cpu_mlp.py")]) == 0
    return folder


def recorded(folder: Path) -> Recording:
    return load_recording(folder / "device.parquet")


def test_a_script_on_a_cpu_is_recorded_as_it_runs_there(on_cpu: Path) -> None:
    """The same ops as often, but for those that only the host sees."""
    made = recorded(on_cpu)
    iteration = iterations_of(made)[-1]
    ops = [made.ops[code] for code in iteration.code[iteration.kind == OP].tolist()]
    found = Counter(work_of(op)[:2] for op in ops)
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(2):
            inputs, targets = torch.randn(16, 64), torch.randint(0, 10, (16,))
            loss = nn.functional.cross_entropy(model(inputs), targets) / 2
            loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    step()
    watch = Watch()
    with watch:
        step()
    assert not found - watch.seen
    only_seen = {name for name, _ in watch.seen - found}
    assert not only_seen & {name for name, _ in found}
    assert made.context is not None
    assert sum(made.context.of_host) >= (watch.seen - found).total() - 2  # marks of a profiler
    assert made.context.of_host[1] > 0


def test_its_memory_is_the_host_s_and_its_parameters_are_not_computed(on_cpu: Path) -> None:
    summary = json.loads((on_cpu / "summary.json").read_text())
    parameters = [64 * 64, 64, 64, 64, 64 * 10, 10]
    held = summary["memory"]["by_kind"]
    assert held["parameters"] == sum(-(-4 * size // 512) * 512 for size in parameters)
    assert summary["memory"]["overhead"] == 0
    assert any("losses of 1" in each["text"] for each in summary["assumed"])


def test_ops_of_a_recording_are_timed_here_and_played(
    on_cpu: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ops.db"
    timed = ["profile", "ops", "--recording", str(on_cpu), "--db", str(path), "--budget", "0s"]
    assert main([*timed, "--json"]) == 0
    done = json.loads(capfd.readouterr().out)
    assert not done["refused"]
    assert main(["emulate", str(on_cpu), "--db", str(path), "--json"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert "100 % timed on this device" in summary["durations"]["ops"]
    assert summary["durations"]["host"].startswith("measured: ")
    # Between its ops with warm data, and with cold data and as much for the host.
    sums = done["sum_of_ops"]
    assert sums["warm"] * 0.5 < summary["iteration_time"] < 20 * sums["cold"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["profile", "ops"], "give one of the two: --model resnet50, or --recording RUN"),
        (["profile", "ops", "--recording", "x", "--batch", "3"], "--batch: has no effect"),
        (
            ["emulate", "--hardware", "h100-sxm", "--world-size", "1", "--db", "no.db", "x.py"],
            "no.db: no such database: paracosm profile ops --recording RUN --db no.db makes it",
        ),
        (
            ["emulate", "--hardware", "cpu-2-core", "--world-size", "4", "x.py"],
            "cpu-2-core is a CPU: a script is recorded on it as one rank of one",
        ),
    ],
)
def test_bad_input_about_timings_is_said_in_a_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
