"""Mean times between failures: how they are written, and when nodes fail."""

from __future__ import annotations

from itertools import islice, takewhile
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.faults.node_failures import (
    FailureFields,
    JobFailures,
    Mtbf,
    failure_instants,
    parse_mtbf,
)

SECONDS = st.floats(1e-3, 1e12)


@pytest.mark.parametrize(
    ("text", "mtbf"),
    [
        ("30 days a worker", Mtbf(worker=2_592_000)),
        ("8h a server", Mtbf(server=28_800)),
        ("1 day a worker, 12h a server", Mtbf(86_400, 43_200)),
        ("60 s a node", Mtbf(60, 60)),
        ("10min a worker", Mtbf(worker=600)),
    ],
)
def test_spellings(text: str, mtbf: Mtbf) -> None:
    assert parse_mtbf(text) == mtbf
    assert parse_mtbf(mtbf) is mtbf


def test_it_is_written_in_days_where_they_are_whole() -> None:
    assert str(parse_mtbf("720 h a worker")) == "30 days a worker"
    assert str(parse_mtbf("86400s a node")) == "1 day a node"
    assert str(parse_mtbf("90min a worker, 2h a server")) == "5400s a worker, 7200s a server"


@given(st.one_of(SECONDS, st.just(inf)), SECONDS)
def test_every_mtbf_parses_back_from_its_string(worker: float, server: float) -> None:
    assert parse_mtbf(str(Mtbf(worker, server))) == Mtbf(worker, server)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("30 days", ['"30 days" does not say of what', '"30 days a worker"']),
        ("30 a worker", ['"30" has no unit']),
        ("30 days a wroker", ['"wroker"', 'did you mean "worker"']),
        ("0s a worker", ["above 0 and finite"]),
        ("inf a worker", ["above 0 and finite"]),
        ("1h a node, 2h a server", ["the mtbf of a server is given twice"]),
        ("", ["does not say of what"]),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_mtbf(text)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_a_job_fails_with_its_first_node() -> None:
    """4 workers of 8 h and 1 server of 4 h: 4/8 + 1/4 failures an hour."""
    assert Mtbf(8.0, 4.0).of_job(4, 1) == pytest.approx(4 / 3)
    assert Mtbf(worker=8.0).of_job(0, 3) == inf


def fields(**given: object) -> FailureFields:
    return FailureFields.model_validate(given)


def test_what_failures_do_to_a_synchronous_and_an_asynchronous_job() -> None:
    """8 workers of 80 h: the whole job fails every 10 h; Young: sqrt(2 x 18 s x 36,000 s)."""
    given = {"mtbf": "80h a worker", "checkpoint_cost": "18s", "checkpoint_every": "young"}
    together = fields(**given).job_failures(8, 1, stops_together=True)
    assert together is not None
    assert together.interval == pytest.approx((2 * 18 * 36_000) ** 0.5)
    assert (together.mtbf, together.worker_mtbf, together.cost) == (36_000, inf, 18)
    assert together.restart == 18  # what was saved is read again
    alone = fields(**given, restart_cost="1min").job_failures(8, 1, stops_together=False)
    assert alone == JobFailures(inf, 288_000, 60, None, 18, Mtbf(288_000))
    assert fields().job_failures(8, 1, stops_together=True) is None


def test_servers_stop_the_job_whatever_it_does() -> None:
    given = {"mtbf": "80h a node", "checkpoint_cost": "18s", "checkpoint_every": "1h"}
    nodes = Mtbf(288_000, 288_000)
    assert fields(**given).job_failures(8, 2, False) == JobFailures(
        144_000, 288_000, 18, 3600, 18, nodes
    )
    assert fields(**given).job_failures(8, 2, True) == JobFailures(28_800, inf, 18, 3600, 18, nodes)


def test_a_job_without_the_nodes_that_fail_is_refused() -> None:
    given = {"mtbf": "8h a server", "checkpoint_cost": "1s"}
    with pytest.raises(InputError, match="no servers, which are all that 28800s a server is of"):
        fields(**given).job_failures(4, 0, stops_together=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"mtbf": "8h a worker"},
            "restart cost and checkpoint cost .*add --restart-cost.*--checkpoint-cost",
        ),
        ({"mtbf": "8h a worker", "restart_cost": "1s"}, "checkpoint cost not specified"),
    ],
)
def test_costs_that_are_missing(given: dict[str, str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        fields(**given).job_failures(2, 1, stops_together=True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"checkpoint_every": "yung"}, 'did you mean "young"'),
        ({"checkpoint_every": "10"}, "has no unit"),
        ({"checkpoint_every": "0s"}, "above 0"),
        ({"checkpoint_cost": "10"}, "has no unit"),
        ({"checkpoint_cost": "0s"}, "greater than 0"),
    ],
)
def test_fields_that_cannot_be(given: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fields(**given)


def test_fields_are_written_as_they_are_read() -> None:
    given = {"mtbf": "30 days a worker", "checkpoint_cost": "10s", "checkpoint_every": "90s"}
    written = fields(**given).model_dump(mode="json", exclude_unset=True)
    assert fields(**written) == fields(**given)
    assert written["mtbf"] == "30 days a worker"


def test_nodes_fail_at_exponential_intervals() -> None:
    """10,000 intervals of 5 nodes: mean 2 s, and as often above their median, within 4 errors."""
    instants = np.fromiter(islice(failure_instants(Mtbf(10.0), 5, 3, seed=1), 10_000), float)
    gaps = np.diff(instants, prepend=0.0)
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(2.0, abs=4 * 2.0 / 100)
    assert (gaps > 2 * np.log(2)).mean() == pytest.approx(0.5, abs=4 * 0.005)


def test_one_more_node_changes_nothing_for_the_others() -> None:
    def until(workers: int, servers: int) -> set[float]:
        instants = failure_instants(Mtbf(5.0, 7.0), workers, servers, seed=3)
        return set(takewhile(lambda instant: instant < 100, instants))

    assert until(3, 1) < until(4, 1)
    assert until(3, 1) < until(3, 2)
    assert list(failure_instants(Mtbf(), 3, 3, seed=3)) == []
