"""Plans for scripts: which hardware, by hand; what is recorded again; what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import paracosm
from paracosm.cli.app import main
from paracosm.emulation.device.config import DeviceEmulateConfig
from paracosm.emulation.device.recording import OP, STEP, Recording, RecordingWriter
from paracosm.emulation.device.summary import Recorded
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.planning import script_plan

TOKENS = 4 * 1024
SCRIPTS = Path(__file__).parents[1] / "emulation" / "device" / "scripts"


def recording(config: DeviceEmulateConfig, held: int, asks: bool, is_small: bool) -> Recording:
    """Return an iteration that looks up tokens and multiplies matrices of bfloat16."""
    writer = RecordingWriter(0, config.world, config.device.name, asks_capability=asks)
    table = TensorArgument((1000, 64), "bfloat16"), TensorArgument((4, 1024), "int64")
    width = 64 if is_small else 4096
    sides = (TensorArgument((width, width), "bfloat16"),) * 2
    lookup = Op("aten.embedding.default", encode_arguments(table, {}), 0, 8192, 8192)
    product = Op(
        "aten.mm.default", encode_arguments(sides, {}), 2 * width**3, 4 * width**2, 2 * width**2
    )
    for _ in range(3):
        for op in (lookup, product):
            writer.add(OP, 0, code=writer.op_code(op), phase=0)
        writer.add(STEP, 0)
    return writer.recording([(held, 0, 9, 0, 0, -1, -1, 8)])


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.touch()
    return path


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand in for the script; return the list of what it is recorded on."""
    made: list[str] = []

    def record_script(config: DeviceEmulateConfig, seed: int, hooks: Any) -> Recorded:
        made.append(f"{config.world} {config.hardware}")
        asks = "asks" in config.arguments
        if "interrupted" in config.arguments and config.world > 2:
            return Recorded(interrupted=True, failure="interrupted")
        held = 30_000_000_000 if "large" in config.arguments else 1 << 30
        return Recorded([recording(config, held, asks, "small" in config.arguments)])

    monkeypatch.setattr(script_plan, "record_script", record_script)
    return made


def plan(script: Path, *arguments: str, **options: Any) -> Any:
    return paracosm.plan(script=str(script), arguments=list(arguments), **options).summary


def test_time_and_cost_are_those_of_all_tokens(script: Path, recorded: list[str]) -> None:
    price = "h100-sxm: 2 USD/h, a100-sxm-80gb: 1 USD/h"
    found = plan(script, hardware="h100-sxm,a100-sxm-80gb", workers=[2, 4], tokens=1e9, price=price)
    assert [(design.workers, design.hardware) for design in found.designs] == [
        (2, "h100-sxm"),
        (2, "a100-sxm-80gb"),
        (4, "h100-sxm"),
        (4, "a100-sxm-80gb"),
    ]
    assert recorded == ["2 h100-sxm", "4 h100-sxm"]  # once for each number of ranks
    for design in found.designs:
        assert design.throughput == pytest.approx(design.workers * TOKENS / design.iteration_time)
        assert design.time == pytest.approx(1e9 / design.throughput)
        an_hour = design.workers * (2 if design.hardware == "h100-sxm" else 1)
        assert design.cost == pytest.approx(an_hour * design.time / 3600)
    # Nothing communicates: four are twice as fast as two, and cost as much.
    assert found.fastest == 2
    assert found.designs[2].time == pytest.approx(found.designs[0].time / 2)
    assert found.designs[2].is_efficient
    assert not found.designs[1].is_efficient
    assert found.unit == "tokens"


def test_a_script_that_asks_for_the_capability_is_recorded_for_each(
    script: Path, recorded: list[str]
) -> None:
    plan(script, "asks", hardware="h100-sxm,h200-sxm,a100-sxm-80gb", workers=2)
    assert recorded == ["2 h100-sxm", "2 a100-sxm-80gb"]  # an H200 has the capability of an H100


def test_what_does_not_run_or_fit_is_a_row(script: Path, recorded: list[str]) -> None:
    found = plan(script, "large", hardware="v100-sxm-16gb,l4,h100-sxm", workers=2)
    assert recorded == ["2 v100-sxm-16gb", "2 l4"]
    without, small, large = found.designs
    assert "no peak for bfloat16" in without.failure
    assert (small.memory.verdict, large.memory.verdict) == ("does not fit", "fits")
    assert found.fastest == found.cheapest == 2
    assert large.cost == pytest.approx(2 * large.time / 3600)  # device-hours of a million tokens
    assert large.time == pytest.approx(1e6 / large.throughput)


def test_the_answer_says_what_the_host_is_assumed_to_take_where_the_device_waits_for_it(
    script: Path, recorded: list[str]
) -> None:
    def sentence(*arguments: str) -> str:
        options = {"hardware": "h100-sxm", "workers": 2}
        return str(paracosm.plan(script=str(script), arguments=[*arguments], **options).sentence)

    assert "Assuming" not in sentence()
    assert ". Assuming 5 us for each op and collective of the host. Nothing" in sentence("small")


def test_an_interrupt_keeps_what_there_is(script: Path, recorded: list[str]) -> None:
    found = plan(script, "interrupted", hardware="h100-sxm", workers=[2, 4])
    assert found.status == "interrupted"
    assert [design.workers for design in found.designs] == [2]


PLAN = ("plan", "--hardware", "h100-sxm,l4", "--workers", "2,4")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--script", "none.py"), "none.py: no such script"),
        (("--script", "train.py", "--price", "2/h"), "a price for each"),
        (("--script", "train.py", "--price", "l4: 1/h"), "price: none for h100-sxm"),
        (
            ("--script", "train.py", "--price", "l4: 1 USD/h, h100-sxm: 2 EUR/h"),
            "in one currency, not EUR and USD",
        ),
        (("--script", "train.py", "--batch-tokens", "4e6"), "differ between 2 numbers of ranks"),
        (("--script", "train.py", "--hardware", "h100"), 'unknown hardware "h100"'),
        (("--script", "train.py", "--target", "loss <= 1"), "--target"),
    ],
)
def test_bad_input_is_said_in_a_line(
    arguments: tuple[str, ...],
    message: str,
    script: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(script.parent)
    assert main([*PLAN, *arguments]) == 2
    error = capsys.readouterr().err
    assert message.removeprefix("--") in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_script_is_planned_from_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, folder = str(SCRIPTS / "gpt_ddp.py"), tmp_path / "run"
    command = [*PLAN, "--world-size", "8", "--script", script, "--out", str(folder)]
    command = [word for word in command if word not in ("--workers", "2,4")]
    assert main([*command, "--", "2"]) == 0
    assert "gpt_ddp.py is fastest on 8 x h100-sxm" in capsys.readouterr().out
    summary = json.loads((folder / "summary.json").read_text())
    emulate = ["emulate", "--hardware", "h100-sxm", "--world-size", "8", "--output", "none"]
    assert main([*emulate, "--json", script, "2"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert summary["designs"][0]["iteration_time"] == alone["iteration_time"]
    assert (folder / "report.html").read_text().count("Hardware, fastest first") >= 1
