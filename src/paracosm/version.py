"""The version: of a checkout by its tags, at every commit, and else of what is installed.

The build asks this file for it, too (`pyproject.toml`), so that it imports nothing of ours. An
editable installation knows only the version that it had when it was installed.
"""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]  # of a checkout
_COMING = "0.2.0"  # the release that commits lead to where no tag is known, as in a shallow clone


def version() -> str:
    """Return the version of the code that runs, in the form of PEP 440."""
    from importlib import metadata

    if (described := of_checkout(_ROOT)) is not None:
        return described
    try:
        return metadata.version("paracosm")
    except metadata.PackageNotFoundError:
        return f"{_COMING}.dev0"


def version_to_build() -> str:
    """Return the version for a package that is built of this folder."""
    return of_checkout(_ROOT) or f"{_COMING}.dev0"


def of_checkout(root: Path) -> str | None:
    """Return the version of the commit that is checked out, None where git knows none.

    The commit that has the tag v0.2.0 is 0.2.0; the fifth after it is 0.2.1.dev5+gCOMMIT.
    """
    repository = root / ".git"
    if not repository.exists():  # of a repository around this folder nothing is asked
        return None
    described = _git(repository, "describe", "--tags", "--long", "--abbrev=8", "--match", "v[0-9]*")
    if described is not None:
        tag, distance, commit = described.rsplit("-", 2)
        number = tag.removeprefix("v")
        return number if distance == "0" else f"{_next(number)}.dev{distance}+{commit}"
    count = _git(repository, "rev-list", "--count", "HEAD")
    newest = _git(repository, "rev-parse", "--short=8", "HEAD")
    return f"{_COMING}.dev{count}+g{newest}" if count and newest else None


def _next(number: str) -> str:
    """Return the number with its last part one higher: 0.2.1 after 0.2.0, 1.0rc2 after 1.0rc1."""
    return re.sub(r"\d+$", lambda last: str(int(last[0]) + 1), number)


def _git(repository: Path, *arguments: str) -> str | None:
    import subprocess

    command = ["git", f"--git-dir={repository}", *arguments]  # whatever GIT_DIR says
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() if run.returncode == 0 else None
