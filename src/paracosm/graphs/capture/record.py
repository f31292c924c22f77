"""A training step, run once: every op that PyTorch dispatches below autograd, as a graph."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.capture.calls import (
    Effects,
    effects_of,
    encode_call,
    flops_of,
    group_of,
    is_view,
    resource_of,
    sparse_ones,
    strided_parts,
    traffic_of,
)
from paracosm.graphs.capture.fake import fake_tensors, make_fake
from paracosm.graphs.capture.options import CaptureOptions
from paracosm.graphs.capture.step import (
    TrainingStep,
    make_step,
    resolved,
    simulated_ranks,
    try_out,
)
from paracosm.graphs.graph import Graph, Op


def capture_fake(options: CaptureOptions) -> Graph:
    if options.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device: PyTorch has no CUDA here, capture for cpu")
    with simulated_ranks(options) as share, fake_tensors() as mode:
        with _silent():
            step = make_step(options, options.device, share, functools.partial(make_fake, mode))
            try_out(step, options)
        return record(step, options.device, _provenance(options, step))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep PyTorch from logging the traceback of a failure that is reported in one line."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    was_disabled, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was_disabled


def _provenance(options: CaptureOptions, step: TrainingStep) -> dict[str, Any]:
    return {
        **resolved(options),
        "examples": step.workload.examples,
        "framework": f"torch {torch.__version__.split('+')[0]}",
        "source": "torch dispatch",
    }


def record(
    step: TrainingStep, device: str = "cpu", provenance: Mapping[str, Any] | None = None
) -> Graph:
    """Run `step` once and return its graph.

    A step that has run before has its optimizer's state, as all but the first have. Works on real
    tensors and under fake ones.
    """
    ledger = Ledger()
    step.drop_gradients()
    _hold_residents(ledger, step)
    paths = ModulePaths(step.workload.module)
    recorder = Recorder(ledger, paths, device)
    was_enabled = gc.isenabled()
    gc.disable()  # so that memory is freed by reference counts alone, at the same op every time
    try:
        with paths.followed(), ledger.resizing_followed(), recorder:
            step.run(recorder.enter)
    finally:
        if was_enabled:
            gc.enable()
    ledger.close()
    gc.collect(0)  # all that the step left behind is young
    return build_graph(
        recorder.nodes(), ledger.resident, provenance or {}, where=f"the step on {device}"
    )


def _hold_residents(ledger: Ledger, step: TrainingStep) -> None:
    module = step.workload.module
    owners = owners_of(module)
    for parameter, owner in owners.items():
        ledger.hold("parameters", [_local(parameter)], owner)
        if parameter.grad is not None:
            ledger.hold("gradients", [_local(parameter.grad)], owner)
    ledger.hold("buffers", (_local(buffer) for buffer in module.buffers()))
    if step.optimizer is not None:
        for parameter, state in step.optimizer.state.items():
            tensors = (_local(value) for value in state.values() if isinstance(value, Tensor))
            ledger.hold("optimizer", strided_parts(tensors), owners.get(parameter, ""))
    inputs = (value for value in step.workload.inputs if isinstance(value, Tensor))
    ledger.hold("inputs", (_local(value) for value in inputs))


def _local(tensor: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    with torch.no_grad():
        return tensor.to_local() if isinstance(tensor, DTensor) else tensor


# Questions about metadata, and marks for PyTorch's profiler: nothing that is computed.
_IGNORED = frozenset({"prim", "profiler"})
_SHARING = frozenset({"fsdp", "c10d"})  # what FSDP2 gathers and scatters with
_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records a node for every op; tensor subclasses are followed into the ops that they make."""

    def __init__(self, ledger: Ledger, paths: ModulePaths, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ledger = ledger
        self._paths = paths
        self._device = device
        self._phase = "other"
        self._nodes: list[Node] = []

    def enter(self, phase: str) -> None:
        self._phase = phase

    def nodes(self) -> Iterator[Node]:
        for node in self._nodes:
            yield node._replace(allocates=self._ledger.allocations(node.id))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not all(kind in _PLAIN for kind in types):
            return NotImplemented  # a DTensor or the like turns into ops on plain tensors
        kwargs = kwargs or {}
        if func.namespace in _IGNORED:
            return func(*args, **kwargs)
        arguments = encode_call(func, args, kwargs, self._device)  # before it changes any
        path = self._module_path()
        outputs = _run(func, args, kwargs)
        self._note(func, args, kwargs, outputs, arguments, path)
        return outputs

    def _note(
        self, func: Any, args: Any, kwargs: dict[str, Any], outputs: Any, arguments: str, path: str
    ) -> None:
        effects = effects_of(func, args, kwargs, outputs)
        number = len(self._nodes)
        path = self._path_by_data(func, effects) or path
        if idle := is_view(func, effects):
            self._ledger.see(number, effects.inputs, effects.outputs)
            waits: tuple[int, ...] = ()
        else:
            written = effects.mutated + effects.fresh
            claims = func.namespace in _SHARING
            waits = self._ledger.book(number, effects.inputs, written, path, claims)
        resource = resource_of(func, effects, self._device)
        read, wrote = (0, 0) if resource == "host" else traffic_of(func, effects)
        op = Op(
            name=str(func),
            arguments=arguments,
            flops=0 if idle else flops_of(func, args, kwargs, outputs, effects),
            bytes_read=read,
            bytes_written=wrote,
        )
        self._nodes.append(
            Node(
                id=number,
                op=op,
                name=path,
                phase=self._phase,
                resource=resource,
                dependencies=waits,
                group=group_of(func, args, kwargs) if resource == "communication" else (),
            )
        )

    def _module_path(self) -> str:
        if self._phase == "backward":
            return self._paths.backward()
        return self._paths.forward() if self._phase == "forward" else ""

    def _path_by_data(self, func: Any, effects: Effects) -> str:
        """Return the module whose parameters an op of the optimizer, or a gather, uses."""
        if func.namespace in _SHARING:
            changed = {id(tensor) for tensor in effects.mutated}
            return self._ledger.owner(t for t in effects.inputs if id(t) not in changed)
        if self._phase == "optimizer":
            return self._ledger.owner(effects.mutated or effects.inputs)
        return ""


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an op, preserving the rows of sparse results that fake tensors lose.

    How many rows of an embedding's gradient are equal depends on values: all are taken to
    differ.
    """
    packet = str(func.overloadpacket)
    if (keeps := _KEEPS_ROWS.get(packet)) and isinstance(args[0], FakeTensor):
        kept = keeps(*args)
        if kept is not None:
            return kept
    held = [tensor._nnz() for tensor in sparse_ones((args, kwargs.values()))]
    outputs = func(*args, **kwargs)
    grows = packet == "aten.add_" and sparse_ones(args[0])
    if grows or (any(held) and not all(tensor._nnz() for tensor in sparse_ones(outputs))):
        raise InputError(
            f"{func}: how many rows it makes of sparse gradients depends on their values: capture "
            "knows sgd without momentum, and adagrad"
        )
    return outputs


def _copied(sparse: Tensor, coalesced: bool = False) -> Tensor | None:
    if sparse.layout is torch.strided:
        return None
    rows, values = sparse._indices().clone(), sparse._values().clone()
    copy = torch.sparse_coo_tensor(rows, values, sparse.shape, check_invariants=False)
    return copy._coalesced_(coalesced)


def _gradient_of_bag(grad: Tensor, indices: Tensor, *rest: Any) -> Tensor | None:
    *_, rows, _, _, sparse = rest[:8]
    if not sparse:
        return None
    values, shape = grad.new_empty(len(indices), grad.shape[1]), (rows, grad.shape[1])
    return torch.sparse_coo_tensor(indices[None], values, shape, check_invariants=False)


_KEEPS_ROWS: Mapping[str, Callable[..., Tensor | None]] = {
    "aten.clone": _copied,
    "aten._coalesce": lambda sparse: _copied(sparse, coalesced=True),
    "aten.sparse_mask": lambda dense, mask: _copied(mask, coalesced=True),
    "aten._embedding_bag_backward": _gradient_of_bag,
}

_peek: Any = torch._C._autograd._get_sequence_nr
_current_node: Any = torch._C._current_autograd_node


class ModulePaths:
    """Follows the modules of a model by their names.

    Autograd numbers its nodes as forward ops are issued, and runs a node's backward ops while that
    node is the current one: the number leads from a gradient back to its module.
    """

    def __init__(self, model: nn.Module) -> None:
        self._names = {module: name for name, module in model.named_modules()}
        self._owners = owners_of(model)
        self._inside: list[str] = []
        self._of_node: dict[int, str] = {}
        self._numbered = _peek()

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        before = register_module_forward_pre_hook(self._module_entered)
        after = register_module_forward_hook(self._module_left, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def forward(self) -> str:
        """Return the innermost running module, and record it for the nodes numbered since."""
        name = self._inside[-1] if self._inside else ""
        number = _peek()
        for node in range(self._numbered, number):
            self._of_node[node] = name
        self._numbered = number
        return name

    def backward(self) -> str:
        """Return the module whose gradient is being computed; "" if autograd does not tell."""
        node = _current_node()
        if node is None:
            return ""
        parameter = getattr(node, "variable", None)  # of a node that accumulates its gradient
        if parameter is not None:
            return self._owners.get(parameter, "")
        return self._of_node.get(node._sequence_nr(), "")

    def _module_entered(self, module: nn.Module, inputs: Any) -> None:
        self._inside.append(self._names.get(module, self._inside[-1] if self._inside else ""))

    def _module_left(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        if self._inside:
            self._inside.pop()


def owners_of(model: nn.Module) -> dict[Tensor, str]:
    """Return each parameter with the name of the first module that has it."""
    owners: dict[Tensor, str] = {}
    for name, part in model.named_modules():
        for parameter in part.parameters(recurse=False):
            owners.setdefault(parameter, name)
    return owners


_ALIVE = -1


@dataclass
class _Life:
    """Memory of one size, from the node that allocates it to the one after which it is freed."""

    size: int
    first: int
    last: int = _ALIVE


@dataclass
class _Entry:
    """One storage.

    `guards` keep the address and `watches` signal the end of the `holders` that are not freed:
    several if fake storages stand for one real one. `life` is None for memory from before the step.
    `owner` is the module whose parameter or state it is, else the one that made it; `readers` are
    the nodes that have read it since the last `writer`, `used` the last of all.
    """

    guards: list[StorageWeakRef]
    watches: list[weakref.ref[object]]
    life: _Life | None
    owner: str = ""
    holders: int = 1
    writer: int = -1
    readers: list[int] = field(default_factory=list)
    used: int = -1


class Ledger:
    """The storages of a step.

    `resident` are the bytes of those from before the step, by kind.
    """

    def __init__(self) -> None:
        self.resident = dict.fromkeys(
            ("parameters", "gradients", "optimizer", "buffers", "inputs"), 0
        )
        self._node = -1  # the last one that was booked
        self._entries: dict[int, _Entry] = {}
        self._lives: dict[int, list[_Life]] = {}
        self._closed = False

    def hold(self, kind: str, tensors: Iterable[Tensor], owner: str = "") -> None:
        """Add tensors from before the step; known ones keep their kind."""
        for tensor in tensors:
            self.hold_storage(kind, tensor.untyped_storage(), owner)

    def hold_storage(self, kind: str, storage: torch.UntypedStorage, owner: str = "") -> None:
        if storage._cdata not in self._entries:
            self._enter(storage, None, owner)
            self.resident[kind] += storage.nbytes()

    def belong(self, tensors: Iterable[Tensor], owner: str) -> None:
        """Say which module known tensors belong to, unless another one has them."""
        for tensor in tensors:
            entry = self._entries.get(tensor.untyped_storage()._cdata)
            if entry is not None:
                entry.owner = entry.owner or owner

    def maker(self, tensor: Tensor) -> int | None:
        """Return the node that allocated a tensor's memory; None where it is from before."""
        entry = self._entries.get(tensor.untyped_storage()._cdata)
        return None if entry is None or entry.life is None else entry.life.first

    def owner(self, tensors: Iterable[Tensor]) -> str:
        """Return the innermost module that all these tensors belong to, if any."""
        entries = (self._entries.get(tensor.untyped_storage()._cdata) for tensor in tensors)
        owners = {entry.owner for entry in entries if entry is not None and entry.owner}
        levels = zip(*(owner.split(".") for owner in owners), strict=False)
        return ".".join(names[0] for names in takewhile(lambda names: len({*names}) == 1, levels))

    def book(
        self,
        node: int,
        reads: list[Tensor],
        writes: list[Tensor],
        owner: str = "",
        claims: bool = False,
    ) -> tuple[int, ...]:
        """Add a node and return the nodes that it must wait for.

        Those are the last writers of all that it touches, and the readers since then of what it
        writes. Unknown storages that it writes are allocated by it, and belong to `owner`, as does
        everything that it writes if it `claims` that.
        """
        changed = {id(entry): entry for entry in self._entries_of(writes, node, owner)}
        touched = {id(entry): entry for entry in self._entries_of(reads)} | changed
        waits: set[int] = set()
        for key, entry in touched.items():
            waits.add(entry.writer)
            if key in changed:
                waits.update(entry.readers)
                entry.writer, entry.readers = node, []
                if claims:
                    entry.owner = owner
            else:
                entry.readers.append(node)
            entry.used = node
        self._node = node
        return tuple(sorted(waits - {-1, node}))

    def see(self, node: int, seen: list[Tensor], shown: list[Tensor]) -> None:
        """Add a node that returns a view, and reads no data.

        Fake tensors may have the view in a storage of its own: it is merged with the first one.
        """
        entries = self._entries_of(seen)
        for tensor in shown:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._entries and entries:
                self._watch(storage, entries[0])
                entries[0].holders += 1
        self._node = node

    @contextlib.contextmanager
    def resizing_followed(self) -> Iterator[None]:
        """Watch storages that get and lose their memory outside of ops, as FSDP2's do."""
        resize = torch.UntypedStorage.resize_

        def resize_and_tell(storage: torch.UntypedStorage, size: int) -> object:
            before = storage.nbytes()
            result = resize(storage, size)
            self._resized(storage, before, size)
            return result

        torch.UntypedStorage.resize_ = resize_and_tell  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign]

    def close(self) -> None:
        """End the step: what is freed from now on was garbage since its last use."""
        self._closed = True

    def allocations(self, node: int) -> tuple[tuple[int, int], ...]:
        """Return (bytes, last node) of all that a node allocated; -1 for what is not freed."""
        return tuple((life.size, life.last) for life in self._lives.get(node, ()))

    def _entries_of(
        self, tensors: list[Tensor], maker: int | None = None, owner: str = ""
    ) -> list[_Entry]:
        """Return the entries of tensors; new ones were made by `maker`, or are from before."""
        entries = []
        for tensor in tensors:
            storage = tensor.untyped_storage()
            entry = self._entries.get(storage._cdata)
            if entry is None:
                life = None if maker is None else self._begin(maker, storage.nbytes())
                entry = self._enter(storage, life, owner)
                if life is None:
                    self.resident["inputs"] += storage.nbytes()
            entries.append(entry)
        return entries

    def _enter(self, storage: torch.UntypedStorage, life: _Life | None, owner: str) -> _Entry:
        entry = _Entry([], [], life, owner)
        self._watch(storage, entry)
        return entry

    def _watch(self, storage: torch.UntypedStorage, entry: _Entry) -> None:
        self._entries[storage._cdata] = entry
        entry.guards.append(StorageWeakRef(storage))  # type: ignore[no-untyped-call]
        entry.watches.append(weakref.ref(storage, lambda _: self._freed(entry)))

    def _begin(self, node: int, size: int) -> _Life:
        life = _Life(size, node)
        self._lives.setdefault(node, []).append(life)
        return life

    def _freed(self, entry: _Entry) -> None:
        entry.holders -= 1
        if not entry.holders:
            self._end(entry, entry.used if self._closed else self._node)

    def _end(self, entry: _Entry, node: int) -> None:
        if entry.life is not None:
            entry.life.last = max(node, entry.life.first)
            entry.life = None

    def _resized(self, storage: torch.UntypedStorage, before: int, after: int) -> None:
        entry = self._entries.get(storage._cdata)
        if entry is None:
            entry = self._enter(storage, None, "")
            self.resident["inputs"] += before
        self._end(entry, self._node)
        if after:
            entry.life = self._begin(self._node + 1, after)
