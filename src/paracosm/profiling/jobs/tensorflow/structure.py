"""The dependencies of a step's ops, and the transfers between the worker and its servers.

For each tensor that leaves a device TensorFlow inserts a pair of nodes that it does not trace:
`_Send` and `_Recv` ("w/read_S24", "w/read_S25" of the node "w/read"; "w/read/_7" in older
versions). It does trace how long the tensor took ("edge_12_w/read"). The partitioned graph, if
traced, tells which pair has which tensor. Without it, tensors and receiving nodes of one sender are
matched in the order of their numbers, which TensorFlow assigns to both in the same pass.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from paracosm.errors import InputError
from paracosm.profiling.jobs.job_profile import DOWNLINK, SERVER, UPLINK, WORKER, ProfiledOp
from paracosm.profiling.jobs.tensorflow.records import Device, Key, Node, Records, device_of

Receiving = dict[tuple[Device, str], set[Key]]
"""By device and name of a node that receives: the runs that get what it has received."""

Named = dict[tuple[Device, str], tuple[Device, str, list[Key]]]
"""By the same: where it comes from, the tensor's name, the runs that make it."""

_TENSOR = re.compile(r"edge_(?P<number>\d{1,18})_(?P<node>.+)", re.DOTALL)
_RECEIVER = re.compile(r"(?P<node>.+?)(?:_S|/_)(?P<number>\d{1,18})", re.DOTALL)
_CONTROL = re.compile(r"(?P<node>.+)/ctrl_S\d+", re.DOTALL)
"""What is made to be sent where one op only waits for another; its label does not say for which."""

_DEEPEST = 1000  # nodes that were not traced, one behind the other


@dataclass(slots=True)
class Transfer:
    """A tensor that goes from one device to another, with all its times in a step."""

    source: Device
    target: Device
    tensor: str  # "edge_12_w/read"; the receiving node's name where no receive was traced by name
    senders: set[Key] = field(default_factory=set)  # runs that make it
    receivers: set[Key] = field(default_factory=set)  # runs that wait for it
    orders: bool = False  # whether it has nothing in it, and only says that its sender has run


@dataclass(frozen=True, slots=True)
class Structure:
    waits: Mapping[Key, frozenset[Key]]  # of each run, those at its own device that it waits for
    # Between devices, each once, however many times it is made in a step
    transfers: Sequence[Transfer]
    exact: bool  # whether the transfers are from the partitioned graph
    # How many inputs no record says anything about, and how many tensors a partitioned graph
    # sends that none receives, or receives that none sends
    not_traced: int


class StructureFinder:
    def __init__(self, records: Records, nodes: Mapping[str, Node]) -> None:
        self.records, self.nodes = records, nodes
        self.runs: dict[tuple[Device, str], list[Key]] = {}
        for key in sorted(records.runs, key=lambda key: (*key[:2], key[2])):
            self.runs.setdefault(key[:2], []).append(key)
        self.devices: dict[str, list[Device]] = {}
        for device, name in self.runs:
            self.devices.setdefault(name, []).append(device)
        self.sends = {
            node.tensor: node for node in nodes.values() if node.tensor and node.op.endswith("Send")
        }
        self.transfers: dict[tuple[Device, Device, str], Transfer] = {}
        self.received = {_node_of(tensor) for _, _, tensor, _ in records.receives}
        self.missing = 0

    def structure(self) -> Structure:
        waits: dict[Key, set[Key]] = {key: set() for key in self.records.runs}
        receiving: Receiving = {}
        for key, run in self.records.runs.items():
            device, name, _ = key
            inputs = self.nodes[name].inputs if name in self.nodes else run.inputs
            control = _CONTROL.fullmatch(name)
            for value in inputs if control is None else (*inputs, control["node"]):
                self.wait(key, device, value, waits[key], receiving)
        named = self.named_by_graph(receiving) if self.nodes else self.named_by_number(receiving)
        for (device, value), receivers in receiving.items():
            source, tensor, senders = named[device, value]
            for receiver in sorted(receivers) if source == device else ():
                waits[receiver] |= self.last_before(senders, receiver)
            if source != device:
                transfer = self.transfer(source, device, tensor)
                transfer.senders.update(senders)
                transfer.receivers.update(receivers)
                transfer.orders = _only_order(value, receivers)
        for source, target, tensor, _ in self.records.receives:
            self.transfer(source, target, tensor)
        for transfer in self.transfers.values():
            if not transfer.senders:
                transfer.senders.update(self.senders_of(transfer))
        return Structure(
            {key: frozenset(found - {key}) for key, found in waits.items()},
            sorted(self.transfers.values(), key=lambda t: (t.source, t.target, t.tensor)),
            bool(self.nodes),
            self.missing,
        )

    def wait(
        self, key: Key, device: Device, value: str, waits: set[Key], receiving: Receiving
    ) -> None:
        """Add an input of a run: runs at its device, or nodes that receive."""
        name = value.removeprefix("^").partition(":")[0]
        open_, seen = [name], {name}
        while open_:
            name = open_.pop()
            if (device, name) in self.runs:
                waits |= self.last_before(self.runs[device, name], key)
            elif name in self.nodes and not self.nodes[name].tensor:
                new = [
                    name_of_input
                    for name_of_input in self.nodes[name].inputs
                    if name_of_input not in seen
                ]
                seen.update(new)
                open_ += new if len(seen) < _DEEPEST else []
            elif name in self.nodes or (not self.nodes and self.looks_received(name)):
                receiving.setdefault((device, name), set()).add(key)
            else:
                self.missing += 1

    def looks_received(self, name: str) -> bool:
        match = _RECEIVER.fullmatch(name)
        return match is not None and (
            match["node"] in self.devices or match["node"] in self.received
        )

    def last_before(self, keys: Iterable[Key], key: Key) -> set[Key]:
        """Of several runs of a node, return the last that began before a run of another node."""
        runs = self.records.runs
        others = [other for other in keys if other != key]
        if len(others) < 2 or len({other[:2] for other in others}) > 1:
            return set(others)
        earlier = [other for other in others if runs[other].begin < runs[key].begin]
        return {max(earlier or others[:1], key=lambda each: (runs[each].begin, each))}

    def transfer(self, source: Device, target: Device, tensor: str) -> Transfer:
        return self.transfers.setdefault((source, target, tensor), Transfer(source, target, tensor))

    def named_by_graph(self, receiving: Receiving) -> Named:
        """Return sender, tensor and the sender's runs by the device and the node that receive."""
        sources = {edge[1:3]: edge[0] for edge in self.records.receives}
        named = {}
        for device, value in receiving:
            tensor = self.nodes[value].tensor
            send = self.sends.get(tensor)
            sender = device_of(send.device) if send is not None else None
            source = sources.get((device, tensor), sender or device)
            self.missing += send is None
            named[device, value] = (source, tensor, self.runs_behind(send) if send else [])
        received = {node.tensor for node in self.nodes.values() if node.op.endswith("Recv")}
        self.missing += len(self.sends.keys() - received)
        return named

    def runs_behind(self, node: Node) -> list[Key]:
        """Return the runs that make a node's input, through nodes that were not traced."""
        behind: list[Key] = []
        open_, seen = list(node.inputs), set(node.inputs)
        while open_:
            name = open_.pop()
            if name in self.devices:
                behind += [key for device in self.devices[name] for key in self.runs[device, name]]
            elif name in self.nodes and len(seen) < _DEEPEST:
                new = [
                    name_of_input
                    for name_of_input in self.nodes[name].inputs
                    if name_of_input not in seen
                ]
                seen.update(new)
                open_ += new
        return sorted(behind)

    def named_by_number(self, receiving: Receiving) -> Named:
        """Do as `named_by_graph` without a graph, by names and the numbers in them."""
        groups: dict[tuple[Device, str, bool], list[str]] = {}
        for (device, value), receivers in receiving.items():
            node = _receiver(value)[0]
            groups.setdefault((device, node, _only_order(value, receivers)), []).append(value)
        named = {}
        for (device, node, orders), values in groups.items():
            tensors = sorted(
                {edge[:3] for edge, receive in self.records.receives.items()
                 if edge[1] == device and _node_of(edge[2]) == node
                 and ((receive.size == 0) == orders
                      or (device, node, not orders) not in groups)},
                key=lambda edge: (_number_of(edge[2]), edge),
            )  # fmt: skip
            values.sort(key=lambda value: (_receiver(value)[1], value))
            for position, value in enumerate(values):
                if position < len(tensors):
                    source, _, tensor = tensors[position]
                else:
                    elsewhere = [other for other in self.devices.get(node, ()) if other != device]
                    source, tensor = (elsewhere or [device])[0], value
                senders = self.runs.get((source, node), [])
                named[device, value] = (source, tensor, [] if orders and tensors else senders)
        return named

    def senders_of(self, transfer: Transfer) -> list[Key]:
        """Return the runs of the node after which a tensor is named, or of what orders its ops."""
        node = _node_of(transfer.tensor)
        controls = [
            name for device, name in self.runs
            if device == transfer.source
            and (control := _CONTROL.fullmatch(name)) and control["node"] == node
        ]  # fmt: skip
        empty = all(receive.size == 0 for edge, receive in self.records.receives.items()
                    if edge[:3] == (transfer.source, transfer.target, transfer.tensor))  # fmt: skip
        names = sorted(controls) if controls and empty else [node]
        return [key for name in names for key in self.runs.get((transfer.source, name), ())]


def _only_order(value: str, receivers: Iterable[Key]) -> bool:
    """Whether a node that receives is only waited for, and its value never used."""
    node = _receiver(value)[0]
    return all(_receiver(name) != (name, 0) and _receiver(name)[0] == node
               for _, name, _ in receivers)  # fmt: skip


def _node_of(tensor: str) -> str:
    match = _TENSOR.fullmatch(tensor) or _RECEIVER.fullmatch(tensor)
    return match["node"] if match else tensor


def _number_of(tensor: str) -> int:
    match = _TENSOR.fullmatch(tensor)
    return int(match["number"]) if match else 0


def _receiver(name: str) -> tuple[str, int]:
    match = _RECEIVER.fullmatch(name)
    return (match["node"], int(match["number"])) if match else (name, 0)


@dataclass(frozen=True, slots=True)
class Sent:
    transfer: Transfer  # what is sent from where to where
    number: int  # which time of it in the step
    size: int  # bytes
    senders: frozenset[int]  # columns of the ops that make it
    receivers: frozenset[int]  # columns of the ops that wait for it

    @property
    def is_down(self) -> bool:
        return self.transfer.source.is_server

    @property
    def server(self) -> Device:
        return self.transfer.source if self.is_down else self.transfer.target


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a profile: all runs, then all transfers."""

    keys: Sequence[Key]
    kinds: Sequence[str]  # the runs' ops' types
    sent: Sequence[Sent]
    waits: Sequence[frozenset[int]]  # of each column, those that it waits for
    # Transfers and bytes from server to server: for these, an op of one waits for that of the other
    between_servers: tuple[int, int]

    def ops(self) -> list[ProfiledOp]:
        """Return the ops, with names as "w/read", "while/add #2", "x on /job:ps/task:1"."""
        profiled = []
        for (device, name, run), kind in zip(self.keys, self.kinds, strict=True):
            on, resource = (device.task, SERVER) if device.is_server else (0, WORKER)
            label = f"{name} #{run + 1}" if run else name
            profiled.append((device, ProfiledOp(label, kind, resource, on)))
        for each in self.sent:
            tensor, link = each.transfer.tensor, DOWNLINK if each.is_down else UPLINK
            label = f"{tensor} #{each.number + 1}" if each.number else tensor
            op = ProfiledOp(label, "RecvTensor", link, each.server.task, each.size)
            profiled.append((each.transfer.target, op))
        often = Counter(op.name for _, op in profiled)
        return [
            replace(op, name=f"{op.name} on {at}" if often[op.name] > 1 else op.name, waits=waits)
            for (at, op), waits in zip(profiled, self.waits, strict=True)
        ]


def columns_of(structure: Structure, reference: Records, steps: Sequence[Records]) -> Columns:
    """Return the columns of steps that ran the same nodes; all of them supply bytes of tensors."""
    keys = list(reference.runs)
    column = {key: number for number, key in enumerate(keys)}
    waits = [{column[other] for other in structure.waits[key]} for key in keys]
    sent: list[Sent] = []
    between = [0, 0]
    for transfer in structure.transfers:
        received = {edge: receive for edge, receive in reference.receives.items()
                    if edge[:3] == (transfer.source, transfer.target, transfer.tensor)}  # fmt: skip
        if not received and not transfer.receivers:
            continue
        _check_sender(transfer, reference)
        size = _size(transfer, steps)
        times = sorted(receive.end for receive in received.values())
        if transfer.source.is_server and transfer.target.is_server:
            between = [between[0] + 1, between[1] + size]
            for key in sorted(transfer.receivers):
                before = _last_before(transfer.senders, reference.runs[key].begin, reference)
                waits[column[key]] |= {column[other] for other in before}
            continue
        by_number = _by_number(transfer.receivers, times, reference)
        for number in range(max(len(times), 1)):
            ends = times[number] if times else float("inf")
            senders = _last_before(transfer.senders, ends, reference)
            receivers = frozenset(column[key] for key in by_number.get(number, ()))
            for receiver in receivers:
                waits[receiver].add(len(keys) + len(sent))
            makers = frozenset(column[key] for key in senders)
            sent.append(Sent(transfer, number, size, makers, receivers))
    return Columns(
        keys,
        [reference.runs[key].kind for key in keys],
        sent,
        [*map(frozenset, waits), *(each.senders for each in sent)],
        (between[0], between[1]),
    )


def _check_sender(transfer: Transfer, reference: Records) -> None:
    if not transfer.senders and not transfer.source.is_server:
        raise InputError(
            f"{reference.step.where}: {transfer.tensor} goes from {transfer.source} to "
            f"{transfer.target}, but the trace has no op that sends it: trace with FULL_TRACE"
        )


def _size(transfer: Transfer, steps: Sequence[Records]) -> int:
    edge = (transfer.source, transfer.target, transfer.tensor, 0)
    seen = Counter(step.receives[edge].size for step in steps if edge in step.receives)
    if not seen and transfer.orders:
        return 0
    if not seen:
        names = sorted({name for _, name, _ in transfer.senders})
        seen = Counter(
            step.step.sizes[name] for step in steps for name in names if name in step.step.sizes
        )
    if not seen:
        raise InputError(
            f"{steps[0].step.where}: {transfer.tensor}: its size is in no file: add one "
            "RunMetadata of the same job that has it"
        )
    return seen.most_common(1)[0][0]


def _last_before(keys: Iterable[Key], time: float, reference: Records) -> list[Key]:
    """Return of each node among some runs the last that began before a time, or its first."""
    last: dict[tuple[Device, str], Key] = {}
    for key in sorted(keys, key=lambda key: (reference.runs[key].begin, key)):
        if key[:2] not in last or reference.runs[key].begin < time:
            last[key[:2]] = key
    return sorted(last.values())


def _by_number(
    receivers: Iterable[Key], times: Sequence[float], reference: Records
) -> Mapping[int, list[Key]]:
    """Return the runs that wait for each arrival of a tensor: for the last one before them."""
    by_number: dict[int, list[Key]] = {}
    for key in sorted(receivers):
        before = sum(end <= reference.runs[key].begin for end in times)
        by_number.setdefault(max(before - 1, 0), []).append(key)
    return by_number
