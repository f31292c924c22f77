"""A script that waits for emulated ranks in a store is refused within 10 s, with its line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rank_processes import LIMIT, SCRIPTS, environment, start
from torch.distributed import DistStoreError

from paracosm.emulation.config import whole_number
from paracosm.emulation.rank import refusals
from paracosm.errors import InputError

CASES = (("backend", "compare_set", "prefix", "DistStoreError"),)  # one that sleeps in between
MORE = (
    ("backend", "add", "default", "DistStoreError"),
    ("backend", "train", "default", "nothing"),
    ("backend", "get", "file", "DistStoreError"),
    ("backend", "num_keys", "tcp", "DistStoreError"),
    ("backend", "swallow", "hash", "SystemExit"),
    ("backend", "wait", "file", "DistStoreError"),
    ("wire", "check", "tcp", "DistStoreError"),
    ("wire", "add", "default", "DistStoreError"),
    ("wire", "wait", "prefix", "DistStoreError"),
)
LATEST = 10  # seconds


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


@dataclass
class Clock:
    """Stands for `time` and for what counts records: time passes only where a test lets it."""

    now: float = 0.0
    computed: float = 0.0
    count: int = 0

    def monotonic(self) -> float:
        return self.now

    def thread_time(self) -> float:
        return self.computed

    def let_pass(self, asleep: float, computing: float = 0.0) -> None:
        self.now += asleep + computing
        self.computed += computing


def refused_after(between: Callable[[Clock], None], limit: float = 60.0) -> float:
    """Return when a loop that asks a store is refused, by the clock; the limit if it is not."""
    clock = Clock()

    def ask(store: str, key: str) -> bool:
        clock.let_pass(20e-6)
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refusals, "time", clock)
        asking = refusals._Polls(clock).watched(ask, "check")  # type: ignore[arg-type]
        try:
            while clock.now < limit:
                asking("store", "other")
                between(clock)
        except DistStoreError:
            return clock.now
    return limit


@given(
    pause=st.floats(0.005, 0.45),
    taken=st.lists(st.tuples(st.floats(0.0, 8.0), st.floats(1e-3, 14e-3)), max_size=5),
)
@example(pause=0.005, taken=[(3.69, 9.02e-3)])  # as a spinning loop met it beside other programs
@example(pause=0.45, taken=[(7.9, 14e-3)] * 5)
def test_a_loop_that_waits_is_refused_within_10_s_on_a_busy_machine(
    pause: float, taken: list[tuple[float, float]]
) -> None:
    """Now and then the machine takes the loop's core, 5 x 14 ms at most, as if the loop computed.

    Each makes up for 20 times as much of waiting: 8 s + 20 x 0.07 s, and a last pause, is 9.85 s.
    """
    later = sorted(taken)

    def between(clock: Clock) -> None:
        clock.let_pass(pause, 50e-6)
        while later and later[0][0] <= clock.now:
            clock.let_pass(0.0, later.pop(0)[1])

    assert 8 < refused_after(between) < 10


@given(waiting=st.floats(0.1, 7.0), questions=st.integers(1, 20))
def test_a_loop_that_computes_a_tenth_of_its_time_is_not_refused(waiting: float, questions: int):
    """As one that looks for a key, some times in a row, between batches."""
    asked = 0

    def between(clock: Clock) -> None:
        nonlocal asked
        asked += 1
        clock.let_pass(waiting / questions)
        if asked % questions == 0:
            clock.let_pass(0.0, waiting / 9)

    assert refused_after(between) == 60.0


def test_a_loop_with_collectives_is_not_refused():
    def between(clock: Clock) -> None:
        clock.let_pass(3.0)
        clock.count += 1

    assert refused_after(between) == 60.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR: not set, beside PARACOSM_SERVED"),
        *(
            pytest.param(changes, said, marks=pytest.mark.slow)
            for changes, said in (
                (
                    {"RANK": "0", "MASTER_ADDR": "h"},
                    "MASTER_PORT: not set: a whole number from 0 to",
                ),
                (
                    {"RANK": "0", "MASTER_ADDR": "h", "MASTER_PORT": "70000"},
                    'MASTER_PORT: .*not "70000"',
                ),
                ({"RANK": "one", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, 'RANK: .*not "one"'),
                ({"RANK": "0", "PARACOSM_SERVED": "port"}, 'PARACOSM_SERVED: .*not "port"'),
            )
        ),
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
