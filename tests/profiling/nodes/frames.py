"""HTTP/2 as bytes, made by hand."""

from __future__ import annotations

import struct

from paracosm.profiling.nodes.proxy import (
    DATA,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PREFACE,
    SETTINGS,
)


def frame(kind: int, payload: bytes = b"", *, stream: int = 0, flags: int = 0) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def settings(window: int | None = None) -> bytes:
    wanted = {} if window is None else {INITIAL_WINDOW_SIZE: window}
    return frame(SETTINGS, b"".join(struct.pack(">HI", *pair) for pair in wanted.items()))


def begun(window: int | None = None) -> bytes:
    return PREFACE + settings(window)


def asked(stream: int, request: bytes = b"") -> bytes:
    return frame(HEADERS, b"\x82", stream=stream) + data(stream, request, last=True)


def data(stream: int, payload: bytes, *, last: bool = False) -> bytes:
    return frame(DATA, payload, stream=stream, flags=END_STREAM if last else 0)


def trailers(stream: int) -> bytes:
    return frame(HEADERS, b"\x88", stream=stream, flags=END_STREAM)


def request_of(tensor: str) -> bytes:
    """Return a RecvTensorRequest as gRPC sends it: field 1 the step, field 2 the key."""
    key = f"/job:ps/device:CPU:0;00ab;/job:worker/device:CPU:0;{tensor};0:0".encode()
    message = b"\x08\x07\x12" + bytes([len(key)]) + key
    return b"\x00" + len(message).to_bytes(4) + message
