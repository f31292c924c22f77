"""The arguments of a prediction from timings of ops: from a database, a graph or a datasheet."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from paracosm.cluster import Cluster
from paracosm.cluster import hardware as catalogue
from paracosm.cluster.changes import Change
from paracosm.cluster.cluster import first_workers
from paracosm.cluster.fields import LINK_FIELDS
from paracosm.cluster.worker_counts import MOST_NODES
from paracosm.errors import InputError, shown
from paracosm.graphs.capture.options import DTYPES, MOST_ELEMENTS, parse_shape
from paracosm.graphs.transformer.architecture import ARCHITECTURES, Transformer
from paracosm.graphs.transformer.published_config import LONGEST, find_transformer, is_transformer
from paracosm.models.optimizers import OPTIMIZERS
from paracosm.models.registry import MODELS, canonical
from paracosm.prediction.candidates import check_divisible, machine_of
from paracosm.prediction.fields import PredictionFields
from paracosm.prediction.timeline_ranks import check_ranks, parse_ranks
from paracosm.price import DevicePrice
from paracosm.quantities import Duration

if TYPE_CHECKING:
    from paracosm.cluster.hardware import Hardware, Stack
    from paracosm.graphs.capture import CaptureOptions
    from paracosm.jobs.strategies.strategy import Strategy


SUBJECTS = ("model", "graph")
CLUSTER = LINK_FIELDS | {
    *("strategy", "workers", "servers", "cluster"),
    *("what_if", "duration_cv", "slowdown", "timeline_ranks"),
}
CAPTURE = frozenset(
    {"batch", "shape", "classes", "dtype", "optimizer", "foreach", "dropout", "train"}
)
AUTO = "auto"
SIZES = "sizes:"  # before the name of a transformer: the published model, whatever times its ops
OF_DATABASE = frozenset({"db", "cache", "estimator", "new_ops", "exact"})


def _sizes(value: Any) -> Any:
    return parse_shape(value) if isinstance(value, str) else value


def _model(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(SIZES):
        find_transformer(value.removeprefix(SIZES), LONGEST)
        return value
    if not isinstance(value, str) or is_transformer(value):
        return value
    return canonical(value, ARCHITECTURES)


class PredictConfig(PredictionFields):
    """A prediction: the computation, the cluster, and the source of timings.

    From a job profile it is a `parameter_servers.config.ThroughputConfig`.
    """

    CAN_CHANGE = (
        "how fast workers and servers compute, links, collectives, and the number of workers"
    )

    # Which computation.
    model: Annotated[str | None, BeforeValidator(_model)] = Field(
        None,
        description="resnet50, gpt2, llama-8b, mlp(hidden=512, layers=2), ..., "
        "package.module:factory, or a config.json of Hugging Face; sizes:gpt2 is the published "
        "model also with a database",
    )
    graph: Path | None = Field(None, description=".graph file, instead of a model")
    batch: int = Field(
        64,
        ge=1,
        le=MOST_ELEMENTS,
        description="examples per forward and backward pass of a replica, or per profiled step "
        "(64; of a published model 1)",
    )
    global_batch: int | None = Field(
        None,
        ge=1,
        le=MOST_ELEMENTS * MOST_NODES,
        description="examples per iteration of all workers, for strategy auto (number of workers)",
    )
    shape: Annotated[tuple[int, ...] | None, BeforeValidator(_sizes)] = Field(
        None, description="of one example: 3x32x32, or a number of tokens (the model's own)"
    )
    classes: int | None = Field(
        None,
        ge=1,
        le=MOST_ELEMENTS,
        description="number of classes (the model's own, or 10 for small images)",
    )
    dtype: str = Field("float32", description=f"of parameters and activations: {', '.join(DTYPES)}")
    optimizer: str = Field(
        "sgd", description=f"{', '.join(OPTIMIZERS)}; with options as in sgd(momentum=0.9)"
    )
    foreach: bool = Field(False, description="update all parameters in one op")
    dropout: bool = Field(False, description="train with the model's dropout (off)")
    train: bool = Field(True, description="a training step, or only the forward pass")
    lora: int | None = Field(
        None,
        ge=1,
        le=MOST_ELEMENTS,
        description="rank of adapters of attention's projections, which alone are trained, in a "
        "transformer by its published sizes (all weights are trained)",
    )

    # On which cluster.
    strategy: str | None = Field(
        None,
        description="how workers share the work: ddp, fsdp, zero1, ps, ps-async, or "
        '"dp=64, tp=8, pp=4, schedule=1f1b, microbatches=32" (ddp, where there is a cluster); '
        "auto: the fastest that fits into memory",
    )
    duration_cv: float = Field(
        0.0,
        ge=0,
        le=1,
        description="coefficient of variation of the durations of tasks: their standard deviation "
        "over their mean",
    )
    slowdown: float | None = Field(
        None,
        ge=1,
        allow_inf_nan=False,
        description="slowdown of computing while collectives between replicas run: on GPUs 1.19 "
        "on average, at most 1.4 (Lee et al. 2025) [1.189 on GPUs of the catalogue, else "
        "1]",
    )
    timeline_ranks: str | None = Field(
        None,
        description="ranks of the timeline: 0,8..15, or all (one of each kind, at most 16)",
    )

    # From whose timings.
    db: Path = Field(Path("profiles.db"), description="profile database")
    hardware: str | None = Field(
        None,
        description="a device or node of the catalogue (paracosm hardware list), a datasheet file, "
        'or part of a name in the database: "H100"; several are a sweep: h100-sxm,h200-sxm (this '
        "machine)",
    )
    stack: str | None = Field(
        None,
        description="software on hardware of the catalogue: which kernels it runs, and what it "
        "fuses: megatron-te, torchtitan, ... (paracosm hardware stacks; by the model "
        "and the strategy)",
    )
    price: DevicePrice = Field(
        None,
        description='money for a device of the catalogue: "2.2/h"; of several, "h100-sxm: 2.2/h, '
        'l4: 0.7/h" (costs are in worker-hours)',
    )
    measured: str | None = Field(
        None,
        description="measurement on hardware of the catalogue, to calibrate predictions: "
        '"resnet50, batch 64: 210 ms", or a database with timings of ops',
    )
    threads: int = Field(1, ge=1, description="threads per op, for this machine")
    device: Literal["cpu", "cuda"] = Field("cpu", description="device of this machine")
    cache: Literal["cold", "warm"] = Field(
        "cold", description="timings with cold data, as in a real iteration, or the op in a row"
    )
    estimator: str | None = Field(
        None, description="estimator of ops without timings (chosen by cross-validation)"
    )
    new_ops: Literal["profile", "estimate", "refuse"] | None = Field(
        None,
        description=(
            "op types without timings: profile them now, estimate them from flops and "
            "bytes, or refuse (profile on this machine, else estimate)"
        ),
    )
    exact: bool = Field(False, description="profile every op without its own timing")
    allocator: Literal["kept", "default"] = Field(
        "kept",
        description="whether malloc keeps what is freed, as ops are timed, or gives large blocks "
        "back and takes new memory in every iteration, as it does untuned (CPU)",
    )
    launch: Duration | None = Field(
        None,
        ge=0,
        description="host time to launch an op on a GPU (the shortest timing)",
    )

    @property
    def is_auto(self) -> bool:
        """Whether to search for the strategy."""
        return self.strategy is not None and self.strategy.strip() == AUTO

    @property
    def is_on_cluster(self) -> bool:
        return any(getattr(self, name) is not None for name in ("cluster", "workers", "strategy"))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        subjects = [name for name in SUBJECTS if getattr(self, name)]
        if len(subjects) != 1:
            but = f", not {' and '.join(subjects)}" if subjects else ": --model resnet50"
            raise ValueError(f"nothing to predict: give one of model, graph, profile{but}")
        if self.shape is not None and not all(1 <= size <= MOST_ELEMENTS for size in self.shape):
            sizes = "x".join(map(shown, self.shape))
            raise ValueError(f"shape: sizes are 1 to {MOST_ELEMENTS:,}, not {sizes}")
        self.refuse_idle()
        if "batch" not in self.model_fields_set and self._is_published:
            self.__dict__["batch"] = 1  # most devices have no room for 64 sequences
        if self.exact and self.new_ops in ("estimate", "refuse"):
            raise ValueError(
                f"exact profiles missing ops and new_ops {self.new_ops} does not: give one of them"
            )
        return self

    @field_validator("strategy")
    @classmethod
    def _some_strategy(cls, text: str | None) -> str | None:
        if text is not None and not text.strip():
            raise InputError('empty: write ddp, or "dp=8, tp=2", or leave it out')
        return text

    @field_validator("timeline_ranks")
    @classmethod
    def _readable_ranks(cls, text: str | None) -> str | None:
        if text is not None:
            parse_ranks(text)
        return text

    @field_validator("stack")
    @classmethod
    def _known_stack(cls, name: str | None) -> str | None:
        if name is not None:
            catalogue.find_stack(name)
        return name

    def without_effect(self) -> set[str]:
        idle = super().without_effect()
        if self.is_timed:
            idle.add("db")
        if self.is_timed or self.catalogued is not None:
            idle.add("allocator")
        if self.is_on_cluster and self.has_node:
            idle |= LINK_FIELDS  # those of the node
        if self.hardware is not None:
            idle |= self._idle_of_hardware()
        return idle

    def idle(self) -> dict[str, set[str]]:
        idle: dict[str, set[str]] = {}
        if self.graph is not None:
            idle["the graph is captured already"] = set(CAPTURE)
        elif self._is_published:
            idle[self._why_published()] = set(CAPTURE) - {"batch", "shape", "train"}
        if self._is_published is False:
            idle["it concerns transformers by their published sizes"] = {"lora"}
        elif not self.train:
            idle["nothing is trained"] = {"lora"}
        if self.hardware is None:
            idle["it concerns hardware of the catalogue: give --hardware"] = {
                *("measured", "stack", "price")
            }
        if self.hardware is not None:
            idle["hardware selects the timings"] = {"threads", "device"}
        elif self.device == "cuda":
            idle["it depends on the device"] = {"threads"}
        if self.is_auto:
            idle["strategy auto chooses it"] = {"batch", "servers"}
        else:
            idle["only strategy auto uses it: others use --batch, dp and microbatches"] = {
                "global_batch"
            }
        if not self.is_on_cluster:
            idle["only a job uses it: give workers, cluster or strategy"] = {*CLUSTER} - {
                "workers",
                "cluster",
                "strategy",
            }
        return idle | super().idle()

    @property
    def _is_published(self) -> bool | None:
        try:
            return self.architecture is not None
        except InputError:  # `check` raises it, after what has no effect
            return None

    def _why_published(self) -> str:
        name = (self.model or "").removeprefix(SIZES)
        why = f"{name} is the published model, in bfloat16 with AdamW"
        if name in MODELS:
            why += f"; --model {MODELS[name].reference} captures the module of that name"
        return why

    def check(self) -> None:
        """Raise InputError for missing files and options that no capture supports."""
        if self.is_auto and (
            counts := [change for change in self.what_if if change.what == "count"]
        ):
            raise counts[0].error("strategy auto has one number of workers: paracosm plan has more")
        super().check()

    def _check(self) -> None:
        self._check_hardware()
        if self.graph is not None and not self.graph.is_file():
            raise InputError(f"{self.graph}: no such file")
        if self.model is not None and self.architecture is None:
            self.options(self.device)
        if self.is_auto:
            self._check_auto()
        if self.is_on_cluster:
            workers, strategy = self.jobs[-1]
            if strategy.needs_sizes and self.model in ARCHITECTURES and self.architecture is None:
                raise InputError(f"strategy: {self.strategy}: {self._of_module()}")
            self.resolve_cluster(workers)
            if self.timeline_ranks is not None:
                check_ranks(self.timeline_ranks, workers + strategy.servers)
        if self.catalogued is not None:
            return
        if self.db.is_dir():
            raise InputError(f"{self.db}: a folder, not a profile database: --db names its file")
        if not self.db.is_file() and not self.is_timed:
            raise InputError(
                f"{self.db}: no such database: paracosm profile ops writes one, --db names it; "
                "or take timings from a catalogue: --hardware h100-sxm"
            )

    def _check_auto(self) -> None:
        if self.architecture is None:
            why = self._of_module() if self.model in ARCHITECTURES else ", ".join(ARCHITECTURES)
            raise InputError(f"strategy: auto needs a transformer by its published sizes: {why}")
        if self.cluster is None and self.workers is None:
            raise InputError("strategy: auto needs a number of workers: add --workers 8")
        if self.predictions is not None:
            raise InputError(
                "strategy: auto needs a single number of workers: paracosm plan --model ... "
                "--hardware "
                "... compares several"
            )
        workers, _ = self.jobs[-1]
        if self.cluster is None:  # before so many nodes are made
            machine = workers
            if self.has_node and self.catalogued is not None:
                machine = machine_of(self.catalogued.topology(workers), workers)
            check_divisible(self.architecture, workers, machine, self.global_batch or workers)
        if len({node.device for node in self.resolve_cluster(workers).nodes}) > 1:
            raise InputError(
                "strategy: auto needs workers with the same device: write the strategy out"
            )

    def _of_module(self) -> str:
        return (
            f"with the timings of a database {self.model} means the module that was profiled: "
            f"--model {SIZES}{self.model} is the published model"
        )

    def _check_hardware(self) -> None:
        if self.hardware is None:
            return
        if self.catalogued is not None:
            self.software.ops_on(self.catalogued.name)
        idle = self._idle_of_hardware()
        if given := sorted(idle & self.model_fields_set):
            known = "timings" if self.catalogued is None else "no timings"
            raise InputError(
                f"{', '.join(given)}: has no effect, leave it out: {self.hardware} has {known}"
            )

    def _idle_of_hardware(self) -> frozenset[str]:
        return frozenset({"measured", "stack", "price"}) if self.catalogued is None else OF_DATABASE

    @cached_property
    def is_timed(self) -> bool:
        """Whether the graph has all durations of its device, and there is no database."""
        if self.graph is None or "db" in self.model_fields_set or self.db.exists():
            return False
        from paracosm.graphs import load_graph

        return load_graph(self.graph).is_timed

    @cached_property
    def architecture(self) -> Transformer | None:
        """The transformer that is written down from its published sizes; None for a captured one.

        A name that is also a module's means the published model on hardware of the catalogue, and
        the module that was profiled where timings are a database's.

        Raises:
            InputError: a shape that is no number of tokens; hardware that nothing knows.
        """
        name = (self.model or "").removeprefix(SIZES)
        if not is_transformer(name):
            return None
        if self.model in MODELS and self.catalogued is None:
            return None
        if self.shape is not None and len(self.shape) != 1:
            raise InputError(f"shape: {name} takes a number of tokens, such as 2048")
        transformer = find_transformer(name, self.shape[0] if self.shape else None)
        if self.lora is not None:
            transformer = replace(transformer, adapter=self.lora)
        if self.catalogued is None:
            return transformer
        stack = self.software
        return replace(transformer, recipe=stack.recipe, loss=stack.loss, weights=stack.weights)

    @cached_property
    def software(self) -> Stack:
        """The stack that runs on hardware of the catalogue."""
        return catalogue.find_stack(self.software_name)

    @cached_property
    def software_name(self) -> str:
        """The name of the stack; the usual one of the model, the device and the strategy.

        Models that are captured or read run op by op, as PyTorch runs them. Published ones are
        compiled; ranks that share layers, sequences, experts or stages are Megatron's.
        """
        name = (self.model or "").removeprefix(SIZES)
        if self.stack is not None:
            return self.stack
        if not is_transformer(name) or (self.model in MODELS and self.catalogued is None):
            return "pytorch-eager"
        if name.startswith("mpt-"):
            return "llm-foundry"
        if self.catalogued is not None and self.catalogued.device.kind == "tpu":
            return "maxtext"
        if self.is_auto:
            return "megatron-te"
        return "megatron-te" if self._shares_model else "pytorch-compile"

    @property
    def _shares_model(self) -> bool:
        """Whether ranks share layers, sequences, experts or stages, as far as the text says."""
        from paracosm.jobs.strategies.strategy import parse_strategy

        workers = self.workers[-1] if self.workers else None
        if workers is None and self.cluster_in_file is not None:
            workers = len(self.cluster_in_file.workers)
        try:
            strategy = parse_strategy(self.strategy or "single", workers)
        except InputError:  # `check` raises it
            return False
        return strategy.ranks > strategy.data or strategy.expert > 1

    @cached_property
    def catalogued(self) -> Hardware | None:
        """The hardware of the catalogue or a datasheet file; None to use timings. A database that
        is given explicitly or has timings of that hardware takes precedence.

        Raises:
            InputError: neither has hardware of that name.
        """
        if self.hardware is None or "db" in self.model_fields_set:
            return None
        from paracosm.profiling.datasheets import holds_hardware  # with what reads graphs

        if self.db.is_file() and holds_hardware(self.db, self.hardware):
            return None
        try:
            hardware = catalogue.find_hardware(self.hardware)
        except InputError:
            if self.db.is_file() and not self.hardware.endswith((".yaml", ".yml")):
                return None  # the database's contents are reported later
            raise
        return hardware if self.stack is None else catalogue.find_stack(self.stack).on(hardware)

    def options(self, device: str, tensor: int = 1) -> CaptureOptions:
        from paracosm.graphs.capture import CaptureOptions

        fields = {name: getattr(self, name) for name in ("model", *sorted(CAPTURE))}
        if tensor > 1:
            fields |= {"parallel": "tensor", "ranks": tensor}
        return CaptureOptions(**fields, device=device)

    @cached_property
    def unchanged(self) -> Self:
        return self._with("what_if", what_if=(), timeline_ranks=None)

    def _can_change(self, change: Change) -> bool:
        return super()._can_change(change) or change.subject == "collectives"

    @cached_property
    def of_collectives(self) -> tuple[Change, ...]:
        return tuple(change for change in self.what_if if change.subject == "collectives")

    @cached_property
    def jobs(self) -> list[tuple[int, Strategy]]:
        from paracosm.prediction.job import strategies_by_workers

        workers, held = self.workers, None
        if self.cluster_in_file is not None:
            held = len(self.cluster_in_file.servers)
            workers = workers or (len(self.cluster_in_file.workers),)
        text = "ddp" if self.strategy is None or self.is_auto else self.strategy
        if self.catalogued is None:
            return strategies_by_workers(text, workers, self.servers, held)
        return [
            (number, self._as_software_does(strategy))
            for number, strategy in strategies_by_workers(text, workers, self.servers, held)
        ]

    def _as_software_does(self, strategy: Strategy) -> Strategy:
        """Return a strategy with what its software does where nothing else is said."""
        if strategy.float8 is True:
            strategy = replace(strategy, float8=self.software.float8)
        if strategy.context > 1 and strategy.context_form == "auto":
            strategy = replace(strategy, context_form=self.context_form)
        return strategy

    @cached_property
    def context_form(self) -> str:
        """How ranks that share a sequence exchange keys and values where nothing says."""
        return "auto" if self.catalogued is None else self.software.context

    def of_strategy(self, strategy: Strategy, batch: int) -> PredictConfig:
        """Return the same with a strategy in place of auto, and the examples of one pass."""
        return self._with(
            "strategy",
            stack=None if self.catalogued is None else self.software_name,
            strategy=str(strategy),
            batch=batch,
            workers=(strategy.ranks,),
            global_batch=None,
        )

    def resolve_cluster(self, workers: int) -> Cluster:
        return first_workers(self._largest, workers)

    @cached_property
    def _largest(self) -> Cluster:
        workers, strategy = self.jobs[-1]
        if workers > MOST_NODES:
            raise InputError(f"workers: a job has {MOST_NODES:,} at most, not {workers:,}")
        cluster = self.cluster_in_file
        if self.has_node and self.catalogued is not None:
            return self.changed(self.catalogued.cluster(workers))
        if cluster is None and self.bandwidth is None and workers + strategy.servers > 1:
            raise InputError(
                "link bandwidth not specified: add --bandwidth 10Gbit/s (inf for free links), or "
                "--cluster FILE"
            )
        largest = first_workers(self.cluster_of(workers, strategy.servers), workers)
        return self.changed(self._with_memory(largest))

    def _with_memory(self, cluster: Cluster) -> Cluster:
        """Return the cluster whose workers have the memory of the catalogue, if nothing says it."""
        if self.catalogued is None:
            return cluster
        names, memory = {None, self.catalogued.name}, self.catalogued.device.memory
        lacks = {
            node
            for node in map(cluster.node, cluster.workers)
            if node.memory is None and node.device in names
        }
        nodes = (replace(node, memory=memory) if node in lacks else node for node in cluster.nodes)
        return replace(cluster, nodes=tuple(nodes))

    @property
    def replaced_links(self) -> str | None:
        """What flags or a cluster file take the place of, in words; None where of nothing."""
        hardware, (workers, strategy) = self.catalogued, self.jobs[-1]
        if hardware is None or hardware.node is None or self.has_node or workers == 1:
            return None
        if self.cluster is not None:
            who, instead = "the cluster file", ""
        else:
            flags = sorted(LINK_FIELDS & self.model_fields_set)
            who = " and ".join(f"--{name.replace('_', '-')}" for name in flags) or "the server"
            nodes = workers + strategy.servers
            instead = f": all {nodes:,} are joined by one kind of link, also within a node"
        return f"{who} in place of {hardware.node_in_words}{instead}"

    @property
    def has_node(self) -> bool:
        """Whether the links are those of the hardware's node, without an override by flags."""
        catalogued = self.catalogued is not None and not self.jobs[-1][1].servers
        return catalogued and self.cluster is None and not LINK_FIELDS & self.model_fields_set
