"""The same job by its script and by its name: Llama 3 8B with FSDP on 8 H100."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paracosm.cli.app import main

SCRIPT = Path(__file__).parents[1] / "emulation" / "device" / "scripts" / "llama.py"
PARAMETERS = 8_030_261_248
NORMS = 65 * 4096


@pytest.mark.slow
def test_products_and_attention_take_the_same_and_all_bytes_are_moved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`predict` has element-wise ops as a compiler fuses them, and the script is eager."""
    command = ["--hardware", "h100-sxm", "--json"]
    script = ["emulate", *command, "--world-size", "8", "--iterations", "2", "--output", "none"]
    assert main([*script, str(SCRIPT)]) == 0
    recorded = json.loads(capsys.readouterr().out)
    job = ["predict", "--model", "llama-8b", *command, "--workers", "8", "--strategy", "fsdp"]
    assert main([*job, "--batch", "1", "--shape", "8192"]) == 0
    predicted = json.loads(capsys.readouterr().out)["breakdown"]["op"]
    products = sum(time for name, time in predicted.items() if name.startswith("aten.mm"))
    attention = sum(time for name, time in predicted.items() if "attention" in name)
    assert recorded["by_class"]["product"] == pytest.approx(products, rel=1e-3)
    assert recorded["by_class"]["attention"] == pytest.approx(attention, rel=1e-3)
    # bfloat16 is gathered, and float32 reduced. All is gathered twice but the first layer's group,
    # which FSDP2 keeps: the embedding, the last norm and the head.
    kept = 2 * 128256 * 4096 + 4096
    gathered = 2 * (2 * (PARAMETERS - kept) + kept)
    assert recorded["collectives"]["all_gather"]["bytes"] == gathered
    assert recorded["collectives"]["reduce_scatter"]["bytes"] == 4 * PARAMETERS
