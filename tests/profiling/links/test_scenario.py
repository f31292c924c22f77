"""Which scenarios there are, and the table of what was measured."""

from __future__ import annotations

import pytest

from paracosm.errors import InputError
from paracosm.profiling.environment import Environment
from paracosm.profiling.links.measure import KINDS, Scenario, rows, scenarios, write_table
from paracosm.profiling.samples import LinkTiming, spread_of

HERE = Environment("cpu", "a chip", "torch 2", 1, "malloc pinned", "flushed")


def timing(kind: str, scenario: str, size: int, seconds: float, ranks: int = 2) -> LinkTiming:
    return LinkTiming(kind, scenario, size, ranks, HERE, spread_of([seconds]))


def test_every_kind_has_scenarios_and_every_name_is_one() -> None:
    for kind in KINDS:
        assert {scenario.kind for scenario in scenarios([kind], [2])} == {kind}
    everything = scenarios(KINDS, [2, 4])
    assert len({str(each) for each in everything}) == len(everything)


def test_scenarios_that_one_team_can_do_stand_together() -> None:
    teams = [(scenario.processes, scenario.backend) for scenario in scenarios(KINDS, [4, 2, 3])]
    assert teams == sorted(teams)


def test_a_reduce_scatter_sends_whole_numbers_to_every_rank() -> None:
    (scenario, _) = scenarios(["reduce_scatter"], [3])
    assert scenario.message(1024) == 1020
    with pytest.raises(InputError, match="at least 12 bytes, not 8"):
        scenario.message(8)


def test_what_is_no_kind_is_refused() -> None:
    with pytest.raises(
        InputError, match='kind of transfer "all-reduce": did you mean "all_reduce"'
    ):
        scenarios(["all-reduce"], [2])
    with pytest.raises(InputError, match="at least 2 ranks, not 1"):
        scenarios(["all_reduce"], [1])


def test_a_row_counts_both_directions_of_a_bi_direct_copy() -> None:
    (uni, both) = rows(
        [
            timing("host copy", "bi-direct", 1000, 1e-6),
            timing("host copy", "uni-direct", 1000, 1e-6, ranks=1),
        ]
    )
    assert uni.throughput(1000) == pytest.approx(1e9)
    assert both.throughput(1000) == pytest.approx(2e9)
    assert both.line is None


def test_the_table_has_the_paper_s_unit_and_lines_for_a_cluster_file() -> None:
    sizes = [1_000_000, 2_000_000]
    text = write_table(
        rows(timing("all_reduce", "gloo 2 processes", n, 2e-3 + n / 1e9) for n in sizes)
    )
    assert text.splitlines()[:2] == [
        "MB/s                               1MB       2MB",
        "all_reduce, gloo 2 processes    333.33    500.00",
    ]
    # Two steps of half the bytes each: 1 ms and 1 GB/s a step.
    assert "latency: 1 ms, bandwidth: 8 Gbit/s" in text
    assert "%" not in text  # through two points there is always a line
    assert write_table([]) == "nothing was measured"


def test_one_size_gives_no_link() -> None:
    text = write_table(rows([timing("host copy", "uni-direct", 1000, 1e-6, ranks=1)]))
    assert text.splitlines()[1:] == ["host copy, uni-direct  1,000.00"]


def test_memory_counts_all_processes() -> None:
    gather = Scenario("all_gather", "gloo 4 processes", 4, processes=4, backend="gloo")
    assert gather.memory(100) == 4 * (100 + 4 * 100)
