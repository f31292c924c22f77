"""Run a script on a device that is not there, and work out what its job takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paracosm.emulation.config import RecordedDevice
from paracosm.emulation.device.assumptions import without_effect
from paracosm.emulation.device.config import DeviceEmulateConfig
from paracosm.emulation.device.op_costs import check_effect
from paracosm.emulation.device.recording import COLLECTIVE, FILE, Recording, load_recording
from paracosm.emulation.device.summary import (
    Played,
    Recorded,
    failed_summary,
    played,
    summarise,
)
from paracosm.emulation.job import run_job
from paracosm.emulation.kinds import take_turns
from paracosm.emulation.rank.messages import assumed_sources, awaited_rank
from paracosm.emulation.records import Iteration, Note, Record
from paracosm.errors import InputError
from paracosm.files import temporary_folder
from paracosm.results.kind import Hooks, Outcome, with_unchanged


def run_script(config: DeviceEmulateConfig, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    """Record the script, or reuse a recording, and play the job that it makes."""
    recorded = _Recorder(config, seed, hooks).record()
    if recorded.failure is not None:
        return Outcome(failed_summary(config, recorded), files=_files(recorded.recordings))
    try:
        _check_effect(config, recorded.recordings)
        whole = played(config, recorded.recordings)
    except InputError as error:  # the recording is not lost by it
        recorded.failure = str(error)
        return Outcome(failed_summary(config, recorded), files=_files(recorded.recordings))
    _write_metrics(whole, metrics)
    unchanged_config = config.model_copy(update={"what_if": ()})

    def unchanged() -> Any:
        recordings = recorded.recordings
        if unchanged_config.world != config.world:
            again = _Recorder(unchanged_config, seed, hooks).record()
            if again.failure is not None:
                return failed_summary(unchanged_config, again)
            recordings = again.recordings
        return summarise(unchanged_config, played(unchanged_config, recordings), recorded)

    summary = with_unchanged(summarise(config, whole, recorded), config.what_if, unchanged)
    return Outcome(summary, whole.timeline(), _files(recorded.recordings))


def record_script(config: DeviceEmulateConfig, seed: int, hooks: Hooks) -> Recorded:
    """Run the script as one rank, and as those that it exchanges messages with."""
    return _Recorder(config, seed, hooks).record()


def capture_script(config: DeviceEmulateConfig, hooks: Hooks, path: Path) -> Recorded:
    """Run the script as one rank, and write the graph of its last iteration, unless it fails."""
    recorded = _Recorder(config, 0, hooks, path).record()
    if recorded.failure is None and recorded.recordings[0].peers:
        recorded.failure = (
            "the script exchanges messages between ranks, as a pipeline does: strategies divide a "
            "graph of the whole model: run it without"
        )
    grave = [note.text for note in recorded.notes if note.grave]
    if recorded.failure is None and grave:
        recorded.failure = grave[-1]
    return recorded


class _Recorder:
    """Runs the script as one rank, then as those that it exchanges messages with.

    With a path for a graph, it is the first rank's alone.
    """

    def __init__(
        self, config: DeviceEmulateConfig, seed: int, hooks: Hooks, graph: Path | None = None
    ) -> None:
        self._config, self._seed, self._hooks, self._graph = config, seed, hooks, graph
        self._recorded = Recorded()
        self._iterations = 0

    def record(self) -> Recorded:
        config, recorded = self._config, self._recorded
        if config.measured is not None:
            recordings = load_recordings(config.measured)
            on_cpu, kind = recordings[0].context is not None, config.device.device.kind
            if on_cpu != (kind == "cpu"):
                raise InputError(
                    f"{config.measured}: recorded on a {'CPU' if on_cpu else 'GPU'}, where PyTorch "
                    f"takes other paths than on {config.device.name}: record the script with "
                    f"--hardware {config.device.name}"
                )
            difference = _difference(config, recordings[0])
            if difference is None:
                return Recorded(recordings, is_reused=True)
            if config.script is None or not Path(config.script).is_file():
                raise InputError(
                    f"{config.measured}: recorded {difference}, and its script {config.script} is "
                    "not there to record again"
                )
        if self._hooks.announce is not None:
            self._hooks.announce(
                f"rank {config.rank} of {config.world:,} runs on {config.device.name}, which is "
                f"not there: {config.iterations} iterations are recorded, and nothing is computed"
            )
        begun = time.monotonic()
        with temporary_folder() as messages:
            self._record_all(messages)
        recorded.recordings.sort(key=lambda recording: recording.rank != config.rank)
        recorded.wall_time = time.monotonic() - begun
        return recorded

    def _record_all(self, messages: Path) -> None:
        recorded = self._recorded

        def record(rank: int) -> bool:
            self._record_rank(rank, messages)
            return recorded.failure is None

        def peers() -> set[int]:
            if self._graph is not None:
                return set()
            return {peer for recording in recorded.recordings for peer in recording.peers}

        take_turns([self._config.rank], messages, record, peers)
        self._correct_assumed(messages)

    def _correct_assumed(self, messages: Path) -> None:
        """Record again the ranks that assumed of others what these then did not send."""
        recorded = self._recorded
        of_rank = {recording.rank: recording for recording in recorded.recordings}
        for rank in list(of_rank):
            sources = [source for source in assumed_sources(messages, rank) if source in of_rank]
            if recorded.failure is None and any(
                _sizes(of_rank[source], "send", rank) != _sizes(of_rank[rank], "recv", source)
                for source in sources
            ):
                recorded.recordings.remove(of_rank[rank])
                self._record_rank(rank, messages)

    def _record_rank(self, rank: int, messages: Path) -> None:
        config, recorded = self._config, self._recorded
        with temporary_folder() as folder:
            file = folder / FILE
            hardware = config.device
            device = RecordedDevice(
                name=hardware.name,
                title=hardware.device.driver_name,
                capability=hardware.device.compute_capability,
                is_host=hardware.device.kind == "cpu",
                memory=int(hardware.device.memory),
                iterations=config.iterations,
                arguments=config.model_dump(
                    mode="json", exclude=config.without_effect() | {"measured"}
                ),
                recording=file,
                messages=messages,
                graph=self._graph,
            )
            ended = run_job(config.of_rank(rank), self._seed, folder, self._news, device)
            recorded.exit_code, recorded.interrupted = ended.exit_code, ended.interrupted
            recording = load_recording(file) if file.exists() else None
        where = "" if rank == config.rank else f" as rank {rank}"
        if recording is not None and len(recording.steps):
            recorded.recordings.append(recording)
            if len(recording.steps) >= config.iterations:
                recorded.exit_code = 0  # however a script ends that was ended in its midst
            elif ended.exit_code:
                recorded.failure = self._failed(where, ended.exit_code)
            return
        if awaited_rank(messages, rank) is not None:
            return
        if ended.interrupted:
            recorded.failure = f"interrupted{where} before an iteration ended"
        elif ended.exit_code:
            recorded.failure = self._failed(where, ended.exit_code)
        else:
            recorded.failure = (
                f"the script ended{where} before any optimizer's step, by which iterations are "
                "told apart"
            )

    def _failed(self, where: str, exit_code: int) -> str:
        """Return how a script has failed, with its own message, or ours of what it asked for."""
        notes = self._recorded.notes
        said = ""
        if notes and notes[-1].grave:
            said = f": {notes.pop().text}"
        return f"the script ended{where} with exit code {exit_code}{said}"

    def _news(self, records: list[Record]) -> None:
        for record in records:
            if isinstance(record, Note):
                self._recorded.notes.append(record)
            elif isinstance(record, Iteration):
                self._iterations += 1
                self._recorded.cpu = max(self._recorded.cpu, record.cpu)
                if self._hooks.progress is not None:
                    self._hooks.progress(self._iterations, None)


def _difference(config: DeviceEmulateConfig, recording: Recording) -> str | None:
    """Return what of a recording is not as asked for, which only another run of the script has."""
    if recording.world_size != config.world:
        return f"in a world of {recording.world_size:,} ranks, not {config.world:,}"
    assume = tuple(map(str, config.assume))
    if recording.assumptions != assume:
        before, now = (", ".join(each) or "nothing" for each in (recording.assumptions, assume))
        return f"with {before} assumed, not {now}"
    return None


def _sizes(recording: Recording, kind: str, other: int) -> list[int]:
    """Return the sizes of the messages of the last iteration to or from a rank, in order."""
    last = recording.iteration(len(recording.steps) - 1)
    calls = (recording.calls[code] for code in last.code[last.kind == COLLECTIVE].tolist())
    return [call.size for call in calls if (call.kind, call.peer) == (kind, other)]


def recording_file(number: int) -> str:
    """Return the name of the file of the n-th recording in a run folder."""
    return FILE if number == 0 else FILE.replace(".", f"{number}.")


def _files(recordings: Sequence[Recording]) -> dict[str, Callable[[Path], None]]:
    return {recording_file(number): recording.save for number, recording in enumerate(recordings)}


def load_recordings(folder: Path) -> list[Recording]:
    """Return the recordings of a run folder."""
    recordings = [load_recording(folder / FILE)]
    while (path := folder / recording_file(len(recordings))).exists():
        recordings.append(load_recording(path))
    return recordings


def _check_effect(config: DeviceEmulateConfig, recordings: Sequence[Recording]) -> None:
    check_effect((op for recording in recordings for op in recording.ops), config.cost)
    names = {assumption.text for recording in recordings for assumption in recording.assumed}
    idle = without_effect(config.assume, names)
    if idle is not None:
        raise InputError(
            f'assume "{idle}" has no effect: the script reads nothing that follows from it'
        )


def _write_metrics(whole: Played, metrics: Any) -> None:
    if metrics is None:
        return
    now = 0.0
    for number, seconds in enumerate(whole.iteration_times, 1):
        now += seconds
        metrics.metric(now, now, f"rank{whole.rank}", "iteration_time", seconds, number)
