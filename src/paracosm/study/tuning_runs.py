"""The runs that a tuning compares: the same seeds with other settings.

Time to tolerance is measured in units of the same seed's time without faults, since a right-hand
side that is drawn from the seed may double it: a ratio of 1 is a run that faults cost nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.faults import CheckpointPolicy
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.request import Request
from paracosm.relaxation.run import request_of
from paracosm.relaxation.simulate import simulate
from paracosm.relaxation.solve import check_request, solve
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
        self._requests: dict[tuple[int, int | None, int | None], Request] = {}
        self._blocks = 0

    def fault_free(self, seeds: Sequence[int], ran: Ran | None = None) -> Array:
        """Return virtual times to tolerance without faults and checkpoints, shape (k,).

        Raises:
            InputError: one of these runs does not converge.
        """
        missing = [seed for seed in seeds if seed not in self._fault_free]
        requests = [
            replace(self._request(seed, Setting()), faults=(), checkpoint=None) for seed in missing
        ]
        for seed, (time, why) in zip(missing, self._carry_out(requests, ran), strict=True):
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
        requests = [
            self._under(setting, seed, end, time)
            for seed, end, time in zip(seeds, ends.tolist(), fault_free.tolist(), strict=True)
        ]
        half = len(seeds) if whole else len(seeds) // 2 + 1
        ended = self._carry_out(requests[:half], ran)
        if any(not why for _, why in ended):
            ended += self._carry_out(requests[half:], ran)
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
        check_request(self._under(setting, 0, inf, 1.0))

    def _most_time(self) -> float:
        return inf if self.config.max_time is None else self.config.max_time

    def _under(self, setting: Setting, seed: int, end: float, fault_free: float) -> Request:
        request = self._request(seed, setting)
        if setting.relaxation is not None:
            if request.method is None:
                raise InputError("relaxation: an update function of your own has none")
            request = replace(request, method=replace(request.method, omega=setting.relaxation))
        stop = replace(request.stop, time=end)
        if "max_sweeps" not in self.config.model_fields_set:
            stop = replace(stop, relaxations=inf)
        return replace(
            request,
            checkpoint=setting.checkpoint,
            stop=stop,
            horizon=fault_free if setting.is_policy_alone else None,
        )

    def _request(self, seed: int, setting: Setting) -> Request:
        """Return the request of a seed, kept while the processors and blocks are the same."""
        key = (seed, setting.processors, setting.blocks)
        if key not in self._requests:
            if any(kept[1:] != key[1:] for kept in self._requests):
                self._requests.clear()
            request = request_of(self._config(setting), seed)
            for other in self._requests.values():  # one copy of the matrix for all seeds
                request = replace(request, problem=replace(request.problem, A=other.problem.A))
                break
            self._requests[key] = self._at_block_size(request, setting)
        return self._requests[key]

    def _config(self, setting: Setting) -> RelaxConfig:
        config = self.config
        if setting.processors is not None:
            for what, given in (
                ("cluster", config.cluster is not None),
                ("speeds", config.speeds is not None),
                ("time", isinstance(config.time, list)),
            ):
                if given:
                    raise InputError(f"processors: {what} says how many there are: leave it out")
            config = config.model_copy(update={"processors": setting.processors})
        if setting.blocks is not None:
            name = re.split(r"[(\s]", config.pattern.strip())[0]
            if name not in ("random", "rotating") or ";" in config.pattern:
                raise InputError(
                    f'blocks: patterns random and rotating have a number of them, "{config.pattern}'
                    '" has not'
                )
            config = config.model_copy(update={"pattern": f"{name}(blocks={setting.blocks})"})
        return config

    def _at_block_size(self, request: Request, setting: Setting) -> Request:
        """Let an update take as long as its rows: a block of half the size takes half the time."""
        if setting.processors is None and setting.blocks is None:
            return request
        if not self._blocks:
            self._blocks = _blocks(request_of(self.config, 0))
        return replace(request, times=_faster(request.times, _blocks(request) / self._blocks))

    def _carry_out(self, requests: Sequence[Request], ran: Ran | None) -> list[tuple[float, str]]:
        """Return virtual times, and why a run did not converge (empty if it did)."""
        if self.jobs == 1:
            runs = map(_run, requests)
        else:
            from joblib import Parallel, delayed

            runs = Parallel(n_jobs=self.jobs, return_as="generator")(
                delayed(_run)(request) for request in requests
            )
        ended = []
        for time, why in runs:
            ended.append((time, why))
            if ran is not None:
                ran(1)
        return ended


def _run(request: Request) -> tuple[float, str]:
    if request.horizon is None and any(fault.needs_horizon for fault in request.faults):
        # Without faults this setting takes another time than the one configured.
        plain = simulate(replace(request, faults=(), checkpoint=None))
        if plain.status == "interrupted":
            raise KeyboardInterrupt
        if plain.status != "converged":
            return plain.virtual_time, plain.reason
        request = replace(request, horizon=plain.virtual_time)
    result = solve(request)
    if result.status == "interrupted":
        raise KeyboardInterrupt  # which ends the search, not this run alone
    return result.virtual_time, "" if result.status == "converged" else result.reason


def _blocks(request: Request) -> int:
    return len(request.pattern.pointer) - 1


def _faster(times: Times, factor: float) -> Times:
    updates = tuple(tuple(phase.scaled(factor) for phase in phases) for phases in times.updates)
    return replace(times, updates=updates, source=f"{times.source}, in proportion to the rows")
