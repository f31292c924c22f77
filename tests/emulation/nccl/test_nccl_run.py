"""`paracosm emulate --nccl`: where it can run, and a whole run on the fake device."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paracosm.emulation.check import check_emulation
from paracosm.emulation.compiled_c import compiled
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.job import run_job
from paracosm.emulation.nccl import build
from paracosm.emulation.nccl.rank import missing_keys
from paracosm.emulation.rank.launched import launch_from
from paracosm.emulation.records import Collective
from paracosm.errors import InputError

HERE = Path(__file__).parent


def config_of(**fields: object) -> EmulateConfig:
    script = HERE / "nccl_program.py"
    return EmulateConfig.model_validate(
        {"script": script, "world_size": 4, "nccl": True, "output": "none", **fields}
    )


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Path:
    device = compiled(HERE, ("fake_cuda.c",), ("-fvisibility=default", "-DREAL_TIME"))
    monkeypatch.setenv(build.DRIVER, str(device))
    return device


def test_a_machine_without_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build.DRIVER, "libcuda-that-nobody-has.so.1")
    with pytest.raises(InputError, match=r"no GPU: the CUDA driver, libcuda-that.*not installed"):
        check_emulation(config_of())


def test_a_driver_without_a_device_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "none.c").write_text("int cuInit(unsigned flags) { return flags + 100; }\n")
    device = compiled(tmp_path, ("none.c",), ("-fvisibility=default",))
    monkeypatch.setenv(build.DRIVER, str(device))
    with pytest.raises(InputError, match=r"no GPU: .* finds none \(CUDA error 100\)"):
        check_emulation(config_of())


def test_a_machine_without_a_compiler_is_refused(
    fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"no C compiler .*: install gcc"):
        check_emulation(config_of())


def test_the_compiler_is_taken_at_its_word(tmp_path: Path) -> None:
    (tmp_path / "wrong.c").write_text("int of(void) { return none; }\n")
    with pytest.raises(InputError, match=r"cannot compile wrong\.c"):
        compiled(tmp_path, ("wrong.c",))


def test_it_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = build.shim()
    before = first.stat().st_mtime_ns
    assert build.shim() == first
    assert first.stat().st_mtime_ns == before
    assert first.parent == tmp_path / "paracosm"


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"mode": "wire"}, "nccl: has no effect, leave it out: it is mode backend's"),
        ({"comm_workers": 2}, "comm_workers: has no effect, leave it out: with nccl"),
    ],
)
def test_what_would_have_no_effect_is_refused(fields: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        config_of(**fields)


def test_a_launch_line_of_ones_own_is_refused() -> None:
    with pytest.raises(InputError, match=r"PARACOSM_NCCL: .* paracosm emulate --nccl"):
        launch_from({"PARACOSM_WORLD_SIZE": "4", "PARACOSM_NCCL": "1"}, "")


def test_keys_that_other_ranks_would_set() -> None:
    assert missing_keys(0, 4) == ["UniqueNCCLID:0"]
    found = missing_keys(2, 300)
    assert found[:2] == ["0", "1"]
    assert found[-5:] == ["UniqueNCCLID:0", "UniqueNCCLID:1", "UniqueNCCLID:2", "0:2", "1:2"]


def test_a_whole_run(fake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    multiply = compiled(Path(build.__file__).parent, ("multiply.c",), ("-fvisibility=default",))
    monkeypatch.setenv(build.KERNELS, str(multiply))
    monkeypatch.setenv("PYTHONPATH", f"{HERE}:{Path(build.__file__).parents[3]}")
    heard: list[object] = []
    config = config_of(bandwidth="8Gbit/s", latency="100us", algorithm="ring")
    check_emulation(config)
    ended = run_job(config, 0, tmp_path, heard.extend)
    assert ended.exit_code == 0, heard
    found = [each for each in heard if isinstance(each, Collective)]
    assert len(found) == 5
    assert {(each.kind, each.size, each.group) for each in found} == {("all_reduce", 10**6, "0")}
    modelled = 1.5e-3 + 6 * 100e-6  # a megabyte over a ring of four
    lasted = np.array([each.done - each.begun for each in found])
    assert (lasted >= modelled - 1e-8).all()
    assert lasted.min() < modelled + 0.1  # others may have the processors


def test_the_shim_takes_the_place_of_nccl_for_the_loader(tmp_path: Path) -> None:
    """A program that asks for libnccl.so.2, which is not here, finds the one that is preloaded."""
    (tmp_path / "empty.c").write_text("int ncclGetVersion(int *version) { return *version = 1; }\n")
    named = ("-Wl,-soname,libnccl.so.2", "-fvisibility=default")
    real = compiled(tmp_path, ("empty.c",), named)
    (tmp_path / "libnccl.so.2").symlink_to(real)
    (tmp_path / "uses.c").write_text(
        "int ncclGetVersion(int *); int version(void) { int v; return ncclGetVersion(&v), v; }\n"
    )
    linked = (
        "-Wl,--no-as-needed",
        f"-Wl,-rpath,{tmp_path}",
        str(tmp_path / "libnccl.so.2"),
        "-fvisibility=default",
    )
    user = compiled(tmp_path, ("uses.c",), linked)
    program = f"import ctypes; print(ctypes.CDLL({str(user)!r}).version())"

    def version(**environment: str) -> str:
        run = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return run.stdout.strip()

    assert version() == "1"
    assert version(LD_PRELOAD=str(build.shim())) == "22907"


def test_the_kernel_runs_on_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC needs no GPU; where it is installed it compiles the kernel for what is in use."""
    try:
        nvrtc = ctypes.CDLL("libnvrtc.so.13")
    except OSError:
        pytest.skip("NVRTC (libnvrtc.so.13) is not installed: the kernel is tested as C alone")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for capability in ((7, 5), (8, 0), (9, 0), (10, 0)):
        assert build.kernels(nvrtc, capability).read_bytes()[:4] == b"\x7fELF"
