"""Network cards and uplinks of the cluster file through every command: by hand, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from one_step import write_profile

from paracosm.cli import main
from paracosm.emulation.config import EmulateConfig
from paracosm.errors import InputError
from paracosm.graphs import Node, Op, build_graph, save_graph

Capture = pytest.CaptureFixture[str]

ONE_CARD: dict[str, Any] = {
    "topology": "hierarchical",
    "workers": 4,
    "group_size": 2,
    "cards": 1,
    "servers": 3,
    "links": {"default": {}, "between_groups": {"bandwidth": "1MB/s"}},
}
"""Workers 0 and 1 with servers 0 and 2, workers 2 and 3 with server 1."""

OWN_CARDS = ONE_CARD | {"cards": 2}
UPLINK = ONE_CARD | {"cards": 2, "leaf_switches": {"groups": 1, "oversubscription": 2}}
"""A group below each switch, whose two cards have an uplink as fast as one."""

STEP: dict[str, float] = {
    # Each worker pushes 100 kB to each server. From 0.1 s on workers 0 and 1 send two parts to the
    # other group, 2 and 3 four, each way at 1 MB/s. The two are through at 0.3; their answers meet
    # the four, which have come half way: 6 x 50 kB until 0.6. Then the rest of those answers, until
    # 0.7, and the other way four answers, until 1.0.
    "one card": 1.0,
    "uplink": 1.0,
    # Of its own card each of workers 2 and 3 has 0.2 s for two parts, and so have servers 0 and 2
    # for those that come to them; answers take as long.
    "own cards": 0.5,
}
CLUSTERS = {"one card": ONE_CARD, "own cards": OWN_CARDS, "uplink": UPLINK}


def written(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def summary_of(capsys: Capture, *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    code = main([str(argument) for argument in (*arguments, "--json")])
    out, err = capsys.readouterr()
    assert code == 0, err
    summary: dict[str, Any] = json.loads(out)
    return summary


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A layer of 50 ms forward and 50 ms backward with a gradient of 300 kB."""
    monkeypatch.chdir(tmp_path)  # where no database is
    layer = Op("layer", bytes_written=100)
    nodes = [
        Node(0, layer, "h.0", "forward", duration=0.05),
        Node(
            1,
            layer,
            "h.0",
            "backward",
            dependencies=(0,),
            duration=0.05,
            allocates=((300_000, -1),),
        ),
    ]
    save_graph(build_graph(nodes, provenance={"examples": 1}), tmp_path / "step.graph")
    return tmp_path / "step.graph"


@pytest.mark.parametrize("name", CLUSTERS)
def test_parameter_servers(name: str, graph: Path, tmp_path: Path, capsys: Capture) -> None:
    path = written(tmp_path, CLUSTERS[name])
    strategy = ("--strategy", "ps-async, iterations=1")
    summary = summary_of(capsys, "predict", "--graph", graph, *strategy, "--cluster", path)
    assert summary["iteration_time"] == pytest.approx(STEP[name], rel=1e-9)


@pytest.mark.parametrize(("name", "load"), [("one card", 2), ("own cards", 1), ("uplink", 2)])
def test_rings(name: str, load: int, graph: Path, tmp_path: Path, capsys: Capture) -> None:
    """Two rings of two, of 150 kB each: two exchanges of 75 ms; the layer is split, 50 ms."""
    alone = {key: value for key, value in CLUSTERS[name].items() if key != "servers"}
    flags = ("--strategy", "dp=2, tp=2, all_reduce=ring", "--cluster", written(tmp_path, alone))
    summary = summary_of(capsys, "predict", "--graph", graph, *flags)
    assert summary["iteration_time"] == pytest.approx(0.05 + load * 0.15, rel=1e-9)


@pytest.mark.parametrize("sharing", ["fair", "serial", "packets(10kB)"])
def test_train_compiled_as_on_the_engine(sharing: str, tmp_path: Path, capsys: Capture) -> None:
    """And longer than with a card of each worker's own."""
    times, rule = [], {"sharing": sharing}
    for content in (ONE_CARD, OWN_CARDS):
        path = written(tmp_path, content | {"links": content["links"] | {"default": rule}})
        job = ("--algorithm", "asgd", "--compute", "100ms", "--message-size", "300kB")
        ends = [
            summary_of(
                *(capsys, "train", "--cluster", path, *job, "--updates", 40, "--timing-only", how)
            )
            for how in ("--timeline", "--no-timeline")
        ]
        assert ends[0]["virtual_time"] == pytest.approx(ends[1]["virtual_time"], rel=1e-9)
        times.append(ends[0]["virtual_time"])
    assert times[0] > 1.1 * times[1]


def test_who_cannot_say_it_refuses_it(tmp_path: Path, capsys: Capture) -> None:
    alone = {key: value for key, value in ONE_CARD.items() if key != "servers"}
    with pytest.raises(InputError, match="cards, leaf_switches: one real rank does not show"):
        EmulateConfig(world_size=4, cluster=written(tmp_path, alone)).resolve_cluster()
    profile = write_profile(tmp_path, 300_000)
    assert main(["predict", str(profile), "--cluster", str(written(tmp_path, ONE_CARD))]) == 2
    assert "hierarchical" in capsys.readouterr().err
