"""A store for a process that is alone: where PyTorch would meet the other ranks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import HashStore

__all__ = ["LocalStore"]

_PATIENCE = timedelta(seconds=10)


class LocalStore(HashStore):
    """Takes the place of a TCPStore, without a port, and waits for nobody.

    A key that only another rank would set never comes: whoever waits for one gets PyTorch's own
    error within 10 seconds, whatever the time-out was.
    """

    def __init__(
        self,
        host_name: str = "127.0.0.1",
        port: int = 0,
        world_size: int | None = None,
        *args: Any,
        **options: Any,
    ) -> None:
        """Take what TCPStore takes."""
        super().__init__()
        self._host = host_name
        self._port = port
        super().set_timeout(_PATIENCE)

    @property
    def host(self) -> str:
        """The host that was asked for."""
        return self._host

    @property
    def port(self) -> int:
        """The port that was asked for."""
        return self._port

    def set_timeout(self, timeout: timedelta) -> None:
        """Wait so long, but not longer than 10 seconds."""
        super().set_timeout(min(timeout, _PATIENCE))
