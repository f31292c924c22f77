"""The store of a job whose rank 0 is emulated."""

from __future__ import annotations

import errno
import socket
from datetime import timedelta
from typing import Any

from paracosm import errors
from paracosm.errors import InputError

__all__ = ["host_store"]


def host_store(host: str, port: int) -> Any:
    """Return PyTorch's TCPStore server, which serves on its own threads as long as it is kept.

    Left to itself it listens on all interfaces; here on `host` alone.

    Raises:
        InputError: the port is in use, or `host` is no address of this machine.
        MissingExtraError: PyTorch is not installed.
    """
    distributed = errors.require("torch.distributed", "torch", "the store of an emulated rank 0")
    listening = _listen(host, port)
    return distributed.TCPStore(
        host,
        port,
        None,
        is_master=True,
        timeout=timedelta(seconds=30),
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise InputError(f"host: {host}: {error.strerror}") from None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port: {port} is in use on {host}: give another one") from None
        raise InputError(f"port: cannot listen on {host}:{port}: {error.strerror}") from None
    return listening
