"""Process groups of several traces: which ranks meet, at which of their collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paracosm.errors import InputError
from paracosm.prediction.traces.piece import Piece
from paracosm.timeline.kineto import Collective

__all__ = ["Group", "groups_of"]


@dataclass(frozen=True, slots=True)
class Group:
    """A process group.

    Attributes:
        name: as the traces have it; "" where they have none.
        ranks: of it, ascending.
        calls: for each of its ranks its collectives in order.
    """

    name: str
    ranks: tuple[int, ...]
    calls: tuple[tuple[Piece, ...], ...]

    @property
    def label(self) -> str:
        """For people: "group 0 of ranks 0 to 7"."""
        few = ", ".join(map(str, self.ranks))
        whole = self.ranks == tuple(range(self.ranks[0], self.ranks[-1] + 1))
        ranks = f"{self.ranks[0]} to {self.ranks[-1]}" if whole and len(self.ranks) > 2 else few
        return f"group {self.name} of ranks {ranks}" if self.name else f"ranks {ranks}"


def groups_of(
    pieces: Mapping[int, Sequence[Piece]], paths: Mapping[int, Path], world: int | None
) -> list[Group]:
    """Return the groups of more than one rank, with the collectives that meet.

    The k-th collective of a rank in a group meets the k-th of the others.

    Args:
        pieces: of each rank, in the order of issue.
        paths: of the traces, for messages.
        world: ranks of the job, where the traces say it.

    Raises:
        InputError: the traces of some ranks are missing, or the collectives do not match (which,
            and where).
    """
    found: dict[tuple[str, tuple[int, ...]], dict[int, list[Piece]]] = {}
    for rank in sorted(pieces):
        for piece in sorted(
            (piece for piece in pieces[rank] if piece.call is not None), key=lambda p: p.begin
        ):
            assert piece.call is not None
            ranks = _ranks(piece.call, tuple(sorted(pieces)), world, paths[rank])
            if len(ranks) > 1:
                key = (piece.call.group, ranks)
                found.setdefault(key, {}).setdefault(rank, []).append(piece)
    groups = []
    for (name, ranks), calls in sorted(found.items()):
        group = Group(name, ranks, tuple(tuple(calls.get(rank, ())) for rank in ranks))
        _check(group, paths)
        groups.append(group)
    return groups


def _ranks(
    call: Collective, given: tuple[int, ...], world: int | None, path: Path
) -> tuple[int, ...]:
    """Return the ranks that meet at a collective.

    Raises:
        InputError: there is no trace of one of them, or nobody says which they are.
    """
    if call.ranks:
        ranks = tuple(sorted(set(call.ranks)))
    elif call.group_size == 1:
        return ()
    elif call.group_size in (0, len(given)) and world in (None, len(given)):
        ranks = given
    elif call.group_size in (0, world) and world is not None:
        ranks = tuple(range(world))
    else:
        raise InputError(
            f"{path}: {call.kind} in a group of {call.group_size} ranks that the trace does not "
            f"name, of {world or len(given)}: which meet, nobody says"
        )
    missing = [rank for rank in ranks if rank not in given]
    if missing:
        few = ", ".join(map(str, missing[:6])) + (", ..." if len(missing) > 6 else "")
        raise InputError(
            f"{path}: {call.kind} among {len(ranks)} ranks, and there is no trace of rank "
            f"{few}: give one of every rank, or --alone to take collectives as long as they were"
        )
    if call.kind in ("send", "receive"):
        raise InputError(f"{path}: {call.kind} between two ranks: only collectives are replayed")
    return ranks


def _check(group: Group, paths: Mapping[int, Path]) -> None:
    """Check that the ranks of a group call the same collectives."""
    first, calls = group.ranks[0], group.calls[0]
    for rank, others in zip(group.ranks[1:], group.calls[1:], strict=True):
        for number, (one, other) in enumerate(zip(calls, others, strict=False)):
            assert one.call is not None
            assert other.call is not None
            if one.call.kind != other.call.kind:
                raise InputError(
                    f"{paths[rank]}: collective {number} in {group.label} is {other.call.kind} "
                    f"(at {1e3 * other.begin:.3f} ms), and that of rank {first} is "
                    f"{one.call.kind}: the traces are not of the same steps"
                )
        if len(calls) != len(others):
            raise InputError(
                f"{paths[rank]}: {len(others)} collectives in {group.label}, and rank {first} has "
                f"{len(calls)}: the traces are not of the same steps"
            )
