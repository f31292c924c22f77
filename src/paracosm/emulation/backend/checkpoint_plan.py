"""Saving a distributed checkpoint whose other parts belong to emulated ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paracosm.emulation.rank.on_import import on_import

__all__ = ["allow_parts"]

_WHAT = (
    "a checkpoint was saved: it holds what the real rank holds of each tensor, under the names of "
    "all ranks, and cannot be loaded"
)


def allow_parts(warn: Callable[[str], None]) -> None:
    """Have torch.distributed.checkpoint save what this rank holds, and take it for the whole.

    Every emulated rank says that it holds what the real rank holds, so that parts of a tensor
    overlap and others are missing: PyTorch would refuse to save that.

    Args:
        warn: is told, whenever that is the case, what was saved.
    """

    def change(planner: Any) -> None:
        if not hasattr(planner, "_validate_global_plan"):
            return
        validate = planner._validate_global_plan

        def validated(*arguments: Any, **options: Any) -> Any:
            found = validate(*arguments, **options)
            # A list of what is wrong; whether all is well in older versions.
            if isinstance(found, list):
                if found:
                    warn(_WHAT)
                return []
            if not found:
                warn(_WHAT)
            return True

        planner._validate_global_plan = validated

    on_import("torch.distributed.checkpoint.default_planner", change)
