"""`paracosm emulate serve` as its users call it: beside real ranks that they start themselves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.studies import RunFolder

TIMEOUT = 90.0
PARACOSM = [sys.executable, "-c", "import sys; from paracosm.cli import main; sys.exit(main())"]
DDP = """
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())  # DDP gives every rank the parameters of rank 0
layers = torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
model = DistributedDataParallel(torch.nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = torch.Generator().manual_seed(7)
for _ in range(4):
    x = torch.randn(16, 20, generator=data)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
"""
OF_RANK_0 = """
told = ["of rank 0"] if dist.get_rank() == 0 else [None]
dist.broadcast_object_list(told, 0)
part = torch.empty(1)
parts = [torch.full((1,), float(rank)) for rank in range(4)] if dist.get_rank() == 0 else None
dist.scatter(part, parts, 0)
print(told, part.item() - dist.get_rank())
"""
END = "dist.destroy_process_group()"


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("serve") / "ddp.py"
    path.write_text(DDP + OF_RANK_0 + END)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(port: int, *flags: object) -> subprocess.Popen[str]:
    """Start the emulator of a world of 4."""
    said = ["emulate", "serve", "--world-size", "4", "--port", str(port), *map(str, flags)]
    return subprocess.Popen([*PARACOSM, *said], stdout=subprocess.PIPE, text=True)


def by_hand(rank: int, port: int, script: Path) -> str:
    """Run a script as a real rank, and return what it prints."""
    told = {"RANK": rank, "WORLD_SIZE": 4, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    told["PARACOSM_SERVED"] = port
    return run([sys.executable, str(script)], {key: str(value) for key, value in told.items()})


def torchrun(node: int, port: int, script: Path) -> str:
    flags = ["--nnodes=4", f"--node-rank={node}", "--nproc-per-node=1"]
    where = ["--master-addr=127.0.0.1", f"--master-port={port}"]
    command = [sys.executable, "-m", "torch.distributed.run", *flags, *where, str(script)]
    return run(command, {"PARACOSM_SERVED": str(port)})


def run(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0
    return done.stdout


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    """Return what the emulator printed once it has ended by itself."""
    try:
        printed, _ = process.communicate(timeout=TIMEOUT)
        assert process.returncode == code
        return printed
    finally:
        process.kill()
        process.communicate()


def test_a_rank_started_by_hand_runs_to_its_end(script: Path, tmp_path: Path) -> None:
    port = free_port()
    server = serve(port, "--out", tmp_path / "run", "--communication", "none")
    printed = by_hand(0, port, script)
    assert printed.splitlines()[-1] == "['of rank 0'] 0.0"
    said = ended(server)
    by_hand_line = f"MASTER_ADDR=127.0.0.1 MASTER_PORT={port} python train.py"
    assert f"PARACOSM_SERVED={port} RANK=0 WORLD_SIZE=4 {by_hand_line}" in said
    assert (
        f"PARACOSM_SERVED={port} torchrun --nnodes=4 --node-rank=0 --nproc-per-node=1 "
        f"--master-addr=127.0.0.1 --master-port={port} train.py"
    ) in said
    folder = RunFolder.open(tmp_path / "run")
    assert folder.status == "done"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["collectives"]["all_reduce"]["count"] == 4
    assert summary["collectives"]["scatter"]["count"] == 1
    assert summary["emulator"]["messages"] > 0
    assert summary["exit_code"] is None
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.parametrize(
    ("sign", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)],
)
def test_an_interrupt_ends_it_in_good_order(sign: int, code: int, tmp_path: Path) -> None:
    server = serve(free_port(), "--out", tmp_path / "run")
    assert server.stdout is not None
    try:
        assert any("Ctrl-C stops at once" in line for line in server.stdout)
        server.send_signal(sign)
        server.communicate(timeout=TIMEOUT)
    finally:
        server.kill()
        server.communicate()
    assert server.returncode == code
    assert RunFolder.open(tmp_path / "run").status == "interrupted"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--port", 4711), "missing number of ranks: add --world-size 16"),
        (("--world-size", 4, "--rank", 4), "rank: a world of 4 has ranks 0 to 3, not 4"),
        (("--world-size", 2, "--rank", "0,1"), "rank: all 2 ranks are real"),
        (("--world-size", 4, "--port", 70000), "port"),
        (("--world-size", 4, "--json", "--quiet"), "--json and --quiet exclude each other"),
        (("--world-size", 4, "--force"), "give --out as well"),
        (("--world-size", 4, "--rank", 1, "--host", "0.0.0.0"), "add --listen if you want that"),
        (("--world-size", 4, "--rank", 1, "--listen"), "--listen has no effect: add --host"),
        (("--world-size", 4, "--host", "0.0.0.0", "--listen"), "serves the store, is real"),
        (("--world-size", 4, "--what-if", "worker 9: compute 2x slower"), "workers 0 to 3, not 9"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(
    flags: tuple[object, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["emulate", "serve", *map(str, flags)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1


def test_a_port_in_use_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ("--world-size", "4", "--rank", "1", "--port", str(port), "--quiet")
        assert main(["emulate", "serve", *flags]) == 2
    assert f"port: {port} is in use on 127.0.0.1" in capsys.readouterr().err


@pytest.mark.slow
def test_other_ranks_than_0_are_real(tmp_path: Path) -> None:
    script = tmp_path / "ddp.py"
    script.write_text(DDP + END)
    for rank, start in ((1, by_hand), (3, by_hand), (1, torchrun)):
        port = free_port()
        server = serve(port, "--quiet", "--rank", rank)
        assert start(rank, port, script).count("loss") == 4
        ended(server)


@pytest.mark.slow
def test_torchrun_starts_one_machine_of_four(script: Path) -> None:
    port = free_port()
    server = serve(port, "--quiet")
    assert torchrun(0, port, script).splitlines()[-1] == "['of rank 0'] 0.0"
    ended(server)
