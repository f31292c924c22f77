"""Targets: what they mean, when one is reached, and that a run ends there."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metric_rows import series
from pydantic import ValidationError

from paracosm.errors import InputError
from paracosm.studies import KINDS
from paracosm.training import ScheduleTrainConfig, TrainConfig, TrainingResult, train
from paracosm.training.target import FirstPassage, Target, parse_target


def run(**arguments: object) -> TrainingResult:
    common = {
        "model": "quadratic:model",
        "data": "quadratic:data",
        "algorithm": "sequential",
        "workers": 1,
        "lr": 0.25,
        "compute": "1s",
        "lookahead": "off",
        "batch": 1,
    }
    return train(TrainConfig.model_validate({**common, **arguments}))


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("accuracy >= 0.95", Target("accuracy", ">=", 0.95)),
        (" loss<=1e-3 ", Target("loss", "<=", 1e-3)),
        ("test_loss <= 0.1", Target("test_loss", "<=", 0.1)),
    ],
)
def test_texts_are_read_and_written(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert parse_target(str(target)) == target


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acuracy >= 0.95", 'unknown metric "acuracy": choose from loss, test_loss, accuracy'),
        ("accuracy <= 0.95", "write accuracy >= 0.95"),
        ("loss < 0.1", "write loss <= 0.1"),
        ("loss = 0.1", "write loss <= 0.1"),
        ("loss <= low", 'cannot read "low"'),
        ("loss <= 0.1 s", 'cannot read "loss <= 0.1 s" as a target'),
        ("<= 0.1", 'cannot read "<= 0.1" as a target'),
    ],
)
def test_what_is_no_target_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_target(text)


def test_the_first_of_three_evaluations_in_a_row_is_the_passage() -> None:
    passage = FirstPassage(parse_target("loss <= 1"))
    seen = [2.0, 0.9, 0.8, 1.1, 1.0, math.nan, 0.9, 0.7, 0.8]
    reached = [passage.see(10.0 * number, number, value) for number, value in enumerate(seen)]
    assert reached == [False] * 8 + [True]
    assert (passage.reached_at, passage.reached_updates) == (60.0, 6)
    assert passage.best == 0.7


def test_no_number_is_the_best_of_nothing() -> None:
    passage = FirstPassage(parse_target("accuracy >= 0.5"))
    for value in (math.nan, 0.2, math.nan, 0.1):
        passage.see(0.0, 0, value)
    assert passage.best == 0.2


@given(st.lists(st.booleans(), max_size=12), st.integers(1, 4))
def test_a_passage_is_the_first_run_of_met_evaluations(met: list[bool], held: int) -> None:
    passage = FirstPassage(Target("accuracy", ">=", 1.0), held)
    for number, is_met in enumerate(met):
        passage.see(float(number), number, float(is_met))
    runs = [i for i in range(len(met) - held + 1) if all(met[i : i + held])]
    assert passage.reached_updates == (runs[0] if runs else None)


def test_a_run_ends_when_its_target_has_held() -> None:
    # x_k = 0.75^k and the loss is x^2 / 2, which is below 0.01 from k = 7 on.
    first = next(k for k in range(20) if 0.75 ** (2 * k) / 2 <= 0.01)
    assert first == 7
    result = run(until="loss <= 0.01", evaluate_every=1, updates=100)
    summary = result.summary
    assert (summary.status, summary.target) == ("done", "loss <= 0.01")
    assert (summary.reached_at, summary.reached_updates) == (7.0, 7)
    assert summary.updates == 9
    assert summary.best == pytest.approx(0.75**18 / 2)
    assert [row.step for row in series(result, "loss")] == list(range(10))


def test_a_time_to_a_target_is_known_to_a_fiftieth_however_long_the_run_may_get() -> None:
    for most in (120, 100_000):
        result = run(until="loss <= 0.045", lr=0.01, updates=most)
        # The loss is 0.99^(2 k) / 2 after k updates: not above 0.045 from k = 120 on.
        assert 0.99**240 / 2 <= 0.045 < 0.99**238 / 2
        steps = [row.step for row in series(result, "loss")]
        assert steps == [*range(101), *range(102, min(most, 124) + 1, 2)]
    assert result.summary.reached_updates == 120


def test_a_target_that_is_not_reached_stops_the_run_at_its_last_update() -> None:
    summary = run(until="loss <= 1e-9", evaluate_every=1, updates=5).summary
    assert (summary.status, summary.updates) == ("stopped", 5)
    assert summary.reached_at is None
    assert summary.best == pytest.approx(0.75**10 / 2)


def test_without_a_number_of_updates_a_target_has_the_usual_one() -> None:
    assert TrainConfig.model_validate({"until": "accuracy >= 1"}).most_updates == 3000


def test_metrics_that_there_are_not_are_told_from_those_that_there_are() -> None:
    with pytest.raises(InputError, match="have no accuracy, only loss and test_loss"):
        run(until="accuracy >= 0.5")


def test_until_is_a_time_or_a_target_and_keeps_its_form() -> None:
    for text, time in (("accuracy >= 0.95", None), ("2s", 2.0)):
        config = TrainConfig.model_validate({"until": text})
        assert config.until_time == time
        written = config.model_dump(mode="json")["until"]
        assert TrainConfig.model_validate({"until": written}) == config
    for value, message in (("0s", "must be above 0 seconds"), ("3", "has no unit")):
        with pytest.raises((InputError, ValidationError), match=message):
            TrainConfig.model_validate({"until": value})


def test_nothing_is_reached_where_nothing_is_computed() -> None:
    with pytest.raises(ValidationError, match="it cannot reach a target"):
        TrainConfig.model_validate({"until": "loss <= 1", "timing_only": True})


def test_a_schedule_in_a_file_takes_the_place_of_the_cluster(tmp_path: Path) -> None:
    made = train(
        TrainConfig.model_validate(
            {"timing_only": True, "timeline": False, "workers": 3, "updates": 9, "compute": "1s"}
        )
    )
    assert made.schedule is not None
    path = tmp_path / "schedule.parquet"
    made.schedule.write(path)
    job = {"model": "quadratic:model", "data": "quadratic:data", "lr": 0.25, "batch": 1}
    job |= {"schedule": str(path), "lookahead": "off"}
    over = train(ScheduleTrainConfig.model_validate(job))
    # Three workers in turn: each gradient is that of three updates ago.
    x = [1.0, 1.0, 1.0]
    for _ in range(9):
        x.append(x[-1] - 0.25 * x[-3])
    assert float(over.parameters) == pytest.approx(x[-1])
    assert (over.summary.workers, over.summary.updates) == (3, 9)
    assert over.schedule is not None
    with pytest.raises(InputError, match="cannot be combined with"):
        KINDS["train"].configured({"schedule": str(path), "workers": 3}, "test")
    over.schedule.updates["step"][-1] = 2**31 - 1
    over.schedule.write(path)
    with pytest.raises(InputError, match="step 2,147,483,647 is too large for this schedule"):
        train(ScheduleTrainConfig.model_validate(job))
    path.write_bytes(b"no parquet")
    with pytest.raises(InputError, match="and no schedule: paracosm train --timing-only"):
        train(ScheduleTrainConfig.model_validate(job))
    with pytest.raises(InputError, match="no such file"):
        train(ScheduleTrainConfig.model_validate({**job, "schedule": str(tmp_path / "other")}))
