"""Compressed messages, computed on first use, in the order in which clients sent them. The client
keeps the compression error of a message. So every message counts, even one that is dropped or lost:
its client considers it sent, and its gradient is computed.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paracosm.cluster.collectives import ring_all_gather, ring_all_reduce
from paracosm.cluster.link import Link
from paracosm.rng import TrainingStream, generator
from paracosm.training.compression.codecs import AS_IT_IS, FLOAT, Codec, Shapes, elements
from paracosm.training.numerics.store import Deferred, Gradient, Numerics, Part

if TYPE_CHECKING:
    from numpy.random import Generator

Memory = defaultdict[int, dict[int, Any]]
"""What a codec keeps, by part of a message."""

WHOLE, BESIDE, FIRST_PART = range(3)
"""Streams of messages, each with errors of its own: of all parameters; of what is sent beside them;
of the first part by itself, behind which the other parts come."""


class Compression:
    """The compression of the messages of one run.

    Attributes:
        sizes: bytes of the message of each part of the parameters. Where messages were given a
            size, in proportion to it.
    """

    def __init__(self, codec: Codec, numerics: Numerics, seed: int, is_shared: bool) -> None:
        """Compress for servers or, `is_shared`, for all-reduces.

        Raises:
            InputError: the codec makes no sense for the tensors of the model.
        """
        self.codec = codec
        self._seed = seed
        self._is_shared = is_shared
        self._is_real = numerics.real
        self._parts = numerics.parts
        self._shapes = numerics.shapes
        self._whole = numerics.sizes
        codec.check([shape for part in self._shapes for shape in part])
        self._rounds: dict[Codec, list[list[float]]] = {}
        self.sizes = self.sizes_at(sys.maxsize)
        self._outboxes: dict[tuple[int, int], _Outbox] = {}  # of clients that have sent, by stream
        self._memories: defaultdict[int, Memory] = defaultdict(_new_memory)  # of all, by stream

    def sizes_at(self, updates: int) -> tuple[float, ...]:
        """Return the bytes of the messages of each part that know of so many updates."""
        return tuple(map(sum, self._rounds_at(updates)))

    def _rounds_at(self, updates: int) -> list[list[float]]:
        """Return bytes by part and round."""
        codec = self.codec.at(updates)
        if codec not in self._rounds:
            self._rounds[codec] = [
                [bits / (FLOAT * elements(shapes)) * size for bits in codec.bits(shapes)]
                for shapes, size in zip(self._shapes, self._whole, strict=True)
            ]
        return self._rounds[codec]

    def message(
        self, client: int, payload: Any, stream: int = WHOLE, updates: int = sys.maxsize
    ) -> Any:
        """Return the message of a client for a gradient, or a vector of the same form.

        The client knows of so many updates. In a stream from `FIRST_PART` on, the vector is that of
        one part. In timing-only mode the payload is sent as it is.
        """
        if not self._is_real:
            return payload
        outbox = self._outboxes.get((client, stream))
        if outbox is None:
            made = _Outbox(self.codec, client, stream, self._seed, self._is_shared)
            outbox = self._outboxes[client, stream] = made
        part = stream - FIRST_PART
        parts, shapes = self._parts, self._shapes
        if part >= 0:
            parts, shapes = (slice(None),), (self._shapes[part],)
        return outbox.send(payload, parts, shapes, self.codec.at(updates))

    def forget(self) -> None:
        """Reset errors and all other state that messages depend on."""
        self._outboxes.clear()
        self._memories.clear()

    def reduce(self, messages: Sequence[Any]) -> None:
        """Compress the messages of an all-reduce together, where the codec does so."""
        if self._is_real and self.codec.remembers:
            for message in messages:
                message.outbox.forget_before(message)
            _compress(messages, self._memories[messages[0].outbox.stream])

    def all_reduce_time(self, part: int, links: Sequence[Link], updates: int) -> float:
        """Return the seconds of an all-reduce of a part between workers on a ring of links.

        Messages that do not add up are gathered at all workers, each as large as it was sent.
        """
        ranks = len(links)
        sizes = self._rounds_at(updates)[part]
        if self.codec.at(updates).adds_up:
            return sum(ring_all_reduce(ranks, size, links) for size in sizes)
        return sum(ring_all_gather(ranks, ranks * size, links) for size in sizes)

    def all_reduce_bytes(self, part: int, ranks: int, updates: int) -> float:
        """Return the bytes that all workers together send in such an all-reduce."""
        times = 2 if self.codec.at(updates).adds_up else ranks
        return times * (ranks - 1) * self.sizes_at(updates)[part]


@dataclass(eq=False, slots=True)
class Message(Deferred):
    """A sent message, decoded on first use."""

    outbox: _Outbox
    number: int  # of those in the outbox
    parts: Sequence[Part]  # of its vector
    shapes: Sequence[Shapes]  # of the tensors in each
    codec: Codec
    payload: Any  # a gradient or a vector; None once it is compressed
    decoded: Any = None

    @property
    def value(self) -> Any:
        if self.decoded is None:
            self.outbox.compress_up_to(self)
        return self.decoded


class _Outbox:
    def __init__(self, codec: Codec, client: int, stream: int, seed: int, is_shared: bool) -> None:
        self.codec = codec
        self.stream = stream
        # Messages add up where they say the same of what was drawn.
        self._key = (seed, TrainingStream.COMPRESSION, 0 if is_shared else client, stream)
        self._is_in_order = codec.depends_on_before
        self._error: Any = None
        self._memory = _new_memory()
        self._sent = 0
        self._waiting: deque[Message] = deque()  # those that are not compressed, in order

    def send(
        self, payload: Any, parts: Sequence[Part], shapes: Sequence[Shapes], codec: Codec
    ) -> Message:
        message = Message(self, self._sent, parts, shapes, codec, payload)
        self._sent += 1
        if self._is_in_order:
            self._waiting.append(message)
            if isinstance(payload, Gradient):
                payload.pending = _Wanted(payload.pending)
        return message

    def compress_up_to(self, message: Message) -> None:
        """Compress a message, after those on which it depends."""
        while self._is_in_order and self._waiting[0] is not message:
            _compress([self._waiting[0]], self._memory)
        _compress([message], self._memory)

    def forget_before(self, message: Message) -> None:
        """Forget messages of all-reduces that never ended, of which nothing was sent."""
        while self._waiting[0] is not message:
            self._waiting.popleft()

    def vector(self, message: Message) -> Any:
        """Return the vector to compress: the payload plus the previous error."""
        payload = message.payload
        vector = payload.value if isinstance(payload, Deferred) else payload
        return vector if self._error is None else vector + self._error

    def generator(self, message: Message) -> Generator:
        seed, *key = self._key
        return generator(seed, *key, message.number)

    def compressed(self, message: Message, vector: Any, decoded: Any) -> None:
        """Record the result of compressing the vector."""
        message.decoded, message.payload = decoded, None
        if self.codec.feedback:
            self._error = None if message.codec is AS_IT_IS else vector - decoded
        if self._is_in_order:
            self._waiting.popleft()


@dataclass(eq=False, slots=True)
class _Wanted:
    """A pending gradient that a later message depends on, so that it cannot be discarded."""

    pending: Any

    def result(self) -> Any:
        return self.pending.result()

    def advance(self) -> None:
        self.pending.advance()

    def discard(self) -> None:
        pass


def _compress(messages: Sequence[Message], memory: Memory) -> None:
    first = messages[0]
    vectors = [message.outbox.vector(message) for message in messages]
    rng = first.outbox.generator(first)
    decoded: list[list[Any]] = [[] for _ in messages]
    for number, (part, shapes) in enumerate(zip(first.parts, first.shapes, strict=True)):
        pieces = [vector[part] for vector in vectors]
        tensors = first.codec.compress(pieces, shapes, rng, memory[number])
        for mine, piece in zip(decoded, tensors, strict=True):
            mine.append(piece)
    for message, vector, parts in zip(messages, vectors, decoded, strict=True):
        message.outbox.compressed(message, vector, _joined(parts))


def _joined(parts: Sequence[Any]) -> Any:
    import torch

    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _new_memory() -> Memory:
    return defaultdict(dict)
