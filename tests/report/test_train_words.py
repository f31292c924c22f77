"""What a report says of a training that was changed."""

from __future__ import annotations

from paracosm.report.train import FIGURES, VIEW
from paracosm.results import TrainingSummary


def test_the_unchanged_run_stands_among_the_key_figures() -> None:
    summary = TrainingSummary.from_dict(
        {
            "what_if": ["links: bandwidth 2x", "latency: 1 ms"],
            "unchanged": {"virtual_time": 2.0, "examples_per_second": 1500.0},
        }
    )
    assert FIGURES["Unchanged"](summary) == "virtual time 2 s, examples/s 1,500"
    assert VIEW.remarks(summary) == {"what if": "links: bandwidth 2x; latency: 1 ms"}


def test_without_changes_nothing_is_said_of_them() -> None:
    summary = TrainingSummary.from_dict({"virtual_time": 2.0})
    assert FIGURES["Unchanged"](summary) is None
    assert VIEW.remarks(summary) == {}
