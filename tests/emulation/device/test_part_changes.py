"""What-ifs about kernels, copies and the host, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from recordings import iterations, recording

from paracosm.cluster.changes import parse_change
from paracosm.emulation.device.config import DeviceEmulateConfig
from paracosm.emulation.device.durations import DeviceDurations
from paracosm.emulation.device.part_changes import check_collectives, with_changed_parts
from paracosm.emulation.device.program import HostCosts
from paracosm.emulation.device.recording import OP
from paracosm.errors import InputError

NAMES = ("aten.mm.default", "aten.add.Tensor", "aten._flash_attention", "copy HtoD")
CLASSES = ("product", "elementwise", "attention", "copy")
RECORDING = recording(iterations([(OP, 0, name) for name in NAMES]))
DURATIONS = DeviceDurations(np.array([4.0, 2.0, 8.0, 1.0]), CLASSES, (1.0, 1.0), {})
HOST = HostCosts(5e-6, 10e-6)


def changed(*texts: str) -> tuple[list[float], HostCosts]:
    changes = [parse_change(text) for text in texts]
    (durations,), host = with_changed_parts([RECORDING], [DURATIONS], HOST, changes)
    return durations.seconds.tolist(), host


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("kernel attention: 2x faster", [4, 2, 4, 1]),
        ("kernel product: 3x slower", [12, 2, 8, 1]),
        ("kernel aten.a*: none", [4, 0, 8, 1]),
        ("copies: none", [4, 2, 8, 0]),
        ("compute: none", [0, 0, 0, 1]),
    ],
)
def test_changes_of_ops(text: str, seconds: list[float]) -> None:
    assert changed(text) == (seconds, HOST)


def test_changes_of_the_host_and_several_at_once() -> None:
    seconds, host = changed("host: 2x faster", "kernel mm: 2x slower", "kernel product: 2x slower")
    assert host == HostCosts(2.5e-6, 5e-6)
    assert seconds == [16, 2, 8, 1]


def test_what_nothing_is_called_is_said() -> None:
    with pytest.raises(InputError, match='unknown kernel "atention": did you mean'):
        changed("kernel atention: 2x faster")


def test_collectives_that_there_are_not_are_said() -> None:
    with pytest.raises(InputError, match="has no effect: the script has no collectives"):
        check_collectives([RECORDING], [parse_change("all_reduce: +1 ms")])


@pytest.mark.parametrize(
    "text", ["worker 1: kernel mm: 2x slower", "worker 1: host 2x slower", "data loading: none"]
)
def test_what_is_of_one_worker_or_unknown_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="what_if"):
        DeviceEmulateConfig.model_validate(
            {"hardware": "h100-sxm", "script": __file__, "world_size": 2, "what_if": [text]}
        ).check()
