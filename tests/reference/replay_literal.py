"""The paper's simulator, transcribed word for word: the reference that tests compare with.

Huang et al., "Simulating Performance of ML Systems with Offline Profiling", section 2: "Each
independent device executes in parallel and maintains a job queue and its finish time. The simulator
keeps a global ready list containing all nodes whose dependencies are fulfilled. (1) It starts all
nodes in the ready list by enqueueing them into their corresponding device's job queues. (2) As soon
as an op is finished on a device, it updates all successor nodes' dependency counter. If the counter
becomes zero, the successor node is added into ready list. The system performance is obtained by
looking at the finish time of the last device."
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Task", "replay_literally"]


@dataclass(frozen=True, slots=True)
class Task:
    """A node of the paper's dataflow graph.

    Attributes:
        device: which of the independent devices carries it out.
        duration: seconds.
        dependencies: indices of the tasks that must end before.
    """

    device: str
    duration: float
    dependencies: tuple[int, ...] = ()


def replay_literally(tasks: Sequence[Task]) -> list[tuple[float, float]]:
    """Return begin and end of every task, in seconds.

    Tasks that become ready at one instant enter the queues in the order of their indices.
    """
    counter = [len(task.dependencies) for task in tasks]
    successors: list[list[int]] = [[] for _ in tasks]
    for index, task in enumerate(tasks):
        for before in task.dependencies:
            successors[before].append(index)
    queues: dict[str, deque[int]] = {task.device: deque() for task in tasks}
    busy = dict.fromkeys(queues, False)
    spans = [(0.0, 0.0)] * len(tasks)
    running: list[tuple[float, int]] = []
    ready = [index for index, count in enumerate(counter) if count == 0]
    now = 0.0
    while True:
        for index in ready:
            queues[tasks[index].device].append(index)
        ready = []
        for device, queue in queues.items():
            if queue and not busy[device]:
                index = queue.popleft()
                spans[index] = (now, now + tasks[index].duration)
                heapq.heappush(running, (spans[index][1], index))
                busy[device] = True
        if not running:
            return spans
        now = running[0][0]
        while running and running[0][0] == now:
            _, index = heapq.heappop(running)
            busy[tasks[index].device] = False
            for after in successors[index]:
                counter[after] -= 1
                if counter[after] == 0:
                    ready.append(after)
        ready.sort()
