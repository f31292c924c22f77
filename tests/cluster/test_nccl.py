"""NCCL's collectives between machines: hand calculations, and laws."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster.cluster import Cluster, hierarchical
from paracosm.cluster.collectives import collective_time, collective_times
from paracosm.cluster.description import cluster_from_mapping
from paracosm.cluster.hardware import find_hardware
from paracosm.cluster.link import Hierarchical, Link
from paracosm.cluster.nccl import LL128, SIMPLE, Nccl, Protocol, SwitchSums
from paracosm.errors import InputError

INNER, OUTER = Link(bandwidth=100e9, latency=3.4e-6), Link(bandwidth=20e9, latency=14e-6)
SUMS = SwitchSums(0.8, 16, 16)
GB = 1e9


def machines(
    count: int,
    of: int = 8,
    cards: int | None = None,
    sums: bool = False,
    protocols: tuple[Protocol, ...] = (SIMPLE,),
) -> Cluster:
    cluster = hierarchical(count * of, of, INNER, OUTER, cards=cards)
    topology = cluster.topology
    assert isinstance(topology, Hierarchical)
    return replace(
        cluster, topology=replace(topology, nccl=Nccl(SUMS if sums else None, protocols, protocols))
    )


def seconds(cluster: Cluster, size: float, kind: str = "all_reduce", how: str = "auto") -> float:
    return collective_time(cluster, range(len(cluster.workers)), kind, size, how)


def test_a_ring_in_a_machine() -> None:
    """8.4 us, then 14 steps of an eighth at 100 GB/s; half of them for a gather."""
    latency = 8.4e-6 + 14 * 3.4e-6
    assert seconds(machines(1), GB, how="ring") == pytest.approx(latency + 14 / 8 / 100)
    latency = 8.4e-6 + 7 * 3.4e-6
    for kind in ("all_gather", "reduce_scatter"):
        assert seconds(machines(1), GB, kind) == pytest.approx(latency + 7 / 8 / 100)


def test_rings_pass_all_cards_of_a_machine_at_once() -> None:
    """Two machines of 8 GPUs: 8 cards of 20 GB/s are faster than the links, 2 cards are slower."""
    latency = 8.4e-6 + 14 * 3.4e-6 + 14e-6
    wide, narrow = machines(2), machines(2, cards=2)
    assert seconds(wide, GB, "all_gather") == pytest.approx(latency + 15 / 16 / 100)
    assert seconds(narrow, GB, "all_gather") == pytest.approx(latency + 15 / 16 / 40)
    latency = 1.4 * (8.4e-6 + 28 * 3.4e-6 + 2 * 14e-6)
    assert seconds(narrow, GB, how="ring") == pytest.approx(latency + 30 / 16 / 40)


def test_groups_with_a_rank_in_each_machine_have_a_card_each() -> None:
    cluster = machines(4)
    groups = [[rank + 8 * machine for machine in range(4)] for rank in range(8)]
    latency = 8.4e-6 + 3 * 14e-6
    time = collective_time(cluster, groups[0], "all_gather", GB)
    assert time == pytest.approx(latency + 3 / 4 / 20)


def test_groups_with_more_ranks_in_one_machine_go_through_one_phase_after_the_other() -> None:
    cluster = machines(2)
    plain = hierarchical(16, 8, INNER, OUTER)
    for group, alike in (((0, 1, 2, 8), True), ((0, 1, 8, 9), False)):
        times = [collective_time(each, group, "all_gather", GB) for each in (cluster, plain)]
        assert (times[0] == times[1]) == alike


def test_a_tree_crosses_the_network_once_between_two_machines() -> None:
    """Chains of 8 with steps of 4 us, one step between machines, both ways; each byte twice over
    what 0.92 of the slower of the links and twice the cards carries, for more machines once."""
    latency = 8.4e-6 + 2 * (7 * 4e-6 + 14e-6)
    time = seconds(machines(2, cards=2), GB, how="tree")
    assert time == pytest.approx(latency + 2 / 80 / 0.92)
    latency = 8.4e-6 + 2 * (7 * 4e-6 + 2 * 14e-6)
    time = seconds(machines(4, cards=2), GB, how="tree")
    assert time == pytest.approx(latency + 2 / 40 / 0.92)
    # 2 MiB are 2^15 times 64 bytes, for which trees reach 0.6 of that.
    small = seconds(machines(4, cards=2), 2**21, how="tree")
    assert small == pytest.approx(latency + 2 * 2**21 / 40e9 / 0.92 / 0.6)


def test_small_messages_have_less_latency_and_less_bandwidth() -> None:
    """By LL128: 14 us, steps of 1.9 and 4 us, and 0.92 of the bandwidth; a tree's are 1.25 and 8.5
    us, and 0.92 x 120/128, of 1 MiB 0.6 of it."""
    cluster = machines(2, protocols=(LL128,))
    time = seconds(cluster, GB, "all_gather")
    assert time == pytest.approx(14e-6 + 14 * 1.9e-6 + 4e-6 + 15 / 16 / 92)
    latency = 14e-6 + 2 * (7 * 1.25e-6 + 8.5e-6)
    time = seconds(cluster, 2**20, how="tree")
    assert time == pytest.approx(latency + 2 * 2**20 / (100e9 * 0.92 * 120 / 128 * 0.6))
    both = machines(2, protocols=(SIMPLE, LL128))
    assert seconds(both, GB, "all_gather") == seconds(machines(2), GB, "all_gather")
    assert seconds(both, 1e6, "all_gather") == seconds(cluster, 1e6, "all_gather")


def test_sums_in_the_switch_pass_each_link_little_more_than_once() -> None:
    """At 0.8 of 100 GB/s, 9/8 of the vector, and two more chunks of 64 KiB of 16 x 8 parts."""
    parts = 16 * 8
    time = seconds(machines(1, sums=True), GB, how="nvls")
    assert time == pytest.approx(25e-6 + (GB + 2 * parts * 65536) * 1.125 / 80e9)
    assert seconds(machines(1, sums=True), GB) == time
    # From 64 x 128 chunks of 128 KiB on they are that large.
    large = 64 * parts * 131072
    time = seconds(machines(1, sums=True), large)
    assert time == pytest.approx(25e-6 + (large + 2 * parts * 131072) * 1.125 / 80e9)
    # Two machines: once through 4 cards of 20 GB/s, after the tree's step up and down.
    time = seconds(machines(2, cards=2, sums=True), 100 * GB, how="nvls")
    filled = 100 * GB + 4 * parts * 131072
    assert time == pytest.approx(25e-6 + 2 * 20.9e-6 + filled / 40e9)


def test_sums_in_switches_need_such_switches_and_three_ranks() -> None:
    with pytest.raises(InputError, match="nvls needs machines whose switches add up"):
        seconds(machines(1), GB, how="nvls")
    with pytest.raises(InputError, match="more than two ranks of a machine, not 2"):
        seconds(machines(1, of=2, sums=True), GB, how="nvls")
    assert "nvls" not in collective_times(machines(1, of=2, sums=True), range(2), "all_reduce")


@given(st.integers(1, 6), st.integers(2, 9), st.floats(0, 1e11), st.floats(1, 4), st.booleans())
def test_more_bytes_never_take_less(
    count: int, of: int, size: float, factor: float, sums: bool
) -> None:
    """Trees and chunks aside, whose constants jump: within a tenth and a chunk of all parts."""
    cluster = machines(count, of, sums=sums)
    for name, time_of in collective_times(cluster, range(count * of), "all_reduce").items():
        if name == "ring":
            assert time_of(size) <= time_of(size * factor)
        assert 0 < time_of(size) < time_of(2 * size + 1e9)


def test_the_catalogue_says_where_switches_add_up() -> None:
    h100, a100 = (find_hardware(name).topology(16) for name in ("h100-sxm", "a100-sxm-80gb"))
    assert isinstance(h100, Hierarchical)
    assert isinstance(a100, Hierarchical)
    assert h100.nccl == Nccl(SwitchSums(0.85, 16, 16), (SIMPLE, LL128), (SIMPLE, LL128))
    assert a100.nccl == Nccl(None, (SIMPLE, LL128), (SIMPLE, LL128))
    on_ethernet, on_pci = (find_hardware(name).topology(16) for name in ("mi300x", "h100-pcie"))
    assert isinstance(on_ethernet, Hierarchical)
    assert isinstance(on_pci, Hierarchical)
    assert on_ethernet.nccl == Nccl(None, (SIMPLE, LL128))
    assert on_pci.nccl == Nccl()
    assert find_hardware("tpu-v5e").topology(512).nccl is None  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("device", "runs"), [("h100-sxm", True), ("dgx-h100", True), ("H800", False)]
)
def test_a_file_that_describes_the_catalogues_machines_has_their_collectives(
    device: str, runs: bool
) -> None:
    """One cluster, one answer: by `--hardware`, and by a file with the same links and device."""
    named = find_hardware("h100-sxm").cluster(32)
    topology = named.topology
    assert isinstance(topology, Hierarchical)

    def link(one: Link) -> dict[str, object]:
        return {
            "bandwidth": f"{one.bandwidth} B/s",
            "latency": f"{one.latency} s",
            "sharing": "fair",
        }

    file = {
        "topology": "hierarchical",
        "workers": {"count": 32, "device": device},
        "group_size": 8,
        "cards": 8,
        "links": {"default": link(topology.link), "between_groups": link(topology.outer)},
    }
    written = cluster_from_mapping(file)
    assert isinstance(written.topology, Hierarchical)
    assert (written.topology.nccl == topology.nccl) is runs
    for size in (1e5, 1e9):
        assert (seconds(written, size) == pytest.approx(seconds(named, size))) is runs
