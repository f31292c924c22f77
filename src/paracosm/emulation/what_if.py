"""What changes make of an emulated job; `cluster.changes` is their grammar."""

from __future__ import annotations

from dataclasses import dataclass

from paracosm.cluster.changes import Change, refuse_changes
from paracosm.emulation.config import EmulateConfig, RandomDelay, parse_random_delay
from paracosm.errors import InputError

__all__ = ["Straggler", "changes_of", "stragglers_of", "with_world"]

_CAN = (
    "how fast emulated workers compute, how late they come (worker 5: +10 ms), how many there are, "
    "links and collectives"
)


@dataclass(frozen=True)
class Straggler:
    """These `ranks` compute `factor` times as long, and are `late` once in an iteration."""

    ranks: range
    factor: float = 1.0
    late: RandomDelay | None = None


def with_world(config: EmulateConfig) -> EmulateConfig:
    """Return the job with the number of workers that a change asks for, without that change.

    Raises:
        InputError: two other numbers, or one that is too small for the real rank, or too large for
            the cluster.
    """
    worlds = [each for each in config.what_if if each.what == "count"]
    if not worlds:
        return config
    if len(worlds) > 1:
        raise worlds[1].error("another number of workers is asked for already")
    rest = tuple(each for each in config.what_if if each.what != "count")
    changed = config.model_copy(update={"world_size": worlds[0].value, "what_if": rest})
    try:
        _ = changed.world
        changed.resolve_cluster()
    except InputError as error:
        raise worlds[0].error(str(error)) from None
    return changed


def changes_of(config: EmulateConfig, subject: str) -> list[Change]:
    """Return the changes of "link" (one or all) or "collectives".

    Raises:
        InputError: a change that no emulated job can make.
    """
    _refuse(config.what_if)
    return [each for each in config.what_if if each.subject.startswith(subject)]


def stragglers_of(config: EmulateConfig) -> list[Straggler]:
    """Return the changes of how fast and how late emulated workers are.

    Raises:
        InputError: a change that no emulated job can make, of a worker that there is not, or of a
            real one.
    """
    _refuse(config.what_if)
    return [_straggler(config, each) for each in config.what_if if each.subject == "workers"]


def _straggler(config: EmulateConfig, change: Change) -> Straggler:
    ranks = change.numbers(config.world)
    for rank in config.rank:
        if rank in ranks:
            raise change.error(
                f"rank {rank} is real, it computes as fast as this machine does; only emulated "
                "ranks can be made stragglers"
            )
    if change.what == "compute":
        return Straggler(ranks, change.factor)
    late = change.added if isinstance(change.added, str) else f"{change.added!r}s"
    try:
        return Straggler(ranks, late=parse_random_delay(late))
    except InputError as error:
        raise change.error(str(error)) from None


def _refuse(changes: tuple[Change, ...]) -> None:
    def can(change: Change) -> bool:
        if change.subject == "workers":
            return change.what in ("compute", "late", "count")
        return change.subject != "servers"

    refuse_changes((each for each in changes if not can(each)), "emulate", _CAN)
    for each in changes:
        if each.subject == "collectives" and not isinstance(each.added, str) and each.added < 0:
            raise each.error("emulate cannot take a delay away; write 2x faster, or none")
