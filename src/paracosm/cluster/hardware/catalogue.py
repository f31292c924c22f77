"""The catalogue of hardware: devices by their datasheets, links, and nodes as they are sold.

`catalogue.yaml` gives the source of each number; a user's own files of the same form are in the
folder of their configuration (`user_folder`), copied there by `paracosm hardware add`. A name
refers to a device in its usual node, or a node with its first device.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from paracosm.cluster.cluster import Cluster, Node, assemble
from paracosm.cluster.link import Hierarchical, Link, Switch, Topology
from paracosm.cluster.nccl import LL128, SIMPLE, SWITCH_SUMS, Nccl
from paracosm.data_files import read_packaged_yaml, read_yaml
from paracosm.errors import InputError, unknown
from paracosm.files import replacing
from paracosm.quantities import Bandwidth, Duration, Size
from paracosm.units import format_bandwidth
from paracosm.validation import validated

DTYPES = ("float32", "tfloat32", "float16", "bfloat16", "float8", "float4")
"""Types of numbers that a datasheet has a peak of."""

Above0 = Field(gt=0, allow_inf_nan=False)


def _with_unit(value: Any) -> Any:
    if not isinstance(value, str):
        raise InputError(f"{value} has no unit: write one, as in 80 GiB, 2039 GB/s or 3.4 us")
    return value


WithUnit = BeforeValidator(_with_unit)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    title: str = Field(max_length=200, description="its full name")
    source: str = Field(max_length=800, description="the document that the numbers are from")
    assumed: dict[str, str] = Field({}, description="by the field: why it is what it is")

    @model_validator(mode="after")
    def _assumes_fields(self) -> Self:
        for name in self.assumed:
            if name not in type(self).model_fields:
                raise InputError(str(unknown("field in assumed", name, type(self).model_fields)))
        return self


class Device(_Entry):
    """A device that computes: a GPU, or the cores of a machine."""

    kind: Literal["gpu", "tpu", "cpu"] = "gpu"
    reported_as: tuple[str, ...] = Field((), description="names that its driver gives it")
    peak_tflops: dict[
        Literal["float32", "tfloat32", "float16", "bfloat16", "float8", "float4"],
        Annotated[float, Above0],
    ] = Field(min_length=1, description="dense Tflop/s by type of number, as {float32: 19.5}")
    memory: Annotated[Size, Above0, WithUnit] = Field(description="its size, as 80 GiB")
    memory_bandwidth: Annotated[Bandwidth, Above0, WithUnit] = Field(description="as 2039 GB/s")
    power: Annotated[float, Above0] | None = Field(None, description="watts that it may draw")
    node: str | None = Field(None, description="the node that it is usually sold in")
    capability: tuple[int, int] | None = Field(
        None, description="CUDA's compute capability, [9, 0], by which PyTorch chooses kernels"
    )

    family: str | None = Field(
        None, description="devices with the same kernels, as cdna3 (of NVIDIA's: by capability)"
    )
    processors: int | None = Field(
        None, ge=1, description="units to which the tiles of a product are given: multiprocessors"
    )

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Its capability; where none is given, the least that multiplies its types of numbers."""
        if self.capability is not None:
            return self.capability
        least = {"float8": (9, 0), "bfloat16": (8, 0), "float16": (7, 0)}
        return next((least[dtype] for dtype in least if dtype in self.peak_tflops), (6, 0))

    @property
    def generation(self) -> str | None:
        """Its family, by its capability where none is given; None where neither is known."""
        if self.family is not None or self.capability is None:
            return self.family
        names = {(8, 9): "ada", (7, 5): "turing"}
        majors = {6: "pascal", 7: "volta", 8: "ampere", 9: "hopper", 10: "blackwell"}
        return names.get(self.capability) or majors.get(self.capability[0])

    @property
    def driver_name(self) -> str:
        """What its driver calls it, or its title."""
        return self.reported_as[0] if self.reported_as else self.title

    def peak(self, dtype: str) -> float:
        """Return flop/s for numbers of a type; InputError where the device has no such units."""
        for name, tflops in self.peak_tflops.items():
            if name == dtype:
                return tflops * 1e12
        raise InputError(f"{self.title}: no peak for {dtype}: it has {', '.join(self.peak_tflops)}")


class Interconnect(_Entry):
    """A kind of link; rates are per direction."""

    bandwidth: Annotated[Bandwidth, Above0, WithUnit] = Field(
        description="by its datasheet, one way"
    )
    usable: Annotated[Bandwidth, Above0, WithUnit] = Field(
        description="of it by collectives, one way"
    )
    latency: Annotated[Duration, Field(ge=0, allow_inf_nan=False), WithUnit] = Field(
        description="of a step"
    )

    def link(self) -> Link:
        return Link(bandwidth=self.usable, latency=self.latency)


class Host(_Entry):
    """The processors of a computer that devices are in, with their memory."""

    memory_bandwidth: Annotated[Bandwidth, Above0, WithUnit] = Field(
        description="of all its memory, as 614.4 GB/s"
    )
    link: str = Field(description="the link to each device")


UPDATES_ON_HOST = 0.425
"""Share of the memory's bandwidth that Adam gets of a host (Ren et al., "ZeRO-Offload", 2021, table
4: DeepSpeed's CPU-Adam takes 1.03 and 2.57 s for 4 and 10 billion parameters of 28 bytes each, on a
DGX-2 with two Xeon Platinum 8168, six channels of DDR4-2666 each, 255.9 GB/s)."""


@dataclass(frozen=True)
class HostRates:
    """What a device gets of its host, where all devices use it at once; in bytes/s."""

    update: float  # of the host's memory, by the optimizer
    copy: float  # between the host and the device, each way


class NodeType(_Entry):
    """A machine as it is sold: `count` devices, joined by `inner`; `cards` links of kind `outer`
    join it to others."""

    devices: tuple[str, ...] = Field(min_length=1, description="devices that it is sold with")
    count: int = Field(ge=1, description="of its devices")
    inner: str | None = Field(None, description="the link between two of its devices")
    outer: str = Field(description="the link of a network card")
    cards: int = Field(1, ge=1, description="network cards")
    computer: int | None = Field(
        None,
        ge=1,
        description="devices of each computer of a rack; jobs of several racks have as many "
        "computers in each, if that is possible",
    )
    host: str | None = Field(
        None, description="the processors of each of its computers, which update where they have to"
    )
    switch_sums: bool = Field(
        False, description="whether the switches between its devices add up (NVLink SHARP)"
    )

    def devices_of(self, workers: int) -> int:
        """Return how many workers of a job a node has."""
        nodes = -(-workers // self.count)
        if self.computer is None or nodes == 1 or workers % (nodes * self.computer):
            return self.count
        return workers // nodes

    @model_validator(mode="after")
    def _joined(self) -> Self:
        if self.count > 1 and self.inner is None:
            raise InputError("inner: must be given: the link between its devices")
        return self


class Catalogue(BaseModel):
    """Entries by their names."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    devices: dict[str, Device] = {}
    interconnects: dict[str, Interconnect] = {}
    hosts: dict[str, Host] = {}
    nodes: dict[str, NodeType] = {}
    stacks: dict[str, Any] = Field({}, description="software, as `stacks.py` reads it")

    def merged(self, other: "Catalogue", where: str) -> "Catalogue":
        """Return both; InputError for a name that both have, or that neither has."""
        parts: dict[str, Any] = {}
        for part in ("devices", "interconnects", "hosts", "nodes", "stacks"):
            ours, theirs = getattr(self, part), getattr(other, part)
            for name in theirs:
                if name in ours:
                    raise InputError(f"{where}: {part}.{name}: the catalogue has one: name it else")
            parts[part] = ours | theirs
        both = Catalogue(**parts)
        both.check(where)
        return both

    def node_of(self, name: str | None) -> NodeType | None:
        """Return the node of a name: that itself, or a device's usual one; None for others."""
        device = self.devices.get((name or "").lower())
        wanted = (name or "").lower() if device is None else device.node
        return None if wanted is None else self.nodes.get(wanted)

    def nccl_of(self, name: str | None) -> Nccl | None:
        """Return how NCCL runs between devices of a name, or of a node; None for others."""
        node = self.node_of(name)
        if node is None:
            return None
        return _nccl(self.devices.get((name or "").lower(), self.devices[node.devices[0]]), node)

    def check(self, where: str) -> None:
        for name, device in self.devices.items():
            if device.node is not None and device.node not in self.nodes:
                problem = unknown("node", device.node, self.nodes)
                raise InputError(f"{where}: devices.{name}.node: {problem}")
        for name, host in self.hosts.items():
            if host.link not in self.interconnects:
                problem = unknown("interconnect", host.link, self.interconnects)
                raise InputError(f"{where}: hosts.{name}.link: {problem}")
        for name, node in self.nodes.items():
            if name in self.devices:
                raise InputError(f"{where}: {name} is both a device and a node: name one else")
            for key, kind, names, known in (
                ("devices", "device", node.devices, self.devices),
                ("inner", "interconnect", (node.inner,), self.interconnects),
                ("outer", "interconnect", (node.outer,), self.interconnects),
                ("host", "host", (node.host,), self.hosts),
            ):
                for title in names:
                    if title is not None and title not in known:
                        problem = unknown(kind, title, known)
                        raise InputError(f"{where}: nodes.{name}.{key}: {problem}")


@dataclass(frozen=True)
class Hardware:
    """A device, the node that it is in, and the node's links."""

    name: str  # of the device
    device: Device
    node_name: str | None
    node: NodeType | None
    inner: Interconnect | None
    outer: Interconnect | None
    origin: str  # the file that it is from; empty for the catalogue's own
    host: Host | None = None
    host_link: Interconnect | None = None

    @property
    def assumed(self) -> dict[str, str]:
        """The values that no document gives, by name, with the reasons for them."""
        entries = (self.device, self.node, self.inner, self.outer, self.host)
        return {
            f"{name} of {entry.title}": why
            for entry in entries
            if entry is not None
            for name, why in entry.assumed.items()
        }

    @property
    def node_in_words(self) -> str:
        """The links of the node: "those of the NVIDIA DGX H100: 2.966 Tbit/s within it, ..."."""
        if self.node is None or self.outer is None:
            return "no node's"
        count, cards = self.node.count, self.node.cards
        inner = "" if self.inner is None else f"{format_bandwidth(self.inner.usable)} within it, "
        title = self.node.title
        named = title if title.startswith(("a ", "an ")) else f"the {title}"
        return (
            f"those of {named}: {inner}{format_bandwidth(self.outer.usable)} a card, "
            f"{cards} card{'' if cards == 1 else 's'} for {count}"
        )

    def host_rates(self, workers: int) -> HostRates | None:
        """Return what each of `workers` devices gets of its host; None where none is known."""
        if self.node is None or self.host is None or self.host_link is None:
            return None
        devices = min(self.node.computer or self.node.count, workers)
        update = UPDATES_ON_HOST * self.host.memory_bandwidth / devices
        return HostRates(update, self.host_link.usable)

    def cluster(self, workers: int) -> Cluster:
        """Return the cluster of `workers` devices in as many nodes as needed.

        Raises:
            InputError: more than one device, and nobody says what joins them.
        """
        one = Node("", memory=self.device.memory, device=self.name)
        return assemble([one] * workers, [], self.topology(workers))

    def topology(self, workers: int) -> Topology:
        """Return how the cluster of `workers` devices is joined; InputError as for it."""
        if self.node is None or self.outer is None:
            if workers > 1:
                raise InputError(
                    f"{self.name}: the catalogue has no node that joins {workers} of them: add "
                    "--bandwidth 100Gbit/s, or --cluster FILE"
                )
            return Switch(Link())
        outer = self.outer.link()
        if self.node.count == 1 or self.inner is None:
            return Switch(outer)
        inner = self.inner.link()
        cards = self.node.cards if self.node.cards < self.node.count else None
        return Hierarchical(
            *(inner, outer, self.node.devices_of(workers), workers, cards),
            nccl=_nccl(self.device, self.node),
        )


def _nccl(device: Device, node: NodeType) -> Nccl | None:
    if device.kind != "gpu":
        return None
    sums = SWITCH_SUMS.get(device.generation or "") if node.switch_sums else None
    # LL128 counts on stores of 128 bytes that arrive at once: not over PCI Express, nor over what
    # AWS and Google have between machines (aws-ofi-nccl, `platform-aws.c`).
    inner, both = (node.inner or "").startswith(("nvlink", "xgmi")), (SIMPLE, LL128)
    outer = inner and node.outer.startswith("infiniband")
    return Nccl(sums, both if inner else (SIMPLE,), both if outer else (SIMPLE,))


def find_hardware(name: str | Path) -> Hardware:
    """Return the hardware with a name of the catalogue, or of a file with one device.

    Raises:
        InputError: nothing has that name (with the nearest, and how to add it); a file that cannot
            be read, or says nothing of a device, or of several.
    """
    known, origins = _everything()
    if str(name).endswith((".yaml", ".yml")):
        catalogue = read_hardware_file(Path(name))
        if len(catalogue.devices) != 1:
            raise InputError(f"{name}: has {len(catalogue.devices)} devices: one is meant here")
        known = known.merged(catalogue, str(name))
        (wanted,) = catalogue.devices
        origins = dict(origins) | {wanted: str(name)}
    else:
        wanted = str(name).strip().lower()
    if wanted in known.nodes:
        node_name: str | None = wanted
        device_name = known.nodes[wanted].devices[0]
    elif wanted in known.devices:
        device_name, node_name = wanted, known.devices[wanted].node
    else:
        raise not_in_catalogue(str(name))
    node = None if node_name is None else known.nodes[node_name]
    inner = None if node is None or node.inner is None else known.interconnects[node.inner]
    host = None if node is None or node.host is None else known.hosts[node.host]
    return Hardware(
        device_name,
        known.devices[device_name],
        node_name,
        node,
        inner,
        None if node is None else known.interconnects[node.outer],
        origins.get(wanted, ""),
        host,
        None if host is None else known.interconnects[host.link],
    )


def not_in_catalogue(name: str) -> InputError:
    words = set(name.lower().replace("-", " ").replace("_", " ").split())
    names = hardware_names()
    alike = [name for name in names if words & set(name.split("-"))]
    nearest = unknown("hardware", name.lower(), names)
    hint = f'unknown hardware "{name}": did you mean {", ".join(alike[:4])}?' if alike else nearest
    return InputError(f"{hint} paracosm hardware add FILE adds a datasheet")


def hardware_names() -> list[str]:
    """Return the names of all devices and nodes of the catalogue."""
    known, _ = _everything()
    return [*known.devices, *known.nodes]


def load_catalogue() -> Catalogue:
    """Return the catalogue with the user's own files."""
    return _everything()[0]


def user_folder() -> Path:
    """Return the folder of the user's own hardware: XDG's configuration, ~/.config if not set."""
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "paracosm" / "hardware"


def copy_to_user_folder(path: Path, *, force: bool = False) -> tuple[Path, Catalogue]:
    """Copy a file into the user's folder; return its new path and its content.

    Raises:
        InputError: it cannot be used; a name of it is taken; a file of its name is there already.
    """
    catalogue = read_hardware_file(path)
    if not (catalogue.devices or catalogue.interconnects or catalogue.nodes or catalogue.stacks):
        raise InputError(f"{path}: it has no devices, interconnects, nodes or stacks")
    target = user_folder() / f"{path.stem}.yaml"
    if target.exists() and not force:
        raise InputError(f"{target}: is there already: --force replaces it")
    known = _built_in()
    for other in user_files():
        if other != target:
            known = known.merged(read_hardware_file(other), str(other))
    known.merged(catalogue, str(path))
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as fresh:
        fresh.write_bytes(path.read_bytes())
    return target, catalogue


def _everything() -> tuple[Catalogue, Mapping[str, str]]:
    """Return the catalogue, and for what a user added the file, by name."""
    known = _built_in()
    origins: dict[str, str] = {}
    for path in user_files():
        catalogue = read_hardware_file(path)
        known = known.merged(catalogue, str(path))
        origins |= dict.fromkeys((*catalogue.devices, *catalogue.nodes), str(path))
    return known, origins


def user_files() -> list[Path]:
    """Return the files of the user's own hardware and stacks."""
    return sorted(user_folder().glob("*.yaml"))


@cache
def _built_in() -> Catalogue:
    path = Path(__file__).with_name("catalogue.yaml")
    known = validated(Catalogue, read_packaged_yaml(path), str(path))
    known.check("catalogue")
    return known


def read_hardware_file(path: Path) -> Catalogue:
    """Return the content of a file of the catalogue's form.

    Raises:
        InputError: it cannot be read, or is of another form.
    """
    content = read_yaml(path, "hardware file")
    if not isinstance(content, dict):
        raise InputError(
            f"{path}: a hardware file has devices, interconnects, nodes or stacks by name"
        )
    return validated(Catalogue, content, str(path))
