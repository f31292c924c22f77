"""Recordings of a script's computing, asked for other worlds than the one they were made in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from paracosm.data_files import read_json, read_yaml
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.rank_records import is_measured
from paracosm.emulation.records import (
    MEASUREMENT,
    RAN_AGAIN,
    Collective,
    Group,
    Iteration,
    Note,
    PipelineStep,
    Record,
    load_records,
)
from paracosm.errors import InputError
from paracosm.validation import validated


def load_measured(folder: Path, world: int) -> list[Record]:
    """Return the records of a run that measured computing alone, as of a world of so many ranks.

    Raises:
        InputError: the folder holds no such run, or what it did may depend on the world.
    """
    records = _recorded_in(folder)
    if not records:
        raise InputError(
            f"{folder}: not the folder of an emulated job with measured computing (backend mode, "
            "without --live)"
        )
    try:
        return in_world(records, world)
    except InputError as error:
        raise InputError(f"{folder}: {error}: run the script again") from None


def _recorded_in(folder: Path) -> list[Record]:
    file = folder / MEASUREMENT
    records = load_records(file) if file.exists() else []
    return records if is_measured(records) else []


def in_world(records: Sequence[Record], world: int) -> list[Record]:
    """Return records of measured computing as a script in a world of so many ranks makes them.

    It may have been another world if all that its iterations ask for are reductions and broadcasts
    among all ranks, as in data-parallel training: their vectors are the same in every world. That
    its computing is, too, is assumed, and noted.

    Raises:
        InputError: what the script did may depend on the world.
    """
    recorded = max(record.size for record in records if isinstance(record, Group))
    if recorded == world:
        return list(records)
    measured_in = f"computing was measured in a world of {recorded:,} rank{'s' * (recorded > 1)}"
    if recorded == 1:  # where every group is of one rank, and scripts may go without collectives
        raise InputError(f"{measured_in}, which does not show what several ask for")
    ends = (record.end for record in records if isinstance(record, Iteration))
    begun = min(ends, default=inf)
    rank = next(record.rank for record in records if isinstance(record, Group))
    is_noted = any(isinstance(record, Note) and _ASSUMED in record.text for record in records)
    moved: list[Record] = []
    if not is_noted:
        moved.append(Note(rank, False, f"{measured_in}{_ASSUMED}"))
    groups = [record for record in records if isinstance(record, Group)]
    whole = {group.name for group in groups if group.size == recorded}
    for record in records:
        why = ""
        match record:
            case PipelineStep():
                why = "stages of a pipeline"
            case Group() if record.name in whole:
                record = replace(record, size=world, members=tuple(range(world)))
            case Group():
                continue  # what is asked of it is refused below
            case Collective() if record.group not in whole or record.peer >= world:
                why = f"{record.kind} in a part of the world"
            case Collective(kind="all_gather") if record.asked < begun:  # as DDP begins
                record = replace(record, size=record.size // recorded * world)
            case Collective() if record.kind not in _SAME_IN_EVERY_WORLD:
                why = record.kind
        if why:
            where = f" at {record.site}" if isinstance(record, Collective) and record.site else ""
            raise InputError(f"{measured_in}, not {world:,}, and {why}{where} may depend on it")
        moved.append(record)
    return moved


_ASSUMED = ", and assumed to be the same here"
_SAME_IN_EVERY_WORLD = ("all_reduce", "reduce", "broadcast", "barrier")


def of_one_rank(records: Sequence[Record]) -> list[Record]:
    """Return records of measured computing of a rank that has all its groups to itself.

    Nothing takes time in a group of one, and there is nobody to wait for.
    """
    return [
        replace(record, size=1, members=(record.rank,)) if isinstance(record, Group) else record
        for record in records
    ]


def recording_in_sweep(sweep: Path, config: EmulateConfig) -> list[Record]:
    """Return what another run of a sweep has recorded of the same script, in the world of `config`.

    Without any that can be used the list is empty, or has a note on why the script runs again.

    Args:
        sweep: folder with a folder for each run, of which some may be unfinished.
        config: of the run that is to be made.
    """
    why = ""
    for folder in sorted(sweep.iterdir()):
        try:
            if _has_run_like(folder, config) and (records := _recorded_in(folder)):
                return in_world(records, config.world)
        except InputError as error:
            why = str(error)
    return [Note(config.rank[0], False, f"{RAN_AGAIN}{why}")] if why else []


def _has_run_like(folder: Path, config: EmulateConfig) -> bool:
    """Whether the run in a folder is done, and ran the script as `config` would, in any world."""
    if not (folder / "summary.json").exists():
        return False
    summary = read_json(folder / "summary.json", "summary")
    study = read_yaml(folder / "study.yaml", "study")
    arguments = study.get("emulate") if isinstance(study, dict) else None
    if not isinstance(summary, dict) or not isinstance(arguments, dict):
        return False
    other = validated(EmulateConfig, arguments, str(folder))
    return summary.get("status") in ("done", "noisy") and _way_of(other) == _way_of(config)


def _way_of(config: EmulateConfig) -> tuple[object, ...]:
    """Return what decides how a script runs, but for the number of ranks."""
    names = ("script", "arguments", "rank", "kinds", "device", "is_composed", "ranks_per_machine")
    return tuple(getattr(config, name) for name in names)
