"""What recorded ranks tell one another in small messages, from one recording to the next.

Ranks are recorded one after the other. What one of them sends and the host knows (the shapes that
stages of a pipeline tell each other, flags, numbers) is kept in a file, and the ranks that are
recorded later receive it. A message is told by its number among those between two ranks.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Messages:
    """The messages of one rank: those that it sends, and those that were sent to it before."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.assumes: set[int] = set()  # ranks whose messages were assumed
        self._is_waiting = False
        self._folder, self._rank = folder, rank
        self._sent: dict[str, dict[str, Any]] = {}  # by target and number
        self._counts: Counter[tuple[str, int]] = Counter()
        self._of_sources: dict[int, dict[str, Any]] = {}

    def send(self, target: int, value: Tensor | None) -> None:
        """Note a message to another rank, and its value if that is known."""
        number = self._numbered("to", target)
        if value is not None:
            self._sent.setdefault(str(target), {})[number] = _as_json(value)

    def receive(self, source: int, like: Tensor) -> Tensor | None:
        """Return the value of the next message of another rank; None where nobody knows it."""
        dtype, shape, content = self._of(source).get(self._numbered("from", source), ("", [], ""))
        if dtype != _dtype(like) or shape != list(like.shape):
            return None
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():
            data = torch.frombuffer(bytearray.fromhex(content), dtype=torch.uint8)
            return data.view(like.dtype).reshape(like.shape)

    def has_next(self, source: int) -> bool:
        """Whether the value of the next message of another rank is known."""
        return str(self._counts["from", source]) in self._of(source)

    def expect(self, source: int, values: Sequence[Tensor]) -> None:
        """Let the next messages of another rank be these."""
        first = self._counts["from", source]
        of_source = self._of(source)
        of_source.update(
            {str(first + place): _as_json(value) for place, value in enumerate(values)}
        )

    def wait_for(self, source: int) -> bool:
        """Say that this rank cannot go on before another one was recorded.

        Return False where that one was, or itself could not go on.
        """
        if _file(self._folder, source).exists() or _wish(self._folder, source).exists():
            return False
        _wish(self._folder, self._rank).write_text(str(source), encoding="utf-8")
        self._is_waiting = True
        return True

    def save(self) -> None:
        """Hand what this rank has sent to those that are recorded later."""
        if self._is_waiting:
            return
        about = {"sent": self._sent, "assumes": sorted(self.assumes)}
        _file(self._folder, self._rank).write_text(json.dumps(about), encoding="utf-8")

    def _numbered(self, way: str, other: int) -> str:
        number = self._counts[way, other]
        self._counts[way, other] += 1
        return str(number)

    def _of(self, source: int) -> dict[str, Any]:
        if source not in self._of_sources:
            path = _file(self._folder, source)
            sent = json.loads(path.read_text(encoding="utf-8"))["sent"] if path.exists() else {}
            self._of_sources[source] = sent.get(str(self._rank), {})
        return self._of_sources[source]


def awaited_rank(folder: Path, rank: int) -> int | None:
    """Return the rank that another one waits for, which ended early because of that, if it did."""
    path = _wish(folder, rank)
    if _file(folder, rank).exists() or not path.exists():
        return None
    return int(path.read_text(encoding="utf-8"))


def assumed_sources(folder: Path, rank: int) -> list[int]:
    """Return the ranks whose messages a recorded one has assumed."""
    path = _file(folder, rank)
    if not path.exists():
        return []
    return list(json.loads(path.read_text(encoding="utf-8"))["assumes"])


def _as_json(value: Tensor) -> list[Any]:
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        data = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return [_dtype(value), list(value.shape), bytes(data.numpy().tobytes()).hex()]


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _file(folder: Path, rank: int) -> Path:
    return folder / f"messages{rank}.json"


def _wish(folder: Path, rank: int) -> Path:
    return folder / f"waits{rank}"
