"""Plans from the profile of one worker, from the question to the answer."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profiled_network import profiled_network, save_network

from paracosm.backends import Backend
from paracosm.cli import main
from paracosm.errors import InputError
from paracosm.planning.config import PlanConfig
from paracosm.planning.designs import Outcome, designs_of
from paracosm.planning.plan import run_plan
from paracosm.planning.runs import train_config
from paracosm.profiling.jobs import save_job_profile
from paracosm.results import PlanSummary, to_json, with_digest, without_digest
from paracosm.studies import RunFolder
from paracosm.training.algorithms.registry import parse_algorithm

Capture = pytest.CaptureFixture[str]

SMALL: dict[str, Any] = {
    "workers": "1,2",
    "algorithm": "asgd, ssgd",
    "lr": "0.2,0.4",
    "bandwidth": "10MB/s",
    "target": "loss <= 1.5",
    "seeds": 2,
    "updates": 160,
    "lookahead": "off",
}


def planned(
    folder: Path, jobs: int = 1, journal: Path | None = None, **changes: Any
) -> PlanSummary:
    config = PlanConfig.model_validate({"profile": save_network(folder), **SMALL, **changes})
    return run_plan(config, 0, backend=Backend(jobs=jobs), journal=journal)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> PlanSummary:
    return planned(tmp_path_factory.mktemp("small"), price="36/h a worker")


def test_a_plan_finds_what_is_soonest_and_what_is_cheapest(small: PlanSummary) -> None:
    assert small.status == "done"
    assert len(small.designs) == 2 + 4  # one worker is never stale
    assert small.fastest is not None
    assert small.cheapest is not None
    fastest, cheapest = small.designs[small.fastest], small.designs[small.cheapest]
    kept = [design for design in small.designs if design.verdict == "reached"]
    assert all(design.seeds == 2 and design.reached == 1 for design in kept)
    assert fastest.time.median == min(each.time.median for each in kept if each.time.median)
    assert cheapest.cost == min(each.cost for each in kept if each.cost)
    assert fastest.is_efficient
    # 36 an hour and worker is a cent a second and worker.
    assert fastest.time.median is not None
    assert fastest.cost == pytest.approx(0.01 * fastest.workers * fastest.time.median)
    assert fastest.workers == 2
    assert fastest.speedup is not None
    assert 1 < fastest.speedup <= 2.2
    assert fastest.relative_cost == pytest.approx(2 / fastest.speedup)


def test_time_is_updates_over_throughput(small: PlanSummary) -> None:
    for design in small.designs:
        if design.verdict == "reached" and design.time.median and design.updates.median:
            assert design.updates_per_second == pytest.approx(
                design.updates.median / design.time.median, rel=0.15
            )


def test_rates_too_high_diverge_and_stand_beside_the_bound(tmp_path: Path) -> None:
    found = planned(tmp_path, workers="4", algorithm="asgd", lr="0.2,50", seeds=1)
    slow, wild = found.designs
    assert slow.verdict == "reached"
    assert wild.verdict in ("diverged", "learns nothing")
    assert found.curvature is not None
    assert wild.steepness == pytest.approx(50 * found.curvature)
    assert wild.steepest is not None
    assert slow.steepness is not None
    assert slow.steepness < 2
    assert wild.steepness > wild.steepest


def test_a_target_that_nobody_reaches_says_what_came_near(tmp_path: Path, capsys: Capture) -> None:
    flags = ["--workers", "1", "--lr", "0.1,0.2", "--updates", "32", "--seeds", "1"]
    asked = ["plan", str(save_network(tmp_path)), *flags, "--target", "accuracy >= 0.999"]
    assert main(asked) == 1
    said = capsys.readouterr().out
    assert "No design reaches accuracy 0.999: best 0." in said
    assert "try --updates 128" in said


def test_the_help_says_what_has_to_be_given(capsys: Capture) -> None:
    assert main(["plan", "--help"]) == 0
    assert "Undefined" not in capsys.readouterr().out
    assert main(["plan", "--workers", "2"]) == 2
    assert "profile: must be given: job profile of one worker" in capsys.readouterr().err


def test_an_answer_comes_first(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "plan"
    flags = [f"--{name}={value}" for name, value in SMALL.items()]
    asked = ["plan", str(save_network(tmp_path)), *flags, "--out", str(out)]
    assert main(asked) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1].startswith("Training loss 1.5 is reached soonest with 2 workers, asgd, lr 0.")
    assert "times as fast as one worker at" in said[1]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Cost against time to training loss 1.5" in page
    assert "Throughput against updates to the target" in page
    folder = RunFolder.open(out)
    assert isinstance(folder.results, PlanSummary)
    assert len(folder.series("loss")) > 10
    assert main(asked) == 2  # it is done: another one needs another folder, or --force
    assert "not empty" in capsys.readouterr().err


@pytest.mark.slow
def test_a_plan_is_the_same_on_several_processes(tmp_path: Path, small: PlanSummary) -> None:
    several = planned(tmp_path, jobs=2, price="36/h a worker").to_dict()
    alone = small.to_dict()
    for found in (several, alone):
        del found["wall_time"], found["profile"]
    assert several == alone


# With the first seed, and with the second.
@pytest.mark.parametrize("at", [pytest.param(4, marks=pytest.mark.slow), 11])
def test_an_interrupted_plan_goes_on_where_it_stopped(
    tmp_path: Path, small: PlanSummary, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    import paracosm.planning.runs as runs

    made: list[str] = []
    real = runs.run_design

    def counted(*arguments: Any) -> Outcome:
        made.append("")
        if len(made) == at:
            signal.raise_signal(signal.SIGINT)
        return real(*arguments)

    monkeypatch.setattr(runs, "run_design", counted)
    journal = tmp_path / "runs.jsonl"
    first = planned(tmp_path, journal=journal, price="36/h a worker")
    assert first.status == "interrupted"
    before = len(journal.read_text().splitlines())
    assert before == first.runs >= 2
    made.clear()
    made.extend([""] * 100)
    whole = planned(tmp_path, journal=journal, price="36/h a worker")
    assert whole.status == "done"
    assert len(made) - 100 == whole.runs - before
    assert [dict(d) for d in whole.designs] == [dict(d) for d in small.designs]


def test_a_folder_of_an_interrupted_plan_is_taken_up_again(tmp_path: Path) -> None:
    out = tmp_path / "plan"
    flags = [f"--{name}={value}" for name, value in SMALL.items()]
    asked = ["plan", str(save_network(tmp_path)), *flags, "--out", str(out), "--quiet"]
    assert main(asked) == 0
    done = json.loads((out / "summary.json").read_text())
    done = without_digest(done, "summary") | {"status": "interrupted"}
    runs = (out / "runs.jsonl").read_text().splitlines()
    (out / "summary.json").write_text(to_json(with_digest(done)))
    (out / "runs.jsonl").write_text("\n".join(runs[:-2]) + "\n")
    assert main(asked) == 0
    again = json.loads((out / "summary.json").read_text())
    assert again["designs"] == done["designs"]
    assert sorted((out / "runs.jsonl").read_text().splitlines()) == sorted(runs)
    (out / "summary.json").write_text(to_json(with_digest(done)))
    assert main([*asked, "--seed", "1"]) == 2  # another plan


def test_a_what_if_stands_beside_the_unchanged_plan(tmp_path: Path) -> None:
    journal = tmp_path / "runs.jsonl"
    slower = ["links: bandwidth 4x slower"]
    found = planned(
        tmp_path, workers="2", algorithm="asgd", lr="0.4", what_if=slower, journal=journal
    )
    assert found.what_if == slower
    assert found.unchanged is not None
    changed, unchanged = found.designs[0].time.median, found.unchanged.designs[0].time.median
    assert changed is not None
    assert unchanged is not None
    assert changed > 1.3 * unchanged
    assert (tmp_path / "unchanged-runs.jsonl").is_file()


def test_what_decides_by_value_runs_coupled_and_says_so(tmp_path: Path) -> None:
    found = planned(tmp_path, algorithm="easgd, asgd", workers="2", lr="0.4", target="loss <= 2.2")
    coupled, scheduled = found.designs
    assert coupled.verdict != "open"
    assert coupled.seeds >= 1
    assert scheduled.verdict == "reached"
    assert "easgd depends on values" in found.durations["schedule of easgd"]
    assert not any("asgd decides" in text.replace("easgd", "") for text in found.durations.values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "perplexity <= 3"}, 'unknown metric "perplexity"'),
        ({"target": "accuracy <= 0.9"}, "write accuracy >= 0.9"),
        ({"price": 2.5}, '"2.5" has no unit, for which time and of what'),
        ({"lr": "0.1,0"}, "a learning rate is above 0"),
        ({"lr": "0.1,0.1"}, "0.1 is given twice"),
        ({"algorithm": "asgd,sgdd"}, 'unknown algorithm "sgdd"'),
        ({"workers": "4,2"}, "numbers of workers must increase"),
        ({"stagger": "1ms"}, "stagger: has no effect"),
    ],
)
def test_what_cannot_be_planned(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - pydantic's, or an InputError
        planned(tmp_path, **changes)
    assert message in str(caught.value)


def test_a_target_that_is_met_before_training_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is met before training"):
        planned(tmp_path, target="loss <= 100", seeds=1)


def test_a_profile_of_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"layers\.0\.weight has 16,384 bytes"):
        planned(tmp_path, model="mlp(hidden=32)")


def test_a_shorter_run_of_a_plan_sees_the_beginning_of_the_same_schedule(tmp_path: Path) -> None:
    asked = {**SMALL, "lr_schedule": "cosine", "warmup": "10 updates", "lr_scaling": "linear"}
    config = PlanConfig.model_validate({"profile": save_network(tmp_path), **asked})
    (design,) = designs_of([2], [parse_algorithm("asgd")], [0.1], "linear")
    short = train_config(config, design, 10)
    assert short.updates == 10
    assert str(short.lr_schedule) == "cosine(updates=160)"
    assert str(short.warmup) == "10 updates from 0.5"  # the rate of one worker
    assert (short.lr, short.lr_scaling) == (0.2, None)
    with pytest.raises(ValueError, match="ends after the run, which has 160 updates"):
        PlanConfig.model_validate(
            config.model_dump(exclude_unset=True) | {"lr_schedule": "step(160)"}
        )


def test_a_plan_hides_examples_but_not_clients(tmp_path: Path) -> None:
    def config(privacy: str, **changes: Any) -> PlanConfig:
        asked = {**SMALL, **changes, "privacy": privacy}
        del asked["lookahead"]
        return PlanConfig.model_validate({"profile": save_network(tmp_path), **asked})

    hidden = config("examples(clip=1, noise=1.1)")
    (design,) = designs_of([2], [parse_algorithm("asgd")], [0.1])
    assert str(train_config(hidden, design, 10).privacy) == "examples(clip=1, noise=1.1)"
    with pytest.raises(InputError, match="a plan updates tensors separately"):
        config("clients(clip=1, noise=1)", algorithm="fedbuff").check()


def test_a_profile_that_has_changed_is_read_again(tmp_path: Path) -> None:
    network = profiled_network()
    times = {name: getattr(network, name) for name in ("begin", "end", "step_begin", "step_end")}
    slower = replace(network, **{name: 2 * time for name, time in times.items()})
    asked = {**SMALL, "workers": "1", "algorithm": "asgd", "lr": "0.4", "seeds": 1}
    found = []
    for profile in (network, slower):
        save_job_profile(profile, tmp_path / "job.profile")
        config = PlanConfig.model_validate({"profile": tmp_path / "job.profile", **asked})
        found.append(run_plan(config, 0).designs[0].time.median)
    assert found[1] > 1.5 * found[0]
