"""What an emulated job came to: summary, timeline and tables, made of its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from paracosm.emulation.beside import beside, predicted_time
from paracosm.emulation.collectives_file import save_collectives
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.records import Record
from paracosm.emulation.summary import summarise
from paracosm.emulation.timeline_of import timeline_of
from paracosm.results import EmulationSummary
from paracosm.timeline import Timeline

__all__ = ["EmulationResult", "result_of"]


@dataclass(frozen=True)
class EmulationResult:
    """What an emulated job came to.

    Attributes:
        summary: the key numbers, as `summary.json` names them.
        timeline: of the real ranks; None where several runs were made.
        files: further files of the run folder by name, each with a function that writes it.
    """

    summary: EmulationSummary
    timeline: Timeline | None
    files: Mapping[str, Callable[[Path], None]] = field(default_factory=dict)


def result_of(
    config: EmulateConfig,
    records: Sequence[Record],
    exit_code: int | None,
    emulator: int | None = None,
    interrupted: bool = False,
) -> EmulationResult:
    """Return what the records of a job say.

    Args:
        config: what was emulated.
        records: of all its processes.
        exit_code: of the script; None where nobody knows.
        emulator: exit code of the emulator; None where there was none.
        interrupted: whether the user ended the job.
    """
    summary = summarise(config, records, exit_code)
    if emulator:
        summary = replace(summary, status="failed")
    if interrupted:
        summary = replace(summary, status="interrupted")
    if config.beside is not None:
        found = beside(config.beside, predicted_time(config.beside), summary)
        summary = replace(summary, beside=found)
    files = {"collectives.parquet": lambda path: save_collectives(records, path)}
    return EmulationResult(summary, timeline_of(records), files)
