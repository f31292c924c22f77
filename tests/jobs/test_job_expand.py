"""Jobs written out in full, by hand: a row for every task of every rank."""

from __future__ import annotations

import numpy as np
import pytest

from paracosm.cluster import Link, star
from paracosm.cluster.link import Sharing
from paracosm.errors import InputError
from paracosm.jobs.expand import expand, first_rows, task_label
from paracosm.jobs.job import Job
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job
from paracosm.network import Stations

PS = 1e-12


def two_stages() -> Job:
    """Ranks 0 and 1 send to rank 2 and 3, which are twice as fast; 0 and 1 reduce, 2 and 3 too.

    Both of the first stage's programs are one, as are those of the second.
    """
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    first = ProgramWriter(names, lanes, roles)
    work = first.add("work", "compute", 100 * PS)
    first.add("out", "send", 7 * PS, [work], kind="send", role="next", size=64)
    first.add("out again", "send", 7 * PS, [work], kind="send", role="next", size=32)
    first.add("reduce", "network", 40 * PS, [work], kind="collective", role="data", size=8)
    first.add("reduce again", "network", 50 * PS, kind="collective", role="data", size=8)
    second = ProgramWriter(names, lanes, roles)
    in_1 = second.add("in", "receive", 9 * PS, kind="receive", role="before", size=64)
    in_2 = second.add("in again", "receive", 9 * PS, kind="receive", role="before", size=32)
    second.add("work", "compute", 100 * PS, [in_1, in_2], priority=3)
    second.add("reduce", "network", 40 * PS, [2], kind="collective", role="data", size=8)
    second.add("note", None, 4.4 * PS, [in_1])
    return write_job(
        [first, second],
        [0, 0, 1, 1],
        write_communicators([(0, 2), (1, 3), (0, 1), (2, 3)]),
        [
            {"next": 0, "data": 2},
            {"next": 1, "data": 2},
            {"before": 0, "data": 3},
            {"before": 1, "data": 3},
        ],
        speed=[1, 1, 2, 2],
        policies={"network": "fifo", "receive": "priority"},
    )


def test_every_column_of_two_stages() -> None:
    job = two_stages()
    tasks = expand(job)
    assert first_rows(job).tolist() == [0, 5, 10, 15, 20]
    # lanes are numbered as they are met: compute, send, network, receive; rank 2 does not send
    assert tasks.resource.tolist() == [
        *[0, 1, 1, 2, 2],
        *[3, 4, 4, 5, 5],
        *[8, 8, 6, 7, -1],
        *[11, 11, 9, 10, -1],
    ]
    assert tasks.policy.tolist() == [0, 0, 1, 0, 0, 1, 0, 1, 2, 0, 1, 2]
    # only work is faster on a faster node
    assert tasks.duration.tolist() == [*[100, 7, 7, 40, 50] * 2, *[9, 9, 50, 40, 2] * 2]
    assert tasks.priority.tolist() == [*[0] * 10, *[0, 0, 3, 0, 0] * 2]
    assert [
        tasks.dependencies[tasks.offsets[row] : tasks.offsets[row + 1]].tolist()
        for row in range(20)
    ] == [
        *[[], [0], [0], [0], []],
        *[[], [5], [5], [5], []],
        *[[], [], [10, 11], [12], [10]],
        *[[], [], [15, 16], [17], [15]],
    ]
    none = [-1] * 3
    assert tasks.meeting.tolist() == [*none, 0, 1, *none, 0, 1, *none, 2, -1, *none, 2, -1]
    assert tasks.awaited.tolist() == [*[-1] * 10, *[1, 2, *none], *[6, 7, *none]]
    assert tasks.route.tolist() == [-1] * 20


@pytest.mark.parametrize(
    ("sharing", "asks"),
    # 50 and 100 kB at 1 MB/s, and 1 ms of overhead, which counts as 1 kB.
    [("fair", [51e3, 101e3]), ("serial", [51e9, 101e9])],
)
def test_messages_over_a_network(sharing: Sharing, asks: list[float]) -> None:
    """Worker 0 is on the server's node; worker 1 sends on a lane, the server on none."""
    link = Link(1e6, latency=0.25, overhead=1e-3, sharing=sharing)
    network = Stations(star(2, 1, link, placement="workers"))
    books = Codebook(), Codebook(), Codebook()
    worker, server = ProgramWriter(*books), ProgramWriter(*books)
    worker.add("push", "send", 0.0, kind="send", role="to server", size=50_000)
    worker.add("pull", "receive", 0.0, kind="receive", role="from server", size=100_000)
    for number in range(2):
        network.connect(f"worker{number}", "server0")
        network.connect("server0", f"worker{number}")
        came = server.add("push", None, 0.0, kind="receive", role=f"from {number}", size=50_000)
        for _ in range(2):
            server.add("pull", None, 0.0, [came], kind="send", role=f"to {number}", size=100_000)
    roles = {"from 0": 0, "to 0": 1, "from 1": 2, "to 1": 3}
    groups = write_communicators([(0, 2), (2, 0), (1, 2), (2, 1)], network)
    of_rank = [{"to server": 0, "from server": 1}, {"to server": 2, "from server": 3}, roles]
    job = write_job([worker, server], [0, 0, 1], groups, of_rank)
    tasks = expand(job)
    assert not job.is_static
    assert tasks.sharing == sharing
    assert tasks.route.tolist() == [-1, -1, 2, -1, -1, -1, -1, -1, 3, 3]
    assert tasks.demand.tolist() == [0, 0, asks[0], 0, 0, 0, 0, 0, asks[1], asks[1]]
    late = 250_000_000_000
    assert tasks.duration.tolist() == [0, 0, 0, late, 0, 0, 0, late, 0, 0]
    # Two lanes of each worker; of the server the connections to either, first in, first out.
    assert tasks.resource.tolist() == [0, 1, 2, 3, -1, 4, 4, -1, 5, 5]
    assert tasks.policy.tolist() == [0, 0, 0, 0, 1, 1]
    assert tasks.bandwidth.tolist() == [1e6] * 4


def test_durations_of_ones_own() -> None:
    tasks = expand(two_stages(), np.arange(20))
    assert tasks.duration.tolist() == list(range(20))
    with pytest.raises(InputError, match="3 durations for the 20 tasks"):
        expand(two_stages(), np.arange(3))


def test_messages_name_a_task_by_its_rank() -> None:
    job = two_stages()
    assert task_label(job, 0) == "rank 0: work (row 0)"
    assert task_label(job, 9) == "rank 1: reduce again (row 4)"
    assert task_label(job, 11) == "rank 2: in again (row 1)"


def test_roles_that_lead_to_one_communicator_count_together() -> None:
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(names, lanes, roles)
    for role in ("data", "all", "data"):
        writer.add(role, None, 0.0, kind="collective", role=role)
    both = {"data": 0, "all": 0}
    job = write_job([writer], [0, 0], write_communicators([(0, 1)]), [both, both])
    assert expand(job).meeting.tolist() == [0, 1, 2, 0, 1, 2]


def test_what_has_no_counterpart_is_left_alone() -> None:
    """Such jobs are refused elsewhere; here they only must not be wrong about others."""
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writer = ProgramWriter(names, lanes, roles)
    writer.add("in", "receive", 0.0, kind="receive", role="before")
    writer.add("reduce", "network", 0.0, kind="collective", role="data")
    job = write_job([writer], [0], write_communicators([(1, 0)]), [{"before": 0}])
    tasks = expand(job)
    assert tasks.awaited.tolist() == [-1, -1]
    assert tasks.meeting.tolist() == [-1, -1]


def test_no_tasks() -> None:
    writer = ProgramWriter(Codebook(), Codebook(), Codebook())
    job = write_job([writer], [0, 0], write_communicators([]), [{}, {}])
    assert len(expand(job)) == 0
    assert expand(job).offsets.tolist() == [0]


def test_a_duration_that_cannot_be() -> None:
    writer = ProgramWriter(Codebook(), Codebook(), Codebook())
    writer.add("work", "compute", float("nan"))
    job = write_job([writer], [0], write_communicators([]), [{}])
    with pytest.raises(InputError, match="work"):
        expand(job)
