"""The profile database: timings in one SQLite file, merged, exported, looked up."""

from paracosm.profiling.database.choose import choose_environments, describe
from paracosm.profiling.database.database import ProfileDatabase
from paracosm.profiling.database.files import export, load_export
from paracosm.profiling.database.merge import merge
from paracosm.profiling.database.pool import pool, pool_spreads
from paracosm.profiling.database.replacing import replacing_database
from paracosm.profiling.database.short import short_arguments
from paracosm.profiling.database.timings import Added, Timings

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
