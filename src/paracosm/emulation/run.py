"""Run an emulated job: once, or once for each of several delays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from paracosm.cluster.changes import WORTH_FASTER_LINKS, parse_change, with_twice_the_bandwidth
from paracosm.emulation.check import load_measured
from paracosm.emulation.compose import composed_ranks
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.delays import Delays, summarise_delays
from paracosm.emulation.job import Ended, run_job
from paracosm.emulation.rank_records import is_measured
from paracosm.emulation.records import Record
from paracosm.emulation.result import EmulationResult, Metrics, Sink, result_of
from paracosm.emulation.turns import run_in_turns
from paracosm.files import temporary_folder
from paracosm.results import EmulationSummary
from paracosm.results.kind import with_unchanged


def run_emulation(
    config: EmulateConfig,  # what is emulated
    seed: int = 0,  # of all that is random about the emulated ranks
    metrics: Sink | None = None,  # gets iteration times as they are made
    progress: Callable[[int, float | None], None] | None = None,  # called as iterations end
    announce: Callable[[str], None] | None = None,  # called with what is real and what is assumed
) -> EmulationResult:
    """Run the script as the real ranks of the job, and return the result.

    With what-ifs the result is the changed job's, and that of the job without them is `unchanged`.
    All jobs that share a measurement of computing are composed from one run of the script.
    """
    runs = _Runs(seed, Metrics(metrics, progress))
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
    """Runs of the script: one for all jobs of a world if it measures computing alone."""

    seed: int
    metrics: Metrics
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
        asked = config.model_copy(update={"what_if": faster, "delays": None})
        times = self.once(asked, shown=False)[0].summary.iteration_time
        return replace(summary, twice_bandwidth=None if times is None else times.median)

    def _run(self, config: EmulateConfig, metrics: Metrics) -> tuple[list[Record], Ended]:
        if config.measured is not None:
            records = load_measured(config.measured, config.world)
            metrics.add(records)
            return records, Ended(0, None, False)
        with temporary_folder() as folder:
            records = list[Record]()

            def add(more: list[Record]) -> None:
                records.extend(more)
                metrics.add(more)

            run = run_in_turns if config.takes_turns else run_job
            ended = run(config, self.seed, folder, add)
        return records, ended


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
