"""An iteration of a script as a dataflow graph, of which other strategies can be asked.

Its tensors are followed as those of a captured model are (`graphs.capture.record`), and its ops and
their work are those of the recording. What the graph leaves out is what a strategy brings: the
collectives of process groups, and all micro-batches but the last, where they are equal.
"""

from __future__ import annotations

import contextlib
import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer

from paracosm.emulation.device.batch import batch_of_ops
from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.capture.record import Ledger, ModulePaths
from paracosm.graphs.file import save_graph
from paracosm.graphs.graph import PHASES, Graph, Op
from paracosm.profiling.datasheets import COUNTED, class_of

_WRAPPERS = re.compile(
    r"^(module\.|module$)+|_(?:orig_mod|fsdp_wrapped_module|checkpoint_wrapped_module)(?:\.|$)"
)


class StepGraph:
    """Follows the tensors of one iteration, and makes its graph."""

    def __init__(self) -> None:
        self._ledger: Ledger | None = None
        self._paths = ModulePaths(nn.Module())
        self._nodes: list[Node] = []
        self._chain = -1  # number of the node that a chain of compiled ops becomes
        self._written: dict[tuple[int, int], list[int]] = {}  # nodes, by storage and offset
        self._left_out: dict[str, int] = {}  # bytes of collectives by kind
        self._shards = 1  # ranks that have a part each of the gradients
        self._optimizers: list[Optimizer] = []
        self._before: list[tuple[weakref.ref[torch.UntypedStorage], str, int]] = []
        self._followed = contextlib.ExitStack()
        self._roots = _Roots()

    def meet(self, optimizer: Optimizer) -> None:
        """Say that an optimizer steps."""
        if all(known is not optimizer for known in self._optimizers):
            self._optimizers.append(optimizer)

    def begin(self, alive: Iterable[tuple[torch.UntypedStorage, str]]) -> None:
        """Follow all tensors from now on; of what is alive, it is said what it is for."""
        self._ledger = ledger = Ledger()
        for storage, kind in alive:
            held = _HELD.get(kind, "inputs")
            ledger.hold_storage(held, storage)
            self._before.append((weakref.ref(storage), held, storage.nbytes()))
        root = self._roots.largest()
        if root is not None:
            self._paths = ModulePaths(root)
            for name, part in root.named_modules():
                tensors = _on_device(part.parameters(recurse=False))
                ledger.belong(tensors, _WRAPPERS.sub("", name))
        self._followed.enter_context(self._paths.followed())
        self._followed.enter_context(ledger.resizing_followed())

    def add(
        self,
        op: Op,
        resource: str,
        phase: int,
        reads: Sequence[Any],
        writes: Sequence[Any],
        group: tuple[int, ...] = (),
    ) -> None:
        """Add a node."""
        if self._ledger is not None:
            number = self._new(op, resource, phase, group)
            self._book(number, reads, writes)

    def add_wait(self) -> None:
        """Add that the host waits for the node before."""
        if self._ledger is not None:
            number = self._new(Op("synchronize"), "host", PHASES.index("forward"))
            phase = self._nodes[number - 1].phase if number else "forward"
            waits = (number - 1,) if number else ()
            self._nodes[number] = self._nodes[number]._replace(phase=phase, dependencies=waits)

    def add_to_chain(self, phase: int, reads: Sequence[Any], writes: Sequence[Any]) -> None:
        """Add an op to the chain under way, which is one node."""
        if self._ledger is not None:
            if self._chain < 0:
                self._chain = self._new(Op(""), "compute", phase)
            self._book(self._chain, reads, writes)

    def end_chain(self, op: Op) -> None:
        if self._chain >= 0:
            self._nodes[self._chain] = self._nodes[self._chain]._replace(op=op)
            self._chain = -1

    def see(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Take note of views."""
        if self._ledger is not None:
            self._ledger.see(len(self._nodes) - 1, _on_device(inputs), _on_device(outputs))

    def leave_out(
        self,
        kind: str,
        size: int,
        ranks: int,
        phase: int,
        reads: Sequence[Any],
        writes: Sequence[Any],
    ) -> None:
        """Add a collective of a process group, which takes no time here: strategies have it."""
        if self._ledger is not None:
            if kind == "reduce_scatter":
                self._shards = max(self._shards, ranks)
            self._left_out[kind] = self._left_out.get(kind, 0) + size
            self.add(Op(f"left out: {kind}"), "host", phase, reads, writes)

    def save(self, path: Path, provenance: Mapping[str, Any]) -> None:
        """End the iteration, and write its graph.

        Raises:
            InputError: it shards gradients between ranks, or is not a forward pass, a backward pass
                and an update, or several of the first two.
        """
        save_graph(self.graph(provenance), path)

    def graph(self, provenance: Mapping[str, Any]) -> Graph:
        ledger = self._ledger
        assert ledger is not None
        if self._shards > 1:
            raise InputError(
                f"the script shards its gradients between {self._shards} ranks, and strategies do "
                "that themselves: capture it as one rank (--world-size 1)"
            )
        self._followed.close()
        ledger.close()
        step = _step_of(self._nodes)
        nodes = {number: self._nodes[number] for number in step.kept}
        allocates = {
            number: list(ledger.allocations(number)) for number in nodes if number not in step.moved
        }
        for number, size in self._kept_gradients(ledger, step):
            allocates.setdefault(number, []).append((size, -1))
        place = {number: place for place, number in enumerate(step.kept)}
        graph_nodes = [
            node._replace(
                id=place[number],
                phase=step.phases.get(number, node.phase),
                dependencies=_placed(node.dependencies, place, place[number]),
                allocates=tuple(
                    (size, place.get(last, place[number]) if last >= 0 else -1)
                    for size, last in allocates.get(number, ())
                ),
            )
            for number, node in nodes.items()
        ]
        forward = [node.op for node in graph_nodes if node.phase == "forward"]
        batch = batch_of_ops(forward)
        about = {
            **provenance,
            "device": "cuda",
            "microbatches": step.microbatches,
            **({} if batch is None else {"examples": batch.examples, batch.unit: batch.count}),
            **({"left_out": self._left_out} if self._left_out else {}),
        }
        return build_graph(
            graph_nodes, self._resident(), about, where="the iteration of the script"
        )

    def _new(self, op: Op, resource: str, phase: int, group: tuple[int, ...] = ()) -> int:
        number = len(self._nodes)
        node = Node(number, op, "", PHASES[phase], resource, group=group)
        self._nodes.append(node)
        return number

    def _book(self, number: int, reads: Sequence[Any], writes: Sequence[Any]) -> None:
        assert self._ledger is not None
        node = self._nodes[number]
        inputs, outputs = _on_device(reads), _on_device(writes)
        name = self._place(node.phase, inputs, outputs)
        waits = self._ledger.book(number, inputs, outputs, name)
        known = tuple(sorted({*node.dependencies, *waits}))
        self._nodes[number] = node._replace(name=node.name or name, dependencies=known)
        if node.phase == "backward":
            for tensor in outputs:
                self._written.setdefault(_key(tensor), []).append(number)

    def _place(self, phase: str, inputs: list[Tensor], outputs: list[Tensor]) -> str:
        """Return the module that a node belongs to."""
        if phase == "forward":
            return _WRAPPERS.sub("", self._paths.forward())
        if phase == "backward":
            return _WRAPPERS.sub("", self._paths.backward())
        assert self._ledger is not None
        return self._ledger.owner(outputs or inputs)

    def _parameters(self) -> list[Any]:
        groups = (group for optimizer in self._optimizers for group in optimizer.param_groups)
        return [parameter for group in groups for parameter in group["params"]]

    def _resident(self) -> dict[str, int]:
        """Return the bytes that are held throughout; gradients are made by nodes."""
        held = dict.fromkeys(("parameters", "optimizer", "buffers", "inputs"), 0)
        for storage, kind, size in self._before:
            if storage() is not None and kind in held:
                held[kind] += size
        return held

    def _kept_gradients(self, ledger: Ledger, step: _Step) -> Iterable[tuple[int, int]]:
        """Yield the node and the bytes of gradients in memory from before the backward pass.

        So are those that were set to zero instead of to None, that lie in the buckets of
        DistributedDataParallel, or to which micro-batches add theirs.
        """
        for gradient in _on_device(parameter.grad for parameter in self._parameters()):
            maker = ledger.maker(gradient)
            if maker is not None and maker in step.backward:
                continue
            writers = self._written.get(_key(gradient), ())
            first = next((number for number in writers if number in step.backward), None)
            if first is not None:
                yield first, gradient.numel() * gradient.element_size()


_HELD = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "collectives": "buffers",
}
"""What memory is for, as graphs name it; else it is inputs."""


class _Roots:
    """The modules that a script calls itself."""

    def __init__(self) -> None:
        self._depth = 0
        self._known: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        register_module_forward_pre_hook(self._entered)
        register_module_forward_hook(self._left, always_call=True)

    def largest(self) -> nn.Module | None:
        """Return that with most parameters."""
        return max(
            self._known, key=lambda root: sum(p.numel() for p in root.parameters()), default=None
        )

    def _entered(self, module: nn.Module, inputs: Any) -> None:
        if not self._depth:
            self._known.add(module)
        self._depth += 1

    def _left(self, module: nn.Module, inputs: Any, outputs: Any) -> None:
        self._depth -= 1


@dataclass(frozen=True)
class _Step:
    """What of an iteration the graph has."""

    kept: list[int]  # numbers of nodes, in the order of the graph
    moved: frozenset[int]  # of them, those that began the iteration and end the graph
    backward: range  # numbers of the nodes of the backward pass, others among them
    phases: Mapping[int, str]  # where it is another one than that of the node
    microbatches: int


def _step_of(nodes: Sequence[Node]) -> _Step:
    """Return one forward pass, one backward pass, and the update.

    An iteration ends with the step of the optimizer that steps first: what other optimizers do is
    at the beginning of the next one, and belongs to the end of this. What follows the last backward
    pass (clipping) is of the update.
    """
    phases = [node.phase for node in nodes]
    if "backward" not in phases:
        raise InputError("an iteration of the script has no backward pass")
    first = phases.index("backward")
    last = len(phases) - 1 - phases[::-1].index("backward")
    updates = [number for number in range(first) if phases[number] == "optimizer"]
    begin = updates[-1] + 1 if updates else 0
    if "optimizer" in phases[first:last]:
        raise InputError(
            "an iteration of the script updates parameters between backward passes, as two models "
            "in turn do: strategies know one backward pass and one update"
        )
    passes = _passes(phases[begin : last + 1], begin)
    work = [[_work(nodes, part) for part in one] for one in passes]
    equal = all(one == work[0] for one in work)
    chosen = passes[-1] if equal else (range(begin, first), range(first, last + 1))
    kept = [*chosen[0], *chosen[1], *range(last + 1, len(nodes)), *range(begin)]
    return _Step(
        kept=kept,
        moved=frozenset(range(begin)),
        backward=chosen[1],
        phases=dict.fromkeys([*range(last + 1, len(nodes)), *range(begin)], "optimizer"),
        microbatches=len(passes) if equal else 1,
    )


def _passes(phases: Sequence[str], begin: int) -> list[tuple[range, range]]:
    """Return the forward and the backward pass of each micro-batch."""
    passes, start, turn = list[tuple[range, range]](), begin, -1
    for number, phase in enumerate(phases, begin):
        if phase == "backward" and turn < 0:
            turn = number
        elif phase == "forward" and turn >= 0:
            passes.append((range(start, turn), range(turn, number)))
            start, turn = number, -1
    return [*passes, (range(start, turn), range(turn, begin + len(phases)))]


def _work(nodes: Sequence[Node], part: range) -> int:
    ops = (nodes[number].op for number in part)
    return sum(op.flops for op in ops if class_of(op.name) in COUNTED)


def _placed(dependencies: Iterable[int], place: Mapping[int, int], own: int) -> tuple[int, ...]:
    places = (place[dependency] for dependency in dependencies if dependency in place)
    return tuple(sorted(number for number in places if number < own))


def _on_device(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors on the device; of those that are spread over ranks, the own part."""
    local = (getattr(value, "_local_tensor", value) for value in values)
    return [value for value in local if isinstance(value, FakeTensor)]


def _key(tensor: Tensor) -> tuple[int, int]:
    return tensor.untyped_storage()._cdata, int(tensor.storage_offset())
