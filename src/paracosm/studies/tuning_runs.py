"""The parameters of a tuning, and the runs that it compares: the same seeds with other settings.

Time to tolerance is measured in units of the same seed's time without faults, since a right-hand
side drawn from the seed may double it: at a ratio of 1, faults cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, log

import numpy as np
from numpy.typing import NDArray

from paracosm.backends import HERE, Backend
from paracosm.errors import InputError, unknown
from paracosm.faults import CheckpointPolicy
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.run import solve
from paracosm.relaxation.simulate import simulate
from paracosm.relaxation.spec import RunSpec, check_spec, spec_of
from paracosm.relaxation.times import Times
from paracosm.units import format_number, parse_duration, parse_number

Array = NDArray[np.float64]
Ran = Callable[[int], None]
"""Called from time to time with the number of runs done or skipped."""


@dataclass(frozen=True)
class Setting:
    """The changes of a trial to the configuration; None: unchanged."""

    checkpoint: CheckpointPolicy | None = None  # None: no checkpoints
    relaxation: float | None = None  # the method's relaxation factor
    processors: int | None = None
    blocks: int | None = None

    @property
    def is_policy_alone(self) -> bool:
        """Whether the iteration itself is as configured."""
        return self.relaxation is None and self.processors is None and self.blocks is None


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    lower: float
    upper: float


def spread(values: Array) -> Spread:
    """Return median and quartiles of `values`, shape (k,)."""
    lower, median, upper = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
    return Spread(median, lower, upper)


@dataclass(frozen=True, eq=False)
class Outcomes:
    """One setting under several seeds; runs that did not converge count with the limit."""

    ratios: Array  # of the times over the seeds' fault-free ones, shape (k,)
    times: Array  # virtual seconds, shape (k,)
    converged: NDArray[np.bool_]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Outcomes) and all(
            np.array_equal(getattr(self, name), getattr(other, name))
            for name in ("ratios", "times", "converged")
        )

    @cached_property
    def ratio(self) -> Spread:
        return spread(self.ratios)

    @cached_property
    def time(self) -> Spread:
        return spread(self.times)

    @property
    def failures(self) -> float:
        """Share of the runs that did not converge."""
        return float(1 - self.converged.mean())


class Simulations:
    """A configuration, run again and again, up to `limit` fault-free times."""

    def __init__(self, config: RelaxConfig, limit: float = 20.0, backend: Backend = HERE) -> None:
        self.config = config.model_copy(update={"timeline": 0})
        self.limit = limit
        self.backend = backend
        self._fault_free: dict[int, float] = {}
        self._specs: dict[tuple[int, int | None, int | None], RunSpec] = {}
        self._blocks = 0

    def fault_free(self, seeds: Sequence[int], ran: Ran | None = None) -> Array:
        """Return virtual times to tolerance without faults and checkpoints, shape (k,)."""
        missing = [seed for seed in seeds if seed not in self._fault_free]
        specs = [self._spec(seed, Setting()).changed(fault=(), checkpoint=None) for seed in missing]
        for seed, (time, why) in zip(missing, self._execute(specs, ran), strict=True):
            if why:
                raise InputError(
                    f"without faults the iteration does not converge with seed {seed} ({why}), so "
                    "there is no reference: change method, tolerance or limits"
                )
            if time == 0:
                raise InputError(
                    "the first iterate is within the tolerance: there is nothing to tune"
                )
            self._fault_free[seed] = time
        return np.array([self._fault_free[seed] for seed in seeds])

    def outcomes(
        self, setting: Setting, seeds: Sequence[int], ran: Ran | None = None, whole: bool = True
    ) -> Outcomes:
        """Run a setting under all seeds; unless `whole`, stop when the median will not converge."""
        fault_free = self.fault_free(seeds)
        ends = np.minimum(self.limit * fault_free, self._most_time())
        specs = [
            self._under(setting, seed, end, time)
            for seed, end, time in zip(seeds, ends.tolist(), fault_free.tolist(), strict=True)
        ]
        half = len(seeds) if whole else len(seeds) // 2 + 1
        ended = self._execute(specs[:half], ran)
        if any(not why for _, why in ended):
            ended += self._execute(specs[half:], ran)
        elif ran is not None:
            ran(len(seeds) - half)
        run = len(ended)
        converged = np.array([not why for _, why in ended])
        times = np.where(converged, [time for time, _ in ended], ends[:run])
        return Outcomes(times / fault_free[:run], times, converged)

    def check(self, setting: Setting) -> None:
        """Refuse a setting that cannot be run."""
        check_spec(self._under(setting, 0, inf, 1.0))

    def _most_time(self) -> float:
        return inf if self.config.max_time is None else self.config.max_time

    def _under(self, setting: Setting, seed: int, end: float, fault_free: float) -> RunSpec:
        spec = self._spec(seed, setting)
        if setting.relaxation is not None:
            if spec.method is None:
                raise InputError(
                    "relaxation: a user-defined update function has no relaxation factor"
                )
            spec = spec.changed(method=replace(spec.method, omega=setting.relaxation))
        if "max_sweeps" not in self.config.model_fields_set:
            spec = spec.changed(max_sweeps=1e9)
        return replace(
            spec.changed(checkpoint=setting.checkpoint, max_time=end),
            horizon=fault_free if setting.is_policy_alone else None,
        )

    def _spec(self, seed: int, setting: Setting) -> RunSpec:
        """Return the spec of a seed, kept while the processors and blocks are the same."""
        key = (seed, setting.processors, setting.blocks)
        if key not in self._specs:
            if any(kept[1:] != key[1:] for kept in self._specs):
                self._specs.clear()
            spec = spec_of(self._config(setting), seed)
            for other in self._specs.values():  # one copy of the matrix for all seeds
                spec = replace(spec, problem=replace(spec.problem, A=other.problem.A))
                break
            self._specs[key] = self._at_block_size(spec, setting)
        return self._specs[key]

    def _config(self, setting: Setting) -> RelaxConfig:
        config = self.config
        if setting.processors is not None:
            for what, given in (
                ("cluster", config.cluster is not None),
                ("speeds", config.speeds is not None),
                ("time", config.time.processors is not None),
            ):
                if given:
                    raise InputError(f"processors: {what} sets their number: leave it out")
            config = config.model_copy(update={"processors": setting.processors})
        if setting.blocks is not None:
            pattern = config.pattern.with_blocks(setting.blocks)
            config = config.model_copy(update={"pattern": pattern})
        return config

    def _at_block_size(self, spec: RunSpec, setting: Setting) -> RunSpec:
        """Scale the time of an update with the number of its rows."""
        if setting.processors is None and setting.blocks is None:
            return spec
        if not self._blocks:
            self._blocks = _blocks(spec_of(self.config, 0))
        return replace(spec, times=_faster(spec.times, _blocks(spec) / self._blocks))

    def _execute(self, specs: Sequence[RunSpec], ran: Ran | None) -> list[tuple[float, str]]:
        ended = []
        for time, why in self.backend.each(_run, zip(specs), in_order=True):
            ended.append((time, why))
            if ran is not None:
                ran(1)
        return ended


def _run(spec: RunSpec) -> tuple[float, str]:
    if spec.horizon is None and any(fault.needs_horizon for fault in spec.config.fault):
        # Without faults this setting takes a different time than the configured one.
        plain = simulate(spec.changed(fault=(), checkpoint=None))
        if plain.status == "interrupted":
            raise KeyboardInterrupt
        if plain.status != "converged":
            return plain.virtual_time, plain.reason
        spec = replace(spec, horizon=plain.virtual_time)
    result = solve(spec)
    if result.status == "interrupted":
        raise KeyboardInterrupt  # ends the search, not only this run
    return result.virtual_time, "" if result.status == "converged" else result.reason


def _blocks(spec: RunSpec) -> int:
    return len(spec.pattern.pointer) - 1


def _faster(times: Times, factor: float) -> Times:
    updates = tuple(tuple(phase.scaled(factor) for phase in phases) for phases in times.updates)
    return replace(times, updates=updates, source=f"{times.source}, in proportion to the rows")


_USAGE = 'write "alpha=1.05..20, omega=1..500"'
_POLICY = ("alpha", "omega")


@dataclass(frozen=True)
class _Kind:
    log: bool
    whole: bool = False
    read: Callable[[str], float] = parse_number


PARAMETERS: dict[str, _Kind] = {
    "alpha": _Kind(log=True),
    "omega": _Kind(log=True, read=parse_duration),
    "relaxation": _Kind(log=False),
    "processors": _Kind(log=True, whole=True),
    "blocks": _Kind(log=True, whole=True),
}
"""alpha and omega of the checkpoint policy (omega in seconds), the method's relaxation factor, the
number of processors, the number of blocks of the patterns random and rotating."""


@dataclass(frozen=True)
class Parameter:
    """One of `PARAMETERS` between two bounds, both included."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if self.name not in PARAMETERS:
            raise unknown("parameter to tune", self.name, PARAMETERS)
        if not 0 < self.low < self.high < inf:
            raise InputError(
                f"{self.name}: bounds must be above 0, finite and ascending, not {self.low:g}.."
                f"{self.high:g}"
            )
        if self.is_whole and not (self.low == int(self.low) and self.high == int(self.high)):
            raise InputError(f"{self.name}: bounds must be whole numbers")

    @property
    def is_log(self) -> bool:
        return PARAMETERS[self.name].log

    @property
    def is_whole(self) -> bool:
        return PARAMETERS[self.name].whole

    def at(self, share: float) -> float:
        """Return the value at `share`, 0 to 1, of the way from one bound to the other."""
        if self.is_log:
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + (self.high - self.low) * share
        return self.rounded(value)

    def share(self, value: float) -> float:
        """Return the position of `value` between the bounds, 0 to 1: the inverse of `at`."""
        if self.is_log:
            return log(value / self.low) / log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def rounded(self, value: float) -> float:
        """Return `value` to four digits, so that printed values are those that were run."""
        digits = round(value) if self.is_whole else float(f"{value:.4g}")
        return min(max(digits, self.low), self.high)

    def __str__(self) -> str:
        return f"{self.name}={format_number(self.low)}..{format_number(self.high)}"


def parse_space(text: str) -> tuple[Parameter, ...]:
    """Return the parameters of "alpha=1.05..20, omega=1s..500s"."""
    parameters: dict[str, Parameter] = {}
    for part in text.split(","):
        name, equals, bounds = (text.strip() for text in part.partition("="))
        low, dots, high = (text.strip() for text in bounds.partition(".."))
        if not (name and equals and low and dots and high):
            raise InputError(f'tune: cannot read "{part.strip()}": {_USAGE}')
        if name not in PARAMETERS:
            raise unknown("parameter to tune", name, PARAMETERS)
        if name in parameters:
            raise InputError(f"tune: {name} is given twice")
        read = PARAMETERS[name].read
        try:
            parameters[name] = Parameter(name, read(low), read(high))
        except InputError as error:
            message = str(error).removeprefix(f"{name}: ")
            raise InputError(f"tune: {name}: {message}") from None
    return tuple(parameters.values())


def complete_checkpoint(text: str | None, space: Iterable[Parameter]) -> str | None:
    """Return a policy with the lower bounds of the tuned parameters filled in."""
    tuned = {parameter.name: parameter.low for parameter in space if parameter.name in _POLICY}
    if not tuned:
        return text
    written = [part.strip() for part in (text or "").split(",") if part.strip()]
    for part in written:
        if (name := part.partition("=")[0].strip()) in tuned:
            raise InputError(f"checkpoint: {name} is to be tuned: leave it out here")
    return ", ".join(
        [*written, *(f"{name}={format_number(value)}" for name, value in tuned.items())]
    )
