"""What the answer about a script on a device says of what was assumed."""

from __future__ import annotations

from typing import Any

import pytest

from paracosm.emulation.device.view import assumed_of_script
from paracosm.results import ScriptSummary

DURATIONS = {
    "host": "assumed: 5 us for each op and collective",
    "latency of Ethernet 100 Gbit/s": "assumed: with RDMA, as InfiniBand",
    "outer of a server with eight cards": "assumed: no server in particular",
}
LINKS = ["latency of Ethernet 100 Gbit/s"]


@pytest.mark.parametrize(
    ("changes", "assumed"),
    [
        ({"launch_bound": 0.09, "breakdown": {"exposed_communication": 0.9}}, []),
        (
            {"launch_bound": 0.1, "breakdown": {"exposed_communication": 0.9}},
            ["5 us for each op and collective of the host"],
        ),
        ({"launch_bound": 0.0, "breakdown": {"exposed_communication": 1.0}}, LINKS),
        ({"launch_bound": 0.0, "breakdown": None}, []),
        ({"iteration_time": None, "launch_bound": None, "breakdown": None}, []),
    ],
)
def test_what_a_tenth_of_an_iteration_rests_on_is_said(
    changes: dict[str, Any], assumed: list[str]
) -> None:
    known = {"iteration_time": 10.0, "durations": DURATIONS, "assumed": []} | changes
    assert assumed_of_script(ScriptSummary.from_dict(known)) == assumed
