"""Jobs whose workers compute with different devices, each op with its own duration there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from four_ops import MB, SLOW, layers, makespan, replayed, spans, two_layers

from paracosm.cluster.cluster import Cluster, Node, assemble, switch
from paracosm.cluster.description import cluster_from_mapping
from paracosm.cluster.link import Link, Switch
from paracosm.errors import InputError
from paracosm.jobs.strategies import Replica, parse_strategy

FREE = Link()


def mixed(devices: str, link: Link = FREE) -> Cluster:
    """Return workers of the device "new" for every n, of "old" for every o."""
    names = {"n": "new", "o": "old"}
    return assemble([Node("", device=names[device]) for device in devices], [], Switch(link))


def replica() -> Replica:
    """Two layers: 1 s forward and 2 s backward each; on "new" nothing but the first is faster."""
    slow = two_layers(gradient=4 * MB)
    return replace(slow, durations_by_device={"new": np.array([0.5, 1.0, 2.0, 1.0])})


def test_each_rank_takes_the_time_of_its_device() -> None:
    schedule = replayed(replica(), "dp=2, bucket=1GB, first_bucket=1GB", mixed("on", SLOW))
    assert [end for *_, end in spans(schedule, 0, "compute")] == [1, 2, 4, 6]
    assert [end for *_, end in spans(schedule, 1, "compute")] == [0.5, 1.5, 3.5, 4.5]
    assert schedule.makespan == 6 + 8  # 8 MB in two exchanges of 4 MB


def test_speeds_of_nodes_count_besides() -> None:
    workers = [{"count": 1, "device": "new", "speed": 0.5}, {"count": 1, "device": "new"}]
    cluster = cluster_from_mapping({"topology": "switch", "workers": workers})
    assert makespan(replica(), "dp=2", cluster) == 9.0
    assert makespan(replica(), "dp=2", mixed("nn")) == 4.5


@pytest.mark.parametrize(("devices", "cut"), [("on", (1, 3)), ("no", (3, 1)), ("oo", (2, 2))])
def test_stages_are_cut_by_the_devices_that_have_them(devices: str, cut: tuple[int, int]) -> None:
    """Four equal layers; a new device has three in the time that an old one has one."""
    slow = layers(4)
    cluster = mixed(devices)
    both = replace(slow, durations_by_device={"new": slow.duration / 3})
    schedule = replayed(both, "pp=2", cluster)
    assert tuple(len(spans(schedule, rank, "compute")) // 2 for rank in (0, 1)) == cut


def test_parameter_servers_wait_for_the_slower_worker() -> None:
    cluster = mixed("on")
    workers = [Node("", device=node.device) for node in cluster.nodes]
    servers = assemble(workers, [Node("")], Switch(FREE))
    assert makespan(replica(), "ps", servers) == 6.0
    assert makespan(replica(), "ps", assemble([workers[1]] * 2, [Node("")], Switch(FREE))) == 4.5


def test_a_device_that_nothing_is_known_of_is_as_fast_as_the_replica_s() -> None:
    assert makespan(replica(), "dp=2", mixed("oo")) == makespan(replica(), "dp=2", switch(2)) == 6.0


def test_durations_elsewhere_are_checked() -> None:
    with pytest.raises(InputError, match="3 durations for 4 nodes"):
        replace(replica(), durations_by_device={"new": np.ones(3)})


def test_shares_of_the_batch_by_device() -> None:
    """The old device has 6 s a micro-batch, the new one 4.5: 3 and 4 of them take 18 s."""
    schedule = replayed(replica(), "dp=2, shares=3+4", mixed("on"))
    assert schedule.makespan == 18.0
    assert schedule.job.examples == 7 * 4
    assert makespan(replica(), "dp=2, microbatches=4", mixed("on")) == 24.0
    text = "dp=2, shares=3+4"
    assert str(parse_strategy(text)) == text


def test_shares_of_replicas_of_pipelines() -> None:
    """Ranks 0 and 2 are the first replica; without messages two stages add a bubble of 3 s."""
    cluster = switch(4, link=FREE)
    schedule = replayed(two_layers(), "dp=2, pp=2, shares=2+5", cluster)
    assert schedule.makespan == 5 * 3 + 3
    assert len(spans(schedule, 2, "compute")) == 2 * 2
    assert len(spans(schedule, 3, "compute")) == 2 * 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp=3, shares=1+2", "are of 2 replicas, but dp=3"),
        ("dp=2, shares=0+2", "each replica has 1 micro-batch or more"),
        ("dp=2, shares=2+2", "are equal: write microbatches=2"),
        ("dp=2, shares=1+2, microbatches=2", "leave out microbatches"),
        ("dp=2, shares=1+2, zero=3", "replicas that meet in every micro-batch"),
        ("dp=2, pp=2, shares=2+3, interleaved", "needs numbers that pp=2 divides"),
        ("dp=2, shares=1+a", "shares"),
        ("dp=2, shares=1+1.5", "must be a whole number, not 1.5"),
    ],
)
def test_shares_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_strategy(text)
