"""Calls on the workers of a cluster: where they run, what travels, what is lost and made again."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Timer

import joblib
import pytest
import yaml

from paracosm import backends
from paracosm.backends import HERE, Backend, on_all_cores
from paracosm.cli import main
from paracosm.errors import InputError
from paracosm.parcels import Parcel, parcel_of
from paracosm.studies import RunFolder, Study, run_sweep

Capture = pytest.CaptureFixture[str]

OWN = """
import os
import time

from beside import SECONDS
from paracosm.errors import InputError
from paracosm.training import Algorithm

class Own(Algorithm):
    async def serve(self, server):
        with open("{pids}", "a") as file:
            file.write(f"{{os.getpid()}}\\n")
        if SECONDS is None:
            raise InputError("no such luck")
        time.sleep(SECONDS)
        while True:
            push = await server.receive()
            await server.apply([push])
            server.answer(push.worker)
"""
MODEL = """
import torch

class Flat(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x.flatten(1))

def model():
    return Flat(64, 10)
"""


def pid_after(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def interrupt(_: int) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)


def test_calls_run_on_workers_and_answers_come_in_order_where_asked(dask: Backend) -> None:
    pids = list(dask.each(pid_after, [(0.05,)] * 8))
    assert len(pids) == 8
    assert len(set(pids)) == 2
    assert os.getpid() not in pids
    calls = [(number, 3) for number in range(20)]
    assert list(dask.each(divmod, calls, in_order=True)) == [divmod(*call) for call in calls]


def write_own(folder: Path, seconds: float | None = 0) -> str:
    """Write an algorithm of the user's own, and return the text of a study of four runs with it."""
    (folder / "own.py").write_text(OWN.format(pids=folder / "pids"))
    (folder / "beside.py").write_text(f"SECONDS = {seconds}\n")
    return (
        "train: {algorithm: 'own.py:Own', timing_only: true, updates: 20, workers: 2,"
        " message_size: 1MB, compute: 'lognormal(20ms, 0.3)'}\n"
        "over: {bandwidth: [1Gbit/s, 10Gbit/s], seed: [0, 1]}"
    )


def study_of(text: str) -> Study:
    return Study.model_validate(yaml.safe_load(text))


def measured(folder: Path) -> list[object]:
    rows = RunFolder.open(folder).metrics().drop_columns(["wall_time"]).to_pylist()
    return [tuple(row.values()) for row in rows]


def test_a_sweep_on_workers_leaves_what_a_sweep_here_leaves(
    dask: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers have neither the user's files nor the folder; each point runs on one of them."""
    monkeypatch.chdir(tmp_path)
    study = study_of(write_own(tmp_path))
    points = study.points("test")
    here = run_sweep(study, points, tmp_path / "here")
    assert set((tmp_path / "pids").read_text().split()) == {str(os.getpid())}
    (tmp_path / "pids").unlink()
    there = run_sweep(study, points, Path("there"), dask)
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) >= 4
    assert str(os.getpid()) not in pids
    assert [row.point for row in there] == [row.point for row in here]
    for point in points:
        ours, theirs = tmp_path / "here" / point.name, tmp_path / "there" / point.name
        assert measured(ours) == measured(theirs)
        assert RunFolder.open(ours).study == RunFolder.open(theirs).study
        assert {each.name for each in ours.iterdir()} == {each.name for each in theirs.iterdir()}
    (tmp_path / "pids").unlink()
    run_sweep(study, points, tmp_path / "there", dask)  # nothing is left to run
    assert not (tmp_path / "pids").exists()


@pytest.mark.slow
def test_an_algorithm_of_the_user_s_own_travels_to_processes_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = study_of(write_own(tmp_path))
    rows = run_sweep(study, study.points("test"), Path("out"), Backend(jobs=2))
    assert {row.summary.status for row in rows} == {"done"}
    assert str(os.getpid()) not in Path("pids").read_text().split()


@pytest.mark.slow
def test_gradients_of_a_user_s_own_model_are_the_same_on_workers(
    dask: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(MODEL)
    study = study_of("train: {model: 'own.py:model', updates: 9, workers: 4}\nover: {seed: [0, 1]}")
    points = study.points("test")
    for name, backend in (("here", HERE), ("there", dask)):
        run_sweep(study, points, Path(name), backend)
    for point in points:
        assert measured(Path("here", point.name)) == measured(Path("there", point.name))


def test_another_version_on_a_worker_is_refused_in_one_line(
    dask: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = {**backends.versions(), "numpy": "1.0"}
    monkeypatch.setattr(backends, "versions", lambda: here)
    with pytest.raises(InputError, match=r"a worker on .* has numpy .*, and this machine 1\.0"):
        list(dask.each(divmod, [(1, 2)]))


def test_an_error_of_a_point_on_a_worker_names_it(
    dask: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = study_of(write_own(tmp_path, seconds=None))
    with pytest.raises(InputError, match=r"^bandwidth=1.*,seed=0: no such luck"):
        run_sweep(study, study.points("test")[:1], Path("out"), dask)


def die_once(file: str) -> int:
    """End as by a killer the first time, and say who is there the second."""
    if not os.path.exists(file):
        Path(file).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def die(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_run_whose_process_is_killed_is_made_again(tmp_path: Path) -> None:
    calls = [(str(tmp_path / name),) for name in ("a", "b")]
    assert len(list(Backend(jobs=2).each(die_once, calls))) == 2
    with pytest.raises(ChildProcessError, match="3 processes were killed one after the other"):
        list(Backend(jobs=2).each(die, [(1,), (2,)]))


def survivor(number: int) -> int:
    if number in (2, 5):
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def lost(number: int) -> int:
    return -number


@pytest.mark.slow
def test_calls_that_lose_every_process_are_answered_here_and_the_others_made() -> None:
    answers = Backend(jobs=2).each(survivor, zip(range(8)), in_order=True, lost=lost)
    assert list(answers) == [0, 1, -2, 3, 4, -5, 6, 7]


@pytest.mark.slow
def test_a_call_that_loses_every_worker_is_answered_here_and_the_others_made(
    dask: Backend,
) -> None:
    answers = dask.each(survivor, zip(range(4)), in_order=True, lost=lost)
    assert list(answers) == [0, 1, -2, 3]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("verb", ["train", "tune"])
def test_the_first_signal_ends_a_sweep_on_processes(
    verb: str, number: signal.Signals, tmp_path: Path
) -> None:
    study = "train: {workers: 2, updates: 2000, compute: 1s}\n"
    (tmp_path / "study.yaml").write_text(
        study
        + ("over: {seed: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}\n" if verb == "train" else "")
    )
    flags = ["--tune", "lr=0.01..1 log"] if verb == "tune" else []
    program = "import sys; from paracosm.cli import main; sys.exit(main(sys.argv[1:]))"
    with subprocess.Popen(
        [sys.executable, "-c", program, verb, "study.yaml", *flags, "--out", "out", "--jobs", "2"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while len(list((tmp_path / "out").glob("*/summary.json"))) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        if number is signal.SIGINT:  # as a terminal sends it, to all processes
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert said.startswith("paracosm: interrupted")
    assert said.count("\n") == 1


def cores_within(most: int) -> int:
    return on_all_cores(most).jobs


def test_calls_have_no_cores_for_calls_of_their_own() -> None:
    assert list(Backend(jobs=2).each(cores_within, [(8,)] * 2)) == [1, 1]
    assert cores_within(8) == min(joblib.cpu_count(), 8)
    assert cores_within(1) == 1


def test_an_interrupt_reaches_only_the_processes_that_work() -> None:
    pids = set(Backend(jobs=2).each(pid_after, [(0.05,)] * 8))
    assert len(pids) == 2
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    assert set(Backend(jobs=2).each(pid_after, [(0.05,)] * 8)) == pids
    with pytest.raises(KeyboardInterrupt):
        list(Backend(jobs=2).each(interrupt, [(1,), (2,)]))


@pytest.mark.slow
def test_a_run_whose_worker_is_killed_is_made_again(dask: Backend, tmp_path: Path) -> None:
    calls = [(str(tmp_path / name),) for name in ("a", "b")]
    assert len(list(dask.each(die_once, calls))) == 2
    with pytest.raises(ChildProcessError, match="workers were lost one after the other"):
        list(dask.each(die, [(1,)]))


@pytest.mark.slow
def test_a_worker_here_that_is_slow_to_come_back_is_waited_for(tmp_path: Path) -> None:
    dask = pytest.importorskip("dask")
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"}), ExitStack() as ends:
        client = backends._dask_client(None, 1)
        ends.callback(client.close)
        ends.callback(client.cluster.close)
        assert len(list(Backend("dask", jobs=1).each(die_once, [(str(tmp_path / "a"),)]))) == 1


def is_open(port: int) -> bool:
    with socket.socket() as there:
        return there.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def cluster(
    port: int, workers: int = 2, protocol: str = "tcp"
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Yield the processes of a scheduler and its workers, as an administrator starts them."""
    with ExitStack() as processes:

        def start(what: str, *arguments: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments]
            process = subprocess.Popen([*command, "--no-dashboard"], stderr=subprocess.DEVNULL)
            processes.callback(process.wait)
            processes.callback(process.kill)
            return process

        scheduler = start("scheduler", "--port", str(port), "--host", "127.0.0.1")
        address = f"{protocol}://127.0.0.1:{port}"
        while not is_open(port):
            assert scheduler.poll() is None
            time.sleep(0.1)
        worker = ("worker", address, "--nthreads", "1", "--no-nanny")
        yield [scheduler, *(start(*worker) for _ in range(workers))]


@pytest.mark.slow
def test_a_cluster_with_certificates_as_the_guide_makes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    guide = (Path(__file__).parents[2] / "docs" / "beyond-one-machine.md").read_text()
    section = guide[guide.index("## Who can reach") : guide.index("## Slurm")]
    commands, _ = re.findall(r"```\n(.*?)```", section, re.DOTALL)
    (configuration,) = re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
    home = {**os.environ, "HOME": str(tmp_path)}
    subprocess.run(["sh", "-ec", commands], check=True, env=home, capture_output=True)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tls.yaml").write_text(configuration.replace("/home/you", str(tmp_path)))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    study = tmp_path / "study.yaml"
    study.write_text("train: {workers: 2, timing_only: true, updates: 9}\nover: {seed: [0, 1]}\n")
    where = ["--backend", "dask", "--scheduler", f"tls://127.0.0.1:{port}"]
    command = [sys.executable, "-m", "paracosm", "train", str(study), *where, "--out"]
    with monkeypatch.context() as known:
        known.setenv("DASK_CONFIG", str(tmp_path / "conf"))
        with cluster(port, protocol="tls"):
            ran = subprocess.run([*command, str(tmp_path / "out")], capture_output=True)
            known.delenv("DASK_CONFIG")
            begin = time.monotonic()
            refused = subprocess.run([*command, str(tmp_path / "no")], capture_output=True)
    assert ran.returncode == 0, ran.stderr
    assert len([*(tmp_path / "out").glob("*/summary.json")]) == 2
    assert refused.returncode == 2
    assert b"no certificates for TLS: name them in Dask's configuration" in refused.stderr
    assert time.monotonic() - begin < 60


def test_a_local_dask_cluster_keeps_its_files_in_a_folder_of_the_users_own(dask: Backend) -> None:
    list(dask.each(divmod, [(1, 2)]))
    client = backends._dask_client(None, 2)
    own = Path(tempfile.gettempdir()) / f"paracosm-{os.geteuid()}"
    folders = client.run(lambda dask_worker: dask_worker.local_directory)
    folders["scheduler"] = client.run_on_scheduler(
        lambda dask_scheduler: dask_scheduler.local_directory
    )
    assert len(folders) == 3
    assert all(own in Path(folder).parents for folder in folders.values()), folders


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["command", "scheduler"])
def test_a_sweep_goes_on_after_the_command_or_the_scheduler_was_killed(
    killed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    Path("study.yaml").write_text(write_own(tmp_path, seconds=2))
    where = ["--backend", "dask", "--scheduler", f"tcp://127.0.0.1:{port}"]
    command = ["train", "study.yaml", "--out", "out", *where]
    program = "import sys; from paracosm.cli import main; sys.exit(main(sys.argv[1:]))"
    with cluster(port) as (scheduler, *_):
        with subprocess.Popen(
            [sys.executable, "-c", program, *command], stderr=subprocess.PIPE, text=True
        ) as process:
            while len(list(Path("out").glob("*/summary.json"))) < 1:
                assert process.poll() is None
                time.sleep(0.05)
            (process if killed == "command" else scheduler).kill()
            _, said = process.communicate(timeout=300)
        if killed == "scheduler":
            assert process.returncode == 1
            assert "paracosm: the Dask scheduler is lost; what has ended is kept" in said
    kept = {path: path.stat().st_mtime_ns for path in Path("out").glob("*/summary.json")}
    assert 1 <= len(kept) < 4
    Path("pids").unlink()
    with cluster(port):
        assert main(command) == 0
    assert len(Path("pids").read_text().split()) >= 4 - len(kept)
    assert len(list(Path("out").glob("*/summary.json"))) == 4
    assert kept == {path: path.stat().st_mtime_ns for path in kept}


def test_files_named_by_arguments_travel_by_their_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    (folder / "package").mkdir(parents=True)
    for name in ("own.py", "beside.py", "package/part.py", "times.json", "a, b.mtx", "other.txt"):
        (folder / name).write_text(name)
    (tmp_path / "outside.json").write_text("{}")
    monkeypatch.chdir(folder)
    asked = {"model": "own.py:model", "time": ["replay(times.json)"], "matrix": "a, b.mtx"}
    assert set(parcel_of(asked).files) == {"own.py", "beside.py", "times.json", "a, b.mtx"}
    assert set(parcel_of("package.part:f").files) == {"package/part.py", "own.py", "beside.py"}
    assert parcel_of({"n": 3, "matrix": str(folder / "other.txt")}) == Parcel()
    with pytest.raises(InputError, match="outside of the current folder"):
        parcel_of("../outside.json")


def test_a_parcel_is_opened_in_a_folder_of_its_own_and_newer_modules_are_imported() -> None:
    before = Path.cwd()
    for text in ("first", "second"):
        with Parcel({"travels.py": f"TEXT = {text!r}".encode()}).opened():
            assert Path.cwd() != before
            assert text == __import__("travels").TEXT
    assert Path.cwd() == before


def test_a_cluster_whose_workers_are_being_replaced_is_waited_for() -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        cloud = Backend("dask", scheduler=cluster.scheduler_address)
        assert list(cloud.each(abs, [(-1,)])) == [1]
        cluster.scale(0)
        while backends._dask_client(cloud.scheduler, 1).nthreads():
            time.sleep(0.01)
        replaced = Timer(1.0, cluster.scale, [1])
        replaced.start()
        assert sorted(cloud.each(abs, [(-1,), (-2,)])) == [1, 2]
        replaced.join()
        backends._dask_client(cloud.scheduler, 1).close()


def test_workers_compute_the_gradients_of_one_run_with_the_users_own_model(
    dask: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(MODEL)
    flags = ["--model", "own.py:model", "--workers", "3", "--updates", "9", "--quiet"]
    assert main(["train", *flags, "--out", "here"]) == 0
    assert main(["train", *flags, "--out", "there", "--backend", "dask", "--jobs", "2"]) == 0
    here, there = (RunFolder.open(Path(name)).results for name in ("here", "there"))
    assert there.lookahead == "on the workers of dask"
    assert there.final_loss == pytest.approx(here.final_loss, rel=1e-6)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--backend", "slurm"], '--backend: choose from loky, dask, not "slurm"'),
        (["--scheduler", "tcp://a:1"], "--scheduler is of --backend dask"),
        (
            ["--backend", "dask", "--scheduler", "tcp://a:1", "--jobs", "2"],
            "--jobs: the cluster of --scheduler has its workers: leave it out",
        ),
        (["--backend", "dask"], "--backend: no gradients are computed in this run: leave it out"),
    ],
)
def test_a_backend_that_cannot_be_or_has_no_effect_is_refused(
    flags: list[str], message: str, capsys: Capture
) -> None:
    assert main(["train", "--timing-only", *flags]) == 2
    assert message in capsys.readouterr().err


def test_dask_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r'distributed: pip install "paracosm\[dask\]"'):
        list(Backend("dask").each(divmod, [(1, 2)]))
