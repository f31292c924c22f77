from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from layer_profiles import (
    LayerSizes,
    LayerTimes,
    Network,
    Plan,
    Profiles,
    Sizes,
    Stage,
    Worker,
    parts,
    plan_job,
    plan_strategy,
    read_network,
    read_plan,
    read_profiles,
    read_sizes,
    replica_of,
)
from layer_profiles.job import COPIES, overhead_of
from layer_profiles.parts import BUFFER, message_of, part_of

from paracosm.errors import InputError
from paracosm.jobs.strategies import build_job
from paracosm.simulation import replay_job
from paracosm.simulation.memory import peak_memory_of_ranks

SAILOR = Path(__file__).parents[2] / "data" / "sailor"
PLANS = SAILOR / "validation" / "clariden" / "OPT-350"
SLOW, FAST = Worker("slow", "z", 1), Worker("fast", "z", 2)

# Four layers: 2 s forward, 4 s backward each; 3 GB of parameters; 1 GB handed on, 5 GB kept.
GB = 10**9
PROFILES = Profiles(
    {
        "M": {
            "slow": {"1": {"1": {str(layer): [2.0, 4.0, 0.8] for layer in range(4)}}},
            "fast": {"1": {"2": {str(layer): [1.0, 2.0, 0.4] for layer in range(4)}}},
        }
    },
    "profiles",
)
ROW = {"params_bytes": 3 * GB, "act_output_bytes": GB, "act_mem_bytes": 5 * GB}
SIZES = Sizes(
    {"M": {tensor: {str(layer): ROW for layer in range(4)} for tensor in ("1", "2")}}, "sizes"
)


HOST_ZEROS = parts.HOST_ZEROS


@pytest.fixture(autouse=True)
def parts_take_no_time_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "HOST_ZEROS", math.inf)


def network(gigabytes: float) -> Network:
    entry = [[gigabytes], 0]
    to: dict[str, Any] = {gpu: {"1": entry, "2": entry} for gpu in ("slow", "fast")}
    by_gpus = {gpus: {"z": to} for gpus in ("1", "2")}
    return Network({"z": dict.fromkeys(("slow", "fast"), by_gpus)}, "network")


def plan(stages: int, replicas: int, microbatches: int, worker: Worker = SLOW) -> Plan:
    each = 4 // stages
    return Plan(
        "plan",
        tuple(
            Stage(range(each * stage, each * (stage + 1)), (worker,) * replicas)
            for stage in range(stages)
        ),
        microbatch=1,
        batch=microbatches * replicas,
        measured=None,
    )


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (1, 5), (2, 1), (2, 6), (4, 8)])
def test_without_messages_equal_stages_fill_the_pipeline(stages: int, microbatches: int) -> None:
    job = plan_job(plan(stages, 1, microbatches), "M", PROFILES, SIZES, network(1e9))
    each = 4 / stages * 6.0
    expected = (microbatches + stages - 1) * each + 0.8 / stages
    assert replay_job(job).makespan == pytest.approx(expected, rel=1e-6)


def test_messages_keep_both_ends_from_computing() -> None:
    # Two stages of 4 s forward and 8 s backward, two micro-batches, messages of 1 s. From the end
    # of F0 of stage 0 on, by the order of test_lockstep:
    #   stage 0  F0 4 | act 5 | F1 9 | grad0 18 | act1 19 | B0 27 | grad1 32 | B1 40
    #   stage 1         act 5 | F0 9 B0 17 | grad0 18 | act1 19 | F1 23 B1 31 | grad1 32
    job = plan_job(plan(2, 1, 2), "M", PROFILES, SIZES, network(1.0))
    assert replay_job(job).makespan == pytest.approx(40 + 0.4)


def test_receivers_join_parts_before_each_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    # Messages of no time, whose parts take 1 s to join: 1 GB at 1 GB/s.
    #   stage 0  F0 4 | F1 8               | join 18 | B0 26           | join 31 | B1 39
    #   stage 1         join 5 | F0 9 B0 17 | join 18 | F1 22 B1 30
    monkeypatch.setattr(parts, "HOST_ZEROS", GB)
    job = plan_job(plan(2, 1, 2), "M", PROFILES, SIZES, network(1e9))
    assert replay_job(job).makespan == pytest.approx(39 + 0.4)


def test_a_message_that_buffers_hold_keeps_its_sender_from_nothing() -> None:
    """The second activation leaves from 18 to 19, while stage 0 goes on backwards."""
    small = Sizes(
        {"M": {"1": {str(layer): ROW | {"act_output_bytes": BUFFER} for layer in range(4)}}}, "s"
    )
    begins = []
    for sizes, seconds in ((SIZES, 1.0), (small, BUFFER / GB)):
        schedule = replay_job(plan_job(plan(2, 1, 2), "M", PROFILES, sizes, network(seconds)))
        job, tasks = schedule.job, schedule.tasks_of(0)
        backward = job.programs[job.program[0]].name == job.names.index("backward")
        begins.append(schedule.begin[tasks][backward][0])
    blocked = 19 - BUFFER / GB  # until the rest of the message fits into the buffers
    assert begins == pytest.approx([blocked, 18.0])


def test_gpus_that_split_layers_share_the_network() -> None:
    """Two replicas of two GPUs: each ring of 12 GB has half of 3 GB/s; parts of half a GB each."""
    job = plan_job(plan(1, 2, 3, FAST), "M", PROFILES, SIZES, network(3.0))
    alone = plan_job(plan(1, 1, 3, FAST), "M", PROFILES, SIZES, network(3.0))
    longer = replay_job(job).makespan - replay_job(alone).makespan
    assert longer == pytest.approx(2 * 6 / 1.5)
    part = part_of(plan(2, 1, 1, FAST), 0, FAST, "M", PROFILES, SIZES)
    sent = message_of(part, FAST, FAST, network(3.0))
    assert (sent.size, sent.seconds) == (GB // 2, pytest.approx(0.5 / 1.5))


def test_small_cards_hold_little_besides_tensors() -> None:
    assert overhead_of("GH-96") == 5.06e9
    assert 0.3e9 < overhead_of("RTX-2080") < 0.5e9


def test_gradients_are_reduced_over_the_replicas_of_a_stage() -> None:
    # 2 (p - 1) messages of a quarter of 6 GB at 3 GB/s
    alone = replay_job(plan_job(plan(2, 1, 3), "M", PROFILES, SIZES, network(3.0))).makespan
    four = replay_job(plan_job(plan(2, 4, 3), "M", PROFILES, SIZES, network(3.0))).makespan
    assert four - alone == pytest.approx(6 * 1.5 / 3)


def test_other_workers_wait_for_the_slowest() -> None:
    slow = replay_job(plan_job(plan(1, 2, 3), "M", PROFILES, SIZES, network(1.0))).makespan
    mixed = replace(plan(1, 2, 3), stages=(Stage(range(4), (SLOW, FAST)),))
    job = plan_job(mixed, "M", PROFILES, SIZES, network(1.0))
    assert len(job.programs) == 2
    schedule = replay_job(job)
    fast = schedule.tasks_of(1)
    assert schedule.makespan == pytest.approx(slow)
    # 3 micro-batches of 12 s less to compute
    assert (schedule.begin - schedule.arrive)[fast].max() == pytest.approx(36.0)


def test_memory_of_parameters_and_micro_batches_in_flight() -> None:
    job = plan_job(plan(2, 1, 4), "M", PROFILES, SIZES, network(10.0), overhead=2.0 * GB)
    first, last = peak_memory_of_ranks(replay_job(job)).tolist()
    static = COPIES * 6 * GB + 2 * GB
    assert first == static + 2 * 10 * GB + 5 * GB
    assert last == static + 10 * GB + 5 * GB


def test_a_plan_with_other_layers() -> None:
    short = replace(plan(1, 1, 1), stages=(Stage(range(3), (SLOW,)),))
    with pytest.raises(InputError, match="plan: has 3 layers, the profile of slow 4"):
        plan_job(short, "M", PROFILES, SIZES, network(1.0))


def test_replica_of_layers() -> None:
    times, sizes = PROFILES.times("M", "slow", 1, 1), SIZES.layers("M", 1)
    graph = replica_of(times, sizes, 1).graph
    assert float(graph.duration.sum()) == pytest.approx(4 * 6 + 0.8)
    assert graph.provenance["examples"] == 1
    lasting = graph.storages.last == len(graph)
    assert graph.storages.size[lasting].tolist() == [3 * GB] * 4
    other = LayerSizes(sizes.parameters[:3], sizes.output[:3], sizes.kept[:3])
    with pytest.raises(InputError, match="4 layers are timed, but the sizes of 3"):
        replica_of(times, other, 1)


def test_replica_of_layers_without_parameters() -> None:
    none = np.zeros(2, dtype=np.int64)
    times = LayerTimes(np.ones(2), np.ones(2), 0.5)
    graph = replica_of(times, LayerSizes(none, none, none), 4).graph
    assert float(graph.duration.sum()) == pytest.approx(4.5)
    assert not len(graph.storages.size)


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (1, 4), (2, 3), (4, 8)])
def test_strategies_agree_where_messages_take_no_time(stages: int, microbatches: int) -> None:
    asked = (plan(stages, 1, microbatches), "M", PROFILES, SIZES, network(1e9))
    by_strategies = replay_job(build_job(*plan_strategy(*asked))).makespan
    assert by_strategies == pytest.approx(replay_job(plan_job(*asked)).makespan, rel=1e-6)


def test_strategies_split_all_layers_alike() -> None:
    mixed = replace(plan(1, 2, 3), stages=(Stage(range(4), (SLOW, FAST)),))
    with pytest.raises(InputError, match="its layers are split between 1 and 2 GPUs"):
        plan_strategy(mixed, "M", PROFILES, SIZES, network(1.0))


def test_strategies_take_different_gpus() -> None:
    """Those of the first stage take twice as long as the others; messages take no time."""
    content = {gpu: {"1": {"1": times}} for gpu, times in TWO_KINDS.items()}
    profiles = Profiles({"M": content}, "profiles")
    stages = (Stage(range(2), (SLOW,)), Stage(range(2, 4), (Worker("fast", "z", 1),)))
    asked = (replace(plan(2, 1, 5), stages=stages), "M", profiles, SIZES, network(1e9))
    by_strategies = replay_job(build_job(*plan_strategy(*asked))).makespan
    # The first stage is busy for 12 s with each micro-batch. It has F0 and F1 until 8, when stage 1
    # has F0 until 6 and B0 until 10: it waits for 2 s, once. Then half of the update.
    assert by_strategies == pytest.approx(5 * 12 + 2 + 0.4)
    assert by_strategies == pytest.approx(replay_job(plan_job(*asked)).makespan)


TWO_KINDS = {
    "slow": {str(layer): [2.0, 4.0, 0.8] for layer in range(4)},
    "fast": {str(layer): [1.0, 2.0, 0.4] for layer in range(4)},
}


@pytest.mark.parametrize(
    ("name", "tolerance"), [("N4/plan_config_N4_D1", 0.02), ("N8/plan_config_N8_D2", 0.03)]
)
def test_measured_pipelines_of_four_stages(
    name: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "HOST_ZEROS", HOST_ZEROS)
    measured = read_plan(PLANS / f"{name}.json")
    job = plan_job(
        measured,
        "OPT-350",
        read_profiles(SAILOR / "profiles_tmp.json"),
        read_sizes(SAILOR / "llm_info.json"),
        read_network(SAILOR / "providers" / "multizone_bandwidths_het.json"),
    )
    assert measured.measured is not None
    predicted = replay_job(job).makespan
    assert math.isclose(predicted, measured.measured.iteration, rel_tol=tolerance)
