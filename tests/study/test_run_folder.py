"""The run folder: what is written can be read, also after a kill; nothing of others is lost."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from paracosm.errors import InputError
from paracosm.studies.metrics_file import read_metrics, schema
from paracosm.studies.run import claimed
from paracosm.studies.run_folder import JOURNAL, RunFolder
from paracosm.timeline import Timeline

STUDY = {"seed": 7, "train": {"algorithm": "asgd", "workers": 4}}


def add_rows(run: RunFolder, count: int) -> None:
    for i in range(count):
        run.metric(0.5 * i, 0.25 * i, f"worker{i % 3}", "staleness", i % 5, i)


def end_with(error: BaseException, path: Path, rows: int) -> None:
    with RunFolder.create(path, STUDY) as run:
        add_rows(run, rows)
        raise error


def test_what_is_written_is_read(tmp_path: Path) -> None:
    timeline = Timeline()
    timeline.span("worker0", "compute", "gradient", 0.0, 0.5)
    with RunFolder.create(tmp_path / "deep" / "run", STUDY) as run:
        add_rows(run, 10)
        run.metric(5.0, 2.5, "evaluation", "loss", math.nan, 9)
        run.finish({"final_loss": 0.25, "updates": 10}, timeline)

    read = RunFolder.open(tmp_path / "deep" / "run")
    assert read.study == STUDY
    assert read.kind == "train"
    assert read.environment["seed"] == 7
    assert read.summary == {"final_loss": 0.25, "updates": 10, "status": "done"}
    assert read.status == "done"
    staleness = read.series("staleness")
    assert staleness.virtual_time.tolist() == [0.5 * i for i in range(10)]
    assert staleness.wall_time.tolist() == [0.25 * i for i in range(10)]
    assert staleness.node.tolist() == [f"worker{i % 3}" for i in range(10)]
    assert staleness.value.tolist() == [i % 5 for i in range(10)]
    assert staleness.step.tolist() == list(range(10))
    assert math.isnan(read.series("loss").value[0])
    assert len(read.series("no such metric")) == 0
    read_timeline = read.timeline()
    assert read_timeline is not None
    assert list(read_timeline.spans) == list(timeline.spans)


def test_a_finished_folder_holds_the_files_of_the_design_and_no_others(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", STUDY)
    run.finish({}, Timeline())
    assert sorted(file.name for file in run.path.iterdir()) == [
        "environment.json",
        "metrics.parquet",
        "study.yaml",
        "summary.json",
        "timeline.parquet",
    ]
    schema = pq.read_schema(run.path / "metrics.parquet")
    assert schema.names == ["virtual_time", "wall_time", "node", "name", "value", "step"]


def test_rows_keep_their_order_over_many_batches_and_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paracosm.studies.metrics_file.ROW_GROUP", 5000)
    run = RunFolder.create(tmp_path / "run", STUDY)
    add_rows(run, 30_000)
    run.finish({})
    series = RunFolder.open(run.path).series("staleness")
    assert series.step.tolist() == list(range(30_000))
    assert series.node.tolist() == [f"worker{i % 3}" for i in range(30_000)]


def test_a_full_batch_is_on_disk_while_the_run_goes_on(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", STUDY)
    assert len(RunFolder.open(run.path).metrics()) == 0
    add_rows(run, 4097)
    assert len(RunFolder.open(run.path).metrics()) >= 4096
    run.flush()
    assert len(RunFolder.open(run.path).metrics()) == 4097
    assert RunFolder.open(run.path).summary is None
    assert RunFolder.open(run.path).status == "unfinished"


def test_a_row_goes_out_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("paracosm.studies.metrics_file.monotonic", lambda: clock[0])
    run = RunFolder.create(tmp_path / "run", STUDY)
    add_rows(run, 1)
    clock[0] = 100.9
    add_rows(run, 1)
    assert len(RunFolder.open(run.path).metrics()) == 0
    clock[0] = 101.0
    add_rows(run, 1)
    assert len(RunFolder.open(run.path).metrics()) == 3


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_metrics_cut_off_at_any_byte_are_read_to_the_last_complete_batch(
    every: int, tmp_path: Path
) -> None:
    run = RunFolder.create(tmp_path / "run", STUDY)
    stream = run.path / "metrics.arrows"
    complete = {stream.stat().st_size: 0}  # size of the file -> rows in it
    for batch in range(1, 4):
        add_rows(run, 5)
        run.flush()
        complete[stream.stat().st_size] = 5 * batch
    run.close()
    content = stream.read_bytes()
    ends = {size for end in complete for size in (max(end - 1, 0), end)}
    for size in sorted({*range(0, len(content), every), *ends}):
        stream.write_bytes(content[:size])
        expected = max((rows for end, rows in complete.items() if end <= size), default=0)
        assert len(RunFolder.open(run.path).metrics()) == expected, size


def test_a_killed_process_leaves_a_readable_run(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from paracosm.studies.run_folder import RunFolder\n"
        "run = RunFolder.create(sys.argv[1], {'train': {}})\n"
        "for i in range(10_000):\n"
        "    run.metric(i, i, 'worker0', 'staleness', 0, i)\n"
        "print('written', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    run = RunFolder.open(tmp_path / "run")
    assert run.status == "unfinished"
    steps = run.series("staleness").step
    assert len(steps) >= 8192
    assert steps.tolist() == list(range(len(steps)))


def test_an_exception_keeps_the_metrics_and_leaves_the_run_unfinished(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        end_with(KeyboardInterrupt(), tmp_path / "run", rows=3)
    assert len(RunFolder.open(tmp_path / "run").metrics()) == 3
    assert RunFolder.open(tmp_path / "run").status == "unfinished"


def test_a_run_that_cannot_start_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        end_with(InputError("no such data"), tmp_path / "run", rows=0)
    assert not (tmp_path / "run").exists()


def test_input_found_wrong_in_the_middle_of_a_run_keeps_its_metrics(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        end_with(InputError("a damaged batch"), tmp_path / "run", rows=3)
    assert len(RunFolder.open(tmp_path / "run").metrics()) == 3


def test_a_kill_between_the_last_two_steps_of_finishing_loses_nothing(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", STUDY)
    add_rows(run, 3)
    stream = run.path / "metrics.arrows"
    run.flush()
    saved = stream.read_bytes()
    run.finish({})
    stream.write_bytes(saved)
    assert len(RunFolder.open(run.path).metrics()) == 3


def test_the_status_is_the_summarys_or_done(tmp_path: Path) -> None:
    def status(name: str, summary: dict[str, str]) -> str:
        run = RunFolder.create(tmp_path / name, STUDY)
        assert run.status == "unfinished"
        run.finish(summary)
        return run.status

    assert status("a", {"status": "diverged"}) == "diverged"
    assert status("b", {}) == "done"


def test_an_existing_folder_needs_force_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    old = RunFolder.create(tmp_path / "run", STUDY)
    add_rows(old, 3)
    old.finish({"final_loss": 1.0}, Timeline())
    (old.path / "report.html").write_text("old")
    (old.path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"run: the folder exists and is not empty.*--force"):
        RunFolder.create(old.path, STUDY)
    assert RunFolder.open(old.path).summary == {"final_loss": 1.0, "status": "done"}

    new = RunFolder.create(old.path, {"train": {}}, force=True)
    assert (new.path / "notes.txt").read_text() == "mine"
    assert sorted(file.name for file in new.path.iterdir()) == [
        ".lock",
        "environment.json",
        "metrics.arrows",
        "notes.txt",
        "study.yaml",
    ]
    assert len(RunFolder.open(new.path).metrics()) == 0
    new.discard()
    assert [file.name for file in new.path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("ending", [None, "interrupted", "diverged"])
def test_a_run_that_stopped_early_is_made_again_without_force(
    tmp_path: Path, ending: str | None
) -> None:
    path = tmp_path / "run"
    with RunFolder.create(path, STUDY) as run:
        add_rows(run, 10)
        if ending is not None:
            run.finish({"status": ending})
    (path / "mine").touch()
    other = {**STUDY, "seed": 8}
    with pytest.raises(InputError, match="give --force"):
        RunFolder.create(path, other)
    if ending == "diverged":
        with pytest.raises(InputError, match="give --force"):
            RunFolder.create(path, STUDY)
        return
    with RunFolder.create(path, STUDY) as run:
        run.finish({})
    assert len(RunFolder.open(path).metrics()) == 0
    assert (path / "mine").exists()


def test_a_run_that_was_killed_before_it_began_is_in_nobodys_way(tmp_path: Path) -> None:
    for name in ("environment.json", "metrics.arrows", ".study.yaml.123", ".lock"):
        (tmp_path / name).write_text("{}")
    RunFolder.create(tmp_path, STUDY).discard()
    assert not tmp_path.exists()


def killed_at(step: int, path: Path, function: Callable[[Path], None]) -> bool:
    """Call a function in a child that ends before a step on files in a folder; whether it did."""
    child = os.fork()
    if not child:
        steps = itertools.count(1)

        def watch(event: str, arguments: tuple[object, ...]) -> None:
            is_step = event.startswith(("open", "os."))
            is_here = any(str(argument).startswith(str(path)) for argument in arguments)
            if is_step and is_here and next(steps) == step:
                os._exit(9)

        code = 1
        try:
            sys.addaudithook(watch)
            function(path)
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def run_to_an_interrupt(path: Path, resume: bool) -> None:
    with RunFolder.create(path, STUDY, resume=resume) as run:
        add_rows(run, 1)
        (path / JOURNAL).write_text("{}\n")
        run.add_file("recording.json", lambda file: None)
        run.finish({"status": "interrupted"})


def run_that_cannot_start(path: Path, resume: bool) -> None:
    with suppress(InputError), RunFolder.create(path, STUDY, resume=resume):
        raise InputError("no such network")


@pytest.mark.parametrize(
    ("run", "resume", "is_second", "every"),
    [
        (run_to_an_interrupt, False, False, 4),
        *(
            pytest.param(*case, 1, marks=pytest.mark.slow)
            for case in itertools.product(
                (run_to_an_interrupt, run_that_cannot_start), (False, True), (False, True)
            )
        ),
    ],
)
def test_at_whatever_step_a_run_is_killed_it_can_be_made_again(
    run: Callable[..., None], resume: bool, is_second: bool, every: int, tmp_path: Path
) -> None:
    for step in itertools.count(1, every):
        path = tmp_path / f"at{step}-"
        if is_second:
            run_to_an_interrupt(path, False)
            (path / "report.html").touch()
        was_killed = killed_at(step, path, partial(run, resume=resume))
        RunFolder.create(path, STUDY, resume=resume).discard()
        if not was_killed:
            break
    assert step > 10


@pytest.mark.parametrize(
    "error",
    [None, pytest.param(InputError("none of 2 points can run"), marks=pytest.mark.slow)],
)
def test_at_whatever_step_a_sweep_is_killed_it_can_be_given_again(
    error: InputError | None, tmp_path: Path
) -> None:
    wanted = {"train": {}, "over": {"seed": [0, 1]}}

    def sweep(path: Path) -> None:
        with suppress(InputError), claimed(path, wanted):
            (path / "sweep.json").write_text("[]")
            if error is not None:
                raise error

    for step in itertools.count(1):
        path = tmp_path / f"at{step}-"
        was_killed = killed_at(step, path, sweep)
        with claimed(path, wanted):
            pass
        with pytest.raises(InputError, match="something other"), claimed(path, {}):
            pass
        if not was_killed:
            break
    assert step > 5


def test_ctrl_c_while_a_run_folder_is_made_leaves_it_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(seed: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("paracosm.studies.run_folder.describe_environment", interrupted)
        with pytest.raises(KeyboardInterrupt) as held:  # with its frames, as a notebook holds it
            RunFolder.create(tmp_path / "run", STUDY)
    RunFolder.create(tmp_path / "run", STUDY).discard()
    assert held.traceback


def test_force_leaves_nothing_of_the_run_before(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path, STUDY) as run:
        run.finish({})
    (tmp_path / "schedule.parquet").touch()
    with RunFolder.create(tmp_path, STUDY, force=True) as run:
        run.finish({})
    assert not (tmp_path / "schedule.parquet").exists()


def test_an_existing_empty_folder_is_used(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path, STUDY).path == tmp_path


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match="cannot write a run folder here: File exists"):
        RunFolder.create(tmp_path / "run", STUDY)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: shutil.rmtree(f), "no such folder"),
        (
            lambda f: (f / "study.yaml").unlink(),
            "not a run folder, .*: it has no study.yaml",
        ),
        (lambda f: (f / "study.yaml").write_text("a: [1"), r"study\.yaml: cannot be read"),
        (lambda f: (f / "study.yaml").write_bytes(b"\xff\xfe\xfa"), r"study\.yaml: cannot be read"),
        (lambda f: (f / "environment.json").unlink(), r"environment\.json: no such file"),
        (lambda f: (f / "summary.json").write_text('{"a": '), r"summary\.json: cannot be read"),
        (lambda f: (f / "summary.json").write_text("[]"), "it holds no mapping"),
        (lambda f: (f / "metrics.parquet").unlink(), r"metrics\.parquet is missing"),
        (
            lambda f: os.truncate(f / "metrics.parquet", 99),
            r"metrics\.parquet: the file of metrics is cut off",
        ),
    ],
)
def test_a_damaged_folder_is_refused_in_one_line(tmp_path: Path, damage, message: str) -> None:
    run = RunFolder.create(tmp_path / "run", STUDY)
    add_rows(run, 3)
    run.finish({})
    damage(run.path)
    with pytest.raises(InputError, match=message) as caught:
        RunFolder.open(run.path).metrics()
    assert "\n" not in str(caught.value)


def test_the_folder_of_a_sweep_is_no_run(tmp_path: Path) -> None:
    for name in ("study.yaml", "sweep.json"):
        (tmp_path / name).write_text("[]")
    with pytest.raises(InputError, match=r": the folder of a sweep: give that of one of its runs"):
        RunFolder.open(tmp_path)


def test_a_run_that_is_read_cannot_be_written(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", STUDY).close()
    run = RunFolder.open(tmp_path / "run")
    with pytest.raises(RuntimeError, match="open for reading only"):
        add_rows(run, 1)
    with pytest.raises(RuntimeError, match="open for reading only"):
        run.finish({})


def test_numbers_of_numpy_and_torch_are_written_as_numbers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason='pip install "paracosm[torch]"')
    run = RunFolder.create(tmp_path / "run", {"train": {"lr": np.float32(0.5), "out": Path("x")}})
    run.metric(np.float32(0.5), 1, "worker0", "loss", torch.tensor(0.25), np.int32(3))
    run.metric(1, 1, "worker0", "loss", 2, 4)
    run.finish({"loss": torch.tensor(0.25), "bad": np.float64("inf"), "shape": (1, np.int64(2))})
    read = RunFolder.open(run.path)
    assert read.study == {"train": {"lr": 0.5, "out": "x"}}
    assert read.summary == {"loss": 0.25, "bad": None, "shape": [1, 2], "status": "done"}
    assert read.series("loss").value.tolist() == [0.25, 2.0]
    # What --json prints is JSON to every parser, which NaN and Infinity are not.
    json.loads((read.path / "summary.json").read_text(), parse_constant=pytest.fail)


def test_the_environment_says_nothing_private(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", STUDY)
    environment = json.loads((run.path / "environment.json").read_text())
    versions = environment["versions"]
    assert versions["numpy"] == np.__version__
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert environment["cores"] >= 1
    text = json.dumps(environment)
    assert os.uname().nodename not in text
    assert str(Path.home()) not in text
    assert str(tmp_path) not in text


def test_the_study_is_yaml_in_the_order_given(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", {"train": {"b": 1, "a": None}, "seed": 0})
    assert (run.path / "study.yaml").read_text() == "train:\n  b: 1\n  a: null\nseed: 0\n"
    assert yaml.safe_load((run.path / "study.yaml").read_text())["seed"] == 0
    assert RunFolder.open(run.path).environment["seed"] == 0


def test_a_summary_that_is_not_what_was_written_is_refused(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {"train": {}}) as run:
        run.finish({"kind": "training", "updates": 3.5})
    file = tmp_path / "run" / "summary.json"
    assert RunFolder.open(tmp_path / "run").summary == {
        "kind": "training", "updates": 3.5, "status": "done"
    }  # fmt: skip
    written = file.read_text()
    for damaged in (written.replace("3.5", "3.6"), written.replace("digest", "digits")):
        file.write_text(damaged)
        with pytest.raises(InputError, match="damaged: it is not what was written"):
            _ = RunFolder.open(tmp_path / "run").summary


@pytest.mark.parametrize("kind", ["relaxation", "nothing", ["training"], {"a": 1}])
def test_a_summary_of_another_kind_of_run_is_refused(kind: object, tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", {"seed": 0, "train": {}}) as run:
        run.finish({"kind": kind})
    with pytest.raises(InputError, match="not the kind of summary of train"):
        _ = RunFolder.open(tmp_path / "run").results


def test_metrics_with_an_empty_field_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.parquet"
    row = {"virtual_time": 0.0, "wall_time": 0.0, "node": "a", "name": "b", "value": 1.0}
    pq.write_table(pa.Table.from_pylist([row | {"step": None}], schema()), path)
    with pytest.raises(InputError, match='damaged metrics: "step" has empty fields'):
        read_metrics(path)
