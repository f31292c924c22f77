"""Distributed checkpoints, and FSDP1's, of a job whose other ranks hold nothing."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from paracosm.emulation.rank.on_import import on_import


def allow_parts(warn: Callable[[str], None]) -> None:
    """Make torch.distributed.checkpoint save this rank's part as if it were the whole.

    Every emulated rank claims to hold what the real rank holds, so parts of a tensor overlap and
    others are missing, which PyTorch would refuse to save.
    """

    def change(planner: Any) -> None:
        if not hasattr(planner, "_validate_global_plan"):
            return
        validate = planner._validate_global_plan

        def validated(*arguments: Any, **options: Any) -> Any:
            plan = validate(*arguments, **options)
            # A list of what is wrong; whether all is well in older versions.
            if isinstance(plan, list):
                if plan:
                    warn(_WHAT)
                return []
            if not plan:
                warn(_WHAT)
            return True

        planner._validate_global_plan = validated
        if hasattr(planner, "dedup_save_plans"):
            divide = planner.dedup_save_plans

            def divided(plans: list[Any], *options: Any) -> list[Any]:
                """Let the real rank write what all plan to, and only one would."""
                rank = dist.get_rank() if dist.get_rank() < len(plans) else 0
                parts = divide([*plans[rank:], *plans[:rank]], True)
                return [*parts[len(plans) - rank :], *parts[: len(plans) - rank]]

            planner.dedup_save_plans = divided

    on_import("torch.distributed.checkpoint.default_planner", change)
    on_import("torch.distributed.fsdp._optim_utils", _name_all_states)


def _name_all_states(fsdp: Any) -> None:
    """Let FSDP1 gather an optimizer's state of parameters that this rank has no part of."""
    name = "_map_param_key_to_optim_keys"
    if not hasattr(fsdp, name):
        return
    make = getattr(fsdp, name)
    signature = inspect.signature(make)

    def made(*arguments: Any, **options: Any) -> Any:
        keys, here = make(*arguments, **options)
        values = signature.bind(*arguments, **options).arguments
        if not values["merge_keys"]:  # each rank has a part of every flat parameter
            return keys, here
        names_of, sharded = values["param_to_fqns"], values["fqn_to_fsdp_param_info"]
        all_names = [tuple(names_of[param]) for param in values["param_key_to_param"].values()]
        more = {fsdp._OptimStateKey(names, names[0] in sharded) for names in all_names}
        return sorted({*keys, *more}), here

    setattr(fsdp, name, made)


_WHAT = (
    "a checkpoint was saved: it holds only the real rank's part of each tensor, under the names "
    "of all ranks, and can be loaded by this rank alone"
)
