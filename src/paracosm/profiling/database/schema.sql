-- The tables of a profile database. A change of them is a new VERSION in database.py.

CREATE TABLE environments (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);

CREATE TABLE ops (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, arguments TEXT NOT NULL,
    flops INTEGER NOT NULL, bytes_read INTEGER NOT NULL, bytes_written INTEGER NOT NULL,
    counted_at TEXT NOT NULL, UNIQUE (name, arguments));

CREATE TABLE op_timings (
    key TEXT NOT NULL PRIMARY KEY,
    op INTEGER NOT NULL REFERENCES ops,
    environment INTEGER NOT NULL REFERENCES environments,
    cache TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count > 0), mean REAL NOT NULL, variance REAL NOT NULL,
    minimum REAL NOT NULL, p10 REAL NOT NULL, median REAL NOT NULL, p90 REAL NOT NULL,
    probe REAL NOT NULL,
    source TEXT NOT NULL, measured_at TEXT NOT NULL, session TEXT NOT NULL DEFAULT '');

CREATE INDEX op_timings_by_op ON op_timings (op, environment, cache);

CREATE TABLE link_timings (
    key TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, scenario TEXT NOT NULL,
    size INTEGER NOT NULL, ranks INTEGER NOT NULL,
    environment INTEGER NOT NULL REFERENCES environments,
    count INTEGER NOT NULL CHECK (count > 0), mean REAL NOT NULL, variance REAL NOT NULL,
    minimum REAL NOT NULL, p10 REAL NOT NULL, median REAL NOT NULL, p90 REAL NOT NULL,
    source TEXT NOT NULL, measured_at TEXT NOT NULL);

CREATE TABLE iteration_timings (
    key TEXT NOT NULL PRIMARY KEY, fingerprint TEXT NOT NULL, model TEXT NOT NULL,
    environment INTEGER NOT NULL REFERENCES environments,
    count INTEGER NOT NULL CHECK (count > 0), mean REAL NOT NULL, variance REAL NOT NULL,
    minimum REAL NOT NULL, p10 REAL NOT NULL, median REAL NOT NULL, p90 REAL NOT NULL,
    probe REAL NOT NULL,
    source TEXT NOT NULL, measured_at TEXT NOT NULL, session TEXT NOT NULL DEFAULT '');

CREATE VIEW timings AS SELECT
    ops.name, ops.arguments, ops.flops, ops.bytes_read, ops.bytes_written,
    environments.text AS environment, t.cache,
    t.count, t.mean, t.variance, t.minimum, t.p10, t.median, t.p90,
    t.probe, t.source, t.measured_at, t.session, t.key
    FROM op_timings AS t JOIN ops ON ops.id = t.op
    JOIN environments ON environments.id = t.environment;

CREATE VIEW links AS SELECT
    t.kind, t.scenario, t.size, t.ranks, environments.text AS environment,
    t.count, t.mean, t.variance, t.minimum, t.p10, t.median, t.p90,
    t.source, t.measured_at, t.key
    FROM link_timings AS t JOIN environments ON environments.id = t.environment;

CREATE VIEW iterations AS SELECT
    t.fingerprint, t.model, environments.text AS environment,
    t.count, t.mean, t.variance, t.minimum, t.p10, t.median, t.p90,
    t.probe, t.source, t.measured_at, t.session, t.key
    FROM iteration_timings AS t JOIN environments ON environments.id = t.environment;
