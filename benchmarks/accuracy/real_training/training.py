"""Trainings of several workers, one after another, by processes that stay."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paracosm.errors import InputError
from paracosm.profiling.jobs import JobProfile
from paracosm.profiling.jobs.pytorch.job import FACTS, Job, started
from paracosm.profiling.jobs.pytorch.options import JobOptions
from paracosm.profiling.processes import Processes
from real_training.recorded import RecordedRun, run_of_iterations, run_of_servers
from real_training.store import parse_update_rule

_AHEAD = 0.1  # seconds from the last order to the begin of a training
_LONG = 10 * 86_400.0  # seconds for a training that ends with its steps


@contextlib.contextmanager
def real_training(options: JobOptions, workers: int) -> Iterator[Training]:
    """Start servers and workers, and end them with the block, whatever happens in it."""
    with started(options, workers, "real_training.process") as processes:
        yield Training(options, workers, processes)


class Training(Job):
    """Servers and workers that have met: profiled, and trained by one rule after another."""

    def __init__(self, options: JobOptions, workers: int, processes: Processes) -> None:
        super().__init__(options, processes)
        self.workers = workers

    @property
    def pids(self) -> list[int]:
        """The process ids of the servers, then of the workers."""
        return self.processes.pids

    def profile(self, steps: int, progress: Callable[[int, int], None] | None = None) -> JobProfile:
        self._prepare(1, "asgd", {})
        return super().profile(steps, progress)

    def train(
        self,
        workers: int,
        *,
        seconds: float | None = None,
        steps: int | None = None,
        stagger: float = 0.0,
        snapshot_every: float = math.inf,
        algorithm: str = "asgd",
        lr: float | None = None,
        noise: float | None = None,
        seed: int | None = None,
        sending: Sequence[int] | None = None,
    ) -> RecordedRun:
        """Let some of the workers train, from the initial parameters, each as fast as it can.

        Args:
            seconds: after which nobody begins another step.
            steps: of each worker. Give the one, the other or both.
            stagger: worker i begins its first step i times so many seconds later.
            snapshot_every: seconds between snapshots of the parameters, which are kept in memory;
                there is always one at the begin and one at the end.
            algorithm: as of `parse_update_rule`.
            lr, noise, seed: where they differ from the job's options.
            sending: all tensors, by number, in the order in which servers send them; None: as they
                are numbered.

        Raises:
            InputError: something of that cannot be.
            WorkerError: a process has failed.
        """
        given = {"lr": lr, "noise": noise, "seed": seed}
        changed: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        options = replace(self.options, **changed)
        rule = parse_update_rule(algorithm)
        self._check(workers, seconds, steps, stagger, rule.has_servers)
        if not snapshot_every > 0:
            raise InputError(f"snapshot_every: {snapshot_every:g} s, not above 0")
        self._prepare(workers, algorithm, changed, sending)
        load, begin = os.getloadavg()[0], time.monotonic() + _AHEAD
        files = [self.processes.folder / f"{server}.npz" for server in range(self.first)]
        order = {
            "do": "train",
            "workers": workers,
            "steps": steps,
            "begin": begin,
            "end": begin + seconds if seconds is not None else math.inf,
            "snapshot_every": snapshot_every,
            "file": str(files[0]),
        }
        servers = range(self.first) if rule.has_servers else range(0)
        chosen = range(self.first, self.first + workers)
        self.processes.order(dict.fromkeys(servers, order))
        self.processes.order(
            {each: {**order, "begin": begin + stagger * i} for i, each in enumerate(chosen)}
        )
        answers = self.processes.answers("training", chosen, seconds or _LONG)
        self.processes.order(
            {server: {"do": "tell", "file": str(files[server])} for server in servers}
        )
        told = self.processes.answers("snapshots", servers)
        found = []
        for server in range(len(servers) or 1):
            with np.load(files[server]) as arrays:
                found.append(dict(arrays))
            files[server].unlink()
        facts = {
            **{key: getattr(options, key) for key in FACTS if key != "shape"},
            "algorithm": algorithm,
            "workers": workers,
            "servers": len(found),
            "synchronous": rule.is_synchronous,
            "seconds": seconds,
            "steps": steps,
            "stagger": stagger,
            "cpu_seconds": [round(answer["cpu"], 3) for answer in (*told, *answers)],
            "load": round(load, 2),
        }
        make = run_of_servers if rule.has_servers else run_of_iterations
        return make(found, answers, round(begin * 1e6), self.made["tensors"], facts)

    def _check(
        self,
        workers: int,
        seconds: float | None,
        steps: int | None,
        stagger: float,
        has_servers: bool,
    ) -> None:
        if not 1 <= workers <= self.workers:
            raise InputError(f"workers: {workers}, but the job has {self.workers}")
        if seconds is None and steps is None:
            raise InputError("seconds or steps: say when the training ends")
        if steps is not None and steps < 1:
            raise InputError(f"steps: {steps}, but at least 1 is needed")
        if steps is None and not has_servers:
            raise InputError("steps: with all-reduce the workers cannot end at a time: give steps")
        if not 0 <= stagger * (workers - 1) < (math.inf if seconds is None else seconds):
            raise InputError(
                f"stagger: {stagger:g} s between {workers} workers do not fit in {seconds:g} s"
            )

    def _prepare(
        self,
        workers: int,
        algorithm: str,
        changed: Mapping[str, Any],
        sending: Sequence[int] | None = None,
    ) -> None:
        """Have all processes begin again with the initial parameters."""
        every = range(self.first + self.workers)
        order: dict[str, Any] = {"do": "prepare", "workers": workers, "algorithm": algorithm}
        order |= {"options": changed, "sending": None if sending is None else list(sending)}
        self.processes.order(dict.fromkeys(every, order))
        self.processes.answers("preparing", every)
