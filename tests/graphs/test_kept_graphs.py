"""The graph of a built-in model is captured once, and kept in the user's cache folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.graphs.capture.record import capture_fake
from paracosm.graphs.summary import fingerprint

SMALL = CaptureOptions("mlp(hidden=8)", batch=2, optimizer="adam")


def kept(cache: Path) -> list[Path]:
    return list(cache.glob("paracosm/graphs-*/*.arrow"))


def test_a_kept_graph_is_the_captured_one_and_needs_no_pytorch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = capture(SMALL)
    (file,) = kept(tmp_path)
    expected = capture_fake(SMALL)
    assert fingerprint(first) == fingerprint(expected)
    program = (
        "import sys; from paracosm.graphs.capture import CaptureOptions, capture; "
        "from paracosm.graphs.summary import fingerprint; "
        f"graph = capture({SMALL!r}); print(fingerprint(graph), len(graph), 'torch' in sys.modules)"
    )
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | path, capture_output=True, text=True
    )
    assert done.stdout.split() == [fingerprint(expected), str(len(expected)), "False"], done.stderr
    file.write_bytes(file.read_bytes()[:-100])
    assert fingerprint(capture(SMALL)) == fingerprint(expected)
    assert capture(SMALL).provenance == expected.provenance


def test_what_is_not_of_this_package_alone_is_captured_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    own = tmp_path / "own.py"
    own.write_text("import torch\n\n\ndef make():\n    return torch.nn.Linear(4, 2)\n")
    options = CaptureOptions(f"{own}:make", batch=2, shape=(4,), train=False)
    narrow = capture(options)
    own.write_text(own.read_text().replace("4, 2", "4, 6"))
    assert fingerprint(capture(options)) != fingerprint(narrow)
    assert not kept(tmp_path)
