"""Profiling a PyTorch job with parameter servers."""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.errors import InputError, check_installed
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
from paracosm.profiling.jobs.pytorch.options import JobOptions, Node, Setup
from paracosm.profiling.processes import Processes, WorkerError, check_memory_for


def profile_module(
    options: JobOptions, steps: int = 100, progress: Callable[[int, int], None] | None = None
) -> JobProfile:
    """Train with one worker, and return what it and the servers did, op by op."""
    if steps < 1:
        raise InputError(f"steps: {steps}, but at least 1 is needed")
    try:
        with started(options, 1, "paracosm.profiling.jobs.pytorch.process") as processes:
            job = Job(options, processes)
            return check_job_profile(job.profile(steps, progress), options.model)
    except WorkerError as error:
        raise InputError(f"profiling {options.model}: {error}") from None


WARM_UP = 3  # steps before those that are profiled

FACTS = ("model", "data", "batch", "shape", "lr", "seed", "waiting", "noise", "port")

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
def started(options: JobOptions, workers: int, module: str) -> Iterator[Processes]:
    """Start servers and workers, each running a module; they end with the block in any case.

    They must be on one machine, possibly in network namespaces of their own: they meet through a
    file, and their times are those of its monotonic clock.
    """
    check_installed("torch", "torch", "a PyTorch job")
    processes = options.servers + workers
    check_memory_for(processes)
    if workers < 1:
        raise InputError(f"workers: {workers}, but at least 1 is needed")
    if options.nodes and len(options.nodes) < processes:
        raise InputError(
            f"nodes: {len(options.nodes)}, but {processes} are needed: one for each server and "
            "each worker"
        )
    with Processes(module, options.timeout) as running:
        for rank in range(processes):
            node = options.nodes[rank] if options.nodes else Node()
            store = str(running.folder / "store")
            alike = replace(options, nodes=())
            setup = Setup(alike, rank, workers, interface=node.interface, store=store)
            name = f"worker {rank - options.servers}" if setup.is_worker else f"server {rank}"
            running.start(name, asdict(setup), prefix=node.prefix)
        yield running


class Job:
    """Servers and workers that have met."""

    def __init__(self, options: JobOptions, processes: Processes) -> None:
        self.options, self.processes = options, processes
        self.first = options.servers
        answers = processes.answers("start")
        self.made = answers[self.first]
        numbers = {name: i for i, (name, _) in enumerate(self.made["parameters"])}
        ends = [segment["end"] for segment in self.made["segments"]]
        pushed = [numbers[end["what"]] for end in ends if end["kind"] == "gradient"]
        servers = range(self.first)
        processes.order({server: {"pushed": pushed} for server in servers})
        processes.answers("start", servers)

    def profile(self, steps: int, progress: Callable[[int, int], None] | None = None) -> JobProfile:
        """Run steps of one worker, of which the first three are not profiled.

        After Ctrl-C the profile has the steps so far, and "interrupted" in its provenance; the job
        cannot be used any further.
        """
        options = self.options
        goodput = self.goodput()
        self.processes.order({self.first: {"do": "steps", "steps": WARM_UP + steps}})
        done: list[dict[str, Any]] = []
        ended = "enough"
        try:
            for number in range(WARM_UP + steps):
                done += self.processes.answers(f"step {number}", [self.first])
                if progress is not None:
                    progress(max(0, number + 1 - WARM_UP), steps)
        except KeyboardInterrupt:
            ended = "interrupted"
            if len(done) <= WARM_UP:
                raise
        provenance = {
            "source": "PyTorch parameter-server job",
            "environment": self.made["environment"],
            "transport": "gloo, one message a tensor",
            "clock": "monotonic, of one machine",
            **{name: getattr(options, name) for name in FACTS},
            "model": Path(options.model).name,  # the folder is of no use to others
            "goodput": asdict(goodput),
            "ended": ended,
        }
        profile = _profile(self.made, done[WARM_UP:], self.first)
        bandwidth = min(goodput.down, goodput.up, options.port or math.inf)
        return replace(profile, bandwidth=bandwidth, provenance=provenance)

    def goodput(self, seconds: float = 0.5) -> Goodput:
        """Measure the goodput of the job's own transport between server 0 and worker 0."""
        down, _ = self._exchange(_FEW, 0)
        count = max(_FEW, min(_MANY, round(seconds * down / _MESSAGE)))
        alone_down, _ = self._exchange(count, 0)
        _, alone_up = self._exchange(0, count)
        both_down, both_up = self._exchange(count, count)
        return Goodput(alone_down, alone_up, both_down, both_up)

    def _exchange(self, down: int, up: int) -> tuple[float, float]:
        order = {"do": "goodput", "down": down, "up": up, "size": _MESSAGE}
        self.processes.order({self.first: order})
        (answer,) = self.processes.answers("goodput", [self.first])
        return float(answer["down"]), float(answer["up"])


def _profile(
    made: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], servers: int
) -> JobProfile:
    """Return the profile of a worker's steps, which described itself in `made`.

    The ops of a step are a pull of each parameter, the segments that the worker computes, and for
    each gradient its push and the update. A segment waits for the one before it and for the pulls
    that it is the first to need; a push for the segment that makes its gradient; an update for its
    push. Parameter i is on server i modulo their number.
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
