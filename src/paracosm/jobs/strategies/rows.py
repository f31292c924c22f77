"""Writes nodes of a graph into a block of tasks, with the memory that they hold.

A node of an asynchronous device is two tasks: the host launches it, then the device runs it. Nodes
that only the host handles (a view) pass on their dependencies. Lanes run in order, so a task waits
for no more than the last of its dependencies on each other lane, and for none on its own.

A storage is held from the task of the node that allocates it to that of the last node of the stage
that uses it. What the backward pass uses is held for every micro-batch from its forward pass to its
backward pass. What only other stages use is held until it has been sent; what they send, from the
first task that uses it until the backward pass is over. Gradients are held throughout, or only
until they have been added up, reduced or scattered.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from paracosm.jobs.strategies.plan import Part, Plan
from paracosm.jobs.strategies.work import COMPUTE, DEVICE, TENSOR, Sum, Work
from paracosm.jobs.writer import HERE, BlockWriter, Place, Use, last_on

Ready = Mapping[tuple[str, str], int]
"""What something waits for: by lane and anchor, how many rows after the anchor the last one is."""

Gathered = dict[tuple[str, str], int]
"""A `Ready` that is being put together."""

TimeOf = Callable[[str, str, int], float]
"""Seconds of a collective of so many bytes between the ranks in a role."""


class RowWriter:
    """Writes nodes of one rank's graph, in order.

    `earlier` and `elsewhere` return what follows when nodes of earlier blocks, and of other stages,
    are done.
    """

    def __init__(
        self,
        work: Work,
        writer: BlockWriter,
        time_of: TimeOf,
        earlier: Mapping[int, Ready],
        elsewhere: Ready,
        halved: frozenset[int] = frozenset(),
    ) -> None:
        self.work, self.writer = work, writer
        self.ready: dict[int, Ready] = {}
        """What is there when a node of this block is done."""
        self.row_of: dict[int, int] = {}
        """The task of each node of this block; where it is there twice, the later one."""
        self._time_of, self._halved = time_of, halved
        self._earlier, self._elsewhere = earlier, elsewhere
        self._awaited: dict[str, Gathered] = {}
        self._computing: list[int] = []
        self._names = [work.graph.ops[code].name for code in work.graph.op.tolist()]
        self._offsets = work.graph.offsets.tolist()
        self._dependencies = work.graph.dependencies.tolist()
        self._host_takes_time = work.host_takes_time

    def wait(self, ready: Ready) -> None:
        """Make all later work of the device wait for this."""
        for lane in set(self.work.lane) | {COMPUTE}:
            if lane != self.work.host or lane == COMPUTE:
                merge(self._awaited.setdefault(lane, {}), ready)

    def node(self, row: int, step: str) -> int:
        """Write one node and return the row of its task."""
        work = self.work
        lane, name = work.lane[row], self._names[row]
        duration = work.duration[row] / (2 if row in self._halved else 1)
        there: Gathered = {}
        for before in self._dependencies[self._offsets[row] : self._offsets[row + 1]]:
            merge(there, self.ready_of(before))
        if work.on_host[row]:
            waits: Gathered = dict(there) if work.waits[row] else {}
            if work.waits[row] and work.host != COMPUTE:
                merge(waits, self._last(COMPUTE))
            merge(waits, self._awaited.pop(lane, {}))
            task = self._add(name, lane, duration, waits, step)
            self.ready[row] = {(lane, HERE): task}
            if not work.waits[row]:
                passed_on = {at: after for at, after in there.items() if at[0] != lane}
                self.ready[row] = {(lane, HERE): task, **passed_on}
        else:
            if work.launch > 0:
                launch = self._add(f"launch {name}", work.host, work.launch, {}, step)
                merge(there, {(work.host, HERE): launch})
            elif self._host_takes_time:
                merge(there, self._last(work.host))
            merge(there, self._awaited.pop(lane, {}))
            if row in work.collective:
                task = self._collective(work.collective[row], there)
            else:
                task = self._add(name, lane, duration, there, step)
            self.ready[row] = {(lane, HERE): task}
        self.row_of[row] = task
        if lane == COMPUTE:
            self._computing.append(task)
        for each in work.sums.get(row, ()):
            done = self._collective(each, {(lane, HERE): self.writer.last[lane]})
            self.wait({(TENSOR, HERE): done})
        return task

    @property
    def awaited(self) -> Ready:
        """What the next node of the device would have to wait for besides."""
        return self._awaited.get(COMPUTE, {})

    def taken(self, row: int) -> int:
        """Return the task from whose begin on a node of this block holds its allocation.

        A host that runs ahead of its device allocates and frees memory for what it issues next: in
        the order of the device's tasks.
        """
        task = self.row_of[row]
        place = bisect_left(self._computing, task)
        runs_ahead = self._runs_ahead(row) and place < len(self._computing)
        return self._computing[place] if runs_ahead else task

    def given(self, row: int) -> int:
        """Return the task at whose end the last uses of a node of this block are released."""
        task = self.row_of[row]
        place = max(bisect_left(self._computing, task) - 1, 0)
        return self._computing[place] if self._runs_ahead(row) and self._computing else task

    @property
    def end(self) -> int:
        """The task at whose end the block's uses so far are released."""
        last = len(self.writer) - 1
        is_ahead = self.work.host != COMPUTE and self.writer.last.get(self.work.host) == last
        return self._computing[-1] if is_ahead and self._computing else last

    @property
    def computed(self) -> int:
        """The last task that computes; without any, the last one."""
        return self._computing[-1] if self._computing else self.end

    def _runs_ahead(self, row: int) -> bool:
        return self.work.on_host[row] and self.work.host != COMPUTE

    def done(self, lanes: Iterable[str]) -> Ready:
        """Return the last task on each of these lanes in this block."""
        return {(lane, HERE): self.writer.last[lane] for lane in lanes if lane in self.writer.last}

    def _collective(self, each: Sum, there: Ready) -> int:
        seconds, lane = self._time_of(each.role, each.collective, each.size), each.role
        anchors = row_anchors(there, lane)
        return self.writer.communicate(
            each.name, lane, seconds, anchors, "collective", each.size, each.role
        )

    def _add(self, name: str, lane: str, duration: float, there: Ready, step: str) -> int:
        return self.writer.add(name, lane, duration, row_anchors(there, lane), step=step)

    def _last(self, lane: str) -> Ready:
        if lane in self.writer.last:
            return {(lane, HERE): self.writer.last[lane]}
        return {(lane, last_on(lane)): 0}

    def ready_of(self, row: int) -> Ready:
        """Return what is available when a node of this block, or of an earlier one, is done."""
        if row in self.ready:
            return self.ready[row]
        return self._earlier.get(row, self._elsewhere)


def merge(into: Gathered, other: Ready) -> None:
    """Add what `other` waits for; of the rows after one anchor on one lane the last one counts."""
    for at, after in other.items():
        if at not in into or into[at] < after:
            into[at] = after


def row_anchors(ready: Ready, lane: str) -> list[Place]:
    """Return what a task on `lane` waits for: the lane's order implies the rest."""
    return [(anchor, after) for (other, anchor), after in ready.items() if other != lane]


Held = list[tuple[int, int, Use]]
"""(bytes, last row of the graph that uses them, what for) of what a forward pass leaves behind."""


def _storages(
    plan: Plan, makers: Sequence[int], users: Sequence[int] = ()
) -> Iterator[tuple[int, int, int]]:
    """Yield bytes, first and last node of what nodes allocate or reuse."""
    first, last = plan.work.graph.storages.first, plan.work.graph.storages.last
    chosen = np.isin(first, makers) | ((first < 0) & np.isin(last, users))
    columns = (each[chosen].tolist() for each in (plan.work.storage_size, first, last))
    yield from zip(*columns, strict=True)


def hold_activations(
    plan: Plan,
    part: Part,
    rows: RowWriter,
    forgotten: Mapping[int, int],
    sent_away: Mapping[int, int],
) -> Held:
    """Record a forward pass's allocations, and return those still held at its end.

    What recomputed rows make is `forgotten` after a task; what remains of a layer may be
    `sent_away` by one.
    """
    writer, backward = rows.writer, frozenset(part.backward)
    left: Held = []
    for size, first, last in _storages(plan, part.forward, [*part.forward, *part.backward]):
        taken = rows.taken(first) if first >= 0 else 0
        use = plan.use(first, last)
        if last in rows.row_of:
            writer.allocate(size, taken, use)
            writer.release(size, max(taken, rows.given(last)), use)
            continue
        if first in forgotten:
            kept = _bytes_passed_on(plan, first, size)
            writer.allocate(size - kept, taken, use)
            writer.release(size - kept, max(taken, forgotten[first]), use)
            size = kept
        writer.allocate(size, taken, use)
        if first >= 0 and (layer := int(plan.layers.layer[first])) in sent_away:
            writer.release(size, max(taken, sent_away[layer]), use)
        elif last in backward or (last >= plan.layers.optimizer and backward):
            left.append((size, last, use))
        elif last < plan.layers.optimizer:
            writer.release(size, rows.end, use)
    return left


def kept_of_layers(plan: Plan, part: Part, forgotten: frozenset[int]) -> dict[int, Held]:
    """Return what remains of each layer after its forward pass, for its backward pass."""
    backward, kept = frozenset(part.backward), dict[int, Held]()
    for size, first, last in _storages(plan, part.forward):
        held = _bytes_passed_on(plan, first, size) if first in forgotten else size
        if last in backward and held:
            use = plan.use(first, last)
            kept.setdefault(int(plan.layers.layer[first]), []).append((held, last, use))
    return kept


def hold_recomputed(
    plan: Plan, part: Part, rows: RowWriter, again: frozenset[int], later: Held | None
) -> None:
    """Record what recomputed rows allocate in a backward pass."""
    for size, first, last in _storages(plan, part.forward):
        if first in again:
            _hold(plan, rows, size - _bytes_passed_on(plan, first, size), first, last, later)


def first_task(plan: Plan, nodes: Sequence[int], row_of: Mapping[int, int]) -> int:
    """Return the first task of a pass on the device, which may use what has arrived."""
    here = (node for node in nodes if node in row_of)
    return next((row_of[node] for node in here if plan.work.lane[node] in DEVICE), 0)


def release_kept(plan: Plan, left: Held, rows: RowWriter, later: Held | None) -> None:
    """Record the use of what a forward pass left; deferred work uses it `later`."""
    for size, last, use in left:
        if later is not None and last in plan.put_off:
            later.append((size, last, use))
        else:
            end = rows.given(last) if last in rows.row_of else rows.computed
            rows.writer.release(size, end, use)


def hold_gradients(
    plan: Plan,
    rows: RowWriter,
    nodes: Sequence[int],
    freed: Mapping[int, int] | None,
    later: Held | None,
) -> None:
    """Record what nodes of a backward pass allocate."""
    for size, first, last in _storages(plan, nodes):
        if last < len(plan.work.graph):
            _hold(plan, rows, size, first, last, later)
            continue
        taken, use = rows.taken(first), plan.use(first, last)
        rows.writer.allocate(size, taken, use)
        if freed is not None:
            rows.writer.release(size, max(taken, freed.get(first, taken)), use)


def hold_updates(plan: Plan, rows: RowWriter, share: Mapping[int, float]) -> None:
    """Record a rank's share of what an optimizer step allocates."""
    for whole, first, last in _storages(plan, list(share)):
        size = round(whole * share[first])
        if last < len(plan.work.graph):
            _hold(plan, rows, size, first, last, None)
        else:
            rows.writer.allocate(size, rows.taken(first), plan.use(first, last))


def _hold(
    plan: Plan, rows: RowWriter, size: int, first: int, last: int, later: Held | None
) -> None:
    """Hold bytes from one node to another, or else to the end of the block."""
    taken, use = rows.taken(first), plan.use(first, last)
    rows.writer.allocate(size, taken, use)
    if later is not None and last in plan.put_off:
        later.append((size, last, use))
        return
    over = rows.given(last) if last in rows.row_of else rows.end
    rows.writer.release(size, max(taken, over), use)


def _bytes_passed_on(plan: Plan, row: int, size: int) -> int:
    """Return how many of the bytes that a node allocates later layers' forward passes use."""
    if plan.until[row] <= plan.layers.layer[row]:
        return 0
    return min(size, int(plan.work.graph.bytes_written[row]) or size)
