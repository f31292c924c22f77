"""Profiling a PyTorch job with parameter servers, and measuring what many workers make of it."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.errors import InputError, require
from paracosm.profiling.jobs.job_profile import (
    DOWNLINK,
    SERVER,
    UPLINK,
    WORKER,
    JobProfile,
    ProfiledOp,
    check_job_profile,
    job_profile_of,
)
from paracosm.profiling.jobs.pytorch.options import JobOptions, Node, Setup, parse_update_rule
from paracosm.profiling.jobs.pytorch.recorded import (
    RecordedRun,
    run_of_iterations,
    run_of_servers,
)
from paracosm.profiling.processes import Processes, WorkerError


def profile_module(
    options: JobOptions, steps: int = 100, progress: Callable[[int, int], None] | None = None
) -> JobProfile:
    """Train with one worker, and return what it and the servers did, op by op."""
    if steps < 1:
        raise InputError(f"steps: {steps}, but at least 1 is needed")
    _check_profiled(options)
    try:
        with parameter_server_job(options, workers=1) as job:
            return check_job_profile(job.profile(steps, progress), options.model)
    except WorkerError as error:
        raise InputError(f"profiling {options.model}: {error}") from None


def train_module(
    options: JobOptions,
    workers: int,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    stagger: float = 0.0,
    snapshot_every: float = math.inf,
) -> RecordedRun:
    """Train with so many workers, as `Job.train` does, and return what came of it."""
    try:
        with parameter_server_job(options, workers) as job:
            return job.train(
                workers,
                seconds=seconds,
                steps=steps,
                stagger=stagger,
                snapshot_every=snapshot_every,
            )
    except WorkerError as error:
        raise InputError(f"training {options.model} with {workers} workers: {error}") from None


WARM_UP = 3  # steps before those that are profiled

_AHEAD = 0.1  # seconds from the last order to the begin of a training

_LONG = 10 * 86_400.0  # seconds for a training that ends with its steps

_FACTS = ("model", "data", "batch", "algorithm", "lr", "seed", "waiting", "noise", "port")

_MESSAGE = 64 << 10  # bytes of those that the goodput is measured with
_FEW, _MANY = 8, 4096


@dataclass(frozen=True)
class Goodput:
    """Bytes/s of payload between a server and a worker."""

    # down, up: in one direction, while the other has nothing to carry
    down: float
    up: float
    # both_down, both_up: in both at once
    both_down: float
    both_up: float


@contextlib.contextmanager
def parameter_server_job(options: JobOptions, workers: int) -> Iterator[Job]:
    """Start servers and workers, and end them with the block, whatever happens in it.

    All of them have to be on one machine, be it in network namespaces of their own: they find each
    other by a file, and their times are those of its monotonic clock.
    """
    require("torch", "torch", "a PyTorch job")
    processes = options.servers + workers
    if workers < 1:
        raise InputError(f"workers: {workers}, but at least 1 is needed")
    if options.nodes and len(options.nodes) < processes:
        raise InputError(
            f"nodes: {len(options.nodes)}, but {processes} are needed: one for each server and "
            "each worker"
        )
    with Processes("paracosm.profiling.jobs.pytorch.process", options.timeout) as started:
        for rank in range(processes):
            node = options.nodes[rank] if options.nodes else Node()
            store = str(started.folder / "store")
            alike = replace(options, nodes=())
            setup = Setup(alike, rank, workers, interface=node.interface, store=store)
            name = f"worker {rank - options.servers}" if setup.is_worker else f"server {rank}"
            started.start(name, asdict(setup), prefix=node.prefix)
        yield Job(options, workers, started)


class Job:
    """Servers and workers that have met."""

    def __init__(self, options: JobOptions, workers: int, processes: Processes) -> None:
        self._options, self._processes = options, processes
        self._first = options.servers
        self._workers = workers
        answers = processes.answers("start")
        self._made = answers[self._first]
        numbers = {name: i for i, (name, _) in enumerate(self._made["parameters"])}
        ends = [segment["end"] for segment in self._made["segments"]]
        pushed = [numbers[end["what"]] for end in ends if end["kind"] == "gradient"]
        servers = range(self._first)
        processes.order({server: {"pushed": pushed} for server in servers})
        processes.answers("start", servers)

    @property
    def pids(self) -> list[int]:
        """The process ids of the servers, then of the workers."""
        return self._processes.pids

    def profile(self, steps: int, progress: Callable[[int, int], None] | None = None) -> JobProfile:
        """Run steps of one worker, of which the first three are not profiled.

        On Ctrl-C the profile has the steps that there are, and "interrupted" in its provenance; the
        job can do nothing else then.
        """
        options = self._options
        _check_profiled(options)
        goodput = self.goodput()
        self._prepare(1, {})
        self._processes.order({self._first: {"do": "steps", "steps": WARM_UP + steps}})
        done: list[dict[str, Any]] = []
        ended = "enough"
        try:
            for number in range(WARM_UP + steps):
                done += self._processes.answers(f"step {number}", [self._first])
                if progress is not None:
                    progress(max(0, number + 1 - WARM_UP), steps)
        except KeyboardInterrupt:
            ended = "interrupted"
            if len(done) <= WARM_UP:
                raise
        provenance = {
            "source": "PyTorch parameter-server job",
            "environment": self._made["environment"],
            "transport": "gloo, one message a tensor",
            "clock": "monotonic, of one machine",
            **{name: getattr(options, name) for name in (*_FACTS, "shape")},
            "model": Path(options.model).name,  # nobody else has the folder
            "goodput": asdict(goodput),
            "ended": ended,
        }
        profile = _profile(self._made, done[WARM_UP:], self._first)
        bandwidth = min(goodput.down, goodput.up, options.port or math.inf)
        return replace(profile, bandwidth=bandwidth, provenance=provenance)

    def train(
        self,
        workers: int,
        *,
        seconds: float | None = None,
        steps: int | None = None,
        stagger: float = 0.0,
        snapshot_every: float = math.inf,
        algorithm: str | None = None,
        lr: float | None = None,
        noise: float | None = None,
        seed: int | None = None,
    ) -> RecordedRun:
        """Let some of the workers train, from the initial parameters, each as fast as it can.

        Args:
            seconds: after which nobody begins another step.
            steps: of each worker. Give the one, the other or both.
            stagger: worker i begins its first step i times so many seconds later.
            snapshot_every: seconds between snapshots of the parameters, which are kept in memory;
                there is always one at the begin and one at the end.
            algorithm, lr, noise, seed: where they differ from the job's options.

        Raises:
            InputError: something of that cannot be.
            WorkerError: a process has failed.
        """
        given = {"algorithm": algorithm, "lr": lr, "noise": noise, "seed": seed}
        changed: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        options = replace(self._options, **changed)
        rule = parse_update_rule(options.algorithm)
        self._check(workers, seconds, steps, stagger, rule.has_servers)
        if not snapshot_every > 0:
            raise InputError(f"snapshot_every: {snapshot_every:g} s, not above 0")
        self._prepare(workers, changed)
        load, begin = os.getloadavg()[0], time.monotonic() + _AHEAD
        files = [self._processes.folder / f"{server}.npz" for server in range(self._first)]
        order = {
            "do": "train",
            "workers": workers,
            "steps": steps,
            "begin": begin,
            "end": begin + seconds if seconds is not None else math.inf,
            "snapshot_every": snapshot_every,
            "file": str(files[0]),
        }
        servers = range(self._first) if rule.has_servers else range(0)
        chosen = range(self._first, self._first + workers)
        self._processes.order(dict.fromkeys(servers, order))
        self._processes.order(
            {each: {**order, "begin": begin + stagger * i} for i, each in enumerate(chosen)}
        )
        answers = self._processes.answers("training", chosen, seconds or _LONG)
        self._processes.order({each: {"do": "tell", "file": str(files[each])} for each in servers})
        told = self._processes.answers("snapshots", servers)
        found = []
        for server in range(len(servers) or 1):
            with np.load(files[server]) as arrays:
                found.append(dict(arrays))
            files[server].unlink()
        facts = {
            **{key: getattr(options, key) for key in _FACTS},
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
        return make(found, answers, round(begin * 1e6), self._made["tensors"], facts)

    def _check(
        self,
        workers: int,
        seconds: float | None,
        steps: int | None,
        stagger: float,
        has_servers: bool,
    ) -> None:
        if not 1 <= workers <= self._workers:
            raise InputError(f"workers: {workers}, but the job has {self._workers}")
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

    def _prepare(self, workers: int, changed: Mapping[str, Any]) -> None:
        """Have all processes begin again with the initial parameters."""
        every = range(self._first + self._workers)
        order = {"do": "prepare", "options": changed, "workers": workers}
        self._processes.order(dict.fromkeys(every, order))
        self._processes.answers("preparing", every)

    def goodput(self, seconds: float = 0.5) -> Goodput:
        """Measure what the job's own transport makes of the link between server 0 and worker 0."""
        down, _ = self._exchange(_FEW, 0)
        count = max(_FEW, min(_MANY, round(seconds * down / _MESSAGE)))
        alone_down, _ = self._exchange(count, 0)
        _, alone_up = self._exchange(0, count)
        both_down, both_up = self._exchange(count, count)
        return Goodput(alone_down, alone_up, both_down, both_up)

    def _exchange(self, down: int, up: int) -> tuple[float, float]:
        order = {"do": "goodput", "down": down, "up": up, "size": _MESSAGE}
        self._processes.order({self._first: order})
        (answer,) = self._processes.answers("goodput", [self._first])
        return float(answer["down"]), float(answer["up"])


def _check_profiled(options: JobOptions) -> None:
    if not parse_update_rule(options.algorithm).has_servers:
        raise InputError(
            f"algorithm: {options.algorithm} has no parameter servers, which a job profile is of: "
            "choose asgd, ssgd, ..."
        )


def _profile(
    made: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], servers: int
) -> JobProfile:
    """Return the profile of the steps of a worker that said `made` of itself.

    The ops of a step are a pull of each parameter, the segments that the worker computes, and for
    each gradient its push and the update. A segment waits for the one before it, as a module runs
    one line after the other, and for the pulls that it is the first to need; a push for the segment
    that makes its gradient; an update for its push. Parameter i is on server i modulo their number.
    """
    parameters, segments = made["parameters"], made["segments"]
    pulls = {name: i for i, (name, _) in enumerate(parameters)}
    makers = [i for i, segment in enumerate(segments) if segment["end"]["kind"] == "gradient"]
    pushed = [pulls[segments[i]["end"]["what"]] for i in makers]
    first_segment = len(parameters)
    first_push = first_segment + len(segments)
    ops = [
        ProfiledOp(f"pull/{name}", "Pull", DOWNLINK, i % servers, size)
        for i, (name, size) in enumerate(parameters)
    ]
    for i, segment in enumerate(segments):
        waits = [first_segment + i - 1] if i else []
        waits += [pulls[name] for name in segment["needs"]]
        kind = "Forward" if segment["forward"] else "Backward"
        ops.append(ProfiledOp(segment["name"], kind, WORKER, waits=waits))
    for i, maker in zip(pushed, makers, strict=True):
        name, size = parameters[i]
        waits = [first_segment + maker]
        ops.append(ProfiledOp(f"push/{name}", "Push", UPLINK, i % servers, size, waits))
    for number, i in enumerate(pushed):
        name, waits = f"update/{parameters[i][0]}", [first_push + number]
        ops.append(ProfiledOp(name, "SGD", SERVER, i % servers, waits=waits))
    step_begin = np.array([step["begin"] for step in steps])
    step_end = np.array([step["end"] for step in steps])
    times = np.array([_times(step) for step in steps]) - step_begin[:, None, None]
    begins, ends = step_begin - step_begin[0], step_end - step_begin[0]
    return job_profile_of(ops, times[:, :, 0], times[:, :, 1], begins, ends, batch=made["examples"])


def _times(step: Mapping[str, Any]) -> list[list[float]]:
    """Return begin and end of each op on the machine's clock."""
    return [
        *([step["begin"], end] for end in step["pulled"]),
        *step["computed"],
        *([at, arrived] for at, arrived, _, _ in step["pushed"]),
        *([begin, end] for _, _, begin, end in step["pushed"]),
    ]
