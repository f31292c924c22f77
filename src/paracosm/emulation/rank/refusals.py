"""Refuse by name what a script asks of other ranks that is not emulated, instead of waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, NoReturn

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.rank.call_site import NOWHERE, call_site
from paracosm.emulation.rank.on_import import on_import
from paracosm.emulation.records import Note, RecordWriter

PATIENCE = timedelta(seconds=8)  # for keys of a store that another rank may set


def refuse_what_needs_peers(config: EmulateConfig, recorder: RecordWriter) -> None:
    """Make remote procedure calls fail at once, and waits for peers' keys after `PATIENCE`.

    Keys that the emulator sets arrive within that time. A loop that asks a store again and again,
    as for a counter, is such a wait, too. With several real ranks, one may wait for another without
    limit.
    """
    on_import("torch.distributed.rpc", _refuse_calls)
    on_import("torch.distributed._dist2", _refuse_groups)
    if len(config.rank) == 1:
        polls = _Polls(recorder)
        for name in _BLOCKING:
            call = _impatient(getattr(Store, name), name)
            setattr(Store, name, polls.watched(call, name))
        for name in _POLLED:
            setattr(Store, name, polls.watched(getattr(Store, name), name))


_BLOCKING = ("wait", "get", "multi_get", "queue_pop")
_POLLED = ("add", "check", "compare_set", "num_keys", "queue_len")
# A loop does more than wait where it computes between two questions for this many seconds; each of
# them makes up for this many of waiting. A single one may be the machine's: other programs' time.
_WORK, _WORTH = 1e-3, 20.0


class _Polls:
    """Notices loops that wait for other ranks: the same question and answer, and nothing between.

    What counts as something is a collective, the end of an iteration, or computing.
    """

    def __init__(self, recorder: RecordWriter) -> None:
        self._recorder = recorder
        self._loops: dict[Any, _Loop] = {}

    def watched(self, call: Callable[..., Any], name: str) -> Callable[..., Any]:
        @wraps(call)
        def asking(store: Any, *arguments: Any, **options: Any) -> Any:
            where = call_site()
            # PyTorch asks for itself, and a thread that watches holds up nobody.
            if not where or threading.current_thread() is not threading.main_thread():
                return call(store, *arguments, **options)
            question = id(store), name, where, repr((arguments, options))
            loop = self._loops.get(question)
            if loop is None or not loop.goes_on(self._recorder.count):
                loop = self._loops[question] = _Loop()
            if loop.waited > PATIENCE.total_seconds():
                loop.refuse(name, arguments, where)
            answer: Any = None
            try:
                answer = call(store, *arguments, **options)
                return answer
            finally:
                loop.answered(answer, self._recorder.count)

        return asking


class _Loop:
    """A question that is asked again and again, with one answer."""

    def __init__(self) -> None:
        self.waited = 0.0  # seconds
        self._at, self._computed, self._count = time.monotonic(), 0.0, 0
        self._answer: Any = None
        self._is_asked = self._is_refused = False

    def goes_on(self, count: int) -> bool:
        """Count the time since the last answer, unless there has been a collective since then."""
        if count != self._count:
            return False
        computed = time.thread_time() - self._computed
        self._pass(0.0 if computed < _WORK else computed * _WORTH)
        return True

    def answered(self, answer: Any, count: int) -> None:
        self._pass()
        if self._is_asked and answer != self._answer:
            self.waited = 0.0
        self._answer, self._is_asked = answer, True
        self._computed, self._count = time.thread_time(), count

    def _pass(self, made_up_for: float = 0.0) -> None:
        now = time.monotonic()
        self.waited = max(0.0, self.waited + now - self._at - made_up_for)
        self._at = now

    def refuse(self, name: str, arguments: Any, where: str) -> None:
        listed = ", ".join(map(repr, arguments))
        text = (
            f"store.{name}({listed}) at {where} has had the same answer for {PATIENCE.seconds} s: "
            "no other rank changes it, since emulated ranks run no script"
        )
        if self._is_refused:  # the loop catches errors
            raise SystemExit(f"paracosm: {text}")
        self._is_refused = True
        raise dist.DistStoreError(text)


def refuser(recorder: RecordWriter, rank: int, why: str) -> Callable[[str], Exception]:
    """Return the function that records that something unsupported was used, and makes the error."""

    def refuse(what: str) -> Exception:
        text = f"{what} at {call_site() or NOWHERE}: {why}"
        recorder.append(Note(rank, True, text))
        return NotImplementedError(text)

    return refuse


def _refuse_calls(module: Any) -> None:
    def init_rpc(*args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(
            "torch.distributed.rpc is not emulated: emulated ranks run no functions; collectives "
            "and messages between ranks are emulated"
        )

    module.init_rpc = init_rpc


def _refuse_groups(module: Any) -> None:
    def new_group(*args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(
            "torch.distributed._dist2.new_group is not emulated: torch.distributed."
            "init_process_group and new_group are"
        )

    module.new_group = new_group


def _impatient(call: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(call)
    def waiting(store: Any, keys: Any, *more: Any, **options: Any) -> Any:
        before = store.timeout
        store.set_timeout(min(before, PATIENCE))
        more = tuple(
            min(argument, PATIENCE) if isinstance(argument, timedelta) else argument
            for argument in more
        )
        if "timeout" in options:
            options["timeout"] = min(options["timeout"], PATIENCE)
        try:
            return call(store, keys, *more, **options)
        except RuntimeError as error:  # a DistStoreError; of a FileStore no more than this
            if not isinstance(error, dist.DistStoreError) and "timeout" not in str(error).lower():
                raise
            wanted = keys if isinstance(keys, str) else ", ".join(keys)
            raise dist.DistStoreError(
                f"{name}({wanted}) at {call_site() or NOWHERE}: no rank set this key in "
                f"{PATIENCE.seconds} s; emulated ranks run no script, and set none of their own"
            ) from error
        finally:
            store.set_timeout(before)

    return waiting
