"""Every key of the cluster file in an emulated job: its time by hand, or a refusal by name.

Links have 1 MB/s and 10 ms unless a key says otherwise; s is the 100 ms that 100 kB take there, l
the latency. The real rank is 0 of 4. What is asked for at one time is asked at 0, each by a group
of its own (or message by message), and the times are those at which it is done.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from paracosm.cluster.fields import LINK_FIELDS
from paracosm.emulation.check import check_emulation
from paracosm.emulation.communication import communication_of
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.peers import peers_of
from paracosm.emulation.ports import Ports
from paracosm.errors import InputError
from paracosm.validation import validated

SIZE = 100_000
ALL = (0, 1, 2, 3)
Ask = tuple[str, tuple[int, ...], int]
"""Kind, members, the other end."""

PAIR: Ask = ("all_reduce", (0, 1), -1)
OTHER_PAIR: Ask = ("all_reduce", (0, 2), -1)
SEND: Ask = ("send", ALL, 1)
SEND_2: Ask = ("send", ALL, 2)
SEND_3: Ask = ("send", ALL, 3)
RECV: Ask = ("recv", ALL, 1)

BASE: dict[str, Any] = {
    "topology": "switch",
    "workers": 4,
    "links": {"default": {"bandwidth": "1MB/s", "latency": "10ms"}},
}
SLOW_1 = {"overrides": [{"between": ["worker0", "worker1"], "bandwidth": "250kB/s"}]}
FAST_1 = {"overrides": [{"between": ["worker0", "worker1"], "bandwidth": "4MB/s"}]}
OUTER = {"between_groups": {"bandwidth": "500kB/s", "latency": "20ms"}}


def cluster(**changes: Any) -> dict[str, Any]:
    """Return the base with values of its default link, or other keys of the file, replaced."""
    mapping = deepcopy(BASE)
    for key, value in changes.items():
        if key in LINK_FIELDS:
            mapping["links"]["default"][key] = value
        elif key == "links":
            mapping["links"] |= value
        else:
            mapping[key] = value
    return mapping


def job(mapping: dict[str, Any] | None = None, **given: Any) -> EmulateConfig:
    links = given if mapping is None else {"cluster": mapping, **given}
    return validated(
        EmulateConfig, {"script": "module:train", "algorithm": "ring", **links}, "here"
    )


def times(config: EmulateConfig, *asked: Ask) -> list[float]:
    """Return when each of what rank 0 asks for at one time is done."""
    communication, ports = communication_of(config), Ports(config.shared)
    spans = []
    for kind, members, peer in asked:
        cost = communication.cost(kind, members, SIZE, 0, peer)
        spans.append(ports.ask(members, (kind, members, peer), 1, 0.0, 0.0, cost))
    return [span.done for span in spans]


# An all-reduce of two is two exchanges of 50 kB: 2 (s / 2 + l) = 120 ms.
ALONE = {
    "default": (cluster(), PAIR, 0.12),
    "message": (cluster(), SEND, 0.11),  # s + l
    "bandwidth": (cluster(bandwidth="2MB/s"), PAIR, 2 * (0.025 + 0.01)),
    "bandwidth, message": (cluster(bandwidth="2MB/s"), SEND, 0.05 + 0.01),
    "latency": (cluster(latency="20ms"), PAIR, 2 * (0.05 + 0.02)),
    "latency, message": (cluster(latency="20ms"), RECV, 0.1 + 0.02),
    "overhead": (cluster(overhead="5ms"), PAIR, 2 * (0.005 + 0.05 + 0.01)),
    "overhead, message": (cluster(overhead="5ms"), SEND, 0.005 + 0.1 + 0.01),
    # Each of the two has one message after the other on its port, then the latency.
    "half duplex": (cluster(duplex="half"), PAIR, 2 * (0.05 + 0.05 + 0.01)),
    # The latency holds the port: one message after the other, each of s / 2 + l.
    "half, held": (cluster(duplex="half", pipelined=False), PAIR, 2 * (0.06 + 0.06)),
    "held": (cluster(pipelined=False), PAIR, 0.12),
    "serial": (cluster(sharing="serial"), PAIR, 0.12),
    "override": (cluster(links=SLOW_1), PAIR, 2 * (0.2 + 0.01)),
    "override, message": (cluster(links=SLOW_1), SEND, 0.4 + 0.01),
    "override of others": (cluster(links=SLOW_1), SEND_2, 0.11),
    "within": (cluster(topology="hierarchical", group_size=2, cards=2, links=OUTER), PAIR, 0.12),
    "between": (
        *(cluster(topology="hierarchical", group_size=2, cards=2, links=OUTER), OTHER_PAIR),
        2 * (0.1 + 0.02),  # 50 kB at 500 kB/s
    ),
    "between, message": (
        *(cluster(topology="hierarchical", group_size=2, cards=2, links=OUTER), SEND_3),
        0.2 + 0.02,
    ),
    # Ranks 1 and 2 are neighbours in a ring of four: 6 steps of s / 4 + l.
    "ring": (cluster(topology="ring"), ("all_reduce", ALL, -1), 6 * (0.025 + 0.01)),
    # Nothing to share: overhead and latency, twice.
    "unlimited": (cluster(bandwidth="inf", overhead="5ms"), PAIR, 2 * (0.005 + 0.01)),
}


@pytest.mark.parametrize("name", ALONE)
def test_alone(name: str) -> None:
    mapping, ask, seconds = ALONE[name]
    assert times(job(mapping), ask) == pytest.approx([seconds])


FLAT = {name for name, (mapping, *_) in ALONE.items() if mapping["links"].keys() == {"default"}}


@pytest.mark.parametrize("name", sorted(FLAT - {"ring"}))
def test_alone_by_flags(name: str) -> None:
    mapping, ask, seconds = ALONE[name]
    config = job(workers=4, **mapping["links"]["default"])
    assert times(config, ask) == pytest.approx([seconds])


SERIAL = {"sharing": "serial"}
PACKETS = {"sharing": "packets(40kB)"}
HELD = {"pipelined": False}
HALF = {"duplex": "half"}
MACHINES = {"topology": "hierarchical", "group_size": 2, "cards": 2, "links": OUTER}

TOGETHER: dict[str, tuple[dict[str, Any], tuple[Ask, ...], list[float]]] = {
    # Latencies of 20 ms pass first and hold nothing; then two times 100 ms share the link.
    "fair, two groups": (cluster(), (PAIR, OTHER_PAIR), [0.22, 0.22]),
    "serial, two groups": (cluster(**SERIAL), (PAIR, OTHER_PAIR), [0.12, 0.22]),
    # The 20 ms hold the link too: two times 120 ms.
    "fair, held, two groups": (cluster(**HELD), (PAIR, OTHER_PAIR), [0.24, 0.24]),
    "serial, held, two groups": (cluster(**SERIAL, **HELD), (PAIR, OTHER_PAIR), [0.12, 0.24]),
    # Overheads of 10 ms are shared as bytes are: two times 110 ms after the latencies.
    "fair, overhead": (cluster(overhead="5ms"), (PAIR, OTHER_PAIR), [0.24, 0.24]),
    "serial, overhead": (cluster(overhead="5ms", **SERIAL), (PAIR, OTHER_PAIR), [0.13, 0.24]),
    # Two sends share "out" for 2s; each has arrived a latency later.
    "fair, two sends": (cluster(), (SEND, SEND_2), [0.21, 0.21]),
    "serial, two sends": (cluster(**SERIAL), (SEND, SEND_2), [0.11, 0.21]),
    "fair, held, two sends": (cluster(**HELD), (SEND, SEND_2), [0.22, 0.22]),
    "serial, held, two sends": (cluster(**SERIAL, **HELD), (SEND, SEND_2), [0.11, 0.22]),
    # To one receiver one after the other; the second follows on the bytes, not on the latency.
    "fair, one receiver": (cluster(), (SEND, SEND), [0.11, 0.21]),
    "fair, held, one receiver": (cluster(**HELD), (SEND, SEND), [0.11, 0.22]),
    # Both ways at one time, unless the port does one at a time.
    "fair, both ways": (cluster(), (SEND, RECV), [0.11, 0.11]),
    "serial, both ways": (cluster(**SERIAL), (SEND, RECV), [0.11, 0.11]),
    "fair, half, both ways": (cluster(**HALF), (SEND, RECV), [0.21, 0.21]),
    "serial, half, both ways": (cluster(**HALF, **SERIAL), (SEND, RECV), [0.11, 0.21]),
    # 250 kB/s of the 1 MB/s are those of the slow link, for 400 ms; the others have 750 kB/s.
    "fair, override": (cluster(links=SLOW_1), (SEND, SEND_2), [0.41, 0.1 / 0.75 + 0.01]),
    "serial, override": (cluster(links=SLOW_1, **SERIAL), (SEND, SEND_2), [0.41, 0.51]),
    # The port has the 4 MB/s of its fastest link: 1 MB/s leave 3 MB/s of them, for 100 kB.
    "fair, fast override": (
        *(cluster(links=FAST_1), (SEND, SEND_2)),
        [0.1 / 3 + 0.01, 0.1 + 0.01],
    ),
    # Overheads of links without limit are not shared: 5 ms and the latency.
    "fair, unlimited": (
        *(cluster(bandwidth="inf", overhead="5ms"), (SEND, SEND_2)),
        [0.015, 0.015],
    ),
    "serial, unlimited": (
        *(cluster(bandwidth="inf", overhead="5ms", **SERIAL), (SEND, SEND_2)),
        [0.015, 0.02],
    ),
    # What leaves the machine has a port of its own.
    "fair, machines": (cluster(**MACHINES), (SEND, SEND_2), [0.11, 0.22]),
    "serial, machines": (cluster(**MACHINES, **SERIAL), (SEND, SEND_2), [0.11, 0.22]),
    "fair, out of the machine": (cluster(**MACHINES), (SEND_2, SEND_3), [0.42, 0.42]),
    "serial, out of the machine": (
        *(cluster(**MACHINES, **SERIAL), (SEND_2, SEND_3)),
        [0.22, 0.42],
    ),
    # A collective needs both directions. 20 ms latency; until then the send has all of "out" (80 ms
    # are left); half each until 180 ms, and the collective has 20 ms left then.
    # 40 kB of each in turn, then the last 20: 180 and 200 ms; another stream that comes later, too.
    "packets, two sends": (cluster(**PACKETS), (SEND, SEND_2), [0.19, 0.21]),
    "packets, one receiver": (cluster(**PACKETS), (SEND, SEND), [0.11, 0.21]),
    "packets, both ways": (cluster(**PACKETS), (SEND, RECV), [0.11, 0.11]),
    "packets, two groups": (cluster(**PACKETS), (PAIR, OTHER_PAIR), [0.2, 0.22]),
    # As fair: the slow link is the limit of the one, the port that of the other.
    "packets, override": (
        *(cluster(links=SLOW_1, **PACKETS), (SEND, SEND_2)),
        [0.41, 0.1 / 0.75 + 0.01],
    ),
    "packets, out of the machine": (
        *(cluster(**MACHINES, **PACKETS), (SEND_2, SEND_3)),
        # 500 kB/s: 40 kB take 80 ms
        [0.38, 0.42],
    ),
    "fair, a send and a group": (cluster(), (SEND, OTHER_PAIR), [0.18 + 0.01, 0.2]),
    "serial, a send and a group": (cluster(**SERIAL), (SEND, OTHER_PAIR), [0.11, 0.2]),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_together(name: str) -> None:
    mapping, asked, seconds = TOGETHER[name]
    assert times(job(mapping), *asked) == pytest.approx(seconds)


@pytest.mark.parametrize("mapping", [cluster(), cluster(**SERIAL)], ids=["fair", "serial"])
def test_flags_share_as_a_file_does(mapping: dict[str, Any]) -> None:
    flags = job(workers=4, **mapping["links"]["default"])
    asked = (PAIR, OTHER_PAIR, SEND, SEND_2, RECV)
    assert times(flags, *asked) == times(job(mapping), *asked)


def test_a_slower_node_computes_so_much_longer() -> None:
    """Worker 2 has speed 0.4: 100 ms of the real rank's computing take it 250 ms."""
    slow = cluster(workers=[{"count": 2}, {"count": 1, "speed": 0.4}, {"count": 1}])
    peers = peers_of(job(slow), 0, 0)
    peers.resumed(1.0)
    assert peers.last_entry((0, 2), 1.1) == pytest.approx(1.25)
    assert peers.last_entry((0, 1), 1.1) == pytest.approx(1.1)
    changed = peers_of(job(slow, what_if="worker 2: compute 2x faster"), 0, 0)
    changed.resumed(1.0)
    assert changed.last_entry((0, 2), 1.1) == pytest.approx(1.125)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cluster": cluster(servers=1)}, "servers: an emulated job has ranks only"),
        ({"cluster": cluster(servers=1, placement="workers")}, "servers: an emulated job has"),
        (
            {"cluster": cluster(workers=[{"count": 4, "speed": 2}]), "live": True},
            "speed: worker 0 is real",
        ),
        ({"cluster": cluster(**HALF), "mode": "wire"}, "duplex: half has no model in mode wire"),
        (
            {"cluster": cluster(), "sharing": "serial"},
            "sharing: has no effect, leave it out: the cluster file defines it",
        ),
        (
            {"cluster": cluster(), "overhead": "1ms"},
            "overhead: has no effect, leave it out: the cluster file defines it",
        ),
        (
            {"workers": 4, "sharing": "serial"},
            "sharing: has no effect, leave it out: there are no links",
        ),
        (
            {"workers": 4, "duplex": "half"},
            "duplex: has no effect, leave it out: there are no links",
        ),
        (
            {"workers": 4, "pipelined": False},
            "pipelined: has no effect, leave it out: there are no links",
        ),
        ({"workers": 4, "world_size": 4}, "workers and world_size are the same"),
        ({"workers": 10**9}, "1000000"),
        ({"workers": 2_000_000}, "less than or equal to 1000000"),
        ({"workers": [2, 4]}, "a list is a sweep of runs"),
        ({"cluster": cluster(links={"overrides": 10**9})}, "overrides"),
    ],
)
def test_what_has_no_model_is_refused_by_name(given: dict[str, Any], message: str) -> None:
    if given.get("mode") == "wire":
        given = given | {"algorithm": None}
    fields = {"script": "module:train", "algorithm": "ring", **given}
    with pytest.raises(InputError, match=message) as caught:
        check(fields)
    assert "\n" not in str(caught.value)


def test_packets_have_no_model_in_the_shim_of_nccl() -> None:
    with pytest.raises(InputError, match=r"sharing packets\(40kB\): with nccl links are fair or"):
        job(cluster(**PACKETS), nccl=True).resolve_cluster()


def check(fields: dict[str, Any]) -> None:
    given = {name: value for name, value in fields.items() if value is not None}
    if "cluster" not in given or given.get("mode") == "wire":
        given.pop("algorithm", None)
    check_emulation(validated(EmulateConfig, given, "here"))
