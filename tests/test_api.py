"""Paracosm in Python: what each function returns, gives back, and refuses."""

from __future__ import annotations

import copy
import gc
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
import pytest

import paracosm
from paracosm import InputError, Result
from paracosm.cli import main
from paracosm.results import (
    EmulationSummary,
    JobSummary,
    RelaxationSummary,
    ReplaySummary,
    ThroughputSummary,
    TrainingSummary,
    to_json,
    with_digest,
)
from paracosm.studies import RunFolder
from paracosm.timeline import Timeline
from paracosm.training import TrainConfig

DATA = Path(__file__).parent / "data"
SCRIPT = Path(__file__).parent / "emulation" / "scripts" / "ddp.py"
TRAINING: dict[str, Any] = {
    "algorithm": "asgd",
    "timing_only": True,
    "compute": "0.1s",
    "message_size": "1MB",
    "bandwidth": "1Gbit/s",
    "updates": 20,
}
RELAXATION: dict[str, Any] = {"problem": "laplace2d:4", "method": "jacobi", "processors": 2}
PROFILE = DATA / "psthroughput" / "profile.json.gz"
NESTED: list[Any] = []
NESTED.append(NESTED)
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def training() -> Result[TrainingSummary]:
    return paracosm.train(**TRAINING, workers=2, latency="1ms", seed=3)


@pytest.fixture(scope="module")
def predicted() -> Result[Any]:
    return paracosm.predict(profile=PROFILE, workers=[1, 2], bandwidth="1Gbit/s", steps=100)


class BytesPath(os.PathLike[bytes]):
    def __fspath__(self) -> bytes:
        return b"runs"


def round_trip(result: Result[Any], folder: Path) -> Result[Any]:
    """Save, open, and hold what comes back against what went in."""
    assert result.save(folder) == folder
    again = paracosm.open(folder)
    assert again.summary.to_dict() == result.summary.to_dict()
    assert type(again.summary) is type(result.summary)
    assert repr(again) == repr(result)
    assert (folder / "report.html").stat().st_size > 1000
    return again


def test_train_returns_summary_metrics_timeline_and_figures(
    training: Result[TrainingSummary], tmp_path: Path
) -> None:
    assert isinstance(training.summary, TrainingSummary)
    assert training.status == training.summary.status == "done"
    (row,) = training.summary.throughput
    assert (row.workers, training.summary.seed) == (2, 3)
    assert row.examples_per_second == training.summary.examples_per_second
    assert isinstance(training.metrics, pa.Table)
    assert {"staleness", "utilisation.compute"} <= set(training.metrics["name"].to_pylist())
    assert isinstance(training.timeline, Timeline)
    assert {"staleness", "timeline"} <= training.figures.keys()
    assert all(isinstance(figure, go.Figure) for figure in training.figures.values())
    assert repr(training).startswith("<paracosm training: 20 updates, ")
    again = round_trip(training, tmp_path / "run")
    assert again.metrics.equals(training.metrics)


def test_json_is_the_commands(training: Result[TrainingSummary], capsys: Capture) -> None:
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in TRAINING.items()]
    flags = [flag.removesuffix("=True") for flag in flags]
    assert main(["train", *flags, "--workers=2", "--latency=1ms", "--seed=3", "--json"]) == 0
    printed, mine = json.loads(capsys.readouterr().out), training.summary.to_dict()
    assert printed.keys() == mine.keys()
    assert {**printed, "wall_time": 0.0} == {**mine, "wall_time": 0.0}


def test_a_config_stands_for_arguments(training: Result[TrainingSummary]) -> None:
    given = {**TRAINING, "workers": 2, "latency": "1ms"}
    for config in (given, TrainConfig(**given)):
        again = paracosm.train(config, seed=3)
        assert again.summary.virtual_time == training.summary.virtual_time


def test_relax(tmp_path: Path) -> None:
    result = paracosm.relax(**RELAXATION, out=tmp_path / "run")
    assert isinstance(result.summary, RelaxationSummary)
    assert result.summary.staleness.mean is not None
    assert "residual" in result.metrics["name"].to_pylist()
    assert (tmp_path / "run" / "report.html").exists()
    round_trip(paracosm.open(tmp_path / "run"), tmp_path / "copy")


def test_predict_from_a_job_profile(predicted: Result[Any], tmp_path: Path) -> None:
    summary = predicted.summary
    assert isinstance(summary, ThroughputSummary)
    assert [row.workers for row in summary.throughput] == [1, 2]
    assert [row.workers for row in summary.baselines["lin"]] == [1, 2]
    assert summary.throughput[-1].steps_per_second == summary.steps_per_second
    round_trip(predicted, tmp_path / "run")


def test_replay(tmp_path: Path) -> None:
    trace = DATA / "kineto" / "resnet.json.gz"
    result = paracosm.replay(trace, what_if="kernel *: 2x faster")
    assert isinstance(result.summary, ReplaySummary)
    assert result.summary.what_ifs[0].what_if == "kernel *: 2x faster"
    assert result.timeline is not None
    round_trip(result, tmp_path / "run")


def test_emulate(tmp_path: Path) -> None:
    result = paracosm.emulate(
        SCRIPT,
        arguments=["--steps", "4", "--hidden", "32"],
        world_size=4,
        bandwidth="1Gbit/s",
        latency="20us",
        output="none",
    )
    assert isinstance(result.summary, EmulationSummary)
    assert result.summary.iteration_time is not None
    assert result.summary.iteration_time.measured == 3
    round_trip(result, tmp_path / "run")


def test_a_study_with_a_grid_is_a_sweep(tmp_path: Path) -> None:
    asked = {"train": TRAINING, "over": {"workers": [1, 2]}}
    sweep = paracosm.study(asked, out=tmp_path / "sweep")
    assert [point.summary.workers for point in sweep.points] == [1, 2]
    assert sweep.table["workers"].to_pylist() == [1, 2]
    assert sweep.table.column_names[0] == "workers"
    assert sweep.table["virtual_time"].to_pylist() == [p.summary.virtual_time for p in sweep.points]
    assert sweep.status == "done"
    assert "staleness" in sweep.figures
    sweep.save(tmp_path / "copy")
    again = paracosm.open(tmp_path / "copy")
    assert again.table.equals(sweep.table)
    assert repr(again).startswith("<paracosm training: Highest throughput with 2 workers: ")
    with pytest.raises(
        InputError, match="a sweep has no summary of its own: it has points, failed, table"
    ):
        _ = again.summary
    by_list = paracosm.train(**TRAINING, workers=[1, 2])
    times = by_list.table["virtual_time"].to_pylist()
    assert times == sweep.table["virtual_time"].to_pylist()


def test_a_sweep_shows_itself_in_a_notebook_and_has_a_table_of_mixed_values() -> None:
    over = [{"latency": ["1ms", 0.002]}, {"workers": [1, 2], "update_time": ["1ms"]}]
    sweep = paracosm.study({"train": TRAINING, "over": over})
    html = sweep._repr_html_()
    assert sweep.sentence in html
    assert "<img" in html
    assert sweep.table["latency"].to_pylist() == ["1ms", "0.002", None, None]
    assert sweep.table["update_time"].to_pylist() == [None, None, "1ms", "1ms"]


def test_the_table_of_a_sweep_has_learning_rates_as_numbers() -> None:
    training = {"workers": 2, "updates": 2, "lr_schedule": "cosine"}
    sweep = paracosm.study({"train": training, "over": {"lr": [0.1, 0.2]}})
    assert isinstance(sweep.points[0].summary["lr"], str)
    assert sweep.table["lr"].to_pylist() == [0.1, 0.2]


def test_objects_that_have_one_name_are_runs_of_their_own() -> None:
    def slow(_processor: int, _update: int, _u: float) -> float:
        return 2.0

    quick = slow

    def slow(_processor: int, _update: int, _u: float) -> float:  # type: ignore[no-redef]
        return 1.0

    asked = {"relax": RELAXATION, "over": {"time": [quick, slow]}}
    times = [point.summary.virtual_time for point in paracosm.study(asked).points]
    assert times[0] == 2 * times[1]


def test_a_deep_copy_keeps_the_temporary_folder() -> None:
    result = paracosm.train(**TRAINING)
    copied = copy.deepcopy(result)
    rows = result.metrics.num_rows
    del result
    gc.collect()
    assert copied.metrics.num_rows == rows


def test_a_result_whose_folder_is_gone_is_not_saved(tmp_path: Path) -> None:
    result = paracosm.train(**TRAINING, out=tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(InputError, match="the folder of the result is gone"):
        result.save(tmp_path / "copy")


@pytest.mark.parametrize("steps", [[], [101, 101], [102, 101]])
def test_steps_of_a_replay_are_consecutive(steps: list[int]) -> None:
    with pytest.raises(InputError, match=r"steps: (give numbers|write consecutive)"):
        paracosm.replay(DATA / "kineto" / "resnet.json.gz", steps=steps)


def test_a_study_file_of_one_run(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("seed: 2\nrelax: {problem: 'laplace2d:4', processors: 2}\n")
    result = paracosm.study(file, method="jacobi")
    assert result.summary.kind == "relaxation"
    assert result.summary.method == "jacobi"


def test_a_tuning_opens(tmp_path: Path) -> None:
    flags = [
        *("relax", "tune", "--problem", "laplace2d:5", "--processors", "3", "--checkpoint"),
        *("cost=1s", "--fault", "uniform(-100, 100) every 200s", "--seeds", "2", "--trials", "2"),
        *("--tune", "alpha=1.05..20, omega=1..500s", "--quiet", "--out", str(tmp_path / "tune")),
    ]
    assert main(flags) == 0
    result = paracosm.open(tmp_path / "tune")
    assert result.summary.kind == "tuning"
    assert result.table["trial"].to_pylist() == [0, 1]
    assert repr(result).startswith("<paracosm tuning: Best of 2 trials: alpha=")
    assert "<img" in result._repr_html_()
    result.save(tmp_path / "copy")
    assert paracosm.open(tmp_path / "copy").summary.best == result.summary.best


def test_a_notebook_shows_the_sentence_key_figures_and_a_picture(
    training: Result[TrainingSummary],
) -> None:
    html = training._repr_html_()
    assert training.sentence in html
    assert "<th>Mean staleness</th>" in html
    assert "data:image/png;base64,iVBOR" in html


def test_a_figure_is_drawn_by_matplotlib(training: Result[TrainingSummary]) -> None:
    first = training.plot()
    assert first.axes[0].has_data()
    named = training.plot("staleness")
    assert "taleness" in named.axes[0].get_title(loc="left")
    with pytest.raises(InputError, match='unknown figure "stalenes": did you mean "staleness"'):
        training.plot("stalenes")


def test_tables_and_numbers_go_to_pandas(
    training: Result[TrainingSummary], predicted: Result[Any], tmp_path: Path
) -> None:
    pandas = pytest.importorskip("pandas")
    assert training.to_pandas()["value"].tolist() == training.metrics["value"].to_pylist()
    sweep = paracosm.study({"train": TRAINING, "over": {"workers": [1, 2]}})
    assert sweep.to_pandas()["workers"].tolist() == [1, 2]
    (row,) = predicted.to_pandas().to_dict("records")
    assert row["kind"] == predicted.summary.kind
    assert isinstance(predicted.to_pandas(), pandas.DataFrame)


def test_the_report_is_one_page(training: Result[TrainingSummary], tmp_path: Path) -> None:
    page = training.report(tmp_path / "page.html")
    assert "asgd, 2 workers" in page.read_text()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: paracosm.train(wrokers=3), 'train: unknown argument "wrokers": did you mean'),
        (lambda: paracosm.train({"wrokers": 3}), 'train: unknown argument "wrokers"'),
        (lambda: paracosm.relax(q=1), 'relax: unknown argument "q": choose from latency, '),
        (lambda: paracosm.relax(method="foo"), 'relax: method: unknown method "foo"'),
        (lambda: paracosm.train(workers="x"), 'train: workers: cannot read "x"'),
        (lambda: paracosm.train(bandwidth="25"), 'train: bandwidth: "25" has no unit'),
        (lambda: paracosm.train(force=True), "force replaces the run in a folder: give out"),
        (
            lambda: paracosm.train(TrainConfig(), workers=2),
            "train: workers: the config sets it already",
        ),
        (lambda: paracosm.relax(TrainConfig()), "relax: config: give a mapping or a RelaxConfig"),
        (lambda: paracosm.study({"trian": {}}), "study: "),
        (lambda: paracosm.study({"train": {}}, wrokers=2), 'unknown argument "wrokers"'),
        (lambda: paracosm.replay("no.json"), "no.json"),
        (lambda: paracosm.profile("mlp", bugdet="1s"), "--bugdet"),
        (lambda: paracosm.profile("mlp", budget="x"), "budget"),
        (lambda: paracosm.arguments("trian"), 'unknown verb "trian": did you mean "train"?'),
        (lambda: paracosm.train(**TRAINING, seed="x"), "train: seed: a whole number, not 'x'"),
        (lambda: paracosm.train(TrainConfig(), seed=-1), "train: seed: input should be greater"),
        (lambda: paracosm.tune({"train": {}}, "lr=0.1|0.2", seed=[1]), "tune: seed: input should"),
        (
            lambda: paracosm.train(**TRAINING, jobs=[2]),
            "--jobs: a whole number, 1 or more, not a",
        ),
        (lambda: paracosm.train(**TRAINING, backend=[1]), "--backend: choose from loky, dask"),
        (lambda: paracosm.open("a\0b"), "open: no file can have the name 'a\\x00b'"),
        (lambda: paracosm.open("x" * 300), "open: no file can have the name 'xxx"),
        (lambda: paracosm.relax(matrix="x" * 300), "relax: matrix: no file can have the name 'xx"),
        (lambda: paracosm.train(schedule="x" * 300), "train: schedule: no file can have the name"),
        (lambda: paracosm.train(model="x" * 300 + ".py:f"), "no file can have the name 'xx"),
        (lambda: paracosm.study({"train": {"lr": NESTED}}), "nested deeper than 64 levels"),
        (lambda: paracosm.train(lr=NESTED), "train: nested deeper than 64 levels"),
        (lambda: paracosm.train(lr=np.complex64(1)), "train: lr: input should be a valid number"),
        (lambda: paracosm.train(workers=np.True_), "train: workers: "),
        (lambda: paracosm.train(lr=np.ma.masked), "train: a masked array is no argument"),
        (lambda: paracosm.train(compute=np.zeros(2, dtype=[("a", int)])), "train: compute: "),
    ],
)
def test_wrong_arguments_are_one_line(call: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_are_arguments() -> None:
    given = {"compute": np.float32(0.5), "updates": np.int16(20), "timing_only": np.True_}
    sweep = paracosm.train(**{**TRAINING, **given}, workers=np.array([1, 2]), seed=np.uint64(3))
    assert [point.summary.workers for point in sweep.points] == [1, 2]


def test_arguments_are_named_as_the_flags() -> None:
    known = paracosm.arguments("train")
    assert "number of workers" in known["workers"] or known["workers"]
    assert {"algorithm", "message_size", "bandwidth"} <= known.keys()


def test_what_a_result_does_not_have_is_refused_with_what_there_is(
    predicted: Result[Any], training: Result[TrainingSummary]
) -> None:
    with pytest.raises(InputError, match="has no metrics: it has summary, timeline, figures"):
        _ = predicted.metrics
    with pytest.raises(InputError, match="has no points: it has summary, metrics, timeline"):
        _ = training.points
    silent = paracosm.train(**TRAINING, workers=2, timeline=False)
    with pytest.raises(InputError, match="has no timeline: it has summary, metrics, figures"):
        _ = silent.timeline


def test_folders_that_are_none_are_refused(
    training: Result[TrainingSummary], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no such folder"):
        paracosm.open(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"not a run folder, .*: it has no study\.yaml"):
        paracosm.open(tmp_path)
    old = training.save(tmp_path / "old")
    environment = json.loads((old / "environment.json").read_text())
    del environment["format"]
    (old / "environment.json").write_text(json.dumps(environment))
    with pytest.raises(InputError, match=r"written by another version of Paracosm \(format 1"):
        paracosm.open(old)
    odd = training.save(tmp_path / "odd")
    dream = to_json(with_digest({"kind": "dream", "status": "done"}))
    (odd / "summary.json").write_text(dream)
    with pytest.raises(InputError, match="kind of summary"):
        paracosm.open(odd)
    (odd / "summary.json").write_text("{")
    with pytest.raises(InputError, match=r"summary\.json: cannot be read"):
        paracosm.open(odd)


def test_a_folder_is_not_overwritten(training: Result[TrainingSummary], tmp_path: Path) -> None:
    training.save(tmp_path / "run")
    with pytest.raises(InputError, match="the folder exists and is not empty"):
        training.save(tmp_path / "run")
    training.save(tmp_path / "run", force=True)


def test_half_a_run_opens_and_says_so(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {"seed": 0, "train": {"algorithm": "asgd"}}) as run:
        run.metric(0.5, 0.1, "worker0", "staleness", 1.0, 7)
    result = paracosm.open(tmp_path / "run")
    assert result.status == "unfinished"
    assert result.summary.updates == 7
    assert "unfinished" in repr(result)
    assert result.metrics.num_rows == 1
    assert "unfinished" in result._repr_html_()


def test_importing_paracosm_takes_no_time() -> None:
    program = (
        "import time; begun = time.process_time(); import paracosm; "
        "print(time.process_time() - begun)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 0.1


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that the command wrote, with malloc's thread cache off."""
    file = tmp_path_factory.mktemp("profiles") / "a.db"
    flags = {"batch": 4, "db": file, "budget": "1s", "precision": 0.5, "cache": "cold"}
    result = paracosm.profile("mlp", **flags, iterations=False)
    assert result.summary.timings > 0
    assert result.summary.environment["allocator"] in ("malloc pinned", "malloc default")
    return file


@pytest.mark.slow
def test_python_uses_the_database_that_the_command_wrote(database: Path) -> None:
    asked = {"model": "mlp", "batch": 4, "db": database, "new_ops": "refuse"}
    flags = [f"--{key.replace('_', '-')}={value}" for key, value in asked.items()]
    program = "import sys; from paracosm.cli import main; sys.exit(main())"
    environ = {key: value for key, value in os.environ.items() if key != "GLIBC_TUNABLES"}
    done = subprocess.run(
        [sys.executable, "-c", program, "predict", *flags, "--json"],
        capture_output=True,
        text=True,
        env=environ,
        check=True,
    )
    result = paracosm.predict(**asked)
    assert result.summary.to_dict() == json.loads(done.stdout)
    assert result.summary.differences == ""
    job = paracosm.predict(**asked, workers=[1, 2], bandwidth="1Gbit/s", strategy="ddp")
    assert isinstance(job.summary, JobSummary)
    assert [row.workers for row in job.summary.throughput] == [1, 2]


@pytest.mark.slow
def test_ops_that_python_needs_timed_are_timed_as_the_command_does(database: Path) -> None:
    before = paracosm.predict(model="mlp", batch=4, db=database, new_ops="refuse")
    result = paracosm.predict(model="mlp", batch=3, db=database, exact=True)
    assert result.summary.profiled > 0
    assert result.summary.environment == before.summary.environment
    again = paracosm.predict(model="mlp", batch=3, db=database, exact=True)
    assert again.summary.profiled == 0


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (5, "a matrix has two dimensions, not 0"),
        ("abc", "abc: no such file"),
        ([1], "a matrix has two dimensions, not 1"),
        ([("workers", 2)], "its entries must be real numbers"),
        (object(), "a matrix has two dimensions, not 0"),
    ],
)
def test_what_is_neither_a_config_nor_a_matrix_is_refused(config: Any, reason: str) -> None:
    with pytest.raises(InputError, match=f"^relax: .*{reason}"):
        paracosm.relax(config)
    with pytest.raises(InputError, match="train: config: give a mapping or a TrainConfig"):
        paracosm.train(config)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: paracosm.open(5), "open"),
        (lambda: paracosm.study([1]), "study"),
        (lambda: paracosm.tune(None, "lr=0.1|0.2"), "study"),
        (lambda: paracosm.emulate(b"train.py"), "script"),
        (lambda: paracosm.plan(1.5), "profile"),
        (lambda: paracosm.replay(None), "traces"),
        (lambda: paracosm.train(timing_only=True, out=5), "out"),
        (lambda: paracosm.train(timing_only=True, force="no"), "force"),
        (lambda: paracosm.open(BytesPath()), "open"),
    ],
)
def test_an_argument_of_another_type_is_named(call: Any, argument: str) -> None:
    with pytest.raises(InputError, match=f"^{argument}: give .*, not a value of type"):
        call()


def test_an_argument_of_a_replay_of_another_type_is_named() -> None:
    with pytest.raises(InputError, match="replay: what_if: input should be a valid tuple, got 5"):
        paracosm.replay("trace.json", what_if=5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^replay: steps: give numbers, or a text such as 5\.\.9"):
        paracosm.replay("trace.json", steps=0.5)  # type: ignore[arg-type]


def test_arguments_of_what_is_no_verb_are_refused() -> None:
    with pytest.raises(InputError, match='unknown verb "5"'):
        paracosm.arguments(5)  # type: ignore[arg-type]


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InputError, match=r'model: unknown model "\?"'):
        paracosm.train(model="\ud800")
    with pytest.raises(InputError, match=r'relax: unknown problem "\?"'):
        paracosm.relax(problem="\ud800", processors=2)


@pytest.mark.parametrize("model", ["\ud800", "a\0b", 5, None])
def test_a_model_to_profile_is_a_text(model: Any) -> None:
    with pytest.raises(InputError, match=r"give a text|surrogates not allowed|null byte"):
        paracosm.profile(model)


def test_a_message_is_one_line_whatever_a_name_has() -> None:
    with pytest.raises(InputError) as caught:
        paracosm.study("a\nb")
    assert "\n" not in str(caught.value)


def test_a_message_is_short_however_long_a_name_is() -> None:
    with pytest.raises(InputError) as caught:
        paracosm.study("x" * 10_000)
    assert len(str(caught.value)) < 1000


def test_a_result_is_not_saved_over_itself(
    training: Result[TrainingSummary], tmp_path: Path
) -> None:
    folder = training.save(tmp_path / "run")
    with pytest.raises(InputError, match="the result is in this folder"):
        paracosm.open(folder).save(folder, force=True)
    assert paracosm.open(folder).summary.updates == training.summary.updates
