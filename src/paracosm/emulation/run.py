"""Run an emulated job: once, or once for each of several delays."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from paracosm.cluster.changes import parse_change
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.delays import Delays, summarise_delays
from paracosm.emulation.launch import PLAN, Ended, run_job
from paracosm.emulation.metrics import Metrics, Sink
from paracosm.emulation.records import Record
from paracosm.emulation.result import EmulationResult, result_of
from paracosm.emulation.what_if import with_world
from paracosm.results import EmulationSummary

__all__ = ["run_emulation"]

Progress = Callable[[int, float | None], None]
Announce = Callable[[str], None]


def run_emulation(
    config: EmulateConfig,
    seed: int = 0,
    metrics: Sink | None = None,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> EmulationResult:
    """Run the script as the real ranks of the job, and return what came of it.

    Args:
        config: what is emulated.
        seed: of all that is random about the emulated ranks.
        metrics: gets iteration times as they are made.
        progress: is told how many iterations have ended.
        announce: is told what is real and what is assumed before the script starts.

    With changes the script is run once without them first: its summary is `unchanged`.

    Raises:
        InputError: PyTorch is missing; the port is in use.
    """
    heard = Metrics(metrics, progress)
    if not config.what_if:
        if announce is not None:
            announce(_expectation(config))
        return _run(config, seed, heard)
    unchanged = config.model_copy(update={"what_if": (), "delays": None})
    changed = with_world(config)
    if announce is not None:
        announce(f"{_expectation(changed)}; first the unchanged job runs, then the changed one")
    before, ended = _run_once(unchanged, seed, Metrics(None, progress))
    if ended.exit_code or ended.interrupted:
        return before
    after = _run(changed, seed, heard)
    return replace(after, summary=_compared(config, before.summary, after.summary))


def _run(config: EmulateConfig, seed: int, heard: Metrics) -> EmulationResult:
    if config.delays is not None:
        return _run_delays(config, config.delays, seed, heard)
    return _run_once(config, seed, heard)[0]


def _compared(
    config: EmulateConfig, before: EmulationSummary, after: EmulationSummary
) -> EmulationSummary:
    """Return the summary with what was changed, and what that makes of an iteration."""
    old, new = before.iteration_time, after.iteration_time
    ratio = None if old is None or new is None or not old.median else new.median / old.median
    changes = list(map(str, config.what_if))
    return replace(after, what_if=changes, unchanged=before, ratio=ratio)


def _run_delays(
    config: EmulateConfig, delays: Delays, seed: int, heard: Metrics
) -> EmulationResult:
    """Run the script once for each delay, and find what hides under computing.

    They are run in a drawn order, so that a machine that changes its speed does not look like a
    slope. The result is that of no delay, with what was found; or of the run that failed.
    """
    results: dict[float, EmulationResult] = {}
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(delays.delays))
    for place in order.tolist():
        delay = delays.delays[place]
        added = (parse_change(f"{delays.kind}: +{delay!r} s"),) if delay else ()
        update = {"what_if": (*config.what_if, *added), "delays": None}
        results[delay], ended = _run_once(config.model_copy(update=update), seed, heard)
        if ended.exit_code or ended.interrupted:
            shown = results[delay]
            break
    else:
        shown = results[0.0]
    done = tuple(sorted(results))
    listed, knee = summarise_delays(delays.kind, done, [results[delay].summary for delay in done])
    return replace(shown, summary=replace(shown.summary, delays=listed, knee=knee))


def _run_once(config: EmulateConfig, seed: int, heard: Metrics) -> tuple[EmulationResult, Ended]:
    """Run the script once; what it left in the scratch folder is read before that is removed."""
    with tempfile.TemporaryDirectory(prefix="paracosm-emulate-") as name:
        records: list[Record] = []

        def hear(more: list[Record]) -> None:
            records.extend(more)
            heard.hear(more)

        heard.restart()
        ended = run_job(config, seed, Path(name), hear)
        heard.exposure(records)
        result = result_of(config, records, ended.exit_code, ended.emulator, ended.interrupted)
        written = Path(name) / PLAN
        if written.is_file():
            plan = written.read_bytes()
            files = {**result.files, PLAN: lambda path: _write(plan, path)}
            result = replace(result, files=files)
        return result, ended


def _expectation(config: EmulateConfig) -> str:
    """Say in a sentence what is real and what is assumed."""
    ranks = ", ".join(map(str, config.rank))
    real = f"rank {ranks} of {config.world:,} is real"
    if len(config.rank) > 1:
        real = f"ranks {ranks} of {config.world:,} are real"
    if config.mode == "wire":
        told = f"{real}, the others are emulated; gloo talks to them over TCP on this machine"
        if 0 not in config.rank and config.plan is None:
            told += "; without a plan (--plan) rank 0 sends no parameters, which DDP does not bear"
        return told
    if not config.has_links and config.communication is None:
        return (
            f"{real}, the others are emulated; no links are given, so collectives take no time of "
            "their own (--cluster, or --latency and --bandwidth)"
        )
    return f"{real}, the others are emulated; collectives take modelled time"


def _write(content: bytes, path: Path) -> None:
    path.write_bytes(content)
