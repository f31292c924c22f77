"""What scripts ask of a GPU beside training, in kind like PyTorch's tests of accelerators."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paracosm.cli.app import main

SCRIPT = Path(__file__).parent / "scripts" / "surface.py"
CHECKS = re.findall(r"^def (\w+)\(\) -> None:", SCRIPT.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what the script says of each of its checks."""
    output = tmp_path_factory.mktemp("surface") / "output"
    script = output.with_name("surface.py")
    script.write_text(
        f"import sys\nsys.stdout = open({str(output)!r}, 'w', buffering=1)\n" + SCRIPT.read_text()
    )
    command = ["emulate", "--hardware", "h100-sxm", "--world-size", "8", "--output", "none"]
    assert main([*command, str(script)]) == 0
    return dict(re.findall(r"^check (\w+): (.*)$", output.read_text(), re.MULTILINE))


@pytest.mark.parametrize("check", CHECKS)
def test_scripts_find_a_gpu(check: str, said: dict[str, str]) -> None:
    assert said[check] == "fine"
