"""The file that a calibration goes to: refused before anything is measured, written afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from paracosm.cli.display import grid, printer
from paracosm.errors import InputError
from paracosm.profiling.nodes.calibration import QUANTITIES, NodeCalibration
from paracosm.results import to_json
from paracosm.studies.run_folder import describe_environment
from paracosm.units import format_bandwidth, format_duration, format_size

__all__ = ["Out", "Update", "check", "finish", "host_and_port", "windows_in_words"]


Out = Annotated[Path | None, typer.Option(help="calibration file to write (YAML)")]
Update = Annotated[
    bool, typer.Option("--update", help="keep what the file knows and this does not find out")
]


def check(path: Path | None, update: bool, force: bool) -> NodeCalibration:
    """Return what is known already: an empty calibration, or with `update` that of the file.

    Raises:
        InputError: the file could not be written afterwards, or must not be.
    """
    from paracosm.profiling.nodes.calibration import load_calibration

    if path is None:
        if update or force:
            flag = "--update" if update else "--force"
            raise InputError(f"{flag} is about the file that --out names: give it as well")
        return NodeCalibration()
    if update and force:
        raise InputError("--update keeps what the file knows and --force does not: give one")
    if path.exists() and not (update or force):
        raise InputError(f"{path} exists: --force replaces it, --update adds to it")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"{path}: cannot be written: is its folder there, and yours to write to?")
    return load_calibration(path) if update and path.exists() else NodeCalibration()


def finish(
    whole: NodeCalibration,
    out: Path | None,
    details: Mapping[str, Any],
    show_details: Callable[[Mapping[str, Any]], None],
    json: bool,
    quiet: bool,
) -> None:
    """Write a calibration to `out`, if given, and print it with the details of its measurement.

    Raises:
        InputError: it cannot be written.
    """
    if out is not None:
        whole = _write(whole, out)
    if json:
        typer.echo(to_json(_as_json(whole) | {"details": details}), nl=False)
    elif not quiet:
        _show(whole)
        show_details(details)
        if out is not None:
            printer()(str(out))


def windows_in_words(announced: Sequence[Mapping[str, Any]]) -> str:
    """Return "Windows announced for streams: 64 KiB after 0 s."."""
    written = ", ".join(
        f"{format_size(each['bytes'])} after {format_duration(each['seconds'])}"
        for each in announced
    )
    return f"Windows announced for streams: {written}."


def _write(calibration: NodeCalibration, path: Path) -> NodeCalibration:
    """Write a calibration with the environment of here and now; return it so."""
    from paracosm.profiling.nodes.calibration import save_calibration

    here = describe_environment()
    versions: Any = here["versions"]
    environment = {
        **calibration.environment,
        **{name: str(here[name]) for name in ("platform", "processor", "cores")},
        **{name: str(version) for name, version in versions.items()},
    }
    whole = replace(calibration, environment=environment)
    save_calibration(whole, path)
    return whole


def _show(calibration: NodeCalibration) -> None:
    rows = [["quantity", ">value", ">spread", "how"]]
    for name in QUANTITIES:
        value = getattr(calibration, name)
        if value is None:
            continue
        found = calibration.found.get(name)
        spread = "" if found is None or found.spread is None else f"{found.spread:.1%}"
        how = "" if found is None else f"{found.how}: {found.by}"
        rows.append([name.replace("_", " "), _UNITS[name](value), spread, how])
    if len(rows) > 1:
        printer()(grid(rows))


def _as_json(calibration: NodeCalibration) -> dict[str, Any]:
    """Return quantities (SI units; null: unknown, and an infinite window is "inf") and sources."""
    known = {name: getattr(calibration, name) for name in QUANTITIES}
    return {
        **{name: "inf" if value == float("inf") else value for name, value in known.items()},
        "found": {name: asdict(found) for name, found in calibration.found.items()},
    }


_UNITS: Mapping[str, Callable[[float], str]] = {
    "bandwidth_out": format_bandwidth,
    "bandwidth_in": format_bandwidth,
    "duplex": lambda value: f"{value:.2f}",
    "round_trip": format_duration,
    "uneven": lambda value: f"{value:.3f}",
    "burst": format_size,
    "alpha": lambda value: f"{format_duration(value)}/B",
    "beta": format_duration,
    "window": format_size,
}


def host_and_port(flag: str, text: str, example: str) -> tuple[str, int]:
    """Read a flag, "10.0.0.2:5201" or "[::1]:5201".

    Raises:
        InputError: there is no host, or no port from 1 to 65535.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise InputError(f'{flag}: write HOST:PORT, such as {example}, not "{text}"')
    return host.strip("[]"), int(port)
