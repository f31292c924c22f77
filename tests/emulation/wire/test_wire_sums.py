"""What real ranks get of all-reduces in wire mode, as `paracosm emulate` runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SUMS = Path(__file__).parents[1] / "scripts" / "sums.py"
LONG = 4_194_304  # 16 MiB of floats: a megabyte and more for each rank


def emulate(*arguments: object) -> list[str]:
    """Return the lines of the script, in order."""
    command = [sys.executable, "-m", "paracosm.cli.app", "emulate", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return sorted(re.findall(r"rank \d: \d+ \[[\d., ]*\]", done.stdout))


@pytest.mark.slow
def test_a_group_that_is_made_again_begins_anew() -> None:
    lines = emulate("--world-size", 2, "--mode", "wire", SUMS, 3, 5, 3, "--again")
    assert lines == ["rank 0: 3 [1.0]", "rank 0: 3 [1.0]", "rank 0: 5 [1.0]"]


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "total"), [("0,2", 4.0), ("0,1", 3.0)])
def test_several_real_ranks_get_their_sum(ranks: str, total: float) -> None:
    lengths = (3, 1000, LONG)
    lines = emulate("--world-size", 4, "--mode", "wire", "--rank", ranks, SUMS, *lengths)
    expected = [f"rank {rank}: {n} [{total}]" for rank in ranks.split(",") for n in lengths]
    assert lines == sorted(expected)
