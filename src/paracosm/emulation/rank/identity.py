"""Which rank of how many a process is, as torchrun tells its processes."""

from __future__ import annotations

from paracosm.emulation.config import EmulateConfig

__all__ = ["identity"]


def identity(config: EmulateConfig, rank: int) -> dict[str, str]:
    """Return the environment variables that tell a script which rank it is, and of how many.

    LOCAL_RANK, by which scripts choose their device, counts the real ranks: this machine may have
    no other devices.
    """
    local, world = config.ranks_per_machine, config.world
    numbers = {
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": config.rank.index(rank),
        "LOCAL_WORLD_SIZE": local,
        "GROUP_RANK": rank // local,
        "GROUP_WORLD_SIZE": -(-world // local),
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
    }
    return {name: str(number) for name, number in numbers.items()}
