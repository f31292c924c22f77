"""The summary of a made-up job, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_up_records import ITERATION, MIB, START, made_up_records

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.records import Collective, Exchange, Group, Iteration, Note, Record, Wait
from paracosm.emulation.summary import summarise

EXACT = 1e-9  # of times of a monotonic clock of 1,000 s


def summary_of(records: list[Record], exit_code: int | None = 0, **asked: Any) -> dict[str, Any]:
    config = EmulateConfig(script=Path("train.py"), **{"world_size": 4, **asked})
    found = summarise(config, records, exit_code).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


def test_what_was_asked_for_stands_in_the_summary() -> None:
    found = summary_of(made_up_records())
    assert found["status"] == "done"
    assert (found["world_size"], found["mode"], found["rank"]) == (4, "backend", [0])
    assert found["notes"] == []
    assert found["peak_memory"] == 3 * MIB
    assert found["wall_time"] == pytest.approx(0.4 + 11 * ITERATION - 0.020 - 0.4, abs=EXACT)


def test_the_first_iteration_is_counted_but_not_measured() -> None:
    found = summary_of(made_up_records())
    assert found["iterations"] == 11
    assert found["iteration_time"] == {
        "median": pytest.approx(0.1),
        "p10": pytest.approx(0.1),
        "p90": pytest.approx(0.1),
        "mean": pytest.approx(0.1),
        "error": pytest.approx(0.0, abs=EXACT),
        "measured": 10,
    }
    assert found["utilisation"]["cpu"] == pytest.approx(0.8)


def test_an_iteration_is_made_of_computing_exposed_communication_and_other_waits() -> None:
    found = summary_of(made_up_records())
    # Waits of 21 and 5 ms; the second all-reduce is done 1 ms before the first of them ends.
    assert found["breakdown"] == {
        "compute": pytest.approx(0.074, abs=EXACT),
        "exposed_communication": pytest.approx(0.025, abs=EXACT),
        "waiting": pytest.approx(0.001, abs=EXACT),
        "late_peers": pytest.approx(0.0, abs=EXACT),
    }
    assert found["utilisation"]["compute"] == pytest.approx(0.74, abs=EXACT)


def test_waiting_for_a_rank_that_comes_late_is_told_apart() -> None:
    # It comes 35 ms after 40 ms, of which the rank waits from 60 ms on.
    found = summary_of(made_up_records(late=0.035))
    assert found["breakdown"]["exposed_communication"] == pytest.approx(0.025, abs=EXACT)
    assert found["breakdown"]["late_peers"] == pytest.approx(0.015, abs=EXACT)


def test_collectives_by_kind_in_all_and_per_iteration() -> None:
    found = summary_of(made_up_records())
    assert list(found["collectives"]) == ["all_reduce", "broadcast"]
    reduces = found["collectives"]["all_reduce"]
    per_iteration = reduces.pop("per_iteration")
    assert reduces == {
        "count": 22,
        "bytes": 22 * MIB,
        "time": pytest.approx(11 * 0.060, abs=EXACT),  # from 20 to 80 ms, once
        "exposed": pytest.approx(11 * 0.020, abs=EXACT),
        "hidden": pytest.approx(11 * 0.040, abs=EXACT),
        "duration": pytest.approx(0.035, abs=EXACT),
    }
    assert per_iteration == {
        "count": 2,
        "bytes": 2 * MIB,
        "time": pytest.approx(0.060, abs=EXACT),
        "exposed": pytest.approx(0.020, abs=EXACT),
        "hidden": pytest.approx(0.040, abs=EXACT),
    }
    assert found["all_collectives"]["per_iteration"]["exposed"] == pytest.approx(0.025, abs=EXACT)
    assert found["groups"] == [
        {"name": "0", "size": 4, "backend": "gloo", "collectives": 33, "bytes": 22 * MIB + 88}
    ]


def test_a_pause_between_two_iterations_is_no_part_of_a_typical_one() -> None:
    records = made_up_records()
    ends = [record for record in records if isinstance(record, Iteration)]
    paused = Iteration(0, 11, ends[-1].end + 5.0, 8.0, MIB)
    found = summary_of([*records, paused])
    assert found["iteration_time"]["mean"] > 0.5
    assert found["iteration_time"]["median"] == pytest.approx(0.1)
    assert found["breakdown"]["compute"] == pytest.approx(0.074, abs=1e-6)
    assert found["typical_iteration"] != 11


def test_lateness_is_from_the_last_result_in_a_wait_to_its_end() -> None:
    found = summary_of(made_up_records())
    # Half of the waits end 1 ms after the result, half with it.
    assert found["lateness"]["waits"] == 22
    assert found["lateness"]["median"] == pytest.approx(0.0005, abs=EXACT)
    assert found["lateness"]["p90"] == pytest.approx(0.001, abs=EXACT)


def test_of_several_real_ranks_the_slowest_stands_at_the_top() -> None:
    records = made_up_records(0) + made_up_records(2, slower=0.05)
    found = summary_of(records, mode="wire", rank=(0, 2))
    assert found["slowest_rank"] == 2
    assert found["iteration_time"]["median"] == pytest.approx(0.15)
    assert [each["rank"] for each in found["ranks"]] == [0, 2]
    assert found["ranks"][0]["iteration_time"]["median"] == pytest.approx(0.1)


def test_the_cost_of_the_emulator_is_its_last_word_on_every_rank() -> None:
    words: list[Record] = [
        Exchange(0, 100, 100, 2, 0.1),
        Exchange(0, 2_000_000, 1_000_000, 20, 0.6),
        Exchange(2, 500_000, 500_000, 10, 0.8),
    ]
    found = summary_of([*made_up_records(), *words], mode="wire")
    assert found["emulator"] == {
        "cpu": 0.8,
        "sent": 2_500_000,
        "received": 1_500_000,
        "messages": 30,
        "cpu_per_MB": pytest.approx(0.2),
    }
    assert "lateness" not in found


def test_without_steps_of_an_optimizer_the_collectives_are_still_there() -> None:
    found = summary_of(
        [record for record in made_up_records() if not isinstance(record, Iteration)]
    )
    assert found["iteration_time"] is None
    assert found["no_iteration_time"] == "the script made no step of an optimizer"
    assert found["breakdown"] is None
    assert found["collectives"]["all_reduce"]["count"] == 22
    assert found["collectives"]["all_reduce"]["per_iteration"] is None


def test_one_step_is_no_measurement() -> None:
    found = summary_of(made_up_records(iterations=1))
    assert found["iteration_time"] is None
    assert "one step" in found["no_iteration_time"]


def test_nothing_at_all_was_recorded() -> None:
    found = summary_of([])
    assert found["status"] == "failed"
    assert "no collective and sent no message" in found["notes"][0]["text"]
    assert found["wall_time"] == 0.0
    assert found["collectives"] == {}
    assert found["all_collectives"]["count"] == 0
    assert found["all_collectives"]["duration"] is None


@pytest.mark.parametrize(
    ("exit_code", "grave", "status"),
    [
        (0, False, "done"),
        (3, False, "failed"),
        (-9, False, "failed"),
        (0, True, "failed"),
        (None, False, "interrupted"),
        (None, True, "interrupted"),
    ],
)
def test_status(exit_code: int | None, grave: bool, status: str) -> None:
    records = [*made_up_records(), Note(-1, grave, "as told")]
    found = summary_of(records, exit_code)
    assert found["status"] == status
    assert found["exit_code"] == exit_code


def test_a_note_that_is_said_again_and_again_stands_there_once() -> None:
    note = Note(0, False, "twice")
    found = summary_of([*made_up_records(), note, note])
    assert [each["text"] for each in found["notes"]] == ["twice"]


def test_a_collective_counts_in_the_iteration_that_asked_for_it_and_lasts_into_the_next() -> None:
    records: list[Record] = [Group(0, "0", 2, (0, 1), "nccl")]
    records += [Iteration(0, number, START + number, 0.0, 0) for number in range(3)]
    # Asked for in iteration 1, from 0.9 to 1.3 s; waited for from 1.1 s on.
    times = START + 0.9, START + 0.9, START + 0.9, START + 1.3
    records += [
        Collective(0, "0", 0, "all_gather", 100, -1, *times),
        Wait(0, START + 1.1, times[3]),
    ]
    found = summary_of(records)["all_collectives"]["per_iteration"]
    assert found["count"] == 0.5
    assert found["exposed"] == pytest.approx(0.1, abs=EXACT)
    assert found["hidden"] == pytest.approx(0.1, abs=EXACT)


@pytest.mark.parametrize(
    ("asked", "what", "how"),
    [
        ({}, "communication", "assumed: takes no time"),
        ({"mode": "wire"}, "communication", "measured: between emulated ranks"),
        (
            {"latency": "25us", "bandwidth": "10Gbit/s"},
            "communication",
            "modelled: every link 10 Gbit/s, latency 25 us, algorithm auto",
        ),
        ({"communication": "mine.models:slow"}, "communication", "modelled: mine.models:slow"),
        ({"mode": "wire"}, "links of the real rank", "measured: real messages of gloo"),
        (
            {"mode": "wire", "bandwidth": "1Gbit/s"},
            "links of the real rank",
            "modelled: real messages, at the pace",
        ),
        ({}, "core", "assumed: communication takes nothing from computing"),
        ({"bandwidth": "1GB/s"}, "collectives at a time", "2 with gloo, 1 with nccl"),
        ({"bandwidth": "1GB/s", "comm_workers": 3}, "collectives at a time", "given: 3 of a group"),
        ({"skew": "50us"}, "other ranks", "assumed: skew 50us"),
        ({"compute_jitter": "measured"}, "other ranks", "jitter as measured on the real rank"),
        (
            {"what_if": ("all_reduce: +2 ms", "worker 1: compute 2x slower")},
            "what if",
            "all_reduce: +2 ms; worker 1: compute 2x slower",
        ),
    ],
)
def test_what_is_modelled_is_said(asked: dict[str, Any], what: str, how: str) -> None:
    assert how in summary_of(made_up_records(), **asked)["modelled"][what]
