"""Running a user's script: its processes, what is traced of them, what is said when they fail.

TensorFlow itself is not here. A package of its name takes its place, with sessions that hand out
step statistics of a step written by hand; processes, TF_CONFIG and tracing are the real ones.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.errors import InputError, MissingExtraError
from paracosm.profiling.jobs import load_job_profile
from paracosm.profiling.jobs.tensorflow import ScriptSettings, profile_script

Capture = pytest.CaptureFixture[str]

PACKAGE = """
from types import SimpleNamespace

__version__ = "0 (of a test)"


class RunOptions:
    FULL_TRACE = 3
    trace_level = 0
    output_partition_graphs = False

    def CopyFrom(self, other):
        self.__dict__.update(other.__dict__)


class RunMetadata:
    data = b""

    def __init__(self):
        self.step_stats = SimpleNamespace(dev_stats=[])

    def SerializeToString(self):
        return self.data

    CopyFrom = RunOptions.CopyFrom


compat = SimpleNamespace(v1=SimpleNamespace(RunOptions=RunOptions, RunMetadata=RunMetadata))
"""

SESSION = """
import time
from types import SimpleNamespace as Some

import traced_steps


class BaseSession:
    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        begin = time.time_ns() / 1000
        time.sleep(0.003)
        if fetches == "train" and options.trace_level == 3:
            received = [Some(node_name="RecvTensor")]
            run_metadata.step_stats.dev_stats = [
                Some(device=traced_steps.server(), node_stats=received),
                Some(device=traced_steps.WORKER, node_stats=received),
            ]
            after = begin - traced_steps.START
            run_metadata.data = traced_steps.run_metadata(traced_steps.plain_step(), after=after)
        return "result"
"""

TRAINING = """
import json, os, sys, time
from tensorflow.python.client import session

task = json.loads(os.environ["TF_CONFIG"])["task"]
print(task, sys.argv)
if task["type"] == "ps":
    time.sleep(60)
s = session.BaseSession()
assert s.run("init", options=None) == "result"
for step in range({steps}):
    assert s.run("train") == "result"
{then}
"""


COORDINATOR = """
import json, os, time
from tensorflow.python.distribute.parameter_server_strategy_v2 import ParameterServerStrategyV2

if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "ps":
    time.sleep(60)
ParameterServerStrategyV2("resolver")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for scripts, behind a package that is called tensorflow."""
    package = tmp_path / "packages" / "tensorflow"
    client, distribute = package / "python" / "client", package / "python" / "distribute"
    for each in (client, distribute):
        each.mkdir(parents=True)
        (each / "__init__.py").touch()
    (package / "python" / "__init__.py").touch()
    (package / "__init__.py").write_text(PACKAGE)
    (client / "session.py").write_text(SESSION)
    (distribute / "parameter_server_strategy_v2.py").write_text(
        "class ParameterServerStrategyV2:\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    for name in [name for name in sys.modules if name.partition(".")[0] == "tensorflow"]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def script(folder: Path, steps: int = 50, then: str = "") -> Path:
    path = folder / "train.py"
    path.write_text(TRAINING.replace("{steps}", str(steps)).replace("{then}", then))
    return path


def test_a_script_is_run_as_servers_and_a_worker_until_there_are_enough_steps(
    folder: Path,
) -> None:
    told: list[tuple[int, int]] = []
    path = script(folder, steps=1000)
    profile = profile_script(
        path,
        ["--lr", "1"],
        7,
        ScriptSettings(servers=2, warmup=2),
        lambda n, m: told.append((n, m)),
    )
    assert (profile.steps, profile.ops) == (7, 8)
    assert told == [(number, 7) for number in range(1, 8)]
    assert profile.provenance["framework"] == "TensorFlow 0 (of a test)"
    assert profile.provenance["ended"] == "enough"
    # Steps last from the call of run to its return, 3 ms and more, and follow each other.
    lengths = profile.step_end - profile.step_begin
    assert (lengths >= 3e-3).all()
    assert (profile.step_begin[1:] >= profile.step_end[:-1]).all()


def test_every_process_is_told_its_task_in_its_arguments_as_well(folder: Path) -> None:
    path = script(folder, then="""
with open(os.path.join(os.path.dirname(sys.argv[0]), "told.json"), "w") as file:
    json.dump([sys.argv[1:], json.loads(os.environ["TF_CONFIG"])], file)
""")  # fmt: skip
    profile = profile_script(path, ["{job}-{task}", "--ps={servers}", "-w", "{workers}", "{}"], 99)
    assert profile.steps == 45
    assert profile.provenance["ended"] == "by itself"
    arguments, config = json.loads((folder / "told.json").read_text())
    (server,), (worker,) = config["cluster"]["ps"], config["cluster"]["worker"]
    assert arguments == ["worker-0", f"--ps={server}", "-w", worker, "{}"]
    assert config["task"] == {"type": "worker", "index": 0}


def test_an_interrupt_keeps_the_steps_that_there_are(folder: Path, capsys: Capture) -> None:
    path = script(folder, steps=5, then="time.sleep(1); os.kill(os.getppid(), 2); time.sleep(60)")
    out = folder / "job.profile"
    flags = ["--framework", "tensorflow", "--warmup", "0", "--out", str(out)]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert main(["profile", "job", str(path), *flags]) == 130
    assert load_job_profile(out).steps == 5
    assert "Interrupted: these are the steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import sys; sys.exit('no data')", "ended with exit code 1: no data"),
        ("print('eager')", "it ended without a training step: no tf.compat.v1.Session"),
        pytest.param(
            *("raise RuntimeError('my own')", "ended with exit code 1: RuntimeError: my own"),
            marks=pytest.mark.slow,
        ),
        (COORDINATOR, "train.py: ParameterServerStrategy runs no sessions"),
    ],
)
def test_a_script_that_trains_nothing_is_refused(text: str, why: str, folder: Path) -> None:
    path = folder / "train.py"
    path.write_text(text)
    with pytest.raises(InputError, match=why):
        profile_script(path, [], 3)


def test_a_script_that_hangs_is_given_up(folder: Path) -> None:
    path = folder / "train.py"
    path.write_text("import time; time.sleep(60)")
    with pytest.raises(InputError, match=r"worker 0 did not answer within 1 s \(a training step"):
        profile_script(path, [], 3, ScriptSettings(timeout=1.0))


def test_without_tensorflow_its_extra_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.touch()
    with pytest.raises(MissingExtraError, match=r'pip install "paracosm\[tensorflow\]"'):
        profile_script(path, [])
    with pytest.raises(InputError, match=r"gone\.py: no such file"):
        profile_script(tmp_path / "gone.py", [])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"servers": 0}, "servers: 0"),
        ({"warmup": -1}, "warmup: -1"),
        ({"timeout": 0}, "timeout: 0"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, int], why: str) -> None:
    with pytest.raises(InputError, match=why):
        ScriptSettings(**settings)
