"""The process group of backend mode: a torch.distributed backend that moves no messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from paracosm.emulation.backend.collectives import Collectives
from paracosm.emulation.backend.runtime import Member, Runtime

__all__ = ["BACKEND", "EmulatedGroup", "make_group", "register"]

BACKEND = "paracosm"
"""Name of the backend among those of torch.distributed."""

_TIMEOUT = timedelta(minutes=30)  # of a gloo group


def register(runtime: Runtime) -> None:
    """Make the backend known to torch.distributed, for the groups of this process.

    What the script asked for is taken from `runtime.asked_backend` whenever it makes a group.
    """
    runtime.start()

    def create(options: Any, _backend_options: Any) -> ProcessGroup:
        members = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        return make_group(
            runtime,
            options.group_id,
            options.group_rank,
            options.group_size,
            members,
            runtime.asked_backend,
            store=options.store,
            timeout=options.timeout,
        )

    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", "cuda"])


def make_group(
    runtime: Runtime,
    name: str,
    rank: int,
    size: int,
    members: Sequence[int],
    asked_backend: str,
    *,
    store: Any = None,
    timeout: timedelta = _TIMEOUT,
) -> EmulatedGroup:
    """Return a process group of which this process is a member.

    Args:
        runtime: of the process.
        name: of the group.
        rank: in the group.
        size: how many members.
        members: their global ranks, in the order of the group.
        asked_backend: what the script asked for.
        store: of the group.
        timeout: after which a collective of a real group fails.
    """
    assert len(members) == size, "a group knows its members"
    member = runtime.join(name, rank, members, asked_backend, timeout.total_seconds())
    return EmulatedGroup(runtime, member, store)


@dataclass
class Options:
    """What `split_group` copies from a group to those that it is split into."""

    backend: str
    _timeout: timedelta


class EmulatedGroup(Collectives, ProcessGroup):  # type: ignore[misc]  # names old and new
    """A process group whose collectives take modelled time and move no messages.

    It is its own backend, for every device.
    """

    supports_coalescing = True
    supports_splitting = True
    supports_shrinking = False
    supports_time_estimate = False

    def __init__(self, runtime: Runtime, member: Member, store: Any = None) -> None:
        """Take what `make_group` has made."""
        ProcessGroup.__init__(self, member.rank, len(member.members))  # type: ignore[call-arg]
        Collectives.__init__(self, runtime, member)
        self._store = store
        self._description = "undefined"

    def rank(self) -> int:
        """Return the real rank's rank in the group."""
        return self._member.rank

    def size(self) -> int:
        """Return how many members the group has."""
        return len(self._member.members)

    def name(self) -> str:
        """Return the backend's name."""
        return BACKEND

    def getGroupName(self) -> str:  # noqa: N802
        """Return the group's name."""
        return self._member.name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        """Give the group a name."""
        self._member.name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        """Return what the group is for."""
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        """Say what the group is for."""
        self._description = description

    getRank, getSize, getBackendName = rank, size, name  # noqa: N815
    _get_backend_name, _set_group_name = name, setGroupName
    _set_group_desc = setGroupDesc  # type: ignore[assignment]  # the parameter's name
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    def get_group_store(self) -> Any:
        """Return the store that the group was made with."""
        return self._store

    @property
    def options(self) -> Options:
        """What groups that this one is split into have in common with it."""
        return Options(BACKEND, timedelta(seconds=self._member.timeout))

    def set_timeout(self, timeout: timedelta) -> None:
        """Say how long a collective of a real group would be waited for."""
        self._member.timeout = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _set_sequence_number_for_group(self) -> None:
        """Agree with the other members on where to count from: 0."""

    def _get_sequence_number_for_group(self) -> int:
        return self._member.count

    def _get_backend(self, device: torch.device) -> Any:
        return self

    @property
    def _device_types(self) -> list[torch.device]:
        if self._member.asked.lower() in ("nccl", "cuda:nccl") and torch.cuda.is_available():
            return [torch.device("cuda")]  # objects go where the script expects them
        return [torch.device("cpu"), torch.device("cuda")]

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Return False: tensors need no memory of the backend's own."""
        return False

    def eager_connect_single_device(self, device: torch.device | None) -> None:
        """Remember the device that the script has bound the group to."""
        self.bound_device_id = device

    def perform_nocolor_split(self, device: torch.device | None) -> None:
        """Take no part in the making of a group without this rank."""

    def split_group(
        self,
        ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> EmulatedGroup | None:
        """Return a group of some members, by their ranks in this one; None without this rank."""
        member = self._member
        if member.rank not in ranks:
            return None
        child = make_group(
            self._runtime,
            group_name or f"{member.name}:{'_'.join(map(str, ranks))}",
            ranks.index(member.rank),
            len(ranks),
            [member.members[rank] for rank in ranks],
            member.asked,
            store=self._store,
            timeout=timeout or timedelta(seconds=member.timeout),
        )
        child.setGroupDesc(group_desc or f"{self._description}:split")
        return child

    def merge_remote_group(self, *arguments: Any, **options: Any) -> ProcessGroup:
        """Refuse."""
        raise self._runtime.refuse("merge_remote_group")

    def shutdown(self) -> None:
        """Close no connections; collectives under way are done at their time."""

    abort = shutdown
