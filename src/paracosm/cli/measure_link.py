"""`paracosm measure link`: how long data takes from memory to memory on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from paracosm.cli.display import counter, printer, show_result
from paracosm.cli.options import (
    Json,
    Quiet,
    duration,
    listed,
    named,
    numbers,
)
from paracosm.cli.verbs import INTERRUPTED
from paracosm.errors import InputError, unknown
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.links.measure import (
    COLLECTIVES,
    KINDS,
    USUAL,
    Links,
    LinkSettings,
    Row,
    measure_links,
    rows,
    write_table,
)
from paracosm.quantities import read_size


def link(
    db: Annotated[Path | None, Option(help="profile database to add the timings to")] = None,
    kinds: Annotated[
        str | None,
        Option(
            help="what to measure: host-copy, shared-memory, host-to-device, device-to-host, "
            "device-to-device, send-recv, all-reduce, all-gather, reduce-scatter, broadcast, ddp, "
            "new-memory (all but the last five)"
        ),
    ] = None,
    sizes: Annotated[str | None, Option(help="of messages (1KiB,4KiB,... to 64MiB)")] = None,
    ranks: Annotated[
        str | None, Option(help="processes that take part in a collective (2,4)")
    ] = None,
    seconds: Annotated[str, Option(help="at most for each size of each kind")] = "0.5s",
    precision: Annotated[float, Option(help="target relative standard error")] = 0.01,
    timeout: Annotated[str, Option(help="to wait for a process that does not answer")] = "2min",
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Measure copies, and messages and collectives between processes, on this machine.

    Example: paracosm measure link --kinds host-copy,send-recv --sizes 1KiB,1MiB
    """
    measured_kinds = USUAL if kinds is None else _kinds(kinds)
    if ranks is not None and not {*measured_kinds} & {*COLLECTIVES, "ddp"}:
        raise InputError(f"--ranks has no effect: {kinds} has no collective")
    settings = LinkSettings(
        kinds=measured_kinds,
        sizes=LinkSettings().sizes if sizes is None else _sizes(sizes),
        ranks=LinkSettings().ranks
        if ranks is None
        else sorted({*numbers("--ranks", ranks, "2,4")}),
        seconds=duration("--seconds", seconds),
        precision=precision,
        timeout=duration("--timeout", timeout),
    )
    with (
        nullcontext() if db is None else ProfileDatabase.open(db, create=True) as database,
        counter(None, hidden=json or quiet, unit="sizes") as shown,
    ):
        measured = measure_links(
            settings,
            keep=lambda timing: None if database is None else database.add_links([timing]),
            progress=shown,
        )
    table = rows(measured.timings)
    show_result(_summary(measured, table), json, quiet, lambda: _show(measured, table, db))
    return INTERRUPTED if measured.interrupted else int(_status(measured) != "done")


def _kinds(text: str) -> list[str]:
    known = {_hyphened(kind): kind for kind in KINDS}
    names = [_hyphened(name) for name in listed(text)]
    for name in names:
        if name not in known:
            raise unknown("kind of transfer", name, known)
    return [known[name] for name in names]


def _hyphened(kind: str) -> str:
    return kind.replace(" ", "-").replace("_", "-")


def _sizes(text: str) -> list[int]:
    values = sorted({named("--sizes", read_size, part) for part in listed(text)})
    if values and not 1 <= values[0] <= values[-1] < 2**63:
        raise InputError("--sizes: a message has at least one byte, and fewer than 2^63")
    return [int(size) for size in values]


def _summary(measured: Links, table: Sequence[Row]) -> dict[str, Any]:
    return {
        "status": _status(measured),
        "environments": [
            asdict(environment) for environment in {t.environment: None for t in measured.timings}
        ],
        "scenarios": [
            {
                "kind": row.kind,
                "scenario": row.scenario,
                "ranks": row.ranks,
                "directions": row.directions,
                "seconds": row.seconds,
                "bytes_per_second": {size: row.throughput(size) for size in row.seconds},
                "line": row.line and asdict(row.line),
                "link": row.link and asdict(row.link),
            }
            for row in table
        ],
        "left_out": measured.left_out,
        "failed": measured.failed,
    }


def _status(measured: Links) -> str:
    if measured.interrupted:
        return "interrupted"
    return "failed" if measured.failed or not measured.timings else "done"


def _show(measured: Links, table: Sequence[Row], db: Path | None) -> None:
    say = printer()
    say(write_table(table))
    reasons: dict[str, list[str]] = {}
    for scenario, why in measured.left_out.items():
        reasons.setdefault(why, []).append(scenario)
    if measured.left_out or measured.failed:
        say()
    for why, which in reasons.items():
        say(f"left out ({why}): {'; '.join(which)}")
    for scenario, why in measured.failed.items():
        say(f"failed: {scenario}: {why}", style="red")
    if measured.interrupted:
        say("Interrupted: these are the measurements so far.")
    if db is not None:
        say(str(db))
