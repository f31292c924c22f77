"""What the agents of torchrun expect of the missing machines, with static rendezvous.

`torchrun --nnodes=4 --node-rank=0` asks the store for the role of each machine's agent, agent 0
gives every agent its ranks, and at the end all agents wait for each other
(torch/distributed/elastic/agent/server/api.py, PyTorch 2.13).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["AgentError", "Answer", "answer_agents", "is_role_key"]

_ROLE = re.compile(r"(.*torchelastic/role_info/)(\d+)")


class AgentError(Exception):
    """An agent's role makes no sense with this world; the message says why."""


@dataclass(frozen=True)
class Answer:
    """What to write for the emulated agents.

    Attributes:
        items: keys and values.
        barrier: key of the count of agents that have ended.
        agents: how many emulated agents there are, which end when they are asked.
    """

    items: tuple[tuple[str, bytes], ...]
    barrier: str
    agents: int


def is_role_key(key: str) -> bool:
    """Return whether a key is that of an agent's role."""
    return _ROLE.fullmatch(key) is not None


def answer_agents(world: int, real: Sequence[int], key: str, value: bytes) -> Answer:
    """Return what the emulated agents write once the first real one has said its role.

    All machines are taken to have as many ranks as the real one.

    Args:
        world: ranks of the job.
        real: the real ranks.
        key: of `is_role_key`, which a real agent has written.
        value: what it has written.

    Raises:
        AgentError: no such machine could have the real ranks, or the value is no role.
    """
    found = _ROLE.fullmatch(key)
    assert found is not None
    try:
        told = json.loads(value)
        role, each = str(told["role"]), int(told["local_world_size"])
    except (ValueError, KeyError, TypeError):
        raise AgentError(f"a role and a local_world_size expected, not {value[:80]!r}") from None
    agents = range(_agents(world, each))
    ranks = {agent: range(agent * each, (agent + 1) * each) for agent in agents}
    are_real = {agent for agent in agents if not set(real).isdisjoint(ranks[agent])}
    for agent in are_real:
        if not set(ranks[agent]) <= set(real):
            raise AgentError(
                f"torchrun starts ranks {ranks[agent][0]} to {ranks[agent][-1]} on one machine, "
                f"but real are {', '.join(map(str, real))}"
            )
    items = [
        (f"{found[1]}{agent}", _encode({"role": role, "rank": agent, "local_world_size": each}))
        for agent in agents
        if agent not in are_real
    ]
    prefix = found[1].removesuffix("role_info/")
    if 0 not in are_real:  # agent 0 is who gives the others their ranks
        items += [
            (f"{prefix}assigned_ranks/{agent}", _encode([agent * each, world, agent * each, world]))
            for agent in agents
        ]
    barrier = f"{prefix}agent/terminal_state/num_members"
    return Answer(tuple(items), barrier, len(agents) - len(are_real))


def _agents(world: int, each: int) -> int:
    if each < 1 or world % each:
        raise AgentError(
            f"torchrun has {each} ranks on each machine, which do not make {world} ranks"
        )
    return world // each


def _encode(value: object) -> bytes:
    return json.dumps(value).encode()
