"""What surrounds the ops of a script on a CPU: work of the host, and what its cache still holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from torch import Tensor

from paracosm.emulation.device.recording import Context, RecordingWriter, reuse_index


class Surroundings:
    """Follows what surrounds ops on a CPU: ops of the host alone, and what is still in its cache.

    Data is in a cache if less than its size was in use since it was last used, itself included
    (Mattson et al., "Evaluation techniques for storage hierarchies", 1970).
    """

    def __init__(self, writer: RecordingWriter) -> None:
        self._writer = writer
        self._in_use: OrderedDict[int, int] = OrderedDict()  # bytes by storage, the latest last
        self._begin()

    def _begin(self) -> None:
        self._of_host = [0, 0]
        self._reuse: dict[int, dict[int, int]] = {}

    def iteration_ended(self) -> None:
        outside, inside = self._of_host
        self._writer.context = Context((outside, inside), self._reuse)
        self._begin()

    def op(
        self, code: int, in_optimizer: bool, inputs: Iterable[Tensor], outputs: Iterable[Tensor]
    ) -> None:
        """Take an op; its code is -1 where only the host sees it."""
        if code < 0:
            self._of_host[int(in_optimizer)] += 1
            return
        read = [(tensor.untyped_storage()._cdata, _size(tensor)) for tensor in inputs]
        of_op = self._reuse.setdefault(code, {})
        for storage, size in read:
            index = reuse_index(self._between(storage, size))
            of_op[index] = of_op.get(index, 0) + size
        for storage, size in (*read, *((t.untyped_storage()._cdata, _size(t)) for t in outputs)):
            held = self._in_use.pop(storage, 0)
            self._in_use[storage] = max(size, held)

    def _between(self, storage: int, size: int) -> int:
        """Return the bytes in use since a storage was, its own included."""
        if storage not in self._in_use:
            return _FAR
        for other in reversed(self._in_use):
            if other == storage or size >= _FAR:
                break
            size += self._in_use[other]
        return size


_FAR = 64 << 20


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
