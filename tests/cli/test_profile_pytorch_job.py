"""`paracosm profile job --framework pytorch`: a job that learns, profiled from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.profiling.jobs import load_job_profile

JOB = ["profile", "job", "mlp", "--framework", "pytorch"]


def test_a_job_that_learns_is_profiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "job.profile"
    learning = ["--data", "digits", "--batch", "4", "--lr", "0.1"]
    asked = [*learning, "--steps", "3", "--seed", "7", "--out", str(out)]
    assert main([*JOB, *asked]) == 0
    # 4 pulls, 3 segments forward (before the first layer, then each) and 4 backward, 4 pushes, 4
    # updates.
    said = capsys.readouterr().out
    assert "3 steps of 19 ops, 1 worker, 1 server" in " ".join(said.split())
    assert "more: --details" in said
    profile = load_job_profile(out)
    said = {"data": "digits", "lr": 0.1, "seed": 7}
    assert {name: profile.provenance[name] for name in said} == said
    assert (profile.batch, profile.steps) == (4, 3)
    assert "pull/layers.0.weight" in profile.names


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["--data", "mnist"], 'unknown data set "mnist"'),
        (["--servers", "1000000"], "1,000,001 processes take at least"),
        (["--rate", "0.1"], "paracosm profile job has no option --rate: "),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    asked: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*JOB, *asked, "--out", str(tmp_path / "job.profile")]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said
    assert "\n" not in said
