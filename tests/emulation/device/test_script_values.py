"""Values that nobody computes: those of a router, of masks, and of whatever a script waits for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from script_runs import ON_H100, SCRIPTS, emulate, moved, products

from paracosm.cli.app import main
from paracosm.emulation.device import waiting
from paracosm.emulation.device.assumptions import (
    Assumptions,
    assumed_in_words,
    assumptions_of,
    parse_assumption,
    without_effect,
)
from paracosm.emulation.device.choices import spread
from paracosm.emulation.device.op_costs import check_effect, cost_of, parse_cost
from paracosm.emulation.device.recording import STEP, RecordingWriter, load_recording
from paracosm.emulation.device.waiting import _conditions
from paracosm.errors import InputError
from paracosm.graphs.graph import Op


@pytest.mark.parametrize(
    ("loads", "rows", "chosen", "counts"),
    [
        ([0.25] * 4, 6, 2, [3, 3, 3, 3]),
        ([0.25] * 4, 5, 1, [2, 1, 1, 1]),  # what is left over goes to the first
        ([0.5, 0.25, 0.125, 0.125], 8, 1, [4, 2, 1, 1]),
        # 0.7 x 16 choices are more than 8 tokens have once each: the others take the other 8.
        ([0.7, 0.1, 0.1, 0.1], 8, 2, [8, 3, 3, 2]),
        ([1.0, 0.0, 0.0, 0.0], 6, 2, [6, 2, 2, 2]),
    ],
)
def test_choices_are_as_the_loads_are(
    loads: list[float], rows: int, chosen: int, counts: list[int]
) -> None:
    picked = spread(np.array(loads), rows, chosen)
    assert picked.shape == (rows, chosen)
    assert np.bincount(picked.ravel(), minlength=len(loads)).tolist() == counts
    assert all(len(set(row)) == chosen for row in picked.tolist())


def test_neighbours_choose_different_experts() -> None:
    """Of any 64 of 4,096 tokens, each of 16 experts gets 4, give or take one."""
    picked = spread(np.full(16, 1 / 16), 4096, 1).ravel()
    for first in range(0, 4096, 64):
        counts = np.bincount(picked[first : first + 64], minlength=16)
        assert counts.min() >= 3
        assert counts.max() <= 5


def test_assumptions_are_read_and_named() -> None:
    given = [parse_assumption("experts: zipf(1.2)"), parse_assumption("masks: density  0.5")]
    assert [str(each) for each in given] == ["experts: zipf(1.2)", "masks: density 0.5"]
    rules = assumptions_of(given)
    assert rules == Assumptions("zipf(1.2)", 0.5)
    assert (rules.experts, rules.masks) == ("expert splits by zipf(1.2)", "masks of density 0.5")
    assert without_effect(given, ["masks of density 0.5"]) is given[0]
    assert without_effect(given, [rules.experts, rules.masks]) is None
    counts = {"losses of 1": 1, "expert splits balanced": 64}
    assumed = [{"text": text, "count": count} for text, count in counts.items()]
    assert assumed_in_words(assumed) == "1 loss of 1, 64 expert splits balanced"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("experts", "write SUBJECT: VALUE"),
        ("expert: zipf(1)", 'unknown subject "expert": did you mean "experts"'),
        ("experts: skew(0.3)", "write uniform, zipf"),
        ("experts: zipf(0)", "must be above 0"),
        ("masks: half", "write masks: density 0.5"),
        ("masks: density 2", "from 0 to 1"),
    ],
)
def test_assumptions_that_cannot_be_read_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match="assume ") as caught:
        parse_assumption(text)
    assert message in str(caught.value)


def test_lines_that_decide_on_loops_are_told_from_others(tmp_path: Path) -> None:
    path = tmp_path / "loops.py"
    path.write_text(
        "while x.item() > 1:\n"  # 1
        "    y = x.item()\n"
        "while y > 1:\n"  # 3
        "    y = x.item()\n"  # 4
        "    z = x.item()\n"
        "while True:\n"  # 6
        "    if x.item():\n"  # 7: leaves the loop
        "        break\n"
        "    for z in x:\n"
        "        if z.item():\n"  # 10: leaves the inner one
        "            break\n"
        "    if z.item():\n"
        "        z = 1\n"
    )
    found = _conditions(str(path))
    assert found is not None
    assert {first for first, _, kind in found if kind == "while"} == {1, 3, 4, 6, 7}
    assert {first for first, _, kind in found if kind == "for"} == {10}


TOKENS, WIDTH, EXPERTS, CHOSEN, RANKS = 96, 16, 8, 2, 4  # as in experts.py


@pytest.mark.parametrize(
    ("assume", "most"),
    [
        ([], 48),  # of 192 choices: two of eight experts
        # Five twelfths are the first expert's, and one the second's: 80 and 16 tokens of a rank.
        pytest.param(["experts: 5+1+1+1+1+1+1+1"], 96, marks=pytest.mark.slow),
    ],
)
def test_experts_get_what_their_loads_say(
    assume: list[str], most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tokens of 16 numbers travel to their experts and back, and once back in the backward pass.

    The rank that is recorded gets `most` tokens from each rank, and sends 192 to all of them.
    """
    folder, script = tmp_path / "run", SCRIPTS / "experts.py"
    flags = [text for each in assume for text in ("--assume", each)]
    found = emulate(capsys, *ON_H100, *flags, "--world-size", RANKS, "--out", folder, script)
    recording = load_recording(folder / "device.parquet")
    exchanged = 4 * WIDTH * max(RANKS * most, TOKENS * CHOSEN)
    assert moved(recording, "all_to_all") == [8 * EXPERTS, *[exchanged] * 3]
    products = {op.arguments: op.flops for op in recording.ops if op.name == "aten.addmm.default"}
    of_layer = 2 * WIDTH * 32 * RANKS * most  # of both experts that the rank holds
    alike = 1 if assume else 2  # experts whose products are the same op
    assert sum(products.values()) == 2 * of_layer // alike
    names = {each["text"] for each in found["assumed"]}
    assert names == {f"expert splits {'by 5+1+1+1+1+1+1+1' if assume else 'balanced'}"}
    # Split sizes and counts are read five times in an iteration, those of pieces once an expert.
    assert sum(each["count"] for each in found["assumed"]) == 3 * (5 + 2)


def test_what_is_known_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The script compares what it reads with what it must be."""
    script = SCRIPTS / "values.py"
    found = emulate(capsys, *ON_H100, "--world-size", RANKS, script)
    assert found["exit_code"] == 0
    counts: dict[str, int] = {}
    for each in found["assumed"]:
        counts[each["text"]] = counts.get(each["text"], 0) + each["count"]
    assert counts["checks of numbers without overflow or NaN"] == 3
    assert counts["predicted classes spread evenly"] == 1
    assert counts["numbers of 1"] == 1


LOOPS = {
    "condition": "while not reads.assume('losses of 1'): pass",
    "assigned": "value = 1\nwhile value:\n    value = reads.assume('losses of 1') or 1",
    "function": "def done():\n    return reads.assume('losses of 1')\nwhile not done(): pass",
    "break": "while True:\n    if reads.assume('losses of 1'):\n        break",
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_waits_for_what_is_assumed_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After some seconds, however much it does between two reads; and not before."""
    now = [0.0]

    def clock() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(waiting.time, "monotonic", clock)
    path = tmp_path / "train.py"
    path.write_text(LOOPS[name])
    writer = RecordingWriter(0, 1, "h100-sxm")
    reads = waiting.Reads(writer, lambda what: RuntimeError(what))
    with pytest.raises(RuntimeError, match="a loop that waits until a value changes"):
        exec(compile(path.read_text(), str(path), "exec"), {"reads": reads})
    (assumed,) = writer.recording([]).assumed
    line = next(n for n, text in enumerate(LOOPS[name].splitlines(), 1) if "reads" in text)
    assert assumed.site == f"train.py:{line}"
    assert 20 <= assumed.count <= 24


def test_a_loop_over_experts_reads_as_often_as_it_likes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOST_READS", 10)
    monkeypatch.setattr(waiting, "PATIENCE", 0.0)
    path = tmp_path / "train.py"
    path.write_text("for _ in range(30):\n    reads.assume('expert splits balanced')\n")
    writer = RecordingWriter(0, 1, "h100-sxm")
    reads = waiting.Reads(writer, lambda what: RuntimeError(what))
    exec(compile(path.read_text(), str(path), "exec"), {"reads": reads})
    path = tmp_path / "step.py"
    path.write_text("while not reads.assume('losses of 1'):\n    writer.add(STEP, 0)\n    step()\n")
    left = iter(range(30))

    def step() -> None:
        if next(left, None) is None:
            raise StopIteration

    with pytest.raises(StopIteration):  # the end of each iteration is progress
        exec(
            compile(path.read_text(), str(path), "exec"),
            {"reads": reads, "writer": writer, "STEP": STEP, "step": step},
        )


def test_durations_of_ops_are_read() -> None:
    texts = ("my_op: 120us", "mine::my_op: 1ms", "mine::other: 0s")
    costs = [parse_cost(text) for text in texts]
    assert tuple(map(str, costs)) == texts
    assert parse_cost("mine.my_op: 1 ms") == costs[1]
    assert cost_of("custom.mine::my_op", costs) == 1e-3  # the last one
    assert cost_of("custom.yours::my_op", costs) == 120e-6
    assert cost_of("custom.yours::other", costs) is None
    with pytest.raises(InputError, match='cost "my_op: 120": "120" has no unit'):
        parse_cost("my_op: 120")
    with pytest.raises(InputError, match="write NAME: DURATION"):
        parse_cost("my_op")
    with pytest.raises(InputError, match="no such op; it calls mine::my_op"):
        check_effect([Op("custom.mine::my_op", "", 0, 0, 0)], [parse_cost("my_opp: 1 us")])


@pytest.mark.slow
def test_an_op_of_the_script_takes_what_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two custom ops, one is opaque; the other is a sine and a product, which are recorded."""
    folder, script = tmp_path / "run", SCRIPTS / "own_ops.py"
    command = ["emulate", *ON_H100, "--world-size", "1"]
    assert main([*command, str(script)]) == 1
    told = capsys.readouterr().out.replace("\n", " ")
    assert 'the custom op mine::opaque (say how long it takes: --cost "opaque: 120 us")' in told
    given = ("--cost", "opaque: 3 ms", "--out", folder)
    found = emulate(capsys, *ON_H100, *given, "--world-size", 1, script)
    assert found["by_class"]["custom"] == 3e-3
    assert found["durations"]["opaque"] == "given: 3 ms a call"
    recording = load_recording(folder / "device.parquet")
    names = [op.name for op in recording.ops]
    assert names.count("custom.mine::opaque") == 1
    assert {"aten.sin.default", "aten.mm.default"} <= set(names)
    # A recording answers for another duration at once.
    longer = emulate(capsys, folder, "--cost", "opaque: 5 ms")
    assert "recording" not in longer
    assert longer["iteration_time"] - found["iteration_time"] == pytest.approx(2e-3, rel=1e-6)
    assert main(["emulate", str(folder), "--cost", "opaqe: 5 ms"]) == 1
    assert "no such op; it calls mine::opaque" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.slow
def test_another_assumption_is_recorded_anew(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, script = tmp_path / "run", tmp_path / "masked.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Linear(100, 1).cuda()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(10):\n"
        "    x = torch.randn(40, 100, device='cuda')\n"
        "    model(x[x[:, 0] > 0]).sum().backward()\n"
        "    optimizer.step()\n"
    )
    emulate(capfd, *ON_H100, "--world-size", 1, "--out", folder, script)
    whole = load_recording(folder / "device.parquet")
    other = tmp_path / "other"
    found = emulate(capfd, folder, "--assume", "masks: density 0.25", "--out", other)
    assert "recording" in found
    assert [each["text"] for each in found["assumed"]] == ["masks of density 0.25"]
    quarter = load_recording(other / "device.parquet")
    assert products(whole) == 4 * products(quarter)
    assert products(quarter) == 2 * (2 * 10 * 100)  # forward, and backward for the weight
    script.unlink()
    assert main(["emulate", str(folder), "--assume", "masks: density 0.5"]) == 2
    told = capfd.readouterr().err
    assert "recorded with nothing assumed, not masks: density 0.5" in told
    assert told.count("\n") == 1
    assert main(["emulate", str(other), "--assume", "experts: zipf(1)"]) == 2
