"""Timing ops as the commands do, whatever malloc does in the caller's own process.

Programs that time ops restart themselves with malloc's thread cache off; a notebook cannot. What it
needs timed is timed in a process of its own, which starts that way.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from paracosm.errors import InputError
from paracosm.graphs.graph import Op
from paracosm.profiling.allocator import PINNED, own_allocator, pinned_environ
from paracosm.profiling.environment import Environment
from paracosm.profiling.profiler import Settings, profile

Progress = Callable[[int, int], None]
Refused = dict[str, str]
"""Why an op could not be timed, by its name."""


def profile_into(
    path: Path,
    ops: Sequence[Op],
    settings: Settings,
    environment: Environment,
    source: str,
    progress: Progress | None = None,
) -> Refused:
    """Time ops on this machine, add them to a database, and return which could not be timed.

    Where the environment's allocator is pinned and this process is not, another process times them,
    and progress is told at the end only.
    """
    if environment.allocator != PINNED or own_allocator() == PINNED:
        return _profile(path, ops, settings, source, progress)
    asked = pickle.dumps((path, tuple(ops), settings, source))
    environ = pinned_environ({**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import _main; _main()"],
        input=asked,
        stdout=subprocess.PIPE,
        env=environ,
        check=False,
    )
    if done.returncode:
        raise InputError(f"timing {len(ops)} ops in a process of its own failed: see above")
    answer: Refused | BaseException = pickle.loads(done.stdout)
    if isinstance(answer, BaseException):
        raise answer
    if progress is not None:
        progress(len(ops), len(ops))
    return answer


def _profile(
    path: Path, ops: Sequence[Op], settings: Settings, source: str, progress: Progress | None
) -> Refused:
    from paracosm.profiling.database import ProfileDatabase

    with ProfileDatabase.open(path) as database:
        done = profile(ops, settings, source=source, keep=database.add, progress=progress)
    if done.interrupted:
        raise KeyboardInterrupt
    return {op.name: why for op, why in done.refused.items()}


def _main() -> None:
    """Time what standard input asks for; what an op prints must not mix with the answer."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    path, ops, settings, source = pickle.loads(sys.stdin.buffer.read())
    try:
        found: Refused | BaseException = _profile(path, ops, settings, source, None)
    except (InputError, KeyboardInterrupt, MemoryError) as error:
        found = error
    with os.fdopen(answer, "wb") as stream:
        pickle.dump(found, stream)
