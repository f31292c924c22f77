"""Refuse by name what a script asks of other ranks that is not emulated, instead of waiting."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any, NoReturn

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.rank.call_site import NOWHERE, call_site
from paracosm.emulation.rank.on_import import on_import
from paracosm.emulation.records import Note, RecordWriter

PATIENCE = timedelta(seconds=10)  # for keys of a store that another rank may set


def refuse_what_needs_peers(config: EmulateConfig) -> None:
    """Make remote procedure calls fail at once, and waits for peers' keys after 10 seconds.

    Keys that the emulator sets arrive within that time. With several real ranks, one may wait for
    another without limit.
    """
    on_import("torch.distributed.rpc", _refuse_calls)
    on_import("torch.distributed._dist2", _refuse_groups)
    if len(config.rank) == 1:
        for name in ("wait", "get"):
            setattr(PrefixStore, name, _impatient(getattr(PrefixStore, name), name))


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
    def waiting(store: Any, keys: Any, *timeout: timedelta) -> Any:
        before = store.timeout
        store.set_timeout(min(before, PATIENCE))
        try:
            return call(store, keys, *(min(each, PATIENCE) for each in timeout))
        except dist.DistStoreError as error:
            wanted = keys if isinstance(keys, str) else ", ".join(keys)
            raise dist.DistStoreError(
                f"{name}({wanted}): no rank set this key in {PATIENCE.seconds} s; emulated ranks "
                "run no script, and set none of their own"
            ) from error
        finally:
            store.set_timeout(before)

    return waiting
