"""A new kind of run is one object: it runs, sweeps, tunes and reports like the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from pydantic import ConfigDict, Field

import paracosm
from paracosm.cli import main
from paracosm.configuration import Configuration
from paracosm.results import Summary
from paracosm.results.kind import Answer, Form, Kind, Outcome
from paracosm.results.view import View, figure
from paracosm.studies.kinds import KINDS


class TossConfig(Configuration):
    model_config = ConfigDict(extra="forbid", frozen=True)

    speed: float = Field(2.0, gt=0, description="metres per second, upwards")

    def check(self) -> None:
        pass


class TossSummary(Summary):
    verb: ClassVar[str] = "toss"
    kind: Literal["toss"] = "toss"
    height: float


def run(config: TossConfig, seed: int, metrics: Any, hooks: Any) -> Outcome:
    return Outcome(TossSummary(status="done", height=config.speed**2 / 20))


def sentence(summary: TossSummary) -> str:
    return f"It rises {summary.height:g} m."


VIEW = View(figures={"Height": figure("height", "{:g} m".format)})

TOSS = Kind(
    verb="toss",
    noun="a toss",
    question="How high does a stone rise?",
    help="Throw a stone upwards.",
    examples=("toss --speed 2",),
    forms=(Form(f"{__name__}:TossConfig", run),),
    answers=(Answer(TossSummary, f"{__name__}:VIEW", f"{__name__}:sentence"),),
    objective=lambda config: "height",
    maximizes=True,
)


@pytest.fixture(autouse=True)
def toss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KINDS, "_kinds", {**KINDS._kinds})
    KINDS.add(TOSS)


Capture = pytest.CaptureFixture[str]


def test_it_runs_and_reports_from_the_command_line(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "run"
    assert main(["toss", "--speed", "4", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("It rises 0.8 m.")
    assert "height  0.8 m" in printed
    assert json.loads((out / "summary.json").read_text())["height"] == 0.8
    assert "It rises 0.8 m." in (out / "report.html").read_text()
    assert main(["toss", "--spede", "4"]) == 2
    assert "--speed" in capsys.readouterr().err


def test_it_sweeps(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("toss: {}\nover: {speed: [2, 4]}")
    assert main(["toss", str(study), "--out", str(tmp_path / "sweep"), "--quiet"]) == 0
    heights = [point.summary.height for point in paracosm.open(tmp_path / "sweep").points]
    assert heights == [0.2, 0.8]


def test_it_runs_from_python(tmp_path: Path) -> None:
    result = paracosm.toss(speed=4, out=tmp_path / "run")
    assert result.sentence == "It rises 0.8 m."
    assert paracosm.open(tmp_path / "run").summary.height == 0.8
    assert paracosm.arguments("toss") == {"speed": "metres per second, upwards"}


def test_it_is_tuned(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    tuned = paracosm.tune({"toss": {}}, "speed=2|4", trials=4, seeds=1, out=tmp_path / "tuned")
    assert "speed=4" in tuned.sentence


def test_its_question_is_among_those_that_are_answered(capsys: Capture) -> None:
    assert main([]) == 0
    assert "How high does a stone rise?" in capsys.readouterr().out
