"""Every op of a real iteration, timed where it stands.

It is no way to predict anything, since the model has to run: it shows where a prediction errs. What
the ops take in place, less what they take alone, is due to caches and the allocator; the iteration,
less what its ops take in place, are the gaps between them: Python, autograd, dispatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from paracosm.profiling.environment import Clock

_IGNORED = frozenset({"prim", "profiler"})  # as in a capture


def time_in_situ(run: Callable[[], object], clock: Clock) -> tuple[tuple[str, ...], list[float]]:
    """Run an iteration and return the names of its ops and the seconds of each, in their order.

    The order is that of the captured graph, so entry i belongs to its row i.
    """
    mode = _TimingMode(clock)
    with mode:
        run()
    return tuple(mode.names), mode.seconds


class _TimingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, clock: Clock) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []
        self.seconds: list[float] = []
        self._clock = clock

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[Any],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _IGNORED:
            return func(*args, **kwargs)
        result: list[Any] = []

        def call() -> None:
            result.append(func(*args, **kwargs))

        self.seconds.append(self._clock.seconds(call))
        self.names.append(str(func))
        return result[0]
