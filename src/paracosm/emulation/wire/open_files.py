"""How many files, and so connections, a process may have open."""

from __future__ import annotations

import resource

from paracosm.errors import InputError

__all__ = ["allow_open_files"]

_OTHERS = 128  # files that a process opens anyway


def allow_open_files(connections: int) -> None:
    """Raise the limit of open files of this process and its children as far as is allowed.

    Args:
        connections: that are certainly needed.

    Raises:
        InputError: the hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHERS
    most = _ENDLESS if hard == resource.RLIM_INFINITY else hard
    if most < needed:
        raise InputError(
            f"world_size: {connections:,} connections need {needed:,} open files, but {hard:,} are "
            f"allowed: ulimit -Hn {needed}, or a smaller world"
        )
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, _ENDLESS), hard))


_ENDLESS = 1 << 20
