"""What emulated ranks give in wire mode: what a rank with the same data would, or the run fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"
GIVES, PIPELINE = SCRIPTS / "gives.py", SCRIPTS / "pipeline.py"


def emulate(*arguments: object) -> tuple[int, str]:
    """Return the exit code and what was said."""
    command = [sys.executable, "-m", "paracosm.cli.app", "emulate", "--mode", "wire"]
    done = subprocess.run(
        [*command, "--world-size", "4", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_rank_gets_what_one_with_the_same_data_would_give() -> None:
    code, said = emulate("--rank", 2, GIVES, 2)
    assert code == 0, said


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ["1,3", "0,3"])  # of 0's broadcasts 3 hears through emulated 1
def test_several_real_ranks_agree_on_what_emulated_ones_give(ranks: str) -> None:
    code, said = emulate("--rank", ranks, GIVES, ranks)
    assert code == 0, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "why"),
    [
        (
            "scatter",
            "what emulated rank 1 would contribute (12 bytes) is unknown",
        ),
        ("unknown", "what emulated rank 1 of the group default_pg/0//cpu//0 would send (24 bytes"),
    ],
)
def test_what_cannot_be_known_fails(what: str, why: str) -> None:
    code, said = emulate(GIVES, 0, what)
    assert code == 1
    assert why in said


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ["0,3", "0,1"], ids=["first and last", "neighbours"])
def test_stages_of_a_pipeline_learn_from_real_and_emulated_neighbours(ranks: str) -> None:
    code, said = emulate("--rank", ranks, PIPELINE, "--shapes")
    assert code == 0, said
    norms = [float(each) for each in re.findall(r"gradient of rank \d ([\d.]+)", said)]
    assert len(norms) == 2
    assert all(0 < norm < 10 for norm in norms)


@pytest.mark.slow
def test_powersgd_stays_finite_in_groups_that_are_made_anew() -> None:
    code, said = emulate(SCRIPTS / "powersgd.py", 10)
    assert code == 0, said
