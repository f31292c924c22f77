"""Which stream is which tensor, and what TensorFlow makes of them where it is installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from frames import request_of

from paracosm.errors import InputError, MissingExtraError
from paracosm.profiling.nodes.parsing import (
    PARSING_SIZES,
    measure_transfers,
    overheads_of,
    tensor_of,
)
from paracosm.profiling.nodes.proxy import Stream

FIRST, SECOND = "edge_4_fetched0/ReadVariableOp", "edge_6_fetched1/ReadVariableOp"
HAS_TENSORFLOW = find_spec("tensorflow") is not None


def stream(request: bytes, last: float) -> Stream:
    return Stream(1, request, 100, (100,), False, 65_535, last)


@pytest.mark.parametrize(
    ("request_bytes", "tensor"),
    [
        (request_of(FIRST), FIRST),
        (request_of("loss"), None),
        (b"", None),
        (b"\0\0\0\0\2\x08\x07", None),
        (b"\0\0\0\0\3\xff\xff\xff", None),
        (request_of(FIRST)[:20], None),
    ],
)
def test_a_tensor_is_read_from_the_request(request_bytes: bytes, tensor: str | None) -> None:
    assert tensor_of(stream(request_bytes, 0.0)) == tensor


def test_the_overhead_is_from_the_last_byte_to_the_end() -> None:
    streams = [
        stream(request_of(FIRST), 10.0),
        stream(b"something else", 10.5),
        stream(request_of(SECOND), 11.0),
        stream(request_of(FIRST), 20.0),
        stream(request_of(SECOND), 21.0),
    ]
    ended = [{FIRST: 20.25}, {SECOND: 11.5}, {FIRST: 10.125}]
    assert overheads_of(streams, ended) == {0: [0.25, 0.125], 1: [0.5]}


def test_a_tensor_that_did_not_go_by_is_refused() -> None:
    with pytest.raises(InputError, match="received edge_6_fetched1/ReadVariableOp, and no stream"):
        overheads_of([stream(request_of(FIRST), 1.0)], [{SECOND: 2.0}])


@pytest.mark.skipif(HAS_TENSORFLOW, reason="TensorFlow is installed")
def test_without_tensorflow_its_installation_is_named() -> None:
    with pytest.raises(MissingExtraError, match=r"paracosm\[tensorflow\]"):
        measure_transfers()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TENSORFLOW, reason="needs TensorFlow")
def test_tensorflow_announces_windows_and_parses_for_longer_what_is_larger() -> None:
    seen = measure_transfers(repeats=5)
    assert set(seen.parsing.seconds) <= set(PARSING_SIZES)
    assert seen.parsing.alpha > 0
    assert seen.window >= 65_535
    seconds = seen.parsing.seconds
    assert seconds[PARSING_SIZES[-1]] > seconds[PARSING_SIZES[0]]
    assert len(seen.streams) == 10 * len(PARSING_SIZES)
    assert {sum(each.turns) == each.size for each in seen.streams} == {True}
