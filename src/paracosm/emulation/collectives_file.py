"""Every collective of an emulated job as a Parquet file, for whoever wants to look for themselves.

Columns: rank, group, number, kind, size (bytes), peer (-1 for none), asked, entered, begun, done
(seconds since the first record of the job), worker, site, and exposed and hidden (seconds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from paracosm.emulation.by_rank import by_rank
from paracosm.emulation.records import Record
from paracosm.timeline.analysis import exposed_of_each

__all__ = ["save_collectives"]

_TIMES = ("asked", "entered", "begun", "done")


def save_collectives(records: Sequence[Record], path: Path) -> None:
    """Write the collectives of all real ranks to `path`, rank by rank as they were asked for."""
    import pyarrow as pa
    from pyarrow import parquet

    ranks = by_rank(records)
    start = min((each.first for each in ranks), default=0.0)
    rows = []
    for own in ranks:
        exposed = exposed_of_each(own.spans, own.waits)
        for collective, seconds in zip(own.collectives, exposed.tolist(), strict=True):
            row = asdict(collective)
            row |= {name: row[name] - start for name in _TIMES}
            row |= {"exposed": seconds, "hidden": row["done"] - row["asked"] - seconds}
            rows.append(row)
    whole = ("rank", "number", "size", "peer", "worker")
    types = {"group": pa.string(), "kind": pa.string(), "site": pa.string()}
    names = ("rank", "group", "number", "kind", "size", "peer", *_TIMES, "worker", "site")
    schema = pa.schema(
        [
            (name, pa.int64() if name in whole else types.get(name, pa.float64()))
            for name in (*names, "exposed", "hidden")
        ]
    )
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), path)
