from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paracosm.emulation.check import check_emulation
from paracosm.emulation.config import VARIABLE, EmulateConfig, Setting
from paracosm.errors import InputError
from paracosm.validation import validated


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("print('hello')\n")
    return path


def config(script: Path, **given: Any) -> EmulateConfig:
    found = validated(EmulateConfig, {"script": str(script), **given}, "here")
    check_emulation(found)
    return found


def test_a_cluster_is_made_once_for_each_configuration(script: Path) -> None:
    eight = config(script, world_size=8, bandwidth="10Gbit/s")
    four = eight.model_copy(update={"world_size": 4})
    assert eight.resolve_cluster() is eight.resolve_cluster()
    assert [len(each.resolve_cluster().workers) for each in (eight, four)] == [8, 4]


CLUSTER = {
    "topology": "hierarchical",
    "workers": 12,
    "group_size": 4,
    "cards": 4,
    "links": {"default": {"bandwidth": "100 GB/s"}, "between_groups": {"bandwidth": "10Gbit/s"}},
}


def test_the_world_is_as_large_as_its_cluster(script: Path) -> None:
    asked = config(script, cluster=CLUSTER)
    assert asked.world == 12
    assert asked.ranks_per_machine == 4
    cluster = config(script, cluster=CLUSTER, world_size=8).resolve_cluster()
    assert cluster is not None
    assert len(cluster.workers) == 8


def test_links_by_flags_join_every_pair(script: Path) -> None:
    cluster = config(script, world_size=3, bandwidth="1Gbit/s", latency="50us").resolve_cluster()
    assert cluster is not None
    link = cluster.link("worker2", "worker1")
    assert link.bandwidth == 125e6
    assert link.latency == 50e-6


def test_without_links_there_is_no_cluster(script: Path) -> None:
    assert config(script, world_size=3).resolve_cluster() is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "missing number of ranks: add --world-size 16"),
        ({"world_size": 0}, "world_size"),
        ({"world_size": 2_000_000}, "less than or equal to 1000000"),
        ({"world_size": 4, "rank": "4"}, "a world of 4 has ranks 0 to 3, not 4"),
        ({"world_size": 4, "rank": "-1"}, "a world of 4 has ranks 0 to 3, not -1"),
        ({"world_size": 4, "rank": "one"}, 'cannot read "one": write ranks as 0 or 0,3'),
        ({"world_size": 4, "rank": "1,1", "mode": "wire"}, "a rank is named twice"),
        ({"world_size": 4, "rank": "0,1", "live": True}, "none can wait for another"),
        ({"world_size": 4, "kinds": True, "live": True}, "kinds: has no effect"),
        ({"world_size": 4, "kinds": True, "mode": "wire"}, "name them, as --rank 0,3"),
        ({"world_size": 4, "mode": "wires"}, "mode"),
        ({"world_size": 4, "comm_workers": 2**63}, "less than or equal to 1000"),
        ({"world_size": 4, "skew": [1]}, "skew: "),
        ({"world_size": 4, "compute_jitter": True}, "compute_jitter: "),
        (
            {"world_size": 4, "port": 2000},
            "port: has no effect, leave it out: only mode wire has it",
        ),
        ({"world_size": 4, "mode": "wire", "algorithm": "ring"}, "gloo itself decides"),
        (
            {"cluster": CLUSTER, "latency": "1ms"},
            "latency: has no effect, leave it out: the cluster file defines it",
        ),
        ({"world_size": 4, "bandwidth": "25"}, '"25" has no unit'),
        ({"world_size": 13, "cluster": CLUSTER}, "12"),
        ({"world_size": 4, "wordl_size": 4}, "world_size"),
        ({"world_size": 4, "compare": "nowhere"}, "nowhere: not the folder of a finished run"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    script: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError) as refused:
        config(script, **given)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_script_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such script"):
        config(tmp_path / "nothing.py", world_size=2)


def test_a_module_is_not_looked_for_in_the_folder() -> None:
    config(Path("module:package.train"), world_size=2)


@pytest.mark.parametrize(
    "given",
    [
        {"world_size": 4},
        {"cluster": CLUSTER, "algorithm": "tree", "what_if": ["all_reduce: +2 ms"]},
        {"world_size": 4, "mode": "wire", "rank": "0,3", "skew": "50us", "pace": True},
    ],
)
def test_a_process_is_told_what_was_asked(
    script: Path, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = Setting(config(script, **given), 7, 0, tmp_path / "records")
    monkeypatch.setenv(VARIABLE, told.environment()[VARIABLE])
    heard = Setting.from_environment()
    assert heard.config.model_dump() == told.config.model_dump()
    assert (heard.seed, heard.rank, heard.records) == (7, 0, tmp_path / "records")
