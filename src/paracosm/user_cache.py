"""What can be made again, in the user's own cache folder: compiled functions, captured graphs."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from pathlib import Path


def user_cache_folder() -> Path | None:
    """Return the user's own folder for what can be made again; None where there can be none.

    It is `paracosm` in XDG's folder of caches, ~/.cache if that is not set. One that belongs to
    somebody else, or that others may write to, is not used: what is in it is run.
    """
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paracosm"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home
        return None
    return folder if is_safe_cache(folder) else None


def is_safe_cache(folder: Path) -> bool:
    """Whether only this user and root can write to a folder, so that what is in it may be run.

    A link to one must be theirs as well.
    """
    link, state = folder.lstat(), folder.stat()
    others_may_write = state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_ours = {link.st_uid, state.st_uid} <= {0, os.geteuid()}
    return stat.S_ISDIR(state.st_mode) and is_ours and not others_may_write


_UNUSED_FOR = 14 * 86_400.0  # seconds after which a folder that nobody used is removed
_TOUCHED_EVERY = 86_400.0  # seconds; a folder in use is at most this much older than it says


def kept_folder(base: Path, what: str, digest: str) -> Path | None:
    """Return a folder in `base` for what was made from sources with a digest; made if missing.

    Folders of `what` from other sources that no process has used for two weeks are removed. It is
    None where there can be none that nobody else can write to. One that somebody else has made
    first is not used.
    """
    name = f"{what}-{digest}"
    for folder in (base / name, base / f"{name}-{os.geteuid()}"):
        with contextlib.suppress(OSError):  # it cannot be written, or is there already
            folder.mkdir(mode=0o700, parents=True)
        with contextlib.suppress(OSError):
            if is_safe_cache(folder) and os.access(folder, os.R_OK | os.X_OK):
                _touch(folder)
                _remove_unused(base, what, folder)
                return folder
    return None


def _touch(folder: Path) -> None:
    with contextlib.suppress(OSError):  # it can be read only
        if time.time() - folder.stat().st_mtime > _TOUCHED_EVERY:
            os.utime(folder)


def _remove_unused(base: Path, what: str, used: Path) -> None:
    """Remove folders of other sources that no process has used for two weeks."""
    oldest = time.time() - _UNUSED_FOR
    for folder in set(base.glob(f"{what}-*")) - {used}:
        with contextlib.suppress(OSError):
            if is_safe_cache(folder) and folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)
