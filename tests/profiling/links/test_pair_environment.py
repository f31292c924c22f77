"""Two ranks that a launcher has started find each other by variables, which are looked at first."""

from __future__ import annotations

import pytest

from paracosm.errors import InputError
from paracosm.profiling.links.pair import calibrate_link

SOUND = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"WORLD_SIZE": "3"}, "a link is between two ranks: WORLD_SIZE=2"),
        ({"RANK": "5"}, "RANK 0 here and 1 there"),
        ({"RANK": "x"}, "RANK 0 here and 1 there"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        ({"MASTER_PORT": "abc"}, 'MASTER_PORT is "abc": give the same number'),
        ({"MASTER_PORT": "99999"}, 'MASTER_PORT is "99999"'),
        ({"MASTER_PORT": ""}, 'MASTER_PORT is ""'),
    ],
)
def test_variables_that_name_no_rank_of_two_are_refused(
    changed: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (SOUND | changed).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=message):
        calibrate_link(0.01, 2.0)
