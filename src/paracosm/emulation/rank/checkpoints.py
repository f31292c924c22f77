"""Checkpoints: of ranks that run one after the other, and of a rank whose peers hold nothing."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook

from paracosm.emulation.rank.call_site import NOWHERE, call_site
from paracosm.emulation.rank.on_import import on_import

_FILE = "saved"
TOO_EARLY = (
    "ranks run one after the other here, and in the real job this one would not find it yet: move "
    "it away first, and tell the script not to resume"
)


def watch_checkpoints(
    folder: Path,  # that all ranks of the job share
    rank: int,
    note: Callable[[str], None],
    refuse: Callable[[str], Exception],
) -> None:
    """Say that several ranks save one file, and refuse to load one that was saved later.

    That is: after more steps of an optimizer than this rank has made, by a rank that has run
    before. What the ranks write to one folder by torch.distributed.checkpoint is one checkpoint.
    """
    steps = 0

    def stepped(*ignored: Any) -> None:
        nonlocal steps
        steps += 1

    register_optimizer_step_post_hook(stepped)

    def saves(path: str | None, alone: bool = True) -> None:
        if path is None:
            return
        others = [who for who, _ in _saved(folder, path) if who != rank]
        if alone and others:
            note(
                f"{path} is saved by rank {rank} at {call_site() or NOWHERE}, and was by rank "
                f"{others[0]}: only the last one stays: save it on one rank, or name it by the rank"
            )
        with (folder / _FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps([path, rank, steps]) + "\n")

    def loads(path: str | None) -> None:
        for who, after in _saved(folder, path):
            if who != rank and after > steps:
                raise refuse(
                    f"loading {path}, which rank {who} saved after step {after} of its optimizer"
                )

    _before(torch, "save", lambda obj, f, *ignored, **options: saves(_path(f)))
    _before(torch, "load", lambda f, *ignored, **options: loads(_path(f)))

    def change(files: Any) -> None:
        _before(
            files.FileSystemWriter, "write_data", lambda self, *_: saves(_path(self.path), False)
        )
        _before(files.FileSystemReader, "read_metadata", lambda self, *_: loads(_path(self.path)))

    on_import("torch.distributed.checkpoint.filesystem", change)


def _before(owner: Any, name: str, first: Callable[..., None]) -> None:
    call = getattr(owner, name)

    @wraps(call)
    def after(*arguments: Any, **options: Any) -> Any:
        first(*arguments, **options)
        return call(*arguments, **options)

    setattr(owner, name, after)


def _path(file: Any) -> str | None:
    name = getattr(file, "name", file)
    return os.path.realpath(name) if isinstance(name, str | os.PathLike) else None


def _saved(folder: Path, path: str | None) -> list[tuple[int, int]]:
    """Return which ranks have saved a file, each after how many steps."""
    try:
        lines = (folder / _FILE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [(who, steps) for saved, who, steps in map(json.loads, lines) if saved == path]


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
