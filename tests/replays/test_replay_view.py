"""What is said of traces that were played again."""

from __future__ import annotations

from typing import Any

from paracosm.replays.view import PARTS
from paracosm.report.runs import remarks_of, tables_of
from paracosm.results import ReplaySummary


def scenario(what_if: str, time: float, ranks: int = 1) -> dict[str, Any]:
    parts = dict.fromkeys(PARTS, 0.0) | {"compute": time}
    return {
        "what_if": what_if,
        "iteration_time": time,
        "breakdown": {str(rank): parts for rank in range(ranks)},
        "straggler": None,
        "bottleneck": f"{what_if}: computation",
    }


def summary(*what_ifs: dict[str, Any], together: dict[str, Any] | None = None) -> ReplaySummary:
    return ReplaySummary.from_dict(
        {
            "iteration_time": 2.0,
            "replayed": {"error": 0.01, **scenario("unchanged", 2.02, 20)},
            "what_ifs": list(what_ifs),
            "together": together,
            "clocks_moved": {"3": -0.002},
        }
    )


def test_what_ifs_stand_beside_the_replay_and_ranks_are_those_of_the_last() -> None:
    times, ranks = tables_of(
        summary(scenario("a", 1.01), scenario("b", 4.04), together=scenario("a; b", 2.02))
    )
    assert times.rows == (
        ("as traced", "2 s", ""),
        ("replayed", "2.02 s", "+1.00%"),
        ("a", "1.01 s", "-50.0%"),
        ("b", "4.04 s", "+100.0%"),
        ("all together", "2.02 s", "+0.0%"),
    )
    assert ranks.title == "Ranks, all together"
    assert ranks.rows == (("rank 0", "2.02 s", "0 s", "0 s", "0 s", "0 s"),)


def test_of_many_ranks_the_table_shows_some() -> None:
    _, ranks = tables_of(summary())
    assert ranks.title == "Ranks, unchanged"
    assert [row[0] for row in ranks.rows[-2:]] == ["rank 15", "4 more"]
    assert all(len(row) == len(ranks.header) for row in ranks.rows)


def test_remarks_name_the_bottleneck_before_and_after_and_clocks_that_were_set() -> None:
    assert remarks_of(summary(scenario("a", 1.01))) == {
        "bottleneck": "unchanged: computation",
        "then": "a: computation",
        "clocks": "the clock of rank 3 was corrected by 2 ms",
    }


def test_a_replay_that_is_not_finished_has_nothing_to_say() -> None:
    assert tables_of(ReplaySummary.from_dict({"status": "unfinished"})) == []
    assert remarks_of(ReplaySummary.from_dict({"status": "unfinished"})) == {}
