"""What NCCL's collectives take between the GPUs of machines: rings, trees, and sums in switches.

NCCL cuts a vector into parts that go over as many rings or trees as machines have network cards, at
once, and passes them on in pieces: neither the links within machines nor those between them wait
for the others, as in algorithms that take one after the other. A ring has 2 (p - 1) steps (half of
them for an all-gather or a reduce-scatter) over the slower of the two. A tree, of machines whose
ranks are chained, sends each byte up and down once. Of two machines it crosses the network once.

Where switches multicast and add up (NVLink SHARP), a GPU reads the sum of its part of a vector, and
writes it to all: of p GPUs, 1 + 1 / p times the vector passes each link both ways, 2 (p - 1) / p
times with a ring. Parts are copied in chunks to buffers that the switch knows, summed, and copied
back; between machines the sums go up and down a tree. The first chunk passes all of that before the
last ones overlap.

Source of all constants: github.com/NVIDIA/nccl, `src/graph/tuning.cc` (`ncclTopoTuneModel`,
`ncclTopoGetAlgoTime`; of its protocols Simple, which large messages have, and LL128, which has less
latency, over NVLink and InfiniBand; LL, for the smallest, is left out), `src/transport/nvls.cc`
(channels), `src/enqueue.cc` (chunks). RCCL, AMD's, is made of it.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Protocol:
    """How messages are signalled. Latencies of steps are over those of a ring with Simple."""

    base: float  # seconds before the first step of a ring or a tree (`baseLatencies`)
    ring: tuple[float, float]  # latency of a step within a machine and between them (`hwLatencies`)
    tree: tuple[float, float]
    plateau: float  # on an all-reduce by a ring between machines ("plateau effect of ring")
    ring_share: float  # of the bandwidth that a ring reaches
    tree_shares: tuple[float, float]  # a tree, in one machine and in several
    # on the bandwidth of a tree, for 64 bytes and each doubling (`treeCorrectionFactor`)
    correction: tuple[float, ...]


SIMPLE = Protocol(
    base=8.4e-6,
    ring=(1.0, 1.0),
    tree=(4.0 / 3.4, 1.0),
    plateau=1.4,
    ring_share=1.0,
    tree_shares=(0.92, 0.92),
    correction=(
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9),
    ),
)
LL128 = Protocol(
    base=14e-6,
    ring=(1.9 / 3.4, 4.0 / 14),
    tree=(1.25 / 3.4, 8.5 / 14),
    plateau=1.0,
    ring_share=0.92,
    tree_shares=(0.92 * 7 / 9, 0.92 * 120 / 128),
    correction=(
        *(1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0),
    ),
)
SUM, UP = 25e-6, 20.9 / 14
"""Seconds of a sum in the switch; latency of a step between machines after it, over a ring's."""
CHUNK = 128 * 1024
MOST_HEADS = 32
"""GPUs of a machine between which a vector is divided for sums in the switch."""


@dataclass(frozen=True)
class SwitchSums:
    """How a generation of GPUs uses switches that add up."""

    share: float  # of the links' bandwidth that is reached (`nvlsEfficiency`)
    channels: int  # in one machine
    channels_between: int  # with several


SWITCH_SUMS = {"hopper": SwitchSums(0.85, 16, 16), "blackwell": SwitchSums(0.74, 24, 32)}
"""By generation of device."""


@dataclass(frozen=True)
class Nccl:
    """That NCCL runs between the GPUs of machines, and how their switches add up, if they do."""

    sums: SwitchSums | None = None
    within: tuple[Protocol, ...] = (SIMPLE,)  # of groups in one machine
    between: tuple[Protocol, ...] = (SIMPLE,)  # of groups in several


@dataclass(frozen=True)
class Span:
    """The part of a cluster that a group of ranks spans; bandwidths in bytes/s, one way."""

    machines: int
    ranks: int  # of each machine
    inner: float  # bandwidth of a GPU within its machine
    inner_latency: float  # seconds of a step
    outer: float  # bandwidth of a machine's cards that the group uses
    outer_latency: float

    @property
    def all_ranks(self) -> int:
        return self.machines * self.ranks


def ring(span: Span, protocol: Protocol, size: float, *, all_reduce: bool) -> float:
    """Return the seconds of an all-reduce by rings, or of an all-gather or a reduce-scatter."""
    both = 2 if all_reduce else 1
    steps = both * (span.all_ranks - 1)
    between = both * (span.machines - 1)
    within, across = protocol.ring
    latency = protocol.base + (steps - between) * within * span.inner_latency
    latency += between * across * span.outer_latency
    if all_reduce and span.machines > 1:
        latency *= protocol.plateau
    return latency + steps * size / span.all_ranks / (protocol.ring_share * _slower(span))


def tree(span: Span, protocol: Protocol, size: float) -> float:
    """Return the seconds of an all-reduce by trees."""
    within, across = protocol.tree
    chained = (span.ranks - 1) * within * span.inner_latency
    latency = protocol.base + 2 * (chained + _depth(span) * across * span.outer_latency)
    share = protocol.tree_shares[span.machines > 1]
    place = max(int(size), 64).bit_length() - 7
    if place < len(protocol.correction):
        share *= protocol.correction[place]
    bandwidth = share * min(span.inner, _through_network(span))
    return latency + 2 * size / bandwidth


def in_switches(span: Span, sums: SwitchSums, size: float) -> float:
    """Return the seconds of an all-reduce by sums in switches, and a tree between machines.

    Raises:
        ValueError: a machine has no more than two of the ranks; NCCL then has no such sums.
    """
    if span.ranks <= 2:
        raise ValueError("sums in switches need more than two ranks of a machine")
    several = span.machines > 1
    channels = sums.channels_between if several else sums.channels
    at_once = channels * min(span.ranks, MOST_HEADS) * _chunk(channels, span, size)
    bandwidth = sums.share * span.inner / (1 + 1 / span.ranks)
    bandwidth = min(bandwidth, _through_network(span) / 2)
    latency = SUM + 2 * _depth(span) * UP * span.outer_latency
    stages = 4 if several else 2  # before the last: in, sum, up, down, out
    return latency + (size + stages * min(size, at_once)) / bandwidth


def _chunk(channels: int, span: Span, size: float) -> int:
    """Return the bytes of a chunk: less where few of the largest would pass."""
    parts, chunk = channels * min(span.ranks, MOST_HEADS), CHUNK
    limits: tuple[tuple[int, int], ...]
    if span.machines > 1:
        limits = ((4, CHUNK // 2), (1, CHUNK // 4))
    else:
        limits = ((64, CHUNK // 2), (8, CHUNK // 4), (2, CHUNK // 8))
    for rounds, smaller in limits:
        if size < rounds * parts * chunk and chunk > smaller:
            chunk = smaller
    return chunk


def _depth(span: Span) -> int:
    return math.ceil(math.log2(span.machines))


def _slower(span: Span) -> float:
    return span.inner if span.machines == 1 else min(span.inner, span.outer)


def _through_network(span: Span) -> float:
    """Return the bandwidth with which trees send every byte up and down: of two machines each sends
    it once, of more in the mean twice."""
    if span.machines == 1:
        return math.inf
    return span.outer * (2 if span.machines == 2 else 1)
