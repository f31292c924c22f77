"""What gloo refuses, as measured on real processes, is refused with the same class of error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import refusal_cases
import torch

TABLE = Path(__file__).parents[2] / "data" / "emulation" / "gloo_refusals.json"
TIME_LIMIT = 300  # seconds
_WORDS = 23  # letters of a message that are the same: behind them stand numbers and advice


def measured(which: str, file: Path) -> Any:
    """Run the cases on real processes, or as an emulated rank, and return what was refused."""
    environment = os.environ | {"PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    program = [sys.executable, refusal_cases.__file__, which, str(file)]
    done = subprocess.run(
        program, env=environment, timeout=TIME_LIMIT, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(file.read_text())


def by_name(table: Any) -> dict[str, str]:
    """Return the error of each case that was refused."""
    return {name: text for text, names in table["refusals"].items() for name in names}


def test_what_gloo_refuses_is_refused_as_it_does(tmp_path: Path):
    real, ours = json.loads(TABLE.read_text()), measured("emulated", tmp_path / "ours.json")
    assert real["cases"] == ours["cases"] == len(refusal_cases.refusal_cases(0))
    expected, refused = by_name(real), by_name(ours)
    # Sparse tensors are not supported at all here; gloo reduces them, and has other words for some.
    names = [name for name in expected if not name.startswith("sparse")]
    assert {name: _comparable(refused.get(name, "passed")) for name in names} == {
        name: _comparable(expected[name]) for name in names
    }
    assert not {name for name in refused.keys() - expected if not name.startswith("sparse")}
    assert all(name in refused for name in expected)


@pytest.mark.slow
@pytest.mark.skipif(
    torch.__version__.partition("+")[0] != json.loads(TABLE.read_text())["torch"],
    reason="the table is of another version of PyTorch",
)
def test_the_table_is_that_of_gloo(tmp_path: Path):
    assert (
        by_name(measured("gloo", tmp_path / "gloo.json")).keys()
        == by_name(json.loads(TABLE.read_text())).keys()
    )


def _comparable(text: str) -> str:
    """Return the class of an error and how its message begins, without who and when."""
    kind, _, message = text.partition(": ")
    if "Check failed: " in message:
        message = message[message.index("Check failed: ") :]
    return f"{kind}: {message[:_WORDS]}"
