"""Frames of HTTP/2, whole, in pieces and malformed."""

from __future__ import annotations

import pytest
from frames import begun, data, frame, settings
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.profiling.nodes.proxy import (
    DATA,
    INITIAL_WINDOW_SIZE,
    PREFACE,
    SETTINGS,
    Frame,
    FrameReader,
    settings_of,
)


def test_several_frames_in_one_segment() -> None:
    frames = list(FrameReader(client=True).read(begun(1 << 22) + data(3, b"abc", last=True)))
    assert [each.kind for each in frames] == [SETTINGS, DATA]
    assert settings_of(frames[0]) == {INITIAL_WINDOW_SIZE: 4_194_304}
    assert frames[1] == Frame(DATA, 1, 3, 3, b"abc")


@given(
    payloads=st.lists(st.binary(max_size=40), max_size=6),
    cuts=st.lists(st.integers(0, 300), max_size=20),
)
def test_frames_are_the_same_however_they_are_cut(payloads: list[bytes], cuts: list[int]) -> None:
    sent = settings(99) + b"".join(data(1, each) for each in payloads)
    whole = list(FrameReader(client=False).read(sent))
    reader, pieces, at = FrameReader(client=False), [], 0
    for cut in [*sorted(cuts), len(sent)]:
        pieces += list(reader.read(memoryview(sent)[at:cut]))
        at = max(at, min(cut, len(sent)))
    assert pieces == whole
    assert [each.payload for each in whole[1:]] == payloads


def test_a_frame_of_16_mib_is_counted_and_not_kept() -> None:
    reader, piece = FrameReader(client=False), bytes(1 << 16)
    size = (1 << 24) - 1
    list(reader.read(settings()))
    head = size.to_bytes(3) + bytes([DATA, 0]) + (5).to_bytes(4)
    found = list(reader.read(head))
    for _ in range(size // len(piece)):
        found += list(reader.read(piece))
    assert found == []
    found = list(reader.read(bytes(size % len(piece)) + data(5, b"next")))
    assert [(each.size, len(each.payload)) for each in found] == [(size, 4096), (4, 4)]


@pytest.mark.parametrize(
    ("client", "sent", "why"),
    [
        (True, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "does not begin with PRI"),
        (True, b"\x16\x03\x01\x02\x00" * 20, "does not begin with PRI"),
        (True, PREFACE + data(1, b"x"), "the first frame is of kind 0"),
        (False, b"SSH-2.0-OpenSSH_9.6\r\n", "the first frame is of kind"),
        (False, frame(SETTINGS, b"12345"), "SETTINGS of 5 bytes"),
        (False, frame(SETTINGS, bytes(6000)), "SETTINGS of 6000 bytes"),
        (False, settings() + frame(8, b"123", stream=1), "WINDOW_UPDATE of 3 bytes, not 4"),
        (False, settings() + frame(DATA, b"x"), "a frame of kind 0 on stream 0"),
    ],
)
def test_what_is_no_http2_is_refused(client: bool, sent: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        list(FrameReader(client=client).read(sent))
    assert "\n" not in str(caught.value)
