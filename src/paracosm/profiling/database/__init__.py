"""The profile database: timings in one SQLite file, merged, exported, looked up."""

from paracosm.profiling.database.database import ProfileDatabase
from paracosm.profiling.database.files import export, load_export, merge, replacing_database
from paracosm.profiling.database.rows import (
    Added,
    choose_environments,
    describe,
    pool,
    short_arguments,
)

__all__ = [
    "Added",
    "ProfileDatabase",
    "choose_environments",
    "describe",
    "export",
    "load_export",
    "merge",
    "pool",
    "replacing_database",
    "short_arguments",
]
