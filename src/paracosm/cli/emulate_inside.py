"""The end of an emulated rank that the user's own launch line started: summary and run folder."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from paracosm.cli.show import show_summary
from paracosm.emulation.config import Setting
from paracosm.emulation.records import RecordReader
from paracosm.emulation.result import Metrics, result_of
from paracosm.studies import Point, RunFolder

__all__ = ["finish"]


def finish(setting: Setting, records: Path, out: Path | None, exit_code: int | None) -> None:
    """Print the summary on standard error, and write a run folder if one is asked for.

    Args:
        setting: of the rank.
        records: the file that it wrote, complete.
        out: the run folder to make.
        exit_code: of the script; None where nobody knows.

    Raises:
        InputError: the run folder cannot be made.
    """
    heard = RecordReader(records).more()
    result = result_of(setting.config, heard, exit_code)
    if out is not None:
        point = Point("emulate", "", setting.seed, setting.config, {})
        with RunFolder.create(out, point.as_study()) as folder:
            metrics = Metrics(folder)
            metrics.hear(heard)
            metrics.exposure(heard)
            for name, save in result.files.items():
                save(out / name)
            folder.finish(result.summary, result.timeline)
        from paracosm.report import write_report

        write_report([RunFolder.open(out)], out / "report.html")
    with contextlib.redirect_stdout(sys.stderr):
        show_summary(result.summary, out, json=False)
