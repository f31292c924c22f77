"""The collectives of an emulated group, under every name by which PyTorch calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp, Work

from paracosm.emulation.backend import checks, values
from paracosm.emulation.backend.runtime import GroupRuntime, Member, call_all
from paracosm.emulation.backend.work import AllOf

Tensors = list[Tensor]


class Collectives:
    """The methods that `torch.distributed`, DDP and functional collectives call.

    Arguments are those of `torch.distributed.ProcessGroup` and its overloads, under the names of
    PyTorch 2.13 and those before. `values` fills the outputs.
    """

    def __init__(self, runtime: GroupRuntime, member: Member) -> None:
        self._runtime = runtime
        self._member = member
        self._ranks = len(member.members)
        self._coalesced: list[Work] | None = None

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Work:
        return self._reduced("allreduce", _as_list(tensors), _op(opts))

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        return self._reduced("allreduce_coalesced", _as_list(tensors), _op(opts))

    def allreduce_sparse(self, tensors: Any, opts: Any = None) -> Work:
        raise self._runtime.refuse("all_reduce of a sparse tensor")

    def reduce(self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None) -> Work:
        op = _op(opts if op is None else op)
        return self._reduced("reduce", _as_list(tensors), op, self._root(opts))

    def reduce_scatter(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> Work:
        lists = input_tensors if isinstance(output_tensors, list) else [input_tensors]
        outputs = _as_list(output_tensors)
        library = self._check("reduce_scatter", outputs, chain(*lists), _op(opts))
        if library == "gloo" and any(len(tensors) != self._ranks for tensors in lists):
            raise RuntimeError("invalid input tensor list size, must be world size")
        inputs = self._of_all("reduce_scatter", lists)
        parts = [tensors[self._member.rank] for tensors in lists]
        return self._reduced_parts(outputs, inputs, parts, _op(opts))

    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        library = self._check("reduce_scatter", outputs, inputs, _op(opts))
        checks.check_scattered_rows(library, outputs, inputs, self._ranks)
        self._check_whole("reduce_scatter", inputs, outputs)
        tensors = [
            values.part(source, self._member.rank, output.numel())
            for output, source in zip(outputs, inputs, strict=True)
        ]
        return self._reduced_parts(outputs, inputs, tensors, _op(opts))

    def reduce_scatter_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_single_coalesced([output], [source], opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    _reduce_scatter_base = reduce_scatter_single

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> Work:
        """Leave tensors unchanged: the root's are the same."""
        tensors = _as_list(tensors)
        self._check("broadcast", [], tensors)
        return self._ask("broadcast", tensors, tensors, None, self._root(opts))

    def allgather(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> Work:
        lists = output_tensors if isinstance(input_tensors, list) else [output_tensors]
        inputs = _as_list(input_tensors)
        library = self._check("allgather", chain(*lists), inputs)
        checks.check_parts(library, "allgather", lists, inputs, self._ranks)
        return self._gathered("all_gather", lists, inputs)

    def allgather_coalesced(
        self, output_lists: list[Tensors], input_list: Tensors, opts: Any = None
    ) -> Work:
        lists = [list(of_all) for of_all in zip(*output_lists, strict=True)]
        self._check("allgather_coalesced", chain(*lists), input_list)
        return self._gathered("all_gather", lists, input_list)

    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        library = self._check("allgather_single", outputs, inputs)
        lists = [torch.chunk(output.detach(), self._ranks) for output in outputs]
        checks.check_parts(library, "allgather", lists, inputs, self._ranks)
        self._check_whole("all_gather", outputs, inputs)

        def fill() -> None:
            for output, source in zip(outputs, inputs, strict=True):
                values.repeat(output, source, self._ranks)

        return self._ask("all_gather", outputs, inputs, fill, size=_bytes(outputs))

    def all_gather_single(self, output: Tensor, source: Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([output], [source], opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _allgather_base = all_gather_single

    def gather(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> Work:
        lists = output_tensors if isinstance(input_tensors, list) else [output_tensors]
        root, inputs = self._root(opts), _as_list(input_tensors)
        at_root = lists if root == self._member.rank else []
        library = self._check("gather", chain(*at_root), inputs)
        checks.check_parts(library, "gather", at_root, inputs[: len(at_root)], self._ranks)
        return self._gathered("gather", at_root, inputs, root)

    def scatter(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> Work:
        """Take one's own part of what the root scatters, which is what this rank would."""
        outputs = _as_list(output_tensors)
        lists = input_tensors if isinstance(output_tensors, list) else [input_tensors]
        root, rank = self._root(opts), self._member.rank
        at_root = lists if root == rank else []
        library = self._check("scatter", outputs, chain(*at_root))
        checks.check_parts(library, "scatter", at_root, outputs[: len(at_root)], self._ranks)
        inputs = self._of_all("scatter", at_root)
        held = self._runtime.parts.held  # by PyTorch's functions that call this

        def fill() -> None:
            for i, output in enumerate(outputs):
                tensor = held[rank] if held is not None else self._runtime.sent.scattered(output)
                if root == rank:
                    tensor = lists[i][rank]
                    self._runtime.sent.keep_scattered(tensor)
                if tensor is not None:
                    values.copy(output, tensor)
                else:
                    self._runtime.note(_UNKNOWN)
                    self._runtime.sent.receive(output, self._member.members[root], -1)()

        size = self._ranks * _bytes(outputs)
        return self._ask("scatter", outputs, inputs, fill, root, size)

    def all_to_all_single(
        self,
        output: Tensor,
        source: Tensor,
        output_splits: list[int],
        input_splits: list[int],
        opts: Any = None,
        timeout: Any = None,
    ) -> Work:
        library = self._check("alltoall_base", [output], [source])
        for tensor, splits in ((output, output_splits), (source, input_splits)):
            checks.check_splits(library, tensor, splits, self._ranks)

        def fill() -> None:
            values.all_to_all_single(
                *(output, source, output_splits, input_splits), self._member.rank, self._ranks
            )

        return self._ask("all_to_all", [output], [source], fill)

    alltoall_base = all_to_all_single

    def alltoall(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None, timeout: Any = None
    ) -> Work:
        library = self._check("alltoall", outputs, inputs)
        checks.check_exchange(library, outputs, inputs, self._ranks)
        self._of_all("all_to_all", [outputs, inputs])

        def fill() -> None:
            values.all_to_all(outputs, inputs, self._member.rank)

        return self._ask("all_to_all", outputs, inputs, fill)

    def send(self, tensors: Tensors, peer: int, tag: int) -> Work:
        to = self._member.members[self._in_group(peer)]
        self._check("send", [], tensors)
        ends: list[Callable[[], None]] = []

        def fill() -> None:
            for tensor in tensors:
                ends.append(self._runtime.sent.keep(tensor, to))
                self._runtime.pass_on(tensor, to)

        return self._ask("send", [], tensors, fill, peer, on_end=partial(call_all, ends))

    def recv(self, tensors: Tensors, peer: int, tag: int) -> Work:
        self._check("recv", tensors, [])
        members = self._member.members
        source = members[self._in_group(peer)]
        mirror = members[(2 * self._member.rank - peer) % self._ranks]
        fills = [self._received(tensor, source, mirror) for tensor in tensors]
        size = _bytes(tensors)
        return self._ask("recv", tensors, [], None, peer, size, on_end=partial(call_all, fills))

    def _received(self, tensor: Tensor, source: int, mirror: int) -> Callable[[], None]:
        """Begin to receive a tensor, and return what fills it when that is waited for."""
        told = self._runtime.passed_on(tensor, source)
        if told is not None:
            return partial(values.copy, tensor, told)
        return self._runtime.sent.receive(tensor, source, mirror)

    def recv_anysource(self, tensors: Tensors, tag: int) -> Work:
        """Receive from the preceding rank, as in a ring."""
        return self.recv(tensors, (self._member.rank - 1) % self._ranks, tag)

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work:
        """Wait for all ranks; on CUDA only when the device has finished its work, as NCCL does."""
        if getattr(getattr(opts, "device", None), "type", "cpu") == "cuda":
            torch.cuda.current_stream().synchronize()
        return self._ask("barrier", [], [], None)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        self._ask("barrier", [], [], None).wait()

    def _start_coalescing(self, device: torch.device) -> None:
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> Work:
        works, self._coalesced = self._coalesced or [], None
        return AllOf(works)

    def _reduced(self, call: str, tensors: Tensors, op: Any, root: int = -1) -> Work:
        kind = "reduce" if call == "reduce" else "all_reduce"
        if any(tensor.layout != torch.strided for tensor in tensors):
            raise self._runtime.refuse(f"{kind} of a sparse tensor")
        self._check(call, tensors, tensors, op)

        def fill() -> None:
            for tensor in tensors:
                values.reduce(tensor, op, self._ranks)

        gets = root in (-1, self._member.rank)
        return self._ask(kind, tensors, tensors, fill if gets else None, root)

    def _reduced_parts(self, outputs: Tensors, inputs: Tensors, own: Tensors, op: Any) -> Work:

        def fill() -> None:
            for output, part in zip(outputs, own, strict=True):
                values.copy(output, part)
                values.reduce(output, op, self._ranks)

        return self._ask("reduce_scatter", outputs, inputs, fill)

    def _gathered(self, kind: str, lists: list[Tensors], inputs: Tensors, root: int = -1) -> Work:
        def fill() -> None:
            for tensors, source in zip(lists, inputs, strict=True):
                values.copy_to_all(tensors, source)

        outputs = self._of_all(kind, lists)
        size = _bytes(outputs) if lists else self._ranks * _bytes(inputs)
        return self._ask(kind, outputs, inputs, fill if lists else None, root, size)

    # What real libraries refuse is refused here: it would be cut or repeated.

    def _check(
        self, call: str, outputs: Iterable[Tensor], inputs: Iterable[Tensor], op: Any = None
    ) -> str:
        """Refuse what the library of the tensors does not take; return which one that is."""
        gets, gives = list(outputs), list(inputs)
        device = next((tensor.device.type for tensor in (*gets, *gives)), "cpu")
        where = "cuda" if self._runtime.cpu_is_cuda else device
        library = checks.library_of(self._member.asked, where)
        checks.check(library, call, gets, gives, op)
        return library

    def _root(self, opts: Any) -> int:
        return self._in_group(0 if opts is None else getattr(opts, "rootRank", opts))

    def _in_group(self, rank: int) -> int:
        if not 0 <= rank < self._ranks:
            raise RuntimeError(f"there is no rank {rank} in a group of {self._ranks}")
        return rank

    def _of_all(self, kind: str, lists: list[Tensors]) -> Tensors:
        """Return the tensors of lists that have one for each rank."""
        for tensors in lists:
            if len(tensors) != self._ranks:
                raise RuntimeError(
                    f"{kind}: a list of {len(tensors)} tensors in a group of {self._ranks} ranks"
                )
        return [tensor for tensors in lists for tensor in tensors]

    def _check_whole(self, kind: str, wholes: Tensors, parts: Tensors) -> None:
        for whole, part in zip(wholes, parts, strict=True):
            if whole.numel() != self._ranks * part.numel() or whole.dtype != part.dtype:
                raise RuntimeError(
                    f"{kind}: {whole.numel()} numbers of {whole.dtype} are not {self._ranks} times "
                    f"{part.numel()} of {part.dtype}"
                )

    def _ask(
        self,
        kind: str,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        fill: Callable[[], None] | None,
        peer: int = -1,
        size: int = -1,
        on_end: Callable[[], None] | None = None,
    ) -> Work:
        size = _bytes(inputs) if size < 0 else size
        work = self._runtime.ask(
            *(self._member, kind, size),
            peer=peer,
            inputs=inputs,
            outputs=outputs,
            fill=fill,
            on_end=on_end,
        )
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work


_UNKNOWN = (
    "a scatter from an emulated rank gave small noise (0 for integers): only its root has what it "
    "scatters"
)


def _as_list(tensors: Any) -> Tensors:
    return [tensors] if isinstance(tensors, Tensor) else tensors


def _op(opts: Any) -> Any:
    return ReduceOp.SUM if opts is None else getattr(opts, "reduceOp", opts)


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
