"""The runs that a tuning compares: the same seeds with other settings.

Time to tolerance is measured in units of the same seed's time without faults, since a right-hand
side that is drawn from the seed may double it: a ratio of 1 is a run that faults cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.faults import CheckpointPolicy
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.run import solve
from paracosm.relaxation.simulate import simulate
from paracosm.relaxation.spec import RunSpec, check_spec, spec_of
from paracosm.relaxation.times import Times

__all__ = ["Outcomes", "Ran", "Setting", "Simulations"]

Array = NDArray[np.float64]
Ran = Callable[[int], None]
"""Called now and then with the number of runs that are done, or that need not be run."""


@dataclass(frozen=True)
class Setting:
    """What a trial changes of the configuration; None: left as it is.

    Attributes:
        checkpoint: the policy; None: no checkpoints.
        relaxation: the method's relaxation factor.
        processors, blocks: the number of them.
    """

    checkpoint: CheckpointPolicy | None = None
    relaxation: float | None = None
    processors: int | None = None
    blocks: int | None = None

    @property
    def is_policy_alone(self) -> bool:
        """Whether the iteration itself is as configured."""
        return self.relaxation is None and self.processors is None and self.blocks is None


@dataclass(frozen=True)
class Outcomes:
    """One setting under several seeds.

    Attributes:
        ratios: time to tolerance over the fault-free time of the seed, shape (k,); what did not
            converge counts as if it had at its limit.
        times: virtual time, seconds, shape (k,); counted likewise.
        converged: whether it did, shape (k,).
    """

    ratios: Array
    times: Array
    converged: NDArray[np.bool_]

    @property
    def failures(self) -> float:
        """Share of the runs that did not converge."""
        return float(1 - self.converged.mean())


class Simulations:
    """A configuration, to be run again and again.

    Args:
        config: what is run.
        limit: times the fault-free time at which a run counts as not converging.
        jobs: how many runs go on at a time, each in a process of its own.
    """

    def __init__(self, config: RelaxConfig, limit: float = 20.0, jobs: int = 1) -> None:
        self.config = config.model_copy(update={"timeline": 0})
        self.limit = limit
        self.jobs = jobs
        self._fault_free: dict[int, float] = {}
        self._specs: dict[tuple[int, int | None, int | None], RunSpec] = {}
        self._blocks = 0

    def fault_free(self, seeds: Sequence[int], ran: Ran | None = None) -> Array:
        """Return virtual times to tolerance without faults and checkpoints, shape (k,).

        Raises:
            InputError: one of these runs does not converge.
        """
        missing = [seed for seed in seeds if seed not in self._fault_free]
        specs = [self._spec(seed, Setting()).changed(fault=(), checkpoint=None) for seed in missing]
        for seed, (time, why) in zip(missing, self._carry_out(specs, ran), strict=True):
            if why:
                raise InputError(
                    f"without any fault the iteration does not converge with seed {seed} ({why}): "
                    "there is nothing to compare with; change method, tolerance or limits"
                )
            if time == 0:
                raise InputError("the first iterate is within the tolerance: nothing to tune")
            self._fault_free[seed] = time
        return np.array([self._fault_free[seed] for seed in seeds])

    def outcomes(
        self, setting: Setting, seeds: Sequence[int], ran: Ran | None = None, whole: bool = True
    ) -> Outcomes:
        """Run a setting under all seeds.

        Args:
            whole: if not, and none of the first half and one more converges, the others are not
                run: the median is known.
        """
        fault_free = self.fault_free(seeds)
        ends = np.minimum(self.limit * fault_free, self._most_time())
        specs = [
            self._under(setting, seed, end, time)
            for seed, end, time in zip(seeds, ends.tolist(), fault_free.tolist(), strict=True)
        ]
        half = len(seeds) if whole else len(seeds) // 2 + 1
        ended = self._carry_out(specs[:half], ran)
        if any(not why for _, why in ended):
            ended += self._carry_out(specs[half:], ran)
        elif ran is not None:
            ran(len(seeds) - half)
        run = len(ended)
        converged = np.array([not why for _, why in ended])
        times = np.where(converged, [time for time, _ in ended], ends[:run])
        return Outcomes(times / fault_free[:run], times, converged)

    def check(self, setting: Setting) -> None:
        """Refuse a setting that cannot be run.

        Raises:
            InputError: one line.
        """
        check_spec(self._under(setting, 0, inf, 1.0))

    def _most_time(self) -> float:
        return inf if self.config.max_time is None else self.config.max_time

    def _under(self, setting: Setting, seed: int, end: float, fault_free: float) -> RunSpec:
        spec = self._spec(seed, setting)
        if setting.relaxation is not None:
            if spec.method is None:
                raise InputError("relaxation: an update function of your own has none")
            spec = spec.changed(method=replace(spec.method, omega=setting.relaxation))
        if "max_sweeps" not in self.config.model_fields_set:
            spec = spec.changed(max_sweeps=inf)
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
                    raise InputError(f"processors: {what} says how many there are: leave it out")
            config = config.model_copy(update={"processors": setting.processors})
        if setting.blocks is not None:
            pattern = config.pattern.with_blocks(setting.blocks)
            config = config.model_copy(update={"pattern": pattern})
        return config

    def _at_block_size(self, spec: RunSpec, setting: Setting) -> RunSpec:
        """Let an update take as long as its rows: a block of half the size takes half the time."""
        if setting.processors is None and setting.blocks is None:
            return spec
        if not self._blocks:
            self._blocks = _blocks(spec_of(self.config, 0))
        return replace(spec, times=_faster(spec.times, _blocks(spec) / self._blocks))

    def _carry_out(self, specs: Sequence[RunSpec], ran: Ran | None) -> list[tuple[float, str]]:
        """Return virtual times, and why a run did not converge (empty if it did)."""
        if self.jobs == 1:
            runs = map(_run, specs)
        else:
            from joblib import Parallel, delayed

            runs = Parallel(n_jobs=self.jobs, return_as="generator")(
                delayed(_run)(spec) for spec in specs
            )
        ended = []
        for time, why in runs:
            ended.append((time, why))
            if ran is not None:
                ran(1)
        return ended


def _run(spec: RunSpec) -> tuple[float, str]:
    if spec.horizon is None and any(fault.needs_horizon for fault in spec.config.fault):
        # Without faults this setting takes another time than the one configured.
        plain = simulate(spec.changed(fault=(), checkpoint=None))
        if plain.status == "interrupted":
            raise KeyboardInterrupt
        if plain.status != "converged":
            return plain.virtual_time, plain.reason
        spec = replace(spec, horizon=plain.virtual_time)
    result = solve(spec)
    if result.status == "interrupted":
        raise KeyboardInterrupt  # which ends the search, not this run alone
    return result.virtual_time, "" if result.status == "converged" else result.reason


def _blocks(spec: RunSpec) -> int:
    return len(spec.pattern.pointer) - 1


def _faster(times: Times, factor: float) -> Times:
    updates = tuple(tuple(phase.scaled(factor) for phase in phases) for phases in times.updates)
    return replace(times, updates=updates, source=f"{times.source}, in proportion to the rows")
