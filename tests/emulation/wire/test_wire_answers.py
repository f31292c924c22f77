"""The answers without Python: the instants of the schedules, and what takes their place."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.emulation.compiled_c import compiled
from paracosm.emulation.cost import Cost
from paracosm.emulation.ports import Ports
from paracosm.emulation.wire import answers
from paracosm.emulation.wire.schedules import Members, Ring

SECONDS = st.floats(0, 1)


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    found = ctypes.CDLL(str(compiled(Path(answers.__file__).parent, ("answer.c",))))
    found.answer_through.restype = ctypes.c_double
    return found


@given(
    st.integers(3, 20).flatmap(
        lambda world: st.lists(
            st.tuples(SECONDS, SECONDS, SECONDS), min_size=world - 1, max_size=world - 1
        )
    ),
    st.integers(2, 4),
    st.data(),
)
@settings(max_examples=40, deadline=None)
def test_instants_are_those_of_the_schedule(
    library: ctypes.CDLL, members: list[tuple[float, float, float]], lag: int, data: st.DataObject
) -> None:
    """Of an all-reduce: rank 0 is real, member W - 1 - i of the ring is `members[i]`."""
    inner, world = len(members), len(members) + 1
    entries, latencies, rates = zip(*members, strict=True)

    def split(source: int, target: int, size: int) -> tuple[float, float]:
        return latencies[world - 1 - source], rates[world - 1 - source] * size

    ring = Ring(Members(world, (0,), lambda rank: entries[world - 1 - rank], split), -1, lag, 2)
    arrived = data.draw(st.lists(SECONDS, min_size=inner * lag, max_size=inner * lag))
    array = ctypes.c_double * inner
    latency, busy, free = array(*latencies), array(*(rate * 7 for rate in rates)), array(*entries)
    for index in range(2 * inner * lag):
        if index >= inner * lag:
            ring.arrived(0, world - 1, index - inner * lag, 7, arrived[index - inner * lag])
        expected = ring.send_at(1, 0, index, 7)
        origin = inner - 1 - index // lag
        began = entries[origin] if origin >= 0 else arrived[index - inner * lag]
        came = library.answer_through(
            inner - 1, max(origin, 0), ctypes.c_double(began), latency, busy, free
        )
        assert max(came, entries[-1]) == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_without_a_compiler_python_answers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    said: list[str] = []
    assert answers.answers_of(said.append, said.append) is None
    assert len(said) == 1
    assert "no C compiler (cc, gcc or clang): install gcc. Emulated ranks answer in Py" in said[0]


def test_a_compiler_that_fails_is_told_and_python_answers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'cc: out of order' >&2\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CC", raising=False)
    said: list[str] = []
    assert answers.answers_of(said.append, said.append) is None
    assert f"wire mode: {broken} cannot compile answer.c: cc: out of order" in said[0]


@given(
    st.sampled_from(["fair", "serial"]),
    st.lists(
        st.tuples(
            st.integers(0, 8),  # eighths of a second, which floats hold, since the one before
            st.integers(-3, 5),  # until it is ready
            st.sampled_from(["nic in", "nic out", ""]),
            st.integers(0, 2),  # the pool
            st.tuples(*[st.integers(0, 6)] * 3),  # before, on and after the link
        ),
        max_size=12,
    ),
)
@settings(max_examples=60, deadline=None)
def test_ports_are_those_of_python(
    library: ctypes.CDLL,
    sharing: Literal["fair", "serial"],
    messages: list[tuple[int, int, str, int, tuple[int, int, int]]],
) -> None:
    ports, answered = Ports(sharing), answers.AnsweredPorts(library, sharing)
    now, pairs = 100.0, []
    for later, ready, link, pool, needs in messages:
        now += later / 8
        fixed, busy, after = (part / 8 for part in needs)
        cost = Cost(fixed, busy, link, after)
        pairs.append(
            (
                ports.ask(0, (link, pool), 1, now, now + ready / 8, cost),
                answered.ask((link, pool), now, now + ready / 8, cost),
            )
        )
        # What is known of each by now, which later ones may move.
        assert [flow.done for _, flow in pairs] == pytest.approx(
            [span.done for span, _ in pairs], abs=1e-9
        )
