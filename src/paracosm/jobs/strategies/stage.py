"""One stage of one rank: its messages, reductions of gradients and gathers of parameters.

PyTorch's DDP reduces gradients in buckets, each as soon as its last gradient is complete (Li et al.
2020, section 3.2.3), on a lane of its own that slows no computation down. With several
micro-batches the gradients are added up, and reduced with the last one.

ZeRO (Rajbhandari et al. 2020) and FSDP (Zhao et al. 2023) divide what DDP replicates. Stage 1
divides the optimizer's state: gradients are reduced and scattered, every rank updates its share,
and all gather the parameters. Stage 2 divides the gradients as well, stage 3 (FSDP) also the
parameters: each layer's are gathered before its forward and its backward pass, and dropped after.
Gathers and scatters take turns on one lane, as NCCL's on one communicator; with `prefetch` = 1:

    communication | gather 0 | gather 1 | gather 2 | ... | gather 1 | scatter 2 | gather 0 | ...
    compute                  | forward 0 | forward 1 |...| backward 2 | backward 1 | ...

A gather waits until the layer `prefetch` + 1 places before it is done: so many are held at a time.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from paracosm.arrays import Ints
from paracosm.cluster.changes import Change
from paracosm.cluster.cluster import Cluster
from paracosm.cluster.collectives import TimeOf, collective_times, message_link
from paracosm.errors import InputError
from paracosm.jobs import Codebook
from paracosm.jobs.strategies.layers import Bucket, buckets_of
from paracosm.jobs.strategies.plan import Part, Plan
from paracosm.jobs.strategies.rows import Gathered, Ready, RowWriter, merge, row_anchors
from paracosm.jobs.strategies.work import COMMUNICATION, COMPUTE, DEVICE, OFFLOAD, WITHIN
from paracosm.jobs.writer import HERE, BlockWriter, Use, last_on

SHARDS: Use = "gradients", "shards"
GATHERED: Use = "collectives", "gathered parameters"


@dataclass(frozen=True, eq=False)
class Books:
    """The codebooks that all blocks of a job share."""

    names: Codebook
    lanes: Codebook
    roles: Codebook

    def writer(self) -> BlockWriter:
        return BlockWriter(self.names, self.lanes, self.roles)


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of one rank."""

    plan: Plan
    part: Part
    costs: "Costs"
    books: Books

    @property
    def is_first(self) -> bool:
        return self.part.number == 0

    @property
    def is_last(self) -> bool:
        return self.part.number == self.part.stages - 1


def before(stage: Stage) -> Ready:
    """Return what else a pass waits for: earlier sends, if nothing overlaps."""
    return {} if stage.plan.strategy.overlap else {("send", last_on("send")): 0}


def receive(stage: Stage, writer: BlockWriter, what: str, size: int) -> Ready:
    """Receive what another stage sends for the micro-batch, and return its arrival.

    It may arrive before it is needed; its memory is counted elsewhere.
    """
    role = f"{what} in"
    _, later = stage.costs.of_message(role, size)
    row = writer.communicate(f"receive {what}", "receive", later, (), "receive", size, role)
    return {("receive", HERE): row}


def send(stage: Stage, rows: RowWriter, what: str, size: int) -> None:
    """Send what the block has made, when all of it is done."""
    role = f"{what} out"
    seconds, _ = stage.costs.of_message(role, size)
    made = row_anchors(rows.done(DEVICE), "send")
    rows.writer.communicate(f"send {what}", "send", seconds, made, "send", size, role)


def collective(
    stage: Stage, writer: BlockWriter, name: str, kind: str, size: int, there: Ready, role: str
) -> int:
    """Write a collective between ranks that share parameters, and what the rank's own core computes
    for it; return the row of the collective."""
    name = f"{name} of stage {stage.part.number}" if stage.part.stages > 1 else name
    seconds, anchors = stage.costs.of(role, kind, size), row_anchors(there, COMMUNICATION)
    if taken := size * stage.plan.work.interference.per_byte:
        writer.add(f"computing for {name}", COMPUTE, taken, row_anchors(there, COMPUTE))
    return writer.communicate(name, COMMUNICATION, seconds, anchors, "collective", size, role)


@dataclass(frozen=True, eq=False)
class Costs:
    """Times of messages and collectives of one rank, and of all with equivalent places.

    `group` has the ranks that it communicates with in each role, `concurrent` other groups, a row
    each, that communicate in that role at the same time; `met` gets the kinds of all requested
    collectives.
    """

    cluster: Cluster
    all_reduce: str = "auto"
    group: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MappingProxyType({}))
    concurrent: Mapping[str, Ints] = field(default_factory=lambda: MappingProxyType({}))
    changes: Sequence[Change] = ()
    met: set[str] = field(default_factory=set)
    _ways: dict[tuple[str, str], list[TimeOf]] = field(default_factory=dict, init=False)
    _times: dict[tuple[str, str, int], float] = field(default_factory=dict, init=False)

    def of(self, role: str, collective: str, size: int) -> float:
        """Return the seconds of a collective of so many bytes between the ranks in a role."""
        key = (role, collective)
        if key not in self._ways:
            algorithm = "auto" if role in WITHIN else self.all_reduce
            for change in self.changes:
                if collective in change.kinds and change.what == "algorithm":
                    algorithm = str(change.value)
            times = collective_times(
                self.cluster, self.group[role], collective, algorithm, self.concurrent.get(role)
            )
            self._ways[key] = list(times.values())
        known = self._times.get((*key, size))
        if known is None:
            seconds = min(time_of(size) for time_of in self._ways[key])
            known = self._times[(*key, size)] = self._changed(collective, seconds)
        return known

    def of_message(self, role: str, size: int) -> tuple[float, float]:
        """Return the seconds that a message in a role is sent for, and those until it arrives."""
        source, target = self.group[role]
        link = message_link(self.cluster, source, target, self.concurrent.get(role))
        if link.duplex == "half":
            names = " and ".join(self.cluster.workers[rank] for rank in (source, target))
            raise InputError(
                f"duplex: half of {names}: stages of a pipeline send both ways at "
                "once, so predict takes full-duplex links for pp"
            )
        whole = self._changed("send", link.transfer_time(size))
        later = min(link.propagation(size), whole)
        return whole - later, later

    def _changed(self, kind: str, seconds: float) -> float:
        self.met.add(kind)
        for change in self.changes:
            if kind in change.kinds and change.what == "time":
                seconds = max(seconds * change.factor + float(change.added), 0.0)
        return seconds


def reduced_buckets(stage: Stage, *, last: bool) -> list[Bucket]:
    """Return what a backward pass reduces, or the host gets, `last` of the micro-batches or not.

    ZeRO 2 and 3 keep no complete gradients, and reduce them with every micro-batch; ZeRO 3 layer by
    layer.
    """
    plan, strategy, part = stage.plan, stage.plan.strategy, stage.part
    alone = strategy.replicas == 1 and not strategy.shares_experts
    alone = alone and not strategy.offload_optimizer
    if alone or (not last and strategy.sharding in ("none", "optimizer")):
        return []
    units, sizes = [plan.backward_rows(part)], (strategy.first_bucket, strategy.bucket)
    if strategy.sharding == "parameters":
        units, sizes = [nodes for _, nodes in plan.sections(units[0])], (math.inf, math.inf)
    buckets = []
    for nodes in units:
        for experts in (False, True):
            role, ranks = strategy.sharing(experts)
            rows = [row for row in nodes if plan.of_experts[row] == experts]
            if ranks > 1 or strategy.offload_optimizer:
                buckets += buckets_of(rows, plan.gradients, *sizes, role)
    return buckets


class Reductions:
    """Writes the reductions of a backward pass, each after the last node that it waits for."""

    def __init__(self, stage: Stage, rows: RowWriter, buckets: Sequence[Bucket]) -> None:
        self._stage, self._rows = stage, rows
        self._closed_by = {bucket.rows[-1]: (n, bucket) for n, bucket in enumerate(buckets)}
        self.freed: dict[int, int] = {}
        """The task that has reduced the gradients of a node, and after which they are no longer
        needed whole."""

    def after(self, row: int) -> None:
        if row not in self._closed_by:
            return
        number, bucket = self._closed_by[row]
        there: Gathered = {}
        for each in bucket.rows:
            merge(there, self._rows.ready_of(each))
        strategy, size, role = self._stage.plan.strategy, bucket.size, bucket.role
        _, ranks = strategy.sharing(experts=role == "expert data")
        if ranks == 1:
            self._to_host(number, bucket, there)
            return
        kind = "all_reduce" if strategy.sharding == "none" else "reduce_scatter"
        name = f"{kind.replace('_', '-')} {number}"
        task = collective(self._stage, self._rows.writer, name, kind, size, there, role)
        if role == "shard":  # then the same share of each replica of the shards
            name, size = f"all-reduce {number}", -(-size // strategy.shard)
            writer = self._rows.writer
            task = collective(self._stage, writer, name, "all_reduce", size, {}, "replicate")
        if strategy.sharding in ("gradients", "parameters"):
            self.freed |= dict.fromkeys(bucket.rows, task)
            if not self._stage.plan.adds_up:
                self._rows.writer.allocate(-(-bucket.size // ranks), task, SHARDS)
        if strategy.offload_optimizer:
            self._to_host(number, bucket, {(COMMUNICATION, HERE): task})

    def _to_host(self, number: int, bucket: Bucket, there: Ready) -> None:
        """Copy a rank's part of what has been reduced to the host, beside what else it does (Ren et
        al., "ZeRO-Offload", 2021, section 4.1)."""
        plan, writer = self._stage.plan, self._rows.writer
        strategy, rates = plan.strategy, plan.work.host_rates
        assert rates is not None  # `build.py` checks
        _, ranks = strategy.sharing(experts=bucket.role == "expert data")
        size = bucket.size if strategy.sharding == "none" else -(-bucket.size // ranks)
        anchors = row_anchors(there, OFFLOAD)
        task = writer.add(f"offload gradients {number}", OFFLOAD, size / rates.copy, anchors)
        if strategy.sharding not in ("gradients", "parameters"):
            self.freed |= dict.fromkeys(bucket.rows, task)
        elif not plan.adds_up and ranks > 1:
            writer.release(size, task, SHARDS)


class Gathers:
    """Writes the gathers of one pass; none where parameters are not sharded."""

    def __init__(self, stage: Stage, rows: RowWriter, layers: Sequence[int]) -> None:
        self._stage, self._rows = stage, rows
        sizes = stage.plan.gathered
        self._sizes = [{role: int(of[layer]) for role, of in sizes.items()} for layer in layers]
        self._names = [stage.plan.layers.names[layer] for layer in layers]
        self._units = [n for n, of in enumerate(self._sizes) if sum(of.values())]
        self._ahead = min(stage.plan.strategy.prefetch, len(stage.plan.layers.names))
        self._place = {number: unit for unit, number in enumerate(self._units)}
        self._gathered: list[int] = []
        self._ended: list[int] = []

    def begin(self, number: int) -> None:
        """Gather what the `number`-th layer needs, and those to be prefetched."""
        if number not in self._place:
            return
        unit = self._place[number]
        while len(self._gathered) <= min(unit + self._ahead, len(self._units) - 1):
            self._gather(len(self._gathered))
        self._rows.wait({(COMMUNICATION, HERE): self._gathered[unit]})

    def end(self, number: int) -> None:
        """Drop the parameters of the `number`-th layer."""
        if number in self._place:
            row = self._rows.writer.last.get(COMPUTE, self._gathered[self._place[number]])
            for size in self._sizes[number].values():
                self._rows.writer.release(size, row, GATHERED)
            self._ended.append(row)

    def close(self) -> None:
        """Mark for later blocks when the last layers were dropped."""
        for back in range(self._ahead + 1 if self._ended else 0):
            place = max(len(self._ended) - 1 - back, 0)
            self._rows.writer.mark(_dropped(back), self._ended[place])

    def _gather(self, unit: int) -> None:
        number, writer = self._units[unit], self._rows.writer
        before = unit - 1 - self._ahead
        there: Ready = (
            {(COMPUTE, HERE): self._ended[before]}
            if before >= 0
            else {(COMPUTE, _dropped(-1 - before)): 0}
        )
        name = f"all-gather {self._names[number]}"
        for role, size in self._sizes[number].items():
            if size:
                task = collective(self._stage, writer, name, "all_gather", size, there, role)
                writer.allocate(size, task, GATHERED)
        self._gathered.append(task)


def _dropped(back: int) -> str:
    return f"dropped {back}"
