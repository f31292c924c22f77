"""Training steps of many software stacks, as others published them, beside what is predicted.

    python benchmarks/accuracy/stacks.py [FOLDER] [--of SOURCE ...] [--rows]

FOLDER has tables `e2e_*.csv`, a run a row: a model by its sizes, batches, how ranks share them, the
GPU, the stack, and the seconds of a step; without it, the folder `stacks` of the one that
PARACOSM_DATA names. No row sets anything: rates are from kernels that were timed alone
(`kernels.py`). Beside the prediction stand two simple ones: the constant share of the peak that
other models reach with the same device, type of numbers and stack, and that of the nearest row of
another model. `--rows` prints every row.

What a table does not say is as the stack's recipes have it: which collectives overlap. MaxText
computes layers again where nothing says otherwise and the step would not fit. Of its runs on TPUs
the table has today's scripts; the figures were printed in 2023, and are asked with the sizes,
batches and ways that its repository had then (`MAXTEXT_TPU`).
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from printing import folder_of, mape, print_table, signed

from paracosm.cluster.hardware import (
    Hardware,
    Stack,
    find_hardware,
    find_stack,
    load_efficiencies,
)
from paracosm.errors import InputError
from paracosm.graphs import Graph
from paracosm.graphs.transformer import Transformer, transformer_graph
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import NO_INTERFERENCE, OF_GPUS, Replica
from paracosm.prediction.job import JobPrediction, predict_job
from paracosm.profiling.datasheets import NONE, common_error, durations_on
from paracosm.profiling.estimators.roofline import Estimate

DEVICES = {
    "A100-SXM": "a100-sxm-80gb",
    "B200": "b200-sxm",
    "B200 (power limited)": "b200-sxm-750w",
    "GB200": "gb200",
    "H100": "h100-sxm",
    "H100 (80 GB; not named in the table)": "h100-sxm",
    "H100 96GB HBM2e 500 W": "h100-sxm-96gb",
    "H100-SXM": "h100-sxm",
    "H100-SXM (GCP A3, TCPX)": "h100-sxm",
    "H200": "h200-sxm",
    "MI300X": "mi300x",
    "MI355X": "mi355x",
    "NVIDIA H100-PCIe-80GB": "h100-pcie",
    "NVIDIA H100-SXM-80GB": "h100-sxm",
    "NVIDIA H100-SXM5-80GB": "h100-sxm",
    "NVIDIA H200-SXM5-141GB": "h200-sxm",
    "NVIDIA L40S": "l40s",
    "TPU v4": "tpu-v4",
    "TPU v5e": "tpu-v5e",
    "TPU v5p": "tpu-v5p",
}
"""Devices of the catalogue, by the names of the tables."""

META = ("pytorch/ao", "pytorch/torchtitan")
"""Whose H100 are those of Meta, of 500 W with 96 GB of HBM2e."""

STACKS = (
    ("MaxText", "maxtext"),
    ("PAXML", "maxtext"),
    ("NeMo", "megatron-te"),
    ("NVIDIA NeMo", "nemo-2024"),
    ("Megatron-Core", "megatron-te"),
    ("Primus", "megatron-te"),
    ("torchtitan", "torchtitan"),
    ("DeepSpeed", "deepspeed"),
    ("HF with TE", "megatron-te"),
    ("PyTorch compile", "pytorch-compile"),
    ("PyTorch eager", "pytorch-eager"),
    ("HF", "pytorch-eager"),
)
"""How the name of a stack begins in the tables, and which one of ours it is."""

SHARDINGS = (
    ("zero1", "optimizer"),
    ("zero2", "gradients"),
    ("zero3", "parameters"),
    ("fsdp", "parameters"),
    ("megatron-fsdp", "parameters"),
)
OVERLAPS = ("NeMo", "NVIDIA NeMo", "torchtitan async TP")
"""Stacks that overlap tensor-parallel collectives with products, in all recipes of the tables."""

AGAIN = {"full": True, "selective (per op)": "selective", "selective": "attention", "none": False}
DEFAULT_CHUNKS = {"nemotron4-340b": 12}
"""Chunks of a pipeline that recipes have and one release's table leaves out (dgxc-benchmarking,
nemotron4-340b: `virtual_pipeline_model_parallel_size`)."""


TASKS = ("pretrain", "pretrain (CI)", "fine-tune (full)")

MAXTEXT_TPU: Mapping[str, tuple[int, int, int, int, dict[str, tuple[int, int, str]]]] = {
    "maxtext-16b": (32, 5120, 32, 32768, {"v5e": (6, 1, "full")}),
    "maxtext-22b": (48, 6144, 24, 24576, {"v4": (16, 1, "full")}),
    "maxtext-32b": (32, 10240, 32, 32768, {"v5e": (4, 1, "full"), "v5p": (8, 4, "minimal")}),
    "maxtext-52b": (32, 12288, 32, 49152, {"v4": (10, 1, "full")}),
    "maxtext-64b": (64, 10240, 32, 32768, {"v5e": (2, 1, "full"), "v5p": (4, 4, "minimal")}),
    "maxtext-128b": (64, 10240, 64, 65536, {"v5e": (1, 16, "full"), "v5p": (2, 8, "minimal")}),
    "maxtext-256b": (64, 20480, 64, 65536, {"v5p": (2, 8, "minimal")}),
    "maxtext-512b": (128, 20480, 64, 65536, {"v5p": (2, 16, "full")}),
    "maxtext-1024b": (128, 20480, 128, 131072, {"v5p": (2, 16, "full")}),
}
"""Layers, width, heads (each 256 wide) and the perceptron's width, two matrices; by TPU the
examples a device, ways of tensor parallelism, and the policy of recomputation.

AI-Hypercomputer/maxtext: of TPU v4 commit e286533 of March 2023 (MaxText/configs/1xv4-128.sh,
1xv4-384.sh; sequences of 1,024 tokens), of v5e e47fa1b of October 2023 (configs/largest_job), of
v5p 76bd53b of December 2023 (configs/v5p); in all of them base.yml has a vocabulary of 32,768 that
embedding and head share."""


@dataclass(frozen=True)
class Row:
    """A measured run that can be asked."""

    source: str  # the table
    stack_name: str  # in the table
    model_name: str
    model: Transformer
    strategy: Strategy
    micro_batch: int
    device: str  # of the catalogue
    stack: str  # of ours
    numbers: str  # "bf16", "fp8"
    seconds: float
    says_recompute: bool
    slice: int = 0  # TPUs of a slice; 0 for other nodes

    @property
    def flops(self) -> float:
        """Of a step and a device: six for each parameter that a token meets, and attention's."""
        model = self.model
        idle = model.layers * max(model.experts - model.active, 0) * model.expert_parameters
        tokens = self.micro_batch * self.strategy.microbatches * self.strategy.data * model.sequence
        attention = 6 * model.layers * model.width * model.sequence * (2 - model.causal)
        each = 4 if model.adapter else 6  # none for gradients of frozen weights
        return (each * (model.parameters - idle) + attention) * tokens / self.strategy.ranks

    @property
    def utilisation(self) -> float:
        """Flops of the model over the peak of its numbers."""
        device = find_hardware(self.device).device
        dtype = "float8" if self.strategy.float8 and "float8" in device.peak_tflops else "bfloat16"
        return self.flops / self.seconds / device.peak(dtype)


@dataclass(frozen=True)
class Result:
    """A row with its predictions, in seconds; None where no other model has a row."""

    row: Row
    predicted: float
    inside: bool  # whether the 90 % interval has what was measured
    constant: float | None  # by the constant share of the peak
    nearest: float | None  # by that of the nearest row

    def error(self, seconds: float | None) -> float:
        return (self.predicted if seconds is None else seconds) / self.row.seconds - 1


def main() -> int:
    """Print mean errors by table, stack and device; what could not be asked, and why."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", help="of tables e2e_*.csv")
    parser.add_argument("--of", nargs="+", help="whose rows: dgxc, maxtext, ...")
    parser.add_argument("--rows", action="store_true", help="print every row")
    parsed = parser.parse_args()
    folder = folder_of(parsed, "stacks", "measured steps")
    if folder is None:
        return 2
    rows, refused = list[Row](), Counter[tuple[str, str]]()
    for file in sorted(folder.glob("e2e_*.csv")):
        source = file.stem.removeprefix("e2e_")
        if parsed.of is None or source in parsed.of:
            found, left = read_rows(file, source)
            rows += found
            refused.update(left)
    if not rows:
        print(f"{folder}: no runs: files e2e_*.csv")
        return 2
    results = list[Result]()
    for row in rows:
        try:
            results.append(_result(row, rows))
        except InputError as error:
            refused[row.source, str(error).partition(":")[0]] += 1
    if parsed.rows:
        _print_rows(results)
    _print_groups(results)
    print(f"\nnot asked: {sum(refused.values())} rows")
    print_table(
        ("", "why", "rows"),
        ((source, why, str(count)) for (source, why), count in sorted(refused.items())),
        left=2,
    )
    return 0


def read_rows(file: Path, source: str) -> tuple[list[Row], Counter[tuple[str, str]]]:
    """Return the runs of a table that can be asked, and how many cannot, by the reason."""
    found, refused = list[Row](), Counter[tuple[str, str]]()
    with file.open(encoding="utf-8", newline="") as lines:
        for entry in csv.DictReader(lines):
            try:
                found.append(_row(entry, source))
            except InputError as error:
                refused[source, str(error)] += 1
    return found, refused


def _row(entry: Mapping[str, str], source: str) -> Row:
    """Raise InputError for what is no training step of a decoder whose layout is known."""
    if entry["model"] in MAXTEXT_TPU:
        return _maxtext_row(entry, source)
    if entry["model"] == "bert-large (MLPerf)":
        entry = _bert(entry)
    elif entry["task"] == "lora r=16":
        entry = _lora(entry)
    elif entry["model"].startswith("resnet50"):
        raise InputError("convolutions of MXNet, with batch norms in them: no stack has those")
    elif entry["task"] not in TASKS:
        raise InputError(f"task: {entry['task']}")
    if entry["offload"]:
        raise InputError("updates on the host")
    for name in ("layers", "width", "heads", "ffn", "vocab", "seq", "gbs", "mbs", "gpus"):
        if not entry[name]:
            raise InputError(f"does not say {name}")
    if not entry["step_s"]:
        raise InputError("does not say the time of a step")
    stack = next((ours for start, ours in STACKS if entry["stack"].startswith(start)), None)
    device = DEVICES.get(entry["gpu"])
    if entry["source"].startswith(META) and device == "h100-sxm":
        device = "h100-sxm-96gb"
    if stack is None or device is None:
        raise InputError(f"{'stack' if stack is None else 'device'}: not known")
    strategy, micro_batch = _strategy(entry, find_stack(stack))
    return Row(
        source=source,
        stack_name=entry["stack"],
        model_name=entry["model"],
        model=_model(entry, find_stack(stack)),
        strategy=strategy,
        micro_batch=micro_batch,
        device=device,
        stack=stack,
        numbers="fp8" if strategy.float8 else "bf16",
        seconds=float(entry["step_s"]),
        says_recompute=bool(entry["recompute"]),
    )


def _maxtext_row(entry: Mapping[str, str], source: str) -> Row:
    """Return a run of MaxText on TPUs, whose table has the rate that MaxText prints: six flops for
    each parameter and token, and, since the summer of 2023, attention's without its mask."""
    layers, width, heads, inner, ways = MAXTEXT_TPU[entry["model"]]
    tpu = entry["gpu"].removeprefix("TPU ")
    batch, tensor, policy = ways[tpu]
    model = Transformer(
        layers=layers,
        width=width,
        heads=heads,
        head=256,
        sequence=1024 if tpu == "v4" else 2048,
        vocabulary=32_768,
        inner=inner,
        rotary=True,
        rms=True,
        bias=False,
        recipe=find_stack("maxtext").recipe,
    )
    ranks, slices = _whole(entry, "gpus"), int(entry["note"].split()[0])
    attention = 0 if tpu == "v4" else 12 * layers * heads * 256 * model.sequence
    flops = (6 * model.parameters + attention) * batch * model.sequence
    strategy = Strategy(
        data=ranks // tensor,
        tensor=tensor,
        sequence=tensor
        > 1,  # whose collectives do not overlap: decided on 32B, on one slice of v5p
        sharding="parameters",
        shard=ranks // tensor // slices if slices > 1 else 0,
        recompute={"full": True, "minimal": "except-products"}[policy],
    )
    return Row(
        source=source,
        stack_name=entry["stack"],
        model_name=entry["model"],
        model=model,
        strategy=strategy,
        micro_batch=batch * tensor,
        device=DEVICES[entry["gpu"]],
        stack="maxtext",
        numbers="bf16",
        seconds=flops / (float(entry["value"]) * 1e12),
        says_recompute=True,
        slice=ranks // slices,
    )


def _lora(entry: Mapping[str, str]) -> dict[str, str]:
    """Return a run of Llama 2 70B with adapters as NVIDIA's scripts have it, which all submitters
    ran (training_results_v4.0, NVIDIA/benchmarks/llama2_70b_lora/implementations/nemo): float8,
    scaled by earlier steps, tensor-parallel collectives that overlap; ranks that share a model are
    tp=4, then cp=2 (on H200 tp=2), as many as accumulation leaves."""
    ways = _whole(entry, "gpus") * _whole(entry, "accumulation") // _whole(entry, "gbs")
    tensor = min(ways, 4)
    return {
        **entry,
        "stack": "NeMo",
        "dtype": "fp8 delayed",
        "tp": entry["tp"] or str(tensor),
        "cp": entry["cp"] or str(ways // tensor),
    }


def _bert(entry: Mapping[str, str]) -> dict[str, str]:
    """Return a run of BERT as NVIDIA's scripts have it (training_results_v4.0, NVIDIA/benchmarks/
    bert): two examples are packed into a sequence, or their padding is left out, which is as many
    tokens; Transformer Engine in float8; states of LAMB are sharded within a node (NVIDIA/apex,
    apex/contrib/optimizers/distributed_fused_lamb.py, `dwu_group_size`).

    Raises:
        InputError: a GPU of which no script was published.
    """
    if DEVICES.get(entry["gpu"]) == "l40s":
        raise InputError("does not say its numbers")
    ranks, examples = _whole(entry, "gpus"), _whole(entry, "gbs")
    return {
        **entry,
        "stack": "NeMo",
        "dtype": "fp8 delayed",
        "mbs": str(examples // ranks // 2),
        "gbs": str(examples // 2),
        "sharding": "zero1, within a node",
    }


def _model(entry: Mapping[str, str], stack: Stack) -> Transformer:
    is_gpt = entry["model"].startswith(("gpt3", "bert", "t5"))
    return Transformer(
        layers=_whole(entry, "layers"),
        width=_whole(entry, "width"),
        heads=_whole(entry, "heads"),
        sequence=_whole(entry, "seq"),
        vocabulary=_whole(entry, "vocab"),
        kv_heads=_whole(entry, "kv_heads", 0),
        inner=_whole(entry, "ffn"),
        gated=entry["gated"] in ("1", "1.0"),
        rotary=not is_gpt,
        rms=not is_gpt and "nemotron" not in entry["model"],
        bias=is_gpt,
        tied=is_gpt,
        experts=_whole(entry, "experts", 0),
        active=_whole(entry, "top_k", 0),
        causal=not entry["model"].startswith("bert"),
        scored=0.15 if entry["model"].startswith("bert") else 1.0,
        adapter=16 if entry["task"] == "lora r=16" else 0,
        recipe=stack.recipe,
    )


def _strategy(entry: Mapping[str, str], stack: Stack) -> tuple[Strategy, int]:
    tensor, pipeline, context, expert = (_whole(entry, key, 1) for key in ("tp", "pp", "cp", "ep"))
    chunks = _whole(entry, "vp", 1 if pipeline == 1 else DEFAULT_CHUNKS.get(entry["model"], 1))
    ranks, micro_batch = _whole(entry, "gpus"), _whole(entry, "mbs")
    data, left = divmod(ranks, tensor * pipeline * context)
    if left or not data:
        raise InputError("ways do not divide the devices")
    microbatches, left = divmod(_whole(entry, "gbs"), micro_batch * data)
    if left or not microbatches:
        raise InputError("micro-batches do not divide the batch")
    sharding = next((ours for start, ours in SHARDINGS if start in entry["sharding"]), "none")
    interleaved = pipeline > 1 and chunks > 1
    return (
        Strategy(
            data=data,
            tensor=tensor,
            sequence=tensor > 1,
            async_tp=tensor > 1 and entry["stack"].startswith(OVERLAPS),
            context=context,
            context_form=stack.context if context > 1 else "auto",
            expert=expert,
            pipeline=pipeline,
            schedule="interleaved" if interleaved else "1f1b",
            chunks=chunks if interleaved else 1,
            microbatches=microbatches,
            sharding=sharding if data * context > 1 else "none",
            shard=8 if "within a node" in entry["sharding"] and data > 8 else 0,
            recompute=AGAIN.get(entry["recompute"], False),
            float8=_scaling(entry["dtype"], stack),
            states="bfloat16" if _in_half_precision(entry) else "float32",
        ),
        micro_batch,
    )


def _whole(entry: Mapping[str, str], key: str, usual: int | None = None) -> int:
    if not entry[key] and usual is not None:
        return usual
    try:
        return int(float(entry[key]))
    except ValueError:
        raise InputError(f"{key}: {entry[key]} is no number") from None


def _in_half_precision(entry: Mapping[str, str]) -> bool:
    """Whether the optimizer keeps nothing in single precision: Lightning's bf16-true, and the
    tutorial of Transformer Engine, which loads weights so (docs/examples/te_llama/utils.py)."""
    return "bf16-true" in entry["dtype"] or "te_llama" in entry["source"]


def _scaling(dtype: str, stack: Stack) -> str | bool:
    if "fp8" not in dtype:
        return False
    known = ("delayed", "tensorwise", "rowwise", "blockwise", "mxfp8")
    return next((name for name in known if name in dtype), stack.float8)


def _result(row: Row, rows: Sequence[Row]) -> Result:
    job, fits = predicted(row)
    if not fits and row.stack == "maxtext" and not row.says_recompute:
        row = replace(row, strategy=replace(row.strategy, recompute=True))
        job, _ = predicted(row)
    alike = [
        other
        for other in rows
        if (other.device, other.numbers, other.stack) == (row.device, row.numbers, row.stack)
        and other.model_name != row.model_name
    ]
    constant = nearest = None
    if alike:
        share = math.exp(float(np.mean([math.log(other.utilisation) for other in alike])))
        constant = row.seconds * row.utilisation / share
        near = min(alike, key=lambda other: _distance(row, other))
        nearest = row.seconds * row.utilisation / near.utilisation
    low, high = job.interval
    return Result(row, job.iteration_time, low <= row.seconds <= high, constant, nearest)


def _distance(row: Row, other: Row) -> float:
    """Return how far rows are apart in parameters, tokens of a sequence and devices."""
    return sum(
        abs(math.log(one / two))
        for one, two in (
            (row.model.parameters, other.model.parameters),
            (row.model.sequence, other.model.sequence),
            (row.strategy.ranks, other.strategy.ranks),
        )
    )


def predicted(row: Row) -> tuple[JobPrediction, bool]:
    """Return the prediction of a run, and whether it fits into memory."""
    hardware = find_hardware(row.device)
    if row.slice and hardware.node is not None:
        hosts = hardware.node.cards * row.slice // hardware.node.count
        node = hardware.node.model_copy(update={"count": row.slice, "cards": hosts})
        hardware = replace(hardware, node=node)
    graph = transformer_graph(row.model, row.micro_batch, row.strategy.split())
    durations = durations_on(graph, hardware, stack=find_stack(row.stack))
    job = predict_job(
        Replica(
            graph,
            _seconds(graph, durations),
            interference=OF_GPUS if hardware.device.kind == "gpu" else NO_INTERFERENCE,
        ),
        hardware.cluster(row.strategy.ranks),
        row.strategy,
        relative=_interval(graph, durations, hardware),
    )
    return job, (job.peak_memory or 0) <= hardware.device.memory


def _seconds(graph: Graph, durations: Sequence[Estimate | None]) -> np.ndarray:
    return np.array([0.0 if each is None else each.duration for each in durations])[graph.op]


def _interval(
    graph: Graph, durations: Sequence[Estimate | None], hardware: Hardware
) -> tuple[float, float]:
    """Return the ends of the 90 % interval over the prediction, where ops follow each other: those
    of one name err together, those of different names apart, and all by the device's own error."""
    counts = np.bincount(graph.op, minlength=len(graph.ops))
    total = float(_seconds(graph, durations).sum())
    below, above = Counter[str](), Counter[str]()
    for op, count, each in zip(graph.ops, counts.tolist(), durations, strict=True):
        if each is not None:
            below[op.name] += count * (each.duration - each.low) / total
            above[op.name] += count * (each.high - each.duration) / total
    common = common_error(hardware, NONE, load_efficiencies())
    return max(1 - math.hypot(common, *below.values()), 0.0), 1 + math.hypot(
        common, *above.values()
    )


def _print_rows(results: Iterable[Result]) -> None:
    print_table(
        ("run", "strategy", "measured", "predicted", "error", "constant share", "nearest"),
        (
            (
                _label(each.row),
                str(each.row.strategy),
                f"{each.row.seconds:.3f} s",
                f"{each.predicted:.3f} s",
                signed(each.error(each.predicted)),
                "" if each.constant is None else signed(each.error(each.constant)),
                "" if each.nearest is None else signed(each.error(each.nearest)),
            )
            for each in results
        ),
        left=2,
    )
    print()


def _label(row: Row) -> str:
    return (
        f"{row.model_name} ({row.model.layers}) {row.numbers}, {row.strategy.ranks} {row.device}, "
        f"{row.stack_name[:24]}"
    )


def _print_groups(results: Sequence[Result]) -> None:
    groups = defaultdict[str, list[Result]](list)
    for each in results:
        row = each.row
        kind = "experts" if row.model.experts else "adapters" if row.model.adapter else "dense"
        kind = kind if row.model.causal else "encoder"
        groups[f"{row.source}: {row.stack}, {row.device}, {row.numbers}, {kind}"].append(each)
        groups[f"{row.source}: all"].append(each)
        groups["all"].append(each)
    print_table(
        ("", "rows", "error", "bias", "worst", "in interval", "constant share", "nearest row"),
        (_line(name, groups[name]) for name in sorted(groups)),
    )


def _line(name: str, group: Sequence[Result]) -> tuple[str, ...]:
    errors = [each.error(each.predicted) for each in group]
    constant = [each.error(each.constant) for each in group if each.constant is not None]
    nearest = [each.error(each.nearest) for each in group if each.nearest is not None]
    return (
        name,
        str(len(group)),
        f"{mape(errors):.1%}",
        signed(sum(errors) / len(errors)),
        f"{max(map(abs, errors)):.1%}",
        f"{sum(each.inside for each in group) / len(group):.0%}",
        f"{mape(constant):.1%}" if constant else "",
        f"{mape(nearest):.1%}" if nearest else "",
    )


if __name__ == "__main__":
    sys.exit(main())
