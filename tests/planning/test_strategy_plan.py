"""Plans of strategies: time, cost and goodput of all tokens, by hand and from the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import paracosm
from paracosm.cli import main
from paracosm.errors import InputError
from paracosm.faults import daly_interval, expected_makespan
from paracosm.planning.strategy_plan import StrategyPlanConfig, run_strategy_plan
from paracosm.report.runs import answer

FLAGS = {
    "model": "mpt-125m",
    "hardware": "a100-sxm-80gb",
    "tokens": "1e9",
    "batch_tokens": 65_536,
    "max_workers": 16,
}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def command(*more: str, **options: Any) -> list[str]:
    flags = {**FLAGS, **options}
    said = [
        word
        for name, value in flags.items()
        if value is not None
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return ["plan", *said, *more]


def test_time_cost_and_goodput_follow_from_an_iteration() -> None:
    """Of 32 sequences of 2,048 tokens 1e9 / 65,536 iterations; Daly's form of what fails adds."""
    options = {**FLAGS, "price": "2.2/h", "mtbf": "10 days a worker", "checkpoint_cost": "30s"}
    summary = run_strategy_plan(StrategyPlanConfig(**options), 0)
    assert {design.workers for design in summary.designs} == {1, 2, 4, 8, 16}
    for design in summary.designs:
        work = 1e9 / (design.examples * 2048) * design.iteration_time
        mtbf = 10 * 86400 / design.workers
        time = expected_makespan(work, daly_interval(30, mtbf), 30, 30, mtbf)
        assert design.time == pytest.approx(time)
        assert design.effective == pytest.approx(work / time)
        assert design.cost == pytest.approx(2.2 * design.workers * time / 3600)
        assert design.limit == max(design.causes, key=lambda cause: design.causes[cause])
    efficient = [design for design in summary.designs if design.is_efficient]
    ordered = sorted(efficient, key=lambda each: each.time)
    assert [each.cost for each in ordered] == sorted((e.cost for e in efficient), reverse=True)
    assert summary.designs[summary.fastest] is ordered[0]
    assert summary.designs[summary.cheapest] is ordered[-1]


def test_a_plan_is_of_the_published_model_and_says_what_it_computes_with() -> None:
    """A name that is also a module's, and the same with `sizes:`, are one model."""
    named, sized = (
        run_strategy_plan(StrategyPlanConfig(**{**FLAGS, "model": model, "max_workers": 2}), 0)
        for model in ("gpt2", "sizes:gpt2")
    )
    assert [design.time for design in named.designs] == [design.time for design in sized.designs]
    assert named.parameters == 124_439_808
    assert (named.dtype, named.optimizer) == ("bfloat16", "adamw")
    assert ", in bfloat16 with adamw, by megatron-te: " in answer(named)


def test_devices_that_no_node_joins_are_said_in_the_words_of_a_plan(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(
        "devices: {mine: {title: ours, peak_tflops: {bfloat16: 100}, memory: 80 GiB, "
        "memory_bandwidth: 1 TB/s, source: us}}\n"
    )
    with pytest.raises(InputError, match=r"no node that joins 16 .*or give --max-workers 1"):
        StrategyPlanConfig(**{**FLAGS, "hardware": str(own)}).check()


def test_the_command_answers_in_a_sentence_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command("--price", "$2.2/h", "--out", str(tmp_path / "plan"))) == 0
    said = capsys.readouterr().out
    first = said.splitlines()[0]
    assert "Assuming the default software." in " ".join(said.split())
    assert first.startswith("1 billion tokens of mpt-125m take ")
    assert " on 16 x NVIDIA A100" in first
    assert "Cost against time" in (tmp_path / "plan" / "report.html").read_text()
    summary = json.loads((tmp_path / "plan" / "summary.json").read_text())
    assert summary["kind"] == "strategy plan"
    assert paracosm.open(tmp_path / "plan").summary.designs[0].workers == 1


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"batch_tokens": None}, "tokens without a batch: add --batch-tokens 4e6"),
        ({"batch_tokens": 100}, "100 are less than a sequence of 2,048 tokens"),
        ({"tokens": "1e3"}, "are more than all of the 1,000 tokens"),
        ({"model": "resnet50"}, 'plan: model: unknown transformer "resnet50": choose from gpt2'),
        ({"model": "sizes:gpt22"}, 'plan: model: unknown transformer "gpt22": did you mean "gpt2"'),
        ({"hardware": "h100-sxn"}, 'unknown hardware "h100-sxn": did you mean h100-sxm'),
        (
            {"target": "loss <= 1"},
            "target: cannot be combined with batch_tokens, hardware, max_workers, tokens",
        ),
        ({"checkpoint_cost": "10s"}, "checkpoint_cost: has no effect"),
        (
            {"mtbf": "0.1s a worker", "checkpoint_cost": "10s"},
            "fail every 6.25 ms, and hardly ever reach a checkpoint, 6.25 ms apart",
        ),
        ({"batch_tokens": 2048, "max_workers": 8192}, "8,192 workers are more than 1 examples"),
        ({"model": "llama-405b", "max_workers": 2}, "needs"),
    ],
)
def test_what_cannot_be_planned(
    flags: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(command(**flags)) == 2
    assert message in capsys.readouterr().err


def test_numbers_of_workers_are_whole_machines() -> None:
    config = StrategyPlanConfig(**{**FLAGS, "max_workers": 1000})
    assert config.numbers == (1, 2, 4, 8, 24, 56, 120, 248, 496, 1000)


def test_an_arguments_type() -> None:
    with pytest.raises(InputError, match="unknown argument"):
        paracosm.plan(**FLAGS, tokens_per_batch=3)
