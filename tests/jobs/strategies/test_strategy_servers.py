"""Parameter servers by hand: pushes and pulls that share the ports of their nodes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from four_ops import MB, SLOW, bytes_of, layers, replayed, spans, two_layers

from paracosm.cluster.cluster import Cluster, hierarchical, ring, star, switch
from paracosm.cluster.link import Link, Sharing
from paracosm.errors import InputError
from paracosm.jobs.strategies import Replica
from paracosm.simulation.memory import peak_memory_of_ranks


def makespan(replica: Replica, text: str, cluster: Cluster) -> float:
    return replayed(replica, text, cluster).makespan


def test_one_worker_pushes_waits_for_the_update_and_pulls() -> None:
    """Pushes of 4 s at 4 and 8, updates of 0.5 s at 8 and 12, pulls at 8.5 and 12.5."""
    schedule = replayed(two_layers(update=0.5), "ps", star(1, 1, SLOW))
    assert spans(schedule, 0, "to server 0") == [("push 0", 4, 8), ("push 1", 8, 12)]
    assert spans(schedule, 1, "update") == [("update 0", 8, 8.5), ("update 1", 12, 12.5)]
    assert spans(schedule, 0, "from server 0")[-1][2] == 16.5
    assert schedule.job.labels == ("worker0", "server0")


def test_workers_share_the_port_of_the_server() -> None:
    """One layer of 4 MB, 3 workers: pushes at a third of the speed (3 to 15), pulls likewise."""
    schedule = replayed(layers(1, update=1.0), "ps", star(3, 1, SLOW))
    assert spans(schedule, 2, "to server 0") == [("push 0", 3, 15)]
    assert spans(schedule, 3, "update") == [("update 0", 15, 16)]
    assert schedule.makespan == pytest.approx(28, abs=1e-9)


def test_two_servers_have_two_ports_and_share_the_parameters() -> None:
    """Two layers of 4 MB on 2 workers, half of each on either server.

    Layer 1 is pushed at 4, half to each: 2 MB on half of a port take 4 s. Layer 0 follows at 8, and
    while it comes to the servers, layer 1 comes back.
    """
    schedule = replayed(two_layers(), "ps, servers=2", star(2, 2, SLOW))
    for server in (0, 1):
        pushes = spans(schedule, 0, f"to server {server}")
        assert pushes == [("push 0", 4, 8), ("push 1", 8, 12)]
        pulls = spans(schedule, 1, f"from server {server}")
        assert [end for _, _, end in pulls] == [12, 16]
    assert schedule.makespan == 16


@pytest.mark.parametrize("servers", [1, 3, 16])
def test_servers_have_as_many_bytes_as_each_other_or_one_more(servers: int) -> None:
    """Three buckets of 1000003, 1000003 and 1000001 bytes, on more servers than there are."""
    replica = layers(3, gradient=1000003)
    sizes = replica.graph.storages.size
    sizes[np.flatnonzero(sizes == 1000003)[-1]] -= 2
    text = f"ps, servers={servers}, bucket=1B, first_bucket=1B"
    job = replayed(replica, text, star(2, servers, SLOW)).job
    received = [sum(bytes_of(job, 2 + s, "receive").values()) for s in range(servers)]
    whole = 2 * 3000007  # of two workers
    assert sum(received) == whole
    assert max(received) - min(received) <= 2
    assert sum(bytes_of(job, 0, "send").values()) == whole // 2
    assert bytes_of(job, 0, "receive").keys() == {"pull 0", "pull 1", "pull 2"}


def test_a_bucket_of_fewer_bytes_than_servers_is_pushed_to_some() -> None:
    job = replayed(layers(1, gradient=2), "ps, servers=3", star(1, 3, SLOW)).job
    assert [sum(bytes_of(job, 1 + s, "receive").values()) for s in range(3)] == [1, 1, 0]


def test_incast_is_as_long_as_all_bytes_take_through_the_ports_of_the_servers() -> None:
    """8 workers push 12 MB to 3 servers of 1 MB/s: 32 MB through each, and back."""
    assert makespan(layers(3), "ps, servers=3, bucket=1TB, first_bucket=1TB", star(8, 3, SLOW)) == (
        pytest.approx(9 + 2 * 32, abs=1e-6)
    )


@pytest.mark.parametrize("text", ["ps", "ps-async"])
def test_more_iterations_than_can_be_written_down_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"iterations=1000000000 times .* fits"):
        replayed(layers(1), f"{text}, iterations=1000000000", star(2, 1, SLOW))


def test_a_slow_link_of_a_pair_is_one_more_station() -> None:
    """Worker 1 reaches the server at half of the speed; alone it would be done at 3 + 8."""
    cluster = star(2, 1, Link(bandwidth=4.0 * MB))
    slow = (("worker1", "server0", Link(bandwidth=0.5 * MB)),)
    cluster = dataclasses.replace(cluster, overrides=slow)
    schedule = replayed(layers(1), "ps", cluster)
    assert spans(schedule, 1, "to server 0") == [("push 0", 3, 11)]
    # The other has the rest of the port: 3.5 MB/s.
    assert spans(schedule, 0, "to server 0")[0][2] == pytest.approx(3 + 4 / 3.5, abs=1e-8)


def test_what_crosses_machines_shares_the_way_out_of_the_server_s_machine() -> None:
    """Worker 0 is beside the server and has 4 MB/s; the others share 1 MB/s into the machine."""
    inner = Link(bandwidth=4.0 * MB)
    cluster = hierarchical(3, 1, inner, SLOW, servers=1)
    schedule = replayed(layers(1), "ps", cluster)
    assert [spans(schedule, rank, "to server 0")[0][2] for rank in range(3)] == [4, 11, 11]
    assert schedule.makespan == 11 + 8


def test_half_duplex_ports_push_and_pull_in_turns() -> None:
    """Two layers, one worker: the pull of layer 1 (from 8 on) shares the port with push 0."""
    full = makespan(two_layers(), "ps", star(1, 1, SLOW))
    half = makespan(two_layers(), "ps", star(1, 1, dataclasses.replace(SLOW, duplex="half")))
    assert full == 16  # pushed at 8 and 12, pulled at 12 and 16
    assert half == 20  # four messages of 4 s on one port, from 4 on


def test_latency_and_overhead_of_one_message_each_way() -> None:
    link = Link(bandwidth=1.0 * MB, latency=0.5, overhead=0.25)
    assert makespan(layers(1), "ps", star(1, 1, link)) == 3 + 2 * (0.75 + 4)


@pytest.mark.parametrize("sharing", ["fair", "serial"])
def test_latency_holds_no_port_unless_it_is_said_to(sharing: Sharing) -> None:
    """Gradients of 4 MB at 4 and 6: pushed from 4 to 8 and from 8 to 12, there 1 s later.

    The answers begin when those are there, at 9 and 13, and take 4 s and 1 s each.
    """
    link = Link(bandwidth=1.0 * MB, latency=1.0, sharing=sharing)
    pipelined = replayed(two_layers(), "ps", star(1, 1, link))
    assert spans(pipelined, 0, "to server 0") == [("push 0", 4, 8), ("push 1", 8, 12)]
    assert [end for _, _, end in spans(pipelined, 0, "from server 0")] == [14, 18]
    # Each keeps the ports for 5 s: pushed at 9 and 14, answered at 14 and 19.
    held = replayed(two_layers(), "ps", star(1, 1, dataclasses.replace(link, pipelined=False)))
    assert spans(held, 0, "to server 0") == [("push 0", 4, 9), ("push 1", 9, 14)]
    assert [end for _, _, end in spans(held, 0, "from server 0")] == [14, 19]


def test_messages_of_one_connection_follow_each_other() -> None:
    """Pushes of 4 MB at 4 to 8 and of 1 MB to 9, while the answer of 4 MB is under way to 12."""
    replica = layers(2)
    sizes = replica.graph.storages.size
    sizes[np.flatnonzero(sizes == 4 * MB)[-1]] = 1 * MB
    schedule = replayed(replica, "ps, bucket=1B, first_bucket=1B", star(1, 1, SLOW))
    assert [end for _, _, end in spans(schedule, 0, "to server 0")] == [8, 9]
    assert [end for _, _, end in spans(schedule, 0, "from server 0")] == [12, 13]


def test_serial_messages_have_the_port_of_the_server_in_turns() -> None:
    """One layer of 4 MB, 3 workers: pushes at 7, 11, 15; answers from 15 on, again in turns."""
    serial = dataclasses.replace(SLOW, sharing="serial")
    schedule = replayed(layers(1), "ps", star(3, 1, serial))
    assert [spans(schedule, rank, "to server 0")[0][2] for rank in range(3)] == [7, 11, 15]
    assert [spans(schedule, rank, "from server 0")[0][2] for rank in range(3)] == [19, 23, 27]


def test_a_server_on_the_node_of_a_worker_is_reached_at_no_cost() -> None:
    cluster = star(2, 1, SLOW, placement="workers")
    schedule = replayed(layers(1), "ps", cluster)
    assert spans(schedule, 0, "to server 0") == [("push 0", 3, 3)]
    assert spans(schedule, 1, "to server 0") == [("push 0", 3, 7)]
    assert schedule.makespan == 11


def test_asynchronous_workers_do_not_wait_for_a_straggler() -> None:
    """One layer, 3 s; on a free network a worker does a step in 3 s, a straggler in 12."""
    cluster = star(2, 1, Link(), speeds=[1.0, 0.25])
    together = replayed(layers(1), "ps, iterations=2", cluster)
    alone = replayed(layers(1), "ps-async, iterations=2", cluster)
    assert [end for _, _, end in spans(together, 0, "from server 0")] == [12, 24]
    assert [end for _, _, end in spans(alone, 0, "from server 0")] == [3, 6]
    assert [end for _, _, end in spans(alone, 1, "from server 0")] == [12, 24]
    assert alone.job.examples == 4 * 2 * 2


def test_updates_of_asynchronous_workers_queue_at_the_server() -> None:
    """Both push at 3 at no cost; updates of 2 s one after the other, first worker 0's."""
    schedule = replayed(layers(1, update=2.0), "ps-async", star(2, 1, Link()))
    assert spans(schedule, 2, "update") == [("update 0", 3, 5), ("update 0", 5, 7)]
    assert [spans(schedule, rank, "from server 0")[0][2] for rank in (0, 1)] == [5, 7]


def test_a_server_holds_its_share_of_parameters_and_state() -> None:
    job = replayed(two_layers(), "ps, servers=2", star(1, 2, SLOW)).job
    assert [program.resident / MB for program in job.programs] == [8, 12, 12]


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [
        # Parameters 8; activations of the first layer 3, gradients of both 8 until they are pushed.
        ("ps", 8 + 3 + 8),
        ("ps, iterations=5", 8 + 3 + 8),
        ("ps-async, iterations=5", 8 + 3 + 8),
        # Gradients that add up 8, those of a layer 4, the activations of both 6.
        ("ps, microbatches=2, iterations=3", 8 + 8 + 4 + 6),
    ],
)
def test_a_worker_holds_no_more_in_later_iterations(text: str, megabytes: int) -> None:
    schedule = replayed(two_layers(), text, star(2, 1, SLOW))
    peaks = peak_memory_of_ranks(schedule).tolist()
    # The server: parameters, states and one sum of a layer's gradients, of however many workers.
    assert peaks == [megabytes * MB, megabytes * MB, (8 + 16 + 4) * MB]


def test_micro_batches_are_added_up_before_the_push() -> None:
    schedule = replayed(layers(1), "ps, microbatches=3", switch(2, 1, Link()))
    assert [begin for _, begin, _ in spans(schedule, 0, "to server 0")] == [9]


def test_servers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        InputError, match="servers=1, but the cluster has 2 servers: servers=2 fits"
    ):
        replayed(two_layers(), "ps", star(2, 2, SLOW))
    with pytest.raises(InputError, match="servers=1, but the cluster has 0 servers: give it some"):
        replayed(two_layers(), "ps", ring(2, SLOW))
    with pytest.raises(InputError, match="the graph has no gradients to push"):
        replayed(two_layers(gradient=0), "ps", star(2, 1, SLOW))
