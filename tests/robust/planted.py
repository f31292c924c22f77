"""What somebody else may have put where a file is about to be written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

CONTENT = b"\0precious\n" * 100
"""Of the file that nothing may happen to: no text, no table, and no empty file."""

NOBODY = 65534


def victim_in(folder: Path) -> Path:
    """Make the file that nothing may happen to."""
    folder.mkdir(parents=True, exist_ok=True)
    victim = folder / "victim"
    victim.write_bytes(CONTENT)
    return victim


def is_unharmed(victim: Path) -> bool:
    return victim.is_file() and not victim.is_symlink() and victim.read_bytes() == CONTENT


def _folder(name: Path, victim: Path) -> None:
    name.mkdir()
    (name / "something").write_text("of the user's")


PLANT: Mapping[str, Callable[[Path, Path], object]] = {
    "link": lambda name, victim: name.symlink_to(victim),
    "link to nothing": lambda name, victim: name.symlink_to(victim.with_name("nothing")),
    "link to a device": lambda name, victim: name.symlink_to("/dev/zero"),
    "hard link": lambda name, victim: os.link(victim, name),
    "pipe": lambda name, victim: os.mkfifo(name),
    "folder": _folder,
}


def nobody(do: Callable[[], object]) -> None:
    """Do something as another user, or as this one where this one is not root."""
    if os.geteuid() != 0:
        do()
        return
    pid = os.fork()
    if pid == 0:
        code = 1
        with suppress(BaseException):
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.umask(0)
            do()
            code = 0
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def open_to_all(folder: Path) -> Path:
    """Make a folder such as /tmp, and let others reach it."""
    folder.mkdir()
    folder.chmod(0o1777)
    for parent in folder.parents:
        with suppress(OSError):
            if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o011)
    return folder
