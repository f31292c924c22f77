"""Backend mode under the user's own launch line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from rank_processes import SCRIPTS, environment, start

from paracosm import autoload
from paracosm.emulation.config import VARIABLE, Setting
from paracosm.emulation.rank.launched import launch_from
from paracosm.errors import InputError

DDP = str(SCRIPTS / "ddp.py")


def test_pytorch_finds_it() -> None:
    found = [point for point in entry_points(group="torch.backends") if point.name == "paracosm"]
    assert [each.load() for each in found] == [autoload.autoload]


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"PARACOSM_WORLD_SIZE": "4"},  # torchrun itself
        {"RANK": "0"},
        {"PARACOSM_WORLD_SIZE": "4", "RANK": "0", "PARACOSM_EMULATION": "{}"},  # a rank's child
    ],
)
def test_it_does_nothing_where_nobody_asked(told: Mapping[str, str]) -> None:
    program = (
        "import sys, os, __future__; before = set(sys.modules); "
        "from paracosm.autoload import autoload; autoload(); "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = start([sys.executable, "-c", program], **told)
    assert done.stdout.split() == ["paracosm", "paracosm.autoload"], done.stderr


def test_every_field_may_be_a_variable() -> None:
    asked = launch_from(
        {
            "PARACOSM_WORLD_SIZE": "64",
            "PARACOSM_RANK": "9",
            "PARACOSM_LATENCY": "20us",
            "PARACOSM_BANDWIDTH": "10Gbit/s",
            "PARACOSM_WHAT_IF": "all_reduce: +2 ms; worker 5: compute 1.5x slower;",
            "PARACOSM_LOCAL_WORLD_SIZE": "8",
            "PARACOSM_SEED": "7",
            "WORLD_SIZE": "1",
            "HOME": "/",
        },
        DDP,
    )
    assert asked.config.world == 64
    assert asked.config.latency == 20e-6
    assert asked.config.bandwidth == 1.25e9
    changes = ["all_reduce: +2 ms", "worker 5: compute 1.5x slower"]
    assert list(map(str, asked.config.what_if)) == changes
    assert (asked.seed, asked.out) == (7, None)
    told = Setting(asked.config, asked.seed, 9, Path("rank9.records")).environment()
    assert told.pop(VARIABLE)
    assert told == {
        "RANK": "9",
        "WORLD_SIZE": "64",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "8",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "8",
        "ROLE_RANK": "9",
        "ROLE_WORLD_SIZE": "64",
    }


def test_workers_are_another_word_for_the_world() -> None:
    assert launch_from({"PARACOSM_WORKERS": "64"}, DDP).config.world == 64


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"PARACOSM_BANDWITH": "1"}, 'did you mean "PARACOSM_BANDWIDTH"'),
        ({"PARACOSM_WORLD_SIZE": "many"}, "environment: world_size"),
        ({"PARACOSM_RANK": "64"}, "ranks 0 to 63, not 64"),
        ({"PARACOSM_MODE": "wire"}, "paracosm emulate serve"),
        ({"PARACOSM_PACE": "1"}, "pace: has no effect"),
        ({"PARACOSM_SEED": "-1"}, 'PARACOSM_SEED: a number, not "-1"'),
        ({"PARACOSM_OUT": str(SCRIPTS)}, "is there already"),
        ({"PARACOSM_WHAT_IF": "all_reduce"}, "what_if"),
        ({"WORLD_SIZE": "2"}, "torchrun --nproc-per-node=1"),
        ({"TORCHELASTIC_RESTART_COUNT": "2"}, "do not restart: use --max-restarts=0"),
    ],
)
def test_what_cannot_be_is_said(told: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as error:
        launch_from({"PARACOSM_WORLD_SIZE": "64"} | told, DDP)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_bad_variable_ends_a_rank_in_one_line() -> None:
    told = {"PARACOSM_WORLD_SIZE": "0", "RANK": "0"}
    program = "from paracosm.autoload import autoload; autoload(); print('went on')"
    done = start([sys.executable, "-c", program], **told)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("paracosm: environment: world_size")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_torchrun_with_a_world_of_64(tmp_path: Path) -> None:
    """The agent, the workers of the data loader and the script itself know nothing of it."""
    out = tmp_path / "run"
    command = ["-m", "torch.distributed.run", "--nproc-per-node=1", DDP, "--steps", "6"]
    more = ["--workers", "1", "--start-method", "spawn"]
    done = subprocess.run(
        [sys.executable, *command, *more],
        env=environment(PARACOSM_WORLD_SIZE="64", PARACOSM_LATENCY="1ms", PARACOSM_OUT=str(out)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("final loss")
    assert done.stderr.count("world size") == 1
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["world_size"], summary["iterations"]) == ("done", 64, 6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "exit_code"), [("import sys; sys.exit(3)", 3), ("raise ValueError", 1)]
)
def test_the_summary_knows_how_the_script_ended(
    tmp_path: Path, source: str, exit_code: int
) -> None:
    out = tmp_path / "run"
    told = {"PARACOSM_WORLD_SIZE": "4", "RANK": "0", "PARACOSM_OUT": str(out)}
    done = start([sys.executable, "-c", f"import torch; {source}"], **told)
    assert done.returncode == exit_code
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["status"], summary["exit_code"]) == ("failed", exit_code)
