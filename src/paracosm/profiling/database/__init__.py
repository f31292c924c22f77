"""The profile database: timings in one SQLite file, merged, exported, looked up."""

from paracosm.profiling.database.database import ProfileDatabase
from paracosm.profiling.database.files import export, load_export, merge, replacing_database
from paracosm.profiling.database.rows import (
    Added,
    Timings,
    choose_environments,
    describe,
    pool,
    pool_spreads,
    short_arguments,
)

__all__ = [
    "Added",
    "ProfileDatabase",
    "Timings",
    "choose_environments",
    "describe",
    "export",
    "load_export",
    "merge",
    "pool",
    "pool_spreads",
    "replacing_database",
    "short_arguments",
]
