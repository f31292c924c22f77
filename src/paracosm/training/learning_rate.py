"""Learning rates that change: schedules, warm-up, and scaling with the number of workers.

The learning rate of an update is a factor of the one that was given, and the factor a function of
t, the number of updates that the run has made before; the first has t = 0, as with the schedulers
of `torch.optim.lr_scheduler`. Local steps lie between two updates: the j-th of H steps (from 0)
from the parameters of update t has t + j / H.
"""

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from math import cos, inf, pi
from typing import Any, ClassVar, Literal, Self

from paracosm.errors import InputError, unknown
from paracosm.expression import bind, parse_expression
from paracosm.training.named import LARGEST
from paracosm.units import format_number, parse_number

Factor = Callable[[float], float]
"""From the number of updates before to the factor of the learning rate."""

LearningRateScaling = Literal["linear", "sqrt", "inverse"]


@dataclass(frozen=True)
class Decay:
    """A factor that falls from 1, where the warm-up ends, to its last value after `updates`.

    It stays there. Without `updates` it ends with the last update of the run.
    """

    name: ClassVar[str]
    updates: float | None = None

    def __post_init__(self) -> None:
        if self.updates is not None and not 0 < self.updates < inf:
            raise InputError(f"{self.name}: updates must be above 0, got {self.updates:g}")
        if not 0 <= getattr(self, "end", 0.0) <= 1:
            raise InputError(f"{self.name}: end must be from 0 to 1, a share of the learning rate")

    def at(self, progress: float) -> float:
        """Return the factor at a share of the way, from 0 to 1."""
        raise NotImplementedError

    def until(self, last: float) -> Self:
        """Return the same, ending after `last` updates unless it says when."""
        return replace(self, updates=self.updates or last)

    def __str__(self) -> str:
        return _written(self, ())


@dataclass(frozen=True)
class Cosine(Decay):
    """end + (1 - end) (1 + cos(pi p)) / 2 at the share p of the way.

    `CosineAnnealingLR` with eta_min = end lr, up to T_max; Loshchilov, Hutter, "SGDR: Stochastic
    Gradient Descent with Warm Restarts", 2017, equation 5.
    """

    name: ClassVar[str] = "cosine"
    end: float = 0.0

    def at(self, progress: float) -> float:
        return self.end + (1 - self.end) * (1 + cos(pi * progress)) / 2


@dataclass(frozen=True)
class Linear(Decay):
    """1 + (end - 1) p at the share p of the way: `LinearLR` with start_factor = 1."""

    name: ClassVar[str] = "linear"
    end: float = 0.0

    def at(self, progress: float) -> float:
        return 1 + (self.end - 1) * progress


@dataclass(frozen=True)
class Poly(Decay):
    """(1 - p)^power at the share p of the way: `PolynomialLR`."""

    name: ClassVar[str] = "poly"
    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.power < inf:
            raise InputError(f"poly: power must be above 0, got {self.power:g}")

    def at(self, progress: float) -> float:
        return float((1 - progress) ** self.power)


@dataclass(frozen=True)
class Step:
    """factor^k after k of the milestones, counted from the beginning of the run: `MultiStepLR`."""

    name: ClassVar[str] = "step"
    milestones: tuple[float, ...]
    factor: float = 0.1

    def __post_init__(self) -> None:
        if not self.milestones:
            raise InputError("step: after how many updates? write step(1000, 2000, factor=0.1)")
        if not all(a < b for a, b in zip((0.0, *self.milestones), self.milestones, strict=False)):
            raise InputError("step: milestones are numbers of updates above 0, ascending")
        if not 0 < self.factor < inf or self.factor == 1:
            raise InputError(f"step: factor must be above 0 and not 1, got {self.factor:g}")
        if self.factor > LARGEST ** (1 / len(self.milestones)):
            raise InputError(
                f"step: factor must not grow the learning rate above {LARGEST:g} times, got "
                f"{self.factor:g}"
            )

    def __str__(self) -> str:
        return _written(self, self.milestones)


Schedule = Decay | Step
_DECAYS: dict[str, type[Decay]] = {kind.name: kind for kind in (Cosine, Linear, Poly)}


@dataclass(frozen=True)
class WarmUp:
    """A factor that grows linearly, from `start` to 1 after so many updates.

    "Gradual warmup" of Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour",
    2017, section 2.2; `LinearLR` with start_factor = `start`. There it starts from the learning
    rate before scaling, and so it does here where a rule scales it; elsewhere the first of N
    updates has the share 1 / (N + 1).
    """

    updates: float
    start: float | None = None

    def scaled(self, scale: float) -> "WarmUp":
        """Return the same to a learning rate that was scaled, with its start."""
        usual = 1 / scale if scale > 1 else 1 / (self.updates + 1)
        return replace(self, start=self.start or usual)

    def __str__(self) -> str:
        start = "" if self.start is None else f" from {format_number(self.start)}"
        return f"{format_number(self.updates)} updates{start}"


def learning_rate_factor(
    schedule: Schedule | None,
    warm_up: WarmUp | None,
    last: float,  # updates of the run; infinite where it ends otherwise
    scale: float = 1.0,  # by which the learning rate was scaled
) -> Factor:
    """Return the factor of the learning rate as a function of the number of updates before.

    A decay begins where the warm-up ends (`SequentialLR`); milestones and warm-up multiply
    (`ChainedScheduler`).
    """
    if schedule is None and warm_up is None:
        return lambda t: 1.0
    begin, start = 0.0, 1.0
    if warm_up is not None:
        begin, start = warm_up.updates, warm_up.scaled(scale).start or 1.0
    if isinstance(schedule, Decay):
        last = schedule.updates or last

    def factor(t: float) -> float:
        warm_up = start + (1 - start) * t / begin if t < begin else 1.0
        if isinstance(schedule, Step):
            warm_up *= schedule.factor ** bisect_right(schedule.milestones, t)
        elif schedule is not None and t > begin:
            warm_up *= schedule.at(min(1.0, (t - begin) / (last - begin)))
        return warm_up

    return factor


def check_ends(schedule: Schedule | None, warm_up: WarmUp | None, last: float) -> None:
    """Raise InputError unless a schedule and a warm-up end with the `last` update, or before.

    Where the run ends by time (`last` is infinite), a decay has to say when it ends.
    """
    if isinstance(schedule, Decay) and schedule.updates is None and last == inf:
        raise InputError(
            f"lr_schedule: {schedule} ends with the last update, and the run ends by time: write "
            f"{schedule.name}(updates=3000)"
        )
    ends = [(f"lr_schedule: {schedule}", _last_change(schedule, last))]
    if warm_up is not None:
        ends.append((f"warmup: {warm_up}", warm_up.updates))
        begin = warm_up.updates
        if isinstance(schedule, Decay) and begin >= (schedule.updates or last):
            raise InputError(
                f"warmup: {warm_up}, when {schedule} is over after "
                f"{format_number(schedule.updates or last)}: warm up for fewer"
            )
    for what, end in ends:
        if end > last:
            raise InputError(
                f"{what} ends after the run, which has {last:,.0f} updates: let it end before, or "
                "give the run more updates"
            )


def describe_learning_rate(
    lr: float,
    schedule: Schedule | None,
    warm_up: WarmUp | None,
    last: float,  # updates of the run, if nothing else had ended it
    factor: Factor,
    updates: int,  # that it made
) -> str | None:
    """Say how the learning rate has changed; None if it has not."""
    if schedule is None and warm_up is None:
        return None
    said = f"{format_number(lr)}, {lr * factor(max(0, updates - 1)):.4g} at the last update"
    parts: list[tuple[str, float]] = []
    if schedule is not None:
        parts.append((str(schedule), _last_change(schedule, last)))
    if warm_up is not None:
        parts.append((f"warm-up of {warm_up}", warm_up.updates))
    notes = [text + (", which had not ended" if end > updates else "") for text, end in parts]
    return "; ".join([said, *notes])


def _last_change(schedule: Schedule | None, last: float) -> float:
    """Return the number of updates that it takes until the last change has had its effect."""
    if isinstance(schedule, Step):
        return schedule.milestones[-1] + 1
    return 0.0 if schedule is None else schedule.updates or last


def scaled_learning_rate(lr: float, workers: int, scaling: LearningRateScaling | None) -> float:
    """Return the learning rate with many workers, of one for a single worker.

    It is W times as high ("linear": Goyal et al., "Accurate, Large Minibatch SGD", 2017, section
    2.1), the square root of W ("sqrt": Krizhevsky, "One weird trick for parallelizing convolutional
    neural networks", 2014), or 1 / W ("inverse", for asynchronous workers, which make W updates
    where synchronous ones make one, at a staleness of about W: Zhang, Gupta, Lian, Liu,
    "Staleness-aware Async-SGD", 2016, equation 3, divide by it), to six digits.
    """
    if scaling is None:
        return lr
    factor = {"linear": float(workers), "sqrt": workers**0.5, "inverse": 1 / workers}[scaling]
    return float(f"{lr * factor:.6g}")


def parse_schedule(text: str) -> Schedule:
    """Read `cosine`, `cosine(updates=3000, end=0.1)`, `step(1000, 2000, factor=0.1)`, ..."""
    name, positional, named = parse_expression(text, "learning-rate schedule")
    if name != "step" and name not in _DECAYS:
        raise unknown("learning-rate schedule", name, (*_DECAYS, "step"))
    kind = _DECAYS.get(name, Step)
    known = [field.name for field in fields(kind) if field.default is not MISSING]
    values = {key: _number(name, key, text) for key, text in bind(name, (), named, known).items()}
    if name == "step":
        milestones = tuple(_number(name, "a milestone", milestone) for milestone in positional)
        return Step(milestones, **values)
    if positional:
        raise InputError(f"{name}: name its parameters, as in {name}(updates=3000)")
    return _DECAYS[name](**values)


def parse_warm_up(text: Any) -> WarmUp:
    """Read "500 updates", or "500 updates from 0.1": of the learning rate."""
    match = re.fullmatch(r"\s*(\S+)\s+updates?(?:\s+from\s+(\S+))?\s*", str(text))
    if match is None:
        raise InputError(f'cannot read "{text}" as a warm-up: write 500 updates')
    updates = parse_number(match[1])
    start = None if match[2] is None else parse_number(match[2])
    if not 0 < updates < inf:
        raise InputError(f"warm-up: the number of updates must be above 0, got {match[1]}")
    if start is not None and not 0 < start < 1:
        raise InputError(f"warm-up: it starts from a share above 0 and below 1, not {match[2]}")
    return WarmUp(updates, start)


def _number(name: str, key: str, text: str) -> float:
    try:
        return parse_number(text)
    except InputError:
        raise InputError(f'{name}: {key} must be a number, got "{text}"') from None


def _written(schedule: Schedule, positional: tuple[float, ...]) -> str:
    named = [
        f"{field.name}={format_number(getattr(schedule, field.name))}"
        for field in fields(schedule)
        if field.default is not MISSING and getattr(schedule, field.name) != field.default
    ]
    inside = ", ".join([*map(format_number, positional), *named])
    return f"{schedule.name}({inside})" if inside else schedule.name
