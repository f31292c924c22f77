"""`make wheels`: what of an environment's commands counts as done, refused and failed."""

from __future__ import annotations

from pathlib import Path

import pytest
import wheels


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A `paracosm` that says which of its two verbs needs an extra, and refuses a third."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "paracosm"
    program.write_text(
        "#!/bin/sh\n"
        "case $1 in\n"
        "  replay) exit 0 ;;\n"
        "  train) echo 'paracosm: training needs torch: pip install \"paracosm[torch]\"' >&2 ;;\n"
        "  *) echo 'paracosm: no such folder' >&2 ;;\n"
        "esac\n"
        "exit 2\n"
    )
    program.chmod(0o755)
    return folder


def test_commands_are_done_refused_or_failed(programs: Path, tmp_path: Path) -> None:
    commands = [
        "paracosm replay 'a trace'",
        "paracosm train --out runs/first",
        "paracosm report runs/first",  # which nobody has written
        "paracosm report runs/other",
    ]
    outcome = wheels.try_commands(commands, programs, tmp_path)
    assert (outcome.passed, outcome.refused) == (1, 2)
    assert outcome.failures == ["paracosm report runs/other\nparacosm: no such folder\n"]


def test_every_extra_has_commands_and_tests_exist() -> None:
    assert set(wheels.OF_EXTRAS) == set(wheels.EXTRAS) - {"torch"}
    assert set(wheels.TESTS) <= {"", *wheels.EXTRAS}
    paths = [path for paths in wheels.TESTS.values() for path in paths]
    assert [path for path in paths if not (wheels.ROOT / path).exists()] == []
