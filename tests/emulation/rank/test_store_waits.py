"""A script that waits for emulated ranks in a store is refused within 10 s, with its line."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from rank_processes import LIMIT, SCRIPTS, environment, start

from paracosm.emulation.rank.environment import whole_number
from paracosm.errors import InputError

CASES = (
    ("backend", "add", "default", "DistStoreError"),
    ("backend", "swallow", "hash", "SystemExit"),
    ("backend", "train", "default", "nothing"),
)
MORE = (
    ("wire", "check", "tcp", "DistStoreError"),
    ("backend", "compare_set", "prefix", "DistStoreError"),
    ("backend", "get", "file", "DistStoreError"),
    ("backend", "num_keys", "tcp", "DistStoreError"),
    ("backend", "wait", "file", "DistStoreError"),
    ("wire", "add", "default", "DistStoreError"),
    ("wire", "wait", "prefix", "DistStoreError"),
)
LATEST = 20  # seconds: 8, and what a busy machine adds


@pytest.mark.parametrize("cases", [CASES, pytest.param(MORE, marks=pytest.mark.slow)])
def test_waits_for_emulated_ranks_end(cases: tuple[tuple[str, str, str, str], ...]):
    command = [sys.executable, "-m", "paracosm.cli.app", "emulate", "--world-size", "2", "--mode"]
    script = str(SCRIPTS / "store_waits.py")
    ranks = [
        subprocess.Popen(
            [*command, mode, script, wait, store],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for mode, wait, store, _ in cases
    ]
    for (_, wait, _, expected), rank in zip(cases, ranks, strict=True):
        printed, _ = rank.communicate(timeout=LIMIT)
        match = re.search(r"after ([\d.]+) s: (.*)", printed)
        assert match is not None, printed
        assert match[2].startswith(expected), printed
        if wait != "train":
            assert float(match[1]) < LATEST
            assert "at store_waits.py:" in match[2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR: not set, beside PARACOSM_SERVED"),
        (
            {"RANK": "0", "MASTER_ADDR": "h"},
            "MASTER_PORT: not set: a whole number from 0 to 65,535",
        ),
        ({"RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "70000"}, 'MASTER_PORT: .*not "70000"'),
        ({"RANK": "one", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, 'RANK: .*not "one"'),
        ({"RANK": "0", "PARACOSM_SERVED": "port"}, 'PARACOSM_SERVED: .*not "port"'),
    ],
)
def test_an_incomplete_environment_is_one_line(changes: dict[str, str], said: str):
    script = str(SCRIPTS / "sums.py")
    done = start([sys.executable, script], **{"PARACOSM_SERVED": "29500", **changes})
    assert done.returncode == 2
    assert re.fullmatch(f"paracosm: {said}.*", done.stderr.strip()), done.stderr


@pytest.mark.parametrize("text", [None, "", "x", "-1", "1.5", "1e3", "9" * 5000, str(2**31)])
def test_what_is_no_number_of_a_rank_is_refused(text: str | None):
    with pytest.raises(InputError, match=r"^RANK: .{1,120}$"):
        whole_number("RANK", text)


def test_numbers_of_ranks_are_read():
    assert whole_number("RANK", "0") == 0
    assert whole_number("RANK", f" {2**31 - 1}{os.linesep}") == 2**31 - 1
