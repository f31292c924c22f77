"""When emulated stages of a pipeline pass on what they compute: every instant is found by hand."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from paracosm.emulation.compose import compose
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.pipeline import Pipeline
from paracosm.emulation.records import Collective, Group, Iteration, PipelineStep, Record, Wait
from paracosm.validation import validated

RANKS = (10, 11, 12, 13)


def step(
    rank: int,
    microbatches: int,
    fills: bool,
    forward: float,
    backward: float,
    real: tuple[int, ...] = (),
) -> Pipeline:
    begun = PipelineStep(rank, 0.0, RANKS, microbatches, fills, forward, backward)
    pipeline = Pipeline(begun, real or (rank,))
    pipeline.begin(begun, 0.0)
    return pipeline


def test_the_first_stage_gets_gradients_when_all_others_have_computed() -> None:
    pipeline = step(10, 4, False, 1.0, 2.0)
    for there in (1.0, 2.0, 3.0):
        pipeline.sent(10, 11, there)
    # Forward 1 to 2, 2 to 3, 3 to 4; back from the last stage at once: 4 to 6, 6 to 8. Stage 1 has
    # gone forward with three by then, and goes back from 8 to 10.
    assert pipeline.ready(11, 10, 0.0) == 10.0
    assert pipeline.ready(11, 10, 0.0) is None  # it goes forward with the fourth before
    pipeline.sent(10, 11, 4.0)
    # The last stage goes back with the second from 7 to 9, stage 2 to 11, stage 1 to 13.
    assert pipeline.ready(11, 10, 0.0) == 13.0


def test_messages_between_emulated_stages_take_their_time() -> None:
    pipeline = step(10, 1, True, 1.0, 2.0)
    pipeline.sent(10, 11, 1.0)
    assert pipeline.ready(11, 10, 0.5) == 1.0 + 3 * 1.0 + 3 * 2.0 + 4 * 0.5


def test_the_last_stage_gets_what_the_others_go_forward_with() -> None:
    pipeline = step(13, 2, True, 1.0, 2.0)
    assert [pipeline.ready(12, 13, 0.0) for _ in range(2)] == [3.0, 4.0]
    for there in (7.0, 9.0):
        pipeline.sent(13, 12, there)
    pipeline.begin(PipelineStep(13, 9.5, RANKS, 2, True, 1.0, 2.0), 9.5)
    # The first stage has gone back with both at 15.
    assert pipeline.ready(12, 13, 0.0) == 15.0 + 3.0


def test_stages_between_two_real_ones_follow_both() -> None:
    pipeline = step(10, 1, True, 1.0, 2.0, real=(10, 13))
    pipeline.begin(PipelineStep(13, 0.0, RANKS, 1, True, 1.0, 2.0), 0.0)
    assert pipeline.ready(12, 13, 0.0) is None
    pipeline.sent(10, 11, 5.0)
    assert pipeline.ready(12, 13, 0.0) == 7.0
    assert pipeline.ready(11, 10, 0.0) is None
    pipeline.sent(13, 12, 20.0)
    assert pipeline.ready(11, 10, 0.0) == 24.0


def test_a_real_stage_that_has_not_begun_is_not_computed_for() -> None:
    pipeline = step(13, 1, True, 1.0, 2.0, real=(10, 13))  # rank 10 announces its step later
    assert pipeline.ready(12, 13, 0.0) is None
    pipeline.begin(PipelineStep(10, 4.0, RANKS, 1, True, 1.0, 2.0), 4.0)
    pipeline.sent(10, 11, 5.0)
    assert pipeline.ready(12, 13, 0.0) == 7.0
    pipeline.sent(13, 12, 20.0)
    assert pipeline.ready(11, 10, 0.0) == 24.0


def test_a_step_is_put_together_with_what_emulated_stages_compute() -> None:
    records: list[Record] = [Group(0, "0", 2, (0, 1), "gloo")]
    now = 0.0
    for number in range(3):
        records.append(PipelineStep(0, now, (0, 1), 1, True, 0.01, 0.02))
        now += 0.01
        for place, kind in enumerate(("send", "recv")):
            what = 2 * number + place, kind, 1000, 1
            records.append(Collective(0, "0", *what, now, now, now, now, -2))
        records.append(Wait(0, now, now, "0", 2 * number + 1))
        now += 0.02
        records.append(Iteration(0, number, now, now, 1))
    config = validated(EmulateConfig, {"script": "x.py", "world_size": 2}, "here")
    ends = [each.end for each in compose(config, 0, records) if isinstance(each, Iteration)]
    # 10 ms forward here and 10 there, 20 ms back there and 20 here.
    assert [late - early for early, late in itertools.pairwise(ends)] == pytest.approx([0.06, 0.06])


SLOW_STAGES = """
import os, time
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

class Slow(torch.nn.Linear):
    def forward(self, x):
        time.sleep(0.02)
        return super().forward(x)

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
module, example = Slow(4, 4), torch.zeros(1, 4)
stage = PipelineStage(module, rank, world, torch.device("cpu"), input_args=(example,))
schedule = ScheduleGPipe(stage, 4, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
for _ in range(5):
    schedule.step(torch.ones(4, 4))
    optimizer.step()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_stages_of_a_pipeline_that_run_one_after_the_other(tmp_path: Path) -> None:
    script, out = tmp_path / "script.py", tmp_path / "run"
    text = SLOW_STAGES.replace(", input_args=(example,)", "")  # stages are told by those that ran
    text = text.replace("step(torch.ones(4, 4))", "step(torch.ones(4, 4), target=torch.ones(4, 4))")
    script.write_text(text.replace("sleep(0.02)", "sleep([0.02, 0.04, 0.06, 0.02][rank])"))
    command = [sys.executable, "-m", "paracosm.cli.app", "emulate", "--json"]
    flags = ["--world-size", "4", "--communication", "none", "--kinds", "--out", str(out)]
    done = subprocess.run(
        [*command, *flags, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["rank"] == [0, 1, 2, 3]
    # Four micro-batches through the third stage, and one through all the others
    assert 0.32 <= summary["iteration_time"]["median"] < 0.4
    again = subprocess.run(
        [*command, str(out), "--what-if", "workers 1..2: compute 2x faster"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    # 20, 20, 30, 20 ms
    assert 0.18 <= json.loads(again.stdout)["iteration_time"]["median"] < 0.24


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["backend", "wire"])
def test_the_bubble_of_a_pipeline_shows(tmp_path: Path, mode: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(SLOW_STAGES)
    command = [sys.executable, "-m", "paracosm.cli.app", "emulate", "--json", "--mode", mode]
    flags = ["--world-size", "4", "--communication", "none"]
    done = subprocess.run(
        [*command, *flags, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    # Four micro-batches of 20 ms here, and the last of them through three more stages.
    assert json.loads(done.stdout)["iteration_time"]["median"] >= 0.14
