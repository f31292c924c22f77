"""Keeping torch.compile out of Paracosm's own code, which runs in the midst of a script's."""

from __future__ import annotations

from types import ModuleType

from paracosm.emulation.rank.on_import import on_import

__all__ = ["leave_untraced"]


def leave_untraced() -> None:
    """Have torch.compile run the functions of this package as they are."""
    on_import("torch._dynamo.trace_rules", _skip)


def _skip(rules: ModuleType) -> None:
    rules.add("paracosm")
