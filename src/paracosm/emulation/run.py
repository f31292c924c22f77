"""Run an emulated job: once, or once for each of several delays."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from paracosm.cluster.changes import WORTH_FASTER_LINKS, parse_change, with_twice_the_bandwidth
from paracosm.emulation.check import load_measured
from paracosm.emulation.config import EmulateConfig, RecordedDevice, Setting
from paracosm.emulation.delays import Delays, summarise_delays
from paracosm.emulation.rank_records import is_measured
from paracosm.emulation.records import Record, RecordReader
from paracosm.emulation.result import EmulationResult, Metrics, Sink, result_of
from paracosm.emulation.wire.connection import allow_open_files
from paracosm.errors import InputError, check_installed
from paracosm.files import temporary_folder
from paracosm.processes import interrupts_held
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
        found = self.once(asked, shown=False)[0].summary.iteration_time
        return replace(summary, twice_bandwidth=None if found is None else found.median)

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

            ended = run_job(config, self.seed, folder, add)
        return records, ended


def _expectation(config: EmulateConfig) -> str:
    ranks = ", ".join(map(str, config.rank))
    real = f"rank {ranks} of {config.world:,} is real"
    if len(config.rank) > 1:
        real = f"ranks {ranks} of {config.world:,} are real"
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


_STEP = 0.1  # seconds between two looks
_GRACE = 5.0  # seconds in which a process that was asked to end may do so
_GRACE_ALONE = 30.0  # seconds in which a rank without its peers may notice and end
_PYTHON = (sys.executable, "-P", "-m")  # modules in the current folder are not to hide others


@dataclass(frozen=True)
class Ended:
    exit_code: int  # of the first rank that failed, else 0; -N where signal N killed it
    emulator: int | None  # exit code of the emulator; None in backend mode
    interrupted: bool


@dataclass
class _Job:
    ranks: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    emulator: subprocess.Popen[bytes] | None = None
    readers: list[RecordReader] = field(default_factory=list)

    def news(self) -> list[Record]:
        return [record for reader in self.readers for record in reader.more()]


def run_job(
    config: EmulateConfig,
    seed: int,
    folder: Path,
    on_records: Callable[[list[Record]], None],
    device: RecordedDevice | None = None,
) -> Ended:
    """Run the script as the real ranks of the job until they end; with `device`, on that.

    Ctrl-C is passed on to the script, and so is SIGTERM or SIGHUP to this process. New
    records go to `on_records`, their files to `folder`.
    """
    check_installed("torch", "torch", "emulation")
    port = _free_port(config.port)
    job = _Job()
    costs = contextlib.ExitStack()
    interrupted = False
    failed = 0
    try:
        if config.mode == "wire":
            allow_open_files(config.world)  # gloo has a socket for each peer
            job.emulator = _start_emulator(config, seed, folder, port, job)
        for rank in config.rank:
            job.ranks[rank] = _start_rank(config, seed, rank, folder, port, job, costs, device)
        try:
            with _signals_raise_interrupt():
                failed = _watch(job, on_records)
        except KeyboardInterrupt:
            interrupted = True
            _interrupt(job)
        emulator = _end_emulator(job)
    finally:
        for process in (*job.ranks.values(), job.emulator):
            if process is not None:
                process.kill()
                process.wait()
        costs.close()
    on_records(job.news())
    return Ended(failed or _failed(job), emulator, interrupted)


def _start_rank(
    config: EmulateConfig,
    seed: int,
    rank: int,
    folder: Path,
    port: int,
    job: _Job,
    costs: contextlib.ExitStack,  # is closed when the rank has ended
    device: RecordedDevice | None,
) -> subprocess.Popen[bytes]:
    command = ["paracosm.emulation.rank.main", str(config.script), *config.arguments]
    out = subprocess.DEVNULL if config.output == "none" else None
    if config.output == "stderr":
        out = sys.stderr.fileno()
    sys.stdout.flush()
    records = folder / f"rank{rank}.records"
    setting = Setting(config, seed, rank, records, os.getpid(), device)
    variables = None
    if config.nccl:
        from paracosm.emulation.nccl.table import CostTable

        table = costs.enter_context(CostTable(folder, config, seed, rank, setting.records))
        job.readers.append(RecordReader(table.records))
        variables = table.environment()
    return _start(command, setting, port, job, out, variables)


def _start_emulator(
    config: EmulateConfig, seed: int, folder: Path, port: int, job: _Job
) -> subprocess.Popen[bytes]:
    setting = Setting(config, seed, -1, folder / "emulator.records", os.getpid())
    return _start(["paracosm.emulation.wire.main"], setting, port, job)


def _start(
    module: list[str],
    setting: Setting,
    port: int,
    job: _Job,
    out: int | None = None,
    variables: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process in a process group of its own, so that it is we who pass on Ctrl-C."""
    job.readers.append(RecordReader(setting.records))
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with interrupts_held():
        return subprocess.Popen(
            [*_PYTHON, *module],
            env=inherited | address | setting.environment() | (variables or {}),
            stdin=subprocess.DEVNULL,  # in the background, reading a terminal would stop it
            stdout=out,
            process_group=0,
        )


# They are for processes that the user starts.
_NOT_INHERITED = ("PARACOSM_WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE")


@contextlib.contextmanager
def _signals_raise_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP do what Ctrl-C does, unless they are ignored or handled."""
    ours = []
    if threading.current_thread() is threading.main_thread():
        candidates = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
        ours = [each for each in candidates if signal.getsignal(each) is signal.SIG_DFL]
    for each in ours:
        signal.signal(each, signal.default_int_handler)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)


def _watch(job: _Job, on_records: Callable[[list[Record]], None]) -> int:
    """Pass on records until every rank has ended, or some time after one has failed.

    Return the exit code of the rank that failed first, or 0. Ranks whose emulator has failed mostly
    get an error from gloo; those that wait for connections would wait for half an hour.
    """
    failed = 0
    until: float | None = None
    while any(process.poll() is None for process in job.ranks.values()):
        time.sleep(_STEP)
        on_records(job.news())
        failed = failed or _failed(job)
        if until is None and failed:
            until = time.monotonic() + _GRACE
        elif until is None and job.emulator is not None and job.emulator.poll():
            until = time.monotonic() + _GRACE_ALONE
        if until is not None and time.monotonic() > until:
            break
    return failed


def _failed(job: _Job) -> int:
    return next((code for each in job.ranks.values() if (code := each.poll())), 0)


def _interrupt(job: _Job) -> None:
    """Pass Ctrl-C on to the script, and terminate it if it does not end."""
    for sign in (signal.SIGINT, signal.SIGTERM):
        for process in job.ranks.values():
            if process.poll() is None:
                process.send_signal(sign)
        deadline = time.monotonic() + _GRACE
        with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
            for process in job.ranks.values():
                process.wait(max(0.0, deadline - time.monotonic()))
            return


def _end_emulator(job: _Job) -> int | None:
    if job.emulator is None:
        return None
    # Another Ctrl-C shortens the wait, and costs nothing of what was recorded.
    with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
        # It notices by itself that the last real rank has gone.
        return job.emulator.wait(1.0)
    job.emulator.terminate()
    with contextlib.suppress(KeyboardInterrupt, subprocess.TimeoutExpired):
        job.emulator.wait(_GRACE)
    return job.emulator.poll()


def _free_port(asked: int | None) -> int:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", asked or 0))
        except OSError as error:
            raise InputError(
                f"port {asked}: {error.strerror}; leave --port out for a free one"
            ) from None
        return int(trial.getsockname()[1])
