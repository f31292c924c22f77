"""What the emulator itself costs: processor time for a megabyte, and many emulated ranks."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from jobs import wire_job
from network import Network
from table1 import SCRIPT
from tables import Table, middle, milliseconds, size_of

__all__ = ["measure_cost", "tables_of"]

Say = Callable[[str], None]

WORLDS = (16, 64)
CALLS = (("barrier", 4), ("all_reduce", 1 << 10), ("all_reduce", 2 << 20), ("all_reduce", 16 << 20))
MB = 1e6


def measure_cost(network: Network, quick: bool, say: Say) -> dict[str, Any]:
    """Have one real rank talk to 15 and to 63 emulated ones, hops among them free."""
    rows = []
    for world in WORLDS:
        say(f"{world} ranks: starting")
        begin = time.monotonic()
        with wire_job(network, world, [SCRIPT], {"communication": "none"}) as job:
            job.answers()
            start = time.monotonic() - begin
            for kind, size in CALLS:
                say(f"{world} ranks: {kind} of {size_of(size)}" if size > 4 else f"{world}: {kind}")
                job.ask(kind=kind, size=size, warm=2, count=1)
                count = 5 if quick else 50 if size < MB else 20
                before = job.cpu()
                times = job.ask(kind=kind, size=size, warm=0, count=count)
                own, peer = (late - early for early, late in zip(before, job.cpu(), strict=True))
                row = {"world": world, "start": start, "kind": kind, "size": size, "calls": count}
                cpu = {"rank 0": own / count, "peer": peer / count}
                rows.append({**row, "median": statistics.median(times), **cpu})
    return {"rows": rows}


def tables_of(measured: Mapping[str, Any], table1: Mapping[str, Any] | None) -> list[Table]:
    """Return many emulated ranks; and, of table 1's runs, processor time beside a real rank's."""
    many = [
        [
            f"{row['world']}",
            f"{row['start']:.1f} s",
            row["kind"].replace("_", "-"),
            "" if row["kind"] == "barrier" else size_of(row["size"]),
            milliseconds(row["median"]),
            *(milliseconds(row[who]) for who in ("peer", "rank 0")),
            _per_megabyte(row["peer"], _moved(row)),
        ]
        for row in measured["rows"]
    ]
    tables = [
        Table(
            "One real rank and many emulated, hops among those free",
            (
                *("ranks", "start", "collective", "size", "a call (ms)"),
                *("emulator's CPU (ms)", "rank 0's CPU (ms)", "emulator's CPU (ms/MB)"),
            ),
            many,
        )
    ]
    if table1 is not None:
        tables.insert(0, _extra(table1))
    return tables


def _extra(table1: Mapping[str, Any]) -> Table:
    rows = table1["settings"][0]["rows"]
    lines = []
    for kind, size in dict.fromkeys((row["kind"], row["size"]) for row in rows):
        cpu = {
            name: middle(
                [
                    row["cpu"]["peer"]
                    for row in rows
                    if (row["job"], row["kind"], row["size"]) == (name, kind, size)
                ]
            )
            for name in ("B", "E")
        }
        moved = _moved({"kind": kind, "size": size, "world": 2})
        lines.append(
            [
                kind.replace("_", "-"),
                size_of(size),
                *(milliseconds(cpu[name]) for name in ("B", "E")),
                *(_per_megabyte(cpu[name], moved) for name in ("B", "E")),
            ]
        )
    return Table(
        "Processor time of a call: of a real rank 1, and of the emulator in its place",
        (
            *("collective", "size", "real (ms)", "emulator (ms)"),
            *("real (ms/MB)", "emulator (ms/MB)"),
        ),
        lines,
        "MB are of 10^6 bytes and count both directions of rank 0's link.",
    )


def _moved(row: Mapping[str, Any]) -> float:
    """Return the bytes that pass rank 0's link, both directions together."""
    world, size = row["world"], row["size"]
    times = {"all_reduce": 4, "all_gather": 2, "barrier": 0}[row["kind"]]
    return times * (world - 1) / world * size


def _per_megabyte(seconds: float, moved: float) -> str:
    return "" if moved < MB / 10 else f"{1e3 * seconds / (moved / MB):.2f}"
