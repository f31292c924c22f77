"""The process group of backend mode: a torch.distributed backend that moves no messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed import distributed_c10d as c10d

from paracosm.emulation.backend.checks import library_of
from paracosm.emulation.backend.collectives import Collectives
from paracosm.emulation.backend.runtime import GroupRuntime, Member

BACKEND = "paracosm"  # name of the backend among those of torch.distributed


def register(runtime: GroupRuntime) -> None:
    """Make the backend known to torch.distributed, for the groups of this process."""
    runtime.start()

    def create(options: Any, _backend_options: Any) -> ProcessGroup:
        members = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        asked, timeout = runtime.asked_backend, options.timeout.total_seconds()
        member = runtime.join(options.group_id, options.group_rank, members, asked, timeout)
        return EmulatedGroup(runtime, member, options.store)

    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", "cuda"])
    # PyTorch's flight recorder, from 2.15 on attached to every other backend, wants one in C++.
    recorded: set[str] = getattr(c10d, "_FR_SELF_RECORDING_BACKENDS", set())
    recorded.add(BACKEND)


@dataclass
class Options:
    """The options that `split_group` copies from a group to its parts."""

    backend: str
    _timeout: timedelta


class EmulatedGroup(Collectives, ProcessGroup):  # type: ignore[misc]  # names old and new
    """A process group whose collectives take modelled time; its own backend for every device."""

    supports_coalescing = True
    supports_splitting = True
    supports_shrinking = False
    supports_time_estimate = False

    def __init__(self, runtime: GroupRuntime, member: Member, store: Any) -> None:
        ProcessGroup.__init__(self, member.rank, len(member.members))  # type: ignore[call-arg]
        Collectives.__init__(self, runtime, member)
        self._store = store
        self._description = "undefined"

    def rank(self) -> int:
        return self._member.rank

    def size(self) -> int:
        return len(self._member.members)

    def name(self) -> str:
        return BACKEND

    def getGroupName(self) -> str:  # noqa: N802 - PyTorch calls it so
        return self._member.name

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._member.name = name

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        self._description = description

    getRank, getSize, getBackendName = rank, size, name  # noqa: N815
    _get_backend_name, _set_group_name = name, setGroupName
    _set_group_desc = setGroupDesc  # type: ignore[assignment]  # the parameter's name
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    def get_group_store(self) -> Any:
        return self._store

    @property
    def options(self) -> Options:
        return Options(BACKEND, timedelta(seconds=self._member.timeout))

    def set_timeout(self, timeout: timedelta) -> None:
        self._member.timeout = timeout.total_seconds()

    _set_default_timeout = set_timeout

    @property
    def libraries(self) -> set[str]:
        """The libraries of the groups that the script would have."""
        return {library_of(self._member.asked, device) for device in ("cpu", "cuda")}

    # What ProcessGroupNCCL has besides, and torch.distributed calls.

    @property
    def uid(self) -> int:
        return 0

    def _add_ephemeral_timeout(self, timeout: timedelta) -> None:
        """Do nothing: a collective's time-out is noted, and ends nothing."""

    def _group_start(self) -> None:
        """Begin to end several groups together."""

    _group_end = _group_start

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
        return False

    def eager_connect_single_device(self, device: torch.device | None) -> None:
        self.bound_device_id = device

    def perform_nocolor_split(self, device: torch.device | None) -> None:
        """Do nothing: a group without this rank is being made."""

    def split_group(
        self,
        ranks: list[int],
        timeout: timedelta | None = None,
        opts: Any = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> EmulatedGroup | None:
        member = self._member
        if member.rank not in ranks:
            return None
        child = self._runtime.join(
            group_name or f"{member.name}:{'_'.join(map(str, ranks))}",
            ranks.index(member.rank),
            [member.members[rank] for rank in ranks],
            member.asked,
            timeout.total_seconds() if timeout else member.timeout,
        )
        group = EmulatedGroup(self._runtime, child, self._store)
        group.setGroupDesc(group_desc or f"{self._description}:split")
        return group

    def merge_remote_group(self, *arguments: Any, **options: Any) -> ProcessGroup:
        raise self._runtime.refuse("merge_remote_group")

    def shutdown(self) -> None:
        """Do nothing: there are no connections, and collectives under way end at their time."""

    abort = shutdown
