"""What is read from, and written to, the store of a job: layouts and names."""

from __future__ import annotations

import contextlib
import json
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.emulation.wire.protocol import AddressError, emulated_address, read_address
from paracosm.emulation.wire.rendezvous import Membership
from paracosm.emulation.wire.store import (
    AgentError,
    address_key,
    answer_agents,
    find_address,
    find_members,
    group_name,
    is_default,
    is_device_group,
    is_role_key,
    members_key,
    read_members,
)

# What rank 0 of 4 wrote on a machine called "vm": the tail of the sockaddr_storage is not cleared.
WRITTEN = bytes.fromhex(
    "0200000000000000766d88000000000000000200a2a37f0000010000000000000000743ed01dff7f"
    "00001a111095277f0000470400000000000050f1a094277f000010e30e95277f0000783ed01dff7f"
    "0000743ed01dff7f0000103fd01dff7f0000803ed01dff7f000000a6cc313aaa2e8d000000000000"
    "000080ffffffffffffff730000000000000062db5786277f0000ffffffffffffffff000000000000"
    "0000010000000000000002000000000000000300000000000000"
)


def test_an_address_of_gloo_is_read() -> None:
    found = read_address(WRITTEN)
    assert (found.family, found.host, found.port) == (socket.AF_INET, "127.0.0.1", 0xA2A3)
    assert found.connections == (0, 1, 2, 3)


def test_without_numbers_a_connection_is_known_by_its_rank() -> None:
    assert read_address(WRITTEN[:-32]).connections == ()


def test_an_address_of_ipv6_is_read() -> None:
    storage = struct.pack("<H", socket.AF_INET6) + struct.pack(">H", 4711) + bytes(4)
    storage += socket.inet_pton(socket.AF_INET6, "fe80::7")
    value = WRITTEN[:18] + storage.ljust(128, b"\xaa") + WRITTEN[146:]
    found = read_address(value)
    assert (found.family, found.host, found.port) == (socket.AF_INET6, "fe80::7", 4711)


@given(st.sampled_from([socket.AF_INET, socket.AF_INET6]), st.integers(0, 2000))
def test_the_address_of_an_emulated_rank_has_the_layout_and_is_the_largest(
    family: int, connections: int
) -> None:
    value = emulated_address(family, connections)
    assert len(value) == len(WRITTEN) - 32 + len("emulated") - len("vm") + 8 * connections
    found = read_address(value)
    assert found.family == family
    assert len(found.connections) == connections
    assert found.port == 65535
    assert set(socket.inet_pton(found.family, found.host)) == {255}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "a length of the host name expected at byte 0, but there are 0 bytes"),
        (b"\xff" * 200, "a length of the host name up to 255 expected"),
        (WRITTEN[:40], "numbers of 8 bytes expected after the address"),
        (WRITTEN[:10] + struct.pack("<Q", 28) + WRITTEN[18:], "136 bytes of address expected"),
        (WRITTEN[:-3], "numbers of 8 bytes expected after the address, not 29 bytes"),
        (WRITTEN[:18] + b"\x01\x00" + WRITTEN[20:], "an IPv4 or IPv6 address expected"),
    ],
)
def test_another_layout_says_what_was_expected(value: bytes, said: str) -> None:
    with pytest.raises(AddressError) as caught:
        read_address(value)
    assert said in str(caught.value)


@given(st.binary(max_size=400))
def test_garbage_is_an_address_or_refused(value: bytes) -> None:
    with contextlib.suppress(AddressError):
        found = read_address(value)
        assert found.family in (socket.AF_INET, socket.AF_INET6)


@pytest.mark.parametrize(
    ("key", "group", "rank", "name", "default"),
    [
        ("/default_pg/0//cpu//0/3", "default_pg/0//cpu//0", 3, "0", True),
        ("/default_pg/0//cpu//1/12", "default_pg/0//cpu//1", 12, "0", True),
        ("/0//cpu//0/3", "0//cpu//0", 3, "0", False),  # a store that the script brings itself
        ("/mine/0//1//cpu//0/3", "mine/0//1//cpu//0", 3, "1", False),
        ("/default_pg/0//7//cpu//0/1", "default_pg/0//7//cpu//0", 1, "7", False),
        ("/default_pg/0//9af//cuda//0/0", "default_pg/0//9af//cuda//0", 0, "9af", False),
        (
            *(
                "//worker/attempt_0/default_pg/0//cpu//0/2",
                "/worker/attempt_0/default_pg/0//cpu//0",
            ),
            *(2, "0", True),
        ),
    ],
)
def test_keys_of_addresses(key: str, group: str, rank: int, name: str, default: bool) -> None:
    assert find_address(key) == (group, rank)
    assert address_key(group, rank) == key
    assert group_name(group) == name
    assert is_default(group) is default
    assert is_device_group(group)


@pytest.mark.parametrize(
    "key", ["init/", "/default_pg/store_based_barrier_key:0", "/none/torchelastic/role_info/0"]
)
def test_other_keys_are_no_addresses(key: str) -> None:
    assert find_address(key) is None


def test_numbered_keys_of_somebody_else_are_left_alone() -> None:
    found = find_address("/my/shards/3/4")
    assert found is not None
    group = Membership(found[0], (), (0,))
    assert not group.learn(found[1], b"whatever")


def test_a_changed_layout_of_gloo_is_an_error() -> None:
    group = Membership("default_pg/0//cpu//0", (0, 1), (0,))
    with pytest.raises(AddressError, match="rank 0 of group default_pg/0//cpu//0 is not as gloo"):
        group.learn(0, b"whatever")


def test_who_is_real_is_known_from_the_members() -> None:
    group = Membership("default_pg/0//4//cpu//0", (1, 3, 5, 7), (0, 5, 7))
    assert group.learn(3, WRITTEN)
    assert group.real_members() == (2, 3)
    assert group.size == 4


def test_who_is_real_is_otherwise_who_comes() -> None:
    group = Membership("default_pg/0//4//cpu//0", (), (5,))
    assert group.learn(2, WRITTEN)
    assert group.real_members() == (2,)
    assert group.size == 4
    group.served = frozenset((0, 1, 3))
    assert not group.learn(1, emulated_address(socket.AF_INET, 3))


def test_a_key_tells_the_members_of_a_group() -> None:
    assert find_members("/default_pg/" + members_key("9af")) == "9af"
    assert find_members("/default_pg/0//9af//cpu//0/3") is None
    assert find_address("/default_pg/" + members_key("3")) is None


def role(agent: int, each: int) -> bytes:
    return json.dumps({"role": "default", "rank": agent, "local_world_size": each}).encode()


@pytest.mark.parametrize("value", [b"", b"5", b"[0, 4]", b"[-1]", b"[true]", b"[" * 100_000])
def test_members_that_are_none_are_refused(value: bytes) -> None:
    assert read_members(b"[2, 0]", 4) == (2, 0)
    with pytest.raises(AddressError, match="a list of ranks below 4, not b"):
        read_members(value, 4)


def test_a_rank_of_thousands_of_digits_is_none() -> None:
    assert find_address("/default_pg/0//cpu//0/" + "9" * 5000) is None


def test_agents_of_torchrun_when_agent_0_is_real() -> None:
    key = "/none/torchelastic/role_info/0"
    assert is_role_key(key)
    answer = answer_agents(6, (0, 1), key, role(0, 2))
    assert dict(answer.items) == {
        "/none/torchelastic/role_info/1": role(1, 2),
        "/none/torchelastic/role_info/2": role(2, 2),
    }
    assert answer.barrier == "/none/torchelastic/agent/terminal_state/num_members"
    assert answer.agents == 2


def test_agents_of_torchrun_when_agent_0_gives_the_ranks() -> None:
    answer = answer_agents(6, (2, 3), "/x/torchelastic/role_info/1", role(1, 2))
    items = dict(answer.items)
    assert items["/x/torchelastic/role_info/0"] == role(0, 2)
    # as agent 0 would: first rank, ranks, first rank of the role, ranks of the role
    assert json.loads(items["/x/torchelastic/assigned_ranks/1"]) == [2, 6, 2, 6]
    assert json.loads(items["/x/torchelastic/assigned_ranks/2"]) == [4, 6, 4, 6]


@pytest.mark.parametrize(
    ("world", "real", "value", "said"),
    [
        (4, (0,), role(0, 2), "torchrun starts ranks 0 to 1 on one machine, but real are 0"),
        (4, (0,), role(0, 3), "torchrun has 3 ranks on each machine, which do not make 4 ranks"),
        (4, (0,), role(0, 0), "torchrun has 0 ranks on each machine"),
        (4, (0,), b"[]", "a role and a local_world_size expected"),
        (4, (0,), b"\xff", "a role and a local_world_size expected"),
        (4, (0,), b"[" * 100_000, "a role and a local_world_size expected"),
        (4, (0,), b'{"role": 1, "local_world_size": Infinity}', "a role and a local_world_size"),
    ],
)
def test_agents_that_make_no_sense(
    world: int, real: tuple[int, ...], value: bytes, said: str
) -> None:
    with pytest.raises(AgentError) as caught:
        answer_agents(world, real, "/none/torchelastic/role_info/0", value)
    assert said in str(caught.value)
