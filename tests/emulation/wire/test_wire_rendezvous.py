"""Real ranks of PyTorch's gloo meet emulated ones."""

from __future__ import annotations

import collections
import os
import socket
import struct
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from paracosm.emulation.records import Note
from paracosm.emulation.wire.connection import Pair, allow_open_files
from paracosm.emulation.wire.rendezvous import Rendezvous, check_version
from paracosm.emulation.wire.store import StoreClient
from paracosm.errors import InputError

TIMEOUT = 60.0
DEFAULT = "default_pg/0//cpu//0"
UNTOLD = "import torch.distributed as dist\n"
TELLING = f"""
{UNTOLD}from paracosm.emulation.rank.announce import tell_members

tell_members()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Job:
    """Real ranks that run a piece of code, and what the emulated ones saw of them."""

    world: int
    real: tuple[int, ...]
    pairs: list[Pair] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    printed: dict[int, str] = field(default_factory=dict)
    over: bool = False

    def run(self, code: str, over: bool = True, tells: bool = True, **environment: str) -> None:
        """Run a program as every real rank until all have ended, and the job is `over`."""
        address = ("127.0.0.1", free_port())
        rendezvous = Rendezvous(
            *(self.world, self.real, address, "127.0.0.1"),
            *(self.pairs.append, self.notes.append, TIMEOUT),
        )
        program = (TELLING if tells else UNTOLD) + textwrap.dedent(code)
        told = {"MASTER_ADDR": address[0], "MASTER_PORT": str(address[1])} | environment
        processes = {
            rank: subprocess.Popen(
                [sys.executable, "-c", program],
                env=os.environ | told | {"RANK": str(rank), "WORLD_SIZE": str(self.world)},
                stdout=subprocess.PIPE,
                text=True,
            )
            for rank in self.real
        }
        try:
            rendezvous.start()
            for rank, process in processes.items():
                self.printed[rank], _ = process.communicate(timeout=TIMEOUT)
                assert process.returncode == 0
            deadline = time.monotonic() + TIMEOUT
            while over and not rendezvous.over and time.monotonic() < deadline:
                time.sleep(0.01)
            self.over = rendezvous.over
        finally:
            for process in processes.values():
                process.kill()
                process.communicate()
            rendezvous.close()
            for pair in self.pairs:
                pair.socket.close()

    def connected(self, name: str) -> list[tuple[int, int]]:
        """Return the connections of a group, as (real, emulated), in the order they were made."""
        return [(pair.real, pair.emulated) for pair in self.pairs if pair.group.name == name]


@pytest.fixture(scope="module")
def groups() -> Job:
    """Rank 0 of 8 makes every kind of group; barriers through the store after each."""
    job = Job(8, (0,))
    job.run(
        """
        dist.init_process_group("gloo")
        dist.new_group([4, 0, 2])
        dist.new_group([1, 2])
        dist.new_group([0, 7], use_local_synchronization=True)
        dist.init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "tensor"))
        dist.destroy_process_group()
        dist.init_process_group("gloo")
        print("done")
        """,
        TORCH_DIST_INIT_BARRIER="1",
    )
    return job


def test_a_real_rank_makes_all_its_groups_and_goes(groups: Job) -> None:
    assert groups.printed == {0: "done\n"}
    assert not [note.text for note in groups.notes]
    assert groups.over


def test_each_emulated_member_is_connected_in_order(groups: Job) -> None:
    twice = [(0, i) for i in range(1, 8)] * 2  # the default group was made again
    assert groups.connected(DEFAULT) == twice
    assert groups.connected("default_pg/0//1//cpu//0") == [(0, 1), (0, 2)]
    assert groups.connected("default_pg/0//2//cpu//0") == []  # rank 0 is none of its members


def test_groups_say_what_is_known_of_them(groups: Job) -> None:
    by_name = {pair.group.name: pair.group for pair in groups.pairs}
    assert by_name[DEFAULT].members == tuple(range(8))
    assert by_name[DEFAULT].real == (0,)
    sub = by_name["default_pg/0//1//cpu//0"]
    assert (sub.size, sub.real, sub.members) == (3, (0,), (0, 2, 4))
    sizes = collections.Counter(group.size for group in by_name.values())
    assert sizes == {8: 1, 3: 1, 2: 2, 4: 1}  # default; [4,0,2]; [0,7] and data; tensor


def test_connections_are_open_and_do_not_block(groups: Job) -> None:
    assert all(not pair.socket.getblocking() for pair in groups.pairs)


@pytest.mark.parametrize("lazy", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_another_rank_is_real_and_rank_0_emulated(lazy: bool) -> None:
    job = Job(4, (2,))
    job.run(
        """
        dist.init_process_group("gloo")
        print(dist.get_rank(), dist.get_world_size())
        """,
        TORCH_GLOO_LAZY_INIT=str(int(lazy)),
    )
    assert job.printed == {2: "2 4\n"}
    assert job.connected(DEFAULT) == [(2, 0), (2, 1), (2, 3)]
    assert {pair.group.size for pair in job.pairs} == {4}
    assert not job.notes
    assert job.over


@pytest.mark.slow
def test_several_ranks_are_real() -> None:
    job = Job(5, (0, 3))
    job.run(
        """
        import torch

        dist.init_process_group("gloo")
        both = dist.new_group([0, 3])
        mine = torch.ones(1)
        dist.all_reduce(mine, group=both)
        one = dist.new_group([0, 1])
        other = dist.new_group([3, 4])
        print(mine.item())
        """,
    )
    assert job.printed == {0: "2.0\n", 3: "2.0\n"}
    emulated = (1, 2, 4)
    assert sorted(job.connected(DEFAULT)) == [(real, i) for real in (0, 3) for i in emulated]
    assert job.connected("default_pg/0//1//cpu//0") == []
    assert job.connected("default_pg/0//2//cpu//0") == [(0, 1)]
    assert job.connected("default_pg/0//3//cpu//0") == [(0, 1)]
    assert {pair.group.real for pair in job.pairs if pair.group.name == DEFAULT} == {(0, 3)}


@pytest.mark.slow
def test_lazy_groups_of_unknown_size_are_refused() -> None:
    job = Job(4, (0,))
    job.run(
        """
        import os, time

        dist.init_process_group("gloo")
        dist.new_group([0, 1])
        time.sleep(1)  # for the group to be seen
        os._exit(0)
        """,
        TORCH_GLOO_LAZY_INIT="1",
        over=False,
        tells=False,
    )
    assert [note.grave for note in job.notes] == [True]
    assert "group default_pg/0//1//cpu//0: with TORCH_GLOO_LAZY_INIT=1" in job.notes[0].text


@pytest.mark.slow
@pytest.mark.parametrize("world", [64, 1024])
def test_large_worlds_meet(world: int) -> None:
    job = Job(world, (0,))
    job.run(
        """
        import os

        dist.init_process_group("gloo")
        print("met", flush=True)
        os._exit(0)  # gloo itself takes seconds to close a thousand connections
        """
    )
    assert job.printed == {0: "met\n"}
    assert job.connected(DEFAULT) == [(0, i) for i in range(1, world)]


def test_a_real_rank_that_nobody_can_reach_is_said() -> None:
    notes: list[Note] = []
    port = free_port()
    rendezvous = start(2, (1,), port, notes)
    rendezvous.start()
    nobody = struct.pack("<HH4s", 2, 1, bytes((127, 0, 0, 1)))  # port 256
    value = bytes(8) + struct.pack("<Q", 136) + nobody.ljust(136, b"\0") + bytes(16)
    client = StoreClient(("127.0.0.1", port), TIMEOUT)
    client.set([(f"/{DEFAULT}/1", value)])
    wait_for(notes)
    rendezvous.close()
    client.close()
    assert [note.grave for note in notes] == [True]
    assert notes[0].text == (
        f"cannot connect to rank 1 of group {DEFAULT} at 127.0.0.1:256: Connection refused: "
        "if it is on another machine, set GLOO_SOCKET_IFNAME there"
    )


def test_another_layout_of_gloo_is_said() -> None:
    notes: list[Note] = []
    port = free_port()
    rendezvous = start(2, (1,), port, notes)
    rendezvous.start()
    client = StoreClient(("127.0.0.1", port), TIMEOUT)
    client.set([(f"/{DEFAULT}/1", bytes(8) + struct.pack("<Q", 28) + bytes(28))])
    wait_for(notes)
    rendezvous.close()
    client.close()
    assert [note.grave for note in notes] == [True]
    assert "136 bytes of address expected, not 28" in notes[0].text


def start(world: int, real: Sequence[int], port: int, notes: list[Note]) -> Rendezvous:
    def put(pair: Pair) -> None:
        raise AssertionError("nobody came")

    address = ("127.0.0.1", port)
    return Rendezvous(world, real, address, "127.0.0.1", put, notes.append, TIMEOUT)


def wait_for(notes: list[Note]) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not notes and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_port_in_use_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"port: {port} is in use on 127.0.0.1"):
            start(4, (1,), port, [])


def test_a_server_of_something_else_is_said() -> None:
    notes: list[Note] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        rendezvous = start(4, (0,), port, notes)
        rendezvous.start()
        came, _ = listening.accept()
        came.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        wait_for(notes)
        rendezvous.close()
        came.close()
    assert [note.grave for note in notes] == [True]
    assert f"127.0.0.1:{port} is not a store of PyTorch" in notes[0].text


def test_it_ends_at_once_though_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        rendezvous = start(4, (0,), silent.getsockname()[1], [])
        rendezvous.start()
        came, _ = silent.accept()
        began = time.monotonic()
        rendezvous.close()
        assert time.monotonic() - began < TIMEOUT / 4
        came.close()


def test_too_many_connections_are_said() -> None:
    with pytest.raises(InputError, match="10,000,000 connections need 10,000,128 open files"):
        allow_open_files(10_000_000)


def test_a_version_that_nobody_tried_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.13.1+cpu")
    assert check_version() is None
    monkeypatch.setattr("importlib.metadata.version", lambda name: "3.130.0")
    warning = check_version()
    assert warning is not None
    assert not warning.grave
    assert "PyTorch 3.130.0: mode wire is tested with 2.13" in warning.text
