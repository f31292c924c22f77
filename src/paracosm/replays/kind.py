"""Runs of `replay`."""

from __future__ import annotations

from typing import Any

from paracosm.results.kind import Answer, Form, Hooks, Kind, Outcome
from paracosm.results.summaries import ReplaySummary


def _run(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.replays import replay_traces, summarise_replays

    def passed(times: float) -> None:
        if hooks.progress is not None:
            hooks.progress(round(times * len(config.traces)), None)

    replays = replay_traces(
        config.traces, config.what_if, config.steps, config.alone, config.communication, passed
    )
    return Outcome(summarise_replays(replays), replays.timeline)


KIND = Kind(
    verb="replay",
    noun="a replay",
    question="What if the links of a traced job were faster?",
    help="Replay traces of PyTorch's profiler, unchanged and with what-if changes.",
    examples=('replay rank0.json.gz rank1.json.gz --what-if "links: bandwidth 2x"',),
    forms=(Form("paracosm.replays.config:ReplayConfig", _run),),
    answers=(
        Answer(ReplaySummary, "paracosm.replays.view:VIEW", "paracosm.replays.view:sentence"),
    ),
    objective=lambda config: "replayed.iteration_time",
    unit=lambda config: "readings of a trace",  # each is opened, then taken apart
    total=lambda config: 2 * len(config.traces),
)
