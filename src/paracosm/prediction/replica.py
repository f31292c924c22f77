"""One replica of a job with its durations: a graph, captured or read, and timings of its ops."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paracosm.arrays import Floats
from paracosm.cluster.hardware import Hardware, Stack, load_efficiencies
from paracosm.errors import InputError, MissingExtraError, require, unknown
from paracosm.graphs.file import load_graph
from paracosm.graphs.graph import Graph
from paracosm.graphs.summary import fingerprint
from paracosm.graphs.transformer import transformer_graph
from paracosm.prediction.config import CAPTURE, PredictConfig
from paracosm.prediction.host_costs import find_page_faults
from paracosm.prediction.iteration import Prediction, predict
from paracosm.profiling.allocator import command_allocator, own_allocator
from paracosm.profiling.datasheets import (
    NONE,
    Correction,
    common_error,
    corrected_by,
    corrected_by_ops,
    durations_on,
    share_of_kernels,
)
from paracosm.profiling.durations import (
    Found,
    choose_environment,
    environment_of,
    environments_in,
    find_durations,
)
from paracosm.profiling.environment import Environment
from paracosm.profiling.samples import IterationTiming
from paracosm.quantities import read_duration
from paracosm.units import format_duration
from paracosm.validation import validated

if TYPE_CHECKING:
    from paracosm.profiling.estimators.roofline import Estimate

Progress = Callable[[int, float | None], None]
Announce = Callable[[str], None]

LAUNCH = 5e-6  # seconds; default for a CUDA kernel

ONE_EACH = "one sequence a device"
BY_DEFAULT = ", by default"
"""What the origins of an answer say of what nobody has given."""


@dataclass(frozen=True, eq=False)
class TimedReplica:
    """A graph and the durations of its ops."""

    graph: Graph
    captured_for: str  # type of device that it was captured for
    environment: Environment | None  # whose timings they are; None where they are the graph's own
    differences: str  # how that one differs from this machine's
    found: Found
    launch: float  # seconds that the host spends on issuing an op
    launch_origin: str  # how that is known; empty on a CPU
    page_faults: Floats | None = None  # seconds of each node, with untuned malloc
    hardware: Hardware | None = None  # of the catalogue; None where timings were taken
    correction: Correction = NONE  # of the catalogue's hardware, by what was measured
    stack: Stack | None = None  # that runs on it

    @property
    def device(self) -> str:
        if self.hardware is not None:
            return "cpu" if self.hardware.device.kind == "cpu" else "cuda"
        return self.captured_for if self.environment is None else self.environment.device

    @property
    def asynchronous(self) -> bool:
        """Whether the host runs ahead of the device (a GPU)."""
        return self.device != "cpu"

    @property
    def split(self) -> int:
        """Ranks that split each layer of the graph between them; it is that of one of them."""
        provenance = self.graph.provenance
        return int(provenance.get("ranks", 1)) if provenance.get("parallel") == "tensor" else 1

    def predict(self, *, free_communication: bool = False) -> Prediction:
        return predict(
            self.graph,
            self.found.durations,
            asynchronous=self.asynchronous,
            launch=self.launch,
            common=self.found.common,
            baselines=self.found.baselines,
            free_communication=free_communication,
            page_faults=self.page_faults,
        )

    def facts(self, config: PredictConfig, coverage: Mapping[str, float]) -> dict[str, Any]:
        return {
            "model": str(config.graph) if config.model is None else config.model,
            "environment": _where(self),
            "differences": self.differences,
            "device": self.device,
            "captured_for": self.captured_for,
            "cache": config.cache,
            "profiled": self.found.profiled,
            "not_profiled": self.found.refused,
            "machine_spread": self.found.common,
            "launch": self.launch,
            "stack": None if self.hardware is None else config.software_name,
            "durations": _provenance(config, coverage, self.launch_origin, self.page_faults)
            | _sources(self, config),
        }


def find_replica(
    config: PredictConfig,
    seed: int,
    progress: Progress | None = None,
    announce: Announce | None = None,
    *,
    tensor: int = 1,
    device: str | None = None,
) -> TimedReplica:
    """Return the replica of a configuration, as one of `tensor` ranks that split layers. `device`
    is the default of the configuration's hardware.
    """
    say = announce or (lambda sentence: None)
    if config.allocator == "default" and (config.catalogued is not None or config.is_timed):
        raise InputError("allocator: has no effect without a machine's timings, leave it out")
    if config.catalogued is not None:
        return _catalogued(config, config.catalogued, tensor, say, seed)
    if config.is_timed:
        return _recorded(config)
    hardware = config.hardware if config.hardware is not None else device
    here = _this_machine(config, hardware)
    try:
        held = environments_in(config.db)
        environment = choose_environment(held, here, hardware, str(config.db))
    except InputError as error:
        if config.hardware is not None or device is None:
            raise
        raise InputError(
            f"cluster: device {device}: {error}: give --hardware to use other timings"
        ) from None
    if here is not None and environment == replace(here, allocator=own_allocator()):
        here = environment  # of this process, if not of the commands
    differences = _differences(here, environment)
    if differences:
        say(f"Timings of {environment}: {differences}.")
    graph, captured_for = _graph(config, environment.device, tensor, say, seed)
    if captured_for != environment.device:
        say(f"Captured for {captured_for}: PyTorch has no CUDA here, some ops may be others there.")
    found = _durations(config, graph, environment, here == environment, seed, progress)
    if found.profiled:
        say(f"{found.profiled} ops were profiled here and added to {config.db}.")
    launch = _launch(config, found, environment.device)
    page_faults = find_page_faults(config, graph, environment, here == environment, say)
    return TimedReplica(
        *(graph, captured_for, environment, differences, found), *launch, page_faults=page_faults
    )


def _catalogued(
    config: PredictConfig, hardware: Hardware, tensor: int, say: Announce, seed: int
) -> TimedReplica:
    """Return the replica on other hardware, from its datasheet."""
    kind = "cpu" if hardware.device.kind == "cpu" else "cuda"
    graph, captured_for = _graph(config, kind, tensor, say, seed)
    if graph.is_timed:
        raise InputError(
            f"hardware: has no effect, leave it out: {config.graph} has the durations of its ops"
        )
    durations, correction = durations_on(graph, hardware, stack=config.software), NONE
    if config.measured is not None:
        durations, correction = _corrected(config, hardware, graph, durations, say, seed)
    common = common_error(
        *(hardware, correction, load_efficiencies()),
        *(config.software, share_of_kernels(graph, durations)),
    )
    found = Found(durations, 0, {}, None, 0.0, common, {})
    launch = _launch(config, found, kind)
    return TimedReplica(
        *(graph, captured_for, None, "", found, *launch),
        hardware=hardware,
        correction=correction,
        stack=config.software,
    )


Durations = list["Estimate | None"]


def _corrected(
    config: PredictConfig,
    hardware: Hardware,
    graph: Graph,
    durations: Durations,
    say: Announce,
    seed: int,
) -> tuple[Durations, Correction]:
    """Correct durations by the iteration or the timings of ops that `measured` says."""
    assert config.measured is not None
    if os.path.isfile(config.measured):  # False for a text that no file can have as its name
        path = Path(config.measured)
        environment = environment_of(path, hardware)
        timed = find_durations(graph, path, environment, cache=config.cache).durations
        exact = [
            None if estimate is None or estimate.source != "exact" else estimate
            for estimate in timed
        ]
        correction, durations = corrected_by_ops(durations, exact, graph, str(path))
    else:
        asked, seconds = read_measured(config.measured)
        for option in ("launch", "stack"):
            if getattr(config, option) is not None:
                asked[option] = getattr(config, option)
        other = validated(PredictConfig, asked | {"hardware": config.hardware}, "measured")
        whole = _catalogued(other, hardware, 1, say, seed)
        correction = corrected_by(
            seconds,
            whole.predict(free_communication=True).iteration_time,
            config.measured,
            whole.graph,
            whole.found.durations,
        )
        durations = durations_on(graph, hardware, stack=config.software, correction=correction)
    say(f"Durations on {hardware.name} times {correction.factor:.3g}, by {correction.origin}.")
    return durations, correction


def read_measured(text: str) -> tuple[dict[str, Any], float]:
    """Read "resnet50, batch 64: 210 ms" as what was run, by fields, and seconds of an iteration."""
    form = f'measured: write "resnet50, batch 64: 210 ms", or a database, not "{text}"'
    said, colon, time = text.rpartition(":")
    model, *parts = (part.strip() for part in re.split(r",(?![^(]*\))", said))
    if not colon or not model:
        raise InputError(form)
    fields: dict[str, Any] = {"model": model}
    for part in parts:
        name, _, value = part.partition(" ")
        if not value:
            raise InputError(form)
        if name not in CAPTURE:
            raise InputError(f"measured: {unknown('option', name, sorted(CAPTURE))}")
        fields[name] = value.strip()
    return fields, read_duration(time.strip())


def measured_iteration(config: PredictConfig, replica: TimedReplica) -> IterationTiming | None:
    """Return the newest measurement of this very iteration in this environment."""
    if replica.environment is None:
        return None
    from paracosm.profiling.database import ProfileDatabase

    with ProfileDatabase.open(config.db, readonly=True) as database:
        known = database.iterations(fingerprint(replica.graph), replica.environment)
    return max(known, key=lambda timing: timing.measured_at, default=None)


def _recorded(config: PredictConfig) -> TimedReplica:
    graph = load_graph(config.graph or "")
    device = str(graph.provenance.get("device", "cpu"))
    found = Found([None] * len(graph.ops), 0, {}, None, 0.0, 0.0, {})
    return TimedReplica(graph, device, None, "", found, *_launch(config, found, device))


def _this_machine(config: PredictConfig, hardware: str | None) -> Environment | None:
    """This machine's environment with the commands' malloc; None if another is selected."""
    from paracosm.profiling.environment import environment_here

    try:
        return environment_here(config.device, config.threads, allocator=command_allocator())
    except (InputError, MissingExtraError):
        if hardware is None:
            raise
        return None


def _differences(here: Environment | None, environment: Environment) -> str:
    if here is None or here.hardware != environment.hardware:
        return "not this machine"
    differences = here.differences(environment)
    return f"this machine with {', '.join(differences)}" if differences else ""


def _graph(
    config: PredictConfig, device: str, tensor: int, say: Announce, seed: int
) -> tuple[Graph, str]:
    """Return the graph, whole if it cannot be captured per rank, and its type of device."""
    if config.graph is not None:
        graph = load_graph(config.graph)
        return graph, str(graph.provenance.get("device", device))
    if config.architecture is not None:
        split = config.jobs[-1][1].split(seed) if config.is_on_cluster else 1
        train = config.train
        return transformer_graph(config.architecture, config.batch, split, train=train), device
    from paracosm.graphs.capture import capture

    if device == "cuda" and not require("torch", "torch", "capturing").cuda.is_available():
        device = "cpu"
    if tensor > 1:
        try:
            return capture(config.options(device, tensor)), device
        except InputError as error:
            say(f"{error}. Each layer is split into {tensor} by estimate instead.")
    return capture(config.options(device)), device


def _durations(
    config: PredictConfig,
    graph: Graph,
    environment: Environment,
    is_here: bool,
    seed: int,
    progress: Progress | None,
) -> Found:
    new_ops = config.new_ops or ("profile" if is_here else "estimate")
    if not is_here and (config.exact or new_ops == "profile"):
        raise InputError(
            f"{'exact' if config.exact else 'new_ops'}: ops of {environment.hardware} can be "
            "profiled only there: use --new-ops estimate for flops and bytes"
        )
    return find_durations(
        graph,
        config.db,
        environment,
        cache=config.cache,
        new_ops=new_ops,
        exact=config.exact,
        estimator=config.estimator,
        seed=seed,
        progress=None if progress is None else lambda done, total: progress(done, None),
    )


def _launch(config: PredictConfig, found: Found, device: str) -> tuple[float, str]:
    if device == "cpu":
        if config.launch is not None:
            raise InputError(
                "launch: has no effect on a CPU, leave it out: timings of ops include it"
            )
        return 0.0, ""
    if config.launch is not None:
        return config.launch, f"given: {format_duration(config.launch)}"
    if found.launch is not None:
        return found.launch, f"the shortest timing of an op: {format_duration(found.launch)}"
    return LAUNCH, f"assumed: {format_duration(LAUNCH)}"


def _provenance(
    config: PredictConfig, coverage: Mapping[str, float], launch: str, page_faults: Floats | None
) -> dict[str, str]:
    names = {
        "exact": f"measured, data {config.cache}",
        "interpolated": "interpolated between measured ones",
        "estimated": "estimated from others of their type",
        "unknown": "estimated from flops and bytes",
        "recorded": "as recorded in the graph",
        "kernel": "kernels timed on it",
        "efficiency": "its datasheet, times the measured efficiency of the class of ops",
        "pooled": "kernels timed on other devices, by their peaks; else its datasheet, times the "
        "efficiency of the class of ops on others",
        "datasheet": "datasheet, times the efficiency of another class of ops",
    }
    provenance = {source: names[source] for source in coverage if source in names}
    if launch:
        provenance["launching an op"] = launch
    if page_faults is not None:
        provenance["page faults"] = f"measured by the byte: {format_duration(page_faults.sum())}"
    return provenance


def _where(replica: TimedReplica) -> str:
    if replica.hardware is None:
        return "" if replica.environment is None else str(replica.environment)
    hardware = replica.hardware
    origin = f" ({hardware.origin})" if hardware.origin else ""
    node = "" if hardware.node is None else f", in {hardware.node.title}"
    return f"{hardware.device.title}{origin}{node}: by its datasheet, not timed"


def software_source(config: PredictConfig, *, by_default: bool) -> str:
    """Return which software runs on catalogued hardware, whether nobody chose it, its source."""
    stack, why = config.software, BY_DEFAULT if by_default else ""
    return f"{config.software_name}{why}: {stack.title}: {stack.source}"


def _sources(replica: TimedReplica, config: PredictConfig) -> dict[str, str]:
    """Return the sources of the catalogue's numbers, and their correction."""
    if replica.hardware is None:
        return {}
    hardware, correction = replica.hardware, replica.correction
    sources = {
        "software": software_source(config, by_default=config.stack is None),
        "peaks and memory": hardware.device.source,
    }
    if "batch" not in config.model_fields_set and config.architecture is not None:
        sources[ONE_EACH] = "by default: most devices have no room for many more"
    if hardware.node is not None:
        sources["node"] = hardware.node.source
    offloads = config.is_on_cluster and config.jobs[-1][1].offload_optimizer
    if hardware.host is not None and offloads:
        sources["host"] = f"{hardware.host.title}: {hardware.host.source}"
    sources |= {what: f"assumed: {why}" for what, why in hardware.assumed.items()}
    if correction.origin:
        sources["correction"] = f"times {correction.factor:.3g}: measured: {correction.origin}"
    return sources
