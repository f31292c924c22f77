"""The catalogue of hardware, and how long ops take by datasheets."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from paracosm.cluster import Link
from paracosm.cluster.hardware import add_to_catalogue
from paracosm.cluster.hardware.catalogue import (
    HostRates,
    find_hardware,
    load_catalogue,
    user_folder,
)
from paracosm.cluster.hardware.efficiency import (
    OP_CLASSES,
    Efficiencies,
    Efficiency,
    load_efficiencies,
    op_time,
)
from paracosm.cluster.link import Hierarchical
from paracosm.errors import InputError

MINE = """
devices:
  mine:
    title: an accelerator of ours
    peak_tflops: {float32: 10, bfloat16: 100}
    memory: 32 GiB
    memory_bandwidth: 1 TB/s
    node: my-node
    source: our datasheet
interconnects:
  wire: {title: a wire, bandwidth: 100 GB/s, usable: 80 GB/s, latency: 2 us, source: our datasheet}
nodes:
  my-node: {title: ours, devices: [mine], count: 4, inner: wire, outer: ethernet-100, source: us}
"""
HOSTS = """
hosts:
  my-host: {title: a processor, memory_bandwidth: 100 GB/s, link: pcie6, source: its datasheet}
"""
EFFICIENCIES = Efficiencies(
    devices={
        "a": {
            "product": Efficiency(compute=0.5, fixed=1e-6, spread=0.1, ops=3, source="test"),
            "elementwise": Efficiency(memory=0.8, spread=0.2, ops=3, source="test"),
        },
        "b": {"product": Efficiency(compute=0.8, fixed=3e-6, spread=0.05, ops=2, source="test")},
    },
    common=0.1,
    common_unmeasured=0.3,
    common_corrected=0.05,
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def written(tmp_path: Path, text: str = MINE) -> Path:
    path = tmp_path / "ours.yaml"
    path.write_text(text)
    return path


def test_every_number_of_the_catalogue_has_a_source_and_what_is_assumed_a_reason() -> None:
    known = load_catalogue()
    for entries in (known.devices, known.interconnects, known.hosts, known.nodes):
        for name, entry in entries.items():
            assert entry.source, name
            assert entry.source != "none" or entry.assumed, name
            assert all(entry.assumed.values()), name


def test_peaks_are_dense_and_links_one_way() -> None:
    # NVIDIA's A100 datasheet prints 312 Tflop/s dense, 624 with sparsity, and 600 GB/s both ways;
    # the H100's 1,979 Tflop/s with sparsity, and 900 GB/s.
    known = load_catalogue()
    assert known.devices["a100-sxm-80gb"].peak("bfloat16") == 312e12
    assert known.devices["h100-sxm"].peak("bfloat16") == 1979e12 / 2
    assert known.interconnects["nvlink3"].bandwidth == 600e9 / 2
    assert known.interconnects["nvlink4"].bandwidth == 900e9 / 2
    for interconnect in known.interconnects.values():
        assert interconnect.usable <= interconnect.bandwidth


def test_a_device_is_in_its_usual_node() -> None:
    cluster = find_hardware("h100-sxm").cluster(16)
    topology = cluster.topology
    assert isinstance(topology, Hierarchical)
    assert topology.group_size == 8
    assert topology.cards is None  # a card for each device
    assert topology.link == Link(bandwidth=18 * 20.6e9, latency=3.4e-6)
    assert topology.outer.bandwidth == pytest.approx(48e9)
    assert {(node.memory, node.device) for node in cluster.nodes} == {(80 * 2**30, "h100-sxm")}


def test_devices_of_a_node_may_share_its_cards() -> None:
    topology = find_hardware("t4").cluster(8).topology
    assert isinstance(topology, Hierarchical)
    assert topology.cards == 1


def test_a_node_means_its_first_device() -> None:
    assert find_hardware("dgx-a100").name == "a100-sxm-80gb"


def test_devices_of_a_computer_share_its_host() -> None:
    """Adam gets 0.425 of all its memory's bandwidth: a part each of eight or two devices; four of a
    rack's are in one computer."""
    h200, rack = find_hardware("h200-sxm"), find_hardware("gb200")
    assert h200.host_rates(16) == HostRates(0.425 * 614.4e9 / 8, 48e9)
    assert h200.host_rates(2) == HostRates(0.425 * 614.4e9 / 2, 48e9)
    assert rack.host_rates(72) == HostRates(0.425 * 777.8e9 / 4, 370.8e9)
    assert find_hardware("l4").host_rates(8) is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h100", 'unknown hardware "h100": did you mean h100-sxm, h100-sxm-96gb, h100-pcie'),
        ("a100-sxm-81gb", "did you mean"),
        ("zzz", 'unknown hardware "zzz": choose from'),
    ],
)
def test_unknown_hardware_is_answered_with_the_nearest_and_how_to_add(
    name: str, message: str
) -> None:
    with pytest.raises(InputError) as error:
        find_hardware(name)
    assert message in str(error.value)
    assert "paracosm hardware add FILE" in str(error.value)


def test_a_users_file_is_added_to_the_catalogue(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        find_hardware("mine")
    target, added = add_to_catalogue(written(tmp_path))
    assert target == user_folder() / "ours.yaml"
    assert list(added.devices) == ["mine"]
    found = find_hardware("mine")
    assert found.origin == str(target)
    assert found.device.peak("bfloat16") == 100e12
    with pytest.raises(InputError, match=r"is there already: --force replaces it"):
        add_to_catalogue(written(tmp_path))
    add_to_catalogue(written(tmp_path), force=True)


def test_a_datasheet_file_is_read_where_it_is(tmp_path: Path) -> None:
    found = find_hardware(written(tmp_path))
    assert found.name == "mine"
    assert found.origin == str(tmp_path / "ours.yaml")
    assert not user_folder().exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (MINE.replace("    peak_tflops: {float32: 10, bfloat16: 100}\n", ""), "peak_tflops: must"),
        (MINE.replace("bfloat16: 100", "bfloat16: -1"), "should be greater than 0"),
        (MINE.replace("memory: 32 GiB", "memory: 32"), "memory: 32 has no unit"),
        (MINE.replace("inner: wire, ", ""), "inner: must be given"),
        (MINE.replace("ethernet-100", "ethernet-1000"), 'did you mean "ethernet-100"'),
        (MINE.replace("node: my-node", "node: my-nodes"), 'did you mean "my-node"'),
        (
            MINE.replace("count: 4", "count: 4, host: xeon"),
            'nodes.my-node.host: unknown host "xeon',
        ),
        (MINE + HOSTS, 'hosts.my-host.link: unknown interconnect "pcie6"'),
        (MINE.replace("\n  mine:", "\n  t4:").replace("[mine]", "[t4]"), "the catalogue has one"),
        (MINE.replace("title: an acc", "tittle: an acc"), 'did you mean "devices.mine.title"'),
        ("devices: {}\n", "it has no devices"),
        ("- 1\n", "has devices, interconnects, nodes or stacks by name"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(
    tmp_path: Path, wrong: str, message: str
) -> None:
    with pytest.raises(InputError) as error:
        add_to_catalogue(written(tmp_path, wrong))
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert not user_folder().exists()


def test_an_op_takes_the_roofline_at_the_shares_of_its_class(tmp_path: Path) -> None:
    device = find_hardware(written(tmp_path)).device

    def time(name: str, kind: str, flops: float, moved: float) -> tuple[float, float, str]:
        found = op_time(name, device, EFFICIENCIES, kind, "float32", flops, moved)
        return found.seconds, found.spread, found.known

    # 1e9 flops at half of 10 Tflop/s, and 1 us; 8 MB at 80 % of 1 TB/s.
    assert time("a", "product", 1e9, 0) == (pytest.approx(201e-6), 0.1, "measured")
    assert time("a", "elementwise", 0, 8e6) == (pytest.approx(10e-6), 0.2, "measured")
    # Never full, so never drained: twice the 0.2 us of 1e6 flops.
    assert time("a", "product", 1e6, 0)[0] == pytest.approx(0.4e-6)
    # Bound by memory: 1 GB at 1 TB/s.
    assert time("a", "product", 1e9, 1e9)[0] == pytest.approx(1e-3 + 1e-6)
    # The mean of others: the root of 0.5 x 0.8, 2 us, and both devices within the interval.
    seconds, spread, known = time("c", "product", 1e9, 0)
    assert seconds == pytest.approx(1e9 / (math.sqrt(0.4) * 10e12) + 2e-6)
    assert spread == pytest.approx(math.log(0.8 / math.sqrt(0.4)) + 0.1)
    assert known == "other devices"
    # No class of its own anywhere: that of products, with a wider interval.
    assert time("a", "convolution", 1e9, 0)[2] == "assumed"
    assert time("a", "convolution", 1e9, 0)[1] == pytest.approx(0.1 + math.log(1.5))


def test_on_tensor_cores_what_products_move_is_not_hidden() -> None:
    device, table = find_hardware("h100-sxm").device, load_efficiencies()
    share, _ = table.find("h100-sxm", "tensor product")

    def time(kind: str, flops: float, moved: float) -> float:
        return op_time("h100-sxm", device, table, kind, "bfloat16", flops, moved).seconds

    alone = 1e12 / (share.compute * 989.5e12), 1e9 / (share.memory * 3.35e12)
    assert time("product", 1e12, 1e9) == pytest.approx(sum(alone))
    assert time("product", 1e12, 0) == pytest.approx(alone[0])
    # Attention keeps its scores on chip: the larger of both.
    assert time("attention", 1e15, 1e9) == time("attention", 1e15, 0)


def test_numbers_without_units_on_the_device_are_refused() -> None:
    with pytest.raises(InputError, match=r"NVIDIA T4 16 GB: no peak for bfloat16: it has float32"):
        op_time(
            *("t4", find_hardware("t4").device, load_efficiencies()),
            *("product", "bfloat16", 1.0, 1.0),
        )


def test_every_class_has_an_efficiency_on_every_device() -> None:
    table = load_efficiencies()
    for name in load_catalogue().devices:
        for op_class in OP_CLASSES:
            found, known = table.find(name, op_class)
            assert 0.05 < found.compute * found.memory <= 1.2
            assert found.spread < math.log(4)
            assert known in ("measured", "other devices", "assumed")


def test_a_device_without_efficiencies_has_wider_intervals() -> None:
    table = load_efficiencies()
    assert table.common_corrected < table.common < table.common_unmeasured
    for op_class in table.devices["h100-sxm"]:
        own, _ = table.find("h100-sxm", op_class)
        others, _ = table.find("t4", op_class)
        assert others.spread > own.spread, op_class
