"""The event loop on task graphs whose instants are worked out by hand, in picoseconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from task_graphs import Row, task_graph

from paracosm.errors import InputError
from paracosm.jobs.job import TaskGraph
from paracosm.simulation.events import replay_tasks


def spans(tasks: TaskGraph) -> list[tuple[int, int]]:
    times = replay_tasks(tasks)
    return list(zip(times.arrive.tolist(), times.end.tolist(), strict=True))


def test_nothing() -> None:
    times = replay_tasks(task_graph([]))
    assert times.end.tolist() == []
    assert times.makespan == 0


QUEUE = [
    Row(5, 0),
    Row(4, 1),
    Row(3, 0, after=[1], priority=2),  # ready at 4
    Row(2, 2),
    Row(3, 0, after=[3], priority=1),  # ready at 2
    Row(3, 0, after=[1], priority=0),  # ready at 4
]
"""Four tasks that want resource 0: row 0 at once, the others while it is busy, until 5."""


@pytest.mark.parametrize(
    ("policy", "begins"),
    [
        ("in order", [0, 0, 5, 0, 8, 11]),
        ("fifo", [0, 0, 8, 0, 5, 11]),
        ("priority", [0, 0, 11, 0, 8, 5]),
    ],
)
def test_in_which_order_a_resource_takes_its_tasks(policy: str, begins: list[int]) -> None:
    times = replay_tasks(task_graph(QUEUE, [policy] * 3))
    assert times.begin.tolist() == begins
    assert times.makespan == 14


def test_an_in_order_lane_waits_for_its_next_task() -> None:
    """Row 1 is ready at 6 only; row 2, which is ready at 0, runs after it all the same."""
    tasks = task_graph([Row(6, 1), Row(2, 0, after=[0]), Row(3, 0)], ["in order"] * 2)
    assert spans(tasks) == [(0, 6), (6, 8), (8, 11)]
    assert spans(replace(tasks, policy=np.array([1, 1]))) == [(0, 6), (6, 8), (0, 3)]


def test_a_delay_holds_nothing() -> None:
    assert spans(task_graph([Row(4), Row(3), Row(2, after=[0, 1])])) == [(0, 4), (0, 3), (4, 6)]


def test_a_collective_waits_on_its_lanes_for_the_last_and_takes_the_longest() -> None:
    """Ranks 0 and 1 arrive at 2 and 5; the meeting takes 7, from 5 to 12; then both lanes go on."""
    rows = [
        Row(2, 0),
        Row(4, 0, meeting=0),
        Row(1, 0),
        Row(5, 1),
        Row(7, 1, meeting=0),
        Row(3, 1),
    ]
    times = replay_tasks(task_graph(rows, ["in order", "in order"]))
    assert times.arrive.tolist() == [0, 2, 12, 0, 5, 12]
    assert times.begin.tolist() == [0, 5, 12, 0, 5, 12]
    assert times.end.tolist() == [2, 12, 13, 5, 12, 15]


def test_who_awaits_ends_when_the_other_has() -> None:
    """Receives at 2 of a message that is sent by 6 and takes 0, 1 and 9 ps; and one at 7.

    The lane of the first receive is busy until then.
    """
    rows = [
        Row(6),
        Row(2),
        Row(0, 0, after=[1], awaited=0),
        Row(1, 1, after=[1], awaited=0),
        Row(9, 2, after=[1], awaited=0),
        Row(3, 0, after=[1]),
        Row(1, 1, after=[0], awaited=0),
    ]
    assert spans(task_graph(rows, ["in order"] * 3)) == [
        *[(0, 6), (0, 2), (2, 6), (2, 7), (2, 15)],
        *[(6, 9), (7, 7)],
    ]


def test_no_time_passes_in_a_chain_of_nothing() -> None:
    """Tasks without duration run in rounds of one instant; a collective among them as well."""
    rows = [Row(0, 0), *(Row(0, 0, after=[row]) for row in range(50))]
    rows += [Row(0, meeting=4, after=[50]), Row(0, meeting=4), Row(7, 0, after=[51])]
    assert spans(task_graph(rows, ["fifo"]))[-3:] == [(0, 0), (0, 0), (0, 7)]


def test_a_resource_takes_what_is_ready_in_the_round_in_which_it_is_free() -> None:
    """At 3 row 0 ends: row 3 is ready then, row 2, of a better priority, only a round later."""
    rows = [Row(3, 0), Row(0, after=[0]), Row(2, 0, after=[1]), Row(2, 0, after=[0], priority=1)]
    assert spans(task_graph(rows, ["priority"])) == [(0, 3), (3, 3), (5, 7), (3, 5)]


def test_equals_go_by_row() -> None:
    rows = [Row(1, 1), *[Row(1, 0, after=[0])] * 3]
    for policy in ("in order", "fifo", "priority"):
        assert spans(task_graph(rows, [policy] * 2))[1:] == [(1, 2), (2, 3), (3, 4)]


def test_pipelined_buckets() -> None:
    """Two ranks, three backward ops of 4, an all-reduce of 5 after each on a lane of its own.

    The buckets are ready at 4, 8 and 12, and end at 9, 14 and 19; the optimizer takes 1.
    """
    rows = []
    for rank in range(2):
        compute, network = 2 * rank, 2 * rank + 1
        first = len(rows)
        for bucket in range(3):
            rows.append(Row(4, compute))
            rows.append(Row(5, network, after=[first + 2 * bucket], meeting=bucket))
        rows.append(Row(1, compute, after=[first + 1, first + 3, first + 5]))
    times = replay_tasks(task_graph(rows, ["in order", "fifo"] * 2))
    assert times.end[[1, 3, 5, 6]].tolist() == [9, 14, 19, 20]
    assert times.end[7:].tolist() == times.end[:7].tolist()


@pytest.mark.parametrize(
    ("rows", "links"),
    [
        (
            [Row(1, after=[2]), Row(1, after=[0]), Row(1, after=[1]), Row(9)],
            [
                "task 0 waits for task 2 (which it depends on)",
                "task 2 waits for task 1 (which it depends on)",
                "task 1 waits for task 0 (which it depends on)",
            ],
        ),
        (
            [Row(1, 0, after=[1]), Row(1, 0)],
            [
                "task 0 waits for task 1 (which it depends on)",
                "task 1 waits for task 0 (which comes before it on resource 0)",
            ],
        ),
        (
            [
                Row(1, 0, meeting=0),
                Row(1, 0, meeting=1),
                Row(1, 1, meeting=1),
                Row(1, 1, meeting=0),
            ],
            [
                "task 0 waits for task 3 (for their meeting 0)",
                "task 3 waits for task 2 (which holds resource 1)",
                "task 2 waits for task 1 (for their meeting 1)",
                "task 1 waits for task 0 (which holds resource 0)",
            ],
        ),
        (
            [Row(0, 0, awaited=1), Row(1, 0)],
            [
                "task 0 waits for task 1 (whose end it awaits)",
                "task 1 waits for task 0 (which holds resource 0)",
            ],
        ),
        ([Row(1, awaited=0)], ["task 0 waits for task 0 (whose end it awaits)"]),
        (
            [Row(1, after=[(row + 1) % 9]) for row in range(9)],
            ["task 5 waits for task 6 (which it depends on)", "and so on, 9 in all"],
        ),
    ],
)
def test_who_waits_for_ever_is_named(rows: list[Row], links: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        replay_tasks(task_graph(rows, ["in order"] * 2))
    assert str(caught.value).endswith("; ".join(links))
    assert "tasks never end" in str(caught.value)


def test_who_waits_for_ever_is_named_as_the_caller_does() -> None:
    with pytest.raises(InputError, match="B waits for B"):
        replay_tasks(task_graph([Row(1), Row(1, after=[1])]), label=lambda row: "AB"[row])


def test_the_clock_ends_after_106_days() -> None:
    day = 24 * 3600 * 10**12
    rows = [Row(60 * day, 0), Row(46 * day, 0)]
    assert spans(task_graph(rows, ["fifo"]))[1] == (60 * day, 106 * day)
    for more in ([Row(60 * day, 0), Row(47 * day, 0)], [Row(2**63 - 1)]):
        with pytest.raises(InputError, match="106 days"):
            replay_tasks(task_graph(more, ["fifo"]))


GOOD = task_graph(
    [Row(1, 0), Row(1, 0, after=[0], meeting=0), Row(0, awaited=0), Row(1, route=0, size=8)],
    ["fifo"],
    [[0]],
    [1],
)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"duration": np.array([1, -5, 0, 1])}, "task 1: duration -5 ps; give 0 or more"),
        ({"duration": np.array([1, 2])}, "duration has 2 entries for 4 tasks"),
        ({"resource": np.array([0, 1, -1, -1])}, "task 1: there is no resource 1, only 1"),
        ({"dependencies": np.array([7])}, "dependency 0: there is no task 7, only 4"),
        ({"offsets": np.array([0, 1, 0, 1, 1])}, "offsets must ascend from 0 to 1"),
        ({"offsets": np.array([0, 1])}, "offsets has 2 entries for 4 rows"),
        ({"awaited": np.array([-1, -1, 4, -1])}, "task 2: there is no awaited task 4"),
        ({"route": np.array([-1, -1, -1, 1])}, "task 3: there is no route 1, only 1"),
        ({"demand": np.array([0, 0, 0, -8.0])}, "task 3: demand -8.0; give 0 or more"),
        ({"demand": np.array([0, 0, 0, np.nan])}, "task 3: demand nan; give"),
        ({"bandwidth": np.array([0.0])}, "link 0: bandwidth 0.0 bytes/s; give more than 0"),
        ({"policy": np.array([3])}, "resource 0: there is no policy 3, only 3"),
        ({"routes": np.array([2])}, "hop 0: there is no link 2, only 1"),
        (
            {"routes": np.array([0, 0]), "route_offsets": np.array([0, 2])},
            "route 0 has link 0 twice; give each link once",
        ),
        (
            {"awaited": np.array([-1, 0, 0, -1])},
            "task 1 is part of a meeting and awaits another task: give it one of these",
        ),
    ],
)
def test_arrays_that_contradict_one_another(change: dict[str, np.ndarray], line: str) -> None:
    assert replay_tasks(GOOD).end.tolist() == [1, 2, 1, 9]
    with pytest.raises(InputError) as caught:
        replay_tasks(replace(GOOD, **change))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_meetings_may_have_any_numbers() -> None:
    rows = [Row(2, meeting=2_000_000_000), Row(3, meeting=5), Row(4, meeting=2_000_000_000)]
    assert spans(task_graph(rows)) == [(0, 4), (0, 3), (0, 4)]


def test_where_messages_take_turns_a_task_holds_its_links() -> None:
    """Row 0 holds both links for 6 ps, row 1 asks for the second, row 4 for the first one.

    Row 2 asks for that too, later, at 3. Of those that ask at one instant the first row comes
    first.
    """
    rows = [
        Row(0, route=0, size=6),
        Row(0, route=1, size=2),
        Row(0, route=2, size=2, after=[3]),
        Row(3),
        Row(0, route=2, size=5),
    ]
    tasks = task_graph(rows, [], [[0, 1], [1], [0]], [2, 4])
    times = replay_tasks(replace(tasks, sharing="serial"))
    assert times.begin.tolist() == [0, 0, 3, 0, 0]
    assert times.end.tolist() == [6, 8, 13, 3, 11]
    with pytest.raises(InputError, match='sharing must be fair, serial or packets, not "other"'):
        replay_tasks(replace(tasks, sharing="other"))
