"""The runs that a tuning of relaxations compares: the same seeds with other settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from paracosm.backends import HERE, Backend
from paracosm.errors import InputError
from paracosm.faults import CheckpointPolicy
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.run import solve
from paracosm.relaxation.simulate import simulate
from paracosm.relaxation.spec import RunSpec, check_spec, spec_of
from paracosm.relaxation.times import Times
from paracosm.results.tuning import Measured, Ran

Array = NDArray[np.float64]


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


def spread(values: Array) -> dict[str, float]:
    """Return median and quartiles of `values`, shape (k,)."""
    quartiles = np.quantile(values, (0.5, 0.25, 0.75)).tolist()
    names = ("median", "lower_quartile", "upper_quartile")
    return dict(zip(names, quartiles, strict=True))


@dataclass(frozen=True, eq=False)
class Outcomes:
    """One setting under several seeds; runs that did not converge count with the limit."""

    ratios: Array  # of the times over the seeds' fault-free ones, shape (k,)
    times: Array  # virtual seconds, shape (k,)
    converged: NDArray[np.bool_]

    @property
    def failures(self) -> float:
        """Share of the runs that did not converge."""
        return float(1 - self.converged.mean())

    @property
    def measured(self) -> Measured:
        """The numbers of a trial."""
        ratio, time, mean = spread(self.ratios), spread(self.times), float(self.ratios.mean())
        return Measured(
            objective=ratio["median"],
            columns={
                "time_over_fault_free": ratio["median"],
                "lower_quartile": ratio["lower_quartile"],
                "upper_quartile": ratio["upper_quartile"],
                "mean": mean,
                "time": time["median"],
                "failures": self.failures,
                "runs": self.ratios.size,
            },
            numbers={
                "time_over_fault_free": ratio,
                "time": time,
                "failures": self.failures,
                "runs": self.ratios.size,
            },
            second=mean,
        )


class Simulations:
    """A configuration, run again and again, up to `limit` fault-free times."""

    def __init__(
        self,
        config: RelaxConfig,
        limit: float = 20.0,
        backend: Backend = HERE,
        ran: Ran = lambda count: None,
    ) -> None:
        self.config = config.model_copy(update={"timeline": 0})
        self.limit = limit
        self.backend = backend
        self.ran = ran
        self._fault_free: dict[int, float] = {}
        self._specs: dict[tuple[int, int | None, int | None], RunSpec] = {}
        self._blocks = 0

    def fault_free(self, seeds: Sequence[int]) -> Array:
        """Return virtual times to tolerance without faults and checkpoints, shape (k,)."""
        missing = [seed for seed in seeds if seed not in self._fault_free]
        specs = [self._spec(seed, Setting()).changed(fault=(), checkpoint=None) for seed in missing]
        for seed, (time, why) in zip(missing, self._execute(specs), strict=True):
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

    def outcomes(self, setting: Setting, seeds: Sequence[int], whole: bool = True) -> Outcomes:
        """Run a setting under all seeds; unless `whole`, stop when the median will not converge."""
        fault_free = self.fault_free(seeds)
        ends = np.minimum(self.limit * fault_free, self._most_time())
        specs = [
            self._under(setting, seed, end, time)
            for seed, end, time in zip(seeds, ends.tolist(), fault_free.tolist(), strict=True)
        ]
        half = len(seeds) if whole else len(seeds) // 2 + 1
        ended = self._execute(specs[:half])
        if any(not why for _, why in ended):
            ended += self._execute(specs[half:])
        else:
            self.ran(len(seeds) - half)
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
            for name, sets_number in (
                ("cluster", config.cluster is not None),
                ("speeds", isinstance(config.speeds, tuple)),
                ("time", config.time.processors is not None),
            ):
                if sets_number:
                    raise InputError(f"processors: {name} sets their number: leave it out")
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

    def _execute(self, specs: Sequence[RunSpec]) -> list[tuple[float, str]]:
        ended = []
        for result in self.backend.each(_run, zip(specs), in_order=True):
            ended.append(result)
            self.ran(1)
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
