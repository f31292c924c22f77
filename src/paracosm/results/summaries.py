"""The summary of each kind of run: what `summary.json` holds, typed.

Times are in seconds, memory in bytes, rates per second, shares from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from paracosm.results.json_object import JsonObject

Json = Mapping[str, Any]
Seconds = Mapping[str, float]


class Interval(JsonObject):
    """A 90 % prediction interval."""

    low: float
    high: float


class AfterStart(JsonObject):
    """Rates that a measurement of some seconds right after the start finds."""

    steps_per_second: float
    examples_per_second: float | None
    spread: float


class ThroughputRow(JsonObject):
    """The throughput of a job with one number of workers: the same for all kinds of runs."""

    workers: int  #: their number
    #: minibatches of all workers together; None where the batch is not known
    steps_per_second: float | None
    examples_per_second: float | None  #: None where the batch is not known
    ideal: float | None = None  #: steps per second of the same number of workers that never wait
    efficiency: float | None = None  #: the throughput over the ideal one
    bottleneck: str | None = None  #: a sentence, or the name of a resource
    #: iteration_time, interval, breakdown: of an iteration
    iteration_time: float | None = None
    interval: Interval | None = None
    breakdown: Seconds | None = None
    #: the highest of all ranks; `fits` whether it fits, None if unknown, and `misfits` names
    #: the ranks that do not
    peak_memory: int | None = None
    fits: bool | None = None
    misfits: Sequence[str] | None = None
    #: of the steps per second; `spread` their standard deviation between measurements of
    #: `measure` seconds, None where there was time for one
    standard_error: float | None = None
    spread: float | None = None
    measure: float | None = None
    #: the result of such a measurement right after the start; None unless requested
    after_start: AfterStart | None = None
    #: in_step, apart: steps per second of workers that begin their steps together, and evenly
    #: spread; `drift` seconds by which a small lead of one half over the other grows per step.
    #: None where it does not apply.
    in_step: float | None = None
    apart: float | None = None
    drift: float | None = None
    if_twice_as_fast: Mapping[str, float] | None = None  #: relative gain by resource
    #: share of the time in which each resource is busy; of several servers the busiest,
    #: `utilisation_by_server` has all
    utilisation: Mapping[str, float] | None = None
    utilisation_by_server: Mapping[str, Sequence[float]] | None = None
    #: joules of all nodes in an iteration, or for a step of one worker; None where the cluster
    #: file says no power
    energy: float | None = None


class Summary(JsonObject):
    """The fields of every summary."""

    kind: str
    #: "done", "converged", "stopped", "diverged", "failed", "interrupted"; "unfinished" while
    #: the run is not finished
    status: str
    #: the requested changes; the subclasses' `unchanged` then has the result without them
    what_if: Sequence[str] | None = None
    #: the arguments at their defaults that the answer may depend on, as a study has them; None
    #: where the result does not come from a run of a study
    defaults: Mapping[str, str] | None = None
    verb: ClassVar[str] = ""  #: of the kind of run, if it has one


class FailureSummary(JsonObject):
    """The cost of failures to a job. Effective, lost, saving and restarting are shares of all
    workers' time, and add up to 1.

    The last five are None over a predicted schedule.
    """

    job_mtbf: float | None  #: mean time between failures that stop the whole job; None without any
    #: between failures of one worker that stop no other; None without any
    worker_mtbf: float | None
    interval: float | None  #: of work between two checkpoints; None where nothing is saved
    checkpoint_cost: float
    restart_cost: float | None
    #: stops, failures: number of stops of the whole job, and of failures of single workers
    stops: int
    failures: int
    checkpoints: int  #: that were saved
    effective: float
    #: work since the last checkpoint, and steps lost with their worker or completed too late
    lost: float
    saving: float  #: checkpoints, while no worker computes
    restarting: float  #: of the whole job, or of single workers
    waiting: float  #: the part of it that workers wait for the failed node
    throughput: float  #: steps per second while the job runs, including those lost later
    goodput: float  #: steps per second that are not lost, over all the time
    absences: int = 0  #: number of times that a worker left of its own accord
    lost_gradients: int | None = None  #: discarded with a failed worker, or with the whole job
    slowdowns: int | None = None  #: periods in which a node was slow
    #: lost_messages, resent_messages: number of lost and of resent messages
    lost_messages: int | None = None
    resent_messages: int | None = None
    faults: Sequence[str] | None = None  #: the individual faults requested


class ClientsSummary(JsonObject):
    """The clients that shared the workers of a training."""

    clients: int  #: how many there are
    took_part: int  #: how many took part at least once
    participations: int  #: number of times that a client was picked
    #: of these, lost while computing; `gone`: left before its message arrived; `late`:
    #: unfinished when the round ended
    dropped_out: int
    gone: int
    late: int
    #: Jain's index of participations: 1 where all take part equally often
    fairness: float | None = None


class Spread(JsonObject):
    """A quantity of clients."""

    mean: float  #: over clients, each counted once
    deviation: float  #: standard deviation over clients
    worst_tenth: float  #: mean of the worst tenth of the clients; `best_tenth` likewise
    best_tenth: float
    fairness: float | None  #: Jain's index: 1 where all have the same


class ClientQuality(JsonObject):
    """How well the last parameters do on each client's own examples."""

    examples: Literal["test", "training"]  #: which of its examples
    measured: int  #: of `clients`, evenly spread by number
    clients: int
    loss: Spread
    accuracy: Spread | None  #: None where targets are not classes


class Chance(JsonObject):
    """The quality of guessing, for examples with class labels."""

    #: share of the commonest class among `examples` of the test set: the accuracy of always
    #: guessing it
    accuracy: float
    #: cross-entropy of the classes' shares over the training set, in nats: the lowest loss of
    #: a model that ignores its input
    loss: float
    examples: int


class CompressionSummary(JsonObject):
    """The compression of messages."""

    codec: str  #: with its parameters
    #: bytes that a worker sends to all servers or contributes to an all-reduce; `ratio` times
    #: fewer than `uncompressed`
    message: float
    uncompressed: float
    ratio: float


class TrainingSummary(Summary):
    """Of `paracosm train`."""

    verb: ClassVar[str] = "train"
    kind: Literal["training"] = "training"
    algorithm: str
    workers: int
    servers: int
    topology: str
    cluster: Json
    model: str
    data: str
    seed: int
    updates: int
    examples: int
    dropped: int
    final_loss: float | None
    final_test_loss: float | None
    final_accuracy: float | None
    mean_staleness: float | None
    virtual_time: float
    examples_per_second: float | None
    throughput: Sequence[ThroughputRow]
    wall_time: float
    lookahead: str | None
    durations: Mapping[str, str]
    divergence: Json | None
    lr: str | None = None  #: the configured learning rate
    #: the quality of guessing; None where targets are not classes or nothing was computed
    chance: Chance | None = None
    #: the target of the run, None without one; `reached_at` and `reached_updates` are virtual
    #: time and number of updates when it was reached, None if it was not, and `best` the best
    #: value of its metric
    target: str | None = None
    reached_at: float | None = None
    reached_updates: int | None = None
    best: float | None = None
    #: by tensor, where a run tracks versions of each
    staleness: Mapping[str, Staleness] | None = None
    failures: FailureSummary | None = None  #: their cost; None where nothing fails
    learning_rate: str | None = None  #: its schedule, in words; None if constant
    #: of the differential privacy of the parameters; `privacy` states delta, the protected
    #: unit, and assumptions. None without privacy.
    epsilon: float | None = None
    privacy: str | None = None
    #: their participation; None where each worker is one client
    clients: ClientsSummary | None = None
    #: of workers or clients with examples of their own; None where all share one set
    by_client: ClientQuality | None = None
    #: of received messages, answers, and completed all-reduces; None over a given schedule,
    #: and in timing-only mode where sizes have no effect and none is given
    bytes_sent: float | None = None
    compression: CompressionSummary | None = None  #: of messages; None if uncompressed
    energy: float | None = None  #: joules of all nodes; None without power in the cluster file
    unchanged: TrainingSummary | None = None


class Planned(JsonObject):
    """The median over seeds and the bounds of 80 % of runs; None: never reached."""

    median: float | None
    low: float | None
    high: float | None


class PlannedDesign(JsonObject):
    """A design of a training job, and the results of its runs."""

    workers: int
    algorithm: str
    lr: float
    #: "reached" where all seeds were run; otherwise why they were not: "diverged", "learns
    #: nothing", "slow", "worse", "not reached", "open"; `why` is a sentence
    verdict: str
    why: str
    seeds: int  #: number of seeds run
    reached: float  #: share of them that reached the target
    time: Planned  #: virtual seconds to the target; `updates` to it, and their throughput
    updates: Planned
    steps_per_second: float | None
    updates_per_second: float | None
    cost: float | None  #: median, in the price's money, or in worker-hours
    #: speedup, relative_cost: relative to the plan's reference, medians of the ratios of runs
    #: with the same seed; the plan compares designs by these
    speedup: float | None
    relative_cost: float | None
    staleness: float | None  #: mean over gradients and tensors, of the first seed
    best: float | None  #: the best value of the target's metric, over seeds
    #: step size times curvature; `steepest` its bound at this staleness; None where the bound
    #: does not apply
    steepness: float | None
    steepest: float | None
    is_efficient: bool  #: no other design is both faster and no more expensive
    #: seconds to the target according to other predictors, by name
    baselines: Mapping[str, float | None] | None = None
    #: share of the workers' time left by failures, median over seeds; None where nothing fails
    effective: float | None = None


class TunedWorkers(JsonObject):
    """The best design for a number of workers, and the cost of tuning its learning rate."""

    workers: int
    design: int | None  #: index of the design; None where none reached the target
    #: virtual seconds of the first seed's runs of all its designs in sequence, each as far as
    #: it was run; `tuning_cost` their cost on the cluster
    tuning_time: float
    tuning_cost: float


class PlanSummary(Summary):
    """Of `paracosm plan`."""

    verb: ClassVar[str] = "plan"
    kind: Literal["plan"] = "plan"
    target: str
    profile: str
    model: str
    data: str
    batch: int
    seed: int
    seeds: int
    most_updates: int
    price: str | None
    currency: str  #: of costs; empty for worker-hours
    designs: Sequence[PlannedDesign]
    #: fastest, cheapest, reference: indices of designs; None where none reached the target.
    #: The reference is the best design with the fewest workers. The fastest has the largest
    #: `speedup`, the cheapest the least `relative_cost`.
    fastest: int | None
    cheapest: int | None
    reference: int | None
    by_workers: Sequence[TunedWorkers]
    curvature: float | None  #: the largest eigenvalue of the Hessian found
    #: runs, updates_made: the effort of the plan
    runs: int
    updates_made: int
    cluster: Json
    wall_time: float
    durations: Mapping[str, str]
    #: as_fast, as_cheap: indices of the designs that the seeds do not tell apart from the
    #: fastest and from the cheapest; None where there is none, or a single seed
    as_fast: Sequence[int] | None = None
    as_cheap: Sequence[int] | None = None
    unchanged: PlanSummary | None = None


class SpectralRadius(JsonObject):
    """The spectral radius of the iteration matrix, its bounds and their meaning."""

    value: float | None
    lower: float
    upper: float
    sentence: str


class Staleness(JsonObject):
    """`counts[i]` reads had a staleness of i * width up to (i + 1) * width - 1 updates."""

    mean: float | None
    max: int
    width: int
    counts: Sequence[int]


class RelaxationTwin(JsonObject):
    """The same iteration, synchronous."""

    status: str
    residual: float
    sweeps: float
    virtual_time: float
    level: float | None  #: of the residual, up to which both are compared; None: to the end of each
    #: run_time, twin_time: virtual seconds to it; None where one of them diverged
    run_time: float | None
    twin_time: float | None
    energy: float | None = None  #: joules to its end, as of the run; None where no power is known


class RelaxationSummary(Summary):
    """Of `paracosm relax`; `twin` is None for a synchronous run, or if not requested.

    `energy` is in joules, of all processors; None where the cluster file says no power.
    """

    verb: ClassVar[str] = "relax"
    kind: Literal["relaxation"] = "relaxation"
    problem: str
    method: str
    read: str
    synchronous: bool
    pattern: str
    memory: str
    processors: int
    unknowns: int
    nonzeros: int
    reason: str
    residual: float
    initial_residual: float
    norm: str
    tolerance: float | None
    error: float | None
    relaxations: int
    updates: int
    sweeps: float
    virtual_time: float
    wall_time: float
    spectral_radius: SpectralRadius | None
    staleness: Staleness
    definition: Json
    updates_per_processor: Json
    detection: Json
    durations: Mapping[str, str]
    messages: Json | None = None
    cluster: Json | None = None
    faults: Json | None = None
    checkpoints: Json | None = None
    growth_rate: float | None = None
    unchanged: Json | None = None
    twin: RelaxationTwin | None = None
    energy: float | None = None


class Measured(JsonObject):
    """The measured time of the same iteration, and the error of the prediction."""

    iteration_time: float
    p10: float
    p90: float
    samples: int
    error: float
    slower: float | None
    error_at_its_speed: float | None
    baseline_errors: Mapping[str, float]


class MeasuredRun(JsonObject):
    """A training step that somebody else has measured, and what is predicted for it."""

    model: str
    devices: int
    hardware: str  #: of the catalogue
    software: str  #: as its source calls it
    numbers: str  #: "bf16", "fp8"
    seconds: float  #: of a step; `predicted` by this version
    predicted: float
    source: str  #: who published it, with the licence


class _TimedGraph(Summary):
    """Fields of a graph whose ops have durations."""

    model: str
    batch: int | None
    #: of most of the work; `optimizer` "none" for a step that updates nothing, `shape` that of
    #: one example, and `source` where the graph is from. None where that is not known.
    dtype: str | None = None
    optimizer: str | None = None
    shape: str | None = None
    source: str | None = None
    environment: str
    differences: str
    device: str
    captured_for: str
    cache: str
    profiled: int
    not_profiled: Mapping[str, str]
    machine_spread: float
    launch: float
    stack: str | None = None  #: software on hardware of the catalogue; None where ops were timed
    hardware: str | None = None  #: of the catalogue; None where ops were timed
    tokens_per_second: float | None = None  #: None where examples are no sequences of tokens
    #: of a device; cost of a million tokens, or examples, in worker-hours without a price
    price: str | None = None
    currency: str = ""
    cost: float | None = None
    nearest: Sequence[MeasuredRun] = ()  #: measured runs like this one, the nearest first
    durations: Mapping[str, str]
    coverage: Mapping[str, float]
    estimated_ops: int
    baselines: Seconds
    largest: Sequence[Json]
    nodes: int
    distinct_ops: int
    untimed: Sequence[str]
    resident: Mapping[str, int]
    iteration_time: float
    interval: Interval
    examples: int | None
    examples_per_second: float | None
    throughput: Sequence[ThroughputRow]
    breakdown: Json
    peak_memory: int | None
    bottleneck: str
    measured: Measured | None
    #: on hardware of the catalogue, as a list; None on others
    memory: DeviceMemory | None = None


class IterationSummary(_TimedGraph):
    """Of `paracosm predict`: an iteration on one device."""

    verb: ClassVar[str] = "predict"
    kind: Literal["iteration"] = "iteration"
    phases: Mapping[str, Seconds]


class MemoryLine(JsonObject):
    """What holds memory of a device: `bytes`, and the `source` that says how many."""

    what: str
    bytes: int
    source: str


class DeviceMemory(JsonObject):
    """The memory of the rank that comes closest to its device's.

    Attributes:
        rank: its name.
        lines: what it holds when most is held; they add up to `total`.
        allocated: bytes of tensors.
        reserved: bytes that the allocator keeps for them.
        total: bytes reserved, and those of the framework and its collectives.
        capacity: bytes of the device.
        retries: times in an iteration that the allocator gives back what is unused, to make room.
        verdict: "fits", "tight" or "does not fit".
        sentence: what that means; empty where it fits.
        on_host: what the host holds for the rank.
    """

    rank: str
    lines: Sequence[MemoryLine]
    allocated: int
    reserved: int
    total: int
    capacity: int
    retries: int
    verdict: str
    sentence: str
    on_host: Sequence[MemoryLine] = ()


class OneReplica(JsonObject):
    """A replica of the job alone on its device, or on the `split` devices that share its layers."""

    iteration_time: float
    examples_per_second: float | None
    peak_memory: int | None
    split: int
    measured: float | None


class RankedStrategy(JsonObject):
    """A predicted strategy that fits into memory."""

    strategy: str
    micro_batch: int  #: examples per pass; `examples` per iteration of all workers
    examples: int
    iteration_time: float
    peak_memory: int | None
    limit: str  #: the largest part of the iteration; `causes` has the seconds of all parts
    causes: Seconds


class StrategySearch(JsonObject):
    """How a strategy was found."""

    ranked: Sequence[RankedStrategy]  #: the fastest per example, best first
    #: candidates, predicted: numbers of considered and predicted strategies
    candidates: int
    predicted: int
    too_large: int  #: number that do not fit into memory
    complete: bool  #: whether no other can be faster than the first


class JobSummary(_TimedGraph):
    """Of `paracosm predict`: a job on a cluster. Numbers are those of the most workers."""

    verb: ClassVar[str] = "predict"
    kind: Literal["job"] = "job"
    workers: int
    strategy: str
    servers: int
    cluster: Json
    ideal: float | None
    efficiency: float | None
    fits: bool | None
    misfits: Sequence[str]
    replica: OneReplica
    ranks: int
    tasks: int
    classes: int
    provenance: Json
    devices: Mapping[str, str]
    #: keys of the strategy that nobody gave, with their values
    strategy_defaults: Mapping[str, str] | None = None
    unchanged: Json | None = None
    search: StrategySearch | None = None  #: how the strategy was found; None if it was given


class PlannedStrategy(RankedStrategy):
    """A strategy for a number of workers."""

    workers: int
    place: int  #: among those for its number of workers, 1 the fastest
    tokens_per_second: float  #: without failures
    time: float  #: seconds for all tokens, failures included
    cost: float  #: in the price's money, or in worker-hours
    #: share of the time left by failures and checkpoints; None where nothing fails
    effective: float | None
    is_efficient: bool  #: no other strategy is both faster and no more expensive


class StrategyPlanSummary(Summary):
    """Of `paracosm plan` for a model, hardware and a number of tokens."""

    verb: ClassVar[str] = "plan"
    kind: Literal["strategy plan"] = "strategy plan"
    model: str
    dtype: str | None = None
    optimizer: str | None = None
    parameters: int
    hardware: str
    stack: str | None = None  #: the software that runs on it
    tokens: float
    batch_tokens: float
    sequence: int
    price: str | None
    currency: str  #: of costs; empty for worker-hours
    mtbf: str | None
    designs: Sequence[PlannedStrategy]  #: by number of workers, then by place
    #: fastest, cheapest: indices of designs
    fastest: int
    cheapest: int
    #: candidates, predicted, too_large, complete: as those of a `StrategySearch`, of all
    #: workers
    candidates: int
    predicted: int
    too_large: int
    complete: bool
    durations: Mapping[str, str]
    cluster: Json | None = None  #: with the most workers
    nearest: Sequence[MeasuredRun] = ()  #: to the fastest design


class Saturation(JsonObject):
    """The number of workers from which more bring little, and the resource that limits them."""

    workers: int
    because: str


class ThroughputSummary(Summary):
    """Of `paracosm predict` from a job profile. Numbers are those of the most workers."""

    verb: ClassVar[str] = "predict"
    kind: Literal["throughput"] = "throughput"
    profile: str
    workers: int
    servers: int
    batch: int | None
    steps_per_second: float
    spread: float | None
    examples_per_second: float | None
    throughput: Sequence[ThroughputRow]
    baselines: Mapping[str, Sequence[ThroughputRow]]
    saturation: Saturation | None
    bottleneck: str
    job_profile: Json
    target: Json
    cluster: Json
    unchanged: ThroughputSummary | None = None


class Scenario(JsonObject):
    """A replay of a traced job, with or without a change."""

    what_if: str
    iteration_time: float
    speedup: float | None
    breakdown: Mapping[str, Seconds]  #: rank -> seconds of its iteration by part
    #: the rank that is last most often; None without collectives between ranks
    straggler: Json | None
    bottleneck: str
    error: float | None = None  #: relative to the trace; only of the unchanged one


class LateRank(JsonObject):
    """How often a rank is last to collectives, and the seconds that others then wait."""

    rank: int
    last: int
    collectives: int
    steps: int  #: in which others wait longest for this rank
    lateness: float  #: total seconds; `mean` and `most` per collective
    mean: float
    most: float


class LateStep(JsonObject):
    """The rank that others wait for longest in a step, and the total over its collectives."""

    step: int
    rank: int
    last: int
    collectives: int
    lateness: float


class LateCollective(JsonObject):
    """The rank that is last to a collective of every step: the `place`-th of its group."""

    kind: str
    group: str
    ranks: int
    place: int
    times: int
    rank: int  #: that is last most often, `last` of `times`
    last: int
    mean: float  #: mean seconds that the others wait; `most` the maximum
    most: float
    most_rank: int
    most_step: int | None


class Lateness(JsonObject):
    """Late ranks, as traced: the most expensive ranks and collectives first, steps in order."""

    ranks: Sequence[LateRank]
    steps: Sequence[LateStep]
    collectives: Sequence[LateCollective]


class ReplaySummary(Summary):
    """Of `paracosm replay`; `what_ifs` has each change alone, `together` all of them at once."""

    verb: ClassVar[str] = "replay"
    kind: Literal["replay"] = "replay"
    traces: Sequence[str]
    ranks: Sequence[int]
    steps: Sequence[int]
    tasks: int
    alone: bool
    iteration_time: float
    replayed: Scenario | None
    what_ifs: Sequence[Scenario]
    together: Scenario | None
    clocks_moved: Mapping[str, float]
    missing: Mapping[str, Sequence[str]]
    durations: Mapping[str, str]
    parts: int = 1  #: number of parts in which a large trace was replayed
    lateness: Lateness | None = None  #: None without collectives between ranks
    steps_left_out: Mapping[str, str] | None = None  #: by number, why a step is not in the mean
    all_faulty: bool = False  #: no step is whole, and these are in the mean as they are
    #: by trace, what was left out of it or is taken for something that it need not be
    notes: Mapping[str, Sequence[str]] | None = None
    #: seconds by which a device is behind its host at the end of the last step, where steps
    #: are as long as the device takes; 0 where they are as long as the host takes
    behind: float = 0.0


class IterationTimes(JsonObject):
    """Times of measured iterations; `error` is the standard error of the median."""

    median: float
    p10: float
    p90: float
    mean: float
    error: float
    measured: int


class EmulationSummary(Summary):
    """Of `paracosm emulate`. Of several real ranks the numbers are those of the slowest one."""

    verb: ClassVar[str] = "emulate"
    kind: Literal["emulation"] = "emulation"
    exit_code: int | None
    world_size: int
    mode: str
    rank: Sequence[int]
    iterations: int
    iteration_time: IterationTimes | None
    no_iteration_time: str | None = None
    typical_iteration: int | None
    breakdown: Seconds | None
    utilisation: Mapping[str, float | None]
    peak_memory: int | None
    collectives: Mapping[str, Json]
    all_collectives: Json
    groups: Sequence[Json]
    modelled: Mapping[str, str]
    notes: Sequence[Json]
    virtual_time: float
    wall_time: float
    cluster: Json | None = None
    lateness: Json | None = None
    noise: Sequence[str] = ()
    emulator: Json | None = None
    slowest_rank: int | None = None
    ranks: Sequence[Json] | None = None
    delays: Sequence[Json] | None = None
    knee: Json | None = None
    beside: Json | None = None
    unchanged: EmulationSummary | None = None
    ratio: float | None = None
    #: seconds of an iteration with links of twice the bandwidth; None where the job was not
    #: put together from a measurement, or waits for little
    twice_bandwidth: float | None = None
    #: throughput over `world_size` times that of one rank, which does the same and has nobody to
    #: wait for; None where the job was not put together from a measurement, or ranks differ
    efficiency: float | None = None


class ScriptMemory(JsonObject):
    """The memory of a rank on a device.

    Attributes:
        allocated: bytes that tensors hold at most in an iteration; `by_kind` what they are for.
        reserved: bytes that PyTorch's allocator holds for them.
        overhead: bytes of CUDA and NCCL, published.
        capacity: bytes of the device.
        verdict: "fits", "tight" or "does not fit".
        modules: those that hold most when most is allocated: `name`, the `count` of modules whose
            names differ in their numbers alone, bytes of `state` (parameters, gradients, the
            optimizer) and of the `rest`.
        retries: times that the allocator gives back what is not used, to make room.
        savings: where it is tight or does not fit, what to `change`: bytes `freed`, `seconds` that
            an iteration takes longer, the `verdict` then.
    """

    allocated: int
    by_kind: Mapping[str, int]
    reserved: int
    overhead: int
    capacity: int
    verdict: str
    modules: Sequence[Mapping[str, Any]]
    retries: int
    savings: Sequence[Mapping[str, Any]]


class ScriptBatch(JsonObject):
    """What an iteration of a script works on.

    Attributes:
        count: of all ranks.
        unit: "tokens", "images" or "examples".
        origin: how it was counted, in words.
    """

    count: float
    unit: str
    origin: str


class ScriptSummary(Summary):
    """Of `paracosm emulate --hardware`: an unmodified script on a device that is not there.

    Attributes:
        hardware: the device's name in the catalogue; `node` what joins it to others.
        rank: those that were recorded; times are of the slowest, memory of the fullest.
        iteration_time, interval: of a typical iteration; `iteration_times` of all that were
            recorded but the first, which also prepares.
        waits: share of an iteration in which the device waits for communication; `launch_bound`
            for the host.
        flops: of an iteration of one rank; `peak_flops` the device's per second, for its most used
            type of number.
        by_class: seconds of an iteration's ops by class, `largest` the distinct ops that take most.
        collectives: of an iteration by kind: count, bytes and seconds.
        assumed: values that were read and never computed: text, line of the script, count.
        recording: seconds and bytes that the recording took here; None where it was reused.
        batch: of an iteration, None where it is not known; `throughput` that of all ranks, per
            second.
        cost: of an iteration of all ranks, in the currency of the price; None without a price.
    """

    verb: ClassVar[str] = "emulate"
    kind: Literal["script"] = "script"
    exit_code: int | None
    world_size: int
    hardware: str
    node: str
    rank: Sequence[int]
    iterations: int
    iteration_time: float | None
    interval: Interval | None
    iteration_times: Sequence[float]
    breakdown: Seconds | None
    waits: float | None
    launch_bound: float | None
    flops: int | None
    peak_flops: float | None
    by_class: Seconds
    largest: Sequence[Json]
    collectives: Mapping[str, Json]
    memory: ScriptMemory | None
    assumed: Sequence[Json]
    durations: Mapping[str, str]
    notes: Sequence[Json]
    wall_time: float
    recording: Json | None = None
    twice_bandwidth: float | None = None
    batch: ScriptBatch | None = None
    throughput: float | None = None
    price: str | None = None
    currency: str = ""
    cost: float | None = None
    unchanged: ScriptSummary | None = None


class PlannedScript(JsonObject):
    """A script on a number of devices of one kind."""

    hardware: str
    workers: int
    failure: str | None = None  #: why there is no time
    iteration_time: float | None = None
    interval: Interval | None = None
    batch: ScriptBatch | None = None
    throughput: float | None = None  #: of all ranks, per second
    #: seconds for all tokens, or for a million of them; None where none were counted
    time: float | None = None
    #: of `time`, or of an iteration, in the price's money, or in worker-hours
    cost: float | None = None
    memory: ScriptMemory | None = None
    limit: str = ""  #: what most of the time that is not computing waits for
    assumed: Sequence[str] = ()  #: what nobody has given, and moves the time by more than a tenth
    is_efficient: bool = False  #: it fits, and no other that fits is both faster and cheaper

    @property
    def fits(self) -> bool:
        return self.memory is not None and self.memory.verdict != "does not fit"


class ScriptPlanSummary(Summary):
    """Of `paracosm plan` for a script: which hardware, and how much of it."""

    verb: ClassVar[str] = "plan"
    kind: Literal["script plan"] = "script plan"
    script: str
    arguments: Sequence[str]
    hardware: Sequence[str]
    tokens: float | None  #: of the whole training
    unit: str  #: "tokens", "images", "examples", or "iterations" where nothing was counted
    price: str | None
    currency: str  #: of costs; empty for worker-hours
    designs: Sequence[PlannedScript]  #: by number of workers
    #: fastest, cheapest: indices of designs, of those that fit
    fastest: int | None
    cheapest: int | None
    durations: Mapping[str, str]


class ProfileSummary(Summary):
    """Of `paracosm profile ops`; `iteration_time` is measured, None without real iterations."""

    kind: Literal["profile"] = "profile"
    environment: Json
    nodes: int
    distinct_ops: int
    timings: int
    refused: Mapping[str, str]
    stable: float
    probe: Seconds | None
    iteration_time: float | None
    iteration_spread: Seconds | None
    iterations: int
    sum_of_ops: Seconds
    untimed_nodes: Mapping[str, int]
    by_phase: Seconds
    by_op: Mapping[str, Json]


class TuningSummary(Summary):
    """The best values of a tuning.

    Attributes:
        objective: the name of what is minimised or maximised; "time_over_fault_free" is the time to
            tolerance in units of the same seed's without faults.
        space: what was varied: bounds, or several values.
        trials: number of them.
        seeds, fresh_seeds: first and last one.
        best: number of the best trial, its values, and what it came to in the search.
        validation: what the best and what it is compared with came to with fresh seeds, by name.
        answer: which of these is best.
        limit, fault_free_time, time_between_faults, near_best, suggested_intervals: of relaxations
            under faults.
    """

    verb: ClassVar[str] = "tune"
    kind: Literal["tuning"] = "tuning"
    objective: str = "time_over_fault_free"
    space: Mapping[str, Sequence[Any]]
    trials: int
    seeds: Sequence[int]
    fresh_seeds: Sequence[int]
    best: Json
    validation: Mapping[str, Json]
    remarks: Sequence[str]
    answer: str | None = None
    limit: float | None = None
    fault_free_time: Json | None = None
    time_between_faults: float | None = None
    near_best: Mapping[str, Sequence[float]] | None = None
    suggested_intervals: Mapping[str, float | None] | None = None
