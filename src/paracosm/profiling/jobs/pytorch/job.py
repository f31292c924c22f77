"""Profiling a PyTorch job with parameter servers, and measuring what many workers make of it."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.errors import InputError, require
from paracosm.graphs.capture import CaptureOptions
from paracosm.models import Workload
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
from paracosm.profiling.processes import Processes, WorkerError

if TYPE_CHECKING:
    from torch.nn import Parameter


@dataclass(frozen=True)
class Node:
    """Where a process runs."""

    # A command that runs it as the rest of its own command line, and becomes it, such as
    # ("nsenter", "--net=/run/netns/worker0", "--")
    prefix: tuple[str, ...] = ()
    interface: str | None = None  # of the network, such as "eth0"; None for the loopback


@dataclass(frozen=True)
class JobOptions:
    """A job of asynchronous SGD."""

    model: str  # as of `CaptureOptions`
    batch: int = 8  # examples of a step
    shape: tuple[int, ...] | None = None  # of one example; None for the model's default
    classes: int | None = None  # to tell apart; None for the model's default
    servers: int = 1  # parameter servers; parameter i is on server i modulo their number
    rate: float = 0.01  # learning rate
    # Seconds that the forward and the backward pass take at least, shared among the layers by their
    # floating-point operations; None for no waiting
    waiting: tuple[float, float] | None = None
    threads: int = 1  # of PyTorch, in each process
    seed: int = 0  # of parameters and examples, the same in all processes
    # Of the servers, then of the workers; empty for this machine's loopback
    nodes: tuple[Node, ...] = ()
    timeout: float = 120.0  # seconds without a sign of life after which a process is given up

    def __post_init__(self) -> None:
        for name, value in (("servers", self.servers), ("threads", self.threads)):
            if value < 1:
                raise InputError(f"{name}: {value}, but at least 1 is needed")
        for name, number in (("rate", self.rate), ("timeout", self.timeout)):
            if not 0 < number < math.inf:
                raise InputError(f"{name}: {number:g}, not above 0")
        if self.waiting is not None and not all(0 <= each < math.inf for each in self.waiting):
            raise InputError("waiting: give the seconds of the forward and of the backward pass")
        self.capture()

    def capture(self) -> CaptureOptions:
        """Return how the model and its examples are made."""
        return CaptureOptions(self.model, self.batch, self.shape, self.classes, dropout=True)


@dataclass(frozen=True)
class Setup:
    """What one process of a job is told when it is started."""

    options: JobOptions
    rank: int  # servers come first
    workers: int
    interface: str | None  # of the network; None for the loopback
    store: str  # a file in which the processes find each other

    @property
    def is_worker(self) -> bool:
        return self.rank >= self.options.servers

    @classmethod
    def of_json(cls, text: str) -> Setup:
        """Return what `asdict` has made JSON of."""
        found = json.loads(text)
        return cls(JobOptions(**found.pop("options")), **found)


def load(options: JobOptions) -> Workload:
    """Make model and examples, the same ones in every process."""
    import torch

    from paracosm.graphs.capture.step import load_workload

    torch.manual_seed(options.seed)
    workload = load_workload(options.capture())
    if not trained(workload):
        raise InputError(f'model "{options.model}" has no parameter to train')
    return workload


def trained(workload: Workload) -> list[tuple[str, Parameter]]:
    """Return names and parameters that have gradients, in the order of their definition."""
    named = workload.module.named_parameters()
    return [(name, parameter) for name, parameter in named if parameter.requires_grad]


def profile_module(
    options: JobOptions, steps: int = 100, progress: Callable[[int, int], None] | None = None
) -> JobProfile:
    """Train with one worker, and return what it and the servers did, op by op."""
    if steps < 1:
        raise InputError(f"steps: {steps}, but at least 1 is needed")
    try:
        with parameter_server_job(options, workers=1) as job:
            return check_job_profile(job.profile(steps, progress), options.model)
    except WorkerError as error:
        raise InputError(f"profiling {options.model}: {error}") from None


def measure_throughput(
    options: JobOptions, workers: int, seconds: float, stagger: float = 0.0
) -> dict[str, Any]:
    """Train with so many workers; return when each began and ended its steps, as `Job.window`."""
    try:
        with parameter_server_job(options, workers) as job:
            return job.window(workers, seconds, stagger)
    except WorkerError as error:
        raise InputError(f"training {options.model} with {workers} workers: {error}") from None


WARM_UP = 3  # steps before those that are profiled

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
        goodput, options = self.goodput(), self._options
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
            "model": Path(options.model).name,  # nobody else has the folder
            **{
                name: getattr(options, name)
                for name in ("batch", "shape", "rate", "waiting", "seed")
            },
            "goodput": asdict(goodput),
            "ended": ended,
        }
        profile = _profile(self._made, done[WARM_UP:], self._first)
        bandwidth = min(goodput.down, goodput.up)
        return replace(profile, bandwidth=bandwidth, provenance=provenance)

    def window(self, workers: int, seconds: float, stagger: float = 0.0) -> dict[str, Any]:
        """Let some of the workers train for a while, each as fast as it can.

        Args:
            stagger: worker i begins its first step i times so many seconds later.

        Returns:
            "W", "seconds", "stagger_s"; "start_ms", "end_ms": by worker, of each step, from the
            first one's begin; "loss" of each step; "cpu_workers_s": processor time of each;
            "load": the machine's before.
        """
        if not 1 <= workers <= self._workers:
            raise InputError(f"workers: {workers}, but the job has {self._workers}")
        if not 0 <= stagger * (workers - 1) < seconds:
            raise InputError(
                f"stagger: {stagger:g} s between {workers} workers do not fit in {seconds:g} s"
            )
        load = os.getloadavg()[0]
        begin = time.monotonic() + 0.1
        chosen = range(self._first, self._first + workers)
        for number, each in enumerate(chosen):
            order = {"do": "window", "begin": begin + stagger * number, "end": begin + seconds}
            self._processes.order({each: order})
        answers = self._processes.answers("training", chosen, seconds)
        first = min(answer["begin"][0] for answer in answers)

        def milliseconds(name: str) -> list[list[float]]:
            return [[round((at - first) * 1e3, 3) for at in answer[name]] for answer in answers]

        return {
            "W": workers,
            "seconds": seconds,
            "stagger_s": stagger,
            "load": round(load, 2),
            "cpu_workers_s": [round(answer["cpu"], 2) for answer in answers],
            "start_ms": milliseconds("begin"),
            "end_ms": milliseconds("end"),
            "loss": [answer["loss"] for answer in answers],
        }

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
