"""Every verb that takes a while, ended at random moments: what it says and leaves."""

from __future__ import annotations

import json
import random
import signal
import time
from pathlib import Path

import pytest
from tried_commands import COMMANDS, Process, arguments, files

pytestmark = pytest.mark.slow

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return files(tmp_path_factory.mktemp("files"))


def holds_a_result(out: Path) -> bool:
    """Whether what is there is to be kept: a run that came to its end, or a file."""
    summary = out / "summary.json"
    if summary.is_file():
        return bool(json.loads(summary.read_text())["status"] != "interrupted")
    return any(out.with_name(f"{out.name}{end}").exists() for end in ENDINGS)


ENDINGS = (".json", ".profile", ".yaml", ".graph")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_signal_ends_it_in_one_line_and_the_next_run_finds_nothing_in_its_way(
    name: str, places: dict[str, str], tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    whole = Process(arguments(COMMANDS[name], places, tmp_path / "whole"), temporary)
    assert whole.wait() == 0, whole.said
    assert whole.left() == []
    moments = random.Random(name)
    for number in SIGNALS:
        out = tmp_path / number.name
        typed = arguments(COMMANDS[name], places, out)
        first = Process(typed, temporary)
        time.sleep(whole.seconds * moments.uniform(0.1, 0.95))
        first.process.send_signal(number)
        code = first.wait(60)
        # By the system itself where the program had not begun, and 0 where it was done already.
        assert code in (0, -number, 128 + number), (number, code, first.said)
        assert "Traceback" not in first.said, first.said
        assert "defect" not in first.said, first.said
        if code == 128 + number:
            assert "nterrupted" in first.said + first.printed
        assert first.left() == []
        again = Process([*typed, *(["--force"] if holds_a_result(out) else [])], temporary)
        assert again.wait() == 0, (number, code, again.said)
        assert again.left() == []
        assert [*temporary.glob("paracosm-*"), *temporary.glob(".paracosm-*")] == []
        assert not any(each.name.startswith(".") for each in tmp_path.rglob("*") if each.is_file())
