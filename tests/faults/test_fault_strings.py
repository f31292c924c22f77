"""Faults as they are written."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.faults.fault import (
    At,
    AtRandom,
    Count,
    Every,
    Fault,
    Node,
    OnNode,
    OnProcessor,
    Rows,
    Share,
    parse_fault,
    parse_faults,
)
from paracosm.faults.models import (
    BitFlip,
    DataFault,
    ExponentFlip,
    FaultModel,
    Lose,
    Shuffle,
    SignFlip,
    Slow,
    Stale,
    Stop,
    UniformPerturbation,
)

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TIME = st.floats(0, 1e15)
DURATION = st.floats(0, 1e15, exclude_min=True)


def ascending(number: st.SearchStrategy[float]) -> st.SearchStrategy[tuple[float, float]]:
    return st.tuples(number, number).filter(lambda pair: pair[0] < pair[1])


DATA: st.SearchStrategy[FaultModel] = st.one_of(
    ascending(FINITE).map(lambda pair: UniformPerturbation(*pair)),
    st.tuples(st.integers(0, 63), st.integers(0, 63)).map(
        lambda pair: BitFlip((min(pair), max(pair)))
    ),
    st.sampled_from([SignFlip(), ExponentFlip(), Shuffle()]),
)
PROCESSOR: st.SearchStrategy[FaultModel] = st.one_of(
    st.just(Stop()),
    DURATION.map(Stop),
    DURATION.map(Stale),
    st.just(Stale(inf)),
    st.builds(Slow, st.floats(1, 1e6, exclude_min=True), DURATION | st.just(inf)),
)
MESSAGES: st.SearchStrategy[FaultModel] = st.builds(
    Lose, st.floats(0, 100, exclude_min=True), DURATION | st.just(inf)
)
ON_PROCESSOR = st.integers(0, 10**6).map(OnProcessor)
NODES: st.SearchStrategy[Node] = st.sampled_from(["worker", "server"])
ON_NODE = st.builds(OnNode, NODES, st.integers(0, 10**6))
WHERE = st.one_of(
    st.none(),
    st.floats(0, 100, exclude_min=True).map(Share),
    st.integers(1, 10**9).map(Count),
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)).map(lambda r: Rows(min(r), max(r))),
    ON_PROCESSOR,
)
WHEN = st.one_of(
    TIME.map(At),
    st.just(AtRandom()),
    ascending(TIME).map(lambda pair: AtRandom(*pair)),
    DURATION.map(Every),
)


@given(st.data())
def test_every_fault_parses_back_from_its_string(data: st.DataObject) -> None:
    model = data.draw(DATA | PROCESSOR | MESSAGES)
    if isinstance(model, DataFault):
        target, where = data.draw(st.sampled_from(["x", "halo", "A", "b"])), data.draw(WHERE)
        few = where == Count(1) or (isinstance(where, Rows) and where.first == where.last)
        assume(not (isinstance(model, Shuffle) and few))
    elif isinstance(model, Lose):
        target, where = "x", data.draw(st.none() | ON_NODE)
    else:
        target, where = "x", data.draw(st.none() | ON_PROCESSOR | ON_NODE)
    fault = Fault(model, target, where, data.draw(WHEN))
    assert parse_fault(str(fault)) == fault
    assert str(parse_fault(str(fault))) == str(fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("uniform(-100, 100) at random", Fault(UniformPerturbation(-100, 100))),
        ("uniform(-100, 100)", Fault(UniformPerturbation(-100, 100))),
        ("  uniform ( high=2,low = 1 )  at 3s", Fault(UniformPerturbation(1, 2), when=At(3))),
        ("bitflip(52) on 1 component", Fault(BitFlip((52, 52)), where=Count(1))),
        ("bitflip(random) in halo", Fault(BitFlip((0, 63)), "halo")),
        ("bitflip(0..51) in A every 2min", Fault(BitFlip((0, 51)), "A", when=Every(120))),
        ("signflip in b on rows 3-7", Fault(SignFlip(), "b", Rows(3, 7))),
        ("signflip on row 3", Fault(SignFlip(), where=Rows(3, 3))),
        ("exponentflip on 12.5% at 10ms", Fault(ExponentFlip(), where=Share(12.5), when=At(0.01))),
        ("shuffle on processor 3", Fault(Shuffle(), where=OnProcessor(3))),
        ("shuffle in A on row 3", Fault(Shuffle(), "A", Rows(3, 3))),
        ("stop", Fault(Stop())),
        ("stop(30s) on processor 3 at 12s", Fault(Stop(30), where=OnProcessor(3), when=At(12))),
        ("stale(20) at random(0s, 100s)", Fault(Stale(20), when=AtRandom(0, 100))),
        ("stop(30s) on worker 3 at 12s", Fault(Stop(30), "x", OnNode("worker", 3), At(12))),
        ("slow(3x) on server 0 at 1s", Fault(Slow(3), "x", OnNode("server", 0), At(1))),
        ("slow(factor=1.5, duration=2s) every 9s", Fault(Slow(1.5, 2), when=Every(9))),
        ("lose(1%)", Fault(Lose(1), when=At(0))),
        (
            "lose(0.5%, 2min) on worker 1 at 3s",
            Fault(Lose(0.5, 120), "x", OnNode("worker", 1), At(3)),
        ),
        ("shuffle every 50s on 10% in x", Fault(Shuffle(), where=Share(10), when=Every(50))),
    ],
)
def test_spellings(text: str, fault: Fault) -> None:
    assert parse_fault(text) == fault
    assert parse_fault(fault) is fault


def test_string_is_the_shortest_spelling() -> None:
    for text in (
        "uniform(-100, 100) at random",
        "bitflip(0..51) in A on rows 3-7 every 50s",
        "bitflip(random) on 1 component at 12s",
        "stop(30s) on processor 3 at random(0s, 100s)",
        "stop at 500ms",
    ):
        assert str(parse_fault(text)) == text


def test_several_faults_in_a_string_or_a_list() -> None:
    first, second = parse_fault("signflip at 1s"), parse_fault("stop at random(0s, 9s)")
    assert parse_faults("signflip at 1s; stop at random(0s, 9s)") == (first, second)
    assert parse_faults(["signflip at 1s", "stop at random(0s, 9s)"]) == (first, second)
    assert parse_faults([first, "stop at random(0s, 9s)"]) == (first, second)
    assert parse_faults(None) == parse_faults([]) == ()


def test_every_fault_in_the_documentation_is_read() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
    section = page.split("## ")[1]
    assert section.startswith("Models")
    table = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    models = {
        parse_fault(text).model.name for row in table for text in re.findall("`([^`]+)`", row)
    }
    assert len(models) == 9
    (block,) = re.findall(r"```\n(uniform.*?)```", page, re.DOTALL)
    for line in block.splitlines():
        parse_fault(line.partition("#")[0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("unifrm(1, 2)", ['did you mean "uniform"', "exponentflip, shuffle, stop, stale"]),
        ("melt", ['unknown model "melt"', "uniform, bitflip"]),
        ("", ["uniform(-100, 100) at random"]),
        ("signflip;", ["cannot read"]),
        (3, ["write a fault as text", "3"]),
        ([3], ["write a fault as text", "3"]),
        ("uniform(1)", ["high is missing", "write uniform(low, high)"]),
        ("uniform(1, 2, 3)", ["too many arguments", "write uniform(low, high)"]),
        ("uniform(1, low=2)", ["low is given twice"]),
        ("uniform(1, hihg=2)", ['no parameter "hihg"', "write uniform(low, high)"]),
        ("uniform(2, 1)", ["low (2) must be below high (1)"]),
        ("uniform(1, many)", ["uniform: high", '"many"']),
        ("uniform(1s, 2s)", ["uniform: low", "plain number"]),
        ("uniform(1, 2 at 3s", ['")" is missing']),
        ("bitflip", ["bits is missing"]),
        ("bitflip(64)", ["bits 0 to 63, not 64"]),
        ("bitflip(-1)", ["bits 0 to 63, not -1"]),
        ("bitflip(9..3)", ["lower bit first, 3..9"]),
        ("bitflip(sign)", ["0..51", '"sign"']),
        ("signflip(3)", ["too many arguments", "write signflip alone"]),
        ("stop(0s)", ["stop: duration must be above 0"]),
        ("stop(-1s)", ["stop: duration", "0 or more"]),
        ("stale", ["duration is missing"]),
        ("stop in halo", ["stop strikes a processor", 'drop "in halo"']),
        ("stop in x", ['drop "in x"']),
        ("stop on 10%", ['write "on processor 3", not "on 10%"']),
        ("shuffle on 1 component", ["changes nothing", "2 components or more"]),
        ("shuffle on row 3", ["changes nothing"]),
        ("signflip in y", ['unknown target "y"', "x, halo, A, b"]),
        ("signflip on 0%", ["above 0% and at most 100%, not 0%"]),
        ("signflip on 100.5%", ["at most 100%, not 100.5%"]),
        ("signflip on 0 components", ["at least 1 component, not 0"]),
        (f"signflip on row {'9' * 5000}", ["on 5 components"]),
        ("signflip on 2.5 components", ["on 5 components"]),
        ("signflip on rows 7-3", ["lower row first, rows 3-7"]),
        ("signflip on rows 7-", ["on rows 3-7"]),
        ("signflip on processor", ["on processor 3"]),
        ("signflip on", ['nothing follows "on"']),
        ("signflip at 3s every 4s", ["the time is given twice"]),
        ("signflip in x in b", ["the target is given twice"]),
        ("signflip at noon", ["cannot read", '"noon"']),
        ("signflip at 3 sec", ["duration unit"]),
        ("signflip at inf", ["finite"]),
        ("signflip at randomly", ["at random(0s, 100s)"]),
        ("signflip at random(5s, 1s)", ["(5 s) must be below the latest (1 s)"]),
        ("signflip at random(0s, inf)", ["finite"]),
        ("signflip every 0s", ["every: the mean interval must be above 0"]),
        ("signflip sometimes", ['unexpected "sometimes"', "in, on, at or every"]),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text: object, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        parse_faults(text)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: Fault(SignFlip(), "y"), "unknown target"),  # type: ignore[arg-type]
        (lambda: Fault(Stop(), "A"), 'drop "in A"'),
        (lambda: Fault(Stale(3), where=Rows(1, 2)), "strikes a processor"),
        (lambda: Fault(Slow(2), where=Count(1)), "strikes a processor"),
        (lambda: Fault(Lose(2), where=OnProcessor(1)), 'write "on worker 3"'),
        (lambda: Fault(Lose(2), "A"), 'drop "in A"'),
        (lambda: Fault(SignFlip(), where=OnNode("worker", 1)), "data of a processor"),
        (lambda: OnProcessor(-1), "count from 0"),
        (lambda: Rows(-1, 2), "count from 0"),
        (lambda: AtRandom(3), "needs a latest one"),
    ],
)
def test_python_is_held_to_the_same_rules(build: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        build()  # type: ignore[operator]
