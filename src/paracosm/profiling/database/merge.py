"""Several databases as one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paracosm.errors import InputError
from paracosm.profiling.database.database import ProfileDatabase
from paracosm.profiling.database.files import is_parquet, load_export
from paracosm.profiling.database.timings import Added, Timings
from paracosm.profiling.environment import Environment

__all__ = ["merge"]


def merge(into: str | Path, others: Sequence[str | Path]) -> dict[Environment, Added]:
    """Add all that `others` hold to the database `into`, which is made where there is none.

    Timings of other devices and environments come to stand side by side. What is there already, by
    its key, is not added again; so the same merge may be repeated, and goes on where it was
    interrupted: every file is one transaction, and is added whole or not at all. The others are
    not changed.

    Args:
        others: databases, or Parquet files that `export` wrote.

    Returns:
        how many sets of samples were added, and how many had been there, by environment.

    Raises:
        InputError: one of the files cannot be used (nothing has been merged then), or `into`
            cannot be written, or is among the others.
    """
    into, sources = Path(into), [Path(other) for other in others]
    for source in sources:
        if into.exists() and source.exists() and into.samefile(source):
            raise InputError(f'"{into}" cannot be merged into itself')
    for source in sources:  # all are looked at before anything is written
        _holdings(source)
    counts: dict[Environment, Added] = {}
    with ProfileDatabase.open(into, create=True) as database:
        for source in sources:
            for environment, added in database.add_everything(_holdings(source)).items():
                counts[environment] = counts.get(environment, Added()) + added
    return counts


def _holdings(source: Path) -> Timings:
    if source.suffix.lower() == ".csv":
        raise InputError(f'"{source}": a table for spreadsheets: only databases and Parquet merge')
    if is_parquet(source):
        return load_export(source)
    with ProfileDatabase.open(source, readonly=True) as database:
        return database.everything()
