"""Handles of collectives under way: what `async_op=True` returns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch.distributed import Work

from paracosm.emulation.backend.threads import Completion, Sleeper
from paracosm.emulation.ports import Span

_TIME_TO_WRITE = 5e-3  # seconds: a wait so long has room for a bundle of records


@dataclass(frozen=True)
class Waiting:
    sleeper: Sleeper
    completion: Completion  # completes futures
    before_long: Callable[[], None]  # called before a wait that has room for it
    on_wait: Callable[[float, float], None]  # called with begin and end of each wait


class WaitedWork(Work):
    """What all handles have in common: synchronising is waiting, and completion is success."""

    def synchronize(self) -> None:
        self.wait()

    block_current_stream = synchronize

    def is_success(self) -> bool:
        return self.is_completed()


class EmulatedWork(WaitedWork):
    """Done at its deadline.

    Waiting sleeps in the caller's thread, which is exact; only a future needs another thread to
    complete it.
    """

    def __init__(
        self,
        waiting: Waiting,
        span: Span,  # of the collective, which is done at its end; that may still move
        outputs: Sequence[Tensor],  # the result, as a future has it
        source: int,  # rank in the group of the sender, of a message
    ) -> None:
        super().__init__()
        self._waiting = waiting
        self._span = span
        self._outputs = list(outputs)
        self._source = source
        self._lock = threading.Lock()
        self._future: torch.futures.Future[Any] | None = None
        self._sooner: threading.Event | None = None
        self._is_aborted = self._is_set = False
        self.on_end: Callable[[], None] | None = None  # called once, before anybody sees the end

    def wait(self, timeout: timedelta | None = None) -> bool:
        begin = time.monotonic()
        if begin < self._deadline:
            if self._deadline - begin > _TIME_TO_WRITE:
                self._waiting.before_long()
            self._sleep()
            self._waiting.on_wait(begin, time.monotonic())
        self._complete()
        if self._future is not None:
            self._future.wait()  # another thread may be about to complete it
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        with self._lock:
            if self._future is not None:
                return self._future
            self._future = torch.futures.Future()
        self._come_due()
        return self._future

    def get_future_result(self) -> torch.futures.Future[Any]:
        return self.get_future().then(lambda future: 0)

    def is_completed(self) -> bool:
        if time.monotonic() < self._deadline:
            return False
        self._end()
        return True

    def exception(self) -> BaseException | None:
        return None

    def result(self) -> list[Tensor]:
        return self._outputs

    def abort(self) -> None:
        self._is_aborted = True
        self._come_due()

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank

    @property
    def _deadline(self) -> float:
        return 0.0 if self._is_aborted else self._span.done

    def _sleep(self) -> None:
        self._span.on_earlier = self._be_earlier
        while True:
            with self._lock:
                sooner = self._sooner = self._sooner or threading.Event()
            if (deadline := self._deadline) <= time.monotonic():
                return
            self._waiting.sleeper.until(deadline, sooner.wait)

    def _be_earlier(self) -> None:
        with self._lock:
            if self._sooner is not None:
                self._sooner.set()
                self._sooner = None
        if self._future is not None:  # not here: what waits for it may ask for more
            self._call_at(self._deadline)

    def _come_due(self) -> None:
        """Complete the future now or at the deadline, which may move meanwhile."""
        if (deadline := self._deadline) > time.monotonic():
            self._span.on_earlier = self._be_earlier
            self._call_at(deadline)
        else:
            self._complete()

    def _call_at(self, deadline: float) -> None:
        def due() -> None:  # called a little before: by the time that waking up takes
            if self._deadline > deadline:
                self._come_due()
            else:
                self._complete()

        self._waiting.completion.at(deadline, due)

    def _end(self) -> None:
        with self._lock:
            on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()

    def _complete(self) -> None:
        self._end()
        with self._lock:
            future = self._future
            if future is None or self._is_set:
                return
            self._is_set = True
        # not under the lock: a future runs what waits for it here and now
        future.set_result(self._outputs)


class MeasuredWork(EmulatedWork):
    """Done at once, where computing alone is measured; records each wait for it."""

    def __init__(
        self, waiting: Waiting, outputs: Sequence[Tensor], source: int, now: Callable[[], float]
    ) -> None:
        super().__init__(waiting, Span(0, 0.0, 0.0), outputs, source)
        self._now = now

    def wait(self, timeout: timedelta | None = None) -> bool:
        begin = self._now()
        done = super().wait(timeout)
        self._waiting.on_wait(begin, self._now())
        return done


class AllOf(WaitedWork):
    """Done when all of several are: the result of a coalescing block."""

    def __init__(self, works: Sequence[Work]) -> None:
        super().__init__()
        self._works = list(works)

    def wait(self, timeout: timedelta | None = None) -> bool:
        for work in self._works:
            work.wait()
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        futures = [work.get_future() for work in self._works]
        return torch.futures.collect_all(futures).then(
            lambda done: [tensor for each in done.value() for tensor in each.value()]
        )

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def result(self) -> list[Tensor]:
        return [tensor for work in self._works for tensor in work.result()]
