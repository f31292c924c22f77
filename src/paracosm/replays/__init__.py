"""Replays of traces of real jobs, unchanged and with changes."""

from typing import TYPE_CHECKING

from paracosm.exports import exported_from

if TYPE_CHECKING:
    from paracosm.replays.run import replay_traces, summarise_replays

__all__ = ["replay_traces", "summarise_replays"]

__getattr__ = exported_from(
    __name__,
    {
        "run": ("replay_traces", "summarise_replays"),
    },
)
