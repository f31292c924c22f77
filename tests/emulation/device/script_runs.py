"""Runs of scripts on a device that is not there, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paracosm.cli.app import main
from paracosm.emulation.device.recording import COLLECTIVE, OP, Recording

ON_H100 = ("--hardware", "h100-sxm", "--output", "none")
SCRIPTS = Path(__file__).parent / "scripts"


def emulate(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert main(["emulate", "--json", *map(str, arguments)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def moved(recording: Recording, kind: str) -> list[int]:
    last = recording.iteration(len(recording.steps) - 1)
    calls = (recording.calls[code] for code in last.code[last.kind == COLLECTIVE].tolist())
    return [call.size for call in calls if call.kind == kind]


def products(recording: Recording) -> int:
    """Return the floating-point operations of the products of matrices of an iteration."""
    last = recording.iteration(len(recording.steps) - 1)
    ops = (recording.ops[code] for code in last.code[last.kind == OP].tolist())
    return sum(op.flops for op in ops if "mm" in op.name)
