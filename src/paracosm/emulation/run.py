"""Run an emulated job: once, or once for each of several delays; ranks of several kinds in turn."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from paracosm.cluster.changes import WORTH_FASTER_LINKS, parse_change, with_twice_the_bandwidth
from paracosm.emulation.compose import composed_ranks
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.delays import Delays, summarise_delays
from paracosm.emulation.job import Ended, run_job
from paracosm.emulation.kinds import met_by_messages, missing_kinds, take_turns
from paracosm.emulation.rank.messages import awaited_rank
from paracosm.emulation.rank_records import is_measured
from paracosm.emulation.recordings import in_world, load_measured, recording_in_sweep
from paracosm.emulation.records import Record
from paracosm.emulation.result import EmulationResult, Metrics, Sink, result_of
from paracosm.errors import InputError
from paracosm.files import temporary_folder
from paracosm.results import EmulationSummary
from paracosm.results.kind import with_unchanged


def run_emulation(
    config: EmulateConfig,  # what is emulated
    seed: int = 0,  # of all that is random about the emulated ranks
    metrics: Sink | None = None,  # gets iteration times as they are made
    progress: Callable[[int, float | None], None] | None = None,  # called as iterations end
    announce: Callable[[str], None] | None = None,  # called with what is real and what is assumed
    sweep: Path | None = None,  # folder of the sweep that the run is a part of
) -> EmulationResult:
    """Run the script as the real ranks of the job, and return the result.

    With what-ifs the result is the changed job's, and that of the job without them is `unchanged`.
    All jobs that share a measurement of computing are composed from one run of the script; so are
    those of a sweep, in any world where the script does the same.
    """
    runs = _Runs(seed, Metrics(metrics, progress), sweep)
    if announce is not None:
        changed = "; the changed job comes first, then the unchanged one" if config.what_if else ""
        announce(_expectation(config) + changed)
    if config.delays is not None:
        result = _run_delays(config, config.delays, runs)
    else:
        result, _ = runs.once(config)
    plain = config.model_copy(update={"what_if": (), "delays": None})
    summary = with_unchanged(
        runs.with_twice_the_bandwidth(config, result.summary),
        config.what_if,
        lambda: runs.once(plain, shown=False)[0].summary,
    )
    new, unchanged = summary.iteration_time, summary.unchanged
    old = None if unchanged is None else unchanged.iteration_time
    if new is not None and old is not None and old.median:
        summary = replace(summary, ratio=new.median / old.median)
    return replace(result, summary=summary)


def _run_delays(config: EmulateConfig, delays: Delays, runs: _Runs) -> EmulationResult:
    """Compose the job for each delay, and fit the knee; return the run without delay."""
    results: dict[float, EmulationResult] = {}
    for delay in delays.delays:
        added = (parse_change(f"{delays.kind}: +{delay!r} s"),) if delay else ()
        update = {"what_if": (*config.what_if, *added), "delays": None}
        results[delay], ended = runs.once(config.model_copy(update=update))
        if ended.exit_code or ended.interrupted:
            shown = results[delay]
            break
    else:
        shown = results[0.0]
    done = tuple(sorted(results))
    listed, knee = summarise_delays(delays.kind, done, [results[delay].summary for delay in done])
    return replace(shown, summary=replace(shown.summary, delays=listed, knee=knee))


@dataclass
class _Runs:
    """Runs of the script: one for all jobs if it measures computing alone, or one for a world."""

    seed: int
    metrics: Metrics
    sweep: Path | None
    measured: dict[int, tuple[list[Record], Ended]] = field(default_factory=dict)

    def once(self, config: EmulateConfig, shown: bool = True) -> tuple[EmulationResult, Ended]:
        """Return the result of one job; its iterations become metrics if it is `shown`."""
        metrics = self.metrics if shown else self.metrics.unwritten()
        metrics.restart()
        known = self.measured.get(config.world)
        records, ended = known or self._run(config, metrics)
        if is_measured(records):
            self.measured[config.world] = records, ended
        if config.takes_turns or config.measured is not None:
            ranks = tuple(composed_ranks(records)) or config.rank
            config = config.model_copy(update={"rank": ranks})
        result = result_of(
            config, records, ended.exit_code, self.seed, ended.emulator, ended.interrupted
        )
        metrics.end(result)
        return result, ended

    def with_twice_the_bandwidth(
        self, config: EmulateConfig, summary: EmulationSummary
    ) -> EmulationSummary:
        """Return the summary with the effect of faster links, where it can be composed."""
        time, parts = summary.iteration_time, summary.breakdown or {}
        exposed = parts.get("exposed_communication", 0.0)
        by_links = config.has_links and config.communication in (None, "cluster")
        if not (self.measured and by_links and time):
            return summary
        if exposed <= WORTH_FASTER_LINKS * time.median:
            return summary
        cluster = config.resolve_cluster()
        if cluster is None or with_twice_the_bandwidth(cluster) is None:
            return summary
        faster = (*config.what_if, parse_change("links: bandwidth 2x"))
        changed = config.model_copy(update={"what_if": faster, "delays": None})
        times = self.once(changed, shown=False)[0].summary.iteration_time
        return replace(summary, twice_bandwidth=None if times is None else times.median)

    def _run(self, config: EmulateConfig, metrics: Metrics) -> tuple[list[Record], Ended]:
        if config.measured is not None:
            records = load_measured(config.measured, config.world)
            metrics.add(records)
            return records, Ended(0, None, False)
        records = self._recorded(config)
        metrics.add(records)
        if is_measured(records):
            return records, Ended(0, None, False)
        with temporary_folder() as folder:

            def add(more: list[Record]) -> None:
                records.extend(more)
                metrics.add(more)

            run = _run_in_turns if config.takes_turns else run_job
            ended = run(config, self.seed, folder, add)
        return records, ended

    def _recorded(self, config: EmulateConfig) -> list[Record]:
        """Return what the script has recorded in another world, where that holds in this one.

        Otherwise perhaps a note on why it does not.
        """
        for records, ended in self.measured.values():
            with contextlib.suppress(InputError):
                if not (ended.exit_code or ended.interrupted):
                    return in_world(records, config.world)
        if self.sweep is None or not config.is_composed:
            return []
        return recording_in_sweep(self.sweep, config)


def _run_in_turns(
    config: EmulateConfig,
    seed: int,
    folder: Path,
    on_records: Callable[[list[Record]], None],
) -> Ended:
    """Run the script as a rank of each kind, or as the ranks that are named.

    The records of a rank go to `on_records` when it has ended. A rank that fails is the last.

    Raises:
        InputError: a rank that is named exchanges messages with one that is not.
    """
    records: list[Record] = []
    messages = folder / "messages"
    messages.mkdir()
    last = Ended(0, None, False)

    def run(rank: int) -> bool:
        nonlocal last
        news: list[Record] = []
        of_rank = config.model_copy(update={"rank": (rank,), "kinds": False})
        last = run_job(of_rank, seed, folder, news.extend, messages=messages)
        if awaited_rank(messages, rank) is None:
            records.extend(news)
            on_records(news)
        return not (last.exit_code or last.interrupted)

    def others() -> set[int]:
        if config.kinds:
            return missing_kinds(records, config.world)
        for rank, met in met_by_messages(records).items():
            if left := sorted(met.difference(config.rank)):
                ranks = ",".join(map(str, sorted({*config.rank, *left})))
                raise InputError(
                    f"rank: rank {rank} exchanges messages with rank {left[0]}, which is not among "
                    f"those to run: --rank {ranks}, or --kinds, which finds them"
                )
        return set()

    take_turns(config.rank, messages, run, others)
    return last


def _expectation(config: EmulateConfig) -> str:
    ranks = ", ".join(map(str, config.rank))
    real = f"rank {ranks} of {config.world:,} is real"
    if len(config.rank) > 1:
        real = f"ranks {ranks} of {config.world:,} are real"
    if config.takes_turns:
        which = f"rank {ranks} of {config.world:,} and a rank of each other kind run"
        real = which if config.kinds else f"ranks {ranks} of {config.world:,} run"
        real += " one after the other, and stand for those like them"
    if config.mode == "wire":
        return (
            f"{real}, the others are emulated; gloo talks to them over TCP on this machine; sums "
            f"are those of real ranks, so DDP's gradients are {len(config.rank)}/{config.world:,} "
            "as large as in the real job"
        )
    if config.nccl:
        real += ", under PyTorch's own NCCL process group"
    if not config.has_links and config.communication is None:
        return (
            f"{real}, the others are emulated; no links are given, so collectives take no time of "
            "their own (--cluster, or --latency and --bandwidth)"
        )
    return f"{real}, the others are emulated; collectives take modelled time"
