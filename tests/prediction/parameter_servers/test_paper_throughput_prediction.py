"""The reproduction of Li et al.: its cheap parts, and, slow, the command as a whole."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "papers" / "throughput_prediction"
FIGURES = ("2", "3c", "7", "12", "13", "17", "22", "23", "25")


@pytest.fixture(scope="module")
def modules() -> Any:
    """Return a function that imports a module of the example."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLE)
        yield importlib.import_module


def test_figure_12_has_first_turns_and_then_second_ones(modules: Any) -> None:
    turns = modules("sending").turns_of_figure_12()
    assert [f"{turn.stream}{turn.turn}" for turn in turns] == [
        *("A0", "B0", "C0", "D0", "E0"),
        *("A1", "C1", "E1"),
    ]
    assert [turn.end for turn in turns] == [3, 5, 8, 11, 14, 16, 20, 21]


def test_vgg_11_is_divided_as_the_paper_says(modules: Any) -> None:
    """Figure 23: 407 and 100 MB; 132,863,336 parameters (Simonyan and Zisserman: 133 million)."""
    division = modules("division")
    *_, vgg = division.divide([])
    assert vgg.name == "VGG-11"
    assert sum(vgg.sizes) == 4 * 132_863_336
    assert [round(held / 2**20) for held in vgg.held] == [407, 100]
    assert [finding.holds for finding in division.judge_division([vgg])] == [True]


def test_synthetic_models_compute_in_proportion_to_their_flops(modules: Any) -> None:
    """VGG-11 has 7.6 billion multiply-adds for an image of 224 x 224 pixels."""
    synthetic = modules("synthetic_models")
    layers = synthetic.layers_of("vgg11")
    assert sum(layer.flops for layer in layers) == pytest.approx(2 * 7.6e9, rel=0.01)
    profile = synthetic.profile_of(layers, 0.2)
    seconds = np.where(profile.resource == 1, profile.end - profile.begin, 0.0).sum(axis=1)
    assert seconds.mean() == pytest.approx(0.2, rel=0.02)
    forward = [op for op, name in enumerate(profile.names) if name.startswith("forward")]
    spent = (profile.end - profile.begin)[:, forward].sum(axis=1)
    assert spent.mean() == pytest.approx(0.2 / 3, rel=0.02)


def test_rate_over_time(modules: Any) -> None:
    """Two workers with steps of 2 s."""
    lockstep = modules("lockstep")
    begin = np.arange(0.0, 20, 2)
    times = np.array([5.0, 8.5])
    rates = lockstep.rate_over_time([begin + 2, begin + 2], times, 3.0)
    assert rates == pytest.approx(1.0)


def test_equal_steps_stay_in_lock_step_and_others_do_not(modules: Any) -> None:
    jobs, lockstep = modules("measured_jobs"), modules("lockstep")
    (job, *_) = jobs.measured_jobs(None, 60)
    ends = (np.arange(1.0, 11) * 3,) * 3
    run = jobs.Run(3, 30.0, 0.0, tuple(end - 3 for end in ends), ends)
    found = {each.variant: each for each in lockstep.ablate(replace(job, runs=[run]), 6)}
    same, base = found["all steps the same"], found["as profiled"]
    assert same.coherences == pytest.approx(1.0)
    assert np.ptp(same.rates) == 0
    assert base.coherences.mean() < 0.95
    assert base.rates.mean() > 1.05 * same.rates.mean()
    assert found["unequal shares, sigma 0.7"].rates.mean() > base.rates.mean()


def test_the_page_shows_figures_that_are_beside_it() -> None:
    shown = set(re.findall(r"\(figures/(\w+\.png)\)", (EXAMPLE / "README.md").read_text()))
    kept = {file.name: file.stat().st_size for file in (EXAMPLE / "figures").iterdir()}
    assert shown == set(kept)
    assert {f"figure{number}.png" for number in FIGURES} <= shown
    assert max(kept.values()) < 60_000


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command without a folder of data."""
    environment = {name: text for name, text in os.environ.items() if name != "PARACOSM_DATA"}
    command = [sys.executable, str(EXAMPLE / "reproduce.py"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment
    )


def test_a_folder_without_jobs_is_refused_in_one_line(tmp_path: Path) -> None:
    finished = run("--data", str(tmp_path), "--out", str(tmp_path / "out"))
    assert finished.returncode == 1
    index = tmp_path / "index.json"
    assert finished.stderr.strip() == (
        f"--data: {index}: no such file: name the folder psthroughput of measured jobs"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_command_works_on_what_is_in_the_repository(tmp_path: Path) -> None:
    page = shutil.copyfile(EXAMPLE / "README.md", tmp_path / "README.md")
    finished = run("--quick", "--out", str(tmp_path / "out"), "--document", str(page))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "was not given" in finished.stdout
    for number in FIGURES:
        name = f"figure{number}.png"
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "figures" / name).exists()
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- results:") == 2
    assert "## A run of our own" in text
    findings = json.loads((tmp_path / "out" / "findings.json").read_text(encoding="utf-8"))
    held = {finding["where"] for finding in findings if finding["holds"]}
    assert {"Figure 12", "Figure 18", "Figure 22", "Figure 23", "Figure 25"} <= held
    trace = tmp_path / "out" / "trace.json.gz"
    assert trace.read_bytes().startswith(b"\x1f\x8b")
