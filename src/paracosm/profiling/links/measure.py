"""Measuring transfers: every scenario at every size, until the mean is precise enough."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from math import inf
from statistics import fmean

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError, require, unknown
from paracosm.profiling.environment import environment_here
from paracosm.profiling.processes import Processes, WorkerError
from paracosm.profiling.samples import LinkTiming, Spread, now, spread_of
from paracosm.units import format_bandwidth, format_duration, format_size

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
DEVICE_KINDS = ("host to device", "device to host", "device to device")
KINDS = (
    "host copy",
    "shared memory",
    *DEVICE_KINDS,
    "send_recv",
    *COLLECTIVES,
    "ddp",
    "new memory",
)
"""Kinds of transfers; a kind has one or more scenarios.

"ddp" is no transfer, but what one costs beside it: the CPU time, of all threads of one process,
that DistributedDataParallel adds to a training step with so many bytes of gradients. Copies into
buckets and out of them, gloo's own arithmetic and sockets, and the cache that they take all count.
"new memory" is taken from the system, touched on every page and given back.
"""

USUAL = ("host copy", "shared memory", *DEVICE_KINDS, "send_recv", "all_reduce")
"""What is measured where nobody says otherwise: table 1, and a message between processes."""

ITEM = 4  # bytes of one number of a message: collectives add 32-bit floats
FEWEST_WEIGHTS = 256  # that a layer has whose gradients are reduced

_ROW = 2e-3  # seconds that calls in a row take, at least
_FEWEST = 3
_MOST = 200
_BLOCK = 5  # rows that are ordered at a time


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """What to measure, and how precisely."""

    kinds: Sequence[str] = USUAL  # of `KINDS`
    sizes: Sequence[int] = tuple(4**power for power in range(5, 14))  # of messages, in bytes
    ranks: Sequence[int] = (2, 4)  # numbers of processes that collectives run between
    precision: float = 0.01  # standard error of the mean, relative, at which a size is done
    seconds: float = 0.5  # for each size of each scenario, after which it is done in any case
    timeout: float = 120.0  # seconds that a worker may take for an answer

    def __post_init__(self) -> None:
        if not self.sizes or not self.kinds:
            raise InputError("measuring links: give at least one size and one kind")
        for name in ("precision", "seconds", "timeout"):
            if not getattr(self, name) > 0:
                raise InputError(f"measuring links: {name} must be above 0")


@dataclass(slots=True)
class Links:
    """What was measured."""

    timings: list[LinkTiming] = field(default_factory=list)  # in the order in which they were made
    left_out: dict[str, str] = field(default_factory=dict)  # scenario -> why it was not tried
    failed: dict[str, str] = field(default_factory=dict)  # scenario -> how it failed
    interrupted: bool = False  # whether Ctrl-C came before the end


def measure_links(
    settings: LinkSettings | None = None,
    source: str = "measure link",
    keep: Callable[[LinkTiming], object] = lambda timing: None,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Links:
    """Time transfers on this machine, in worker processes of their own.

    Each sample is a row of calls long enough to be timed, divided by their number, on the slowest
    worker. Copies of one core are timed by its CPU time, whatever involves several processes by
    wall time, CUDA by events. A scenario whose worker dies or hangs is given up, with one line. On
    Ctrl-C the timings so far are returned.

    Raises:
        InputError: unknown kinds, sizes too small for a scenario or too large for the memory.
    """
    settings = settings or LinkSettings()
    requested = scenarios(settings.kinds, settings.ranks)
    done = Links(left_out=_unavailable(requested))
    here = [scenario for scenario in requested if str(scenario) not in done.left_out]
    _check_sizes(here, settings.sizes)
    environments = {
        device: environment_here(device) for device in {scenario.device for scenario in here}
    }
    links = _all(here, settings, done.failed)
    try:
        with contextlib.closing(links):  # and with it the workers, whatever happens
            for passed, measured in enumerate(links, start=1):
                if measured is not None:
                    scenario, size, spread = measured
                    timing = LinkTiming(
                        kind=scenario.kind,
                        scenario=scenario.name,
                        size=size,
                        ranks=scenario.ranks,
                        environment=environments[scenario.device],
                        time=spread,
                        source=source,
                        measured_at=now(),
                    )
                    done.timings.append(timing)
                    keep(timing)
                progress(passed, len(here) * len(settings.sizes))
    except KeyboardInterrupt:
        done.interrupted = True
    return done


def _all(
    here: Sequence[Scenario], settings: LinkSettings, failed: dict[str, str]
) -> Generator[tuple[Scenario, int, Spread] | None, None, None]:
    """Yield the timing of each message of each scenario; None for those that one failed at."""
    largest = max(settings.sizes)
    for (processes, backend), group in groupby(here, lambda s: (s.processes, s.backend or "gloo")):
        points = [
            (scenario, scenario.message(size)) for scenario in group for size in settings.sizes
        ]
        while points:
            try:
                with team(processes, backend, largest, settings.timeout) as workers:
                    while points:
                        yield *points[0], _until_known(workers, *points[0], settings)
                        points.pop(0)
            except WorkerError as error:
                lost = points[0][0]
                failed[str(lost)] = str(error)
                yield from (None for scenario, _ in points if scenario == lost)
                points = [point for point in points if point[0] != lost]


def _until_known(workers: Team, scenario: Scenario, size: int, settings: LinkSettings) -> Spread:
    begin = time.monotonic()
    once = max(min(workers.run(scenario, size, times=1, rows=_FEWEST)), 1e-8)
    # A difference may come out at nothing, and a training step is a row of ops anyway.
    times = 1 if scenario.kind == "ddp" else max(1, min(10_000, round(_ROW / once)))
    samples: list[float] = []
    while True:
        left = settings.seconds - (time.monotonic() - begin)
        rows = max(_FEWEST - len(samples), min(_BLOCK, int(left / (times * once))), 1)
        samples += workers.run(scenario, size, times, rows)
        spread = spread_of(samples)
        known = spread.count >= 2 * _FEWEST and spread.standard_error <= settings.precision
        late = time.monotonic() - begin > settings.seconds and spread.count >= _FEWEST
        if known or late or spread.count >= _MOST:
            return spread


def _unavailable(asked: Sequence[Scenario]) -> dict[str, str]:
    torch = require("torch", "torch", "measuring links")
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return {
        str(
            scenario
        ): f"needs {scenario.devices} CUDA device{'' if scenario.devices == 1 else 's'}, "
        f"here are {devices}"
        for scenario in asked
        if scenario.devices > devices
    }


def _check_sizes(here: Sequence[Scenario], sizes: Sequence[int]) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for scenario in here:
        for size in sizes:
            needed = scenario.memory(scenario.message(size))
            if needed > memory / 2:
                raise InputError(
                    f"{scenario}: messages of {format_size(size)} need {format_size(needed)} of "
                    f"memory, of {format_size(memory)}: give smaller --sizes"
                )


@contextlib.contextmanager
def team(processes: int, backend: str, largest: int, timeout: float) -> Iterator[Team]:
    """Start workers for messages of up to `largest` bytes, and end them with the block."""
    with contextlib.ExitStack() as stack:
        memory = _shared_memory()
        pipes = [os.pipe(), os.pipe()]
        inherited = [memory, *pipes[0], *pipes[1]]
        for descriptor in inherited:
            stack.callback(os.close, descriptor)
        os.ftruncate(memory, 4 * largest)
        made = stack.enter_context(Team("paracosm.profiling.links.transfers", timeout))
        for rank in range(processes):
            signals = (pipes[rank][0], pipes[1 - rank][1]) if rank < 2 else (-1, -1)
            setup = {
                "rank": rank,
                "ranks": processes,
                "memory": memory,
                "signals": signals,
                "backend": backend,
                "store": str(made.folder / "store"),
                "timeout": timeout,
            }
            made.start(f"worker {rank} of {processes}", setup, inherited=inherited)
        made.answers("start")
        yield made


class Team(Processes):
    def run(self, scenario: Scenario, size: int, times: int, rows: int) -> list[float]:
        """Return by row the seconds of one message of `size` bytes: those of the slowest worker,
        or for CPU time the workers' mean."""
        order = {"scenario": asdict(scenario), "size": size, "times": times, "rows": rows}
        self.order(dict.fromkeys(range(len(self._workers)), order))
        by_worker = [answer["seconds"] for answer in self.answers(str(scenario))]
        of_all: Callable[[Sequence[float]], float] = fmean if scenario.kind == "ddp" else max
        return [of_all(row) for row in zip(*by_worker, strict=True)]


def _shared_memory() -> int:
    """Return the descriptor of anonymous memory, which is never left behind."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("paracosm")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@dataclass(frozen=True, slots=True)
class Scenario:
    kind: str
    name: str  # which of several ways
    ranks: int  # processes or devices that take part
    processes: int = 1  # worker processes that it needs
    directions: int = 1  # messages under way at once, each on a path or in a direction of its own
    backend: str = ""  # "gloo" or "nccl" for what goes through `torch.distributed`, else ""
    devices: int = 0  # CUDA devices that it needs

    def __str__(self) -> str:
        return f"{self.kind}, {self.name}"

    @property
    def device(self) -> str:
        return "cuda" if self.devices else "cpu"

    def message(self, size: int) -> int:
        units = {"reduce_scatter": self.ranks, "ddp": FEWEST_WEIGHTS}
        unit = ITEM * units.get(self.kind, 1)
        if size < unit:
            raise InputError(f"{self}: a message has at least {unit} bytes, not {size}")
        return size // unit * unit

    def memory(self, size: int) -> int:
        """Return the bytes that all processes together hold for messages of `size` bytes."""
        buffers = {"shared memory": 4, "all_gather": 1 + self.ranks, "ddp": 3}.get(self.kind, 2)
        return buffers * size * self.processes


def scenarios(kinds: Sequence[str], ranks: Sequence[int]) -> list[Scenario]:
    """Return the scenarios of some kinds, grouped by what one team of workers can do."""
    for few in ranks:
        if few < 2:
            raise InputError(f"a collective needs at least 2 ranks, not {few}")
    wanted = [scenario for kind in kinds for scenario in _of_kind(kind, ranks)]
    return sorted(dict.fromkeys(wanted), key=lambda each: (each.processes, each.backend))


def _of_kind(kind: str, ranks: Sequence[int]) -> list[Scenario]:
    match kind:
        case "host copy":
            return [
                Scenario(kind, "uni-direct", 1),
                Scenario(kind, "bi-direct", 2, processes=2, directions=2),
            ]
        case "shared memory":
            return [
                Scenario(kind, "uni-direct", 2, processes=2),
                Scenario(kind, "bi-direct", 2, processes=2, directions=2),
            ]
        case "host to device" | "device to host":
            names = ("pinned memory", "pageable memory")
            return [Scenario(kind, name, 1, devices=1) for name in names]
        case "device to device":
            return [
                Scenario(kind, "uni-direct", 2, devices=2),
                Scenario(kind, "bi-direct", 2, directions=2, devices=2),
            ]
        case "new memory":
            return [Scenario(kind, "page by page", 1)]
        case "send_recv":
            return [Scenario(kind, "gloo 2 processes", 2, processes=2, backend="gloo")]
    if kind not in (*COLLECTIVES, "ddp"):
        raise unknown("kind of transfer", kind, KINDS)
    gloo = [
        Scenario(kind, f"gloo {few} processes", few, processes=few, backend="gloo") for few in ranks
    ]
    nccl = [
        Scenario(kind, f"nccl {few} devices", few, processes=few, backend="nccl", devices=few)
        for few in ranks
    ]
    return gloo if kind == "ddp" else gloo + nccl


_COLUMNS = 5  # sizes that are shown


@dataclass(frozen=True, slots=True)
class Row:
    # kind, scenario, ranks: as in `LinkTiming`
    kind: str
    scenario: str
    ranks: int
    seconds: Mapping[int, float]  # median by size of the message in bytes
    directions: int  # messages under way at once
    line: Line | None  # fitted to `seconds`; None where there are fewer than two sizes
    link: Line | None  # the link that explains the line (`link_of`)

    def throughput(self, size: int) -> float:
        """Return bytes/s, of all directions together."""
        return self.directions * size / self.seconds[size]


def rows(timings: Iterable[LinkTiming]) -> list[Row]:
    """Return one row for each scenario; of several timings of one size, the last one counts."""
    made = []
    ordered = sorted(timings, key=_place)
    for (_, kind, ranks, _, scenario), group in groupby(ordered, key=_place):
        seconds = {t.size: t.time.median for t in sorted(group, key=lambda t: t.size)}
        has_line = len(seconds) > 1 and kind != "ddp"
        line = fit_line(list(seconds), list(seconds.values())) if has_line else None
        link = None if line is None else link_of(line, kind, ranks)
        directions = 2 if "bi-direct" in scenario else 1
        made.append(Row(kind, scenario, ranks, seconds, directions, line, link))
    return made


def _place(timing: LinkTiming) -> tuple[int, str, int, bool, str]:
    """Return the place of a timing in the table: in the order of `KINDS`, uni-direct first."""
    known = KINDS.index(timing.kind) if timing.kind in KINDS else len(KINDS)
    back = "bi-direct" in timing.scenario
    return known, timing.kind, timing.ranks, back, timing.scenario


def write_table(table: Sequence[Row]) -> str:
    """Return the table as text: MB/s by size, then the lines for a cluster file."""
    if not table:
        return "nothing was measured"
    sizes = sorted({size for row in table for size in row.seconds})
    step = max(1, -(-len(sizes) // _COLUMNS))
    sizes = sizes[::-1][::step][::-1]  # evenly among all, the largest with them
    labels = [f"{row.kind}, {row.scenario}" for row in table]
    wide = max(map(len, [*labels, "MB/s"]))
    titles = "".join(f"{format_size(size, exact=True):>10}" for size in sizes)
    lines = [f"{'MB/s':{wide}}{titles}"]
    for label, row in zip(labels, table, strict=True):
        rates = [f"{row.throughput(n) / 1e6:,.2f}" if n in row.seconds else "-" for n in sizes]
        lines.append(f"{label:{wide}}" + "".join(f"{rate:>10}" for rate in rates))
    links = [
        f"{label:{wide}}  {_link(row.link, len(row.seconds))}"
        for label, row in zip(labels, table, strict=True)
        if row.link is not None
    ]
    if links:
        lines += ["", "As a link of a cluster file (relative error of the line: mean, largest):"]
    return "\n".join([*lines, *links])


def _link(link: Line, sizes: int) -> str:
    latency, bandwidth = format_duration(link.latency), format_bandwidth(link.bandwidth)
    line = f"latency: {latency}, bandwidth: {bandwidth}"
    # Through two points there is always a line.
    return line if sizes < 3 else f"{line}  ({link.error:.0%}, {link.worst:.0%})"


_OUTLIER = 0.1  # relative error beyond which a size counts less than by its square


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of a message of n bytes: `latency + n / bandwidth` (the alpha-beta model)."""

    latency: float  # seconds
    bandwidth: float  # bytes/s
    error: float = 0.0  # mean of the relative errors at the sizes that it was fitted to
    worst: float = 0.0  # the largest of them

    def seconds(self, size: float) -> float:
        return self.latency + size / self.bandwidth


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> Line:
    """Return the line with the least relative errors, neither latency nor slope below 0.

    Errors are relative, because times span five orders of magnitude. Those beyond a tenth count
    linearly instead of squared (soft L1), so that sizes that fit a cache do not distort the rest.
    """
    n, t = np.asarray(sizes, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    if len(np.unique(n)) < 2:
        raise InputError(
            f"a latency and a bandwidth need two sizes or more, not {len(np.unique(n))}"
        )
    if not (np.isfinite(t).all() and (t > 0).all()):
        raise InputError("a latency and a bandwidth need times above 0")
    latency, slope = _robust(n, t)
    off = np.abs((latency + n * slope) / t - 1)
    return Line(
        latency=latency,
        # Where noise hides the slope, no less than what was reached.
        bandwidth=1 / slope if slope > 0 else float((n / t).max()),
        error=float(off.mean()),
        worst=float(off.max()),
    )


def _robust(n: Floats, t: Floats) -> tuple[float, float]:
    from scipy.optimize import least_squares, nnls

    design = np.stack([1 / t, n / t], axis=1)
    scale = 1 / design.max(axis=0)  # the largest latency, and slope, that any time allows
    design = design * scale
    start, _ = nnls(design, np.ones(len(t)))
    solution = least_squares(
        lambda parameters: design @ parameters - 1,
        start,
        jac=lambda _: design,
        bounds=(0, inf),
        loss="soft_l1",
        f_scale=_OUTLIER,
        xtol=1e-12,
        ftol=1e-12,
        gtol=1e-12,
    )
    latency, slope = np.maximum(solution.x, 0) * scale
    # Where the best slope is 0, the search ends just above it.
    return float(latency), float(slope) if slope * n.max() > 1e-9 * latency else 0.0


def seconds_per_byte(timings: Iterable[LinkTiming], ranks: int) -> float | None:
    """Return the core seconds of a rank that each byte of gradients costs; None without timings.

    From timings of "ddp" between about so many ranks. It is the ratio of sums over all messages, so
    that the large ones count most, as in a training step.
    """
    known = [timing for timing in timings if timing.kind == "ddp"]
    if not known:
        return None
    nearest = min({timing.ranks for timing in known}, key=lambda few: (abs(few - ranks), few))
    near = [timing for timing in known if timing.ranks == nearest]
    return sum(timing.time.mean for timing in near) / sum(timing.size for timing in near)


def link_of(line: Line, kind: str, ranks: int) -> Line:
    """Return latency and bandwidth of the one link that explains a collective's line.

    A ring all-reduce of n bytes between p ranks is 2 (p - 1) steps of n / p bytes, an all-gather
    p - 1 steps of n (one rank's part), a reduce-scatter p - 1 steps of n / p, a broadcast down a
    binomial tree ceil(log2 p) steps of n: the costs of `cluster.collectives`, which then give back
    the line. Adding up on the way counts as transfer.
    """
    p = ranks
    steps, share = {
        "all_reduce": (2 * (p - 1), 1 / p),
        "all_gather": (p - 1, 1.0),
        "reduce_scatter": (p - 1, 1 / p),
        "broadcast": ((p - 1).bit_length(), 1.0),
    }.get(kind, (1, 1.0))
    return Line(line.latency / steps, line.bandwidth * steps * share, line.error, line.worst)
