"""Storages through one step: who made them, who uses them, when they are freed.

A storage is known by its address. A weak reference keeps the address from being given anew, and
not the memory from being freed: a real step needs no more memory than without recording.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

_ALIVE = -1


@dataclass
class _Life:
    """Memory of one size, from the node that allocates it to the one after which it is freed."""

    size: int
    first: int
    last: int = _ALIVE


@dataclass
class _Entry:
    """What is known of one storage.

    `guards` keep the address and `watches` tell of the end, of the `holders` that are not freed:
    several where fake storages stand for one real one. `life` is None for memory that was there
    before the step. `owner` is the module whose parameter or state it is, else the one that made
    it; `readers` are the nodes that have read it since the last `writer`, `used` the last of all.

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
    """Books of all storages that are met in a step.

    `resident` are the bytes of those that were there before, by what they are.

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
        """Book tensors that are there before the step; those booked already stay what they are."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._entries:
                self._enter(storage, None, owner)
                self.resident[kind] += storage.nbytes()

    def owner(self, tensors: Iterable[Tensor]) -> str:
        """Return the innermost module that all these tensors belong to, if they do to any."""
        found = (self._entries.get(tensor.untyped_storage()._cdata) for tensor in tensors)
        owners = {entry.owner for entry in found if entry is not None and entry.owner}
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
        """Enter a node and return the nodes that it must wait for.

        Those are the last writers of all that it touches, and the readers since then of what it
        writes. What it writes and nobody knows is allocated by it, and belongs to `owner`; so does
        all that it writes where it `claims` that.
        """
        changed = {id(entry): entry for entry in self._known(writes, node, owner)}
        touched = {id(entry): entry for entry in self._known(reads)} | changed
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
        """Enter a node that shows what it sees in another way, and looks at no data.

        Fake tensors may show it in a storage of its own: that stands for the first one seen.
        """
        entries = self._known(seen)
        for tensor in shown:
            storage = tensor.untyped_storage()
            if storage._cdata not in self._entries and entries:
                self._watch(storage, entries[0])
                entries[0].holders += 1
        self._node = node

    @contextlib.contextmanager
    def resizing_followed(self) -> Iterator[None]:
        """Listen to storages that get and lose their memory beside the ops, as FSDP2's do."""
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
        """End the step: what is freed from now on was garbage since it was last used."""
        self._closed = True

    def allocations(self, node: int) -> tuple[tuple[int, int], ...]:
        """Return (bytes, last node) of all that a node allocated; -1 for what is still there."""
        return tuple((life.size, life.last) for life in self._lives.get(node, ()))

    def _known(
        self, tensors: list[Tensor], maker: int | None = None, owner: str = ""
    ) -> list[_Entry]:
        """Return the entries of tensors; unknown ones were made by `maker`, or there before."""
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
