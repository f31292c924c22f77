"""Tuning a study: what is varied, what is compared, and that a tuning can go on."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import optuna
import pyarrow.compute as pc
import pytest

import paracosm
from paracosm.backends import Backend
from paracosm.cli import main
from paracosm.errors import InputError, MissingExtraError
from paracosm.report.runs import answer
from paracosm.results import RelaxationSummary, TuningSummary
from paracosm.results.tuning import Parameter
from paracosm.studies import Hooks, RunFolder, Study, load_study, read_sweep, run_point
from paracosm.studies.tuning.runs import Objective, objective_of, space_of

RELAX: dict[str, Any] = {"problem": "laplace2d:4", "time": "uniform(1, 3)", "baseline": False}
SPACE = "processors=1..8 log, read=start|completion"


def accepted(content: dict[str, Any]) -> Study:
    """Return a study that the command of its kind accepts."""
    study = Study.model_validate(content)
    study.points("test")
    return study


def relaxation(**changes: Any) -> Study:
    return accepted({"seed": 3, "relax": {**RELAX, **changes}})


def training(**changes: Any) -> Study:
    return accepted({"train": {"updates": 10, **changes}})


def tuned(
    study: Study, out: Path, space: str = SPACE, hooks: Hooks | None = None, **more: Any
) -> TuningSummary:
    """Return the result of a tuning in a folder."""
    content = {**study.as_written(), "seed": 0}
    force = more.pop("force", False)
    arguments = {"study": content, "tune": space, "trials": 6, "seeds": 2, **more}
    tuning = Study.model_validate({"seed": study.seed, "tune": arguments})
    (point,) = tuning.points("test")
    summary = run_point(point, out, force, hooks).summary
    assert isinstance(summary, TuningSummary)
    return summary


def trials_in(out: Path) -> list[dict[str, str]]:
    with (out / "trials.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_a_space_is_read_by_the_types_of_the_arguments() -> None:
    text = "lr=0.01..1 log, workers=2..16, latency=1..50ms, algorithm=asgd|ssp(slack=1, decay=0.5)"
    space = space_of(training(), text)
    assert [*space.values()] == [
        Parameter("lr", 0.01, 1.0, log=True),
        Parameter("workers", 2, 16, whole=True),
        Parameter("latency", 1, 50, unit="ms"),
        Parameter("algorithm", choices=("asgd", "ssp(slack=1, decay=0.5)")),
    ]
    assert space["latency"].written(2.56789) == "2.568ms"
    assert space["lr"].written(0.123456) == 0.1235
    assert space["workers"].written(7) == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr", 'cannot read "lr"'),
        ("lr=0.1", "several values, such as asgd|ssgd, not 0.1"),
        ("algorithm=asgd|asgd", "several values"),
        ("lr=0..1 log", "above 0"),
        ("lr=1..0.1", "ascending"),
        ("lr=1..1e400", "finite"),
        ("workers=1.5..4", "whole"),
        ("latency=1ms..2s", "a range with one unit"),
        ("latencey=1..2ms", 'did you mean "latency"?'),
        ("lr=0.1..1, lr=1..2", "lr is given twice"),
    ],
)
def test_a_space_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"^[^\n]*$") as refused:
        space_of(training(), text)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("content", "space", "objective"),
    [
        ({"train": {"updates": 10}}, "lr=0.1..1", Objective("final_loss")),
        ({"train": {"until": "2s"}}, "lr=0.1..1", Objective("final_loss")),
        ({"train": {"until": "accuracy >= 0.5"}}, "lr=0.1..1", Objective("reached_at")),
        ({"train": {"until": "test_loss<=0.1"}}, "lr=0.1..1", Objective("reached_at")),
        ({"relax": RELAX}, SPACE, Objective("virtual_time")),
        (
            {"predict": {"model": "mlp", "shape": [64], "hardware": "t4"}},
            "batch=8..64",
            Objective("examples_per_second", maximize=True),
        ),
        ({"emulate": {"script": __file__}}, "world_size=2..8", Objective("iteration_time")),
        (
            {"plan": {"profile": __file__, "target": "loss <= 1", "workers": "1,2"}},
            "latency=1..2ms",
            Objective("time"),
        ),
    ],
)
def test_the_objective_is_what_such_runs_are_about(
    content: dict[str, Any], space: str, objective: Objective
) -> None:
    assert objective_of(Study.model_validate(content), space, None, None) == objective


def test_what_is_varied_belongs_to_the_study() -> None:
    """A target that only trials have, and bounds that no run has all at a time."""
    to_target = "until=accuracy >= 0.5|accuracy >= 0.6"
    assert objective_of(training(), to_target, None, None) == Objective("reached_at")
    study = training(algorithm="streaming-diloco", until="accuracy >= 0.5")
    apart = "algorithm=streaming-diloco(steps=1)|streaming-diloco(steps=8)"
    assert objective_of(study, apart, None, None) == Objective("reached_at")
    with pytest.raises(InputError, match='unknown key "target"'):
        objective_of(
            Study.model_validate({"train": {"target": "loss <= 1"}}), "lr=1..2", None, None
        )


def test_a_named_objective_is_a_number_of_the_summary() -> None:
    assert objective_of(training(), "lr=0.1..1", None, "final_accuracy").maximize
    with pytest.raises(InputError, match="not both"):
        objective_of(training(), "lr=0.1..1", "final_loss", "final_accuracy")
    with pytest.raises(InputError, match='did you mean "final_loss"'):
        objective_of(training(), "lr=0.1..1", "final_los", None)


def test_a_training_with_a_target_is_tuned_for_the_time_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Updates of 1 s, each evaluated: the first of three in a row at 80 % is the time to it."""
    study, out = tmp_path / "study.yaml", tmp_path / "out"
    study.write_text(
        "train: {workers: 1, updates: 60, compute: 1s, evaluate_every: 1, "
        'until: "accuracy >= 0.8"}\n'
    )
    flags = ["--tune", "lr=0.001|0.5", "--trials", "4", "--seeds", "1", "--out", str(out)]
    assert main(["tune", str(study), *flags]) == 0
    assert "lr=0.5; with fresh seeds reached_at " in capsys.readouterr().out
    for row in trials_in(out):
        run = paracosm.train(
            workers=1, updates=60, compute="1s", evaluate_every=1, until="accuracy >= 0.8",
            lr=float(row["lr"]),
        )  # fmt: skip
        rows = run.metrics.filter(pc.field("name") == "accuracy").to_pylist()
        met = [row["value"] >= 0.8 for row in rows]
        first = next((n for n in range(len(met)) if all(met[n : n + 3]) and met[n:]), None)
        assert float(row["reached_at"]) == (float("inf") if first is None else first)
    assert {row["reached_at"] == "inf" for row in trials_in(out)} == {False, True}


def test_a_run_that_did_not_converge_counts_as_worse_than_any_other() -> None:
    short, whole = (
        run_point(relaxation(**changes).points("")[0]).summary
        for changes in ({"max_sweeps": 2}, {})
    )
    assert isinstance(short, RelaxationSummary)
    time = Objective("virtual_time")
    assert time.of(short) is None
    assert Objective("residual").of(short) == short.residual
    assert time.over([whole, short, whole]) == whole["virtual_time"]
    assert time.over([whole, short]) == float("inf")
    assert Objective("virtual_time", maximize=True).over([short]) == -float("inf")
    with pytest.raises(InputError, match='did you mean "residual"'):
        Objective("residul").of(short)
    with pytest.raises(InputError, match="no number"):
        Objective("problem").of(short)


def test_trials_are_the_runs_of_the_study_and_the_best_is_the_least(tmp_path: Path) -> None:
    study, out = relaxation(), tmp_path / "out"
    found = tuned(study, out)
    rows = trials_in(out)
    medians = [float(row["virtual_time"]) for row in rows]
    for row, median in zip(rows, medians, strict=True):
        values = {"processors": int(row["processors"]), "read": row["read"]}
        times = [
            run_point(study.with_arguments(seed, values).points("")[0]).summary["virtual_time"]
            for seed in (3, 4)
        ]
        assert median == sum(times) / 2
    best = rows[medians.index(min(medians))]
    tuned_study = load_study(out / "best.yaml")
    assert tuned_study.arguments == {
        **RELAX, "processors": int(best["processors"]), "read": best["read"],
    }  # fmt: skip
    last = read_sweep(out)[-4:]
    assert [(row["point"][:5], row["varied"]["seed"]) for row in last] == [
        ("best,", 5), ("best,", 6), ("given", 5), ("given", 6),
    ]  # fmt: skip
    assert found.validation["best"]["virtual_time"] == (
        sum(row["virtual_time"] for row in last[:2]) / 2
    )


def test_a_tuning_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    def interrupting(done: int, time: float | None) -> None:
        if done == 11:
            raise KeyboardInterrupt

    whole = tuned(relaxation(), tmp_path / "whole")
    out = tmp_path / "out"
    part = tuned(relaxation(), out, hooks=Hooks(interrupting))
    assert (part.status, part.trials, part.validation) == ("interrupted", 4, {})
    assert trials_in(out) == trials_in(tmp_path / "whole")[:4]
    kept = {path: path.stat().st_mtime_ns for path in out.glob("*/summary.json")}
    assert len(kept) == 11
    assert tuned(relaxation(), out) == whole
    assert trials_in(out) == trials_in(tmp_path / "whole")
    assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
    for trials in (6, 7):
        with pytest.raises(InputError, match="not empty"):
            tuned(relaxation(), out, trials=trials)


def test_an_interrupt_before_the_end_of_a_trial_leaves_what_ran(tmp_path: Path) -> None:
    def interrupting(done: int, time: float | None) -> None:
        if done == 3:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        tuned(relaxation(), out, hooks=Hooks(interrupting))
    assert RunFolder.open(out).status == "unfinished"
    assert tuned(relaxation(), out).status == "done"


def test_optuna_opens_the_storage_and_a_tuning_is_in_it_once(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path / 'x.db'}"
    for force in (False, True):
        found = tuned(relaxation(), tmp_path / "out", trials=5, storage=storage, force=force)
    (name,) = optuna.get_all_study_names(storage)
    study = optuna.load_study(study_name=name, storage=storage)
    assert len(study.trials) == 5
    assert study.best_value == min(
        float(row["virtual_time"]) for row in trials_in(tmp_path / "out")
    )
    assert study.best_params["read"] == found.best["read"]
    with pytest.raises(InputError, match=r"^--storage: x\.db: cannot be opened"):
        tuned(relaxation(), tmp_path / "other", storage="x.db")
    assert not (tmp_path / "other").exists()


def test_where_no_trial_is_better_the_study_as_given_is_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("relax: {problem: laplace2d:4, baseline: false}\n")
    flags = ["--tune", "max_sweeps=1..2", "--trials", "1", "--seeds", "1"]
    assert main(["tune", str(study), *flags, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("The study as given is the best: with fresh seeds virtual_time ")
    assert ", and not reached with the best of 1 trials: max_sweeps=1" in printed
    assert "max_sweeps" not in (tmp_path / "out" / "best.yaml").read_text()


def test_a_best_that_does_not_converge_is_said_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text("relax: {problem: laplace2d:4, baseline: false, max_sweeps: 1}\n")
    flags = ["--tune", "max_sweeps=1..2", "--trials", "1", "--seeds", "1"]
    assert main(["tune", str(study), *flags, "--out", str(tmp_path / "out")]) == 1
    assert "with fresh seeds virtual_time not reached, " in capsys.readouterr().out


def test_what_cannot_run_leaves_the_folder_free(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='unknown method "nope"'):
        tuned(relaxation(), tmp_path / "out", "method=jacobi|nope", trials=4)
    assert not (tmp_path / "out").exists()


def test_optuna_says_nothing_and_is_left_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = optuna.logging.get_verbosity()
    tuned(relaxation(), tmp_path / "out", trials=1)
    assert capsys.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before


def test_without_optuna_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r'pip install "paracosm\[tune\]"'):
        tuned(relaxation(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_several_jobs_find_what_one_does(tmp_path: Path) -> None:
    one = tuned(relaxation(), tmp_path / "one", trials=9)
    two = tuned(relaxation(), tmp_path / "two", trials=9, hooks=Hooks(backend=Backend(jobs=2)))
    assert one == two
    assert trials_in(tmp_path / "one") == trials_in(tmp_path / "two")


def test_a_study_with_a_grid_and_values_that_cannot_be_are_refused(tmp_path: Path) -> None:
    grid = Study.model_validate({"relax": RELAX, "over": {"processors": [1, 2]}})
    with pytest.raises(InputError, match="a study with a grid"):
        tuned(grid, tmp_path / "grid")
    with pytest.raises(InputError, match="processors"):
        tuned(relaxation(), tmp_path / "out", "processors=100..200")


def test_the_command_prints_the_best_and_writes_the_report_of_a_sweep(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.yaml").write_text("relax: {problem: 'laplace2d:4', baseline: false}")
    out = tmp_path / "out"
    flags = ["tune", str(tmp_path / "s.yaml"), "--tune", SPACE, "--trials", "5", "--seeds", "1"]
    assert main([*flags, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("Best of 5 trials: processors=")
    assert f"next: paracosm relax {out}/best.yaml" in printed
    assert "processors" in (out / "report.html").read_text()
    result = paracosm.open(out)
    assert len(result.points) == 7
    assert result.sentence == printed.splitlines()[0]
    assert main([*flags, "--json"]) == 0  # without a folder the runs are not kept
    assert json.loads(capsys.readouterr().out) == RunFolder.open(out).summary


def test_python_finds_what_the_command_does(tmp_path: Path) -> None:
    found = paracosm.tune({"seed": 3, "relax": RELAX}, SPACE, trials=6, seeds=2)
    assert found.sentence == answer(tuned(relaxation(), tmp_path / "out"))
    assert found.table.num_rows == 2 * (6 + 2)
    with pytest.raises(InputError, match="unknown argument"):
        paracosm.tune({"relax": RELAX}, SPACE, sedes=2)
