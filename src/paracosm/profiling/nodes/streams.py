"""What the streams of an HTTP/2 connection did: how much each sent in a turn, and its windows."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from paracosm.profiling.nodes.http2 import (
    ACK,
    DATA,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    RST_STREAM,
    SETTINGS,
    Frame,
    FrameReader,
    settings_of,
)

__all__ = ["STANDARD_WINDOW", "Stream", "StreamWatch"]

STANDARD_WINDOW = 65_535
"""Bytes of a stream that may come at first, unless a setting says otherwise (RFC 9113, 6.9.2)."""

_OPEN = 10_000  # streams that are followed at a time: more is nothing that frameworks do
_ENDED = 100_000  # that are remembered


@dataclass(frozen=True, slots=True)
class Stream:
    """A response that ended.

    Attributes:
        number: of the stream in its connection.
        request: the first 4 KiB that the client sent in it.
        size: bytes of the response.
        turns: bytes that it sent until another stream had its turn, one number a turn.
        stopped: whether its first turn ended when the window was full.
        window: bytes that the client let every stream send at first, when it asked for this one.
        last: instant at which its last byte came by, in the seconds of who watched.
    """

    number: int
    request: bytes
    size: int
    turns: tuple[int, ...]
    stopped: bool
    window: int
    last: float


@dataclass(slots=True)
class _Open:
    window: int
    request: bytes = b""
    size: int = 0
    turns: tuple[int, ...] = ()
    turn: int = 0
    last: float = 0.0


class StreamWatch:
    """Follows the responses of one connection, from the bytes of both sides.

    Attributes:
        ended: streams whose responses ended, in the order in which they did; the last 100,000.
        windows: (instant, bytes): when the client said what every stream may send at first.
    """

    def __init__(self) -> None:
        self.ended: list[Stream] = []
        self.windows: list[tuple[float, int]] = []
        self._client, self._server = FrameReader(client=True), FrameReader(client=False)
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._window = STANDARD_WINDOW
        self._sending: int | None = None

    def from_client(self, data: bytes | memoryview, now: float) -> None:
        """Take bytes that the client sent.

        Raises:
            InputError: they are no HTTP/2.
        """
        for frame in self._client.read(data):
            stream = self._open.get(frame.stream)
            if frame.kind == SETTINGS and not frame.flags & ACK:
                self._set(settings_of(frame).get(INITIAL_WINDOW_SIZE), now)
            elif frame.kind == HEADERS and stream is None:
                self._ask(frame.stream)
            elif frame.kind == DATA and stream is not None and not stream.request:
                stream.request = frame.payload
            elif frame.kind == RST_STREAM:
                self._open.pop(frame.stream, None)

    def from_server(self, data: bytes | memoryview, now: float) -> None:
        """Take bytes that the server sent.

        Raises:
            InputError: they are no HTTP/2.
        """
        for frame in self._server.read(data):
            stream = self._open.get(frame.stream)
            if stream is None:
                continue
            if frame.kind == DATA:
                self._sent(frame, stream, now)
            if frame.kind == RST_STREAM:
                del self._open[frame.stream]
            elif frame.kind in (DATA, HEADERS) and frame.flags & END_STREAM:
                self._end(frame.stream, self._open.pop(frame.stream))

    def _set(self, window: int | None, now: float) -> None:
        if window is None:
            return
        self._window = window
        if len(self.windows) < _ENDED:
            self.windows.append((now, window))

    def _ask(self, number: int) -> None:
        self._open[number] = _Open(self._window)
        if len(self._open) > _OPEN:
            self._open.popitem(last=False)

    def _sent(self, frame: Frame, stream: _Open, now: float) -> None:
        if self._sending not in (frame.stream, None):
            other = self._open.get(self._sending or 0)
            if other is not None:
                _end_turn(other)
        self._sending = frame.stream
        stream.last = now
        stream.size += frame.size
        stream.turn += frame.size

    def _end(self, number: int, stream: _Open) -> None:
        if not stream.size:
            return
        turns = (*stream.turns, stream.turn) if stream.turn else stream.turns
        if self._sending == number:
            self._sending = None
        if len(self.ended) >= _ENDED:
            del self.ended[: _ENDED // 2]
        self.ended.append(
            Stream(
                number=number,
                request=stream.request,
                size=stream.size,
                turns=turns,
                stopped=len(turns) > 1 and turns[0] >= stream.window,
                window=stream.window,
                last=stream.last,
            )
        )


def _end_turn(stream: _Open) -> None:
    stream.turns = (*stream.turns, stream.turn)
    stream.turn = 0
