"""The profile database: one SQLite file of measured timings."""

import contextlib
import errno
import json
import os
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from paracosm.errors import InputError, unknown
from paracosm.files import check_database
from paracosm.graphs.graph import Op
from paracosm.profiling.database.rows import (
    ITERATIONS,
    KINDS,
    LINKS,
    OPS,
    Added,
    Kind,
    Timing,
    Timings,
    grouped,
    insert,
    pool,
    pool_spreads,
    rows_of,
    select,
)
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import CACHES, IterationTiming, LinkTiming, OpTiming


class ProfileDatabase:
    """Timings of ops, transfers and iterations, by environment, in one file.

    Every `add` is one transaction: all or nothing is on disk. A set of samples whose key is already
    there is not added again. Several processes may write at once; each waits for its turn.

        with ProfileDatabase.open("profiles.db", create=True) as database:
            database.add(timings)
            known = database.find(graph.ops, environment, "cold")
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection

    @classmethod
    def open(
        cls, path: str | Path, create: bool = False, *, readonly: bool = False
    ) -> "ProfileDatabase":
        """Open the database at `path`.

        Args:
            create: make it, and the folders above it, where there is none.
            readonly: leave the file as it is: adding is refused.

        Raises:
            InputError: there is no such file, it is not a profile database, a newer Paracosm
                wrote it, it cannot be read, or it is damaged.
        """
        path = Path(path)
        return cls(path, connect(path, create=create, readonly=readonly))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "ProfileDatabase":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, timings: Iterable[OpTiming]) -> int:
        """Add timings of ops; return how many were not there already.

        If one of them is invalid (NaN, no samples), none is added. Where flops or bytes of an op
        differ from those in the database (another version counted otherwise), those of the timing
        measured last hold for all its timings.

        Raises:
            InputError: a timing holds what cannot be (NaN, no samples), or the file cannot be
                written; nothing has been added then.
        """
        return self._sum(Timings(ops=tuple(timings)))

    def add_links(self, timings: Iterable[LinkTiming]) -> int:
        """Add timings of transfers and collectives, as `add`."""
        return self._sum(Timings(links=tuple(timings)))

    def add_iterations(self, timings: Iterable[IterationTiming]) -> int:
        """Add timings of whole iterations, as `add`."""
        return self._sum(Timings(iterations=tuple(timings)))

    def add_everything(self, timings: Timings) -> dict[Environment, Added]:
        """Add timings of all kinds in one transaction, as `add`; return what came of it."""
        parts = timings.by_environment()
        rows = [
            (environment, kind, rows_of(kind, getattr(part, name)))
            for environment, part in parts.items()
            for name, kind in KINDS.items()
        ]  # before the transaction: it may take its time
        added = dict.fromkeys(parts, Added())
        with explained(self.path), transaction(self._connection):
            for environment, kind, members in rows:
                new = insert(self._connection, kind, members)
                added[environment] += Added(new, len(members) - new)
        return added

    def timings(
        self,
        environment: Environment | None = None,
        name: str | None = None,
        cache: str | None = None,
    ) -> list[OpTiming]:
        """Return every set of samples of ops, sorted: of all, or of the given ones.

        Raises:
            InputError: the file is damaged (so all that read), or the cache is none of `CACHES`.
        """
        return self._select(OPS, environment, {"name": name, "cache": cache})

    def find(
        self, ops: Iterable[Op], environment: Environment, cache: str
    ) -> dict[tuple[str, str], OpTiming]:
        """Return the timings of `ops` by (name, arguments), without those never timed.

        Several sets of samples of one op are pooled (see `pool`).
        """
        wanted = json.dumps(list(dict.fromkeys((op.name, op.arguments) for op in ops)))
        return pool(self._select(OPS, environment, {"cache": cache}, wanted))

    def links(self, environment: Environment | None = None) -> list[LinkTiming]:
        """Return every set of samples of transfers and collectives, sorted."""
        return self._select(LINKS, environment, {})

    def iterations(
        self, fingerprint: str | None = None, environment: Environment | None = None
    ) -> list[IterationTiming]:
        """Return every set of samples of whole iterations, sorted; of one graph if given."""
        return self._select(ITERATIONS, environment, {"fingerprint": fingerprint})

    def everything(self) -> Timings:
        """Return the whole content of the database.

        Raises:
            InputError: some of it is damaged, or of an op or an environment that is not there.
        """
        with self._explained():
            lost = self._connection.execute("PRAGMA foreign_key_check").fetchone()
        if lost is not None:
            table, _, parent, _ = lost
            raise InputError(
                f'"{self.path}" is damaged: {table} has a row of none of its {parent}: restore a '
                "copy of it"
            )
        return Timings(tuple(self.timings()), tuple(self.links()), tuple(self.iterations()))

    def check(self) -> Timings:
        """Read every page of the file, and return every timing.

        Raises:
            InputError: one is damaged.
        """
        with self._explained():
            (verdict,) = self._connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise InputError(f'"{self.path}" is damaged: {" ".join(verdict.split())}')
        return self.everything()

    def contents(self, environments: Collection[Environment] | None = None) -> dict[str, Any]:
        """Return what `paracosm db show --json` prints, of some environments or of all."""
        numbered = enumerate([environment for environment, _ in self.environments()], start=1)
        shown = {
            number: environment
            for number, environment in numbered
            if environments is None or environment in environments
        }
        return {
            "file": str(self.path),
            "size": self.path.stat().st_size,
            "schema_version": VERSION,
            **overview(self.everything(), shown),
        }

    def environments(self) -> list[tuple[Environment, int]]:
        """Return every environment with its number of op timings, the one with most first."""
        with self._explained():
            rows = self._connection.execute(
                "SELECT text, (SELECT count(*) FROM op_timings WHERE environment = environments.id)"
                " FROM environments"
            ).fetchall()
            counts: Counter[Environment] = Counter()
            for text, count in rows:  # texts of several versions may mean one environment
                counts[Environment.from_json(text)] += count
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0].to_json()))

    def _sum(self, timings: Timings) -> int:
        return sum(added.new for added in self.add_everything(timings).values())

    def _select(
        self,
        kind: Kind[Timing],
        environment: Environment | None,
        where: dict[str, Any],
        wanted: str = "",
    ) -> list[Timing]:
        if (cache := where.get("cache")) is not None and cache not in CACHES:
            raise unknown("cache", cache, CACHES)
        among = {column: [value] for column, value in where.items() if value is not None}
        with self._explained():
            if environment is not None:
                texts = self._connection.execute("SELECT text FROM environments").fetchall()
                # Another version may have written the same environment with other words.
                among["environment"] = [
                    text for (text,) in texts if Environment.from_json(text) == environment
                ]
            return select(self._connection, kind, among, wanted)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        with explained(self.path):
            try:
                yield
            except InputError as error:
                raise InputError(f'"{self.path}" {" ".join(str(error).split())}') from None


STABLE = 0.01
"""The relative standard error that Huang et al. (section 3) find, and call very stable."""


def overview(timings: Timings, shown: Mapping[int, Environment]) -> dict[str, Any]:
    parts = {number: timings.only((environment,)) for number, environment in shown.items()}
    ops = [timing for part in parts.values() for timing in part.ops]
    sources = dict(Counter(timing.source for timing in ops).most_common())
    models = [source for source in sources if source.startswith("model ")]
    return {
        "environments": [
            {"number": number, **asdict(shown[number]), **_sums(part)}
            for number, part in parts.items()
        ],
        "models": {source.removeprefix("model "): sources[source] for source in models},
        "sources": sources,
        "ops": _op_types(ops),
        "iterations": [
            {"environment": number, **row}
            for number, part in parts.items()
            for row in _iterations(part.iterations)
        ],
        "links": [
            {"environment": number, **row}
            for number, part in parts.items()
            for row in _links(part.links)
        ],
    }


def _sums(part: Timings) -> dict[str, Any]:
    cached = Counter(timing.cache for timing in part.ops)
    errors = [timing.time.standard_error for timing in part.ops if timing.time.count > 1]
    dates = [timing.measured_at for timing in part.everyone() if timing.measured_at]
    return {
        "ops": len({(timing.op.name, timing.op.arguments) for timing in part.ops}),
        "op_types": len({timing.op.name for timing in part.ops}),
        "timings": {cache: cached[cache] for cache in CACHES},
        "samples": sum(timing.time.count for timing in part.ops),
        "links": len(part.links),
        "iterations": len(part.iterations),
        "standard_error": {
            "median": median(errors) if errors else None,
            "share_below_1_percent": (
                sum(error < STABLE for error in errors) / len(errors) if errors else None
            ),
        },
        "first_measured_at": min(dates, default=None),
        "last_measured_at": max(dates, default=None),
    }


def _op_types(ops: Iterable[OpTiming]) -> list[dict[str, Any]]:
    rows = [
        {
            "name": name,
            "arguments": len({timing.op.arguments for timing in timings}),
            "timings": len(timings),
        }
        for name, timings in grouped(ops, lambda timing: timing.op.name).items()
    ]
    return sorted(rows, key=lambda row: (-row["arguments"], -row["timings"], row["name"]))


def _iterations(timings: Iterable[IterationTiming]) -> list[dict[str, Any]]:
    graphs = grouped(timings, lambda timing: (timing.model, timing.fingerprint))
    return [
        {
            "model": model,
            "fingerprint": fingerprint,
            "sets": len(members),
            **asdict(pool_spreads([timing.time for timing in members])),
            "last_measured_at": max(timing.measured_at for timing in members) or None,
        }
        for (model, fingerprint), members in graphs.items()
    ]


def _links(timings: Iterable[LinkTiming]) -> list[dict[str, Any]]:
    ways = grouped(timings, lambda timing: (timing.kind, timing.scenario, timing.ranks))
    return [
        {
            "kind": kind,
            "scenario": scenario,
            "ranks": ranks,
            "sets": len(members),
            "smallest": min(timing.size for timing in members),
            "largest": max(timing.size for timing in members),
            "highest_bandwidth": max(
                (member.bandwidth for member in members if member.time.median > 0), default=None
            ),
        }
        for (kind, scenario, ranks), members in ways.items()
    ]


def connect(path: Path, *, create: bool, readonly: bool) -> sqlite3.Connection:
    """Return a connection to a file, with the tables created if missing.

    The file keeps SQLite's rollback journal, not a write-ahead log: between two transactions
    everything is in the one file, so it may be copied, or lie on a network drive or in a read-only
    folder. A journal lies next to it only during a write, or after a crash; the next process to
    open the file then rolls it back.
    """
    _look(path, create)
    # Never mode=ro: after a crash, reading begins with rolling the journal back.
    address = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
    with explained(path):
        connection = sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None)
        try:
            if is_new(connection, path):
                if not create:
                    raise InputError(f'"{path}" is empty, not a profile database')
                with transaction(connection):
                    _create(connection)
            if readonly or not os.access(path, os.W_OK):
                connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the write lock to the end of the block; all of it is written, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:  # Ctrl-C too
        if connection.in_transaction:  # where the disk is full, SQLite has rolled back itself
            connection.execute("ROLLBACK")
        raise


def _look(path: Path, create: bool) -> None:
    try:
        if path.is_dir():
            raise InputError(f'"{path}" is a folder, not a profile database')
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            raise InputError(f'no profile database at "{path}": paracosm profile ops makes one')
        check_database(path)
    except OSError as error:
        raise InputError(f'"{path}" cannot be opened: {error.strerror}') from None


PATIENCE = 30.0  # seconds to wait for another process that is writing

# By the primary code; the other eight bits say which of many calls of the system failed.
_MEANINGS = {
    sqlite3.SQLITE_NOTADB: "is not a profile database, which paracosm profile ops makes",
    sqlite3.SQLITE_READONLY: "cannot be written: it was opened for reading, or is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened, or no file created next to it: check permissions",
    sqlite3.SQLITE_PERM: "cannot be opened: check its permissions",
    sqlite3.SQLITE_BUSY: f"has been locked by another process for {PATIENCE:.0f} s: try again",
    sqlite3.SQLITE_NOMEM: "cannot be read: out of memory",
}

_OF_THE_DISK = {
    sqlite3.SQLITE_FULL: (errno.ENOSPC, "the disk is full; the file is unchanged"),
    sqlite3.SQLITE_IOERR: (errno.EIO, "the disk is full, or reports an error"),
}


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn errors of the file at `path` into an `InputError`, those of the disk into `OSError`."""
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        # What is left means that pages, the schema or texts are not what was written.
        reason = " ".join(str(error).split())
        if code in _OF_THE_DISK:
            raise OSError(*_OF_THE_DISK[code], str(path)) from None
        meaning = _MEANINGS.get(code, f"is damaged ({reason}): restore a copy of it")
        raise InputError(f'"{path}" {meaning}') from None


APPLICATION_ID = 0x50434F53
"""Stands in the file's header and says whose it is: "PCOS"."""

VERSION = 2
"""Of `schema.sql`."""


def is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether nothing has been written to a file yet; refuse other programs' files."""
    application, version = _header(connection)
    if application != APPLICATION_ID:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            return True
        raise InputError(f'"{path}" is an SQLite database, but no profile database of Paracosm')
    if version != VERSION:
        remedy = "update Paracosm" if version > VERSION else "time the ops again, into another file"
        raise InputError(
            f'"{path}" has schema version {version}, and this Paracosm supports {VERSION}: {remedy}'
        )
    parts = _parts(connection)
    for name, text in _own_parts().items():
        if parts.pop(name, None) != text:
            raise InputError(f'"{path}" is damaged: its {name} is not the one that Paracosm makes')
    if foreign := [name for name in parts if name.startswith("trigger ")]:
        raise InputError(f'"{path}" is damaged: it has a {foreign[0]}, which would change timings')
    return False


def _parts(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the text of each part of the schema, as in "view timings"."""
    texts = "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    return dict(connection.execute(texts).fetchall())


@cache
def _own_parts() -> dict[str, str]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        _create(connection)
        return _parts(connection)


def _create(connection: sqlite3.Connection) -> None:
    """Create the tables, unless another process was faster, in the caller's transaction."""
    if _header(connection) == (APPLICATION_ID, VERSION):
        return
    for statement in Path(__file__).with_name("schema.sql").read_text("utf-8").split(";")[:-1]:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _header(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version
