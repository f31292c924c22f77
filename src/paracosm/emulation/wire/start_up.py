"""What the emulated ranks have to say to the store, besides their addresses, for a job to start."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from paracosm.emulation.wire.store_client import StoreClient
from paracosm.emulation.wire.torchelastic import answer_agents, is_role_key

__all__ = ["StartUp"]

_WORKERS = "init/"
_BARRIER = re.compile(r".*/store_based_barrier_key:([^:]+)")


class StartUp:
    """Counts the emulated ranks in wherever PyTorch counts ranks.

    These are the workers of the store, which a rank 0 that serves it waits for; the barrier that
    follows the making of a group if TORCH_DIST_INIT_BARRIER=1; and the agents of torchrun.
    """

    def __init__(
        self,
        client: StoreClient,
        world: int,
        real: Sequence[int],
        members_of: Callable[[str], tuple[int, int] | None],
    ) -> None:
        """Count the workers in.

        Args:
            client: of the job's store.
            world: ranks of the job.
            real: the ranks that are real.
            members_of: how many members a group has, and how many of them are emulated, by its
                name in torch.distributed; None where there is no such group.
        """
        self._client, self._world, self._real = client, world, real
        self._members_of = members_of
        self._answered: set[str] = set()
        self._at_work: set[str] = set()
        if 0 in real:
            client.add(_WORKERS, world - len(real))

    @property
    def agents_at_work(self) -> bool:
        """Whether real agents of torchrun have come and not yet ended."""
        return bool(self._at_work)

    def look(self, added: Sequence[str]) -> None:
        """Answer what is in new keys.

        Raises:
            AgentError: torchrun starts other ranks than are real.
        """
        roles = [key for key in added if is_role_key(key)]
        if roles:
            self._answer_agents(roles[0])
        for key in added:
            self._at_work.discard(key)
            found = _BARRIER.fullmatch(key)
            if found is not None:
                self._enter_barrier(key, found[1])

    def _answer_agents(self, key: str) -> None:
        answer = answer_agents(self._world, self._real, key, self._client.get([key])[0])
        if answer.barrier in self._answered:
            return
        self._answered.add(answer.barrier)
        self._at_work.add(answer.barrier.replace("num_members", "last_member"))
        self._client.set(answer.items)
        if answer.agents:
            self._client.add(answer.barrier, answer.agents)

    def _enter_barrier(self, key: str, name: str) -> None:
        members, emulated = self._world, self._world - len(self._real)
        if f"/{name}//" in key and name != "0":  # the store of the group itself: only its members
            known = self._members_of(name)
            if known is None:
                return
            members, emulated = known
        if self._client.add(key, emulated) == members:
            self._client.set([(f"{key}:last_worker", b"1")])
