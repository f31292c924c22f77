"""Processes that get orders and answer: what is heard of them, and how their end is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paracosm.errors import InputError
from paracosm.profiling.processes import Processes, WorkerError

PROGRAM = """
import json, sys
from paracosm.profiling.processes import answering

setup = json.loads(sys.argv[1])
answer = answering()
print("of a library", flush=True)
for line in sys.stdin:
    order = json.loads(line)
    if order["do"] == "answer":
        answer(number=setup["number"], heard=order["word"])
    elif order["do"] == "fail":
        answer(error="OSError: no room")
    elif order["do"] == "refuse":
        answer(refused="size: -1, but at least 0 is needed")
    elif order["do"] == "die":
        print("first line\\nValueError: the last word", file=sys.stderr)
        sys.exit(3)
"""


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    (tmp_path / "program_of_a_process.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(str(tmp_path))
    with Processes("program_of_a_process", 10.0) as processes:
        for number in range(2):
            processes.start(f"process {number}", {"number": number})
        yield processes


def test_answers_come_in_the_order_of_the_processes_and_prints_do_not_get_between(
    two: Processes,
) -> None:
    two.order({1: {"do": "answer", "word": "b"}, 0: {"do": "answer", "word": "a"}})
    assert two.answers("to answer") == [{"number": 0, "heard": "a"}, {"number": 1, "heard": "b"}]
    two.order({1: {"do": "answer", "word": "c"}})
    assert two.answers("to answer", [1]) == [{"number": 1, "heard": "c"}]
    assert (two.folder / "0.txt").read_text() == "of a library\n"


def test_one_that_dies_is_named_with_its_last_words_whoever_is_waited_for(two: Processes) -> None:
    two.order({1: {"do": "die"}})
    with pytest.raises(WorkerError, match=r"^process 1 ended with exit code 3: ValueError: the la"):
        two.answers("to answer", [0])


def test_one_that_fails_or_refuses_says_why(two: Processes) -> None:
    two.order({0: {"do": "fail"}})
    with pytest.raises(WorkerError, match=r"^process 0: OSError: no room$"):
        two.answers("to answer", [1])
    two.order({1: {"do": "refuse"}})
    with pytest.raises(InputError, match=r"^size: -1, but at least 0 is needed$"):
        two.answers("to answer", [1])


def test_one_that_is_late_is_named_with_what_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "silent_program.py").write_text("import time; time.sleep(60)")
    monkeypatch.syspath_prepend(str(tmp_path))
    with Processes("silent_program", 0.2) as processes:
        processes.start("the silent one", {})
        with pytest.raises(WorkerError, match=r"the silent one did not answer within 0.2 s \(rest"):
            processes.answers("rest")
