"""`paracosm graph show`, `export` and `import`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.file import load_graph, save_graph
from paracosm.graphs.graph import Op, TensorArgument, encode_arguments
from paracosm.graphs.summary import fingerprint

Capture = pytest.CaptureFixture[str]
DATA = Path(__file__).parents[1] / "data" / "chakra"

MATMUL = Op(
    "aten.mm.default",
    encode_arguments([TensorArgument((64, 512), "float32"), [TensorArgument((), "int64")]], {}),
    flops=655_360,
    bytes_read=1_000,
)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    nodes = [
        Node(0, MATMUL, "fc", "forward", allocates=((4_000, 1),)),
        Node(1, Op("sgd"), phase="optimizer", dependencies=(0,), duration=0.25),
    ]
    path = tmp_path / "fc.graph"
    provenance = {"model": "fc", "foreach": False, "shape": [3, 32]}
    save_graph(build_graph(nodes, {"parameters": 20_480}, provenance), path)
    return path


def fails(capsys: Capture, *arguments: object) -> str:
    assert main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


def test_show_prints_facts_and_tables(graph: Path, capsys: Capture) -> None:
    assert main(["graph", "show", str(graph)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "nodes 2, 2 distinct ops",
        "dependencies 1, longest chain 2 nodes",
        "work 655 kflop, 1 kB read and written",
        "duration 250 ms, the sum over the 1 nodes with a known duration",
        "resident parameters 20.48 kB",
        "peak memory 24.48 kB at node 0 (aten.mm.default, fc)",
        "foreach no",
        "shape 3, 32",
        "forward 1 655 kflop 1 kB",
        "optimizer 1 0 flop 0 B",
        "aten.mm.default 1 1 655 kflop 1 kB",
        "aten.mm.default(64x512 scalar) 1 655 kflop 1 kB",
    ):
        assert line in lines


def test_show_lists_as_many_ops_as_are_asked_for(graph: Path, capsys: Capture) -> None:
    assert main(["graph", "show", str(graph), "--ops", "1"]) == 0
    printed = capsys.readouterr().out
    assert "and 1 more op names" in printed
    assert "sgd" not in printed
    assert main(["graph", "show", str(graph), "--ops", "0"]) == 0
    assert "aten.mm" not in capsys.readouterr().out.split("phase")[1]


def test_show_prints_the_summary_as_json_and_nothing_else(graph: Path, capsys: Capture) -> None:
    assert main(["graph", "show", str(graph), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["peak_memory"] == 24_480
    assert summary["fingerprint"] == fingerprint(load_graph(graph))


def test_show_of_what_is_no_graph_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "x").write_text("no")
    assert fails(capsys, "graph", "show", tmp_path / "x").count("\n") == 1


@pytest.mark.parametrize("form", ["et", "json"])
def test_a_graph_goes_out_and_in(graph: Path, form: str, capsys: Capture) -> None:
    trace, back = graph.with_name(f"fc.{form}"), graph.with_name("back.graph")
    assert main(["graph", "export", str(graph), "--out", str(trace)]) == 0
    assert capsys.readouterr().out == f"{trace}: 2 nodes\n"
    assert main(["graph", "import", str(trace), "--out", str(back)]) == 0
    assert capsys.readouterr().out == f"{back}: 2 nodes\n"
    assert back.read_bytes() == graph.read_bytes()


def test_what_went_out_and_in_as_json(graph: Path, capsys: Capture) -> None:
    trace, back = graph.with_name("fc.et"), graph.with_name("back.graph")
    assert main(["graph", "export", str(graph), "--out", str(trace), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(trace), "nodes": 2}
    assert main(["graph", "import", str(trace), "--out", str(back), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["file"], summary["nodes"]) == (str(back), 2)
    assert summary["fingerprint"] == fingerprint(load_graph(graph))


def test_nothing_is_overwritten_without_force(graph: Path, capsys: Capture) -> None:
    out = graph.with_name("there.et")
    out.write_text("mine")
    assert "exists: --force replaces it" in fails(capsys, "graph", "export", graph, "--out", out)
    assert "exists: --force replaces it" in fails(capsys, "graph", "import", out, "--out", graph)
    assert out.read_text() == "mine"
    assert main(["graph", "export", str(graph), "--out", str(out), "--force", "--quiet"]) == 0
    assert main(["graph", "import", str(out), "--out", str(graph), "--force", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_import_says_what_it_left_out(tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "x.graph"
    command = ("graph", "import", DATA / "feeder.json", "--out", out)
    assert "--drop-missing leaves them out" in fails(capsys, *command)
    assert not out.exists()
    assert main([*map(str, command), "--drop-missing"]) == 0
    assert capsys.readouterr().out == (
        f"{out}: 7 nodes, 7 dependencies on missing nodes left out\n"
    )
    assert main([*map(str, command), "--data-only", "--force"]) == 0
    assert capsys.readouterr().out == f"{out}: 7 nodes, control dependencies left out\n"


def test_a_folder_that_is_not_there_is_named(graph: Path, capsys: Capture) -> None:
    out = graph.parent / "none" / "x.json"
    message = fails(capsys, "graph", "export", graph, "--out", out)
    assert f"{out}: cannot be written: No such file or directory" in message
    imported = ("graph", "import", DATA / "feeder.json", "--drop-missing", "--out", out)
    assert fails(capsys, *imported) == message


def test_reading_graphs_loads_no_framework(graph: Path) -> None:
    import subprocess

    program = (
        "import sys; from paracosm.cli import main; "
        f"main(['graph', 'show', {str(graph)!r}, '--json']); "
        "print({'torch', 'google', 'matplotlib'} & {m.split('.')[0] for m in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.endswith("\nset()\n"), done.stderr
