"""Seconds of the event loop of the replay, beside SimPy and a plain loop with Python's heapq.

    python benchmarks/replay_events.py

Three tables; what stands beside each other ran by turns in this process, and medians are shown:

1. a data-parallel GPT's iteration on 64 ranks: compute and communication lanes, first in, first
   out; all-reduces at which all ranks meet; durations that differ from rank to rank. SimPy, the
   plain loop and the compiled loop must end every task at the same picosecond. The loops are also
   shown without what they need before: Python's lists of successors and the like, our arrays;
2. the compiled loop on 9 million tasks;
3. flows over shared links, max-min fair.
"""

from __future__ import annotations

import gc
import heapq
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import simpy
from stored_results import store_result

from paracosm.jobs.expand import expand
from paracosm.jobs.job import Job, TaskGraph
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job
from paracosm.simulation.events import replay_tasks
from paracosm.simulation.events_kernel import arrange, play

ROUNDS = 5
FORWARD, BACKWARD, LAYERS = 14, 28, 48
AGAINST_OTHERS = "event loop on 135,000 tasks, against SimPy 4.1.2 and a plain loop over heapq"
OF_FLOWS = (
    "max-min fair flows between 64 machines at loads 0.5 and 0.9, and between 256: a begin or end, "
    "at how many flows at a time"
)
ALONE = 1e6 / 12.5e9 * 1e12  # picoseconds of a flow of mean size that has a link to itself
AIM_LARGE = 5.0  # seconds
# what, what it is beside, and how many times as long it should take
ROWS = (
    ("SimPy", "ours", 100),
    ("heapq", "ours, the loop alone", 10),
    ("lists", None, None),
    ("heapq, from the arrays", "ours", 10),
    ("ours, the loop alone", None, None),
    ("ours", None, None),
)


def gpt(ranks: int, layers: int, microbatches: int = 1) -> Job:
    """Return the iteration of a GPT in data parallel, a bucket of gradients for each layer."""
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(names, lanes, roles)
    last = -1

    def add(name: str, step: str) -> int:
        after = [last] if last >= 0 else []
        return writer.add(name, "compute", 50e-6, after, step=step)

    reduced = []
    for batch in range(microbatches):
        for layer in range(layers):
            for op in range(FORWARD):
                last = add(f"h.{layer} forward {op}", "forward")
        for layer in reversed(range(layers)):
            for op in range(BACKWARD):
                last = add(f"h.{layer} backward {op}", "backward")
            if batch == microbatches - 1:
                bucket = writer.add(
                    f"h.{layer} all-reduce",
                    "communication",
                    800e-6,
                    [last],
                    kind="collective",
                    role="data",
                    step="communication",
                )
                reduced.append(bucket)
    for layer, bucket in zip(reversed(range(layers)), reduced, strict=True):
        writer.add(f"h.{layer} step", "compute", 20e-6, [last, bucket], step="optimizer")
    return write_job(
        [writer],
        [0] * ranks,
        write_communicators([range(ranks)]),
        [{"data": 0}] * ranks,
        policies={"compute": "fifo", "communication": "fifo"},
    )


def with_jitter(job: Job, seed: int = 1) -> TaskGraph:
    """Return the job's tasks, the durations of each 5 % around what the program says."""
    tasks = expand(job)
    factor = np.random.default_rng(seed).normal(1.0, 0.05, len(tasks)).clip(0.5, 1.5)
    return replace(tasks, duration=np.rint(tasks.duration * factor).astype(np.int64))


@dataclass
class Lists:
    """A task graph as Python's lists, which is what Python reads fastest."""

    resource: list[int]
    duration: list[int]
    meeting: list[int]
    dependencies: list[list[int]]
    successors: list[list[int]]
    members: list[list[int]]
    resources: int


def lists_of(tasks: TaskGraph) -> Lists:
    n, meeting = len(tasks), tasks.meeting.tolist()
    edges, offsets = tasks.dependencies.tolist(), tasks.offsets.tolist()
    dependencies = [edges[offsets[i] : offsets[i + 1]] for i in range(n)]
    successors: list[list[int]] = [[] for _ in range(n)]
    members: list[list[int]] = [[] for _ in range(max(meeting) + 1)]
    for i in range(n):
        for before in dependencies[i]:
            successors[before].append(i)
        if meeting[i] >= 0:
            members[meeting[i]].append(i)
    return Lists(
        tasks.resource.tolist(),
        tasks.duration.tolist(),
        meeting,
        dependencies,
        successors,
        members,
        len(tasks.policy),
    )


def with_simpy(lists: Lists) -> list[int]:
    """Replay with SimPy: a process for every task, a resource for every lane."""
    environment = simpy.Environment()
    lanes = [simpy.Resource(environment) for _ in range(lists.resources)]
    missing = [len(group) for group in lists.members]
    longest = [0] * len(missing)
    everybody = [environment.event() for _ in missing]
    end = [0] * len(lists.resource)
    processes: list[Any] = []

    def run(task: int) -> Iterator[Any]:
        before = lists.dependencies[task]
        if len(before) == 1:
            yield processes[before[0]]
        elif before:
            yield environment.all_of([processes[other] for other in before])
        lane = lanes[lists.resource[task]]
        request = lane.request()
        yield request
        meeting, duration = lists.meeting[task], lists.duration[task]
        if meeting >= 0:
            longest[meeting] = max(longest[meeting], duration)
            missing[meeting] -= 1
            if missing[meeting]:
                yield everybody[meeting]
            else:
                everybody[meeting].succeed()
            duration = longest[meeting]
        yield environment.timeout(duration)
        end[task] = environment.now
        lane.release(request)

    processes.extend(environment.process(run(task)) for task in range(len(end)))
    environment.run()
    return end


def with_heapq(lists: Lists) -> list[int]:
    """Replay with a loop over a heap of ends: what one writes by hand, with care."""
    resource, duration, meeting = lists.resource, lists.duration, lists.meeting
    successors, members = lists.successors, lists.members
    push, pop = heapq.heappush, heapq.heappop
    missing = [len(before) for before in lists.dependencies]
    absent = [len(group) for group in members]
    longest = [0] * len(absent)
    waiting: list[deque[int]] = [deque() for _ in range(lists.resources)]
    busy = [False] * lists.resources
    end = [0] * len(resource)
    heap: list[tuple[int, int]] = []
    now = 0

    def start(task: int) -> None:
        group = meeting[task]
        if group < 0:
            push(heap, (now + duration[task], task))
            return
        if duration[task] > longest[group]:
            longest[group] = duration[task]
        absent[group] -= 1
        if not absent[group]:
            over = now + longest[group]
            for member in members[group]:
                push(heap, (over, member))

    for task in [task for task, count in enumerate(missing) if not count]:
        lane = resource[task]
        if busy[lane]:
            waiting[lane].append(task)
        else:
            busy[lane] = True
            start(task)
    while heap:
        now, task = pop(heap)
        end[task] = now
        lane = resource[task]
        if waiting[lane]:
            start(waiting[lane].popleft())
        else:
            busy[lane] = False
        for other in successors[task]:
            missing[other] -= 1
            if not missing[other]:
                lane = resource[other]
                if busy[lane]:
                    waiting[lane].append(other)
                else:
                    busy[lane] = True
                    start(other)
    return end


def seconds(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return the processor's seconds: this machine has other things to do."""
    gc.collect()
    begin = time.process_time()
    result = function(*arguments)
    return time.process_time() - begin, result


def beside_others() -> None:
    tasks = with_jitter(gpt(64, LAYERS))
    took: dict[str, list[float]] = {name: [] for name, _, _ in ROWS}
    for _ in range(ROUNDS):
        took["lists"].append((made := seconds(lists_of, tasks))[0])
        lists = made[1]
        spent, slow = seconds(with_simpy, lists)
        took["SimPy"].append(spent)
        spent, plain = seconds(with_heapq, lists)
        took["heapq"].append(spent)
        spent, times = seconds(replay_tasks, tasks)
        took["ours"].append(spent)
        plan = arrange(tasks)
        took["ours, the loop alone"].append(seconds(play, plan)[0])
        assert times.end.tolist() == plain == slow == plan.end.tolist(), "ends differ"
        took["heapq, from the arrays"].append(took["lists"][-1] + took["heapq"][-1])
    print(f"a GPT on 64 ranks, {len(tasks):,} tasks, {times.makespan / 1e9:.3f} ms; ends are equal")
    ratios = {}
    for name, of, aim in ROWS:
        median = statistics.median(took[name])
        print(
            f"  {name:<24}{median * 1e3:>8.1f} ms {median / len(tasks) * 1e9:>7,.0f} ns a task",
            end="\n" if of is None else "",
        )
        if of is not None:
            ratios[name] = statistics.median(
                a / b for a, b in zip(took[name], took[of], strict=True)
            )
            print(f"{ratios[name]:>7.1f} times {of} (aim: {aim})")

    store_result(AGAINST_OTHERS, f"{ratios['SimPy']:.0f}, {ratios['heapq']:.0f} times as fast")


def at_scale() -> None:
    spent, job = seconds(gpt, 1024, LAYERS + 4, 4)
    expanding, tasks = seconds(with_jitter, job)
    print(f"\n{len(tasks):,} tasks on 1,024 ranks (expanded, durations drawn: {expanding:.1f} s)")
    for lanes, policy in (("first in, first out", 1), ("in order", 0)):
        chosen = replace(tasks, policy=np.full_like(tasks.policy, policy))
        spent = statistics.median(seconds(replay_tasks, chosen)[0] for _ in range(3))
        aim = f" (aim: {AIM_LARGE:.0f} s)" if policy else ""
        print(f"  {lanes:<20}{spent:>6.2f} s{aim}, {spent / len(tasks) * 1e9:.0f} ns a task")


def flows(routes: list[list[int]], links: int, route: Any, gap: float, seed: int = 2) -> TaskGraph:
    """Return flows of random sizes that begin one after the other, `gap` picoseconds apart."""
    n = len(route)
    random = np.random.default_rng(seed)
    none = np.full(n, -1, dtype=np.int32)
    lengths = np.array([len(path) for path in routes])
    return TaskGraph(
        resource=none,
        duration=np.cumsum(random.exponential(gap, n)).astype(np.int64),
        priority=np.zeros(n, dtype=np.int32),
        offsets=np.zeros(n + 1, dtype=np.int64),
        dependencies=np.zeros(0, dtype=np.int64),
        meeting=none,
        awaited=none.astype(np.int64),
        route=np.asarray(route, dtype=np.int32),
        demand=random.exponential(1e6, n),
        route_offsets=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        routes=np.concatenate(routes).astype(np.int32),
        bandwidth=np.full(links, 12.5e9),
        policy=np.zeros(0, dtype=np.int32),
    )


def between_machines(machines: int, load: float, count: int) -> TaskGraph:
    """Return flows between random pairs of machines, each with a link up and one down."""
    routes = [[a, machines + b] for a in range(machines) for b in range(machines) if a != b]
    route = np.random.default_rng(3).integers(0, len(routes), count)
    return flows(routes, 2 * machines, route, ALONE / machines / load)


def over_links() -> None:
    """Print what the loop takes for a begin or an end of a flow; a flow has its latency as well."""
    print("\nflows over shared links, the loop alone")
    n = 20_000
    cases = (
        ("one link, 100,000 at once", flows([[0]], 1, np.zeros(100_000), 0.0)),
        ("one link, load 0.9", flows([[0]], 1, np.zeros(100_000), ALONE / 0.9)),
        ("64 up and 64 down, load 0.5", between_machines(64, 0.5, n)),
        ("64 up and 64 down, load 0.9", between_machines(64, 0.9, n)),
        ("256 up and 256 down, load 0.5", between_machines(256, 0.5, n)),
        ("256 up and 256 down, load 0.9", between_machines(256, 0.9, n)),
    )
    measured = []
    for name, tasks in cases:
        plans = [arrange(tasks) for _ in range(ROUNDS)]
        spent = statistics.median(seconds(play, plan)[0] for plan in plans)
        event = spent / (2 * len(tasks)) * 1e6
        times = replay_tasks(tasks)
        busy = (times.end - times.begin - tasks.duration).sum() / times.makespan
        print(
            f"  {name:<30}{len(tasks):>8,} flows {spent * 1e3:>8.1f} ms {event:>7.2f} us "
            f"a begin or end, {busy:,.0f} at a time on average"
        )
        measured.append(f"{event:.2g} us at {busy:,.0f}")
    store_result(OF_FLOWS, ", ".join(measured[2:]))


if __name__ == "__main__":
    replay_tasks(with_jitter(gpt(2, 1)))  # compiled, or read from disk
    beside_others()
    over_links()
    if "--short" not in sys.argv:
        at_scale()
