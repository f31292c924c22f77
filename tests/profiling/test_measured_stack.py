"""A stack that was measured on a device: what it takes from timings, and who refuses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from some_timings import GPU, timing

from paracosm.cli import main
from paracosm.cluster.hardware import find_hardware, find_stack
from paracosm.cluster.hardware.stacks import Measured
from paracosm.graphs import Op
from paracosm.graphs.transformer import Transformer, transformer_graph
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.datasheets import class_of, durations_on
from paracosm.profiling.measured_stack import measured_classes, measured_stack
from paracosm.profiling.samples import LinkTiming, spread_of

MODEL = Transformer(
    *(2, 512, 8, 1024), rotary=True, rms=True, bias=False, tied=False, gated=True, recipe="eager"
)
H200 = find_hardware("h200-sxm")
SLOWER = {"product": 1.5, "attention": 0.8}
PREDICT = ("predict", "--model", "llama-8b", "--batch", "1", "--workers", "8", "--strategy", "fsdp")


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def _timed() -> dict[Op, float]:
    """Return the ops of a layer, products half as long again as predicted, attention shorter."""
    graph = transformer_graph(MODEL, 1)
    known = durations_on(graph, H200, stack=find_stack("pytorch-eager"))
    return {
        op: estimate.duration * SLOWER[class_of(op.name)]
        for op, estimate in zip(graph.ops, known, strict=True)
        if estimate is not None and class_of(op.name) in SLOWER
    }


def _database(path: Path, *, link: bool = False) -> Path:
    with ProfileDatabase.open(path, create=True) as database:
        for number, (op, seconds) in enumerate(_timed().items()):
            database.add([timing(str(number), op, GPU, samples=(seconds, seconds))])
        sizes = (1 << 20, 1 << 24) if link else ()
        # A ring of 8: 14 steps of an eighth, each of 2 us and at 100 GB/s.
        database.add_links(
            LinkTiming(
                *("all_reduce", "nccl 8 devices", size, 8, GPU),
                time=spread_of([14 * (2e-6 + size / 8 / 100e9)]),
            )
            for size in sizes
        )
    return path


def test_classes_take_the_sum_of_the_timings_over_that_of_the_predictions() -> None:
    found = measured_classes(_timed(), H200, find_stack("pytorch-eager"))
    assert {name: each.time for name, each in found.items()} == pytest.approx(SLOWER, rel=1e-3)
    assert found["product"].spread < 0.01  # all ops agree
    assert found["attention"].spread > 0.04  # two of them: not below the kernel's own


def test_a_measured_stack_times_its_classes_and_leaves_the_others() -> None:
    base = find_stack("pytorch-eager")
    classes = measured_classes(_timed(), H200, base)
    stack = base.model_copy(update={"measured": {"h200-sxm": Measured(ops=classes)}})
    graph = transformer_graph(MODEL, 4)
    before = durations_on(graph, H200, stack=base)
    after = durations_on(graph, H200, stack=stack)
    for op, one, other in zip(graph.ops, before, after, strict=True):
        if one is not None and other is not None:
            factor = SLOWER.get(class_of(op.name), 1.0)
            assert other.duration == pytest.approx(factor * one.duration, rel=1e-3)


def test_a_link_is_what_explains_the_collectives(tmp_path: Path) -> None:
    database = _database(tmp_path / "h200.db", link=True)
    stack = measured_stack(database, H200, find_stack("torchtitan"))
    link = stack.measured["h200-sxm"].inner
    assert link is not None
    assert link.bandwidth == pytest.approx(100e9, rel=1e-3)
    assert link.latency == pytest.approx(2e-6, rel=1e-2)
    inner = stack.on(H200).inner
    assert inner is not None
    assert inner.link().bandwidth == link.bandwidth
    assert "all_reduce of 8 ranks" in stack.source


def test_a_stack_is_added_and_used_by_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = _database(tmp_path / "h200.db", link=True)
    flags = ("--stack", "my-stack", "--hardware", "h200-sxm", "--like", "torchtitan")
    assert main(["hardware", "add", str(database), *flags]) == 0
    assert main(["hardware", "add", str(database), *flags]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert main([*PREDICT, "--hardware", "h200-sxm", "--stack", "my-stack"]) == 0
    out = capsys.readouterr().out
    assert "by my-stack" in out.splitlines()[0]
    assert "800 Gbit/s" in out  # the link within a node
    assert main([*PREDICT, "--hardware", "h100-sxm", "--stack", "my-stack"]) == 2
    assert "was measured on h200-sxm: it has nothing on h100-sxm" in capsys.readouterr().err


STACK = "stacks:\n  mine: {title: x, since: 2026-01, recipe: eager, float8: tensorwise, "
GEMM = "{l4: {ops: {gemm: {time: 1, spread: 0, ops: 1}}}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("attention: {other: flash-2}}", "stacks.mine: no source: say which document"),
        ("attention: {other: flash-9}, source: me}", 'unknown kernel "flash-9"'),
        ("attention: {other: flash-2}, measured: {h300: {}}, source: me}", 'unknown device "h300"'),
        (
            f"attention: {{other: flash-2}}, source: me, measured: {GEMM}}}",
            'unknown class of ops "gemm"',
        ),
    ],
)
def test_a_stack_file_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(STACK + text)
    assert main(["hardware", "add", str(file)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "config").exists()


def test_a_stack_without_a_kernel_for_a_device_says_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"{STACK}attention: {{hopper: flash-2}}, source: me}}")
    assert main(["hardware", "add", str(file)]) == 0
    assert main([*PREDICT, "--hardware", "a100-sxm-80gb", "--stack", "mine"]) == 2
    assert "has no attention on NVIDIA A100 SXM4 80 GB: it has hopper" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "a profile database: add --stack my-stack"),
        (("--stack", "mine"), "a profile database: add --hardware h100-sxm"),
        (("--stack", "a b", "--hardware", "h200-sxm"), "a name has letters a to z"),
        (("--stack", "torchtitan", "--hardware", "h200-sxm"), "there is one of that name"),
        (("--stack", "mine", "--hardware", "h100-sxm"), "no timings of NVIDIA H100"),
        (("--stack", "mine", "--hardware", "h200-sxm", "--like", "torch"), "unknown stack"),
    ],
)
def test_a_database_that_cannot_be_a_stack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...], message: str
) -> None:
    assert main(["hardware", "add", str(_database(tmp_path / "h200.db")), *flags]) == 2
    assert message in capsys.readouterr().err


def test_flags_of_a_database_are_refused_beside_a_datasheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("interconnects: {}")
    assert main(["hardware", "add", str(file), "--stack", "mine"]) == 2
    assert "--stack: has no effect" in capsys.readouterr().err
