"""The programs under examples/relaxation run, and print what they say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "relaxation"
Capture = pytest.CaptureFixture[str]


def printed_by(name: str, capsys: Capture) -> str:
    runpy.run_path(str(EXAMPLES / f"{name}.py"))
    return capsys.readouterr().out


def test_plain_and_compiled_user_functions_make_the_same_iteration(capsys: Capture) -> None:
    printed = printed_by("user_functions", capsys)
    plain, compiled = re.findall(r"residual (\S+) after (\S+) s", printed)
    assert plain == compiled
    assert "same x to the bit: True" in printed
    slow, fast = (float(cost.replace(",", "")) for cost in re.findall(r"([\d,]+) ns", printed))
    assert fast < slow / 10


def test_pagerank_is_that_of_networkx_however_it_is_iterated(capsys: Capture) -> None:
    printed = printed_by("pagerank", capsys)
    differences = [float(number) for number in re.findall(r"NetworkX by (\S+)", printed)]
    assert len(differences) == printed.count("converged") == 3
    assert max(differences) < 1e-11
    synchronous, from_nothing, asynchronous = map(int, re.findall(r"(\d+) sweeps", printed))
    # 0.85^k <= 1e-12 / |first residual| where the sum of x is not 1 from the start.
    assert synchronous < 100 < 140 < from_nothing < 160 < asynchronous
    assert "first: Valjean" in printed


def test_value_iteration_finds_the_goal_around_the_pit(capsys: Capture) -> None:
    printed = printed_by("value_iteration", capsys)
    difference = re.search(r"value iteration: (\S+)", printed)
    assert difference is not None
    assert float(difference[1]) < 1e-8
    field = [line.split() for line in printed.splitlines()[-10:]]
    assert (field[0][9], field[4][5]) == ("G", "#")
    # From everywhere but the pit the moves lead to the goal, not into the pit.
    steps = {"↑": (-1, 0), "→": (0, 1), "↓": (1, 0), "←": (0, -1)}
    for start in range(100):
        here = divmod(start, 10)
        for _ in range(40):
            if (arrow := field[here[0]][here[1]]) in "G#":
                break
            down, right = steps[arrow]
            here = (min(max(here[0] + down, 0), 9), min(max(here[1] + right, 0), 9))
        assert here == ((4, 5) if start == 45 else (0, 9)), start


def test_the_membrane_touches_where_the_active_set_says(capsys: Capture) -> None:
    printed = printed_by("obstacle", capsys)
    found = re.findall(r"touches at (\d+) of 400 points \(active set: (\d+)\)", printed)
    assert len(found) == printed.count("converged") == 2
    assert all(ours == theirs for ours, theirs in found)
    assert all(float(off) < 1e-8 for off in re.findall(r"off it by (\S+)", printed))


def test_consensus_is_the_least_squares_fit_and_waiting_saves_energy(capsys: Capture) -> None:
    printed = printed_by("consensus", capsys)
    assert printed.count("converged") == 2
    assert all(float(off) < 1e-9 for off in re.findall(r"lstsq by (\S+)", printed))
    synchronous, asynchronous = map(float, re.findall(r"(\S+) MJ", printed))
    times = [int(time.replace(",", "")) for time in re.findall(r"after ([\d,]+) s", printed)]
    # Asynchronously nobody waits: all 8 draw 250 W to the end.
    assert asynchronous == pytest.approx(8 * 250 * times[1] / 1e6, rel=0.01)
    # Synchronously the slow one computes for 40 of some 41 s, the seven others for 10.
    assert synchronous == pytest.approx((250 + 7 * (250 + 3 * 60) / 4) * times[0] / 1e6, rel=0.05)
    assert synchronous < asynchronous
