"""Whether the installed PyTorch is one that the wire protocol was tried with."""

from __future__ import annotations

import importlib.metadata

from paracosm.emulation.records import Note

__all__ = ["TESTED", "check_version"]

TESTED = ("2.13",)
"""Versions of PyTorch that speak the protocol that we do."""


def check_version() -> Note | None:
    """Return a warning where the installed PyTorch is another one, or there is none."""
    tested = " and ".join(TESTED)
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return Note(
            -1, False, f"no PyTorch here to compare with: mode wire is tested with {tested}"
        )
    if any(version == known or version.startswith(known + ".") for known in TESTED):
        return None
    return Note(
        -1, False, f"PyTorch {version}: mode wire is tested with {tested}, and may not work with it"
    )
