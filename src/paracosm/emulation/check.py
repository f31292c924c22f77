"""What shows before anything runs: files, ranks, links and changes of an emulated job."""

from __future__ import annotations

from pathlib import Path

from paracosm.emulation.beside import predicted_time
from paracosm.emulation.communication import communication_of
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.peers import peers_of
from paracosm.emulation.what_if import with_world
from paracosm.errors import InputError

__all__ = ["check_emulation"]


def check_emulation(config: EmulateConfig) -> None:
    """Refuse what cannot be run, changed and unchanged.

    Raises:
        InputError: no such script or file; ranks, links or changes that do not fit the job.
    """
    if config.script is None:
        raise InputError("missing script: paracosm emulate ... train.py")
    if not config.is_module and not config.script.is_file():
        raise InputError(f"{config.script}: no such script")
    unchanged = config.model_copy(update={"what_if": ()})
    for each in (unchanged, config) if config.what_if else (unchanged,):
        communication_of(each)
        peers_of(each, each.rank[0], 0)
    if config.plan is not None:
        _check_plan(config.plan, with_world(config).world)
    if config.beside is not None:
        predicted_time(config.beside)


def _check_plan(plan: Path, world: int) -> None:
    from paracosm.emulation.wire.payloads import load_payloads

    if not plan.is_file():
        raise InputError(f"{plan}: no such plan: a backend run writes plan.npz")
    load_payloads(plan, world)
