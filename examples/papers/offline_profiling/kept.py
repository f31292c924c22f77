"""What was measured so far: op timings in a profile database, all else as JSON, part by part.

A part that was interrupted begins anew, but a grid, which goes on with the ops that are missing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from plan import Plan

from paracosm.cli.display import progress_bar
from paracosm.errors import InputError
from paracosm.profiling import Environment, OpTiming, Profile, ProfileDatabase, environment_here

__all__ = ["Kept", "Progress"]

Progress = Callable[[int, int], None]


class Kept:
    """The folder of one reproduction.

    Attributes:
        folder: where.
        database: every timing.
        environment: of this process; all timings are of it.
    """

    def __init__(self, folder: Path, database: ProfileDatabase, environment: Environment) -> None:
        self.folder, self.database, self.environment = folder, database, environment

    @classmethod
    @contextmanager
    def open(cls, folder: Path, plan: Plan) -> Iterator[Kept]:
        """Open a folder, or make it.

        Raises:
            InputError: it holds another reproduction, or one of another machine.
        """
        environment = environment_here()
        asked = {"plan": asdict(plan), "environment": asdict(environment)}
        asked = json.loads(json.dumps(asked))  # as it is read back
        file = folder / "plan.json"
        if not file.exists():
            if folder.exists() and any(folder.iterdir()):
                raise InputError(f'"{folder}" holds something else: give another --out')
            (folder / "parts").mkdir(parents=True)
            write_json(file, asked)
        elif (before := json.loads(file.read_text(encoding="utf-8"))) != asked:
            raise InputError(
                f'"{folder}" holds a run with another {_difference(before, asked)}: '
                "give another --out"
            )
        with ProfileDatabase.open(folder / "profiles.db", create=True) as database:
            yield cls(folder, database, environment)

    def part(self, name: str, work: Callable[[Progress], dict[str, Any]]) -> dict[str, Any]:
        """Return what a part of the work found, now or in an earlier run, and say how it goes."""
        file = self.folder / "parts" / f"{name.replace(' ', '_').replace(',', '')}.json"
        if not file.exists():
            print(f"{name} ... ", end="", flush=True)
            began = time.perf_counter()
            with progress_bar(None, hidden=False, unit="done") as shown:
                found = work(lambda done, _total: shown(done, None))
            write_json(file, found)
            print(f"{time.perf_counter() - began:.0f} s", flush=True)
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return content

    def timings(self, keys: Sequence[str]) -> list[OpTiming]:
        """Return op timings by their keys."""
        found = {timing.key: timing for timing in self.database.timings(self.environment)}
        missing = [key for key in keys if key not in found]
        if missing:
            raise InputError(
                f'"{self.database.path}" lacks {len(missing)} timings that were in it: '
                "give another --out"
            )
        return [found[key] for key in keys]


def complete(profile: Profile) -> Profile:
    """Return a profile that was not interrupted; go on being interrupted otherwise."""
    if profile.interrupted:
        raise KeyboardInterrupt
    return profile


def write_json(file: Path, content: Any) -> None:
    """Write a file whole or not at all."""
    half = file.with_suffix(".half")
    half.write_text(json.dumps(content, indent=1), encoding="utf-8")
    half.replace(file)


def _difference(before: dict[str, Any], asked: dict[str, Any]) -> str:
    """Return what first differs: "budget (480.0, now 60.0)"."""
    for group, content in asked.items():
        for name, value in content.items():
            was = before.get(group, {}).get(name)
            if was != value:
                return name if len(f"{was}{value}") > 80 else f"{name} ({was}, now {value})"
    return "version"
