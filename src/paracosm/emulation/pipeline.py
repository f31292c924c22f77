"""When emulated stages of a pipeline send on what they compute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from math import inf

from paracosm.emulation.records import PipelineStep


class Pipeline:
    """The stages of a pipeline, some of which are real, step by step.

    An emulated stage computes for as long as the real one did in the step before, one micro-batch
    at a time, in the order of its schedule and as soon as the input has arrived. GPipe runs all n
    forward micro-batches, then all backward ones (Huang et al., 2019). With 1F1B stage s of S runs
    min(n, S - s) forward ones, then alternates backward and forward (Narayanan et al., 2019).
    """

    def __init__(self, step: PipelineStep, real: Collection[int]) -> None:
        self._stages = {rank: stage for stage, rank in enumerate(step.ranks)}
        self._first = step
        self._took = {"F": 0.0, "B": 0.0}
        # A real stage that has not begun yet computes for itself too
        self._emulated = [stage for rank, stage in self._stages.items() if rank not in real]
        self._begun: list[float] = []  # when each step did
        self._moved: Counter[tuple[int, str]] = Counter()  # micro-batches by stage and direction
        self._free = [-inf] * len(step.ranks)
        self._places = [0] * len(step.ranks)  # of each stage in its schedule
        # When a stage's output was at the next one, if it is real, or else computed
        self._given: dict[tuple[int, str, int], float] = {}

    def begin(self, step: PipelineStep, now: float) -> None:
        """Note that a real stage begins its next step."""
        stage = self._stages[step.rank]
        self._took = {"F": step.forward, "B": step.backward}
        if self._moved[stage, "steps"] == len(self._begun):
            self._begun.append(now)
        self._moved[stage, "steps"] += 1

    def has(self, source: int, target: int) -> bool:
        """Return whether two ranks are neighbouring stages."""
        stages = self._stages
        return source in stages and target in stages and abs(stages[source] - stages[target]) == 1

    def sent(self, source: int, target: int, there: float) -> None:
        """Note when the next message of a real rank has arrived at an emulated one."""
        self._given[self._next(source, target)] = there

    def ready(self, source: int, target: int, hop: float) -> float | None:
        """Return when an emulated rank sends its next message to a real one.

        None while it waits for a real one; `hop` is the time of a message between emulated ones.
        """
        moved = True
        while moved:
            moved = any(self._compute(stage, hop) for stage in self._emulated)
        key = self._next(source, target)
        if key not in self._given:
            self._moved[key[:2]] -= 1
        return self._given.pop(key, None)

    def _next(self, source: int, target: int) -> tuple[int, str, int]:
        stage = self._stages[source]
        way = "F" if self._stages[target] > stage else "B"
        self._moved[stage, way] += 1
        return stage, way, self._moved[stage, way] - 1

    def _compute(self, stage: int, hop: float) -> bool:
        """Compute an emulated stage's next micro-batch, if its input is there; return whether."""
        way, number = self._due(stage)
        last = len(self._places) - 1
        if stage == (0 if way == "F" else last):  # without a predecessor
            step = number // self._first.microbatches
            came = self._begun[step] if step < len(self._begun) else None
        else:
            before = stage - 1 if way == "F" else stage + 1
            came = self._given.pop((before, way, number), None)
            if came is not None and before in self._emulated:
                came += hop
        if came is None:
            return False
        self._free[stage] = max(self._free[stage], came) + self._took[way]
        self._places[stage] += 1
        if stage != (last if way == "F" else 0):
            self._given[stage, way, number] = self._free[stage]
        return True

    def _due(self, stage: int) -> tuple[str, int]:
        count = self._first.microbatches
        warm = count if self._first.fills else min(count, len(self._places) - stage)
        step, place = divmod(self._places[stage], 2 * count)
        turns = place - warm
        if turns < 0:
            way, number = "F", place
        elif turns < 2 * (count - warm):
            way, number = ("F", warm + turns // 2) if turns % 2 else ("B", turns // 2)
        else:
            way, number = "B", turns - (count - warm)
        return way, step * count + number
