"""Learning rates that change, against PyTorch's schedulers and loops written with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from metric_rows import column
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    PolynomialLR,
    SequentialLR,
)

from paracosm.errors import InputError
from paracosm.studies import KINDS
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.learning_rate import (
    describe_learning_rate,
    learning_rate_factor,
    parse_schedule,
    parse_warm_up,
    scaled_learning_rate,
)

LR = 0.4

Make = Callable[[torch.optim.Optimizer], LRScheduler]


def rates(make: Make, updates: int) -> list[float]:
    """Return the learning rates that PyTorch's scheduler gives to updates."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=LR)
    scheduler = make(optimizer)
    found = []
    for _ in range(updates):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(
    ("schedule", "warmup", "make"),
    [
        ("cosine(updates=30)", None, lambda o: CosineAnnealingLR(o, T_max=30)),
        ("cosine(updates=30, end=0.1)", None, lambda o: CosineAnnealingLR(o, 30, eta_min=0.1 * LR)),
        ("linear(updates=30)", None, lambda o: LinearLR(o, 1.0, 0.0, total_iters=30)),
        ("linear(updates=20, end=0.2)", None, lambda o: LinearLR(o, 1.0, 0.2, total_iters=20)),
        ("poly(updates=25, power=2)", None, lambda o: PolynomialLR(o, 25, power=2)),
        ("step(10, 20, factor=0.3)", None, lambda o: MultiStepLR(o, [10, 20], gamma=0.3)),
        (None, "7 updates", lambda o: LinearLR(o, start_factor=1 / 8, total_iters=7)),
        (None, "7 updates from 0.25", lambda o: LinearLR(o, start_factor=0.25, total_iters=7)),
        (
            "cosine(updates=30)",
            "6 updates from 0.1",
            lambda o: SequentialLR(
                o, [LinearLR(o, 0.1, total_iters=6), CosineAnnealingLR(o, 24)], milestones=[6]
            ),
        ),
        (
            "step(10, factor=0.5)",
            "15 updates from 0.1",
            lambda o: ChainedScheduler(
                [LinearLR(o, 0.1, total_iters=15), MultiStepLR(o, [10], gamma=0.5)]
            ),
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:The epoch parameter:UserWarning")
def test_every_schedule_is_that_of_pytorch(
    schedule: str | None, warmup: str | None, make: Make
) -> None:
    factor = learning_rate_factor(
        None if schedule is None else parse_schedule(schedule),
        None if warmup is None else parse_warm_up(warmup),
        30,
    )
    assert [LR * factor(t) for t in range(30)] == pytest.approx(rates(make, 30), rel=1e-9, abs=1e-9)


def test_a_decay_that_does_not_say_when_ends_with_the_run_and_stays_there() -> None:
    factor = learning_rate_factor(parse_schedule("linear(end=0.5)"), None, 10)
    assert [factor(t) for t in (0, 5, 10, 11, 1000)] == [1, 0.75, 0.5, 0.5, 0.5]


def test_local_steps_lie_between_two_updates() -> None:
    factor = learning_rate_factor(parse_schedule("linear(updates=4)"), None, 4)
    assert [factor(1 + j / 4) for j in range(4)] == [0.75, 0.6875, 0.625, 0.5625]


def test_a_warm_up_to_a_scaled_rate_begins_at_the_rate_of_one_worker() -> None:
    # Goyal et al. 2017, section 2.2: from eta to k eta.
    factor = learning_rate_factor(None, parse_warm_up("5 updates"), 10, scale=8.0)
    assert [8 * factor(t) for t in range(7)] == pytest.approx([1, 2.4, 3.8, 5.2, 6.6, 8, 8])


def test_scaling_is_linear_or_by_the_square_root() -> None:
    assert scaled_learning_rate(0.1, 16, None) == 0.1
    assert scaled_learning_rate(0.1, 16, "linear") == 1.6
    assert scaled_learning_rate(0.1, 16, "sqrt") == 0.4


@given(
    st.sampled_from(["cosine", "linear", "poly"]),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.floats(0, 1),
)
def test_a_decay_never_rises_after_its_warm_up(
    name: str, updates: int, warm_up: int, share: float
) -> None:
    schedule = parse_schedule(f"{name}(updates={warm_up + updates})")
    factor = learning_rate_factor(schedule, parse_warm_up(f"{warm_up} updates"), math.inf)
    t = warm_up + share * updates
    assert 1 == factor(warm_up) >= factor(t) >= factor(t + 1) >= 0


@pytest.mark.parametrize(
    "text",
    [
        *("cosine", "cosine(updates=300, end=0.1)", "linear(end=0.5)", "poly(power=2)"),
        *("step(10, 200.5)", "step(5, factor=0.5)"),
    ],
)
def test_a_schedule_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_schedule(text)) == text
    again = TrainConfig(lr_schedule=text, warmup="3 updates from 0.25")  # type: ignore[arg-type]
    assert TrainConfig.model_validate_json(again.model_dump_json(exclude_unset=True)) == again


def run(**arguments: Any) -> TrainingResult:
    common: dict[str, Any] = {
        "model": "small_network:model",
        "data": "small_network:data",
        "algorithm": "sequential",
        "workers": 1,
        "batch": 8,
        "lr": LR,
        "updates": 30,
        "lookahead": "off",
    }
    given = {k: v for k, v in {**common, **arguments}.items() if v is not None}
    return train(KINDS["train"].configured(given, "test"))


QUADRATIC = {"model": "quadratic:model", "data": "quadratic:data", "batch": 1, "compute": "1s"}


@pytest.mark.parametrize("optimizer", ["sgd", "sgd(momentum=0.9, weight_decay=0.01)", "adamw"])
def test_a_run_is_a_loop_of_pytorch_with_its_scheduler(optimizer: str) -> None:
    parameter = torch.ones(1, requires_grad=True)
    kind = {
        "sgd": lambda: torch.optim.SGD([parameter], LR),
        "adamw": lambda: torch.optim.AdamW([parameter], LR),
    }.get(optimizer, lambda: torch.optim.SGD([parameter], LR, momentum=0.9, weight_decay=0.01))
    stepper = kind()
    schedulers = [LinearLR(stepper, 0.1, total_iters=5), CosineAnnealingLR(stepper, 25)]
    scheduler = SequentialLR(stepper, schedulers, [5])
    for _ in range(30):
        stepper.zero_grad()
        ((parameter**2).sum() / 2).backward()
        stepper.step()
        scheduler.step()
    common = {**QUADRATIC, "optimizer": optimizer, "lr_schedule": "cosine(updates=30)"}
    common["warmup"] = "5 updates from 0.1"
    for rest in (
        {},
        {"algorithm": "ssgd", "workers": 3},
        {"algorithm": "ssgd", "workers": 3, "topology": "all-reduce"},
    ):
        found = float(run(**common, **rest).parameters)
        assert found == pytest.approx(float(parameter.detach()), rel=1e-5, abs=1e-6)


def test_momentum_of_pytorch_needs_no_correction_when_the_rate_changes() -> None:
    """Goyal et al. 2017, section 3: (10) with eta_{t+1} / eta_t before the momentum is (9)."""
    etas = [0.1] * 5 + [0.02] * 5
    x, v, previous = 1.0, 0.0, etas[0]
    for eta in etas:
        v = 0.9 * eta / previous * v + eta * x
        x, previous = x - v, eta
    result = run(
        **QUADRATIC,
        optimizer="sgd(momentum=0.9)",
        lr=0.1,
        updates=10,
        lr_schedule="step(5, factor=0.2)",
    )
    assert float(result.parameters) == pytest.approx(x)


def test_staleness_and_schedule_shorten_a_step_together() -> None:
    x, now = [1.0, 1.0, 1.0], 1.0
    for update, tau in enumerate([0, 1, 2, 2, 2, 2]):
        now -= LR * (1 - update / 6) / max(1, tau) * x[update % 3]
        x[update % 3] = now
    result = run(
        **QUADRATIC, algorithm="staleness-aware", workers=3, updates=6, lr_schedule="linear"
    )
    assert float(result.parameters) == pytest.approx(now)


def test_peers_count_the_updates_of_the_run() -> None:
    """Both first gradients are taken at 1, and averages keep the mean, which is what is said."""
    result = run(
        **QUADRATIC, algorithm="ad-psgd", workers=2, updates=2, lr_schedule="step(1, factor=0.5)"
    )
    assert float(result.parameters) == pytest.approx(1 - (LR + LR / 2) / 2)


def test_local_steps_have_the_rate_of_the_update_they_start_from() -> None:
    """fedbuff with one worker, buffer 1, 2 local steps: x <- x (1 - eta_t)^2."""
    x = 1.0
    for eta in (LR, LR, LR / 2, LR / 2):
        x *= (1 - eta) ** 2
    result = run(
        **QUADRATIC,
        algorithm="fedbuff(buffer=1, steps=2)",
        updates=4,
        lr_schedule="step(2, factor=0.5)",
    )
    assert float(result.parameters) == pytest.approx(x)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_local_steps_have_the_rates_of_a_loop_over_all_of_them(optimizer: str) -> None:
    """local-sgd of one worker, 4 steps a mean: 20 steps by PyTorch, whose scheduler knows 20."""
    parameter = torch.ones(1, requires_grad=True)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[optimizer]
    stepper = kind([parameter], LR / 4)
    scheduler = CosineAnnealingLR(stepper, 20)
    for _ in range(20):
        parameter.grad = parameter.detach().clone()
        stepper.step()
        scheduler.step()
    common = {**QUADRATIC, "optimizer": optimizer, "lr": LR / 4, "updates": 5}
    for workers in (1, 3):
        result = run(
            **common, algorithm="local-sgd(4)", workers=workers, lr_schedule="cosine(updates=5)"
        )
        expected = float(parameter.detach())
        assert float(result.parameters) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_steps_between_two_updates_in_several_calls_go_on_from_one_another() -> None:
    """easgd of one worker, 2 steps a move of the centre, at t = 0, 1/2, 1, 3/2, ..."""
    x, centre, updates = 1.0, 1.0, 4
    rate = lambda t: LR * (1 - t / updates)
    mine = x * (1 - rate(0)) * (1 - rate(0.5))
    for update in range(1, updates + 1):
        read, centre = centre, centre + 0.5 * (mine - centre)
        stepped = mine * (1 - rate(update)) - 0.5 * (mine - read)
        mine = stepped * (1 - rate(update + 0.5))
    result = run(
        **QUADRATIC, algorithm="easgd(period=2, elasticity=0.5)", updates=4, lr_schedule="linear"
    )
    assert float(result.parameters) == pytest.approx(centre, rel=1e-5)


def test_rates_and_clipping_are_the_same_together_as_one_by_one() -> None:
    common = {"algorithm": "fedavg(steps=3)", "workers": 20, "lr_schedule": "cosine", "clip": 0.3}
    alone, together = run(**common, updates=6), run(**common, updates=6, lookahead="auto")
    assert torch.allclose(alone.parameters, together.parameters, atol=1e-6)
    free = run(**{**common, "clip": None}, updates=6)
    assert not torch.allclose(alone.parameters, free.parameters, atol=1e-3)


def test_a_schedule_of_reads_and_updates_has_the_same_rates(tmp_path: Path) -> None:
    common: dict[str, Any] = {"algorithm": "softsync", "workers": 3, "latency": "1ms"}
    timing = train(TrainConfig(**common, updates=20, timing_only=True, timeline=False))
    assert timing.schedule is not None
    timing.schedule.write(tmp_path / "schedule.parquet")
    recipe = {"lr_schedule": "cosine", "warmup": "4 updates", "updates": 20}
    engine = run(**common, **recipe, timeline=False)
    common = {"algorithm": "softsync", "schedule": tmp_path / "schedule.parquet", "workers": None}
    over = run(**common, **recipe)
    assert column(over, "minibatch_loss") == column(engine, "minibatch_loss")
    assert column(over, "learning_rate") == column(engine, "learning_rate")


def test_the_rate_stands_in_metrics_and_summary() -> None:
    result = run(updates=10, lr_schedule="linear(updates=10)", evaluate_every=5)
    assert column(result, "learning_rate") == pytest.approx([LR, LR / 2, 0])
    assert result.summary.learning_rate == "0.4, 0.04 at the last update; linear(updates=10)"
    assert run(updates=2).summary.learning_rate is None
    assert column(run(updates=2), "learning_rate") == []


def test_a_run_that_a_time_ends_says_what_had_not_ended() -> None:
    result = run(
        updates=None,
        until="5.5s",
        compute="1s",
        lr_schedule="cosine(updates=100)",
        warmup="3 updates",
    )
    said = result.summary.learning_rate
    assert said is not None
    assert "cosine(updates=100), which had not ended" in said
    assert said.endswith("warm-up of 3 updates")


@pytest.mark.parametrize(("scaling", "lr"), [("linear", 0.4), ("sqrt", 0.2), ("inverse", 0.025)])
def test_a_scaled_rate_is_that_of_the_scaled_run(scaling: str, lr: float) -> None:
    scaled = run(algorithm="asgd", workers=4, lr=0.1, lr_scaling=scaling, updates=5)
    plain = run(algorithm="asgd", workers=4, lr=lr, updates=5)
    assert torch.equal(scaled.parameters, plain.parameters)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr_schedule": "cosin"}, 'did you mean "cosine"?'),
        ({"lr_schedule": "cosine(300)"}, "name its parameters"),
        ({"lr_schedule": "cosine(update=300)"}, 'did you mean "updates"?'),
        ({"lr_schedule": "linear(end=2)"}, "end must be from 0 to 1"),
        ({"lr_schedule": "poly(power=0)"}, "power must be above 0"),
        ({"lr_schedule": "step"}, "after how many updates?"),
        ({"lr_schedule": "step(20, 10)"}, "ascending"),
        ({"lr_schedule": "step(10, factor=1)"}, "not 1"),
        ({"lr_schedule": "step(5, 10, factor=1e5)"}, "grow the learning rate above 1e+09 times"),
        ({"lr": 1e300}, "less than or equal to 1000000000"),
        ({"lr_schedule": "cosine(updates=31)"}, "ends after the run, which has 30 updates"),
        ({"lr_schedule": "step(10, 30)"}, "ends after the run"),
        ({"warmup": "31 updates"}, "ends after the run"),
        ({"warmup": "30 updates", "lr_schedule": "cosine"}, "warm up for fewer"),
        ({"warmup": "10"}, "write 500 updates"),
        ({"warmup": "10 updates from 1"}, "below 1"),
        ({"lr_schedule": "cosine", "updates": None, "until": "5s"}, "cosine(updates=3000)"),
        ({"lr_schedule": "cosine", "timing_only": True, "lr": None}, "lr_schedule: has no effect"),
        ({"lr_scaling": "cubic"}, "lr_scaling"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    arguments: dict[str, Any], message: str
) -> None:
    common = {"updates": 30, **arguments}
    with pytest.raises(InputError) as caught:
        KINDS["train"].configured({k: v for k, v in common.items() if v is not None}, "test")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_what_had_not_ended_is_said_not_to_have() -> None:
    steps, cosine = parse_schedule("step(5)"), parse_schedule("cosine")
    factor = learning_rate_factor(steps, None, 20)
    said = describe_learning_rate(1.0, steps, None, 20, factor, 6)
    assert said == "1, 0.1 at the last update; step(5)"
    factor = learning_rate_factor(cosine, None, 20)
    said = describe_learning_rate(1.0, cosine, None, 20, factor, 11)
    assert said == "1, 0.5 at the last update; cosine, which had not ended"
