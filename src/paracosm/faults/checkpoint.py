"""Checkpoint policies: when to save, how to detect faults, what to restore, and their score."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from math import exp, expm1, inf, sqrt
from typing import Any, Literal, get_args

from paracosm.errors import InputError, unknown
from paracosm.quantities import read_duration
from paracosm.timing.distribution import DURATION, NUMBER, Parameter
from paracosm.units import format_duration


def young_interval(cost: float, mtbf: float) -> float:
    """Return sqrt(2 c M) seconds.

    Source: Young, "A First Order Approximation to the Optimum Checkpoint Interval", CACM 17(9),
    1974.

    Args:
        cost: c, the seconds that one checkpoint takes.
        mtbf: M, the mean time between failures, in seconds.

    Raises:
        InputError: a negative or infinite cost, or a time between failures that is not above 0.
    """
    _check(cost, mtbf)
    return sqrt(2 * cost * mtbf)


def daly_interval(cost: float, mtbf: float) -> float:
    """Return sqrt(2 c M) [1 + sqrt(c / 2M) / 3 + (c / 2M) / 9] - c seconds; M where c >= 2M.

    Source: Daly, "A Higher Order Estimate of the Optimum Checkpoint Interval for Restart Dumps",
    Future Generation Computer Systems 22, 2006. The arguments are those of `young_interval`.

    Raises:
        InputError: as `young_interval`.
    """
    _check(cost, mtbf)
    if cost >= 2 * mtbf:
        return mtbf
    ratio = cost / (2 * mtbf)
    return sqrt(2 * cost * mtbf) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost


INTERVALS: Mapping[str, Callable[[float, float], float]] = {
    "young": young_interval,
    "daly": daly_interval,
}
"""Intervals by the name of who suggests them."""


def expected_makespan(
    work: float, interval: float, cost: float, restart: float, mtbf: float
) -> float:
    """Return the expected M e^(R / M) (e^((tau + c) / M) - 1) T / tau seconds of a job.

    Failures come at exponential intervals with mean M, during checkpoints and restarts too. It is
    exact if every tau seconds of the work T, the last ones included, end in a checkpoint, and
    infinite if a segment hardly ever ends without a failure.

    Source: Daly 2006 (see `daly_interval`), the complete cost function.

    Args:
        work: T, seconds that the job takes without failures and checkpoints.
        interval: tau, seconds of work between two checkpoints.
        cost: c, the seconds that one checkpoint takes.
        restart: R, seconds from a failure until work resumes.
        mtbf: M, the mean time between failures of the job, in seconds; infinite without any.

    Raises:
        InputError: a negative time, or an interval or a time between failures that is not above 0.
    """
    if mtbf != inf:
        _check(cost, mtbf)
    if not (interval > 0 and restart >= 0 and work >= 0):
        raise InputError(
            "a job needs an interval between checkpoints above 0, and work and a restart of 0 "
            f"seconds or more, not {interval}, {work} and {restart}"
        )
    if mtbf == inf:
        return work * (1 + cost / interval)
    try:
        return mtbf * exp(restart / mtbf) * expm1((interval + cost) / mtbf) * work / interval
    except OverflowError:
        return inf


def _check(cost: float, mtbf: float) -> None:
    if not 0 <= cost < inf:
        raise InputError(f"the cost of a checkpoint must be finite and 0 or more, not {cost}")
    if not 0 < mtbf < inf:
        raise InputError(f"the mean time between faults must be above 0 and finite, not {mtbf}")


Scope = Literal["all", "block"]
Monitor = Literal["residual", "component"]

# The smallest alpha without a false rollback, measured without faults, lies between 1.05 and 1.11.
_SAFE_ALPHA = 1.11


@dataclass(frozen=True)
class CheckpointPolicy:
    """Algorithm 5 (Coleman and Sosonkina, section 6.2) and its variants.

    At every instant with an update or a fault, and after it, the norm of the residual is compared
    with the previous one: r_new > alpha r_old restores the checkpoint. Then, if omega has passed, x
    is saved. Algorithm 5 as printed never updates r_old; r_old <- r_new at every instant, and the
    residual of the restored x after a rollback, is the reading that gives figure 11.

    `monitor="component"` compares each block's own residual instead: block l is flagged when the
    norm of its rows of b - A x exceeds alpha times its own previous value, both taken when the
    block is read for an update. Divided by the diagonal, these rows are the change that a Jacobi
    update is about to make. This is in the manner of the component-wise technique of Anzt, Dongarra
    and Quintana-Orti ("Tuning Stationary Iterative Solvers for Fault Resilience", ScalA 2015;
    "Fine-grained Bit-Flip Protection for Relaxation Methods", J. Comp. Science, 2016), who reject
    single updates; here whole blocks are judged and rolled back.

    Raises:
        InputError: a value that is out of range.
    """

    # growth of the residual that is put down to a fault; above 1 to make progress, see `advice`
    alpha: float
    omega: float  # seconds between checkpoints: mod(t, omega) = 0; the initial guess is the first
    scope: Scope = "all"  # "all" puts back all of x, "block" the block alone
    monitor: Monitor = "residual"  # "residual" of all, or each block's
    cost: float = 0.0  # seconds of virtual time that a checkpoint costs every processor
    restore: float = 0.0  # the same, for a rollback

    def __post_init__(self) -> None:
        for name, value in (("alpha", self.alpha), ("omega", self.omega)):
            if not 0 < value < inf:
                raise InputError(f"checkpoint: {name} must be above 0 and finite, not {value}")
        for name, value in (("cost", self.cost), ("restore", self.restore)):
            if not 0 <= value < inf:
                raise InputError(f"checkpoint: {name} must be finite and 0 or more, not {value}")
        for name, word, valid in (
            ("scope", self.scope, get_args(Scope)),
            ("monitor", self.monitor, get_args(Monitor)),
        ):
            if word not in valid:
                raise InputError(f'checkpoint: {name} must be {" or ".join(valid)}, not "{word}"')

    def __str__(self) -> str:
        """Return the shortest spelling; `parse_checkpoint` reads it back as an equal policy."""
        return ", ".join(
            f"{field.name}={_PARAMETERS[field.name].format(getattr(self, field.name))}"
            for field in fields(self)
            if field.default is MISSING or getattr(self, field.name) != field.default
        )


_WORD = Parameter(lambda value: str(value).strip(), str)
_TIME = Parameter(read_duration, DURATION.format)
_PARAMETERS: dict[str, Parameter] = {
    "alpha": NUMBER,
    "omega": _TIME,
    "scope": _WORD,
    "monitor": _WORD,
    "cost": _TIME,
    "restore": _TIME,
    "mtbf": _TIME,
}
_USAGE = 'write "alpha=2, omega=10s"'


def parse_checkpoint(
    value: str | Mapping[str, Any] | CheckpointPolicy, mtbf: float | None = None
) -> CheckpointPolicy:
    """Read a policy such as "alpha=2, omega=10s, scope=block, cost=1ms".

    `omega` may be "young" or "daly": the interval that they suggest for the `cost` of a checkpoint
    and the mean time between faults, which is `mtbf=` in the text or else `mtbf` (seconds), such as
    from `mean_time_between_faults`.

    Args:
        value: text, the mapping of a study file, or a policy, which is returned as is.

    Raises:
        InputError: one line that names the unknown key or the value that cannot be.
    """
    if isinstance(value, CheckpointPolicy):
        return value
    written = {**value} if isinstance(value, Mapping) else _split(value)
    interval = str(written.get("omega", "")).strip()
    if interval in INTERVALS:
        written["omega"] = _suggested(interval, written, mtbf)
    elif interval[:1].isalpha() and interval != "inf":
        raise unknown("omega of a checkpoint", interval, ["a duration", *INTERVALS])
    elif "mtbf" in written:
        raise InputError("checkpoint: mtbf has no effect unless omega is young or daly")
    written.pop("mtbf", None)
    values = {name: _read(name, text) for name, text in written.items()}
    for name in ("alpha", "omega"):
        if name not in values:
            raise InputError(f"checkpoint: {name} is missing; {_USAGE}")
    return CheckpointPolicy(**values)


def advice(policy: CheckpointPolicy, run_time: float | None = None) -> str | None:
    """Return objections to a policy, in sentences; None if there are none.

    `run_time` is how long the run takes without faults, in seconds, if known.
    """
    alpha, omega = NUMBER.format(policy.alpha), format_duration(policy.omega)
    objections = []
    if policy.alpha <= 1:
        objections.append(
            f"alpha={alpha} rejects every update after which the residual is "
            "larger than before, which asynchronous updates often do: the iteration stagnates. "
            "Take alpha above 1, such as 2."
        )
    elif policy.alpha <= _SAFE_ALPHA:
        objections.append(
            f"alpha={alpha} may roll back without a fault: the smallest safe "
            "alpha measured lies between 1.05 and 1.11. Take a larger one, such as 2."
        )
    if policy.omega < policy.cost:
        objections.append(
            f"omega={omega} is shorter than the {format_duration(policy.cost)} that a checkpoint "
            "costs: the run spends most of its time saving. Take a longer one, such as young."
        )
    if run_time is not None and policy.omega >= run_time:
        objections.append(
            f"omega={omega} is longer than the run, which takes about "
            f"{format_duration(float(f'{run_time:.2g}'))} without faults: a rollback goes back "
            "to the first iterate. Take a shorter one."
        )
    return " ".join(objections) or None


def _split(text: object) -> dict[str, Any]:
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"checkpoint: {_USAGE}, not {text!r}")
    written: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise InputError(f'checkpoint: cannot read "{part.strip()}" in "{text}"; {_USAGE}')
        if name in written:
            raise InputError(f"checkpoint: {name} is given twice")
        written[name] = value
    return written


def _suggested(name: str, written: Mapping[str, Any], mtbf: float | None) -> float:
    if "mtbf" in written:
        mtbf = _read("mtbf", written["mtbf"])
    if mtbf is None:
        raise InputError(
            f"checkpoint: omega={name} needs the mean time between faults, such as mtbf=100s"
        )
    cost = _read("cost", written.get("cost", 0.0))
    if not cost > 0:
        raise InputError(f"checkpoint: omega={name} needs a cost above 0, such as cost=1ms")
    return INTERVALS[name](cost, mtbf)


def _read(name: str, value: Any) -> Any:
    if name not in _PARAMETERS:
        raise unknown("key of a checkpoint", str(name), _PARAMETERS)
    try:
        return _PARAMETERS[name].parse(value)
    except InputError as error:
        raise InputError(f"checkpoint: {name}: {error}") from None


@dataclass(frozen=True)
class DetectionScore:
    """Faults matched with rollbacks."""

    detected: int  # faults that a rollback followed within the window
    undetected: int  # the other faults
    false_alarms: int  # rollbacks that followed no fault
    repeats: int  # further rollbacks for a fault detected already (only if they are distinguished)
    detection_rate: float | None  # detected / faults; None without faults
    false_alarm_rate: float | None  # false alarms / rollbacks; None without rollbacks


def score(
    fault_times: Sequence[float],
    rollback_times: Sequence[float],
    window: float,
    *,
    allow_repeats: bool = False,
) -> DetectionScore:
    """Match each rollback, in time order, to the latest unmatched fault within `window` before it.

    Args:
        fault_times, rollback_times: seconds of virtual time, in any order.
        window: seconds; 0 or more. A fault at the very instant of the rollback counts.
        allow_repeats: a rollback with only matched faults in its window is a repeat, not a false
            alarm. Needed if blocks roll back separately, since one fault may strike several.

    Raises:
        InputError: a window that is negative or NaN.
    """
    if not window >= 0:
        raise InputError(f"the window of a detection must be 0 or more, not {window}")
    unmatched = sorted(fault_times)
    matched: list[float] = []
    repeats = 0
    for rollback in sorted(rollback_times):
        if (fault := _latest(unmatched, rollback, window)) is not None:
            unmatched.remove(fault)
            matched.append(fault)
        elif allow_repeats and _latest(sorted(matched), rollback, window) is not None:
            repeats += 1
    false_alarms = len(rollback_times) - len(matched) - repeats
    return DetectionScore(
        detected=len(matched),
        undetected=len(unmatched),
        false_alarms=false_alarms,
        repeats=repeats,
        detection_rate=len(matched) / len(fault_times) if len(fault_times) else None,
        false_alarm_rate=false_alarms / len(rollback_times) if len(rollback_times) else None,
    )


def _latest(ascending: list[float], rollback: float, window: float) -> float | None:
    fitting = (time for time in reversed(ascending) if 0 <= rollback - time <= window)
    return next(fitting, None)
