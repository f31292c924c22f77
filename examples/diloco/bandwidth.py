"""What DiLoCo and Streaming DiLoCo ask of a network: by formulas, and by simulated runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import language

from paracosm.timeline import Timeline
from paracosm.training import TrainConfig, train
from paracosm.training.numerics.parameters import ParameterLayout

WORKERS, STEPS, FRAGMENTS, OVERLAP = 4, 100, 4, 5
SIZE = 4e9  # bytes: a billion parameters in float32
STEP = 1.0  # seconds
BUSY = 0.95  # of the time that workers are to compute


@dataclass(frozen=True)
class Way:
    """A way to train: what is exchanged, how often, and for how long nobody waits for it."""

    name: str
    algorithm: str
    sizes: Sequence[float]  # bytes of each exchange of a round
    steps: int  # of a round
    hidden: float = 0.0  # seconds of each exchange

    def waiting(self, bandwidth: float) -> float:
        """Return the seconds of a round in which workers wait."""
        times = [sent(size) / bandwidth for size in self.sizes]
        return sum(max(0.0, seconds - self.hidden) for seconds in times)

    def computing(self, bandwidth: float) -> float:
        """Return the share of the time in which workers compute, by formula."""
        busy = self.steps * STEP
        return busy / (busy + self.waiting(bandwidth))

    def needed(self) -> float:
        """Return the bytes/s at which workers compute for the share BUSY of the time."""
        return bisect(lambda bandwidth: self.computing(bandwidth) - BUSY, 1e3, 1e15)

    def simulate(self, bandwidth: float, rounds: int) -> tuple[float, Timeline]:
        """Return the simulated share of the time in which workers compute, and the timeline."""
        # Only fragments ask what the model is like.
        deep = {"model": "language:deep", "data": "language:data"}
        config = TrainConfig(
            **(deep if len(self.sizes) > 1 else {}),
            algorithm=self.algorithm,
            topology="all-reduce",
            workers=WORKERS,
            compute=f"{STEP}s",
            message_size=f"{SIZE}B",
            bandwidth=f"{bandwidth}B/s",
            updates=rounds,
            timing_only=True,
            timeline=True,
        )
        result = train(config)
        assert result.timeline is not None
        busy = sum(
            span.end - span.begin
            for span in result.timeline.spans
            if span.node == "worker0" and span.resource == "compute"
        )
        return busy / result.summary["virtual_time"], result.timeline


def ways() -> list[Way]:
    """Return data parallelism, DiLoCo, and Streaming DiLoCo without and with overlap."""
    own = ParameterLayout.of(language.deep(), fragments=FRAGMENTS).bytes_per_server
    fragments = [SIZE * size / sum(own) for size in own]
    streaming = f"streaming-diloco(steps={STEPS}, fragments={FRAGMENTS}"
    return [
        Way("data parallel", "ssgd", [SIZE], 1),
        Way("DiLoCo", f"diloco(steps={STEPS})", [SIZE], STEPS),
        Way("streaming", f"{streaming}, overlap=0)", fragments, STEPS),
        Way(
            "streaming, overlapped",
            f"{streaming}, overlap={OVERLAP})",
            fragments,
            STEPS,
            hidden=OVERLAP * STEP,
        ),
    ]


def sent(size: float) -> float:
    """Return the bytes that a worker sends in a ring all-reduce of `size` bytes."""
    return 2 * (WORKERS - 1) / WORKERS * size


def peak(timeline: Timeline, bandwidth: float, window: float = STEP) -> float:
    """Return the most bytes that a worker sends within `window` seconds."""
    spans = [
        (span.begin, span.end)
        for span in timeline.spans
        if span.node == "worker0" and span.resource == "send"
    ]
    return max(
        sum(max(0.0, min(end, begin + window) - max(start, begin)) for start, end in spans)
        * bandwidth
        for begin, _ in spans
    )


def bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that rises is 0, to one part in 10^9; both ends are positive."""
    while high / low > 1 + 1e-9:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return high
