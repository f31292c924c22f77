"""Nodes that are slower than their cluster says."""

from __future__ import annotations

import pytest

from paracosm.cluster import switch
from paracosm.errors import InputError
from paracosm.prediction.jobs.stragglers import parse_stragglers, slowed


def test_speeds_are_multiplied() -> None:
    factors = parse_stragglers("worker1 x0.5, worker3x.25,worker9 * 2")
    assert factors == {"worker1": 0.5, "worker3": 0.25, "worker9": 2.0}
    cluster = slowed(switch(4, speeds=[1, 2, 3, 4]), factors)
    assert [node.speed for node in cluster.nodes] == [1, 1, 3, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "write a worker and its speed, worker3 x0.5"),
        ("worker3", 'cannot read "worker3"'),
        ("worker3 x-1", 'cannot read "worker3 x-1"'),
        ("worker3 x0", "a speed is above 0"),
        ("worker3 x1, worker3 x2", "worker3 is given two speeds"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_stragglers(text)
    assert message in str(refused.value)
