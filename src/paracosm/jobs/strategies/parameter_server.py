"""Parameter servers: workers push gradients and pull parameters (Li et al., OSDI 2014).

Synchronous: a server updates its parameters when the gradients of all workers have arrived.

    worker 0 | forward | backward |          | forward ...
    worker 1 | forward | backward    |       | forward ...
    pushes                 | 1 | 0 | 1 | 0 |
    server                          |upd 1|upd 0|
    pulls                                 | 1 | 0 |

Asynchronous: it updates with every worker's gradients as they arrive, first in, first out, and
answers that worker alone, which then continues.

Gradients travel in buckets, as with DDP, and the parameters of each are divided evenly between all
servers, as Li et al. divide ranges of keys, and MXNet's servers large arrays: a bucket is a message
to every server. The servers are ranks of their own, after the workers. An update takes its share,
by bytes, of the optimizer's time on a worker of speed 1; adding up the gradients of all workers
takes no time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.cluster.cluster import Cluster
from paracosm.errors import InputError
from paracosm.jobs.job import Communicators, Job, Program
from paracosm.jobs.strategies.layers import Bucket, buckets_of
from paracosm.jobs.strategies.plan import Plan, plans_of
from paracosm.jobs.strategies.rank import (
    FORWARD,
    backward_blocks,
    check_length,
    forward_block,
    whole_bytes,
)
from paracosm.jobs.strategies.rows import Gathered, RowWriter, merge, row_anchors
from paracosm.jobs.strategies.stage import Books, Costs, Stage
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import Replica
from paracosm.jobs.writer import (
    Codebook,
    ProgramOfBlocks,
    ProgramWriter,
    last_on,
    write_communicators,
)
from paracosm.network import Stations


@dataclass(frozen=True, eq=False)
class _Share:
    """A server's part of the bucket `number`: bytes, and seconds of their update."""

    number: int
    bucket: Bucket
    server: int
    size: int
    update: float


def parameter_server_job(replica: Replica, cluster: Cluster, strategy: Strategy) -> Job:
    """Return the job of workers around servers."""
    servers = len(cluster.servers)
    if servers != strategy.servers:
        raise InputError(
            f"strategy: servers={strategy.servers}, but the cluster has {servers} servers: "
            + (f"servers={servers} fits" if servers else "give it some")
        )
    plans, device = plans_of(replica, cluster, strategy, np.zeros(strategy.data, dtype=np.int64))
    plan = plans[0]
    books = Books(Codebook(), Codebook(), Codebook())
    shares = _shares(plan, strategy)
    programs = [_worker(plan, books, cluster, shares) for plan in plans]
    total = sum(share.size for share in shares)
    of_server: list[list[_Share]] = [[] for _ in range(servers)]
    for share in shares:
        of_server[share.server].append(share)
    programs += [_server(plan, books, shares, total) for shares in of_server]
    lanes, roles = books.lanes.texts, books.roles.texts
    communicators, table = _communicators(cluster, roles)
    names = cluster.workers + cluster.servers
    speed = np.array([cluster.node(name).speed for name in names])
    batch = replica.examples
    steps = strategy.data * strategy.microbatches * strategy.iterations
    return Job(
        names=books.names.texts,
        lanes=lanes,
        policies=tuple("fifo" if lane == "update" else "in order" for lane in lanes),
        roles=roles,
        programs=tuple(programs),
        program=np.append(device, range(len(plans), len(programs))).astype(np.int32),
        speed=speed,
        communicators=communicators,
        communicator=table,
        labels=names,
        examples=None if batch is None else batch * steps,
        provenance={
            "strategy": str(strategy),
            "iterations": strategy.iterations,
            "graph": dict(replica.graph.provenance),
        },
    )


def _shares(plan: Plan, strategy: Strategy) -> list[_Share]:
    """Return every server's part of every bucket; their bytes differ by at most one."""
    rows = plan.backward_rows(plan.parts[0])
    buckets = buckets_of(rows, plan.gradients, strategy.first_bucket, strategy.bucket, "data")
    if not buckets:
        raise InputError(
            "strategy: ps, but the graph has no gradients to push: storages that a backward node "
            "allocates and that outlive the step"
        )
    optimizer = sum(plan.work.duration[row] for row in plan.layers.optimizer_rows)
    total = sum(bucket.size for bucket in buckets)
    shares, dealt = [], 0
    for number, bucket in enumerate(buckets):
        size, more = divmod(bucket.size, strategy.servers)
        for server in range(strategy.servers):
            # The servers take turns at the bytes that are left over.
            own_size = size + ((server - dealt) % strategy.servers < more)
            if own_size:
                shares.append(
                    _Share(number, bucket, server, own_size, optimizer * own_size / total)
                )
        dealt += more
    return shares


class _Pushes:
    """Writes pushes after the last gradient of every bucket."""

    def __init__(self, rows: RowWriter, shares: list[_Share], *, lets_go: bool) -> None:
        self._rows, self._lets_go = rows, lets_go
        self._closed_by: dict[int, list[_Share]] = {}
        for share in shares:
            self._closed_by.setdefault(share.bucket.rows[-1], []).append(share)
        self.freed: dict[int, int] = {}

    def after(self, row: int) -> None:
        for share in self._closed_by.get(row, ()):
            there: Gathered = {}
            for gradient in share.bucket.rows:
                merge(there, self._rows.ready[gradient])
            lane = f"to server {share.server}"
            name, anchors = f"push {share.number}", row_anchors(there, lane)
            push = self._rows.writer.communicate(name, lane, 0.0, anchors, "send", share.size, lane)
            if self._lets_go:
                self.freed |= dict.fromkeys(share.bucket.rows, push)


def _worker(plan: Plan, books: Books, cluster: Cluster, shares: list[_Share]) -> Program:
    strategy = plan.strategy
    stage = Stage(plan, plan.parts[0], Costs(cluster), books)
    pulls = {(_pull_lane(s), last_on(_pull_lane(s))): 0 for s in range(strategy.servers)}
    first, forward = forward_block(stage, pulls), forward_block(stage)
    alone = strategy.microbatches == 1  # nothing is added up: gradients are there until pushed
    (usual,) = backward_blocks(stage, forward, None, stay=False)
    (last,) = backward_blocks(
        stage, forward, lambda rows: _Pushes(rows, shares, lets_go=alone), stay=False
    )
    pull = books.writer()
    for share in shares:
        lane = _pull_lane(share.server)
        pull.communicate(f"pull {share.number}", lane, 0.0, (), "receive", share.size, lane)
    pulled = pull.block()
    passes = strategy.microbatches * (len(forward.block) + len(last))
    check_length("iterations", strategy.iterations, passes + len(pulled))
    program = ProgramOfBlocks()
    for _ in range(strategy.iterations):
        for number in range(strategy.microbatches):
            begun = program.place(forward.block if number else first.block, number)
            final = number == strategy.microbatches - 1
            program.place(last if final else usual, number, {FORWARD: begun})
        program.place(pulled)
    held = {what: size for what, size in plan.resident.items() if what != "optimizer"}
    gradients = 0 if alone else int(plan.gradients.sum())
    return program.program(whole_bytes({**held, "gradients": held.get("gradients", 0) + gradients}))


def _server(plan: Plan, books: Books, own: list[_Share], total: int) -> Program:
    """Return the program of a server; its messages keep no lane busy, but share its ports."""
    strategy = plan.strategy
    writer = ProgramWriter(books.names, books.lanes, books.roles)
    everyone = list(range(strategy.data))
    check_length("iterations", strategy.iterations, 3 * len(own) * strategy.data)
    together = [[worker] for worker in everyone] if strategy.asynchronous else [everyone]
    for _ in range(strategy.iterations):
        for workers in together:
            for share in own:
                _serve(writer, share, workers)
    size = sum(share.size for share in own)
    held = {"parameters": plan.parameters, "optimizer": plan.resident.get("optimizer", 0.0)}
    return writer.program(whole_bytes({what: of * size / total for what, of in held.items()}))


def _serve(writer: ProgramWriter, share: _Share, workers: list[int]) -> None:
    size = share.size

    def message(name: str, kind: str, role: str, after: Sequence[int] = ()) -> int:
        name = f"{name} {share.number}"
        return writer.add(
            name, None, 0.0, after, step="communication", kind=kind, role=role, size=size
        )

    came = [message("push", "receive", f"from worker {worker}") for worker in workers]
    update = writer.add(f"update {share.number}", "update", share.update, came, step="optimizer")
    writer.hold(size, update, update)  # gradients are added up as they come
    for worker in workers:
        message("pull", "send", f"to worker {worker}", [update])


def _communicators(
    cluster: Cluster, roles: tuple[str, ...]
) -> tuple[Communicators, np.ndarray[tuple[int, int], np.dtype[np.int32]]]:
    """Return pairs (worker, server) and (server, worker), and which one each rank has by role."""
    workers, servers = cluster.workers, cluster.servers
    network = Stations(cluster)
    pairs: list[tuple[int, int]] = []
    table = np.full((len(workers) + len(servers), len(roles)), -1, dtype=np.int32)
    column = {role: number for number, role in enumerate(roles)}
    for w, worker in enumerate(workers):
        for s, server in enumerate(servers):
            ranks = (w, len(workers) + s)
            push = network.connect(worker, server).number
            pull = network.connect(server, worker).number
            pairs += [ranks, ranks[::-1]]
            for rank, role, communicator in (
                (ranks[0], f"to server {s}", push),
                (ranks[0], _pull_lane(s), pull),
                (ranks[1], f"from worker {w}", push),
                (ranks[1], f"to worker {w}", pull),
            ):
                if role in column:  # a server that has no parameters gets no messages
                    table[rank, column[role]] = communicator
    return write_communicators(pairs, network), table


def _pull_lane(server: int) -> str:
    return f"from server {server}"
