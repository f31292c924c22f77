"""Operations of ten recorded trainings: PyTorch's own counter, and arithmetic for attention."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from scripts import ten_trainings as ten
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from paracosm.cli.app import main
from paracosm.emulation.device.recording import OP, Recording, load_recording
from paracosm.profiling.datasheets import COUNTED, class_of

SCRIPT = Path(ten.__file__)
SCORES = ten.BATCH * ten.HEADS * ten.LENGTH**2 * (ten.WIDTH // ten.HEADS)
# Two products of 2 flops forward and five backward; of causal ones half.
FORWARD, BACKWARD = 4 * SCORES * ten.LAYERS, 10 * SCORES * ten.LAYERS
ATTENTION = {
    ten.transformer: (FORWARD + BACKWARD) // 2,
    ten.recomputing: (2 * FORWARD + BACKWARD) // 2,
    ten.seeing_all: FORWARD + BACKWARD,
    ten.in_short_numbers: (FORWARD + BACKWARD) // 2,
}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("runs") / "ten"
    command = ["emulate", "--hardware", "h100-sxm", "--world-size", "1", "--out", str(folder)]
    count = str(len(ten.TRAININGS))
    assert main([*command, "--iterations", count, "--output", "none", str(SCRIPT)]) == 0
    return load_recording(folder / "device.parquet")


@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.parametrize("number", range(len(ten.TRAININGS)))
def test_operations_are_those_of_pytorch_s_counter(
    number: int, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = ten.TRAININGS[number]
    iteration = recording.iteration(number)
    found = {"attention": 0, "product": 0}
    for code in iteration.code[iteration.kind == OP].tolist():
        op = recording.ops[code]
        kind = class_of(op.name)
        if kind in COUNTED:
            found["attention" if kind == "attention" else "product"] += op.flops
    assert found["attention"] == ATTENTION.get(training, 0)
    assert found["product"] == counted(training, monkeypatch) > 0


def counted(training: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """Count on a device without numbers, with sums of equal shapes in place of attention."""
    attention = "scaled_dot_product_attention"
    monkeypatch.setattr(functional, attention, lambda q, k, v, is_causal: q + k + v)
    counter: Any = FlopCounterMode(display=False)
    with counter, torch.device("meta"):
        training("meta").backward()
    return int(counter.get_total_flops())
